"""Shares of a list, disjoint and complete."""

from __future__ import annotations

import itertools
from fractions import Fraction

import pytest
from _shares import evenly, share


@pytest.mark.parametrize(("rows", "users"), [(12, 4), (12, 5), (1, 1), (6144, 32)])
def test_every_row_belongs_to_exactly_one_user(rows: int, users: int) -> None:
    shares = [share(range(rows), 1, number, users) for number in range(users)]
    assert sorted(row for rows_of_one in shares for row in rows_of_one) == list(range(rows))
    sizes = {len(rows_of_one) for rows_of_one in shares}
    assert max(sizes) - min(sizes) <= 1


def test_a_seed_repeats_the_order_and_another_changes_it() -> None:
    assert share(range(100), 7, 3, 10) == share(range(100), 7, 3, 10)
    assert share(range(100), 7, 3, 10) != share(range(100), 8, 3, 10)


def test_with_more_users_than_rows_they_share_evenly() -> None:
    taken = [share("abc", 1, number, 9) for number in range(9)]
    assert all(len(rows) == 1 for rows in taken)
    assert sorted(rows[0] for rows in taken) == list("aaabbbccc")


def test_users_started_later_get_a_share_too() -> None:
    assert share(range(10), 1, 13, 10) == share(range(10), 1, 3, 10)


@pytest.mark.parametrize(("part", "every"), [("0.1", 10), ("1/4", 4), ("1", 1)])
def test_odd_ones_are_evenly_spread(part: str, every: int) -> None:
    taken = list(itertools.islice(evenly(Fraction(part)), 10 * every))
    assert [n for n, odd in enumerate(taken, 1) if odd] == list(range(every, 10 * every + 1, every))


def test_a_share_that_divides_nothing_is_kept_all_the_same() -> None:
    assert sum(itertools.islice(evenly(Fraction("0.137")), 1000)) == 137
    assert not any(itertools.islice(evenly(Fraction(0)), 1000))
