"""Two samples of runs, compared: ratio, exact interval, verdict. Pure: plain numbers in, dataclasses out.

The unit is the run: one number a run and metric. The effect is the ratio to the baseline, estimated on logarithms by
Hodges and Lehmann's median of all pairwise differences (Hodges & Lehmann, Annals of Mathematical Statistics 34, 1963);
the interval inverts the exact Mann-Whitney test (Hollander & Wolfe, Nonparametric Statistical Methods, section 4.3).
R computes the same by ``wilcox.test(log(x), log(y), conf.int = TRUE, exact = TRUE)``.

With ties the same order statistics of the pairwise differences are taken, as a closed interval: its coverage is then at
least the one stated (Pratt & Gibbons, Concepts of Nonparametric Theory, 1981, section 4.9).
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import math
import statistics
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

LEVEL = 0.95
MOST_REPLICATES = 50
"""No more replicates a side than this are ever suggested."""
MOST_STEPS = 300_000
"""Up to which Mann-Whitney's U is counted out, which takes a step a pair and run: 66 runs a side, or 4 and 18,000."""
POWER = 0.8
"""The suggested number decides in four of five repetitions, were noise and difference as seen."""


class Verdict(enum.StrEnum):
    """What a comparison of the primary metric says; DESIGN's words and no others."""

    INVALID = "invalid"
    SAME = "same"
    FASTER = "faster"
    SLOWER = "slower"
    INCONCLUSIVE = "inconclusive"


@dataclasses.dataclass(frozen=True)
class Effect:
    """Ratio of a treatment to its baseline, and how surely it is known."""

    ratio: float | None
    """None where a side has no run, or a value is zero, negative or missing: such a ratio has no logarithm."""
    low: float | None
    high: float | None
    """Ends of the interval; both None where too few runs exist for one at `level`."""
    level: float
    noise: float | None
    """Pooled standard deviation of the logarithms within a side, about the relative noise of a run."""
    baseline_runs: int
    treatment_runs: int


@dataclasses.dataclass(frozen=True)
class Needed:
    """Replicates a side that would decide at the noise seen; None where more than MOST_REPLICATES, or unknown."""

    difference: int | None
    sameness: int | None


def level_for(comparisons: int) -> float:
    """Level of each interval when `comparisons` of them carry the verdict: 1 - 0.05/m (Bonferroni)."""
    return 1 - (1 - LEVEL) / max(comparisons, 1)


def effect(baseline: Sequence[float], treatment: Sequence[float], level: float = LEVEL) -> Effect:
    """Ratio treatment / baseline of two unpaired samples of runs, with its interval at `level`."""
    usable = all(value > 0 and math.isfinite(value) for value in (*baseline, *treatment))
    if not (baseline and treatment and usable):
        return Effect(None, None, None, level, None, len(baseline), len(treatment))
    base, other = [math.log(v) for v in baseline], [math.log(v) for v in treatment]
    ends = shift_interval(base, other, level)
    low, high = (math.exp(ends[0]), math.exp(ends[1])) if ends else (None, None)
    return Effect(math.exp(shift(base, other)), low, high, level, pooled_sd(base, other), len(base), len(other))


def shift(baseline: Sequence[float], treatment: Sequence[float]) -> float:
    """Hodges-Lehmann estimate of treatment - baseline: the median of all pairwise differences."""
    return float(np.median(_differences(baseline, treatment)))


def shift_interval(baseline: Sequence[float], treatment: Sequence[float], level: float) -> tuple[float, float] | None:
    """Interval for treatment - baseline that inverts the exact Mann-Whitney test; None where none exists at `level`.

    Its ends are the k-th smallest and k-th largest pairwise difference, with the greatest k for which
    2 * P(U <= k - 1) <= 1 - level.
    """
    rank = interval_rank(len(baseline), len(treatment), level)
    if rank == 0:
        return None
    differences = _differences(baseline, treatment)
    ends = np.partition(differences, (rank - 1, len(differences) - rank))
    return float(ends[rank - 1]), float(ends[-rank])


def interval_rank(baseline_runs: int, treatment_runs: int, level: float) -> int:
    """Greatest k with 2 * P(U <= k - 1) <= 1 - level; 0 where even k = 1 is too much.

    Exact up to MOST_STEPS, and beyond by U's normal approximation with a correction for continuity (Hollander & Wolfe,
    section 4.1). Its tails are the heavier ones, so that the interval is no shorter than the exact one; one is taken
    off k for the rounding.
    """
    pairs = baseline_runs * treatment_runs
    if pairs * min(baseline_runs, treatment_runs) > MOST_STEPS:
        sd = math.sqrt(pairs * (baseline_runs + treatment_runs + 1) / 12)
        quantile = statistics.NormalDist().inv_cdf((1 - level) / 2)
        return max(0, math.floor(pairs / 2 + quantile * sd + 0.5) - 1)
    counts = u_counts(*sorted((baseline_runs, treatment_runs)))
    # Counts are exact integers and the level is a float: a hair's tolerance keeps 1/20 equal to 0.05.
    allowed = (1 - level) / 2 * sum(counts) * (1 + 1e-9)
    cumulative = 0
    for k, count in enumerate(counts):
        cumulative += count
        if cumulative > allowed:
            return k
    return 0


