"""What the open model says of a server that stalls, where the truth is known: arrivals wait evenly up to its length."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.runs import LOCUSTFILES, Row, Run, locust, quantile, recorded
from tests.timed_server import TimedServer

RATE = 100
AUTH = LOCUSTFILES / "keystone_auth.py"
CASES = {
    "10 in flight": ("--max-in-flight", "10"),
    "300 in flight": ("--max-in-flight", "300"),
    "10 in flight, dropping": ("--max-in-flight", "10", "--max-lateness"),
}


def stall_rows(seconds: int) -> Iterable[Row]:
    """A tenth of the time stalled, in three ways of meeting it, and half of half the time frozen; all at once."""
    stall_s = seconds / 10
    with ThreadPoolExecutor() as pool:
        runs = {name: pool.submit(stalled, seconds, stall_s, more) for name, more in CASES.items()}
        ice = pool.submit(frozen, seconds // 2)
    yield Row(
        f"stall of {stall_s:g} s in {seconds} s at {RATE}/s", ("answered", "dropped", "response", "service"), "p99"
    )
    for name, run in runs.items():
        truth = "" if "dropping" in name else f"{quantile_of_truth(0.99, stall_s, 0.1):.2f} s"
        yield Row(f"  {name}, of {seconds * RATE} offered", counts_and_times(run.result(), 0.99), truth)
    yield Row(f"frozen {seconds / 4:g} of {seconds / 2:g} s, 10 in flight", counts_and_times(ice.result(), 0.75), "p75")


def quantile_of_truth(share: float, length_s: float, stalled: float) -> float:
    """Response times of those who arrive during the stall are even between 0 and its length; the others' are short."""
    return length_s * max(0.0, 1 - (1 - share) / stalled)


def counts_and_times(run: Run, share: float) -> tuple[str, ...]:
    """Answered, dropped, and a quantile of both clocks."""
    times = (f"{quantile(recorded(run, clock), share) / 1e6:.3f} s" for clock in ("response", "service"))
    return (str(run.record["arrivals"]["answered"]), str(run.record["arrivals"]["dropped"]), *times)


def stalled(seconds: int, stall_s: float, more: tuple[str, ...]) -> Run:
    """A run with one stall in its first half."""
    load = ["--arrival-rate", str(RATE), *more, *([f"{stall_s / 4:g}"] if more[-1] == "--max-lateness" else [])]
    return locust(AUTH, seconds, load, ("--service", "fixed:0.003", "--stall", f"{seconds / 4:g}:{stall_s:g}"))


def frozen(seconds: int) -> Run:
    """A run whose server is stopped in the middle for half of the time."""

    def freeze(server: TimedServer, recording: Path) -> None:
        deadline = time.monotonic() + 30
        while not (recording / "local.csv").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(seconds / 4)
        os.kill(server.pid, signal.SIGSTOP)
        time.sleep(seconds / 2)
        os.kill(server.pid, signal.SIGCONT)

    load = ["--arrival-rate", str(RATE), "--max-in-flight", "10"]
    return locust(AUTH, seconds, load, ("--service", "fixed:0.003"), freeze)
