"""A result folder as the harness leaves it, invented: as many runs as asked for, seeded, and written fast."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import csv

from analysis import record
from analysis.record import ExperimentRecord, PlannedRun, RunRecord, Window

ENDPOINTS = 10
WARM_UP_S = 30
STEADY_STATE_S = 600
USERS = 16
RATE_RPS = 100.0
FACTOR = "server.parameters.processes"
FASTER = 1.2
"""Throughput with two processes, in units of that with one."""
NOISE = 0.02
"""Of a run's throughput."""
SPREAD = 0.5
"""Standard deviation of the logarithms of an endpoint's response times."""
FAILURE_SHARE = 0.005
START_UNIX_S = 1_750_000_000

Integers = NDArray[np.int64]


def make(folder: Path, runs: int, steady_state_s: int = STEADY_STATE_S, done: Callable[[int], object] = int) -> int:
    """Write an experiment of `runs` runs and return its size in bytes. `done` is told how many runs are written."""
    plan = [planned(number) for number in range(1, runs + 1)]
    (folder / record.RUNS_FOLDER).mkdir(parents=True)
    record.write_experiment(folder, experiment(plan, steady_state_s))
    for run in plan:
        write_run(folder / record.RUNS_FOLDER / run.folder, run, steady_state_s)
        done(run.number)
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def planned(number: int) -> PlannedRun:
    """The run of this number: one and two processes in turn."""
    processes, block = 2 - number % 2, (number + 1) // 2
    return PlannedRun(
        number, block, block, {FACTOR: processes}, f"{number:03d}-processes={processes}-rep{block}", number
    )


def experiment(plan: list[PlannedRun], steady_state_s: int) -> ExperimentRecord:
    """One factor of two levels."""
    return ExperimentRecord(
        name="analysis-benchmark",
        question="Does the server answer more requests with two processes than with one?",
        workload="ten_endpoints",
        factors={FACTOR: [1, 2]},
        baseline={FACTOR: 1},
        primary={"metric": "throughput", "at": {}},
        margin=0.05,
        held_constant={},
        notes=[],
        timing={"warm_up_s": WARM_UP_S, "steady_state_s": steady_state_s},
        replicates=len(plan) // 2,
        order={"policy": "randomized_blocks", "seed": 1, "server": "per_run"},
        source=None,
        overrides=[],
        plan=plan,
        created_unix_s=float(START_UNIX_S),
    )


def write_run(path: Path, run: PlannedRun, steady_state_s: int) -> None:
    """All files of one run that the analysis reads; its random numbers are those of its number."""
    draw = np.random.default_rng(run.number)
    start = START_UNIX_S + run.number * (WARM_UP_S + steady_state_s + 30)
    seconds = np.arange(start, start + WARM_UP_S + steady_state_s)
    for name in ("response_times", "locust"):
        (path / name).mkdir(parents=True)
    rate_rps = RATE_RPS * (FASTER if run.treatment[FACTOR] == 2 else 1) * draw.normal(1, NOISE)
    responses = write_response_times(path / "response_times" / "local.csv", draw, seconds, rate_rps)
    write_health(path / "response_times" / "local.health.jsonl", draw, seconds)
    write_usage(path / "usage.csv", draw, seconds, int(run.treatment[FACTOR] or 1))
    total = f"Type,Name,Request Count,Failure Count\n,Aggregated,{responses},0\n"
    (path / "locust" / "locust_stats.csv").write_text(total, encoding="utf-8")
    record.write_run(path, run_record(run, start, steady_state_s))


def write_response_times(path: Path, draw: np.random.Generator, seconds: Integers, rate_rps: float) -> int:
    """Log-normal response times, which keep USERS users busy; returns how many responses there are."""
    n = int(draw.poisson(rate_rps * len(seconds)))
    second = np.sort(draw.integers(0, len(seconds), n))
    endpoint = draw.integers(0, ENDPOINTS, n)
    failed = draw.random(n) < FAILURE_SHARE
    mean_us = 1e6 * USERS / rate_rps
    medians_us = mean_us / math.exp(SPREAD**2 / 2) * np.arange(1, ENDPOINTS + 1) / ((ENDPOINTS + 1) / 2)
    bucket_us = buckets_us((medians_us[endpoint] * draw.lognormal(0, SPREAD, n)).astype(np.int64) + 1)
    keys = ((second * ENDPOINTS + endpoint) * 2 + failed) * 2**40 + bucket_us
    _, first, counts = np.unique(keys, return_index=True, return_counts=True)
    order = np.argsort(first)  # the order in which the recorder first sees a bucket
    first, counts = first[order], counts[order]
    texts = {
        "endpoint": [f"GET /v1/resource{number}" for number in range(ENDPOINTS)],
        "outcome": ["success", "503 Service Unavailable"],
    }
    columns = {
        "second": seconds[second[first]],
        "endpoint": pa.array(texts["endpoint"]).take(pa.array(endpoint[first])),
        "outcome": pa.array(texts["outcome"]).take(pa.array(failed[first].astype(np.int8))),
        "clock": pa.array(["both"]).take(pa.array(np.zeros(len(first), np.int8))),
        "bucket_us": bucket_us[first],
        "count": counts,
    }
    _write(path, {name: columns[name] for name in record.RESPONSE_TIME_COLUMNS})
    return n


