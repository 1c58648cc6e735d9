"""Treatments: their names, and which of them are compared with which. Pure."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence

from analysis.record import Level, Treatment


@dataclasses.dataclass(frozen=True)
class Pair:
    """A treatment and the baseline at the same levels of all factors that the baseline does not name."""

    baseline: Treatment
    treatment: Treatment
    context: Treatment
    """The levels both share."""
    decides: bool
    """Whether primary.at selects this pair, so that it carries the verdict."""


def key(treatment: Treatment) -> str:
    """Identity of a treatment, whatever the order of its factors; 1, "1" and true stay apart."""
    return json.dumps(treatment, sort_keys=True, ensure_ascii=False)


def pairs(treatments: Iterable[Treatment], baseline: Treatment, at: Mapping[str, Level]) -> list[Pair]:
    """All comparisons of an experiment, in the order of its treatments.

    Each treatment whose levels of the baseline's factors differ from the baseline's is compared with the baseline at
    the same levels of the other factors. `at` selects the pairs that decide: those whose treatment has these levels; an
    empty `at` selects all.
    """
    known = {key(t): t for t in treatments}
    found = []
    for own, treatment in known.items():
        partner = known.get(key({**treatment, **baseline}))
        # By key, because 1 == True in Python.
        if partner is None or key(partner) == own:
            continue
        context = {path: level for path, level in treatment.items() if path not in baseline}
        found.append(Pair(partner, treatment, context, has_levels(treatment, at)))
    return found


def short_names(paths: Iterable[str]) -> dict[str, str]:
    """Dotted path to its shortest tail that no other path shares: "server.parameters.processes" to "processes"."""
    all_paths = list(paths)
    return {path: _shortest_tail(path, [other for other in all_paths if other != path]) for path in all_paths}


def label(treatment: Treatment, names: Mapping[str, str], paths: Sequence[str] | None = None) -> str:
    """A treatment in words, "processes = 2, users = 16", restricted to `paths` where given; "all" without factors."""
    chosen = treatment if paths is None else {path: treatment[path] for path in paths if path in treatment}
    return ", ".join(f"{names.get(path, path)} = {_shown(level)}" for path, level in chosen.items()) or "all"


def level_text(level: Level) -> str:
    """A level as its YAML would write it: true, null, 16, fernet."""
    return level if isinstance(level, str) else json.dumps(level)


def _shown(level: Level) -> str:
    """In quotes where blanks at its ends would not be seen: "x " is another level than "x"."""
    is_plain = not isinstance(level, str) or level == level.strip() != ""
    return level_text(level) if is_plain else json.dumps(level, ensure_ascii=False)


def has_levels(treatment: Treatment, at: Mapping[str, Level]) -> bool:
    """Whether a treatment has all these levels, each as written: 1, 1.0 and true are three."""
    return all(json.dumps(treatment.get(path)) == json.dumps(level) for path, level in at.items())


def _shortest_tail(path: str, others: list[str]) -> str:
    parts = path.split(".")
    tails = (".".join(parts[-size:]) for size in range(1, len(parts) + 1))
    return next((tail for tail in tails if not any(("." + o).endswith("." + tail) for o in others)), path)
