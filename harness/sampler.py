"""CPU and memory of the server's and the load generator's processes, and of the machine, sampled in a thread."""

from __future__ import annotations

import contextlib
import csv
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import IO, Self

import psutil

from analysis.record import MACHINE_COLUMNS, USAGE_COLUMNS
from harness.machine import Machine

PERIOD_S = 0.5
ROLES = ("server", "generator")


class Sampler:
    """Writes USAGE_COLUMNS and MACHINE_COLUMNS rows while it is entered as a context.

    CPU time is recorded as the counter that the kernel keeps for each process: a late or missing sample loses nothing.
    """

    def __init__(
        self, usage: Path, machine: Path, roots: Callable[[str], list[tuple[str, int]]], period_s: float = PERIOD_S
    ) -> None:
        """`roots` gives part and process id of what a role started; their descendants are sampled with them."""
        self._paths = (usage, machine)
        self._machine = Machine()
        self._roots = roots
        self._period_s = period_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="sampler", daemon=True)

    def __enter__(self) -> Self:
        """Open the files, then start sampling."""
        self._outputs: list[IO[str]] = [path.open("w", newline="", encoding="utf-8") for path in self._paths]
        self._rows, self._machine_rows = (csv.writer(output) for output in self._outputs)
        self._rows.writerow(USAGE_COLUMNS)
        self._machine_rows.writerow(MACHINE_COLUMNS)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Take a last sample and close the files."""
        self._stop.set()
        self._thread.join()
        for output in self._outputs:
            output.close()

    def _loop(self) -> None:
        due = time.monotonic()
        while True:
            self.sample()
            due = max(due + self._period_s, time.monotonic())
            if self._stop.wait(due - time.monotonic()):
                return

    def sample(self) -> None:
        """One row for each process that is alive, and one for the machine."""
        now = time.time()
        self._machine_rows.writerow([f"{now:.3f}", *self._machine.counters()])
        roots = {role: self._roots(role) for role in ROLES}
        children = _children() if any(roots.values()) else {}
        for role in ROLES:
            for part, process in _trees(roots[role], children):
                try:
                    with process.oneshot():
                        cpu, rss, name = process.cpu_times(), process.memory_info().rss, process.name()
                except psutil.Error:
                    continue  # it has just ended
                self._rows.writerow([f"{now:.3f}", role, process.pid, name, f"{cpu.user + cpu.system:.2f}", rss, part])
        for output in self._outputs:
            output.flush()


def _trees(
    roots: list[tuple[str, int]], children: dict[int, list[psutil.Process]]
) -> Iterator[tuple[str, psutil.Process]]:
    """Each root and all its descendants, with the root's part."""
    for part, pid in roots:
        try:
            waiting = [psutil.Process(pid)]
        except psutil.Error:
            continue  # it has just ended
        while waiting:
            process = waiting.pop()
            yield part, process
            waiting += children.get(process.pid, [])


def _children() -> dict[int, list[psutil.Process]]:
    """Process id to its children, of all processes: asked once a sample, for a server may be many process trees."""
    found: dict[int, list[psutil.Process]] = {}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            found.setdefault(process.ppid(), []).append(process)
    return found
