"""The ingress experiments on real servers: a replica is killed under load, budgets by the user, counts by the log."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from analysis import decide, load
from analysis.findings import Finding

REPOSITORY = Path(__file__).resolve().parent.parent
EXPERIMENTS = REPOSITORY / "configs/experiments"
SHORT = ("replicates=1", "timing={warm_up: 1s, steady_state: 4s}")
KILL = "events=[{at: 2s, action: kill, process: backend-1}]"


def harness(name: str, folder: Path, *settings: str) -> subprocess.CompletedProcess[str]:
    words = [word for setting in settings for word in ("--set", setting)]
    command = [sys.executable, "-m", "harness", "run", str(EXPERIMENTS / f"{name}.yml"), "-o", str(folder), *words]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False, timeout=120)


def findings(folder: Path) -> dict[str, Finding]:
    return {finding.name: finding for finding in decide.analyse(load.load_experiment(folder)).findings}


def run_files(folder: Path) -> list[Path]:
    return sorted(path.parent for path in folder.glob("runs/*/run.json"))


@pytest.fixture(scope="module")
def loss(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("loss") / "result"
    done = harness("nginx-replica-loss", folder, *SHORT, KILL)
    assert "2 runs complete, 0 failed" in done.stderr, done.stderr
    return folder


def record(run: Path) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((run / "run.json").read_text("utf-8"))
    return read


def test_a_killed_replica_is_recorded_and_is_no_restart(loss: Path) -> None:
    for run in run_files(loss):
        about = record(run)
        (event,) = about["events"]
        late_s = event["unix_s"] - about["windows"]["steady_state"]["start_unix_s"] - event["at_s"]
        assert (event["action"], event["process"], event["error"]) == ("kill", "backend-1", None)
        assert 0 <= late_s < 2
        last = max(
            float(line.split(",")[0])
            for line in (run / "usage.csv").read_text("utf-8").splitlines()
            if line.endswith(",backend-1")
        )
        assert last < event["unix_s"] + 0.1
    found = findings(loss)
    assert not {"server_restarted", "server_counts_differ", "files_damaged"} & set(found)
    assert found["failures"].message.startswith("With next_upstream = false")


def test_counts_that_differ_from_the_servers_log_are_found(loss: Path, tmp_path: Path) -> None:
    counts = run_files(loss)[0] / "server_counts.csv"
    before = counts.read_text("utf-8")
    first = next(line for line in before.splitlines() if ",balancer,backend-2,200," in line)
    try:
        counts.write_text(before.replace(first, first + "0", 1), encoding="utf-8")
        assert "200: " in findings(loss)["server_counts_differ"].evidence[0]
    finally:
        counts.write_text(before, encoding="utf-8")


def test_a_stopped_balancer_goes_on(tmp_path: Path) -> None:
    twice = "events=[{at: 1s, action: stop, process: balancer}, {at: 3s, action: continue, process: balancer}]"
    done = harness(
        "nginx-replica-loss", tmp_path / "stopped", *SHORT, twice, "factors={}", "baseline={}", "primary={}",
        "load={users: 4}", "server.parameters.backend=static",
    )  # fmt: skip
    assert "1 run complete, 0 failed" in done.stderr, done.stderr
    (run,) = run_files(tmp_path / "stopped")
    assert [event["action"] for event in record(run)["events"]] == ["stop", "continue"]
    slowest = max(int(line.split(",")[4]) for line in _recorded(run))
    assert slowest > 1_900_000  # microseconds: who asked waited until it was continued


def _recorded(run: Path) -> list[str]:
    files = sorted((run / "response_times").glob("*.csv"))
    return [line for file in files for line in file.read_text("utf-8").splitlines()[1:]]


def test_a_budget_by_the_user(tmp_path: Path) -> None:
    folder = tmp_path / "result"
    two = 'factors={"load.users": [20, 50], "server.parameters.replicas": [1, 2]}'
    done = harness(
        "seed-nginx-concurrency", folder, "replicates=1", two, "primary={metric: mean, at: {load.users: 50}}"
    )
    assert "4 runs complete, 0 failed" in done.stderr, done.stderr
    for run in run_files(folder):
        about = record(run)
        users = about["treatment"]["load.users"]
        assert (about["load"]["requests"], about["load"]["requests_per_user"]) == (10 * users, 10)
        logged = [line.split(",") for line in (run / "server_counts.csv").read_text("utf-8").splitlines()[1:]]
        warm_up = [line for file in (run / "warm_up/response_times").glob("*.csv") for line in file.open()][1:]
        before = sum(int(line.rsplit(",", 1)[1]) for line in warm_up)
        assert sum(int(row[4]) for row in logged if row[1] == "balancer") == 10 * users + before
    found = findings(folder)
    assert not {"configuration_differs", "server_counts_differ", "files_damaged"} & set(found)
    assert "generator_busy" not in found  # a tenth of a second tells nothing of its CPU
