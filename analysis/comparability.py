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
    """Paths of `server`, `load` and `workload` that differ though no factor names them.

    A configuration's hash must differ with a factor of the server; it is compared among runs of equal server levels
    only.
    """
    paths = list(factors)
    flat = {run.number: _settings(run) for run in runs}
    found = [
        d for d in _differences(flat) if not (_varied(d.path, paths) or _is_hash(d.path) or passes_by_itself(d.path))
    ]
    return found + _hash_differences(runs, [path for path in paths if path.startswith(("server", "dataset"))])


def passes_by_itself(path: str) -> bool:
    """Whether a path stands for a state that changes from run to run, and is no difference."""
    return bool(_words(path) & PASSING)


def flatten(value: Any, path: str) -> dict[str, Any]:
    """Nested mappings as {dotted path: leaf}; a list is a leaf."""
    if not isinstance(value, Mapping):
        return {path: value}
    return {p: leaf for name, inner in value.items() for p, leaf in flatten(inner, f"{path}.{name}").items()}


def _settings(run: RunRecord) -> dict[str, Any]:
    return {**flatten(run.server, "server"), **flatten(run.load, "load"), "workload": run.workload}


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
