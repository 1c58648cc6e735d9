"""CPU and memory of one role's processes over a window; pure.

cpu_s is cumulative for each process. Processes appear and vanish, so the increase of a role is the sum of the increases
of its processes, each increase spread evenly over the time between the two samples that show it (which is linear
interpolation at the window's edges). What a process spent after its last sample is unknown and not counted.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import pandas as pd
from numpy.typing import NDArray

SMALLEST_COVERAGE = 0.9
"""Where the samples cover less of the window than this, its CPU time is unknown."""

LONGEST_SILENCE_S = 1.5
"""A process that no sample shows for longer has ended."""


@dataclasses.dataclass(frozen=True)
class RoleUsage:
    """What the processes of one role used in one window, or in several windows added up."""

    covered_s: float
    """Seconds of the window between the role's first and last sample."""
    cpu_s: float
    busiest_cpu_share: float
    """CPU seconds a second of the busiest process (1 = one core); the highest of several windows."""
    peak_rss_bytes: float
    """Highest sum of resident memory over the processes; pages they share count once for each of them."""


@dataclasses.dataclass(frozen=True, eq=False)
class Increments:
    """CPU spent between neighbouring samples of each process: parallel columns, ordered by process and time."""

    pid: NDArray[np.int64]
    start_unix_s: NDArray[np.float64]
    end_unix_s: NDArray[np.float64]
    cpu_s: NDArray[np.float64]

    def within(self, start_unix_s: float, end_unix_s: float) -> NDArray[np.float64]:
        """The part of each increment that falls into [start, end), seconds of CPU time."""
        length = np.maximum(self.end_unix_s - self.start_unix_s, 1e-9)
        overlap = np.minimum(self.end_unix_s, end_unix_s) - np.maximum(self.start_unix_s, start_unix_s)
        return np.asarray(self.cpu_s * np.maximum(overlap, 0) / length)


def cpu_increments(samples: pd.DataFrame) -> Increments:
    """Increments of ONE role's `samples` (USAGE_COLUMNS).

    A process first seen after the role's first pass of sampling started since the pass before, so all its CPU time is
    new; so is that of a pid whose cumulative time falls, because then another process has taken the number.
    """
    pid, time, cpu = (samples[name].to_numpy() for name in ("pid", "time_unix_s", "cpu_s"))
    order = np.lexsort((time, pid))
    pid, time, cpu = pid[order], time[order], cpu[order]
    spacing = _spacing_s(pid, time)
    first = np.concatenate([[True], pid[1:] != pid[:-1]])
    start = np.where(first, time - spacing, np.roll(time, 1))
    spent = np.where(first, cpu, cpu - np.roll(cpu, 1))
    spent = np.where(spent < 0, cpu, spent)
    kept = ~(first & (time < time.min() + spacing / 2))
    return Increments(pid[kept], start[kept], time[kept], spent[kept])


def role_usage(
    samples: pd.DataFrame, start_unix_s: float, end_unix_s: float, length_s: float | None = None
) -> RoleUsage | None:
    """Usage of one role in [start, end), or None where the samples cover less than SMALLEST_COVERAGE of it.

    `length_s`: how long the load was there, where it began and ended within the first and last second. No CPU is spent
    in the rest, so what the samples cover is no more than that.
    """
    if samples.empty:
        return None
    length_s = end_unix_s - start_unix_s if length_s is None else length_s
    first, last = float(samples["time_unix_s"].min()), float(samples["time_unix_s"].max())
    covered_s = min(min(last, end_unix_s) - max(first, start_unix_s), length_s)
    if covered_s < SMALLEST_COVERAGE * length_s or covered_s <= 0:
        return None
    increments = cpu_increments(samples)
    cpu = increments.within(start_unix_s, end_unix_s)
    by_process = np.bincount(np.unique(increments.pid, return_inverse=True)[1], cpu)
    return RoleUsage(
        covered_s=covered_s,
        cpu_s=float(cpu.sum()),
        busiest_cpu_share=float(by_process.max(initial=0)) / covered_s,
        peak_rss_bytes=peak_rss_bytes(samples, start_unix_s, end_unix_s),
    )


