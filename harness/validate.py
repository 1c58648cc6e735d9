"""Read an experiment and hold it against what exists: workloads, server configurations, datasets, metrics."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pydantic

from analysis import rules
from analysis.record import METRICS, Level
from harness import arrivals, configuration, event_checks, external_checks, load, reference
from harness.configuration import Configuration
from harness.experiment import (
    RATES,
    WHOLE_SERVER,
    Experiment,
    ExperimentFile,
    factor_levels,
    substitute,
    treatments,
    whole_servers,
)
from harness.install import REPOSITORY
from harness.parsed_file import Document, ExperimentError, Keys, ParsedFile, Problem, mapping
from harness.schedules import derive_steady_state, schedule_problems, schedules_of
from harness.shape import load_problems, sentence, shape_problems
from harness.suggestions import did_you_mean, there_is_no
from harness.systems import SYSTEMS

LOCUSTFILES = REPOSITORY / "locustfiles"
LOAD_FACTORS = (
    *("users", "processes", "think_time", "requests", "requests_per_user"),
    *(*RATES, "arrival_process", "max_in_flight", "max_lateness"),
)
FREE_FACTORS = ("workload", WHOLE_SERVER, "server.configuration", *(f"load.{key}" for key in LOAD_FACTORS))

Found = Iterator[tuple[Keys, str]]


def read(path: Path, overrides: tuple[str, ...] = (), rate_files: dict[str, str] | None = None) -> ExperimentFile:
    """Read and check an experiment file. `rate_files`: contents to take for the files that load.arrival_rates names.

    Raises ExperimentError with every problem in it.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8 text"
        raise ExperimentError(path, [Problem(1, f"cannot be read: {reason}")]) from error
    parsed = ParsedFile(path, text, overrides)
    _name_null_caches(parsed.document)
    factors = factor_levels(parsed.document)
    known = _factor_paths(parsed.document)
    document = substitute(parsed.document, {path: levels[0] for path, levels in factors.items() if path in known})
    schedules = schedules_of(document, factors)
    if rate_files is None:
        rate_files = arrivals.read_files(path.parent, [name for key, name, _, _ in schedules if key == "arrival_rates"])
    derive_steady_state(document, rate_files)
    found = [*_whole_server_problems(parsed.document), *_problems(document, factors)]
    found += [*schedule_problems(document, schedules, rate_files)]
    found += [*external_checks.base_problems(parsed.document, factors)]
    problems = [parsed.problem(keys, message) for keys, message in found]
    problems += _varied_overrides(overrides, factors)
    if problems:
        raise ExperimentError(path, problems)
    file = ExperimentFile(path.stem, text, document, overrides, Experiment.model_validate(document), rate_files)
    if above := [parsed.problem(("load",), message) for message in external_checks.ceiling_problems(file)]:
        raise ExperimentError(path, above)
    return file


def workloads() -> list[str]:
    """Names of the locustfiles; those that begin with an underscore are not workloads."""
    return sorted(p.stem for p in LOCUSTFILES.glob("*.py") if not p.name.startswith("_"))


def _varied_overrides(overrides: tuple[str, ...], factors: dict[str, list[Level]]) -> Iterator[Problem]:
    """A --set of what the file varies would change nothing."""
    for override in overrides:
        name = override.partition("=")[0]
        if name in factors:
            yield Problem(0, f"{name}: the file varies it, so setting it has no effect; set factors.{name} instead")


def _problems(document: Document, factors: dict[str, list[Level]]) -> Found:
    yield from _document_problems(document)
    yield from _factor_problems(document, factors)
    yield from _treatment_problems(document, factors)
    yield from _selection_problems(document, factors)
    yield from event_checks.problems(document, lambda: _processes(document, factors))


