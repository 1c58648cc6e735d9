"""`--objective RULE` judges a run of Locust at its end; `--abort-when RULE` ends a hopeless one early, and
`--rate-ceiling R` one that asks a server for more than it may.

All look at what the processes counted together, in the process that the user started: workers add the histograms of
their seconds to the reports that they send the master anyway. Nothing is counted where no option is given.

A run is one run: it is judged on its counted value, over the whole test, and says nothing of the next. Exit code 1
where an objective failed, 3 where too little was seen to say, 0 where all passed, although some requests may have
failed: objectives, where given, decide instead of Locust's --exit-code-on-error. An exit code of 2 stands.
"""

# mypy: allow-untyped-calls, allow-untyped-decorators
# (Locust's event hooks are not typed.)

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterable
from typing import Any

import _preparation  # noqa: F401 (its listeners, which prepare a test and collect its last reports, come first)
import gevent
import locust.log
from _abortion import CEILING_WINDOW_S, WINDOW_S, Abortion, most_answers, read_abortion
from _arrivals import read_rate
from _completion import end_test
from _histograms import Histograms
from _options import checked, option
from _response_times import clock_of
from _rules import Counts, Rule, parse
from locust import events
from locust.argument_parser import LocustArgumentParser
from locust.env import Environment
from locust.runners import WORKER_REPORT_INTERVAL, LocalRunner, MasterRunner, WorkerRunner

FAILED, INCONCLUSIVE = 1, 3

log = logging.getLogger(__name__)

Rows = Iterable[Iterable[Any]]


def rules_of(environment: Environment, name: str) -> list[Rule]:
    """The rules of an option."""
    return [parse(text) for text in option(environment, name) or ()]


def ceiling_of(environment: Environment) -> float | None:
    """Most answers in CEILING_WINDOW_S, or None where there is no ceiling."""
    text = option(environment, "rate_ceiling")
    return most_answers(read_rate(text), is_open(environment)) if text else None


def is_open(environment: Environment) -> bool:
    """Whether arrivals are asked for."""
    return any(option(environment, name) for name in ("arrival_rate", "arrival_steps", "arrival_rates"))


class Counter:
    """In each process that runs users: counts what the option's rules look at."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._histograms = Histograms(clock_of(environment))
        self._is_counting = False

    def on_test_start(self, **_: Any) -> None:
        """Begin anew; a worker learns the options of the test with its start."""
        self.take()
        wanted = any(option(self._environment, name) for name in ("objective", "abort_when", "rate_ceiling"))
        if wanted and not self._is_counting:
            self._environment.events.request.add_listener(self._histograms.on_request)
            self._is_counting = True

    def take(self) -> list[tuple[Any, ...]]:
        """What was counted since the last call."""
        return self._histograms.take()

    def on_report(self, data: dict[str, Any], **_: Any) -> None:
        """Add it to a worker's report."""
        if self._is_counting:
            data[_KEY] = self.take()


