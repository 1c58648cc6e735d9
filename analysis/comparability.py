"""What differs between runs beyond the factors. Pure: run records in, differences out."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from analysis.record import RunRecord

DECISIVE = frozenset({"host", "hostname", "machine", "cpu", "cpus", "memory", "kernel", "distribution", "python",
                      "packages", "version"})  # fmt: skip
"""A difference in a path of the environment with one of these words: another machine, or other software."""
PASSING = frozenset({"average", "used", "uptime", "free", "available", "mhz", "temperature", "started"})
"""States that change from run to run by themselves, and are no difference."""
FACTS = "locust.facts"
REQUESTS_OPTION = "locust.command.--requests"
ALSO_OF_LOAD = frozenset({"spawn_rate", "run_time", "master_host", "master_bind_host"})
"""Options that follow from others of the load."""

MOST_VALUES = 4
"""Of one path, that a line tells; a wide sweep may have one for each run."""


@dataclasses.dataclass(frozen=True)
class Difference:
    """One path with more than one value among the runs."""

    path: str
    values: dict[str, tuple[int, ...]]
    """Value as JSON, to the numbers of the runs that have it."""
    decisive: bool

    def __str__(self) -> str:
        """The path, and which runs have which value, the rarest last."""
        common = sorted(self.values.items(), key=lambda item: -len(item[1]))
        texts = [f"{value} in {_run_list(runs)}" for value, runs in common]
        rest = len(texts) - MOST_VALUES
        return f"{self.path}: " + "; ".join(texts if rest < 2 else [*texts[:MOST_VALUES], f"and {rest} more values"])


def environment_differences(runs: Sequence[RunRecord]) -> list[Difference]:
    """Paths of `environment` that differ between `runs`, passing states apart."""
    flat = {run.number: flatten(run.environment, "environment") for run in runs}
    found = [d for d in _differences(flat) if not passes_by_itself(d.path)]
    return [dataclasses.replace(d, decisive=bool(_words(d.path) & DECISIVE)) for d in found]


def configuration_differences(runs: Sequence[RunRecord], factors: Iterable[str]) -> list[Difference]:
    """Paths of `server`, `load`, `workload` and `locust` that differ though no factor names or explains them.

    A configuration's hash must differ with a factor of the server; it is compared among runs of equal server levels
    only.
    """
    paths = list(factors)
    flat = {run.number: _settings(run) for run in runs}
    found = [
        d for d in _differences(flat) if not (_varied(d.path, paths) or _is_hash(d.path) or passes_by_itself(d.path))
    ]
    hashes = _hash_differences(runs, [path for path in paths if path.startswith(("server", "dataset"))])
    return [*found, *hashes, *_locust_differences(runs, paths)]


def passes_by_itself(path: str) -> bool:
    """Whether a path stands for a state that changes from run to run, and is no difference."""
    return bool(_words(path) & PASSING)


def flatten(value: Any, path: str) -> dict[str, Any]:
    """Nested mappings as {dotted path: leaf}; a list is a leaf."""
    if not isinstance(value, Mapping):
        return {path: value}
    return {p: leaf for name, inner in value.items() for p, leaf in flatten(inner, f"{path}.{name}").items()}


def _settings(run: RunRecord) -> dict[str, Any]:
    load = {name: value for name, value in run.load.items() if name != "requests" or value != _by_users(run)}
    return {**flatten(run.server, "server"), **flatten(load, "load"), "workload": run.workload}


def _by_users(run: RunRecord) -> int | None:
    """Requests of a budget that grows with the users, and says no more than they do; None where there is none."""
    users, each = run.load.get("users"), run.load.get("requests_per_user")
    return users * each if isinstance(users, int) and isinstance(each, int) else None


def _differences(flat: Mapping[int, Mapping[str, Any]]) -> list[Difference]:
    found = []
    for path in dict.fromkeys(p for values in flat.values() for p in values):
        by_value: dict[str, list[int]] = {}
        for number, values in flat.items():
            text = json.dumps(values[path], sort_keys=True, default=str) if path in values else "nothing"
            by_value.setdefault(text, []).append(number)
        if len(by_value) > 1:
            found.append(Difference(path, {value: tuple(runs) for value, runs in by_value.items()}, decisive=True))
    return found


def _hash_differences(runs: Sequence[RunRecord], server_factors: list[str]) -> list[Difference]:
    groups: dict[str, dict[int, dict[str, Any]]] = {}
    for run in runs:
        levels = json.dumps([run.treatment.get(path) for path in server_factors])
        hashes = {path: value for path, value in flatten(run.server, "server").items() if _is_hash(path)}
        groups.setdefault(levels, {})[run.number] = hashes
    return [difference for group in groups.values() for difference in _differences(group)]


def _locust_differences(runs: Sequence[RunRecord], factors: Sequence[str]) -> list[Difference]:
    """Of Locust's command and of the facts that it found: each among the runs whose explaining factors are equal."""
    flat = {run.number: {**_command(run), **_facts(run)} for run in runs}
    by_factors: dict[tuple[str, ...], list[str]] = {}
    for path in dict.fromkeys(p for values in flat.values() for p in values):
        by_factors.setdefault(tuple(f for f in factors if _explains(f, path)), []).append(path)
    found = []
    for explaining, paths in by_factors.items():
        groups: dict[str, dict[int, dict[str, Any]]] = {}
        for run in runs:
            levels = json.dumps([run.treatment.get(factor) for factor in explaining])
            groups.setdefault(levels, {})[run.number] = {p: flat[run.number][p] for p in paths if p in flat[run.number]}
        found += [difference for group in groups.values() for difference in _differences(group)]
    return [dataclasses.replace(d, decisive=not _is_numeric_fact(d)) for d in found]


