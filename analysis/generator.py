"""How the load generator itself fared: its health files, and what they come to for a run. Pure but for the reading."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from analysis.record import ARRIVAL_FIELDS, HEALTH_FIELDS

_ARRIVALS = (*ARRIVAL_FIELDS, "in_flight_max")
HEALTH_COLUMNS = ("run", "process", "phase", *(f for f in HEALTH_FIELDS if f != "arrivals"), *_ARRIVALS)
LEAST_LAGS = 100
"""Below this many samples a 99th percentile is the largest of them: one hiccup, no lag."""


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

    @property
    def late_by_itself(self) -> int:
        """Arrivals that started late although a user was free: the generator's own lateness."""
        return self.late - self.late_all_busy


def read_health(files: Iterable[Path], run: int) -> pd.DataFrame:
    """Rows of a run's health files, HEALTH_COLUMNS with an empty phase; lines that are no JSON object are left out."""
    rows = [row | {"run": run} for file in files for row in _rows(file)]
    return pd.DataFrame(rows, columns=list(HEALTH_COLUMNS))


def _rows(file: Path) -> Iterator[dict[str, Any]]:
    for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            continue  # the torn last line of a process that was killed
        if isinstance(row, dict) and isinstance(row.get("second"), int):
            arrivals = row.pop("arrivals", None) or {}
            yield {**row, **arrivals, "process": file.name.removesuffix(".health.jsonl"), "phase": ""}


def summarize(rows: pd.DataFrame, steady_state: str, ends_are_filled: bool = True) -> Health | None:
    """One run's health over the rows of its steady state; None without any.

    ends_are_filled: false where load began and ended within the window's first and last second, as with a budget. How
    late the event loop is while users start and processes end says nothing of the requests in between.
    """
    inside = rows[rows["phase"] == steady_state]
    if inside.empty:
        return None
    processes = [_with_the_second_before(part, steady_state) for _, part in rows.groupby("process")]
    totals = {
        name: int(pd.to_numeric(inside[name]).sum())
        for name in ("offered", "started", "late", "late_all_busy", "dropped")
    }
    shares = [
        _limit_share(inside, "open_files", "open_files_limit"),
        _limit_share(inside, "ports_in_use", "ports_limit"),
    ]
    lag_rows = inside if ends_are_filled else _between(inside)
    lags_us = [found for _, part in lag_rows.groupby("process") if len(found := _lags_us(part)) >= LEAST_LAGS]
    return Health(
        run_queue_share=_highest(_share_of_wall(part, "run_queue_delay_us") for part in processes),
        loop_lag_p99_us=_highest(lag_us[math.ceil(0.99 * len(lag_us)) - 1] for lag_us in lags_us),
        loop_lag_mean_us=_highest(sum(lag_us) / len(lag_us) for lag_us in lags_us),
        **totals,
        limit_share=_highest(shares),
        retransmits=_growth(processes, "tcp_retransmits"),
        listen_overflows=_growth(processes, "listen_overflows"),
    )


def _between(rows: pd.DataFrame) -> pd.DataFrame:
    between: pd.DataFrame = rows.loc[(rows["second"] > rows["second"].min()) & (rows["second"] < rows["second"].max())]
    return between


def _with_the_second_before(rows: pd.DataFrame, steady_state: str) -> pd.DataFrame:
    """Counters are read at the end of a second, so that the growth over a window begins with the second before it."""
    ordered = rows.sort_values("second")
    inside = (ordered["phase"] == steady_state).to_numpy()
    chosen: pd.DataFrame = ordered.loc[inside | np.append(inside[1:], False)]
    return chosen


def _share_of_wall(rows: pd.DataFrame, counter: str) -> float | None:
    values = pd.to_numeric(rows[counter])
    wall_us = 1e6 * (rows["second"].max() - rows["second"].min()) if len(rows) > 1 else 0
    return None if values.isna().any() or wall_us <= 0 else float(values.iloc[-1] - values.iloc[0]) / wall_us


def _growth(processes: list[pd.DataFrame], counter: str) -> int | None:
    """Of a counter that belongs to a whole machine: its processes see the same one."""
    grown = [pd.to_numeric(rows[counter]) for rows in processes if len(rows) > 1]
    known = [int(values.iloc[-1] - values.iloc[0]) for values in grown if not values.isna().any()]
    return max(known, default=None)


def _lags_us(rows: pd.DataFrame) -> list[int]:
    return sorted(lag for lags in rows["loop_lag_us"] if isinstance(lags, list) for lag in lags)


def _limit_share(rows: pd.DataFrame, used: str, limit: str) -> float | None:
    shares = (pd.to_numeric(rows[used]) / pd.to_numeric(rows[limit])).dropna()
    return float(shares.max()) if len(shares) else None


def _highest(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)
