"""What in `server.external` does not go together, before anything is run."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import Any

from analysis.record import Level
from harness import arrivals
from harness.apply import contains
from harness.experiment import ExperimentFile, External, duration_s
from harness.external import PLACEHOLDER, fill, host_name, is_loopback
from harness.parsed_file import Document, Keys, mapping
from harness.suggestions import there_is_no

Found = Iterator[tuple[Keys, str]]

ROOT = "server.external"
FACTORS = (f"{ROOT}.host", f"{ROOT}.rate_ceiling", f"{ROOT}.users_csv", f"{ROOT}.os_cloud")
"""What may be varied besides parameters."""


def problems(document: Document, factors: dict[str, list[Level]]) -> Found:
    """Keys that do not go together. What is wrong with a single one is said by the schema."""
    server = mapping(document, "server")
    if "external" not in server:
        return
    for key in ("system", "configuration", "parameters"):
        if key in server:
            yield ("server", key), f"server.{key}: is for a server that the harness starts, and this one is external"
    if "dataset" in document:
        yield ("dataset",), f"dataset: is for a server that the harness starts; name the users by {ROOT}.users_csv"
    external = mapping(document, "server", "external")
    if isinstance(external.get("parameters", {}), dict):  # else said by the schema, once
        yield from _placeholder_problems(external)
    yield from _probe_problems(external)
    yield from _timeout_problems(external)
    yield from _varied_problems(external, factors)
    if isinstance(external.get("host"), str) and "rate_ceiling" not in external:
        yield from _ceiling_missing(external)


def base_problems(written: Document, factors: dict[str, list[Level]]) -> Found:
    """Parameters that are varied and have a value that none may have: no treatment shows it, for each sets another.

    `written`: the document without any factor's level put in.
    """
    for name, value in mapping(written, "server", "external", "parameters").items():
        if f"{ROOT}.parameters.{name}" in factors and not isinstance(value, str | int | float):
            yield (
                ("server", "external", "parameters", name),
                f"{ROOT}.parameters.{name}: {value!r} is not text, a number, true or false; the levels that it takes "
                "stand in factors alone",
            )


def _timeout_problems(external: dict[str, Any]) -> Found:
    for keys in (("apply_timeout",), ("probe", "timeout")):
        given = mapping(external, *keys[:-1]).get(keys[-1])
        try:
            is_none = given is not None and duration_s(given) == 0
        except ValueError:
            continue  # said by the schema
        if is_none:
            path = ".".join((ROOT, *keys))
            yield (
                ("server", "external", *keys),
                f"{path}: {given!r} is no time to wait; write the longest that is right, as in 60s",
            )


def _ceiling_missing(external: dict[str, Any]) -> Found:
    try:
        one = External(host=external["host"])
    except ValueError:
        return  # said by the schema
    if not is_loopback(one):
        yield (
            ("server", "external", "host"),
            f"{ROOT}.rate_ceiling: is missing; {host_name(one)} is not loopback, and load on it needs one, as in 50/s",
        )


def _texts(external: dict[str, Any]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Everything that may hold a placeholder, with where it stands below `external`."""
    probe = mapping(external, "probe")
    places = ((("apply",), external.get("apply")), *((("probe", key), probe.get(key)) for key in _PROBE_TEXTS))
    for keys, given in places:
        for text in given if isinstance(given, list) else [given]:
            if isinstance(text, str):
                yield keys, text


_PROBE_TEXTS = ("get", "contains", "run", "prints")


def _placeholder_problems(external: dict[str, Any]) -> Found:
    known = list(mapping(external, "parameters"))
    for keys, text in _texts(external):
        path = ".".join((ROOT, *keys))
        for name in PLACEHOLDER.findall(text):
            if name not in known:
                yield ("server", "external", *keys), f"{path}: {there_is_no(name, known, 'parameter ')}"
        if "{parameters" in PLACEHOLDER.sub("", text):
            yield ("server", "external", *keys), f"{path}: {text!r}: a placeholder is written {{parameters.NAME}}"


