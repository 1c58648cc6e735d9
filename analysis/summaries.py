"""Several runs' summaries as one number a treatment. Pure.

A summary has no histogram, so percentiles cannot be added; and they are never averaged. Counts can be added, and what
follows from counts. Extremes are the runs' extremes. Everything else is that of the middle run, the lower of two,
and so a number that a run did report.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence

import pandas as pd

from analysis.endpoints import ALL_REQUESTS

Combine = Callable[[Sequence[float], Sequence[float]], float]


def _weighted(values: Sequence[float], samples: Sequence[float]) -> float:
    total = sum(samples)
    return sum(v * n for v, n in zip(values, samples, strict=True)) / total if total else float("nan")


def _middle(values: Sequence[float], _samples: Sequence[float]) -> float:
    return statistics.median_low(values)


COMBINED: dict[str, Combine] = {
    "count": lambda values, samples: sum(values),
    "success_ratio": _weighted,
    "mean": _weighted,
    "min": lambda values, samples: min(values),
    "max": lambda values, samples: max(values),
}
"""Function of (values, responses) of the runs, by metric; the middle run's value for all others."""


def with_unanswered(reported: pd.DataFrame, treatment_of: Mapping[int, str]) -> pd.DataFrame:
    """Of load.REPORTED_COLUMNS, with 0 responses of each endpoint that another run of the treatment has.

    Only where the run's own total says that nothing else was answered: it is the sum of the endpoints that are there.
    """
    counts = reported[reported["metric"] == "count"]
    total = counts[counts["endpoint"] == ALL_REQUESTS].groupby("run")["value"].sum(min_count=1)
    parts = (
        counts[counts["endpoint"] != ALL_REQUESTS].groupby("run")["value"].agg(lambda values: values.sum(skipna=False))
    )
    whole = {int(str(run)) for run in total.index if parts.get(run) == total[run]}
    places = reported[reported["endpoint"] != ALL_REQUESTS][["endpoint", "metric"]].assign(
        treatment=reported["run"].map(treatment_of)
    )
    known = set(zip(reported["run"], reported["endpoint"], strict=True))
    rows = [
        (run, endpoint, metric, 0.0 if metric in ("throughput", "count") else math.nan, 0)
        for treatment, endpoint, metric in places[["treatment", "endpoint", "metric"]].drop_duplicates().to_numpy()
        for run in whole
        if treatment_of.get(run) == treatment and (run, endpoint) not in known
    ]
    if not rows:
        return reported
    more = pd.DataFrame(rows, columns=["run", "endpoint", "metric", "value", "samples"])
    return pd.concat([reported, more]).sort_values("run", kind="stable", ignore_index=True)


def combined(reported: pd.DataFrame, runs: set[int]) -> pd.DataFrame:
    """endpoint, metric, value, samples of some runs together; a value that any of them lacks is missing."""
    rows = reported[reported["run"].isin(runs)]
    parts: dict[tuple[str, str], tuple[list[float], list[float]]] = {}
    columns = (rows["endpoint"], rows["metric"], rows["value"], rows["samples"])
    for endpoint, metric, value, samples in zip(*columns, strict=True):
        part = parts.setdefault((endpoint, metric), ([], []))
        part[0].append(float(value))
        part[1].append(int(samples))
    found = [(*place, _of_all(place[1], *part, len(runs)), sum(part[1])) for place, part in parts.items()]
    return pd.DataFrame(found, columns=["endpoint", "metric", "value", "samples"])


def _of_all(metric: str, values: Sequence[float], samples: Sequence[float], runs: int) -> float:
    if len(values) < runs or any(math.isnan(value) for value in values):
        return float("nan")
    return values[0] if runs == 1 else COMBINED.get(metric, _middle)(values, samples)
