"""Little's law: do a run's throughput and response times account for its users? A row of validity.CHECKS."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator

from analysis import backlog
from analysis.findings import Case, Finding, Severity, by_severity

MOST_USERS_APART = 0.05
MOST_EDGE_SHARE = 0.5
"""Of the window, twice the mean response time: beyond it fewer than four response times fit."""
OWN_TIME_S = 0.002
"""A user's time a response that may be Locust's own work; where no more is missing, nobody's response time is wrong."""
OPEN_NOISE = 3.29
"""Standard deviations of a backlog by chance; a normal one is beyond them once in a thousand times."""


@dataclasses.dataclass(frozen=True)
class _Loop:
    """Little's law of one run: users = throughput x (mean response time + think time).

    In the open model the users are the requests that are waiting or in flight, on average over steady state: Little,
    "A proof for the queuing formula L = λW", Operations Research 9, 1961. There chance is allowed for, too: they are
    looked at once a second, and are taken to scatter as in an M/M/1 queue, by the root of L + L^2.
    """

    users: float
    throughput: float
    response_s: float
    """Mean of all responses, failures included."""
    think_s: float
    window_s: float
    queue: tuple[float, float] | None = None
    """Open model: requests that are left over at the window's start and end."""

    @property
    def in_system(self) -> float:
        """Users that throughput and response time account for."""
        return self.throughput * (self.response_s + self.think_s)

    @property
    def edge_share(self) -> float:
        """What the window's two ends may distort: responses begun before it, and those that end after it."""
        return 2 * self.response_s / self.window_s

    @property
    def is_off(self) -> bool:
        """Users and what accounts for them are further apart than the ends explain."""
        allowed = max(MOST_USERS_APART, self.edge_share) * self.users + self.chance
        return abs(self.users - self.in_system) > allowed

    @property
    def chance(self) -> float:
        """Users by which the open model may be off since its requests are looked at once a second only.

        A window of n seconds has n + 1 looks; who is there at its ends may have come half a second from there.
        """
        if self.queue is None:
            return 0.0
        variance = (self.in_system + self.in_system**2) / (self.window_s + 1)
        return OPEN_NOISE * math.sqrt(variance) + sum(self.queue) / (2 * self.window_s)

    @property
    def ends_apart(self) -> bool:
        """Open model: the backlog's change is no small share of the responses, and neither counting nor R explains it.

        As a share the window's two ends may be off by 2 R / window; two counts of a steady backlog L differ by chance
        with variance 2 L (it is Poisson where requests do not wait for each other: M/G/∞).
        """
        if self.queue is None:
            return False
        first, last = self.queue
        share = max(MOST_USERS_APART, self.edge_share)
        allowed = max(share * self.throughput * self.window_s, OPEN_NOISE * math.sqrt(max(first, 0) + max(last, 0)))
        return abs(last - first) > allowed

    @property
    def unexplained_s(self) -> float:
        """Time of a user, for each response, that is in neither response time nor think time; below zero if surplus."""
        return (self.users - self.in_system) / self.throughput

    def __str__(self) -> str:
        if self.queue is not None:
            return (
                f"{self.users:,.1f} requests under way on average ({self.queue[0]:,.0f} at the start, "
                f"{self.queue[1]:,.0f} at the end), and X × R = {self.in_system:,.1f} (X = {self.throughput:,.4g} "
                f"responses/s, R = {self.response_s:.4g} s), window {self.window_s:,.0f} s"
            )
        think = f" + think time {self.think_s:.4g} s" if self.think_s else ""
        return (
            f"{self.users:,.0f} users against X × {'(R + think time)' if think else 'R'} = "
            f"{self.in_system:,.1f} (X = {self.throughput:,.4g} responses/s, "
            f"R = {self.response_s:.4g} s{think}), window {self.window_s:,.0f} s"
        )

    @property
    def held(self) -> str:
        """How many response times the window holds."""
        held = f"{self.window_s / self.response_s:.2g} of them"
        return f"R = {self.response_s:.4g} s, and the window of {self.window_s:,.0f} s holds {held}; {self}"


