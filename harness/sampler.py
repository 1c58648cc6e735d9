"""CPU and memory of the server's and the load generator's processes, and of the machine, sampled in a thread."""

from __future__ import annotations

import csv
import threading
import time
from collections.abc import Callable
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
        self, usage: Path, machine: Path, roots: Callable[[str], list[int]], period_s: float = PERIOD_S
    ) -> None:
        """`roots` gives the process ids of a role; their children, however deep, are sampled with them."""
        self._paths = (usage, machine)
        self._machine = Machine()
        self._roots = roots
        self._period_s = period_s
        self._known: dict[int, psutil.Process] = {}
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
        for role in ROLES:
            for process in self._processes(role):
                try:
                    with process.oneshot():
                        cpu, rss, name = process.cpu_times(), process.memory_info().rss, process.name()
                except psutil.Error:
                    continue  # it has just ended
                self._rows.writerow([f"{now:.3f}", role, process.pid, name, f"{cpu.user + cpu.system:.2f}", rss])
        for output in self._outputs:
            output.flush()

    def _processes(self, role: str) -> list[psutil.Process]:
        found: list[psutil.Process] = []
        for pid in self._roots(role):
            try:
                root = self._known.setdefault(pid, psutil.Process(pid))
                found += [root, *root.children(recursive=True)]
            except psutil.Error:
                continue  # it has just ended
        return found
