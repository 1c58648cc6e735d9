from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis import histograms

COUNTS = st.dictionaries(st.integers(1, 10**9), st.integers(1, 1000), max_size=30)


@pytest.mark.parametrize(("fraction", "samples"), [(0.5, 6), (0.9, 36), (0.95, 72), (0.99, 368), (0.999, 3688)])
def test_smallest_sample_for_a_percentile(fraction: float, samples: int) -> None:
    assert histograms.smallest_sample_for(fraction) == samples


@pytest.mark.parametrize("fraction", [0.01, 0.1, 0.5, 0.9, 0.95, 0.99, 0.999, 0.9999])
def test_smallest_sample_is_the_first_whose_outermost_values_enclose_the_percentile(fraction: float) -> None:
    # P(all n values below the percentile) = p^n and P(all above) = (1 - p)^n; each must be at most 2.5 %.
    n = histograms.smallest_sample_for(fraction)
    assert max(fraction**n, (1 - fraction) ** n) <= 0.025 < max(fraction ** (n - 1), (1 - fraction) ** (n - 1))


@pytest.mark.parametrize("fraction", [0, 1, -0.1, 95])
def test_smallest_sample_refuses_what_is_no_percentile(fraction: float) -> None:
    with pytest.raises(ValueError, match="strictly between 0 and 1"):
        histograms.smallest_sample_for(fraction)


@pytest.mark.parametrize(
    ("counts", "fraction", "expected"),
    [
        ({10: 1}, 0.5, 10),
        ({10: 1, 20: 1}, 0.5, 10),
        ({10: 1, 20: 1}, 0.51, 20),
        ({10: 1, 20: 1, 30: 1}, 0.5, 20),
        ({10: 99, 20: 1}, 0.99, 10),
        ({10: 98, 20: 2}, 0.99, 20),
        ({10: 7, 20: 93}, 0.07, 10),  # 0.07 * 100 is 7.000000000000001 in floats
        ({10: 5, 20: 5}, 1, 20),
    ],
)
def test_percentile_is_the_value_of_nearest_rank(counts: dict[int, int], fraction: float, expected: float) -> None:
    assert histograms.from_counts(counts).percentile_us(fraction) == expected


@given(st.lists(st.integers(1, 10**7), min_size=1, max_size=200), st.sampled_from([0.5, 0.9, 0.95, 0.99, 1.0]))
def test_percentile_equals_that_of_the_sorted_values(values: list[int], fraction: float) -> None:
    histogram = histograms.from_arrays(values, [1] * len(values))
    assert histogram.percentile_us(fraction) == np.percentile(values, fraction * 100, method="inverted_cdf")


@given(st.lists(st.integers(1, 10**7), min_size=1, max_size=200))
def test_min_mean_max(values: list[int]) -> None:
    histogram = histograms.from_arrays(values, [1] * len(values))
    assert (histogram.min_us(), histogram.max_us()) == (min(values), max(values))
    assert histogram.mean_us() == pytest.approx(math.fsum(values) / len(values))


def test_an_empty_histogram_has_no_numbers() -> None:
    empty = histograms.from_counts({5: 0})
    assert empty.total == 0
    assert [empty.percentile_us(0.5), empty.mean_us(), empty.min_us(), empty.max_us()] == [None] * 4


@given(st.lists(COUNTS, max_size=5))
def test_adding_counts_is_one_recorder_of_everything(parts: list[dict[int, int]]) -> None:
    whole: dict[int, int] = {}
    for part in parts:
        for bucket, count in part.items():
            whole[bucket] = whole.get(bucket, 0) + count
    added = histograms.add(histograms.from_counts(part) for part in parts)
    assert dict(zip(added.buckets_us.tolist(), added.counts.tolist(), strict=True)) == whole
    assert added.buckets_us.tolist() == sorted(whole)


def test_merged_percentile_is_not_the_average_of_percentiles() -> None:
    fast, slow = histograms.from_counts({10: 900}), histograms.from_counts({1000: 100})
    assert histograms.add([fast, slow]).percentile_us(0.5) == 10


def test_a_negative_count_is_refused() -> None:
    with pytest.raises(ValueError, match="below zero"):
        histograms.from_counts({10: -1})


@pytest.mark.parametrize("fraction", [0, -0.5, 1.01, 99])
def test_percentile_refuses_what_is_no_fraction(fraction: float) -> None:
    with pytest.raises(ValueError, match="fraction"):
        histograms.from_counts({1: 1}).percentile_us(fraction)
