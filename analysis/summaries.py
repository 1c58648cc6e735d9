"""Several runs' summaries as one number a treatment. Pure.

A summary has no histogram, so percentiles cannot be added; and they are never averaged. Counts can be added, and what
follows from counts. Extremes are the runs' extremes. Everything else is that of the middle run, the lower of two,
and so a number that a run did report.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence

import pandas as pd

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
