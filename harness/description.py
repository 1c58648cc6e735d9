"""What an experiment's record says of it: what is held constant and varied, and what a reader should know."""

from __future__ import annotations

from typing import Any

from harness import configuration, external
from harness.experiment import WHOLE_SERVER, Experiment, ExperimentFile, Server


def timing(experiment: Experiment) -> dict[str, float]:
    """Declared lengths in seconds; a budget of requests has no declared steady state."""
    timing = experiment.timing
    declared = {"warm_up_s": timing.warm_up}
    return declared if timing.steady_state is None else {**declared, "steady_state_s": timing.steady_state}


def values(file: ExperimentFile) -> dict[str, set[Any]]:
    """Dotted path of everything that stays or varies to the values that it has in this experiment."""
    found: dict[str, set[Any]] = {}
    for treatment in file.treatments():
        experiment = file.at(treatment)
        flat = {"workload": experiment.workload, **_server(experiment)}
        parts: dict[str, dict[str, Any]] = {"dataset": experiment.dataset, **_options(experiment)}
        flat |= {f"{part}.{key}": value for part, given in parts.items() for key, value in given.items()}
        flat |= {f"load.{key}": value for key, value in experiment.load.model_dump(exclude_none=True).items()}
        for path, value in flat.items():
            found.setdefault(path, set()).add(value)
    return found


def _server(experiment: Experiment) -> dict[str, Any]:
    server = experiment.server
    if server.external is not None:
        return dict(external.flat(server.external))
    chosen = configuration.read(server.system, server.configuration).complete(dict(server.parameters))
    parameters = {f"server.parameters.{name}": value for name, value in chosen.items()}
    return {"server.system": server.system, "server.configuration": server.configuration, **parameters}


def _options(experiment: Experiment) -> dict[str, dict[str, Any]]:
    return {f"options.{workload}": dict(given) for workload, given in experiment.options.items()}


def notes(file: ExperimentFile, values: dict[str, set[Any]]) -> list[str]:
    """What the names of servers stand for, and what every configuration in use wants said; each sentence once."""
    prefix = "server.parameters."
    used = {path.removeprefix(prefix): v for path, v in values.items() if path.startswith(prefix)}
    configurations = {(s.system, s.configuration) for s in _started(file)}
    said = [note for pair in sorted(configurations) for note in configuration.read(*pair).notes(used)]
    return list(dict.fromkeys([*_named_servers(file), *external.sentences(file), *said]))


def _started(file: ExperimentFile) -> list[Server]:
    """The servers that the harness starts itself."""
    return [server for t in file.treatments() if (server := file.at(t).server).external is None]


def _named_servers(file: ExperimentFile) -> list[str]:
    sentences = []
    for name in file.experiment.factors.get(WHOLE_SERVER, []):
        server = file.at({WHOLE_SERVER: name}).server
        if server.external is not None:
            given = ", ".join(f"{key} = {value}" for key, value in server.external.parameters.items())
            sentences.append(f"{name} is {server.external.host}{' with ' if given else ''}{given}.")
            continue
        chosen = configuration.read(server.system, server.configuration).complete(dict(server.parameters))
        words = ", ".join(f"{parameter} = {value}" for parameter, value in chosen.items())
        sentences.append(f"{name} is {server.system}/{server.configuration} with {words}.")
    return sentences
