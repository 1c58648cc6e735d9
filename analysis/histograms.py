"""Histograms of response times: add counts, then take percentiles. Percentiles themselves are never averaged.

Definition of a percentile, used everywhere: nearest rank. Of n values in ascending order, the p-th percentile
(p a fraction, 0 < p <= 1) is the value of rank ceil(p * n). It is always a value that was counted, to within the
bucket's width, and never interpolated.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

CONFIDENCE = 0.95


@dataclasses.dataclass(frozen=True, eq=False)
class Histogram:
    """Counts of values: `buckets_us` ascending and without repetition, `counts` of the same length, all positive."""

    buckets_us: NDArray[np.int64]
    counts: NDArray[np.int64]

    @property
    def total(self) -> int:
        """Number of values counted."""
        return int(self.counts.sum())

    def percentile_us(self, fraction: float) -> float | None:
        """Nearest-rank percentile in microseconds, None of an empty histogram; `fraction` in (0, 1]."""
        if not 0 < fraction <= 1:
            raise ValueError(f"a percentile is a fraction above 0 and at most 1, not {fraction}")
        if not self.total:
            return None
        # 0.07 * 100 is 7.000000000000001 in floats; its rank is 7 all the same.
        rank = math.ceil(round(fraction * self.total, 6))
        position = int(np.searchsorted(np.cumsum(self.counts), rank))
        return float(self.buckets_us[position])

    def mean_us(self) -> float | None:
        """Mean in microseconds: each value stands for itself within its bucket's width."""
        return float(np.dot(self.buckets_us, self.counts)) / self.total if self.total else None

    def min_us(self) -> float | None:
        """Smallest bucket's value, microseconds."""
        return float(self.buckets_us[0]) if self.total else None

    def max_us(self) -> float | None:
        """Largest bucket's value, microseconds."""
        return float(self.buckets_us[-1]) if self.total else None


EMPTY = Histogram(np.array([], dtype=np.int64), np.array([], dtype=np.int64))


def from_counts(counts: Mapping[int, int]) -> Histogram:
    """Histogram of {bucket_us: count}; a count of zero is no bucket."""
    return from_arrays(list(counts), list(counts.values()))


def from_arrays(buckets_us: Iterable[int], counts: Iterable[int]) -> Histogram:
    """Histogram of parallel columns in any order, where a bucket may be repeated: its counts are added.

    Raises ValueError where a count is negative.
    """
    keys = np.asarray(buckets_us, dtype=np.int64)
    weights = np.asarray(counts, dtype=np.int64)
    if (weights < 0).any():
        raise ValueError("a count below zero")
    buckets, position = np.unique(keys, return_inverse=True)
    sums = np.zeros(len(buckets), dtype=np.int64)
    np.add.at(sums, position, weights)
    return Histogram(buckets[sums > 0], sums[sums > 0])


def add(histograms: Iterable[Histogram]) -> Histogram:
    """One histogram of all values counted in `histograms`; exact, because only counts are added."""
    parts = [part for part in histograms if part.total]
    if not parts:
        return EMPTY
    return from_arrays(np.concatenate([p.buckets_us for p in parts]), np.concatenate([p.counts for p in parts]))


def smallest_sample_for(fraction: float) -> int:
    """Values needed before a percentile may be printed: 6 for 0.5, 36 for 0.9, 72 for 0.95, 368 for 0.99.

    With fewer, no distribution-free two-sided 95 % interval for it exists: its ends are order statistics, the outermost
    are the smallest and the largest value, and the chance that all n values lie on one side of the percentile,
    max(p, 1 - p)^n, is still above 2.5 % (David & Nagaraja, Order Statistics, 2003, section 7.1). The values are taken
    as independent; where they are not, it takes more.
    """
    if not 0 < fraction < 1:
        raise ValueError(f"a fraction strictly between 0 and 1, not {fraction}")
    tail = (1 - CONFIDENCE) / 2
    return math.ceil(math.log(tail) / math.log(max(fraction, 1 - fraction)))
