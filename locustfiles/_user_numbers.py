"""Numbers the users of a test through all its processes, so that each can walk its own share of a list."""

# mypy: allow-untyped-calls, allow-untyped-decorators
# (Locust's event hooks are not typed.)

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from _load_models import model_of, place_of
from _options import option
from _shares import share
from locust import events
from locust.env import Environment
from locust.runners import LocalRunner, MasterRunner

Row = TypeVar("Row")


def walk(environment: Environment, rows: Sequence[Row]) -> Iterator[Row]:
    """A new Locust user's endless walk through its own share of `rows`.

    In the open model all users of a process walk one share together: there the arrivals are the clients, and how many
    users they find free must not decide whose turn it is.
    """
    numbers: Numbers = getattr(environment, _ATTRIBUTE)
    seed = option(environment, "seed", 1)
    if model_of(environment).name == "open":
        return numbers.together(rows, lambda: share(rows, seed, *place_of(environment)))
    return itertools.cycle(share(rows, seed, numbers.take(), numbers.users))


def walk_all(environment: Environment, rows: Sequence[Row]) -> Iterator[Row]:
    """A new Locust user's endless walk through all `rows`.

    The users begin as far from each other as can be: if one came soon after another to every row, a server would find
    in its cache what it has just answered, however many rows there are.
    In the open model all users of a process walk together.
    """
    numbers: Numbers = getattr(environment, _ATTRIBUTE)
    if model_of(environment).name == "open":
        return numbers.together(rows, lambda: rows)
    first = numbers.take() * len(rows) // numbers.users % len(rows)
    return itertools.cycle([*rows[first:], *rows[:first]])


class Numbers:
    """Numbers the users of this process so that no two in the whole test are the same."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._taken = itertools.count()
        self._together: dict[int, Iterator[Any]] = {}
        self.users = 1

    def on_test_start(self, **_: object) -> None:
        """Begin again from the first number, for as many users as this test has in all processes."""
        runner = self._environment.runner
        if isinstance(runner, (MasterRunner, LocalRunner)):
            # Locust does not tell its workers how large the whole test is, but hands them the parsed options.
            vars(self._environment.parsed_options)[_TOTALS] = [runner.target_user_count, max(runner.worker_count, 1)]
        self._taken = itertools.count()
        self._together.clear()
        self.users = max(self._totals()[0], 1)

    def take(self) -> int:
        """Number of the next user of this process."""
        index = getattr(self._environment.runner, "worker_index", 0)
        workers = self._totals()[1]
        return next(self._taken) * workers + index % workers

    def together(self, rows: Sequence[Row], walked: Callable[[], Sequence[Row]]) -> Iterator[Row]:
        """One endless walk through what `walked` makes of `rows`, for all who ask with the same `rows`."""
        if id(rows) not in self._together:  # rows live as long as the test: they belong to the class of users
            self._together[id(rows)] = itertools.cycle(walked())
        return self._together[id(rows)]

    def _totals(self) -> tuple[int, int]:
        users, workers = option(self._environment, _TOTALS, (1, 1))
        return users, workers


_ATTRIBUTE = "stackswarm_numbers"
_TOTALS = "stackswarm_users_and_workers"


@events.init.add_listener
def _attach(environment: Environment, **_: object) -> None:
    numbers = Numbers(environment)
    setattr(environment, _ATTRIBUTE, numbers)
    environment.events.test_start.add_listener(numbers.on_test_start)
