"""Experiment folders with known numbers, exactly as record/format.py says, made without any server."""

from __future__ import annotations

import bisect
import csv
import dataclasses
import itertools
import json
import math
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from analysis import record
from analysis.record import ExperimentRecord, PlannedRun, ProcessRecord, RunRecord, Treatment, Window

START = 1_700_000_000
PROCESSES = "server.parameters.processes"
USERS = "load.users"
ENDPOINT = "POST /v3/auth/tokens"

Sample = tuple[float, str, str, int]
"""Unix time, endpoint, outcome, response time in microseconds."""


@dataclasses.dataclass
class Plan:
    """What a synthetic experiment is made of; the defaults are the demo's."""

    factors: dict[str, list[Any]] = dataclasses.field(default_factory=lambda: {PROCESSES: [1, 2], USERS: [4, 16]})
    baseline: dict[str, Any] = dataclasses.field(default_factory=lambda: {PROCESSES: 1})
    primary: dict[str, Any] = dataclasses.field(default_factory=lambda: {"metric": "throughput", "at": {USERS: 16}})
    replicates: int = 4
    warm_up_s: int = 2
    steady_s: int = 6
    seed: int = 1
    noise: float = 0.02
    rate: Callable[[Treatment], float] = lambda t: 60.0 * (1.6 if t.get(PROCESSES) == 2 else 1.0)
    response_ms: Callable[[Treatment], float] = lambda t: (
        1000.0 * t.get(USERS, 4) / (60 * (1.6 if t.get(PROCESSES) == 2 else 1))
    )
    failure_ratio: Callable[[Treatment], float] = lambda t: 0.0
    generator_share: Callable[[Treatment], float] = lambda t: 0.2
    server_cpu_ms: float = 12.0
    health: Callable[[Treatment], dict[str, Any]] = lambda t: {}
    """Changes to a second's health; counters are given as their growth a second."""
    endpoints: tuple[str, ...] = (ENDPOINT,)
    model: str = "closed"
    records_users: bool = False
    """Rates and response times are drawn apart from each other here, which no closed loop does: so the runs keep quiet
    about their users, and Little's law has nothing to hold against them. write_closed_loop makes runs that obey it."""
    notes: tuple[str, ...] = (
        "The server caches in a dict and hashes with 4 rounds; it is shipped without a cache and with 12.",
    )


def bucket_us(value_us: float) -> int:
    """128 buckets an octave: within 0.5 % of the value."""
    whole = int(value_us + 0.5)
    shift = max(whole.bit_length() - 8, 0)
    return ((whole >> shift) << shift) + ((1 << shift) >> 1)


def planned(plan: Plan) -> list[PlannedRun]:
    order = random.Random(plan.seed)
    levels = [
        dict(zip(plan.factors, combination, strict=True)) for combination in itertools.product(*plan.factors.values())
    ]
    runs: list[PlannedRun] = []
    for block in range(1, plan.replicates + 1):
        for treatment in order.sample(levels, len(levels)):
            number = len(runs) + 1
            name = "-".join(f"{path.rsplit('.', 1)[-1]}{level}" for path, level in treatment.items()) or "all"
            folder = f"{number:03d}-{name}-rep{block}"
            runs.append(PlannedRun(number, block, block, treatment, folder, server_number=block))
    return runs


def make(folder: Path, plan: Plan | None = None) -> dict[int, list[Sample]]:
    """Write the experiment; returns the raw samples of each run by its number."""
    plan = plan or Plan()
    runs = planned(plan)
    folder.mkdir(parents=True)
    record.write_experiment(folder, experiment_record(plan, runs))
    (folder / "experiment.yml").write_text("question: synthetic\n", encoding="utf-8")
    return {run.number: _make_run(folder, plan, run) for run in runs}


def experiment_record(plan: Plan, runs: list[PlannedRun]) -> ExperimentRecord:
    return ExperimentRecord(
        name="keystone-processes",
        question="Does Keystone answer more authentications with two processes than with one?",
        workload="keystone_auth",
        factors=plan.factors,
        baseline=plan.baseline,
        primary=plan.primary,
        margin=0.05,
        held_constant={"server.parameters.cache": "dict", "server.parameters.hash_rounds": 4, "load.model": plan.model},
        notes=list(plan.notes),
        timing={"warm_up_s": float(plan.warm_up_s), "steady_state_s": float(plan.steady_s)},
        replicates=plan.replicates,
        order={"policy": "randomized_blocks", "seed": plan.seed, "server": "per_block"},
        source=None,
        overrides=[],
        plan=runs,
        created_unix_s=float(START),
    )