def _processes(document: Document, factors: dict[str, list[Level]]) -> list[tuple[str, list[str]]]:
    """Each server that the factors make, in words, and its processes; those that cannot be read are left out."""
    found = []
    for treatment in treatments({path: levels for path, levels in factors.items() if path.split(".")[0] == "server"}):
        changed = substitute(document, treatment)
        chosen, given = _configuration(changed), mapping(changed, "server", "parameters")
        system = str(mapping(changed, "server").get("system"))
        if chosen is not None and system in SYSTEMS and not chosen.errors(given):
            words = ", ".join(f"{path} = {level}" for path, level in treatment.items())
            found.append((words, SYSTEMS[system].processes(chosen, chosen.complete(given))))
    return found


def _name_null_caches(document: Document) -> None:
    """YAML reads an unquoted `null` as nothing; as a parameter's value it is the word."""
    named = whole_servers(document)
    everywhere = (mapping(document, "server", "parameters"), *(mapping(named, name, "parameters") for name in named))
    for parameters in everywhere:
        for name, value in parameters.items():
            parameters[name] = "null" if value is None else value
    for path, levels in mapping(document, "factors").items():
        if path.startswith("server.parameters.") and isinstance(levels, list):
            levels[:] = ["null" if level is None else level for level in levels]
    for selection in (mapping(document, "baseline"), mapping(document, "primary", "at")):
        for path, level in selection.items():
            if path.startswith("server.parameters.") and level is None:
                selection[path] = "null"


def _existence_problems(document: Document) -> Found:
    """Names in a document that stand for nothing: workload, system, configuration, parameter, dataset, options."""
    workload = document.get("workload")
    if isinstance(workload, str) and workload not in workloads():
        yield ("workload",), f"workload: {there_is_no(workload, workloads())}"
    system = mapping(document, "server").get("system")
    if isinstance(system, str) and "external" not in mapping(document, "server"):
        yield from _server_problems(system, document)
        if isinstance(workload, str) and workload in workloads() and workload.split("_")[0] != system:
            yield ("workload",), f"workload: {workload} drives {workload.split('_')[0]}, and the server is {system}"
    chosen = list(map(str, factor_levels(document).get("workload", [workload])))
    for name in mapping(document, "options"):
        if name in chosen and name in workloads():
            yield from _option_problems(name, mapping(document, "options", name))
        else:
            known = [w for w in workloads() if w in chosen]
            words = " or ".join(chosen)
            yield ("options", name), f"options.{name}: the workload is {words}{did_you_mean(name, known)}"
    published = document.get("reference")
    if isinstance(published, str) and published not in reference.names():
        yield ("reference",), f"reference: {there_is_no(published, reference.names())}"


def _option_problems(workload: str, given: dict[str, Any]) -> Found:
    known = load.own_options(workload)
    for name, value in given.items():
        keys = ("options", workload, name)
        if name not in known:
            yield keys, f"options.{workload}: {there_is_no(name, sorted(known), 'option ')}"
        elif known[name] and _word(value) not in known[name]:
            yield keys, f"options.{workload}.{name}: {there_is_no(_word(value), known[name])}"


def _word(value: object) -> str:
    """An option's value as the locustfile gets it: some write yes and no in YAML, others true and false."""
    return ("no", "yes")[value] if isinstance(value, bool) else str(value)