class Judge:
    """In the process that the user started: adds up what was counted, and judges it."""

    def __init__(self, environment: Environment, counter: Counter | None) -> None:
        self._environment = environment
        self._counter = counter
        """This process' own, where it runs users itself."""
        self._total = Counts()
        self._by_second: dict[int, list[Iterable[Any]]] = {}
        self._begun_s = self._ended_s = 0.0
        self._test = 0

    def on_test_start(self, **_: Any) -> None:
        """Begin anew, and watch where a rule may end the test."""
        self._total, self._by_second, self._test = Counts(), {}, self._test + 1
        self._begun_s, self._ended_s = time.monotonic(), 0.0
        rules = [read_abortion(text) for text in option(self._environment, "abort_when") or ()]
        if rules or ceiling_of(self._environment) is not None:
            gevent.spawn(self._watch, rules, self._test)

    def on_worker_report(self, data: dict[str, Any], **_: Any) -> None:
        """A worker's counts."""
        self._add(data.pop(_KEY, ()))

    def on_test_stop(self, **_: Any) -> None:
        """All users have ended, and all reports are there."""
        self._ended_s = time.monotonic()
        self._collect()

    def on_quitting(self, **_: Any) -> None:
        """Set the exit code. An interrupted test still runs here; Locust would stop it in a moment."""
        runner = self._environment.runner
        if runner is not None and self._begun_s and not self._ended_s:
            runner.stop()
        results = self._results()
        if not results or self._environment.process_exit_code is not None:
            return
        outcomes = [outcome for _, _, outcome in results]
        if "fail" in outcomes:
            self._environment.process_exit_code = FAILED
        elif "inconclusive" in outcomes:
            self._environment.process_exit_code = INCONCLUSIVE
        elif runner is None or not (runner.exceptions or locust.log.unhandled_greenlet_exception):
            self._environment.process_exit_code = 0

    def on_quit(self, **_: Any) -> None:
        """One line an objective, below Locust's own tables."""
        for rule, value, outcome in self._results():
            seen = "too few responses to say" if value is None else f"{shown(rule, value)}, counted in this one run"
            sys.stdout.write(f"{outcome}: {rule.text}: {seen}\n")

    def _results(self) -> list[tuple[Rule, float | None, str]]:
        if not self._begun_s:
            return []
        seconds = (self._ended_s or time.monotonic()) - self._begun_s
        found = []
        for rule in rules_of(self._environment, "objective"):
            value = self._total.value(rule, seconds)
            found.append((rule, value, "inconclusive" if value is None else "pass" if rule.holds(value) else "fail"))
        return found

    def _collect(self) -> None:
        if self._counter is not None:
            self._add(self._counter.take())

    def _add(self, rows: Rows) -> None:
        for row in rows:
            self._total.add([row])
            self._by_second.setdefault(next(iter(row)), []).append(row)

    def _watch(self, rules: list[Abortion], test: int) -> None:
        longest_s = max([CEILING_WINDOW_S, *(rule.window_s for rule in rules)])
        # Workers report every few seconds: younger seconds are not whole here yet.
        lag_s = 0 if self._counter is not None else int(WORKER_REPORT_INTERVAL) + 1
        unix_s = clock_of(self._environment)
        first = int(unix_s()) + 1
        while self._test == test and not self._ended_s:
            now = unix_s()
            gevent.sleep(int(now) + 1 - now)
            self._collect()
            end = int(unix_s()) - lag_s
            for second in [s for s in self._by_second if s < end - longest_s]:
                del self._by_second[second]
            if reason := self._above_ceiling() or self._hopeless(rules, first, end):
                log.error("%s%s.", ABORTED, reason)
                if self._environment.process_exit_code is None:
                    self._environment.process_exit_code = FAILED
                end_test(self._environment)
                return

    def _hopeless(self, rules: list[Abortion], first: int, end: int) -> str | None:
        """Which rule holds for the seconds before `end`, and what was seen."""
        for abortion in rules:
            if end - abortion.window_s < first:
                continue
            value = self._seen(end - abortion.window_s, end).value(abortion.rule, abortion.window_s)
            if value is not None and abortion.rule.holds(value):
                seen = shown(abortion.rule, value)
                return f"abort-when {abortion.rule.text}: {seen} over {abortion.window_s} s"
        return None

    def _above_ceiling(self) -> str | None:
        """Whether the latest seconds, the one that runs among them, hold too many answers: no window need be full."""
        most = ceiling_of(self._environment)
        if most is None or not self._by_second:
            return None
        end = max(self._by_second) + 1
        seen = self._seen(end - CEILING_WINDOW_S, end).answers
        if seen <= most:
            return None
        rate = read_rate(option(self._environment, "rate_ceiling"))
        return f"rate-ceiling {rate:g}/s: {seen} answers within {CEILING_WINDOW_S} s"

    def _seen(self, start: int, end: int) -> Counts:
        seen = Counts()
        for second in range(start, end):
            seen.add(self._by_second.get(second, ()))
        return seen


def shown(rule: Rule, value: float) -> str:
    """A value with its unit, three digits."""
    if rule.unit == "us":
        return f"{value / 1e6:.3g} s" if value >= 1e6 else f"{value / 1e3:.3g} ms"
    if rule.unit == "ratio":
        return f"{100 * value:.3g} %"
    return f"{value:.3g}/s" if rule.unit == "/s" else f"{value:,.0f}"


ABORTED = "Aborted by --"
_KEY = "stackswarm_counts"


@events.init_command_line_parser.add_listener
def _add_options(parser: LocustArgumentParser) -> None:
    parser.add_argument(
        "--objective",
        action="append",
        type=checked(parse),
        metavar="RULE",
        include_in_web_ui=False,
        help="Judge the test at its end, as in 'p95(response_time) < 250ms', 'failure_ratio < 1%%' or 'throughput > "
        "20/s': exit code 1 where one failed, 3 where too little was seen to say. May be repeated.",
    )
    parser.add_argument(
        "--abort-when",
        action="append",
        type=checked(read_abortion),
        metavar="RULE",
        include_in_web_ui=False,
        help=f"End the test, with exit code 1, as soon as this holds over {WINDOW_S} seconds, as in "
        "'failure_ratio > 50%%', or over as many as it says, 'failure_ratio > 50%% over 10s'. May be repeated.",
    )
    parser.add_argument(
        "--rate-ceiling",
        type=checked(read_rate),
        metavar="R",
        include_in_web_ui=False,
        help=f"End the test, with exit code 1, as soon as {CEILING_WINDOW_S} seconds hold more than {CEILING_WINDOW_S} "
        "R answers, failures among them, of all processes together: for a server that may not be asked for more.",
    )


@events.init.add_listener
def _attach(environment: Environment, **_: Any) -> None:
    runner, on = environment.runner, environment.events
    counter = None
    if isinstance(runner, (LocalRunner, WorkerRunner)):
        counter = Counter(environment)
        on.test_start.add_listener(counter.on_test_start)
    if isinstance(runner, WorkerRunner) and counter is not None:
        on.report_to_master.add_listener(counter.on_report)
        return
    judge = Judge(environment, counter)
    on.test_start.add_listener(judge.on_test_start)
    if isinstance(runner, MasterRunner):
        on.worker_report.add_listener(judge.on_worker_report)
    on.test_stop.add_listener(judge.on_test_stop)
    on.quitting.add_listener(judge.on_quitting)
    on.quit.add_listener(judge.on_quit)
