from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from analysis import usage
from analysis.record import USAGE_COLUMNS
from analysis.usage import RoleUsage


def samples(*rows: tuple[float, int, float], rss: float = 100.0) -> pd.DataFrame:
    """Rows of (time, pid, cumulative CPU)."""
    return pd.DataFrame([(t, "server", pid, "p", cpu, rss, "s") for t, pid, cpu in rows], columns=list(USAGE_COLUMNS))


def increase(frame: pd.DataFrame, start: float, end: float) -> float:
    used = usage.role_usage(frame, start, end)
    assert used is not None
    return used.cpu_s


def test_increase_is_interpolated_at_both_edges() -> None:
    frame = samples((0, 1, 5.0), (1, 1, 6.0), (2, 1, 8.0), (3, 1, 8.0))
    assert increase(frame, 0.5, 1.5) == pytest.approx(0.5 * 1 + 0.5 * 2)


def test_processes_are_added_and_the_busiest_is_kept() -> None:
    frame = samples((0, 1, 0.0), (0, 2, 50.0), (4, 1, 1.0), (4, 2, 53.0))
    used = usage.role_usage(frame, 0, 4)
    assert used == RoleUsage(
        covered_s=4, cpu_s=pytest.approx(4.0), busiest_cpu_share=pytest.approx(0.75), peak_rss_bytes=200
    )


def test_a_process_that_appears_counts_from_zero() -> None:
    frame = samples(
        (0, 1, 7.0), (1, 1, 7.0), (2, 1, 7.0), (2, 2, 0.5), (3, 1, 7.0), (3, 2, 1.5), (4, 1, 7.0), (4, 2, 1.5)
    )
    assert increase(frame, 0, 4) == pytest.approx(1.5)


def test_a_process_that_vanishes_keeps_what_it_spent() -> None:
    frame = samples((0, 1, 0.0), (0, 2, 10.0), (1, 1, 0.0), (1, 2, 11.0), (2, 1, 0.0), (3, 1, 0.0))
    assert increase(frame, 0, 3) == pytest.approx(1.0)


def test_a_process_number_taken_by_another_process_counts_both() -> None:
    frame = samples((0, 1, 10.0), (1, 1, 11.0), (2, 1, 0.25), (3, 1, 0.5))
    assert increase(frame, 0, 3) == pytest.approx(1.0 + 0.5)


def test_processes_read_some_milliseconds_apart_are_one_pass() -> None:
    # The second process has spent 90 s before: that must not look like 90 s within three milliseconds.
    frame = samples((0, 1, 1.0), (0.003, 2, 90.0), (1, 1, 2.0), (1.003, 2, 91.0), (2, 1, 3.0), (2.003, 2, 92.0))
    assert increase(frame, 0.1, 1.9) == pytest.approx(3.6)


@pytest.mark.parametrize(("first", "last", "known"), [(0, 10, True), (0.9, 10, True), (1.5, 10, False), (0, 8, False)])
def test_cpu_is_unknown_where_samples_cover_too_little(first: float, last: float, known: bool) -> None:
    frame = samples((first, 1, 1.0), ((first + last) / 2, 1, 2.0), (last, 1, 3.0))
    assert (usage.role_usage(frame, 0, 10) is not None) is known


def test_no_sample_is_no_usage() -> None:
    assert usage.role_usage(samples(), 0, 10) is None


def test_peak_memory_is_the_highest_sum_of_one_pass_inside_the_window() -> None:
    rows = [(0, 1, 900), (1, 1, 100), (1.01, 2, 50), (2, 1, 120), (2.01, 2, 60), (3, 1, 110), (9, 1, 999)]
    frame = pd.DataFrame([(t, "server", pid, "p", 1.0, rss, "s") for t, pid, rss in rows], columns=list(USAGE_COLUMNS))
    assert usage.peak_rss_bytes(frame, 1, 4) == 180


def test_two_passes_close_together_do_not_add_up() -> None:
    frame = samples((0, 1, 1.0), (0.6, 1, 1.0), (1.4, 1, 1.0), (2.4, 1, 1.0), (3.4, 1, 1.0))
    assert usage.peak_rss_bytes(frame, 0, 4) == 100


def test_cpu_by_second_adds_up_to_the_window() -> None:
    frame = samples((0.25, 1, 0.0), (1.75, 1, 3.0), (2.5, 1, 3.0), (4.25, 1, 10.0))
    by_second = usage.cpu_by_second(frame, 0, 4)
    assert by_second.tolist() == pytest.approx([1.5, 1.5, 2.0, 4.0])
    assert by_second.sum() == pytest.approx(increase(frame, 0.25, 4))


def test_cpu_by_second_is_missing_where_no_sample_reaches() -> None:
    by_second = usage.cpu_by_second(samples((2, 1, 0.0), (3, 1, 1.0), (4, 1, 2.0)), 0, 6)
    assert np.isnan(by_second).tolist() == [True, True, False, False, True, True]


def test_merge_adds_time_and_keeps_peaks() -> None:
    one, two = RoleUsage(6, 3.0, 0.5, 100), RoleUsage(4, 1.0, 0.75, 90)
    assert usage.merge([one, two]) == RoleUsage(10, 4.0, 0.75, 100)
    assert usage.merge([]) is None


def test_memory_by_second_is_the_sum_of_what_each_process_last_had() -> None:
    rows = [
        (0.0, "server", 1, "a", 0.0, 100, "s"),
        (1.0, "server", 1, "a", 0.0, 110, "s"),
        (2.0, "server", 1, "a", 0.0, 120, "s"),
        (3.0, "server", 1, "a", 0.0, 130, "s"),
        (4.0, "server", 1, "a", 0.0, 140, "s"),
        (1.5, "server", 2, "b", 0.0, 1000, "s"),
        (2.5, "server", 2, "b", 0.0, 2000, "s"),
    ]
    frame = pd.DataFrame(rows, columns=list(USAGE_COLUMNS))
    found = usage.rss_by_second(frame, 0, 8)
    assert found[:5].tolist() == [110, 1120, 2130, 2140, 140]
    assert np.isnan(found[5:]).all()
    assert np.isnan(usage.rss_by_second(frame.iloc[:0], 0, 1)).all()


@pytest.mark.parametrize(("last", "covered_s"), [(19.7, 18.69), (18.5, 18.5), (16.5, None)])
def test_load_that_fills_no_whole_seconds_is_covered_where_it_is(last: float, covered_s: float | None) -> None:
    frame = samples((0, 1, 1.0), (last / 2, 1, 7.0), (last, 1, 13.0))
    used = usage.role_usage(frame, 0, 20, 18.69)
    assert (used and used.covered_s) == covered_s
    assert used is None or (used.cpu_s, used.busiest_cpu_share) == pytest.approx((12.0, 12 / used.covered_s))