def _server_problems(system: str, document: Document) -> Found:
    known = configuration.systems()
    if system not in known:
        yield ("server", "system"), f"server.system: {there_is_no(system, known)}"
        return
    chosen = _configuration(document)
    name = mapping(document, "server").get("configuration")
    if chosen is not None:
        if lacks := chosen.lacks(SYSTEMS[system].NEEDS_PARAMETERS, SYSTEMS[system].NEEDS_TEMPLATES):
            yield ("server", "configuration"), f"server.configuration: {system}/{name} lacks {', '.join(lacks)}"
        for parameter, message in chosen.errors(mapping(document, "server", "parameters")).items():
            yield ("server", "parameters", parameter), f"server.parameters.{message}"
        for message in chosen.refusals(mapping(document, "server", "parameters")):
            yield ("server", "parameters"), f"server.parameters: {message}"
    elif isinstance(name, str):
        names = configuration.configurations(system)
        yield ("server", "configuration"), f"server.configuration: {there_is_no(name, names)}"
    try:
        SYSTEMS[system].Dataset.model_validate(document.get("dataset") or {})
    except pydantic.ValidationError as error:
        known = list(SYSTEMS[system].Dataset.model_fields)
        for detail in error.errors():
            key, kind = str(detail["loc"][0]), detail["type"]
            unknown = f"{system} has no such key{did_you_mean(key, known)}"
            yield ("dataset", key), f"dataset.{key}: {_DATASET_WORDS.get(kind, '').format(unknown) or sentence(detail)}"


_DATASET_WORDS = {"missing": "is missing", "extra_forbidden": "{}"}


def _configuration(document: Document) -> Configuration | None:
    server = mapping(document, "server")
    try:
        return configuration.read(str(server.get("system")), str(server.get("configuration")))
    except KeyError:
        return None


def _factor_problems(document: Document, factors: dict[str, list[Level]]) -> Found:
    if not isinstance(document.get("factors", {}), dict):
        yield ("factors",), "factors: write a mapping of dotted paths to lists of levels"
    for path, given in mapping(document, "factors").items():
        keys: Keys = ("factors", path)
        levels = factors.get(path, given)
        if not isinstance(levels, list) or not levels:
            yield keys, f"factors.{path}: write its levels as a list, as in [1, 2]"
            continue
        if len({(type(level), level) for level in levels if isinstance(level, Level)}) != len(levels):
            yield keys, f"factors.{path}: levels must be plain values, each once"
            continue
        known = _factor_paths(document)
        if path not in known:
            yield keys, f"factors.{path}: this cannot be varied{did_you_mean(path, known)}"
            continue
        for i, level in enumerate(levels[1:], 1):
            yield from _level_problems(document, path, i, level)


def _level_problems(document: Document, path: str, i: int, level: Level) -> Found:
    before = {message for _, message in _document_problems(document)}
    for _, message in _document_problems(substitute(document, {path: level})):
        if message not in before:
            yield (
                ("factors", path, str(level) if path == WHOLE_SERVER else i),
                f"factors.{path}: level {level!r}: {message}",
            )


def _treatment_problems(document: Document, factors: dict[str, list[Level]]) -> Found:
    """What is wrong only where levels of several factors meet."""
    sizes = {
        path: levels
        for path, levels in factors.items()
        if path in ("load.users", "load.max_in_flight", "load.processes")
    }
    found = {message for t in treatments(sizes) for _, message in _share_problems(substitute(document, t))}
    already = {message for _, message in _share_problems(document)}
    yield from (((("factors", "load.processes"), message)) for message in sorted(found - already))
    yield from _server_treatment_problems(document, factors)


def _server_treatment_problems(document: Document, factors: dict[str, list[Level]]) -> Found:
    """What one server configuration takes as a parameter's value and another one does not."""
    of_server = {path: levels for path, levels in factors.items() if path.startswith("server.")}
    system = str(mapping(document, "server").get("system"))
    if system not in SYSTEMS:
        return
    alone = [substitute(document, {path: level}) for path, levels in of_server.items() for level in levels]
    already = {message for changed in (document, *alone) for _, message in _server_problems(system, changed)}
    told: set[str] = set()
    for treatment in treatments(of_server):
        for keys, message in _server_problems(system, substitute(document, treatment)):
            if message not in already | told:
                told.add(message)
                name = treatment.get("server.configuration")
                where = "" if name is None else f" with server.configuration = {name}"
                yield ("factors", ".".join(map(str, keys))), f"{message}{where}"