def littles_law(case: Case) -> Iterator[Finding]:
    """Do throughput and response times account for the users, and does the window hold a few response times?

    In the open model for the requests under way; a growing backlog is told by backlog_grows.
    """
    loops = {run: loop for run in case.experiment.complete_runs() if (loop := _loop(case, run))}
    short = [run for run, loop in loops.items() if loop.edge_share > MOST_EDGE_SHARE]
    times_decide = case.rests_on("response") or case.rests_on("service")

    def severity_of(run: int) -> Severity:
        # In the open model throughput does not follow from response times.
        decides = loops[run].queue is None or times_decide
        return case.severity(case.treatments_of([run])[0]) if decides else Severity.NOTE

    for severity, runs in by_severity(case, short, severity_of):
        yield Finding(
            "littles_law",
            severity,
            f"In {len(runs)} of {len(loops)} runs steady state holds fewer than about four response times: how "
            "many responses end within it is a matter of when it begins, and those longer than the run are never seen.",
            tuple(f"{case.run_label(run)}: {loops[run].held}" for run in runs),
            f"twice the mean response time at most {100 * MOST_EDGE_SHARE:.3g} % of the window",
            "Lengthen timing.steady_state to ten response times or more, and timing.warm_up with it.",
            case.treatments_of(runs),
        )
    ends = [run for run, loop in loops.items() if loop.ends_apart and run not in short]
    off = [run for run, loop in loops.items() if loop.is_off and run not in {*short, *ends}]
    slight = [run for run in off if abs(loops[run].unexplained_s) <= OWN_TIME_S]
    for severity, runs in [
        *by_severity(case, [r for r in off if r not in slight], severity_of),
        (Severity.NOTE, slight),
    ]:
        if not runs:
            continue
        yield Finding(
            "littles_law",
            severity,
            f"In {len(runs)} of {len(loops)} runs throughput and response times do not account for the "
            f"{'users' if any(loops[run].queue is None for run in runs) else 'requests under way'}.",
            tuple(f"{case.run_label(run)}: {loops[run]}" for run in runs),
            "Little's law, users = X × (R + think time), to within 5 % or 2 R / window"
            + (", and chance" if any(loops[run].queue for run in runs) else ""),
            _what_next([loops[run] for run in runs]),
            case.treatments_of(runs),
        )
    if ends:
        yield Finding(
            "littles_law",
            Severity.NOTE,
            f"In {len(ends)} of {len(loops)} runs the requests under way at the start and at the end of steady state "
            "differ: response times depend on when one looks.",
            tuple(f"{case.run_label(run)}: {loops[run]}" for run in ends),
            "a difference of 5 % of the responses, 2 R / window of them, or what chance makes of the two counts",
            "Lengthen timing.warm_up and timing.steady_state.",
            case.treatments_of(ends),
        )


def _what_next(loops: list[_Loop]) -> str:
    missing = "Look for users that ended or hang, responses longer than the run, or a load generator that is too slow."
    surplus = (
        "Lengthen timing.warm_up and timing.steady_state: long responses that began before the window are counted in "
        "it whole."
    )
    signs = {loop.unexplained_s > 0 for loop in loops}
    return " ".join(text for sign, text in ((True, missing), (False, surplus)) if sign in signs)


def _loop(case: Case, run: int) -> _Loop | None:
    """None where its users are unknown, the backlog grows, or it has no response (no_successes tells that)."""
    record = case.experiment.records.get(run)
    seen = case.seen(run)
    if record is None or not seen.responses or seen.window_s <= 0:
        return None
    queue = None
    if record.load.get("model") == "closed":
        users, think_s = number(record.load.get("users")), number(record.load.get("think_time", 0))
    else:
        queues = backlog.backlogs(case.experiment).get(run)
        if queues is None or queues.censored:
            return None
        users, think_s, queue = queues.mean, 0.0, (float(queues.waiting[0]), float(queues.waiting[-1]))
    if users is None or think_s is None or users <= 0:
        return None
    spent_s = case.experiment.reduced[run].spent_s
    return _Loop(users, seen.responses / seen.window_s, spent_s / seen.responses, think_s, seen.window_s, queue)


def number(value: object) -> float | None:
    """A number of a record that may be anything: finite and not below zero, else None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value < math.inf else None
