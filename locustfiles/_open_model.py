"""The open workload model: requests start when the schedule says so, whatever the server does.

Locust's users are the slots for requests in flight. An arrival is taken by the free user that was busy last, whose
connection is the likeliest to be open; so there are no more connections than requests in flight at the same time. While
all users are busy arrivals wait, and are started late by whichever user is free next, in order. Intended starts count
from one moment in each process, START_DELAY_S after all users are there.

    service time  = end − actual start: what the client measures
    response time = end − intended start: what somebody who arrived then would have waited

Locust's own statistics show response times in this model. The recorder has both.
"""

# mypy: allow-untyped-calls

from __future__ import annotations

import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import gevent
from _alarm import Alarm
from _arrival_counts import LATE_S, ArrivalCounts
from gevent.hub import Waiter
from locust.event import EventHook
from locust.exception import StopUser

START_DELAY_S = 0.1
"""From the last user's start to the first arrival: users begin by themselves in the meantime."""

AT_ONCE = 4000
"""Most arrivals that are dropped or counted between two turns of the event loop: some ms. With a million a second it
would never turn."""

log = logging.getLogger(__name__)

Starts = Callable[[], Iterator[float]]


class OpenModel:
    """Hands one process' arrivals to its users, and counts what becomes of them.

    `starts` gives a new iterator over the same intended starts, in seconds. `run_time_s` is the test's, or infinite;
    arrivals after that do not exist. `done` is called once, when a finite schedule's `length_s` is over and all its
    arrivals have been answered; None where the schedule goes on until the test is stopped. `unix_s` is the recorder's
    clock.
    """

    name = "open"

    def __init__(
        self,
        starts: Starts,
        max_lateness_s: float,
        run_time_s: float,
        done: Callable[[], None] | None,
        unix_s: Callable[[], float] = time.time,
        length_s: float = 0.0,
    ) -> None:
        self.counts = ArrivalCounts()
        self._handed_out, self._offered = starts(), starts()  # two, so that a long backlog needs no memory
        self._next: float | None = next(self._handed_out, None)
        self._next_offered: float | None = next(self._offered, None)
        self._max_lateness_s = max_lateness_s
        self._run_time_s = run_time_s
        self._done = done
        self._unix_s = unix_s
        self._length_s = length_s
        self._finish: Any = None
        self._origin_s = math.inf
        self._end_s = math.inf
        self._ending = self._stopped = self._time_over = False
        self._free: dict[Any, Waiter] = {}
        self._alarm = Alarm(self._on_alarm)
        self._service = _ServiceTimes()

    # The test's course.

    def attach(self, request_event: EventHook) -> None:
        """Give Locust's `request` event response times from now on; on_stopped() ends that."""
        self._service.attach(request_event)

    def on_spawned(self) -> None:
        """All users are there: time begins."""
        if self._origin_s == math.inf:
            self._origin_s = time.monotonic() + START_DELAY_S
            self._settle()
            self._arm()

    def on_time_over(self) -> None:
        """The test is about to be stopped because its run time is over. That counts from the start of Locust's timer,
        arrivals from when all users are there: as many arrive nevertheless as rate and run time say."""
        self._time_over = True

    def on_ending(self) -> None:
        """No arrivals any more but those that were meant to start before now, or before the run time is over."""
        now_s = time.monotonic()
        self._ending = True
        if self._finish is not None and self._finish is not gevent.getcurrent():
            self._finish.kill(block=False)
        if not self._time_over or self._origin_s == math.inf:
            self._end_s = now_s - self._origin_s
        self._cut()
        self._catch_up(min(now_s - self._origin_s, self._end_s))
        waiting = self.counts.waiting
        if waiting > len(self._free):
            log.warning(
                "%d arrivals still wait for a user. They are answered now, unless --stop-timeout ends it.", waiting
            )
        self._settle()

    def on_stopped(self) -> None:
        """The users are gone: what has not started by now never will."""
        if self._stopped:
            return
        self._stopped = True
        self._alarm.close()
        self._service.detach()
        now_s = time.monotonic()
        self._origin_s = min(self._origin_s, now_s)  # the users may never have been there
        self._end_s = self._run_time_s if self._time_over else min(self._end_s, now_s - self._origin_s)
        self._catch_up(self._end_s)
        self._next = None
        if self.counts.waiting:
            log.warning("%d arrivals were never started: --stop-timeout ended the wait.", self.counts.waiting)
            self.counts.add(int(self._unix_s()), "unstarted", self.counts.waiting)
        log.info("Arrivals: %s", ", ".join(f"{count} {name}" for name, count in self.counts.summary().items()))
        if unanswered := self.counts.totals["unanswered"]:
            log.warning(_UNANSWERED, unanswered)

    def second(self, second: int) -> dict[str, int] | None:
        """Counts of the Unix second that is over."""
        self._catch_up(min(self._end_s, second + 1 - self._origin_unix_s()))
        return self.counts.take(second)

    def summary(self) -> dict[str, Any]:
        """What belongs into the process' record."""
        return {"arrivals": {**self.counts.summary(), "late_s": LATE_S}}

    # A user's course.

    def run(self, user: Any) -> None:
        """A user's whole life: answer one arrival after the other."""
        while (start_s := self._wait_for_arrival(user)) is not None:
            self._answer(user, start_s)
            if user.is_stopping and not self._ending:  # there are to be fewer users; the others go on
                break
        raise StopUser()

    def release(self, user: Any) -> None:
        """The user is to end. At the end of the test it may still be needed, for arrivals that wait."""
        if not self._ending or self._next is None:
            self._send_home(user)

    def _answer(self, user: Any, start_s: float) -> None:
        answered = False
        try:
            with self._service.counted_from(self._origin_s + start_s):
                user.make_request_safely()
            answered = True
        finally:
            self.counts.end(int(self._unix_s()), answered)
            self._settle()

    def _wait_for_arrival(self, user: Any) -> float | None:
        start_s = self._take_due()
        if start_s is not None or (self._ending and self._next is None):
            return start_s
        waiter = self._free[user] = Waiter()
        self._arm()
        try:
            return waiter.get()  # type: ignore[no-any-return]
        finally:
            if self._free.get(user) is waiter:  # killed
                del self._free[user]

    # Arrivals.

    def _on_alarm(self) -> None:
        """In the event loop's greenlet: hand out what is due while somebody is free."""
        while self._free and (start_s := self._take_due()) is not None:
            _, waiter = self._free.popitem()
            waiter.switch(start_s)
        self._settle()
        self._arm()

    def _arm(self) -> None:
        if self._free and self._next is not None and self._origin_s < math.inf:
            self._alarm.set(self._origin_s + self._next)

    def _take_due(self) -> float | None:
        """The next arrival's intended start, if that is over; it is then being started. Drops what is too late.

        Where it drops many it gives up early: the alarm rings at once then.
        """
        if self._max_lateness_s < math.inf:
            self._drop(time.monotonic() - self._origin_s - self._max_lateness_s)
        if self._next is None:
            return None
        lateness_s = time.monotonic() - self._origin_s - self._next
        if not 0 <= lateness_s <= self._max_lateness_s:
            return None
        self.counts.start(int(self._unix_s()), lateness_s, all_busy=not self._free)
        return self._take()

    def _drop(self, before_s: float) -> None:
        """Drop the arrivals of before this moment, as many as there is time for."""
        dropped, last_s = 0, 0.0
        while self._next is not None and self._next < before_s and dropped < AT_ONCE:
            dropped, last_s, self._next = dropped + 1, self._next, next(self._handed_out, None)
            self._cut()
        if dropped:
            self._count_offered(last_s)
            self.counts.add(int(self._unix_s()), "dropped", dropped)

    def _take(self) -> float | None:
        taken, self._next = self._next, next(self._handed_out, None)
        self._cut()
        if taken is not None:  # little by little: a whole second's at once would make somebody late
            self._count_offered(taken)
        return taken

    def _cut(self) -> None:
        if self._next is not None and self._next > self._end_s:
            self._next = None

    def _catch_up(self, until_s: float) -> None:
        while not self._count_offered(until_s):
            gevent.sleep(0)

    def _count_offered(self, until_s: float) -> bool:
        """True where all are counted."""
        origin = self._origin_unix_s()
        seconds: Counter[int] = Counter()
        for _ in range(AT_ONCE):
            if self._next_offered is None or self._next_offered > until_s:
                break
            seconds[int(origin + self._next_offered)] += 1
            self._next_offered = next(self._offered, None)
        for second, count in seconds.items():
            self.counts.add(second, "offered", count)
        return self._next_offered is None or self._next_offered > until_s

    def _origin_unix_s(self) -> float:
        return self._unix_s() - time.monotonic() + self._origin_s

    def _settle(self) -> None:
        """Where no arrival is left: let free users go, or say that all is done."""
        if self._next is not None:
            return
        if self._ending:
            for user in list(self._free):
                self._send_home(user)
        elif self._done is not None and not self.counts.in_flight and self._origin_s < math.inf:
            done, self._done = self._done, None
            # A last step without arrivals has its time, too.
            left_s = self._origin_s + self._length_s - time.monotonic()
            self._finish = gevent.spawn_later(max(0.0, left_s), done)

    def _send_home(self, user: Any) -> None:
        waiter = self._free.pop(user, None)
        if waiter is not None:
            gevent.get_hub().loop.run_callback(waiter.switch, None)  # a Waiter may be switched by the loop only


