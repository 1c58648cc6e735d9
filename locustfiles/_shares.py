"""Which user takes which rows, and which of many requests are the odd ones: shares, the same every time."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import TypeVar

Row = TypeVar("Row")


def share(rows: Sequence[Row], seed: int, number: int, users: int) -> list[Row]:
    """Rows of the user `number` (from 0) among `users`: every row belongs to one user, as evenly as can be.

    Several users share a row where there are more users than rows, or more were started later than `users` says.
    """
    order = list(rows)
    random.Random(seed).shuffle(order)
    return order[number % users :: users] or [order[number % len(order)]]


def evenly(part: Fraction) -> Iterator[bool]:
    """Endless; of the first n values, floor(n * part) are true, as evenly spread as can be."""
    sum_ = Fraction(0)
    while True:
        sum_ += part
        yield sum_ >= 1
        sum_ %= 1