def _whole_server_problems(document: Document) -> Found:
    """`factors.server` stands for `server` and all in it."""
    given = mapping(document, "factors").get(WHOLE_SERVER)
    if given is None:
        return
    if not isinstance(given, dict) or not given or not all(isinstance(server, dict) for server in given.values()):
        yield ("factors", WHOLE_SERVER), f"factors.server: write names with a whole server each, as in {_WHOLE}"
        return
    for path in mapping(document, "factors"):
        if path.startswith(f"{WHOLE_SERVER}."):
            yield ("factors", path), f"factors.{path}: write it into each server of factors.server instead"
    if "server" in document:
        yield ("server",), "server: factors.server names whole servers; leave it out"


_WHOLE = "{uWSGI: {system: keystone, configuration: uwsgi}, Apache: {system: keystone, configuration: apache}}"


def _document_problems(document: Document) -> Found:
    # What is wrong with factors themselves is said once, by _factor_problems.
    yield from ((keys, message) for keys, message in shape_problems(document) if keys[:1] != ("factors",))
    yield from load_problems(document)
    yield from external_checks.problems(document, factor_levels(document))
    yield from _existence_problems(document)
    yield from _share_problems(document)


def _factor_paths(document: Document) -> list[str]:
    """Dotted paths that may be factors in this document."""
    chosen = _configuration(document)
    parameters = [f"server.parameters.{name}" for name in chosen.declaration.parameters] if chosen else []
    dataset = [f"dataset.{name}" for name in mapping(document, "dataset")]
    options = [f"options.{w}.{key}" for w, given in mapping(document, "options").items() for key in given or {}]
    external = mapping(document, "server", "external")
    own = [f"{external_checks.ROOT}.parameters.{name}" for name in mapping(external, "parameters")]
    return [*FREE_FACTORS, *(external_checks.FACTORS if external else ()), *own, *parameters, *dataset, *options]


def _selection_problems(document: Document, factors: dict[str, list[Level]]) -> Found:
    """baseline and primary.at name factors and levels; primary.metric names a metric."""
    for keys in (("baseline",), ("primary", "at")):
        for path, level in mapping(document, *keys).items():
            if path not in factors:
                yield (*keys, path), f"{'.'.join(keys)}: {path} is not a factor{did_you_mean(path, list(factors))}"
            elif not any(_same(level, known) for known in factors[path]):
                yield (*keys, path), f"{'.'.join(keys)}: {level!r} is not a level of {path}; it has {factors[path]}"
    for path in mapping(document, "primary", "at"):
        if path in mapping(document, "baseline"):
            yield ("primary", "at", path), f"primary.at: {path} is what the baseline is about; name other factors here"
    metric = mapping(document, "primary").get("metric", "throughput")
    if metric not in METRICS:
        yield ("primary", "metric"), f"primary.metric: {there_is_no(metric, METRICS)}"
    yield from _change_problems(document)


def _change_problems(document: Document) -> Found:
    """An objective about a change needs something that it is relative to."""
    given = document.get("objectives")
    for i, text in enumerate(given if isinstance(given, list) and not document.get("baseline") else []):
        try:
            is_change = rules.parse(str(text)).is_change
        except rules.RuleError:  # said by the model
            continue
        if is_change:
            yield ("objectives", i), f"objectives.{i}: {text!r} is relative to the baseline, and the file names none"


def _same(level: Level, other: Level) -> bool:
    """Equal as written: 1, 1.0 and true are three levels."""
    return type(level) is type(other) and level == other


def _share_problems(document: Document) -> Found:
    load = mapping(document, "load")
    slots, processes = load.get("users", load.get("max_in_flight")), load.get("processes", 1)
    if isinstance(slots, int) and isinstance(processes, int) and processes > slots > 0:  # 0 is wrong for itself
        word = "users" if "users" in load else "requests in flight"
        yield ("load", "processes"), f"load.processes: {processes} processes cannot share {slots} {word}"
