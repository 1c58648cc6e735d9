"""One run's tables, reduced to the little that is asked of them. Made where they were read; it alone is handed on."""

from __future__ import annotations

import csv
import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis import backlog, observation, restarts
from analysis import usage as usage_of
from analysis.backlog import Backlog
from analysis.generator import Health
from analysis.observation import Observation
from analysis.record import STEADY_STATE, WARM_UP, RunRecord, Window

SIZE_COLUMN, COUNT_COLUMN = "Average Content Size", "Request Count"

Seconds = Mapping[str, NDArray[Any]]
"""A place for each second from the start of the warm-up to the end of steady state: offset_s (from the start of steady
state), throughput (successful responses), response_us (sum of their response times), failures, server_cpu (cores; NaN
where no sample reaches), server_rss_bytes (at the second's end)."""


@dataclasses.dataclass(frozen=True, eq=False)
class Reduced:
    """What is asked of one run's response times and usage."""

    observations: dict[str, Observation]
    """By endpoint, ALL_REQUESTS first; of steady state."""
    backlog: Backlog | None
    """None in the closed model, and where nobody counted the arrivals."""
    seconds: Seconds
    outcomes: tuple[tuple[str, str, int], ...]
    """(endpoint, outcome, responses) in steady state."""
    spent_s: float
    """Sum of the response times of all responses in steady state, failures included."""
    restarts: tuple[str, ...]
    """Processes of the server that ended or began within steady state, a line each."""
    body: tuple[float, float] | None
    """Mean size in bytes and number of the bodies of the whole run, by Locust's own CSV."""


def of_run(path: Path, run: RunRecord, tables: Mapping[str, pd.DataFrame], health: Health | None,
           locust: list[Path]) -> Reduced:  # fmt: skip
    """Of a complete run in the folder `path`; `tables` by the names of measurements.TABLES, `locust` its CSV files."""
    timeline, usage = tables["timeline"], tables["usage"]
    window, queue = run.windows[STEADY_STATE], None
    if health is not None and health.arrivals is not None:
        second, count = timeline["second"].to_numpy(), timeline["count"].to_numpy()
        queue = backlog.of_run(health.arrivals, second, count, health.offered)
    steady = timeline[timeline["phase"] == STEADY_STATE]
    counts = steady.groupby(["endpoint", "outcome"], observed=True)["count"].sum()
    is_open = run.load.get("model") == "open"
    return Reduced(
        observations=observation.of_run(tables["response_times"], usage, window, queue, is_open),
        backlog=queue,
        seconds=_seconds(run.windows, timeline, usage[usage["role"] == "server"]),
        outcomes=tuple((str(e), str(o), int(n)) for (e, o), n in zip(counts.index, counts, strict=True)),
        spent_s=float(steady["response_us"].sum()) / 1e6,
        restarts=tuple(restarts.of_run(usage, window, restarts.killed(run))),
        body=_body(path, locust),
    )


def _seconds(windows: Mapping[str, Window], rows: pd.DataFrame, samples: pd.DataFrame) -> Seconds:
    """Of one run's rows of the timeline and its server's samples."""
    steady = windows[STEADY_STATE]
    start = min(steady.start_unix_s, windows[WARM_UP].start_unix_s if WARM_UP in windows else steady.start_unix_s)
    length_s = steady.end_unix_s - start
    second = rows["second"].to_numpy() - start
    drawn = (second >= 0) & (second < length_s)
    success = (rows["outcome"] == "success").to_numpy()

    def added(column: str, chosen: NDArray[np.bool_]) -> NDArray[np.float64]:
        return np.bincount(second[chosen], rows[column].to_numpy()[chosen].astype(float), length_s).astype(float)

    return {
        "offset_s": np.arange(start, steady.end_unix_s) - steady.start_unix_s,
        "throughput": added("count", drawn & success).astype(np.int64),
        "response_us": added("response_us", drawn & success),
        "failures": added("count", drawn & ~success).astype(np.int64),
        "server_cpu": usage_of.cpu_by_second(samples, start, steady.end_unix_s),
        "server_rss_bytes": usage_of.rss_by_second(samples, start, steady.end_unix_s),
    }


def _body(path: Path, locust: list[Path]) -> tuple[float, float] | None:
    """Of Locust's Aggregated row; only of a file within the folder, as a record from elsewhere may name any file."""
    folder = path.resolve()
    files = (file for file in locust if file.name.endswith("_stats.csv") and file.resolve().is_relative_to(folder))
    return next((_aggregated(file) for file in files), None)


def _aggregated(file: Path) -> tuple[float, float] | None:
    """(mean size, responses) of Locust's Aggregated row."""
    try:
        with file.open(newline="", encoding="utf-8", errors="replace") as stream:
            rows = [row for row in csv.DictReader(stream) if row.get("Name") == "Aggregated"]
        size, count = float(rows[-1][SIZE_COLUMN]), float(rows[-1][COUNT_COLUMN])
    except (OSError, csv.Error, KeyError, IndexError, ValueError, TypeError):
        return None
    return (size, count) if 0 <= size < 2**53 and 0 < count < 2**53 else None
