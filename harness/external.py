"""A server of the operator's own: who has allowed what, where the load may go, and what Locust is told.

"Loopback" is a host all of whose addresses are this machine's loopback ones. Anything else is somebody's network, this
machine's own address too: load needs consent for that very host, and a ceiling.
"""

from __future__ import annotations

import csv
import dataclasses
import hashlib
import json
import os
import re
import shlex
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import ruamel.yaml

from analysis.record import Level
from harness import hosts
from harness.experiment import Experiment, ExperimentFile, External, ParameterValue, Probe
from harness.server import Target

FAILURES_STOP = "failure_ratio >= 50% over 10s"
"""Ends every run on an external server; a refusal of too many requests (429) is a failure, too."""
PLACEHOLDER = re.compile(r"\{parameters\.(\w+)\}")
SECRET_NAMES = re.compile(r"password|passcode|secret|token", re.IGNORECASE)
SHORTEST_SECRET = 6
"""A shorter one, or a number, is not replaced where numbers stand: it would change them."""
CLOUDS = {"OS_CLIENT_CONFIG_FILE": "clouds.yaml", "OS_CLIENT_SECURE_FILE": "secure.yaml"}


class NotAllowed(Exception):
    """The experiment does something that takes a word of the operator's: what, and which option says it."""


@dataclasses.dataclass(frozen=True)
class Consent:
    """What the operator has allowed on the command line."""

    may_load: frozenset[str] = frozenset()
    """Hosts that are not loopback, as they stand in the URL."""
    allow_apply: bool = False

    @classmethod
    def of(cls, may_load: list[str] | None, allow_apply: bool) -> Consent:
        """From the options' values."""
        return cls(frozenset(host.lower().strip("[]") for host in may_load or ()), allow_apply)


NOTHING = Consent()


def host_name(external: External) -> str:
    """The host of its URL, in lower case."""
    return hosts.host_of(external.host)


def is_loopback(external: External) -> bool:
    """Whether the load stays on this machine."""
    return hosts.is_loopback(host_name(external))


def check_may_load(external: External, consent: Consent) -> None:
    """Raise NotAllowed where the load would leave the machine without consent for that very host."""
    name = host_name(external)
    if not is_loopback(external) and name not in consent.may_load:
        raise NotAllowed(
            f"the load would go to {name} ({external.host}), which is not this machine's loopback address. If it is "
            f"yours to load, say so: --i-may-load {name}"
        )


def check(file: ExperimentFile, consent: Consent) -> None:
    """Raise NotAllowed where the experiment does what `consent` does not allow, or a file of its is not there."""
    for external in externals(file):
        check_may_load(external, consent)
        check_file(external.users_csv)
        check_file(authority(external, os.environ), is_secret=False)
    lines = command_lines(file)
    if lines and not consent.allow_apply:
        raise NotAllowed("\n  ".join(["the experiment runs these commands, which takes --allow-apply:", *lines]))


def authority(external: External, variables: Mapping[str, str]) -> str | None:
    """The file of the certificate authority that an https server is checked with; None: the system's own.

    As the locustfiles find it, but for a cloud's own in clouds.yaml.
    """
    return external.os_cacert or variables.get("OS_CACERT") or None


def check_file(name: str | None, is_secret: bool = True) -> None:
    """Raise NotAllowed where a file is not there, or one with passwords can be read by others."""
    if name is None:
        return
    try:
        with Path(name).open("rb") as opened:
            mode = os.fstat(opened.fileno()).st_mode
            opened.read().decode("utf-8")
    except OSError as error:
        raise NotAllowed(f"{name}: cannot be read ({error.strerror}); it is relative to {Path.cwd()}") from error
    except UnicodeDecodeError:
        raise NotAllowed(f"{name}: is not text in UTF-8") from None
    if is_secret and stat.S_IMODE(mode) & 0o077:
        raise NotAllowed(f"{name}: holds passwords, and others may read it; chmod 600 {name}")


def externals(file: ExperimentFile) -> list[External]:
    """The external servers of all treatments, each once."""
    found = [file.at(treatment).server.external for treatment in file.treatments()]
    return [one for i, one in enumerate(found) if one is not None and one not in found[:i]]


def fill(text: str, parameters: Mapping[str, ParameterValue]) -> str:
    """`text` with {parameters.NAME} replaced; any other brace stands for itself. Raises KeyError."""
    return PLACEHOLDER.sub(lambda match: word(parameters[match[1]]), text)


def word(value: ParameterValue) -> str:
    """A parameter as a command gets it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def command(argv: list[str], external: External) -> list[str]:
    """A command of the operator's for these parameters."""
    return [fill(argument, external.parameters) for argument in argv]


def apply_command(external: External) -> list[str] | None:
    """What makes the server be as the parameters say; None where nothing does."""
    return None if external.apply is None else command(external.apply, external)


def command_lines(file: ExperimentFile) -> list[str]:
    """Every command that the experiment runs, quoted as for a shell; no shell is used."""
    lines = []
    for one in externals(file):
        probe = one.probe.run if one.probe else None
        lines += [shlex.join(command(argv, one)) for argv in (one.apply, probe) if argv is not None]
    return list(dict.fromkeys(lines))


def sentences(file: ExperimentFile) -> list[str]:
    """What a reader of the results has to know of the external servers."""
    found = []
    for one in externals(file):
        found.append(
            f"{one.host} was an external server: not started by this experiment; its state before each run, what else "
            "it did meanwhile, and its use of processors and memory are unknown."
        )
        found.append(
            "Every run on it ends early, and fails, where half of the answers over 10 s are failures, 429 among them"
            + (f", or where it was asked for more than {one.rate_ceiling:g} a second." if one.rate_ceiling else ".")
        )
        if one.apply is not None:
            found.append(
                "The operator's command set the parameters where they changed; a probe confirmed them before and after "
                "each run. Nothing restored what was there before."
            )
    return list(dict.fromkeys(found))


