"""Rules such as "p95(response_time) < 250ms": their grammar. Pure, standard library only, so that harness can read it.

    rule      VALUE < LIMIT, with <, <=, > or >=
    value     MEASURE, or change(MEASURE): relative to the baseline, so that 10% is a ratio of 1.10
    measure   p95(response_time), any percentile · min, mean, max · of response_time or service_time
              count(response_time > 1s): the responses slower than that · a plain name: failure_ratio, throughput, …
    limit     a number with its unit: 250ms, 1%, 20/s, 512MiB; counts have none, shares may be written 0.01

Times are those of successful responses, as everywhere; failures have failure_ratio.
locustfiles/_rules.py reads the same grammar for what one run of Locust can know; one test holds the two together.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import operator
import re
from collections.abc import Callable, Iterable
from fractions import Fraction

TIMES = ("response_time", "service_time")
STATISTICS = ("min", "mean", "max")
PLAIN = {
    "failure_ratio": "ratio",
    "success_ratio": "ratio",
    "throughput": "/s",
    "server_cpu_ms_per_request": "us",
    "server_cpu": "cores",
    "server_peak_memory": "bytes",
}
"""Measures without an argument, and what they are measured in."""
ONE_RUN_OF_LOCUST = frozenset({"failure_ratio", "success_ratio", "throughput"})
"""Of them those that a load generator knows by itself."""

OPERATORS: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
PERCENT = Fraction(1, 100)
UNITS: dict[str, dict[str, int | Fraction]] = {
    "us": {"us": 1, "µs": 1, "ms": 1000, "s": 10**6, "min": 60 * 10**6},
    "ratio": {"%": PERCENT, "": 1},
    "/s": {"/s": 1, "": 1},
    "cores": {"": 1, "%": PERCENT},
    "bytes": {"MiB": 2**20, "GiB": 2**30, "MB": 10**6, "GB": 10**9},
    "responses": {"": 1},
}
"""For each thing that is measured the units that a limit may be written in, and what they are worth."""


class RuleError(ValueError):
    """A rule that cannot be read: which, why, and what was probably meant."""


@dataclasses.dataclass(frozen=True)
class Measure:
    """What a rule looks at."""

    name: str
    """ "percentile", one of STATISTICS, "count", or one of PLAIN."""
    unit: str
    """A key of UNITS; times are in microseconds."""
    time: str | None = None
    """One of TIMES, where the measure is one of them."""
    fraction: float | None = None
    """0.95 of p95."""
    above_us: float | None = None
    """count(): the time beyond which responses are counted."""


@dataclasses.dataclass(frozen=True)
class Rule:
    """One rule, its limit in the measure's unit (a ratio for a change)."""

    text: str
    """As it was written, blanks apart."""
    measure: Measure
    is_change: bool
    sign: str
    limit: float

    def holds(self, value: float) -> bool:
        """Whether a value, in the unit of the limit, is as the rule wants it."""
        return OPERATORS[self.sign](value, self.limit)

    @property
    def is_for_locust(self) -> bool:
        """Whether one run of Locust can judge it: no change, and nothing about the server's processes."""
        return not self.is_change and (self.measure.name not in PLAIN or self.measure.name in ONE_RUN_OF_LOCUST)


def parse(text: str) -> Rule:
    """The rule that `text` says. Raises RuleError for anything that is none."""
    flat = " ".join(text.split())
    match = re.fullmatch(r"(?P<value>.*[^<>=\s])\s*(?P<sign><=|>=|<|>)\s*(?P<limit>[^<>=()]+)", flat)
    if match is None:
        raise RuleError(f"{flat!r} is not a rule; write it as in p95(response_time) < 250ms, with <, <=, > or >=")
    value = match["value"]
    inner = re.fullmatch(r"change\s*\((.*)\)", value)
    try:
        measure = _measure((inner[1] if inner else value).strip())
        if inner and measure.name == "count":
            raise RuleError("a count has no change; name a time, a share or a rate")
        limit = _limit(match["limit"].strip(), "ratio" if inner else measure.unit, signed=bool(inner))
        rule = Rule(flat, measure, bool(inner), match["sign"], limit)
        _refuse_empty(rule)
    except RuleError as error:
        raise RuleError(f"{flat!r}: {error}") from None
    return rule


def _refuse_empty(rule: Rule) -> None:
    """A rule that holds at both ends of what there can be, or at neither, decides nothing."""
    lowest = -1.0 if rule.is_change else 0.0
    highest = 1.0 if rule.measure.unit == "ratio" and not rule.is_change else math.inf
    if rule.holds(lowest) == rule.holds(highest):
        raise RuleError(f"it can never {'fail' if rule.holds(lowest) else 'hold'}, whatever is measured")


def _measure(text: str) -> Measure:
    if text in PLAIN:
        return Measure(text, PLAIN[text])
    match = re.fullmatch(r"(\w[\w.]*)\s*\((.*)\)", text)
    if match is None:
        if text in STATISTICS or re.fullmatch(r"p[0-9]+(\.[0-9]+)?", text):
            raise RuleError(f"{text} of what? write {text}(response_time) or {text}(service_time)")
        raise RuleError(f"there is no {text!r}{_did_you_mean(text, [*PLAIN, 'p95(response_time)'])}")
    statistic, argument = match[1], match[2].strip()
    if statistic == "count":
        return _count(argument)
    fraction = _fraction(statistic)
    if fraction is None and statistic not in STATISTICS:
        known = ("p50", "p90", "p95", "p99", *STATISTICS, "count", "change")
        raise RuleError(f"there is no {statistic}(){_did_you_mean(statistic, known)}")
    return Measure("percentile" if fraction else statistic, "us", _time(argument), fraction)


def _fraction(statistic: str) -> float | None:
    digits = re.fullmatch(r"p([0-9]{1,2}(?:\.[0-9]+)?)", statistic)
    if digits is None or float(digits[1]) == 0:
        return None
    return float(Fraction(digits[1]) / 100)


def _count(argument: str) -> Measure:
    match = re.fullmatch(r"(\w+)\s*>\s*([^<>=]+)", argument)
    if match is None:
        raise RuleError("count() takes a time and a limit, as in count(response_time > 1s)")
    return Measure("count", "responses", _time(match[1]), above_us=_limit(match[2].strip(), "us"))


def _time(text: str) -> str:
    if text not in TIMES:
        raise RuleError(f"there is no time {text!r}{_did_you_mean(text, TIMES) or '; there are: ' + ', '.join(TIMES)}")
    return text


def _limit(text: str, unit: str, signed: bool = False) -> float:
    match = re.fullmatch(r"([+-]?)([0-9]+(?:\.[0-9]+)?)\s*([^0-9]*)", text)
    known = UNITS[unit]
    if match is None or match[3] not in known:
        written = ", ".join(f"5{name}" for name in known)
        raise RuleError(f"{text!r} is not a limit here; write it as in {written}")
    if match[1] == "-" and not signed:
        raise RuleError(f"{text!r} is below zero, where nothing is")
    if unit == "ratio" and not match[3] and float(match[2]) > 1:
        raise RuleError(f"{text!r} is a ratio, and so {match[1]}{100 * float(match[2]):g}%; did you mean {text}%?")
    # Exact up to the last step: 7 % is then the same float as 7 failures of 100.
    return float(Fraction(match[1] + match[2]) * known[match[3]])


def _did_you_mean(word: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean {near[0]}?" if near else f"; there are: {', '.join(known)}"
