"""Intervals for one sample: a proportion, and the typical run of one treatment. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence


def wilson(count: int, total: int, level: float = 0.95) -> tuple[float, float]:
    """Interval for the proportion count / total (Wilson, Journal of the American Statistical Association 22, 1927)."""
    if total <= 0 or not 0 <= count <= total:
        raise ValueError(f"{count} of {total} is no proportion")
    z = statistics.NormalDist().inv_cdf((1 + level) / 2)
    share, spread = count / total, z * z / total
    centre = (share + spread / 2) / (1 + spread)
    half = z / (1 + spread) * math.sqrt(share * (1 - share) / total + spread / (4 * total))
    return max(0.0, centre - half), min(1.0, centre + half)


def geometric_mean(runs: Sequence[float], level: float = 0.95) -> tuple[float, float | None, float | None]:
    """Geometric mean of positive per-run values with Student's interval on their logarithms; no interval of one run."""
    logs = [math.log(value) for value in runs]
    centre = statistics.fmean(logs)
    if len(logs) < 2:
        return math.exp(centre), None, None
    from scipy.stats import t  # slow to import

    half = float(t.ppf((1 + level) / 2, len(logs) - 1)) * statistics.stdev(logs) / math.sqrt(len(logs))
    return math.exp(centre), math.exp(centre - half), math.exp(centre + half)
