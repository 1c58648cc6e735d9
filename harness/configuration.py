"""A server configuration: one folder of data under configs/servers/<system>/, with its parameters and templates."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any

import jinja2
import pydantic
import ruamel.yaml

from harness.install import REPOSITORY
from harness.suggestions import did_you_mean, there_is_no

SERVERS_FOLDER = REPOSITORY / "configs/servers"

Value = str | int | float | bool


class ConfigurationError(Exception):
    """Data under configs/ that is not what it should be: what, where, what to do."""


class Parameter(pydantic.BaseModel):
    """What one parameter may be: one of `values`, or a whole number between `minimum` and `maximum`."""

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)

    about: str
    default: Value
    values: list[Value] | None = None
    minimum: int | None = None
    maximum: int | None = None
    shipped: Value | None = None
    """What the server does when nobody configures it."""
    note: str | None = None
    """What to print in the report where the value is not the shipped one."""
    meaning: dict[str, str] = {}
    """Value to a sentence on what it means for the result, which every report prints."""

    def error(self, name: str, value: object) -> str | None:
        """Why `value` is not allowed, or None."""
        if self.values is not None:
            if any(value == v and type(value) is type(v) for v in self.values):
                return None
            return (
                f"{name}: {value!r} is not one of {', '.join(map(str, self.values))}{did_you_mean(value, self.values)}"
            )
        if isinstance(value, int) and not isinstance(value, bool) and self._inside(value):
            return None
        return f"{name}: {value!r} is not a whole number from {self.minimum} to {self.maximum}"

    def _inside(self, value: int) -> bool:
        return (self.minimum is None or value >= self.minimum) and (self.maximum is None or value <= self.maximum)


class Refusal(pydantic.BaseModel):
    """Values of several parameters, each allowed for itself, that must not meet."""

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)

    where: dict[str, list[Value]]
    because: str
    """What is wrong, and what to write instead."""


class Declaration(pydantic.BaseModel):
    """configuration.yml."""

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)

    about: str
    conditions: list[str] = []
    """What holds for every server of this configuration and a reader of its results should know, in sentences."""
    parameters: dict[str, Parameter]
    refuses: list[Refusal] = []


@dataclasses.dataclass(frozen=True)
class Configuration:
    """A named configuration of a system, read from its folder."""

    system: str
    name: str
    folder: Path
    declaration: Declaration

    def errors(self, parameters: dict[str, Any]) -> dict[str, str]:
        """Parameter name to what is wrong with it; empty where all is right."""
        declared = self.declaration.parameters
        found = {}
        for name, value in parameters.items():
            if name not in declared:
                found[name] = f"{name}: {self.system}/{self.name} has no such parameter{did_you_mean(name, declared)}"
            elif message := declared[name].error(name, value):
                found[name] = message
        return found

    def refusals(self, parameters: dict[str, Any]) -> list[str]:
        """Why the parameters, the defaults filled in, do not go together; empty where they do."""
        given = self.complete(parameters)
        return [
            f"{', '.join(f'{name} = {given[name]}' for name in refused.where)}: {refused.because}"
            for refused in self.declaration.refuses
            if all(given.get(name) in values for name, values in refused.where.items())
        ]

    def complete(self, parameters: dict[str, Any]) -> dict[str, Value]:
        """The parameters with the defaults filled in, in the order of the declaration."""
        return {name: parameters.get(name, p.default) for name, p in self.declaration.parameters.items()}

    def notes(self, values: dict[str, set[Value]]) -> list[str]:
        """The conditions, a sentence for each parameter that is not as shipped, and for each value that has a meaning.

        `values` are all levels used.
        """
        differing = [
            f"{self.system} runs with {name} = {', '.join(map(str, sorted(values[name], key=str)))}, and ships with "
            f"{p.shipped}. {p.note or ''}".strip()
            for name, p in self.declaration.parameters.items()
            if p.shipped is not None and name in values and values[name] != {p.shipped}
        ]
        meanings = [
            f"{name} = {value}: {p.meaning[str(value)]}"
            for name, p in self.declaration.parameters.items()
            for value in sorted(values.get(name, ()), key=str)
            if str(value) in p.meaning
        ]
        return [*differing, *meanings, *self.declaration.conditions]

    def lacks(self, parameters: tuple[str, ...], templates: tuple[str, ...]) -> list[str]:
        """What of these the configuration does not have, in words. A template may be "this or that"."""
        missing = [f"the parameter {name}" for name in parameters if name not in self.declaration.parameters]
        return missing + [f"the template {t}" for t in templates if not any(map(self.has, t.split(" or ")))]

    def has(self, template: str) -> bool:
        """Whether there is such a template in its own folder or the system's."""
        return any((place / template).is_file() for place in (self.folder, self.folder.parent))

    def render(self, template: str, **variables: Any) -> str:
        """Fill in a template: a path below the configuration's folder, or below the system's for shared files."""
        loader = jinja2.FileSystemLoader([self.folder, self.folder.parent])
        # Configuration files are not HTML: escaping would change them.
        templates = jinja2.Environment(loader=loader, autoescape=False, keep_trailing_newline=True)  # noqa: S701
        templates.undefined = jinja2.StrictUndefined
        return templates.get_template(template).render(**variables)

    def overlays(self, parameters: dict[str, Value]) -> list[str]:
        """The overlay templates that these values choose: overlays/<parameter>/<value>.conf.j2, or any.conf.j2."""
        chosen = []
        for name, value in parameters.items():
            folder = self.folder.parent / "overlays" / name
            for candidate in (f"{value}.conf.j2", "any.conf.j2"):
                if (folder / candidate).is_file():
                    chosen.append(f"overlays/{name}/{candidate}")
                    break
        return chosen


def systems() -> list[str]:
    """Names of the systems that have at least one configuration."""
    return sorted({path.parent.parent.name for path in SERVERS_FOLDER.glob("*/*/configuration.yml")})


def configurations(system: str) -> list[str]:
    """Names of a system's configurations."""
    return sorted(path.parent.name for path in SERVERS_FOLDER.glob(f"{system}/*/configuration.yml"))


def read(system: str, name: str) -> Configuration:
    """Read a configuration. Raises KeyError with a sentence where there is none of that name."""
    if system not in systems():
        raise KeyError(there_is_no(system, systems(), "system "))
    if name not in (names := configurations(system)):
        raise KeyError(there_is_no(name, names, f"configuration of {system} "))
    folder = SERVERS_FOLDER / system / name
    try:
        data = ruamel.yaml.YAML(typ="safe").load(folder / "configuration.yml")
        return Configuration(system, name, folder, Declaration.model_validate(data))
    except (ruamel.yaml.error.YAMLError, pydantic.ValidationError) as error:
        reason = "; ".join(line.strip() for line in str(error).splitlines()[:4])
        raise ConfigurationError(f"{folder / 'configuration.yml'}: {reason}. Mend it as the others are.") from error


def digest(texts: dict[str, str]) -> str:
    """SHA-256 of rendered files (name to redacted text): equal for equal configurations."""
    return hashlib.sha256(json.dumps(texts, sort_keys=True).encode()).hexdigest()
