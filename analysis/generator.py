"""How the load generator itself fared: its health files, and what they come to for a run. Pure but for the reading."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analysis.record import LARGEST_NUMBER, Window

_TOTALS = ("offered", "started", "late", "late_all_busy", "dropped")
_LIMITS = (("open_files", "open_files_limit"), ("ports_in_use", "ports_limit"))
_ENDS = ("unstarted", "unanswered")
_NUMBERS = ("run_queue_delay_us", "tcp_retransmits", "listen_overflows", *_TOTALS, *_ENDS, *itertools.chain(*_LIMITS))

LEAST_LAGS = 100
"""Below this many samples a 99th percentile is the largest of them: one hiccup, no lag."""


@dataclasses.dataclass(frozen=True, eq=False)
class Arrivals:
    """The open model's arrivals of all processes, from the start of the test up to the edges of steady state."""

    edges: NDArray[np.int64]
    """Unix seconds: steady state's start, each second after it, its end."""
    arrived: NDArray[np.float64]
    """Up to each edge: intended to start before it, less those that were dropped before it."""
    started: NDArray[np.float64]
    """Up to each edge."""
    ended: float | None
    """In the whole test, by an answer or a failure; None where the records do not say how many were given up."""


@dataclasses.dataclass(frozen=True)
class Health:
    """One run's steady state as its generator's processes saw themselves; None where nobody could tell."""

    run_queue_share: float | None
    """Of the process that waited most for a processor: time it was ready to run and did not, by wall time."""
    loop_lag_p99_us: float | None
    """Of the process whose event loop was latest: the 99th percentile of how late it ran what was due."""
    loop_lag_mean_us: float | None
    """Of the process whose event loop was latest on average."""
    offered: int
    started: int
    late: int
    late_all_busy: int
    dropped: int
    limit_share: float | None
    """The nearest that a process came to a limit: open files, or ports towards the target."""
    retransmits: int | None
    listen_overflows: int | None
    arrivals: Arrivals | None = None
    """None in the closed model, and where nobody counted them."""

    @property
    def late_by_itself(self) -> int:
        """Arrivals that started late although a user was free: the generator's own lateness."""
        return self.late - self.late_all_busy


@dataclasses.dataclass(frozen=True, eq=False)
class _Process:
    """One process' health file, a place a line in order of its seconds."""

    second: NDArray[np.int64]
    numbers: dict[str, NDArray[np.float64]]
    """By the name of the field; NaN where nobody could tell."""
    lags_us: list[list[float]]

    def at(self, chosen: NDArray[np.bool_]) -> _Process:
        """Only the chosen lines."""
        numbers = {name: values[chosen] for name, values in self.numbers.items()}
        return _Process(self.second[chosen], numbers, list(itertools.compress(self.lags_us, chosen)))


def read_health(files: Iterable[Path], window: Window) -> Health | None:
    """One run's health in its steady state, from its processes' files; None where no line lies in the window.

    Lines that are no JSON object are left out: the torn last line of a process that was killed is one.
    """
    processes = [_process(file) for file in files]
    inside = [p.at((p.second >= window.start_unix_s) & (p.second < window.end_unix_s)) for p in processes]
    inside = [process for process in inside if len(process.second)]
    if not inside:
        return None
    grown = [_with_the_second_before(process, window) for process in processes]
    # Where load begins and ends within the window's first and last second, as with a budget, how late the event loop is
    # while users start and processes end says nothing of the requests in between.
    ends_are_filled = window.length_s == window.end_unix_s - window.start_unix_s
    lags_us = [_lags_us(process) for process in (inside if ends_are_filled else _between(inside))]
    lags_us = [found for found in lags_us if len(found) >= LEAST_LAGS]
    shares = [_limit_share(p, *names) for p in inside for names in _LIMITS]
    totals = {name: int(sum(np.nansum(p.numbers[name]) for p in inside)) for name in _TOTALS}
    return Health(
        run_queue_share=_highest(_share_of_wall(process, "run_queue_delay_us") for process in grown),
        loop_lag_p99_us=_highest(float(lag_us[math.ceil(0.99 * len(lag_us)) - 1]) for lag_us in lags_us),
        loop_lag_mean_us=_highest(float(lag_us.mean()) for lag_us in lags_us),
        **totals,
        limit_share=_highest(shares),
        retransmits=_growth(grown, "tcp_retransmits"),
        listen_overflows=_growth(grown, "listen_overflows"),
        arrivals=_arrivals(processes, window),
    )


