"""An experiment file: YAML → frozen models. Every error at once, each with its line."""

from __future__ import annotations

import copy
import dataclasses
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import pydantic
import ruamel.yaml
from ruamel.yaml.comments import CommentedMap, CommentedSeq

from analysis import rules
from analysis.record import Level, Treatment
from harness.suggestions import did_you_mean

Document = dict[str, Any]
Keys = tuple[str | int, ...]

NOT_BUILT: dict[Keys, str] = {
    ("server", "external"): "a server of the operator's own",
    ("server", "apply"): "a server of the operator's own",
    ("events",): "faults during a run",
    ("placement",): "CPU affinity",
}
"""Keys of the schema whose feature does not exist yet. They are refused, not ignored."""

WHOLE_SERVER = "server"
"""The factor whose levels are names of whole servers."""

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


def duration_s(value: object) -> float:
    """Seconds of "500ms", "2s", "1.5m" or "1h". Raises ValueError for anything else, a bare number too."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h)", value.strip()) if isinstance(value, str) else None
    if match is None:
        raise ValueError(f"{value!r} is not a duration; write it with a unit, as in 500ms, 2s, 1m or 1h")
    return float(match[1]) * {"ms": 0.001, "s": 1, "m": 60, "h": 3600}[match[2]]


def share(value: object) -> float:
    """0.05 of "5%" or 0.05. Raises ValueError outside 0 < share < 1."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*%", value.strip()) if isinstance(value, str) else None
    number = float(match[1]) / 100 if match else value
    if not isinstance(number, float) or not 0 < number < 1:
        raise ValueError(f"{value!r} is not a share between 0 and 100 %; write it as in 5%")
    return number


def rule(text: str) -> str:
    """A rule of analysis/rules.py, blanks put right. Raises ValueError for anything else."""
    return rules.parse(text).text


def rule_for_locust(text: str) -> str:
    """A rule that Locust itself can judge, while a run goes on."""
    parsed = rules.parse(text)
    if not parsed.is_for_locust:
        raise ValueError(f"{parsed.text!r}: a run in progress knows its times, counts, failures and throughput only")
    return parsed.text


Duration = Annotated[float, pydantic.BeforeValidator(duration_s)]
Count = Annotated[int, pydantic.Field(ge=1, strict=True)]
UserCount = Annotated[int, pydantic.Field(ge=1, le=100_000, strict=True)]


class Model(pydantic.BaseModel):
    """What all parts of an experiment share: frozen, and no unknown key."""

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)


class Source(Model):
    """The document that an experiment reproduces."""

    title: str
    url: str


class Server(Model):
    """The system under test and its configuration."""

    system: str
    configuration: str
    parameters: dict[str, Level] = {}
    external: Any = None
    apply: Any = None


class Load(Model):
    """The workload model and its size. LOAD_KEYS says which keys belong to which model."""

    model: Literal["closed", "open"] = "closed"
    processes: Count = 1
    users: UserCount | None = None
    think_time: Duration | None = None
    requests: Count | None = None
    """An exact budget, in place of timing.steady_state."""
    arrival_rate_rps: Annotated[float, pydantic.Field(gt=0, strict=True, allow_inf_nan=False)] | None = None
    arrival_steps: str | None = None
    """Rates and ramps with their times, as Locust's --arrival-steps takes them. They begin with the run."""
    arrival_rates: str | None = None
    """The same from a file, relative to the experiment's, as Locust's --arrival-rates takes it."""
    arrival_process: Literal["constant", "poisson"] | None = None
    max_in_flight: UserCount | None = None
    max_lateness: Duration | None = None

    @property
    def slots(self) -> int:
        """Requests that can be in flight at once: users, or max_in_flight."""
        return self.users or self.max_in_flight or 0


RATES = ("arrival_rate_rps", "arrival_steps", "arrival_rates")
LOAD_KEYS: dict[str, dict[str, tuple[str, ...]]] = {
    "closed": {"needs": ("users",), "may have": ("think_time", "requests")},
    "open": {"needs": ("max_in_flight",), "may have": (*RATES, "arrival_process", "max_lateness")},
}