def _probe_problems(external: dict[str, Any]) -> Found:
    keys: Keys = ("server", "external", "probe")
    probe, path = external.get("probe"), f"{ROOT}.probe"
    if probe is None:
        if "apply" in external:
            yield ("server", "external", "apply"), f"{path}: is missing; nothing else says that apply took"
        return
    if not isinstance(probe, dict):
        return  # said by the schema
    if ("get" in probe) == ("run" in probe):
        yield keys, f"{path}: name one of get (a path or URL) and run (a command)"
        return
    asks, expects, others = ("get", "contains", ("prints",)) if "get" in probe else ("run", "prints", _OF_GET)
    if expects not in probe:
        yield keys, f"{path}.{expects}: is missing; {asks} needs it, to know the right answer"
    for key in others:
        if key in probe:
            yield (*keys, key), f"{path}.{key}: does not belong to {asks}"
    if isinstance(probe.get("get"), str) and not re.match(r"/|https?://", probe["get"]):
        yield (*keys, "get"), f"{path}.get: {probe['get']!r} is no path and no URL; write it as in /status"
    if probe.get("contains") == "":
        yield (*keys, "contains"), f"{path}.contains: is empty, and every answer contains that"


_OF_GET = ("contains", "status")


def _varied_problems(external: dict[str, Any], factors: dict[str, list[Level]]) -> Found:
    """A parameter that is varied must change something, and the probe must see it."""
    prefix = f"{ROOT}.parameters."
    uses: dict[str, set[str]] = {}
    for keys, text in _texts(external):
        uses.setdefault(keys[-1], set()).update(PLACEHOLDER.findall(text))
    for path in (path for path in factors if path.startswith(prefix)):
        name, keys = path.removeprefix(prefix), ("factors", path)
        if name not in uses.get("apply", ()):
            yield keys, f"factors.{path}: {ROOT}.apply does not use {{parameters.{name}}}, so nothing would change"
        elif name not in uses.get("contains", set()) | uses.get("prints", set()):
            yield keys, f"factors.{path}: {ROOT}.probe expects the same for every level, so it cannot say which is on"
        elif alike := _alike(external, name, factors[path]):
            yield (
                keys,
                (
                    f"factors.{path}: {ROOT}.probe takes {alike[0]!r} for {alike[1]!r}, "
                    "so it cannot say which level is on"
                ),
            )


def _alike(external: dict[str, Any], name: str, levels: list[Level]) -> tuple[str, str] | None:
    """(what the probe sees at one level, what it must see at another) where the first passes for the second."""
    probe, base = mapping(external, "probe"), mapping(external, "parameters")
    texts = [str(probe.get(key)) for key in ("contains", "prints") if isinstance(probe.get(key), str)]
    for text in texts:
        try:
            expected = [fill(text, {**base, name: level}) for level in levels if level is not None]
        except KeyError:
            return None  # said of the placeholder
        for seen, wanted in itertools.permutations(expected, 2):
            if contains(seen, wanted) if "contains" in probe else seen.strip() == wanted.strip():
                return seen, wanted
    return None


def ceiling_problems(file: ExperimentFile) -> Iterator[str]:
    """Where an open load offers more than the ceiling. A closed one does not say; there Locust ends the run."""
    told: set[str] = set()
    for treatment in file.treatments():
        experiment = file.at(treatment)
        external, load = experiment.server.external, experiment.load
        if external is None or external.rate_ceiling is None or load.model == "closed":
            continue
        schedule = arrivals.schedule_of(load, file.rate_files)
        highest_rps = schedule and schedule.rates_rps(0, schedule.length_s)[2]
        offered_rps = highest_rps or load.arrival_rate_rps or 0.0
        if offered_rps > external.rate_ceiling:
            told.add(f"load: offers {offered_rps:g} requests a second, above {ROOT}.rate_ceiling, "
                     f"{external.rate_ceiling:g}/s")  # fmt: skip
    yield from sorted(told)