def plan_lines(file: ExperimentFile) -> list[str]:
    """What `plan` says of the external servers: where the load goes, and what is run."""
    lines = []
    for one in externals(file):
        where = "loopback" if is_loopback(one) else f"not loopback, takes --i-may-load {host_name(one)}"
        ceiling = "no ceiling" if one.rate_ceiling is None else f"at most {one.rate_ceiling:g} requests a second"
        lines.append(f"load: {one.host}, an external server ({where}; {ceiling})")
        if (argv := apply_command(one)) is not None:
            lines.append(f"apply, takes --allow-apply: {shlex.join(argv)}")
        if one.probe is not None:
            lines.append(f"probe: {probe_words(one, one.probe)}")
    return list(dict.fromkeys(lines))


def probe_words(external: External, probe: Probe) -> str:
    """What is asked, and what must be the answer."""
    if probe.run is not None:
        argv, prints = shlex.join(command(probe.run, external)), fill(probe.prints or "", external.parameters)
        return f"{argv} must print {prints!r} (takes --allow-apply)"
    contains = fill(probe.contains or "", external.parameters)
    return f"GET {probe_url(external, probe)} must answer {probe.status} with {contains!r} in it"


def probe_url(external: External, probe: Probe) -> str:
    """The URL that the probe asks."""
    asked = fill(probe.get or "", external.parameters)
    return asked if re.match("https?://", asked) else external.host.rstrip("/") + asked


def facts(external: External) -> dict[str, Any]:
    """What a run's record says of its server. What is unknown is not there."""
    return {"external": {"host": external.host, "parameters": dict(external.parameters)}}


def flat(external: External) -> dict[str, Level]:
    """Dotted path to value of what is held constant or varied."""
    parameters = {f"server.external.parameters.{name}": value for name, value in external.parameters.items()}
    # The commands may hold secrets; that they are the same is all that has to be known of them.
    rest = external.model_dump(mode="json", exclude={"host", "parameters"})
    digest = hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()
    return {"server.external.host": external.host, "server.external.operation_sha256": digest, **parameters}


def target(external: External, variables: Mapping[str, str]) -> Target:
    """What Locust is told. `variables`: the harness's environment, whose OS_* say who asks."""
    kept = {name: value for name, value in variables.items() if name.startswith("OS_")}
    for variable, name in CLOUDS.items():
        # Locust gets an empty folder as its home.
        places = (Path(name), Path(variables.get("HOME", "/")) / ".config/openstack" / name)
        if variable not in kept and (file := next((p for p in places if p.is_file()), None)):
            kept[variable] = str(file.resolve())
    if "OS_CACERT" in kept:  # Locust runs in a folder of its own
        kept["OS_CACERT"] = str(Path(kept["OS_CACERT"]).resolve())
    files = {"users-csv": external.users_csv, "os-cacert": external.os_cacert}
    options = {name: str(Path(given).resolve()) for name, given in files.items() if given is not None}
    return Target(external.host, kept, options | ({"os-cloud": external.os_cloud} if external.os_cloud else {}))


def limits(experiment: Experiment) -> dict[str, str]:
    """Options of Locust by which it ends the run itself; none for a server that the harness started."""
    external = experiment.server.external
    if external is None:
        return {}
    ceiling = {} if external.rate_ceiling is None else {"rate-ceiling": f"{external.rate_ceiling:.9g}"}
    return {"abort-when": FAILURES_STOP, **ceiling}


def failed_share(response_times: Path) -> float | None:
    """Of all answers of a run, the part that were failures; None without an answer.

    Locust itself looks at 10 s at a time; this is for a run that was shorter.
    """
    failures = total = 0
    for file in response_times.glob("*.csv"):
        with file.open(newline="", encoding="utf-8") as rows:
            for row in csv.DictReader(rows):
                if row["clock"] != "service":  # the open model counts each answer by both clocks
                    total += int(row["count"])
                    failures += int(row["count"]) * (row["outcome"] != "success")
    return failures / total if total else None


def secrets(external: External, variables: Mapping[str, str]) -> frozenset[str]:
    """Strings that must not reach a result: passwords of the users' file, of OS_* and of clouds.yaml."""
    found = {value for name, value in variables.items() if name.startswith("OS_") and SECRET_NAMES.search(name)}
    if external.users_csv is not None:
        with Path(external.users_csv).open(newline="", encoding="utf-8") as rows:
            found |= {row.get("password") or "" for row in csv.DictReader(rows)}
    for variable in CLOUDS:
        if file := target(external, variables).environment.get(variable):
            found |= set(_secrets_of_clouds(Path(file)))
    return frozenset(found - {""})


def _secrets_of_clouds(file: Path) -> Iterator[str]:
    try:
        data = ruamel.yaml.YAML(typ="safe").load(file)
    except (OSError, ruamel.yaml.error.YAMLError):
        return  # openstacksdk will say so
    waiting: list[tuple[str, Any]] = [("", data)]
    while waiting:
        name, node = waiting.pop()
        if isinstance(node, dict):
            waiting += [(str(key), value) for key, value in node.items()]
        elif isinstance(node, list):
            waiting += [(name, value) for value in node]
        elif SECRET_NAMES.search(name) and isinstance(node, str | int):
            yield str(node)


def safe_in_numbers(found: frozenset[str]) -> frozenset[str]:
    """Those that can be replaced in a log or a reason without changing its numbers."""
    return frozenset(secret for secret in found if len(secret) >= SHORTEST_SECRET and not secret.isdecimal())