@functools.cache
def u_counts(first: int, second: int) -> tuple[int, ...]:
    """Null distribution of Mann-Whitney's U for two sample sizes: orderings with U = 0, 1, … first * second.

    By dynamic programming over the factors of the Gaussian binomial, whose coefficients they are:
    the product of (1 - q^(second + i)) / (1 - q^i) for i = 1 … first (Andrews, The Theory of Partitions, 1976, ch. 3).
    """
    counts = [1] + [0] * (first * second)
    for i in range(1, first + 1):
        for u in range(len(counts) - 1, second + i - 1, -1):
            counts[u] -= counts[u - second - i]
        for u in range(i, len(counts)):
            counts[u] += counts[u - i]
    return tuple(counts)


def mann_whitney_p(baseline: Sequence[float], treatment: Sequence[float]) -> float:
    """Exact two-sided p of the Mann-Whitney test for samples without ties."""
    u = sum(x < y for x in baseline for y in treatment)
    counts = u_counts(len(baseline), len(treatment))
    tail = min(sum(counts[: u + 1]), sum(counts[u:]))
    return min(1.0, 2 * tail / sum(counts))


def smallest_replicates(comparisons: int) -> int:
    """Fewest replicates a side for which an interval exists: 4 for one comparison, 5 up to 6, 6 up to 23."""
    level = level_for(comparisons)
    return next(n for n in range(2, 1000) if (1 - level) * math.comb(2 * n, n) * (1 + 1e-9) >= 2)


def pooled_sd(*samples: Sequence[float]) -> float | None:
    """Pooled standard deviation within the samples (n - 1); None where no sample has two values."""
    degrees = sum(len(s) - 1 for s in samples if len(s) > 1)
    if not degrees:
        return None
    return math.sqrt(sum(statistics.variance(s) * (len(s) - 1) for s in samples if len(s) > 1) / degrees)


def verdict(measured: Effect, higher_is_better: bool, margin: float) -> Verdict:
    """The verdict of a measurement that is valid: same, then faster or slower, then inconclusive.

    `same` when the whole interval lies within 1 ± margin, even where it excludes 1. Else `faster` or `slower`, by the
    metric's direction, when it excludes 1.
    """
    if measured.low is None or measured.high is None:
        return Verdict.INCONCLUSIVE
    if measured.low >= 1 - margin and measured.high <= 1 + margin:
        return Verdict.SAME
    if measured.low > 1:
        return Verdict.FASTER if higher_is_better else Verdict.SLOWER
    if measured.high < 1:
        return Verdict.SLOWER if higher_is_better else Verdict.FASTER
    return Verdict.INCONCLUSIVE


def needed(measured: Effect, margin: float) -> Needed:
    """Replicates a side that would decide, for a difference and for sameness, were noise and ratio as seen.

    For n replicates the interval's half-width is the one of the n normal scores scaled to the noise, which is what the
    exact interval comes to on average, and the estimate scatters by sd * sqrt(pi/3 * 2/n), its asymptotic standard
    error (Hodges & Lehmann 1963). n decides when in POWER of all cases the interval then leaves 1 outside, or lies
    within the margin with both its ends: where the ratio is near 1, either of them may be the one that does not.
    """
    if measured.ratio is None or measured.noise is None:
        return Needed(None, None)
    fewest = max(2, 1 + min(measured.baseline_runs, measured.treatment_runs))
    shift = math.log(measured.ratio)
    ends = (math.log(1 + margin) - shift, shift - math.log(1 - margin) if margin < 1 else math.inf)
    difference = _first(measured, fewest, (abs(shift),)) if shift else None
    return Needed(difference, _first(measured, fewest, ends))


def _first(measured: Effect, fewest: int, rooms: Sequence[float]) -> int | None:
    """Fewest replicates whose interval keeps within all of `rooms`, distances from the shift, in POWER of all cases."""
    candidates = range(fewest, MOST_REPLICATES + 1)
    return next((n for n in candidates if _chance(n, measured, rooms) >= POWER), None)


def _chance(replicates: int, measured: Effect, rooms: Sequence[float]) -> float:
    half = _half_width(replicates, measured.level)
    if half == math.inf:
        return 0.0
    noise = max(measured.noise or 0.0, 1e-12)
    scatter = noise * math.sqrt(math.pi / 3 * 2 / replicates)
    misses = (statistics.NormalDist().cdf((noise * half - room) / scatter) for room in rooms)
    return 1 - sum(misses)


@functools.cache
def _half_width(replicates: int, level: float) -> float:
    """Half-width of an interval of unit noise; infinite where none exists."""
    scores = [statistics.NormalDist().inv_cdf((i - 0.375) / (replicates + 0.25)) for i in range(1, replicates + 1)]
    scale = statistics.stdev(scores)
    scores = [score / scale for score in scores]
    ends = shift_interval(scores, scores, level)
    return math.inf if ends is None else ends[1]


def _differences(baseline: Sequence[float], treatment: Sequence[float]) -> NDArray[np.float64]:
    pairs: NDArray[np.float64] = np.array(treatment, dtype=float)[None, :] - np.array(baseline, dtype=float)[:, None]
    return pairs.ravel()