def load_problems(document: Document) -> Iterator[tuple[Keys, str]]:
    """Keys of `load` and `timing` that the workload model needs, or that mean nothing in it."""
    load, timing = document.get("load"), document.get("timing")
    if not isinstance(load, dict) or (model := load.get("model", "closed")) not in LOAD_KEYS:
        return
    own = LOAD_KEYS[model]
    other = next(name for name in LOAD_KEYS if name != model)
    for key in own["needs"]:
        if key not in load:
            yield ("load", key), f"load.{key}: is missing; the {model} workload model needs it"
    for key in (*LOAD_KEYS[other]["needs"], *LOAD_KEYS[other]["may have"]):
        if key in load:
            yield ("load", key), f"load.{key}: belongs to the {other} workload model, and this one is {model}"
    if model == "open":
        yield from _rate_problems(load)
    if isinstance(timing, dict) and ("requests" in load) == ("steady_state" in timing):
        if "requests" in load:
            yield ("load", "requests"), "load.requests: name either it or timing.steady_state, never both"
        elif not {"arrival_steps", "arrival_rates"} & set(load):  # whose length says it
            yield ("timing", "steady_state"), "timing.steady_state: is missing, and so is load.requests"


def _rate_problems(load: dict[str, Any]) -> Iterator[tuple[Keys, str]]:
    given = [key for key in RATES if key in load]
    if not given:
        others = " or ".join(f"load.{key}" for key in RATES[1:])
        yield ("load", RATES[0]), f"load.{RATES[0]}: is missing; the open workload model needs it, or {others}"
    for key in given[1:]:
        yield ("load", key), f"load.{key}: name either it or load.{given[0]}, never both"


class Primary(Model):
    """What the verdict is about."""

    metric: str = "throughput"
    at: Treatment = {}
    margin: Annotated[float, pydantic.BeforeValidator(share)] = 0.05


class Timing(Model):
    """Seconds of a run: what is cut, then what is measured."""

    warm_up: Duration
    steady_state: Duration | None = None
    """None where load.requests says how much is measured."""

    @pydantic.field_validator("steady_state")
    @classmethod
    def _whole_seconds(cls, value: float | None) -> float | None:
        if value is not None and (value < 1 or value != int(value)):
            raise ValueError("steady_state is recorded by the second: write whole seconds, at least 1s")
        return value


class Order(Model):
    """In which order the runs happen, and how long a server lives."""

    policy: Literal["randomized_blocks"] = "randomized_blocks"
    seed: Annotated[int, pydantic.Field(strict=True)] = 1
    server: Literal["per_block", "per_run"] = "per_block"


class Experiment(Model):
    """One experiment, complete: the keys of DESIGN's schema."""

    question: str
    source: Source | None = None
    reference: str | None = None
    """A name in configs/reference/: published results, printed beside ours."""
    workload: str
    options: dict[str, dict[str, Level]] = {}
    server: Server
    dataset: dict[str, Any] = {}
    """What it may hold is the system's business: harness/systems/."""
    load: Load
    factors: dict[str, list[Level]] = {}
    baseline: Treatment = {}
    primary: Primary = Primary()
    timing: Timing
    replicates: Count = 1
    order: Order = Order()
    events: Any = None
    placement: Any = None
    objectives: list[Annotated[str, pydantic.AfterValidator(rule)]] = []
    """They hold for every treatment."""
    abort_when: list[Annotated[str, pydantic.AfterValidator(rule_for_locust)]] = []
    """A run for which one of them holds is ended early, and failed."""

    @pydantic.field_validator("workload", mode="before")
    @classmethod
    def _one_workload(cls, workload: object) -> object:
        if isinstance(workload, dict):
            raise ValueError("a mix of workloads is not built yet; name one workload")
        return workload

    @pydantic.field_validator("factors", mode="before")
    @classmethod
    def _names_of_servers(cls, factors: object) -> object:
        return {**factors, **factor_levels({"factors": factors})} if isinstance(factors, dict) else factors


@dataclasses.dataclass(frozen=True)
class ExperimentFile:
    """A valid experiment, with what it was read from."""

    name: str
    text: str
    document: Document
    """The file with --set applied and each factor at its first level."""
    overrides: tuple[str, ...]
    experiment: Experiment
    rate_files: dict[str, str] = dataclasses.field(default_factory=dict)
    """Contents of the files that load.arrival_rates names, by the name that it gives them."""

    def at(self, treatment: Treatment) -> Experiment:
        """The experiment with the factors at these levels."""
        return Experiment.model_validate(substitute(self.document, treatment))

    def treatments(self) -> list[Treatment]:
        """Every combination of levels, in the order of the file."""
        return treatments(self.experiment.factors)


