"""Which user takes which rows: disjoint shares of one shuffled list, the same for the same seed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

Row = TypeVar("Row")


def share(rows: Sequence[Row], seed: int, number: int, users: int) -> list[Row]:
    """Rows of the user `number` (from 0) among `users`: every row belongs to one user, as evenly as can be.

    Several users share a row where there are more users than rows, or more were started later than `users` says.
    """
    order = list(rows)
    random.Random(seed).shuffle(order)
    return order[number % users :: users] or [order[number % len(order)]]