def _command(run: RunRecord) -> dict[str, Any]:
    found = command_options(run.locust.get("command"))
    if found.get(REQUESTS_OPTION) == [str(_by_users(run))]:
        del found[REQUESTS_OPTION]
    return found


def command_options(command: object) -> dict[str, Any]:
    """Options of Locust's command line by path, without what is another's in each run: ports, folders and the seed."""
    words = [str(word) for word in command[1:]] if isinstance(command, list) else []
    found: dict[str, list[str]] = {}
    option = ""
    for word in words:
        if word.startswith("--") or word in {"-f", "-m"}:
            option = word
            found.setdefault(option, [])
        elif option:
            found[option].append(_without_place(word))
    return {f"locust.command.{o}": values for o, values in found.items() if o != "--seed" and not o.endswith("-port")}


def _without_place(word: str) -> str:
    """A file's name without its folder, an address without its port."""
    return re.sub(r"(://[^/]*):[0-9]+", r"\1", word) if "://" in word else word.rpartition("/")[2]


def _facts(run: RunRecord) -> dict[str, Any]:
    """Counts among them differ by themselves."""
    facts = flatten(run.locust.get("facts") or {}, FACTS)
    return {path: value for path, value in facts.items() if not path.endswith("_count")}


def _is_numeric_fact(difference: Difference) -> bool:
    """Not a text, which says what was measured: a number may follow from anything."""
    return difference.path.startswith(FACTS) and not any(value.startswith('"') for value in difference.values)


def _explains(factor: str, path: str) -> bool:
    """Whether an option or a fact may differ because the factor does."""
    if factor in {"workload", "server", "server.configuration"}:
        return True
    own = factor.rpartition(".")[2]
    if path.startswith(FACTS):
        return bool((_words(own.replace("_", " ")) & _words(path.replace("_", " "))) - {"locust", "facts"})
    option = path.rpartition(".--")[2].replace("-", "_")
    return option == own or (factor.startswith("load.") and option in ALSO_OF_LOAD)


def _varied(path: str, factors: Iterable[str]) -> bool:
    """A factor is this path, or stands above or below it."""
    return any(path == f or path.startswith(f + ".") or f.startswith(path + ".") for f in factors)


def _is_hash(path: str) -> bool:
    return path.endswith("sha256")


def _words(path: str) -> set[str]:
    return set(re.split(r"[^a-z0-9]+", path.lower()))


def _run_list(runs: Sequence[int]) -> str:
    shown = ", ".join(str(run) for run in runs[:6])
    return f"run{'s' if len(runs) > 1 else ''} {shown}" + (f" and {len(runs) - 6} more" if len(runs) > 6 else "")