def peak_rss_bytes(samples: pd.DataFrame, start_unix_s: float, end_unix_s: float) -> float:
    """Highest sum over the processes of one role at one pass of sampling in [start, end); NaN without a sample."""
    pid, time, rss = (samples[name].to_numpy() for name in ("pid", "time_unix_s", "rss_bytes"))
    inside = (time >= start_unix_s) & (time < end_unix_s)
    if not inside.any():
        return float("nan")
    order = np.lexsort((time, pid))
    spacing = _spacing_s(pid[order], time[order])
    # The processes of one pass may be read a few milliseconds apart, so passes are told apart by their spacing; the
    # highest sample of a process within a slot keeps two passes that fall into one from adding up.
    slots = np.round((time[inside] - time[inside].min()) / spacing).astype(np.int64)
    order = np.lexsort((pid[inside], slots))
    slots, processes, rss = slots[order], pid[inside][order], rss[inside][order]
    starts = np.flatnonzero((np.diff(slots, prepend=-1) != 0) | (np.diff(processes, prepend=-1) != 0))
    return float(np.bincount(slots[starts], np.maximum.reduceat(rss, starts)).max())


def cpu_by_second(samples: pd.DataFrame, start_unix_s: int, end_unix_s: int) -> NDArray[np.float64]:
    """CPU seconds in each whole Unix second of [start, end) of one role; NaN where no sample reaches."""
    if samples.empty:
        return np.full(end_unix_s - start_unix_s, np.nan)
    edges = np.arange(start_unix_s, end_unix_s + 1, dtype=float)
    increments = cpu_increments(samples)
    total = np.zeros(len(edges))
    for pid in np.unique(increments.pid):
        own = increments.pid == pid
        # Within an increment the running total grows linearly, so interpolating it at the seconds' edges is exact.
        times = np.concatenate([increments.start_unix_s[own][:1], increments.end_unix_s[own]])
        total += np.interp(edges, times, np.concatenate([[0.0], np.cumsum(increments.cpu_s[own])]))
    first, last = samples["time_unix_s"].min(), samples["time_unix_s"].max()
    known = (edges[:-1] >= first - 0.5) & (edges[1:] <= last + 0.5)
    return np.where(known, np.diff(total), np.nan)


def rss_by_second(samples: pd.DataFrame, start_unix_s: int, end_unix_s: int) -> NDArray[np.float64]:
    """Resident bytes of one role at the end of each whole Unix second of [start, end); NaN where no sample reaches.

    Summed over its processes. One has the memory of its last sample, until LONGEST_SILENCE_S after it was last seen.
    """
    ends = np.arange(start_unix_s + 1, end_unix_s + 1, dtype=float)
    total, seen = np.zeros(len(ends)), np.zeros(len(ends), dtype=bool)
    pids, times, sizes = (samples[name].to_numpy() for name in ("pid", "time_unix_s", "rss_bytes"))
    for pid in np.unique(pids):
        own = np.flatnonzero(pids == pid)
        own = own[np.argsort(times[own], kind="stable")]
        time, rss = times[own], sizes[own]
        place = np.searchsorted(time, ends, side="right") - 1
        there = (place >= 0) & (ends <= time[-1] + LONGEST_SILENCE_S)
        total[there] += rss[place[there]]
        seen |= there
    return np.where(seen, total, np.nan)


def _spacing_s(pid: NDArray[np.int64], time: NDArray[np.float64]) -> float:
    """Usual time between two samples of one process, of columns ordered by process and time; 1 s where none has two."""
    gaps = np.diff(time)[pid[1:] == pid[:-1]]
    return max(float(np.median(gaps)), 1e-3) if len(gaps) else 1.0


def merge(usages: list[RoleUsage]) -> RoleUsage | None:
    """Several windows as one: CPU and seconds are added, the busiest process and the peak are the highest seen."""
    if not usages:
        return None
    return RoleUsage(
        covered_s=sum(u.covered_s for u in usages),
        cpu_s=sum(u.cpu_s for u in usages),
        busiest_cpu_share=max(u.busiest_cpu_share for u in usages),
        peak_rss_bytes=max(u.peak_rss_bytes for u in usages),
    )