class _ServiceTimes:
    """Turns the service time that a client measured into the response time, on its way to the listeners.

    They get it as `response_time`, and what was measured as `service_time`; both in ms. The wait before an arrival
    belongs to its first request: where a workload makes several in a row, the others start when they mean to.
    """

    def __init__(self) -> None:
        self._arrivals: dict[Any, tuple[float, float]] = {}
        self._hook: Any = None

    def attach(self, hook: EventHook) -> None:
        """Stand before the hook's listeners: there is no order among listeners that Locust's own would respect."""
        self._hook = hook
        self._fire = hook.fire
        self._hook.fire = self._fire_with_both

    def detach(self) -> None:
        """Leave the hook as it was."""
        if self._hook is not None:
            del self._hook.fire
            self._hook = None

    def counted_from(self, intended_s: float) -> _Counted:
        """The context in which the current greenlet answers the arrival of that time.monotonic()."""
        return _Counted(self._arrivals, intended_s)

    def _fire_with_both(self, *, reverse: bool = False, **event: Any) -> None:
        arrival = self._arrivals.pop(gevent.getcurrent(), None)
        service_ms = event.get("response_time")
        if arrival is not None and service_ms is not None:
            intended_s, begun_s = arrival
            lateness_s = _request_start(event, begun_s) - intended_s
            event["response_time"] = service_ms + lateness_s * 1000
            event["service_time"] = service_ms
        self._fire(reverse=reverse, **event)


class _Counted:
    """A context manager in as few calls as possible: it runs for every request."""

    def __init__(self, arrivals: dict[Any, tuple[float, float]], intended_s: float) -> None:
        self._arrivals = arrivals
        self._intended_s = intended_s

    def __enter__(self) -> None:
        self._greenlet = gevent.getcurrent()
        self._arrivals[self._greenlet] = self._intended_s, time.monotonic()

    def __exit__(self, *_: object) -> None:
        self._arrivals.pop(self._greenlet, None)


def _request_start(event: dict[str, Any], begun_s: float) -> float:
    """When the client began to measure, on the clock of time.monotonic().

    Clients that say so give Unix seconds. Only how long ago that was is used, so that a clock which is set, or runs
    fast, does no harm; without it, or where it cannot be true, it is when the user took the arrival.
    """
    started_unix_s = event.get("start_time")
    if started_unix_s is None:
        return begun_s
    now_s = time.monotonic()
    started_s = now_s - (time.time() - started_unix_s)
    return started_s if begun_s <= started_s <= now_s else begun_s


_UNANSWERED = "%d requests had no answer when --stop-timeout was over. They are in no table, and were the slowest."
