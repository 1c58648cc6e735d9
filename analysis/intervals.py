"""Intervals for one sample: a proportion, and the typical or the median run of one treatment. Pure."""

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


def median_interval(runs: Sequence[float], level: float = 0.95) -> tuple[float, float] | None:
    """Interval for the median run, which supposes nothing of how runs are distributed; None where none exists.

    Its ends are the k-th smallest and the k-th largest run, with the greatest k for which each tail of the sign test,
    P(Binomial(n, 1/2) <= k - 1), is at most half of 1 - level (David & Nagaraja, Order Statistics, 2003, section 7.1).
    """
    n, tail, rank = len(runs), 0.0, 0
    # A hair's tolerance keeps a tail of exactly (1 - level) / 2, which no float holds, within.
    while rank < n and (tail := tail + math.comb(n, rank) / 2**n) <= (1 - level) / 2 * (1 + 1e-9):
        rank += 1
    ordered = sorted(runs)
    return (ordered[rank - 1], ordered[-rank]) if rank else None


def fewest_runs_for_median(level: float) -> int:
    """Runs from which on median_interval exists: 6 at 95 %, 8 at 98.75 %, as for four treatments together."""
    return next(n for n in range(1, 1000) if 2.0 ** (1 - n) <= (1 - level) * (1 + 1e-9))
