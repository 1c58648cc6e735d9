"""factors × levels × replicates → ordered runs. Pure: the same experiment and seed give the same order."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Iterable

from analysis.record import Level, PlannedRun, Treatment
from harness.experiment import Experiment, treatments
from harness.systems import SYSTEMS

LOAD_ROOTS = ("load", "options", "workload")
"""Factors under these change between runs on one running server; all others need a server of their own."""

RUN_OVERHEAD_S = 4.0
PREPARATION_S = 15.0
EXTERNAL_RATE_RPS = 10.0
"""First guesses, as a system's FIRST_START_S, for the time that `plan` prints; a run replaces them by what it sees."""


def plan(experiment: Experiment) -> list[PlannedRun]:
    """All runs in the order in which they will happen.

    Randomized blocks: a block holds every treatment once, in an order of its own. With order.server = per_block, the
    runs of a block that share a server configuration share one started server and follow each other.
    """
    rng = random.Random(experiment.order.seed)
    all_treatments = treatments(experiment.factors)
    runs: list[PlannedRun] = []
    for block in range(1, experiment.replicates + 1):
        for group in _servers(all_treatments, experiment.order.server == "per_block", rng):
            server_number = (runs[-1].server_number if runs else 0) + 1
            for treatment in group:
                number = len(runs) + 1
                folder = folder_name(number, treatment, block)
                runs.append(PlannedRun(number, block, block, treatment, folder, server_number))
    return runs


def _servers(all_treatments: list[Treatment], shared: bool, rng: random.Random) -> list[list[Treatment]]:
    """One block's treatments, in random order, grouped by the server that they run on."""
    groups: dict[object, list[Treatment]] = {}
    for i, treatment in enumerate(all_treatments):
        groups.setdefault(server_levels(treatment) if shared else i, []).append(treatment)
    order = list(groups.values())
    rng.shuffle(order)
    for group in order:
        rng.shuffle(group)
    return order


def server_levels(treatment: Treatment) -> tuple[tuple[str, Level], ...]:
    """The part of a treatment that needs a server of its own."""
    return tuple((path, level) for path, level in treatment.items() if path.split(".")[0] not in LOAD_ROOTS)


def folder_name(number: int, treatment: Treatment, replicate: int) -> str:
    """ "001-processes=1-users=4-rep1"; long or strange levels are shortened, the number keeps names apart."""
    levels = [
        f"{short}={_plain(level)}" for short, level in zip(short_names(treatment), treatment.values(), strict=True)
    ]
    return "-".join([f"{number:03d}", *levels, f"rep{replicate}"])


def short_names(paths: Iterable[str]) -> list[str]:
    """The last word of each dotted path, or the whole path where two would look alike."""
    paths = list(paths)
    last = [path.rsplit(".", 1)[-1] for path in paths]
    return [word if last.count(word) == 1 else path for word, path in zip(last, paths, strict=True)]


def _plain(level: Level) -> str:
    return re.sub(r"[^\w.]+", "_", str(level))[:40]


def duration_s(experiment: Experiment, runs: list[PlannedRun]) -> float:
    """How long the runs will take, in seconds, at the first guesses above."""
    servers = len({run.server_number for run in runs})
    return sum(run_s(experiment, run.treatment) for run in runs) + start_s(experiment) * servers


def assumptions(experiment: Experiment) -> list[str]:
    """What the duration rests on, in sentences, where that is more than the experiment says."""
    budgets, dataset = {budget(experiment, t) for t in treatments(experiment.factors)}, experiment.dataset
    most = max((b for b in budgets if b is not None), default=None)
    found = []
    if most is not None:
        rate = _rate_rps(experiment)
        found.append(
            f"A budget has no length: {most} requests are taken to last {most / rate:.0f} s, at "
            f"{rate:g}/s. A server that answers {3 * rate:g}/s takes {most / (3 * rate):.0f} s; `run` corrects itself "
            "as it goes."
        )
    if dataset:
        users = math.prod(dataset.values())
        found.append(
            f"Before the first run {users} users are prepared, in {PREPARATION_S:.0f} s, and kept for the next."
        )
    return found


def run_s(experiment: Experiment, treatment: Treatment) -> float:
    """Length of one run on a server that is up, in seconds."""
    requests = budget(experiment, treatment)
    measured = experiment.timing.steady_state or 0.0
    if requests is not None:
        measured = requests / _rate_rps(experiment) + RUN_OVERHEAD_S
    return experiment.timing.warm_up + measured + RUN_OVERHEAD_S


def start_s(experiment: Experiment) -> float:
    """Length of a server's start, in seconds; none for an external one."""
    return 0.0 if experiment.server.external is not None else SYSTEMS[experiment.server.system].FIRST_START_S


def budget(experiment: Experiment, treatment: Treatment) -> int | None:
    """The requests of a run with this treatment; None where it has a length instead."""
    load = experiment.load
    users, each = (treatment.get(f"load.{key}", getattr(load, key)) for key in ("users", "requests_per_user"))
    requests = treatment.get("load.requests", load.requests)
    if isinstance(each, int) and isinstance(users, int):
        return users * each
    return requests if isinstance(requests, int) else None


def _rate_rps(experiment: Experiment) -> float:
    system = experiment.server.system
    return SYSTEMS[system].FIRST_RATE_RPS if experiment.server.external is None else EXTERNAL_RATE_RPS
