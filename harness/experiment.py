"""What an experiment is: frozen models, and its treatments."""

from __future__ import annotations

import copy
import dataclasses
import itertools
import re
import urllib.parse
from typing import Annotated, Any, Literal

import pydantic

from analysis import rules
from analysis.record import Level, Treatment
from harness.hosts import checked_url
from harness.parsed_file import Document, put

WHOLE_SERVER = "server"
"""The factor whose levels are names of whole servers."""


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


def rate(value: object) -> float:
    """50.0 of "50/s". Raises ValueError for anything else, 0 too."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*/\s*s", value.strip()) if isinstance(value, str) else None
    if match is None or not float(match[1]):
        raise ValueError(f"{value!r} is not a rate above 0; write it as in 50/s")
    return float(match[1])


def parameter_value(value: object) -> object:
    """As it is; raises ValueError for a list, a mapping or nothing."""
    if not isinstance(value, str | int | float):
        raise ValueError(f"{value!r} is not text, a number, true or false")
    return value


def host_url(text: str) -> str:
    """An http or https URL without credentials, query or fragment. Raises ValueError for anything else."""
    parts = urllib.parse.urlsplit(checked_url(text, "host"))
    if parts.query or parts.fragment:
        raise ValueError("a host is scheme, name, port and path alone")
    return text


Duration = Annotated[float, pydantic.BeforeValidator(duration_s)]
Argv = Annotated[list[pydantic.StrictStr], pydantic.Field(min_length=1)]
ParameterValue = str | int | float | bool
Count = Annotated[int, pydantic.Field(ge=1, strict=True)]
UserCount = Annotated[int, pydantic.Field(ge=1, le=100_000, strict=True)]


class Model(pydantic.BaseModel):
    """What all parts of an experiment share: frozen, and no unknown key."""

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)


class Source(Model):
    """The document that an experiment reproduces."""

    title: str
    url: str


class Probe(Model):
    """How to find out whether `apply` took: by GET, or by a command. One of the two, with what it must say."""

    get: str | None = None
    """A path on the host, or a URL. It must answer `status`, with `contains` in the body as words of their own."""
    status: Annotated[int, pydantic.Field(ge=100, le=599, strict=True)] = 200
    contains: str | None = None
    run: Argv | None = None
    """Its standard output, blanks at the ends taken off, must equal `prints`, and its exit status be 0."""
    prints: str | None = None
    timeout: Duration = 30.0
    """It is asked again and again for so long."""


class External(Model):
    """A server of the operator's, neither started nor stopped. harness/external_checks.py says what goes together."""

    host: Annotated[str, pydantic.AfterValidator(host_url)]
    parameters: dict[str, Annotated[Any, pydantic.AfterValidator(parameter_value)]] = {}
    """What {parameters.NAME} in `apply` and `probe` stands for."""
    apply: Argv | None = None
    """The command that makes the server be as the parameters say."""
    apply_timeout: Duration = 60.0
    probe: Probe | None = None
    rate_ceiling: Annotated[float, pydantic.BeforeValidator(rate)] | None = None
    """Most requests a second."""
    users_csv: str | None = None
    os_cloud: str | None = None
    os_cacert: str | None = None
    """As the locustfiles' options of these names; files relative to where the harness was started."""


class Server(Model):
    """The system under test and its configuration, or `external`."""

    system: str = ""
    """Empty, as `configuration` is, with `external`; shape.py says where one is missing."""
    configuration: str = ""
    parameters: dict[str, Level] = {}
    external: External | None = None


class Load(Model):
    """The workload model and its size. LOAD_KEYS says which keys belong to which model."""

    model: Literal["closed", "open"] = "closed"
    processes: Count = 1
    users: UserCount | None = None
    think_time: Duration | None = None
    requests: Count | None = None
    """An exact budget, in place of timing.steady_state."""
    requests_per_user: Count | None = None
    """The same by the user: `requests` is then filled in, as the product."""
    arrival_rate_rps: Annotated[float, pydantic.Field(gt=0, strict=True, allow_inf_nan=False)] | None = None
    arrival_steps: str | None = None
    """Rates and ramps with their times, as Locust's --arrival-steps takes them. They begin with the run."""
    arrival_rates: str | None = None
    """The same from a file, relative to the experiment's, as Locust's --arrival-rates takes it."""
    arrival_process: Literal["constant", "poisson"] | None = None
    max_in_flight: UserCount | None = None
    max_lateness: Duration | None = None

    @pydantic.model_validator(mode="before")
    @classmethod
    def _budget_of_all_users(cls, data: Any) -> Any:
        if isinstance(data, dict) and "requests" not in data:
            users, each = data.get("users"), data.get("requests_per_user")
            if type(users) is int and type(each) is int and users > 0 and each > 0:
                return {**data, "requests": users * each}
        return data

    @property
    def slots(self) -> int:
        """Requests that can be in flight at once: users, or max_in_flight."""
        return self.users or self.max_in_flight or 0


RATES = ("arrival_rate_rps", "arrival_steps", "arrival_rates")


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


class Event(Model):
    """A fault during each run: what happens to one process of the server, and when."""

    at: Duration
    """From the start of the steady state."""
    action: Literal["kill", "stop", "continue"]
    process: str


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
    events: list[Event] = []
    """event_checks.py says what goes together."""
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
        put(result, path.split("."), copy.deepcopy(named))
    return result


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