def _make_run(folder: Path, plan: Plan, run: PlannedRun) -> list[Sample]:
    path = folder / record.RUNS_FOLDER / run.folder
    (path / "response_times").mkdir(parents=True)
    noise = random.Random(f"{plan.seed} {run.number}")
    start = START + run.number * max(20, plan.warm_up_s + plan.steady_s)
    samples = _samples(plan, run.treatment, noise, start)
    write_response_times(path, samples, plan.model)
    write_usage(path, plan, run, samples, start)
    write_health(path, plan, run, start, samples)
    write_locust_csv(path, len(samples))
    record.write_run(path, run_record(plan, run, start))
    return samples


def _samples(plan: Plan, treatment: Treatment, noise: random.Random, start: int) -> list[Sample]:
    factor = noise.lognormvariate(0, plan.noise)
    length = plan.warm_up_s + plan.steady_s
    number = round(plan.rate(treatment) * factor * length)
    failing = plan.failure_ratio(treatment)
    return [
        (
            start + noise.random() * length,
            noise.choice(plan.endpoints),
            "503 Service Unavailable" if noise.random() < failing else "success",
            max(1, round(1000 * plan.response_ms(treatment) / factor * noise.lognormvariate(0, 0.3))),
        )
        for _ in range(number)
    ]


def write_response_times(path: Path, samples: list[Sample], model: str) -> None:
    for process in (0, 1):
        counts: Counter[tuple[int, str, str, str, int]] = Counter()
        for second, endpoint, outcome, value_us in samples[process::2]:
            clocks = (
                {"both": value_us} if model == "closed" else {"response": value_us, "service": round(value_us * 0.8)}
            )
            for clock, value in clocks.items():
                counts[int(second), endpoint, outcome, clock, bucket_us(value)] += 1
        with (path / "response_times" / f"worker-{process}.csv").open("w", newline="", encoding="utf-8") as stream:
            csv.writer(stream).writerows([record.RESPONSE_TIME_COLUMNS, *((*k, n) for k, n in counts.items())])
        about = ProcessRecord(f"worker-{process}", 100 + process, model, 0.005, None, None, None, {})
        (path / "response_times" / f"worker-{process}.json").write_text(json.dumps(dataclasses.asdict(about)), "utf-8")


def write_usage(path: Path, plan: Plan, run: PlannedRun, samples: list[Any], start: int) -> None:
    """Server processes share the CPU time of the requests done; the generator's busiest process uses its share."""
    length = plan.warm_up_s + plan.steady_s
    servers = int(run.treatment.get(PROCESSES) or 1)
    seconds = sorted(second for second, *_ in samples)
    rows: list[tuple[Any, ...]] = []
    for tick in range(-4, 2 * length + 5):
        now = start + tick / 2
        done = bisect.bisect_right(seconds, now)
        for pid in range(servers):
            cpu = 3 + done * plan.server_cpu_ms / 1000 / servers
            rows.append((now + pid / 1000, "server", 500 + pid, "uwsgi", round(cpu, 6), 80 * 2**20, "uwsgi"))
        share = plan.generator_share(run.treatment)
        rows.append((now, "generator", 900, "locust", round(1 + share * (tick / 2 + 2), 6), 120 * 2**20, "locust"))
        rows.append((now, "generator", 901, "locust", round(1 + share / 4 * (tick / 2 + 2), 6), 110 * 2**20, "locust"))
    with (path / "usage.csv").open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows([record.USAGE_COLUMNS, *rows])


def write_health(path: Path, plan: Plan, run: PlannedRun, start: int, samples: list[Sample]) -> None:
    """Two processes that fare well, but for what plan.health says of the first."""
    for process in (0, 1):
        # Nobody is under way between two seconds, so that no law about queues has anything to hold against them.
        began = Counter(int(end) for end, *_ in samples[process::2])
        changes = plan.health(run.treatment) if process == 0 else {}
        grows = {name: changes.get(name, 0) for name in ("run_queue_delay_us", "tcp_retransmits", "listen_overflows")}
        lines = []
        for second in range(-1, plan.warm_up_s + plan.steady_s + 1):
            counters = {name: 7 + growth * (second + 1) for name, growth in grows.items()}
            arrivals = dict.fromkeys((*record.ARRIVAL_FIELDS, "in_flight_max"), 0)
            arrivals |= dict.fromkeys(("offered", "started"), began[start + second])
            line = {
                "second": start + second, "cpu_us": 1000 * second, "loop_lag_us": [100] * 20,
                "open_files": 30, "open_files_limit": 1024, "ports_in_use": None, "ports_limit": 28000,
                **changes, **counters,
                "arrivals": {**arrivals, **changes.get("arrivals", {})} if plan.model == "open" else None,
            }  # fmt: skip
            lines.append(json.dumps({name: line[name] for name in record.HEALTH_FIELDS}))
        (path / "response_times" / f"worker-{process}.health.jsonl").write_text(
            "\n".join(lines) + "\n", encoding="utf-8"
        )