def buckets_us(values_us: Integers) -> Integers:
    """The recorder's buckets: 128 to the octave, each by its middle."""
    shift = np.maximum(np.floor(np.log2(values_us)).astype(np.int64) - 7, 0)
    middle = np.where(shift > 0, 1 << np.maximum(shift - 1, 0), 0)
    return np.asarray(((values_us >> shift) << shift) + middle)


def write_health(path: Path, draw: np.random.Generator, seconds: Integers) -> None:
    """A generator that fares well: one line a second."""
    lags_us = draw.integers(50, 1200, (len(seconds), 20)).tolist()
    counters = {"tcp_retransmits": 7, "listen_overflows": 0, "ports_limit": 28232, "arrivals": None}
    files = {"open_files": 29, "open_files_limit": 10000, "ports_in_use": None}
    with path.open("w", encoding="utf-8") as stream:
        for number, second in enumerate(seconds.tolist()):
            own = {"second": second, "cpu_us": 8e5 + number * 9e4, "run_queue_delay_us": 40 * number}
            line = {**own, "loop_lag_us": lags_us[number], **files, **counters}
            stream.write(json.dumps({name: line[name] for name in record.HEALTH_FIELDS}, separators=(",", ":")) + "\n")


def write_usage(path: Path, draw: np.random.Generator, seconds: Integers, processes: int) -> None:
    """Two samples a second of the server's processes and of one load generator, each at its share of a core."""
    times = np.arange(seconds[0] - 1, seconds[-1] + 2, 0.5)
    pids = np.arange(500, 502 + processes)
    shares = np.array([0.0] + [0.6] * processes + [0.1])
    spent = np.cumsum(shares * 0.5 * draw.normal(1, 0.1, (len(times), len(pids))), axis=0)
    is_server = np.tile(np.arange(len(pids)) < 1 + processes, len(times))
    columns = {
        "time_unix_s": np.repeat(times, len(pids)) + 0.156,
        "role": np.where(is_server, "server", "generator"),
        "pid": np.tile(pids, len(times)),
        "name": np.where(is_server, "uwsgi", "python"),
        "cpu_s": np.maximum.accumulate(spent, axis=0).ravel().round(2),
        "rss_bytes": np.full(len(is_server), 137_068_544),
        "part": np.where(is_server, "uwsgi", "locust"),
    }
    _write(path, {name: columns[name] for name in record.USAGE_COLUMNS})


def run_record(run: PlannedRun, start: int, steady_state_s: int) -> RunRecord:
    """run.json of a complete run."""
    warm = start + WARM_UP_S
    server = {"system": "invented", "configuration": "uwsgi", "parameters": {"processes": run.treatment[FACTOR]}}
    return RunRecord(
        experiment="analysis-benchmark",
        number=run.number,
        block=run.block,
        replicate=run.replicate,
        treatment=run.treatment,
        workload="ten_endpoints",
        status=record.COMPLETE,
        reason=None,
        windows={"warm_up": Window(start, warm), "steady_state": Window(warm, warm + steady_state_s)},
        load={"model": "closed", "users": USERS, "processes": 1},
        server={**server, "version": "1.0", "configuration_sha256": f"{run.treatment[FACTOR]}" * 64},
        environment={"hostname": "bench", "kernel": "6.1.0", "cpu_model": "a processor", "cpus": 2},
        locust={"command": ["locust", "-f", "ten_endpoints.py"], "exit_code": 0, "facts": {}},
        files={
            "response_times": ["response_times/local.csv"],
            "health": ["response_times/local.health.jsonl"],
            "usage": "usage.csv",
            "locust": ["locust/locust_stats.csv"],
        },
    )


def _write(path: Path, columns: dict[str, object]) -> None:
    with path.open("wb") as stream:
        stream.write((",".join(columns) + "\n").encode())
        csv.write_csv(pa.table(columns), stream, csv.WriteOptions(include_header=False, quoting_style="none"))
