from __future__ import annotations

import pytest
from scipy import stats

from analysis import intervals


@pytest.mark.parametrize(("count", "total"), [(0, 10), (1, 10), (5, 100), (100, 100), (2, 12_000)])
def test_wilson_equals_scipy(count: int, total: int) -> None:
    expected = stats.binomtest(count, total).proportion_ci(0.95, method="wilson")
    assert intervals.wilson(count, total) == (pytest.approx(expected.low), pytest.approx(expected.high))


@pytest.mark.parametrize(("count", "total"), [(1, 0), (-1, 5), (6, 5)])
def test_wilson_refuses_what_is_no_proportion(count: int, total: int) -> None:
    with pytest.raises(ValueError, match="no proportion"):
        intervals.wilson(count, total)


def test_geometric_mean_with_students_interval() -> None:
    # Logs 0, ln 2, ln 4: mean ln 2, sd ln 2, t(0.975, 2) = 4.3027; half-width 4.3027 * 0.6931 / sqrt(3) = 1.7219.
    middle, low, high = intervals.geometric_mean([1, 2, 4])
    assert (middle, low, high) == (pytest.approx(2), pytest.approx(0.3574, abs=1e-4), pytest.approx(11.191, abs=1e-2))


def test_one_run_has_no_interval() -> None:
    assert intervals.geometric_mean([3.0]) == (pytest.approx(3.0), None, None)