def write_closed_loop(run: Path, users: int, response_s: float, think_s: float = 0.0, lost: int = 0) -> None:
    """Responses of a run anew: each user sends, waits `response_s` and thinks, but `lost` of them never hear back."""
    data = json.loads((run / "run.json").read_text("utf-8"))
    start, end = (
        data["windows"][name][edge] for name, edge in (("warm_up", "start_unix_s"), ("steady_state", "end_unix_s"))
    )
    samples = []
    for user in range(users - lost):
        now = start + (response_s + think_s) * user / users
        while (now := now + response_s) < end:
            samples.append((now, ENDPOINT, "success", round(response_s * 1e6)))
            now += think_s
    write_response_times(run, samples, "closed")
    (run / "locust" / "load_stats.csv").unlink()
    data["load"] |= {"users": users, "think_time": think_s}
    (run / "run.json").write_text(json.dumps(data), encoding="utf-8")


def write_open_queue(
    run: Path, rate_rps: float, service_s: float, *, one_by_one: bool = True, in_flight: float = math.inf, seed: int = 1
) -> list[Sample]:
    """Responses and arrivals of a run anew: Poisson arrivals from the warm-up's start to steady state's end.

    The server answers them one after the other, each in `service_s`: M/D/1; or all side by side: M/D/∞. At most
    `in_flight` are started, the others wait in the generator.
    """
    data = json.loads((run / "run.json").read_text("utf-8"))
    start, end = (
        data["windows"][name][edge] for name, edge in (("warm_up", "start_unix_s"), ("steady_state", "end_unix_s"))
    )
    noise = random.Random(f"{seed} {run.name}")
    samples: list[Sample] = []
    offered: Counter[int] = Counter()
    started: Counter[int] = Counter()
    arrival = float(start)
    while (arrival := arrival + noise.expovariate(rate_rps)) < end:
        free = samples[-1][0] if samples and one_by_one else arrival
        done = max(arrival, free) + service_s
        before = samples[-int(in_flight)][0] if len(samples) >= in_flight else arrival
        offered[int(arrival)] += 1
        started[int(max(arrival, before))] += 1
        samples.append((done, ENDPOINT, "success", round((done - arrival) * 1e6)))
    write_response_times(run, samples, "open")
    write_arrivals(run, offered, started)
    (run / "locust" / "load_stats.csv").unlink(missing_ok=True)
    return samples


def write_arrivals(run: Path, offered: Counter[int], started: Counter[int]) -> None:
    """Arrivals of a run's health anew, all counted by its first process; by second."""
    first, second = (run / "response_times" / f"worker-{process}.health.jsonl" for process in (0, 1))
    second.unlink(missing_ok=True)
    like = json.loads(first.read_text("utf-8").splitlines()[0])
    lines = []
    for time in range(min(offered) - 1, max(started) + 1):
        counts = dict.fromkeys((*record.ARRIVAL_FIELDS, "in_flight_max"), 0)
        counts |= {"offered": offered[time], "started": started[time]}
        lines.append(json.dumps(like | {"second": time, "arrivals": counts}))
    first.write_text("\n".join(lines) + "\n", encoding="utf-8")


def write_locust_csv(path: Path, total: int) -> None:
    (path / "locust").mkdir()
    text = f"Type,Name,Request Count,Failure Count\n,Aggregated,{total},0\n"
    (path / "locust" / "load_stats.csv").write_text(text, encoding="utf-8")


def run_record(plan: Plan, run: PlannedRun, start: int) -> RunRecord:
    warm = start + plan.warm_up_s
    prefix = "server.parameters."
    parameters = {path.removeprefix(prefix): v for path, v in run.treatment.items() if path.startswith(prefix)}
    return RunRecord(
        experiment="keystone-processes",
        number=run.number,
        block=run.block,
        replicate=run.replicate,
        treatment=run.treatment,
        workload=str(run.treatment.get("workload", "keystone_auth")),
        status="complete",
        reason=None,
        windows={"warm_up": Window(start, warm), "steady_state": Window(warm, warm + plan.steady_s)},
        load={"model": plan.model, "processes": 2}
        | ({"users": run.treatment.get(USERS, 4)} if plan.records_users else {}),
        server={
            "system": "keystone",
            "configuration": "uwsgi",
            "parameters": {"processes": run.treatment.get(PROCESSES, 1), "cache": "dict"} | parameters,
            "version": "30.0.0",
            "configuration_sha256": f"{run.treatment.get(PROCESSES, 1)}" * 64,
        },
        environment={
            "host": "bench",
            "kernel": "6.1.0",
            "cpu": {"model": "a processor", "count": 2},
            "load_average": start % 7,
        },
        locust={"command": ["locust", "-f", "keystone_auth.py"], "exit_code": 0, "facts": {"token_format": "fernet"}},
        files={
            "response_times": ["response_times/worker-0.csv", "response_times/worker-1.csv"],
            "usage": "usage.csv",
            "locust": ["locust/load_stats.csv"],
        },
    )
