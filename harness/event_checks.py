"""What is wrong with the events of an experiment, before the first run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from harness.experiment import duration_s
from harness.parsed_file import Document, Keys, mapping
from harness.suggestions import there_is_no

Found = Iterator[tuple[Keys, str]]


def problems(document: Document, processes: Callable[[], list[tuple[str, list[str]]]]) -> Found:
    """Of a document whose factors are at one level.

    `processes` gives, for each server that the experiment starts, a name for it and those of its processes.
    """
    given = document.get("events")
    if not isinstance(given, list) or not given:  # what is no list is said by the model
        return
    if mapping(document, "server").get("external"):
        yield ("events",), "events: an external server's processes are not ours to kill or stop; leave them out"
        return
    if mapping(document, "order").get("server") != "per_run":
        yield ("events",), "events: they leave a server changed for the next run; write order: {server: per_run}"
    yield from _times(document, given)
    yield from _orders(given)
    for server, names in processes():
        for i, event in enumerate(given):
            name = event.get("process") if isinstance(event, dict) else None
            if isinstance(name, str) and name not in names:
                where = f" with {server}" if server else ""
                yield ("events", i, "process"), f"events.{i}.process: {there_is_no(name, names, 'process ')}{where}"


def _times(document: Document, given: list[Any]) -> Found:
    steady_s = _seconds(mapping(document, "timing").get("steady_state"))
    for i, event in enumerate(given):
        at_s = _seconds(event.get("at")) if isinstance(event, dict) else None
        if at_s is not None and steady_s is not None and at_s >= steady_s:
            yield ("events", i, "at"), f"events.{i}.at: the steady state is over after {steady_s:g} s"


def _orders(given: list[Any]) -> Found:
    """In the order of time: nothing after a kill, `continue` only after `stop`, and that once."""
    states: dict[str, str] = {}
    entries = [(i, e) for i, e in enumerate(given) if isinstance(e, dict) and _seconds(e.get("at")) is not None]
    for i, event in sorted(entries, key=lambda entry: _seconds(entry[1].get("at")) or 0.0):
        name, action = str(event.get("process")), event.get("action")
        state = states.get(name, "continue")
        if state == "kill":
            yield ("events", i), f"events.{i}: {name} has been killed before"
        elif action == state:
            words = "runs already" if action == "continue" else "is stopped already"
            yield ("events", i), f"events.{i}: {name} {words} at this time"
        if isinstance(action, str):
            states[name] = action


def _seconds(value: object) -> float | None:
    try:
        return duration_s(value)
    except ValueError:  # said by the model
        return None