def treatments(factors: dict[str, list[Level]]) -> list[Treatment]:
    """The Cartesian product of the factors' levels, the last factor varying fastest."""
    return [dict(zip(factors, levels, strict=True)) for levels in itertools.product(*factors.values())]


def substitute(document: Document, levels: Treatment) -> Document:
    """A copy of `document` with each dotted path set to its level; missing mappings on the way are made.

    A level of `server` is the name of a whole one.
    """
    result = copy.deepcopy(document)
    for path, level in levels.items():
        named = whole_servers(document).get(str(level)) if path == WHOLE_SERVER else level
        _set(result, path.split("."), copy.deepcopy(named))
    return result


def _set(document: Document, keys: Sequence[str], value: Any) -> None:
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
        _set(self.document, path.split("."), level)
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


def shape_problems(document: Document) -> Iterator[tuple[Keys, str]]:
    """What the schema says of a document: (path of keys, message)."""
    for path, feature in NOT_BUILT.items():
        if _has(document, path):
            yield path, f"{_dotted(path)}: not built yet ({feature}); leave it out"
    try:
        Experiment.model_validate(document)
    except pydantic.ValidationError as error:
        for detail in error.errors():
            path = tuple(detail["loc"])
            yield path, _message(path, detail, document)


def _message(path: Keys, detail: Any, document: Document) -> str:
    kind, dotted = detail["type"], _dotted(path)
    if kind == "extra_forbidden":
        return f"{dotted}: there is no such key{did_you_mean(str(path[-1]), _keys_beside(path))}"
    if kind == "missing":
        return f"{dotted}: is missing"
    if kind == "literal_error":
        allowed = detail["ctx"]["expected"]
        words = re.findall(r"'(\w+)'", allowed)
        return f"{dotted}: {detail['input']!r} is not {allowed}{did_you_mean(str(detail['input']), words)}"
    return f"{dotted}: {sentence(detail)}"


def sentence(detail: Any) -> str:
    """One pydantic error in words that fit a file rather than a program."""
    kind, given, limits = detail["type"], detail["input"], detail.get("ctx", {})
    words = {
        "int_type": f"{given!r} is not a whole number",
        "string_type": f"{given!r} is not text",
        "dict_type": f"{given!r} is not a mapping",
        "model_type": f"{given!r} is not a mapping",
        "list_type": f"{given!r} is not a list",
        "greater_than_equal": f"{given!r} is below {limits.get('ge')}",
        "less_than_equal": f"{given!r} is above {limits.get('le')}",
    }
    return words.get(kind) or str(detail["msg"]).removeprefix("Value error, ")


def _keys_beside(path: Keys) -> list[str]:
    model: Any = Experiment
    for key in path[:-1]:
        annotation = model.model_fields[key].annotation if key in model.model_fields else None
        candidates = [annotation, *getattr(annotation, "__args__", ())]
        model = next((c for c in candidates if isinstance(c, type) and issubclass(c, Model)), None)
        if model is None:
            return []
    return list(model.model_fields)


def _has(document: Document, path: Keys) -> bool:
    node: Any = document
    for key in path:
        if not isinstance(node, dict) or key not in node:
            return False
        node = node[key]
    return True


def _dotted(path: Keys) -> str:
    return ".".join(map(str, path))


def factor_levels(document: Document) -> dict[str, list[Level]]:
    """The well-formed factors of a document that may be wrong elsewhere."""
    factors = document.get("factors")
    if not isinstance(factors, dict):
        return {}
    names: dict[str, Any] = {WHOLE_SERVER: list(servers)} if (servers := whole_servers(document)) else {}
    lists = {path: levels for path, levels in factors.items() if isinstance(levels, list) and levels}
    return {path: {**lists, **names}[path] for path in factors if path in lists or path in names}


def whole_servers(document: Document) -> dict[str, Any]:
    """The servers that `factors.server` names: what `server` is in a treatment of that name."""
    factors = document.get("factors")
    servers = factors.get(WHOLE_SERVER) if isinstance(factors, dict) else None
    return servers if isinstance(servers, dict) else {}
