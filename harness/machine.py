"""Counters of the machine as a whole: who else is busy, swap, and what a control group's quota held back."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import psutil

GROUPS = Path("/proc/self/cgroup")
MOUNT = Path("/sys/fs/cgroup")
PAGES = Path("/proc/vmstat")


class Machine:
    """Reads MACHINE_COLUMNS of analysis/record, but for the time; a counter that the system has not is empty."""

    def __init__(self) -> None:
        self._throttled = list(_throttling_files(_read(GROUPS)))

    def counters(self) -> list[str]:
        """busy_s, harness_s, stolen_s, swapped_bytes and throttled_s."""
        cpu = psutil.cpu_times()
        busy_s = cpu.user + getattr(cpu, "nice", 0.0) + cpu.system
        stolen_s = getattr(cpu, "steal", None)
        throttled_s = throttled(_read(file) for file in self._throttled) if self._throttled else None
        values = (busy_s, time.process_time(), stolen_s, swapped_bytes(_read(PAGES)), throttled_s)
        return ["" if value is None else f"{value:.3f}".removesuffix(".000") for value in values]


def swapped_bytes(vmstat: str) -> int | None:
    """Memory that went to swap or came back, since the machine started; None where the kernel does not count it."""
    pages = dict(line.split(maxsplit=1) for line in vmstat.splitlines() if line.startswith(("pswpin ", "pswpout ")))
    return sum(map(int, pages.values())) * resource.getpagesize() if len(pages) == 2 else None


def throttled(texts: Iterator[str]) -> float | None:
    """Seconds by cpu.stat of a group and those above it, whose quotas hold too; None where no group has a counter."""
    found = []
    for text in texts:
        counters = dict(line.split(maxsplit=1) for line in text.splitlines() if " " in line)
        if "throttled_usec" in counters:  # version 2
            found.append(int(counters["throttled_usec"]) / 1e6)
        elif "throttled_time" in counters:  # version 1
            found.append(int(counters["throttled_time"]) / 1e9)
    return sum(found) if found else None


def _throttling_files(groups: str) -> Iterator[Path]:
    """cpu.stat of the groups that /proc/self/cgroup names, and of all above them."""
    for line in groups.splitlines():
        hierarchy, controllers, path = line.split(":", 2)
        if hierarchy != "0" and "cpu" not in controllers.split(","):
            continue
        mount = MOUNT if hierarchy == "0" else MOUNT / controllers
        inside = PurePosixPath(path.lstrip("/"))
        yield from (file for part in (inside, *inside.parents) if (file := mount / part / "cpu.stat").is_file())


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
