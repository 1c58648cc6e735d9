"""Rules such as "p95(response_time) < 250ms", for --objective and --abort-when. Pure.

The grammar of analysis/rules.py, less what one run of Locust cannot know: no change(), nothing about the server's
processes. Locustfiles work alone, so it stands here once more; one test runs the same table through both.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import operator
import re
from collections import Counter
from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import Any

OPERATORS: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
TIMES = ("response_time", "service_time")
STATISTICS = ("min", "mean", "max")
PLAIN = {"failure_ratio": "ratio", "success_ratio": "ratio", "throughput": "/s"}
UNITS: dict[str, dict[str, int | Fraction]] = {
    "us": {"us": 1, "µs": 1, "ms": 1000, "s": 10**6, "min": 60 * 10**6},
    "ratio": {"%": Fraction(1, 100), "": 1},
    "/s": {"/s": 1, "": 1},
    "responses": {"": 1},
}


@dataclasses.dataclass(frozen=True)
class Rule:
    """One rule: its parts as in analysis/rules.py."""

    text: str
    name: str
    unit: str
    time: str | None
    fraction: float | None
    above_us: float | None
    sign: str
    limit: float

    def holds(self, value: float) -> bool:
        """Whether a value, in the unit of the limit, is as the rule wants it."""
        return OPERATORS[self.sign](value, self.limit)


def parse(text: str) -> Rule:
    """The rule that `text` says. Raises ValueError for anything that is none."""
    flat = " ".join(text.split())
    match = re.fullmatch(r"(.*[^<>=\s])\s*(<=|>=|<|>)\s*([^<>=()]+)", flat)
    if match is None:
        raise ValueError(f"{flat!r} is not a rule, such as p95(response_time) < 250ms")
    try:
        name, unit, time, fraction, above_us = _measure(match[1])
        rule = Rule(flat, name, unit, time, fraction, above_us, match[2], _limit(match[3].strip(), unit))
        _refuse_empty(rule)
    except ValueError as error:
        raise ValueError(f"{flat!r}: {error}") from None
    return rule


def _refuse_empty(rule: Rule) -> None:
    """A rule that holds at both ends of what there can be, or at neither, decides nothing."""
    if rule.holds(0.0) == rule.holds(1.0 if rule.unit == "ratio" else math.inf):
        raise ValueError(f"it can never {'fail' if rule.holds(0.0) else 'hold'}, whatever is measured")


def _measure(text: str) -> tuple[str, str, str | None, float | None, float | None]:
    if text in PLAIN:
        return text, PLAIN[text], None, None, None
    if count := re.fullmatch(r"count\s*\(\s*(\w+)\s*>\s*([^<>=()]+)\)", text):
        return "count", "responses", _known(count[1], TIMES), None, _limit(count[2].strip(), "us")
    match = re.fullmatch(r"(\w[\w.]*)\s*\(\s*([^()]*?)\s*\)", text)
    if match is None:
        _known(text, [*PLAIN, "p95(response_time)"])
        raise ValueError(f"{text} needs no more words")
    digits = re.fullmatch(r"p([0-9]{1,2}(?:\.[0-9]+)?)", match[1])
    fraction = float(Fraction(digits[1]) / 100) if digits else 0.0
    if not fraction:
        _known(match[1], (*STATISTICS, "count", "p50", "p90", "p95", "p99"))
    if match[1] == "count":
        raise ValueError("count() takes a time and a limit, as in count(response_time > 1s)")
    return "percentile" if fraction else match[1], "us", _known(match[2], TIMES), fraction or None, None


def _known(word: str, known: Iterable[str]) -> str:
    names = list(known)
    if word not in names:
        near = difflib.get_close_matches(word, names, n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(names)}"
        raise ValueError(f"there is no {word!r} here; {hint}")
    return word


def _limit(text: str, unit: str) -> float:
    match = re.fullmatch(r"\+?([0-9]+(?:\.[0-9]+)?)\s*([^0-9]*)", text)
    if match is None or match[2] not in UNITS[unit]:
        raise ValueError(f"{text!r} is not a limit here; write it as in {', '.join('5' + u for u in UNITS[unit])}")
    if unit == "ratio" and not match[2] and float(match[1]) > 1:
        raise ValueError(f"{text!r} is a ratio, and so {100 * float(match[1]):g}%; did you mean {text}%?")
    return float(Fraction(match[1]) * UNITS[unit][match[2]])


class Counts:
    """What was seen in some seconds: successes by clock and bucket, and failures."""

    def __init__(self) -> None:
        self._times: dict[str, Counter[int]] = {"response": Counter(), "service": Counter()}
        self._failures = 0

    @property
    def answers(self) -> int:
        """Successes and failures."""
        return self._times["response"].total() + self._failures

    def add(self, rows: Iterable[Iterable[Any]]) -> None:
        """Count rows of _histograms.py: second, endpoint, outcome, clock, bucket_us, count."""
        for _, _, outcome, clock, bucket_us, count in rows:
            if outcome == "success":
                self._times["response" if clock == "both" else clock][bucket_us] += count
            elif clock != "service":
                self._failures += count

    def value(self, rule: Rule, seconds: float) -> float | None:
        """What a rule looks at, in the unit of its limit; None where too little was seen to say."""
        successes = self._times["response"].total()
        if rule.name == "throughput":
            return successes / seconds if seconds > 0 else None
        if self.answers == 0:
            return None
        if rule.time is not None:
            return _of_times(rule, self._times_of(rule.time))
        part = self._failures if rule.name == "failure_ratio" else successes
        return part / self.answers

    def _times_of(self, time: str) -> Counter[int]:
        """In the closed model the two times are one."""
        return (time == "service_time" and self._times["service"]) or self._times["response"]


def _of_times(rule: Rule, times: Counter[int]) -> float | None:
    total = times.total()
    if rule.above_us is not None:
        return float(sum(count for bucket_us, count in times.items() if bucket_us > rule.above_us))
    if total < (1 if rule.fraction is None else smallest_sample_for(rule.fraction)):
        return None
    if rule.name == "mean":
        return sum(bucket_us * count for bucket_us, count in times.items()) / total
    # Nearest rank; 0.07 * 100 is 7.000000000000001 in floats, and its rank is 7.
    rank = math.ceil(round((rule.fraction or float(rule.name == "max")) * total, 6)) or 1
    for bucket_us in sorted(times):
        rank -= times[bucket_us]
        if rank <= 0:
            return float(bucket_us)
    return None


def smallest_sample_for(fraction: float) -> int:
    """Responses from which on a percentile means something, as in analysis/histograms.py: 72 for p95, 368 for p99."""
    return math.ceil(math.log(0.025) / math.log(max(fraction, 1 - fraction)))