def _arrivals(processes: list[_Process], window: Window) -> Arrivals | None:
    second = np.concatenate([process.second for process in processes])
    of = {name: np.concatenate([process.numbers[name] for process in processes]) for name in (*_TOTALS, *_ENDS)}
    if np.isnan(of["offered"]).all():
        return None
    left = np.nansum(of["dropped"]) + np.nansum(of["unstarted"]) + np.nansum(of["unanswered"])
    edges = np.arange(window.start_unix_s, window.end_unix_s + 1)
    return Arrivals(
        edges,
        up_to(second, of["offered"], edges) - up_to(second, of["dropped"], edges),
        up_to(second, of["started"], edges),
        None if np.isnan(of["unanswered"]).all() else float(np.nansum(of["offered"]) - left),
    )


def up_to(second: NDArray[np.int64], values: NDArray[Any], edges: NDArray[np.int64]) -> NDArray[np.float64]:
    """Sum of the values of all seconds before each edge; `second` in any order, NaN counts as nothing."""
    order = np.argsort(second, kind="stable")
    sums = np.concatenate([[0.0], np.cumsum(np.nan_to_num(values[order].astype(float)))])
    return np.asarray(sums[np.searchsorted(second[order], edges, side="left")])


def _process(file: Path) -> _Process:
    rows = sorted(_rows(file), key=lambda row: int(row["second"]))
    numbers = {name: _numbers([row.get(name) for row in rows]) for name in _NUMBERS}
    lags_us = [lags if isinstance(lags, list) else [] for lags in (row.get("loop_lag_us") for row in rows)]
    return _Process(np.array([row["second"] for row in rows], dtype=np.int64), numbers, lags_us)


def _rows(file: Path) -> Iterator[dict[str, Any]]:
    for row in _objects(file.read_text(encoding="utf-8", errors="replace").splitlines()):
        if isinstance(row, dict) and isinstance(row.get("second"), int) and 0 <= row["second"] <= LARGEST_NUMBER:
            arrivals = row.pop("arrivals", None)
            yield row | (arrivals if isinstance(arrivals, dict) else {})


def _objects(lines: list[str]) -> list[Any]:
    """All at once, which is faster; one by one where that fails, to leave out the lines that are no JSON."""
    try:
        found: list[Any] = json.loads(f"[{','.join(lines)}]")
    except ValueError:
        if len(lines) == 1:
            return []
        return [each for line in lines for each in _objects([line])]
    return found


def _numbers(values: list[Any]) -> NDArray[np.float64]:
    try:
        return np.array(values, dtype=float)
    except (TypeError, ValueError, OverflowError):
        return np.array(
            [float(v) if isinstance(v, int | float) and abs(v) <= LARGEST_NUMBER else np.nan for v in values]
        )


def _between(processes: list[_Process]) -> list[_Process]:
    first, last = min(p.second[0] for p in processes), max(p.second[-1] for p in processes)
    return [p.at((p.second > first) & (p.second < last)) for p in processes]


def _with_the_second_before(process: _Process, window: Window) -> _Process:
    """Counters are read at the end of a second, so that the growth over a window begins with the second before it."""
    inside = (process.second >= window.start_unix_s) & (process.second < window.end_unix_s)
    return process.at(inside | np.append(inside[1:], False))


def _share_of_wall(process: _Process, counter: str) -> float | None:
    values = process.numbers[counter]
    wall_us = 1e6 * (process.second[-1] - process.second[0]) if len(values) > 1 else 0
    return None if np.isnan(values).any() or wall_us <= 0 else float(values[-1] - values[0]) / float(wall_us)


def _growth(processes: list[_Process], counter: str) -> int | None:
    """Of a counter that belongs to a whole machine: its processes see the same one."""
    grown = [process.numbers[counter] for process in processes if len(process.second) > 1]
    known = [int(values[-1] - values[0]) for values in grown if not np.isnan(values).any()]
    return max(known, default=None)


def _lags_us(process: _Process) -> NDArray[np.float64]:
    return np.sort(_numbers(list(itertools.chain.from_iterable(process.lags_us))))


def _limit_share(process: _Process, used: str, limit: str) -> float | None:
    known = process.numbers[limit] > 0
    shares = process.numbers[used][known] / process.numbers[limit][known]
    return None if np.isnan(shares).all() else float(np.nanmax(shares))


def _highest(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)
