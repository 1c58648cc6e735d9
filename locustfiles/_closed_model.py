"""The closed workload model: users who wait for an answer, think, and ask again. Or until N requests are answered."""

# mypy: allow-untyped-calls

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gevent
from gevent.event import Event
from locust.exception import StopUser


class ClosedModel:
    """Every user goes round by itself until the test is stopped."""

    name = "closed"

    def run(self, user: Any) -> None:
        """One turn; Locust adds the think time and comes back."""
        user.make_request()

    def release(self, user: Any) -> None:
        """The user is to end: Locust sees to it."""

    def on_spawned(self) -> None:
        """All users are there."""

    def on_time_over(self) -> None:
        """The test is about to be stopped because its run time is over."""

    def on_ending(self) -> None:
        """The test is being stopped."""

    def on_stopped(self) -> None:
        """The users are gone."""

    def second(self, second: int) -> dict[str, int] | None:
        """There are no arrivals to count."""
        return None

    def summary(self) -> dict[str, Any]:
        """What belongs into the process' record."""
        return {}


class Budget(ClosedModel):
    """The process' share of an exact number of requests: `quota` answered, by failures too, then `done` is called.

    Nobody asks before all users of the test are there: the first ones would have done a small budget alone. A user that
    finds nothing left waits for the end of the test instead of leaving, so that Locust still sees as many users as it
    was told to run.
    """

    def __init__(self, quota: int, done: Callable[[], None]) -> None:
        self._quota = quota
        self._left = quota
        self._answered = 0
        self._done = done
        self._all_there = False
        self._change = Event()

    def run(self, user: Any) -> None:
        """Make one of the requests that are left."""
        while not (self._left and self._all_there):
            if user.is_stopping:
                raise StopUser()
            self._change.wait()
        self._left -= 1
        try:
            user.make_request()
        except gevent.GreenletExit:  # killed in the middle of it: somebody else has to
            self._left += 1
            self._tell()
            raise
        except BaseException:
            self._count()
            raise
        self._count()

    def release(self, user: Any) -> None:
        """Wake the user up, should it wait for something to do."""
        self._tell()

    def on_spawned(self) -> None:
        """The load begins. A process without a share has nothing to do from the start."""
        self._all_there = True
        self._tell()
        if not self._quota:
            gevent.spawn(self._done)

    def summary(self) -> dict[str, Any]:
        """What belongs into the process' record."""
        return {"budget": {"requests": self._quota, "answered": self._answered}}

    def _count(self) -> None:
        self._answered += 1
        if self._answered == self._quota:
            gevent.spawn(self._done)

    def _tell(self) -> None:
        change, self._change = self._change, Event()
        change.set()


def quota(requests: int, k: int, n: int) -> int:
    """The part of process `k` of `n`; the parts differ by at most one and add up to `requests`."""
    return requests // n + (k < requests % n) if k < n else 0
