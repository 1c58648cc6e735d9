"""The open model's backlog: requests that have arrived and not ended, second by second. Does the server keep up? Pure.

Only responses that end in steady state can count in it. While the backlog stays what it was, as many that began before
it are counted as are left over at its end, and the counted response times are those of a steady state. Where it grows,
the slowest are those that are left over: what is counted is then too short, by the more the longer one measures.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from analysis.generator import Arrivals, up_to

if TYPE_CHECKING:
    from analysis.load import Experiment

MOST_GROWTH = 0.05
"""Of the offered arrivals."""
BY_CHANCE = 0.01
"""How often arrivals may exceed a chance bound in a server that is just about able to answer them all."""

Clock = Literal["response", "service"]


@dataclasses.dataclass(frozen=True, eq=False)
class Backlog:
    """Of one run, at the start, between the seconds and at the end of steady state (its seconds + 1 numbers)."""

    waiting: NDArray[np.float64]
    """Arrived by intention, neither answered nor dropped: who is left over here has no response time yet."""
    in_flight: NDArray[np.float64]
    """Started and not answered: who is left over here has no service time yet."""
    offered: int
    """Arrivals within steady state."""

    def queue(self, clock: Clock) -> NDArray[np.float64]:
        """Those without a time by that clock yet."""
        return self.waiting if clock == "response" else self.in_flight

    def grows(self, clock: Clock) -> bool:
        """Whether so many more are left over at the end than at the start that chance does not explain it."""
        queue = self.queue(clock)
        return float(queue[-1] - queue[0]) > most_growth(self.offered)

    @property
    def mean(self) -> float:
        """Requests waiting or in flight, on average over steady state: trapezoids between its seconds."""
        return float((self.waiting[:-1] + self.waiting[1:]).mean() / 2)

    @property
    def censored(self) -> frozenset[Clock]:
        """The clocks by which there is no steady state."""
        clocks: tuple[Clock, ...] = ("response", "service")
        return frozenset(clock for clock in clocks if self.grows(clock))


def most_growth(offered: int) -> float:
    """Growth of a backlog, in requests, that a server which keeps up may show: max(5 % of offered, z sqrt(offered)).

    By Lindley's recursion the backlog grows by at most the largest excess, over all ends of the window, of arrivals
    over what the server can answer. Of a server just able to answer them all (at a constant pace, arrivals Poisson)
    that excess is a random walk without drift and of variance `offered`, whose largest value exceeds z sqrt(offered)
    with probability 2 (1 - Phi(z)) (the reflection principle; Harrison, Brownian Motion and Stochastic Flow Systems,
    1985, section 1.8). z = 2.58 makes that BY_CHANCE; with room to spare it happens far less often.
    """
    z = statistics.NormalDist().inv_cdf(1 - BY_CHANCE / 2)
    return max(MOST_GROWTH * offered, z * math.sqrt(offered))


def backlogs(experiment: Experiment) -> dict[int, Backlog]:
    """Backlog by complete run of the open model; a run whose generator did not count its arrivals is not there."""
    complete = [run for run in experiment.complete_runs() if run in experiment.reduced]
    return {run: queue for run in complete if (queue := experiment.reduced[run].backlog) is not None}


def of_run(arrivals: Arrivals, second: NDArray[np.int64], count: NDArray[np.int64], offered: int) -> Backlog:
    """Of one run, from the responses that were complete in each second of the whole test, failures included.

    Where the workload makes several requests for an arrival, or raises exceptions instead, a response stands for the
    share of an arrival that it is over the whole test.
    """
    responses = int(count.sum())
    each = arrivals.ended / responses if responses and arrivals.ended is not None else 1.0
    ended = each * up_to(second, count, arrivals.edges)
    return Backlog(arrivals.arrived - ended, arrivals.started - ended, offered)
