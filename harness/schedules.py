"""Whether the schedules of arrivals that an experiment names are any, and as long as its runs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from analysis.record import Level
from harness import arrivals
from harness.experiment import duration_s
from harness.parsed_file import Document, Keys, mapping

Found = Iterator[tuple[Keys, str]]

Schedules = list[tuple[str, str, Keys, str]]
"""Key of `load`, its value, where that stands, and what a message about it begins with."""


def schedules_of(document: Document, factors: dict[str, list[Level]]) -> Schedules:
    """Every schedule that the experiment names, as a value or as a level; what is not text is another check's."""
    found: Schedules = []
    for key in arrivals.READERS:
        path = f"load.{key}"
        if path in factors:
            places: list[tuple[Any, Keys, str]] = [
                (level, ("factors", path, i), f"factors.{path}: level {level!r}")
                for i, level in enumerate(factors[path])
            ]
        else:
            places = [(mapping(document, "load").get(key), ("load", key), path)]
        found += [(key, value, keys, words) for value, keys, words in places if isinstance(value, str)]
    return found


def derive_steady_state(document: Document, rate_files: dict[str, str]) -> None:
    """timing.steady_state may be left out where a schedule's length says it: what is left of that after the warm-up."""
    timing, given = document.get("timing"), mapping(document, "load")
    schedules = [(key, given[key]) for key in arrivals.READERS if isinstance(given.get(key), str)]
    if not isinstance(timing, dict) or "steady_state" in timing or len(schedules) != 1:
        return
    try:
        left_s = arrivals.find(*schedules[0], rate_files).length_s - duration_s(timing.get("warm_up"))
    except ValueError:
        return
    if _is_window(left_s):
        timing["steady_state"] = f"{round(left_s)}s"


def schedule_problems(document: Document, schedules: Schedules, rate_files: dict[str, str]) -> Found:
    """What is no schedule, and where its length is not that of warm-up and steady state."""
    timing = mapping(document, "timing")
    for key, value, keys, words in schedules:
        try:
            length_s = arrivals.find(key, value, rate_files).length_s
        except ValueError as error:
            yield keys, f"{words}: {error}"
            continue
        try:
            warm_up_s = duration_s(timing.get("warm_up"))
            steady_s = duration_s(timing["steady_state"]) if "steady_state" in timing else None
        except ValueError:
            continue  # said of timing
        if steady_s is None:
            if not _is_window(length_s - warm_up_s):
                yield keys, f"{words}: lasts {length_s:g} s, {_LEAVES.format(length_s - warm_up_s)}"
        elif abs(length_s - warm_up_s - steady_s) > SAME_LENGTH_S:
            yield keys, f"{words}: lasts {length_s:g} s, {_NOT_THE_RUN.format(warm_up_s + steady_s)}"


def _is_window(length_s: float) -> bool:
    return 1 - SAME_LENGTH_S < length_s < math.inf and abs(length_s - round(length_s)) < SAME_LENGTH_S


SAME_LENGTH_S = 1e-5
_LEAVES = "which leaves {:g} s of steady state after timing.warm_up; it has to leave whole seconds, at least 1"
_NOT_THE_RUN = "and the run's warm-up and steady state {:g} s; it begins with the run, so they must be equal"
