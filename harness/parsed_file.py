"""The text of an experiment: YAML → a plain document, the line of every key, and errors that name it."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import ruamel.yaml
from ruamel.yaml.comments import CommentedMap, CommentedSeq

Document = dict[str, Any]
Keys = tuple[str | int, ...]

KEYED_BY_PATH = ("factors", "baseline", "at")
"""Mappings whose keys are dotted paths themselves."""


@dataclasses.dataclass(frozen=True, order=True)
class Problem:
    """One thing wrong with the file."""

    line: int
    """1-based; 0 where no line is to blame (a --set option)."""
    message: str


class ExperimentError(Exception):
    """The experiment cannot be run as written; `problems` holds every reason."""

    def __init__(self, path: Path, problems: Iterable[Problem]) -> None:
        self.path = path
        self.problems = sorted(set(problems))
        lines = [f"{path}:{p.line or '--set'}: {p.message}" for p in self.problems]
        count = f"{len(lines)} problems" if len(lines) > 1 else "1 problem"
        super().__init__("\n".join([f"{count} in {path}; nothing was started", *lines]))


def put(document: Document, keys: Sequence[str], value: Any) -> None:
    """Set what stands at `keys`; missing mappings on the way are made."""
    *way, last = keys
    for i, key in enumerate(way):
        if key in KEYED_BY_PATH and i + 1 < len(keys):
            way, last = way[: i + 1], ".".join(keys[i + 1 :])
            break
    for key in way:
        if not isinstance(document.get(key), dict):
            document[key] = {}
        document = document[key]
    document[last] = value


class ParsedFile:
    """The text of a file with the line of every key in it."""

    def __init__(self, path: Path, text: str, overrides: Sequence[str]) -> None:
        self.path = path
        self.document: Document = {}
        self.lines: dict[Keys, int] = {}
        self._parse(text)
        for override in overrides:
            self._override(override)

    def problem(self, path: Keys, message: str) -> Problem:
        """A problem at the deepest key of `path` that the file has."""
        while path and path not in self.lines:
            path = path[:-1]
        return Problem(self.lines.get(path, 1), message)

    def _parse(self, text: str) -> None:
        try:
            tree = ruamel.yaml.YAML(typ="rt").load(text)
        except RecursionError as error:
            raise ExperimentError(self.path, [Problem(1, "not YAML that can be read: nested too deeply")]) from error
        except ruamel.yaml.error.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            line = mark.line + 1 if mark else 1
            reason = " ".join(str(error.problem).split())
            raise ExperimentError(self.path, [Problem(line, f"not YAML: {reason}")]) from error
        if not isinstance(tree, CommentedMap):
            raise ExperimentError(
                self.path,
                [Problem(1, "not an experiment: it must be a mapping with question, workload, server, load …")],
            )
        self._index(tree, ())
        self.document = _plain(tree)

    def _index(self, node: Any, path: Keys) -> None:
        if isinstance(node, CommentedMap):
            for key, value in node.items():
                self.lines[(*path, str(key))] = node.lc.key(key)[0] + 1
                self._index(value, (*path, str(key)))
        elif isinstance(node, CommentedSeq):
            for i, value in enumerate(node):
                self.lines[(*path, i)] = node.lc.item(i)[0] + 1
                self._index(value, (*path, i))

    def _override(self, override: str) -> None:
        path, equals, value = override.partition("=")
        if not equals or not re.fullmatch(r"[\w.]+", path):
            raise ExperimentError(self.path, [Problem(0, f"{override!r} is not PATH=VALUE, as in load.users=8")])
        try:
            level = _plain(ruamel.yaml.YAML(typ="safe").load(value))
        except ruamel.yaml.error.YAMLError as error:
            raise ExperimentError(self.path, [Problem(0, f"{override!r}: the value is not YAML")]) from error
        put(self.document, path.split("."), level)
        for known in [k for k in self.lines if ".".join(map(str, k)).startswith(path)]:
            self.lines[known] = 0
        self.lines[_key_path(path)] = 0


def _key_path(path: str) -> Keys:
    keys = path.split(".")
    for i, key in enumerate(keys[:-1]):
        if key in KEYED_BY_PATH:
            return (*keys[: i + 1], ".".join(keys[i + 1 :]))
    return tuple(keys)


def _plain(node: Any) -> Any:
    if isinstance(node, dict):
        return {str(key): _plain(value) for key, value in node.items()}
    if isinstance(node, list):
        return [_plain(value) for value in node]
    # ruamel's own scalars remember how they were written; the rest of the program wants plain ones.
    for kind in (bool, int, float, str):
        if isinstance(node, kind):
            return kind(node)
    return node


def mapping(document: Document, *keys: str) -> dict[str, Any]:
    """The mapping that stands at `keys`; an empty one where none does."""
    node: Any = document
    for key in keys:
        node = node.get(key) if isinstance(node, dict) else None
    return node if isinstance(node, dict) else {}
