"""The generator watches itself: each second, what could make its measurements wrong, beside what became of arrivals.

`<process>.health.jsonl` beside the histograms, one JSON object a second (FIELDS), appended and flushed as they are.
"""

# mypy: allow-untyped-calls

from __future__ import annotations

import json
import os
import time
import urllib.parse
from pathlib import Path
from typing import Any

import gevent
from _kernel_counters import (
    Address,
    addresses_of,
    ephemeral_ports,
    listen_overflows,
    open_files,
    open_files_limit,
    ports_in_use,
    run_queue_delay_us,
    tcp_retransmits,
)

FIELDS = (
    "second",
    "cpu_us",
    "run_queue_delay_us",
    "loop_lag_us",
    "open_files",
    "open_files_limit",
    "ports_in_use",
    "ports_limit",
    "tcp_retransmits",
    "listen_overflows",
    "arrivals",
)

PROBE_S = 0.05
"""Time between two looks at how late the event loop is. Up to 1 ms of that is the precision of its own timer."""

PORTS_EVERY_S = 10
"""Time between two counts of ports: a closed connection occupies its port for a minute, and counting takes a while."""


class Health:
    """One process' samples and their file."""

    def __init__(self, path: Path) -> None:
        """Create the file; raises FileExistsError where there is one."""
        self._file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_APPEND, 0o644)
        self._probe: Any = None
        self._due_s = 0.0
        self._lags_us: list[int] = []
        self._targets: list[Address] = []
        self._ports_counted_s = 0.0

    def start(self, host: str | None) -> None:
        """A test starts, against the URL `host`."""
        self._targets = _targets(host)
        self._ports_counted_s = 0.0
        self._lags_us.clear()
        if self._probe is None:
            self._probe = gevent.get_hub().loop.timer(PROBE_S, PROBE_S)
            self._look_again()

    @property
    def is_running(self) -> bool:
        """A test is running."""
        return self._probe is not None

    def stop(self) -> None:
        """The test is over."""
        if self._probe is not None:
            self._probe.stop()
            self._probe.close()
            self._probe = None

    def write(self, second: int, arrivals: dict[str, int] | None) -> None:
        """Append the line of the Unix second that is over. Raises OSError where the disk does not take it."""
        line = json.dumps(dict(zip(FIELDS, self._sample(second, arrivals), strict=True)), separators=(",", ":"))
        os.write(self._file, line.encode() + b"\n")

    def _sample(self, second: int, arrivals: dict[str, int] | None) -> tuple[Any, ...]:
        lags_us, self._lags_us = self._lags_us, []
        return (
            second,
            time.process_time_ns() // 1000,
            run_queue_delay_us(),
            lags_us,
            open_files(),
            open_files_limit(),
            self._ports(),
            ephemeral_ports(),
            tcp_retransmits(),
            listen_overflows(),
            arrivals,
        )

    def _ports(self) -> int | None:
        if time.monotonic() < self._ports_counted_s + PORTS_EVERY_S:
            return None
        self._ports_counted_s = time.monotonic()
        return ports_in_use(self._targets)

    def _look_again(self) -> None:
        self._due_s = time.monotonic() + PROBE_S
        self._probe.again(self._look, update=True)

    def _look(self) -> None:
        """How much later than asked for is it? Called by the loop itself, which costs half of what a greenlet does."""
        self._lags_us.append(max(0, int((time.monotonic() - self._due_s) * 1e6)))
        self._look_again()


def _targets(host: str | None) -> list[Address]:
    url = urllib.parse.urlsplit(host or "")
    try:
        port = url.port or {"http": 80, "https": 443}.get(url.scheme)
    except ValueError:
        return []
    return addresses_of(url.hostname, port) if url.hostname and port else []
