"""Runs of Locust for the benchmarks, what they leave behind, and the table that is printed."""

from __future__ import annotations

import csv
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from tests.timed_server import Logged, TimedServer, timed_server

LOCUSTFILES = Path(__file__).resolve().parent.parent / "locustfiles"
PROBE = Path(__file__).resolve().parent / "probe.py"
CREDENTIAL = {
    "OS_USERNAME": "nobody",
    "OS_PASSWORD": "none",
    "OS_PROJECT_NAME": "none",
    "OS_USER_DOMAIN_ID": "default",
    "OS_PROJECT_DOMAIN_ID": "default",
}


@dataclasses.dataclass(frozen=True)
class Run:
    """What a run left behind."""

    probe: dict[str, Any]
    """What benchmarks/probe.py saw; empty for other locustfiles."""
    rows: list[dict[str, str]]
    health: list[dict[str, Any]]
    record: dict[str, Any]
    """What the process says of itself: totals of its arrivals, for one."""
    server_log: list[Logged]


def locust(
    locustfile: Path,
    seconds: int,
    load: Sequence[str],
    service: Sequence[str] = (),
    meanwhile: Callable[[TimedServer, Path], None] = lambda server, recorded: None,
    **variables: str,
) -> Run:
    """One process of Locust against a server of its own; raises CalledProcessError where it does not end with 0.

    `meanwhile` gets the server and the folder of the recording, in a thread, when Locust is being started.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        own = {"PROBE_FILE": f"{name}/probe.json", "HOME": name, "PYTHONPATH": str(LOCUSTFILES)}
        with timed_server(folder, *service) as server:
            command = [sys.executable, "-m", "locust", "-f", str(locustfile), "-H", server.url, "--headless"]
            command += ["--only-summary", "-t", f"{seconds}s", "--response-times", f"{name}/recorded", *load]
            environment = {**os.environ, **CREDENTIAL, **own, **variables}
            beside = threading.Thread(target=meanwhile, args=(server, folder / "recorded"))
            beside.start()
            subprocess.run(
                command,
                cwd=name,
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=120,
                check=True,
            )
            beside.join()
        return _read(folder, server.log())


def _read(folder: Path, server_log: list[Logged]) -> Run:
    with (folder / "recorded" / "local.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    health = [json.loads(line) for line in (folder / "recorded" / "local.health.jsonl").read_text().splitlines()]
    probe = folder / "probe.json"
    record = json.loads((folder / "recorded" / "local.json").read_text())
    return Run(json.loads(probe.read_text()) if probe.exists() else {}, rows, health, record, server_log)


def recorded(run: Run, clock: str, name: str = "") -> list[float]:
    """Sorted µs of a clock, of endpoints whose name is `name`; of all, where that is empty."""
    counts: Counter[int] = Counter()
    for row in run.rows:
        if row["clock"] == clock and name in ("", row["endpoint"].split()[-1]):
            counts[int(row["bucket_us"])] += int(row["count"])
    return [float(value) for value in sorted(counts.elements())]


def quantile(ordered: Sequence[float], share: float) -> float:
    """Of sorted values: the one that share of them are below."""
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]


@dataclasses.dataclass(frozen=True)
class Row:
    """A line of the table."""

    what: str
    values: tuple[str, ...]
    limit: str


def table(rows: Iterable[Row]) -> str:
    """At most 100 columns."""
    return "\n".join(
        f"{row.what:<46}{''.join(f'{value:>10}' for value in row.values):<40} {row.limit:>10}".rstrip() for row in rows
    )
