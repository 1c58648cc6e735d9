"""How long a report takes and how much memory: of result folders of 100, 300 and 1000 runs of 10 endpoints, 10 minutes.

    .venv/bin/python -m benchmarks.analysis            # ten minutes and 5 GB of disk, most of it to make the folders
    .venv/bin/python -m benchmarks.analysis --quick    # a smoke test: 10 and 20 runs of a minute

The folders are invented (analysis_folder.py), and deleted afterwards. Each is reported by a process of its own, as a
user does it. Memory is that of the process and its children, sampled 20 times a second; pages that they share count for
each. On a busy machine look at the CPU seconds: on two idle processors a report takes at least half of them.
"""

from __future__ import annotations

import argparse
import dataclasses
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil

from benchmarks import analysis_folder

REPOSITORY = Path(__file__).resolve().parent.parent
RUNS = (100, 300, 1000)
MOST_S, MOST_BYTES = 60.0, 2e9
"""The target, for 1000 runs."""
BYTES_A_RUN = 5e6
DEADLINE_S = 1800


@dataclasses.dataclass(frozen=True)
class Measured:
    """One report."""

    runs: int
    size_bytes: int
    wall_s: float
    cpu_s: float
    peak_bytes: int


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a smoke test")
    parser.add_argument("--folder", type=Path, help="where the folders are made for the time; the system's by default")
    given = parser.parse_args()
    sizes, steady_state_s = ((10, 20), 30) if given.quick else (RUNS, analysis_folder.STEADY_STATE_S)
    free = shutil.disk_usage(given.folder or tempfile.gettempdir()).free
    needed = int(1.2 * BYTES_A_RUN * max(sizes))
    if free < needed:
        sys.exit(f"{free / 1e9:.1f} GB free, and {needed / 1e9:.1f} GB are needed: use --folder")
    measured = []
    for runs in sizes:
        with tempfile.TemporaryDirectory(prefix="analysis-benchmark-", dir=given.folder) as name:
            folder = Path(name) / "experiment"
            size = analysis_folder.make(folder, runs, steady_state_s, _progress(runs))
            measured.append(report(folder, runs, size))
    print("\n".join(table(measured)))
    print(verdict(measured))


def _progress(runs: int) -> Callable[[int], None]:
    began_s = time.monotonic()

    def done(number: int) -> None:
        if number % 50 == 0:
            left_s = (time.monotonic() - began_s) / number * (runs - number)
            print(f"made {number} of {runs} runs, {left_s:.0f} s left", file=sys.stderr, flush=True)

    return done


def report(folder: Path, runs: int, size_bytes: int) -> Measured:
    """Time, CPU and memory of `python -m analysis report`. Raises CalledProcessError where it fails."""
    command = [sys.executable, "-m", "analysis", "report", str(folder)]
    began_s, peak_bytes, cpu_s = time.monotonic(), 0, 0.0
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.DEVNULL) as process:
        tree = psutil.Process(process.pid)
        while process.poll() is None:
            if time.monotonic() - began_s > DEADLINE_S:
                process.kill()
            peak_bytes, cpu_s = max(peak_bytes, _rss_bytes(tree)), max(cpu_s, _cpu_s(tree))
            time.sleep(0.05)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return Measured(runs, size_bytes, time.monotonic() - began_s, cpu_s, peak_bytes)


def _rss_bytes(tree: psutil.Process) -> int:
    try:
        return sum(process.memory_info().rss for process in (tree, *tree.children(recursive=True)))
    except psutil.Error:
        return 0


def _cpu_s(tree: psutil.Process) -> float:
    """Of the process and of its children, those that have ended among them."""
    try:
        return float(sum(sum(process.cpu_times()[:4]) for process in (tree, *tree.children(recursive=True))))
    except psutil.Error:
        return 0.0


def table(measured: Sequence[Measured]) -> list[str]:
    """At most 100 columns."""
    head = ("runs", "size, MB", "time, s", "CPU, s", "time a run, ms", "CPU a run, ms", "peak memory, MB")
    rows = [
        tuple(f"{value:.{digits}f}" for value, digits in (
            (m.runs, 0), (m.size_bytes / 1e6, 0), (m.wall_s, 1), (m.cpu_s, 1), (1000 * m.wall_s / m.runs, 0),
            (1000 * m.cpu_s / m.runs, 0), (m.peak_bytes / 1e6, 0),
        ))
        for m in measured
    ]  # fmt: skip
    widths = [max(len(row[n]) for row in [head, *rows]) for n in range(len(head))]
    return ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in [head, *rows]]


def verdict(measured: Sequence[Measured]) -> str:
    """Whether the target is met, where it was measured."""
    most = max(measured, key=lambda m: m.runs)
    target = f"{max(RUNS)} runs under {MOST_S:.0f} s and {MOST_BYTES / 1e9:.0f} GB"
    if most.runs < max(RUNS):
        return f"{target}: not measured"
    return f"{target}: {'met' if most.wall_s < MOST_S and most.peak_bytes < MOST_BYTES else 'NOT MET'}"


if __name__ == "__main__":
    main()
