"""A worker of a real Locust is killed: it is said, with its share of the load, and the command does not end with 0.

Locust takes five seconds to miss a worker, so these runs go on at the same time, each against a server of its own.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.timed_server import TimedServer, timed_server

from .conftest import OS_VARIABLES, RECORDED, Locust, Run, free_port, read_csv, wait_until
from .test_workloads import processes_in

AUTH = "keystone_auth.py"
ARRIVALS = ("--arrival-rate", "80", "--max-in-flight", "20")


def output(folder: Path) -> str:
    return (folder / "output.txt").read_text()


def begin(locust: Locust, server: TimedServer, *arguments: str) -> subprocess.Popen[bytes]:
    """Nobody gives a port, and all at once do not meet."""
    process = locust.start(AUTH, *RECORDED, *arguments, "--processes", "2", "-H", server.url, **OS_VARIABLES)
    wait_until(lambda: all(spawned(locust.folder, name) for name in ("worker-0", "worker-1")))
    return process


def spawned(folder: Path, name: str) -> bool:
    file = folder / "response_times" / f"{name}.json"
    return file.exists() and json.loads(file.read_text())["spawning_complete_unix_s"] is not None


def worker(folder: Path, name: str) -> psutil.Process:
    return psutil.Process(json.loads((folder / "response_times" / f"{name}.json").read_text())["pid"])


def lose_one_of_a_budget(locust: Locust, server: TimedServer) -> Run:
    process = begin(locust, server, "--requests", "100000", "-u", "4", "-r", "4")
    worker(locust.folder, "worker-0").kill()
    return locust.finish(process)


def lose_one_then_the_other_of_endless_arrivals(locust: Locust, server: TimedServer) -> Run:
    process = begin(locust, server, *ARRIVALS)
    worker(locust.folder, "worker-1").kill()
    (locust.folder / "killed").write_text(str(time.time()))
    wait_until(lambda: "was lost" in output(locust.folder))
    worker(locust.folder, "worker-0").kill()
    return locust.finish(process)


def interrupt_endless_arrivals_that_lost_one(locust: Locust, server: TimedServer) -> Run:
    process = begin(locust, server, *ARRIVALS)
    worker(locust.folder, "worker-1").kill()
    wait_until(lambda: "was lost" in output(locust.folder))
    os.kill(process.pid, signal.SIGINT)
    return locust.finish(process)


def lose_users_in_the_last_second(locust: Locust, server: TimedServer) -> Run:
    """Five users on two workers."""
    process = begin(locust, server, "-u", "5", "-r", "5", "-t", "6s")
    time.sleep(2)
    worker(locust.folder, "worker-0").kill()
    return locust.finish(process)


def freeze_one_for_a_while(locust: Locust, server: TimedServer) -> Run:
    process = begin(locust, server, "-u", "4", "-r", "4", "-t", "11s")
    frozen = worker(locust.folder, "worker-0")
    frozen.suspend()
    wait_until(lambda: "was lost" in output(locust.folder))
    frozen.resume()
    return locust.finish(process)


def freeze_one_until_after_the_end(locust: Locust, server: TimedServer) -> Run:
    process = begin(locust, server, *ARRIVALS, "-t", "8s")
    frozen = worker(locust.folder, "worker-1")
    time.sleep(1)
    frozen.suspend()
    wait_until(lambda: "worker-0" in done(locust.folder))
    frozen.resume()
    return locust.finish(process)


def freeze_one_for_good(locust: Locust, server: TimedServer) -> Run:
    process = begin(locust, server, *ARRIVALS, "-t", "4s")
    worker(locust.folder, "worker-1").suspend()
    return locust.finish(process)


def done(folder: Path) -> list[str]:
    records = [json.loads(path.read_text()) for path in (folder / "response_times").glob("*.json")]
    return [record["process"] for record in records if record["test_stop_unix_s"] is not None]


def offered(folder: Path) -> int:
    """Arrivals that the workers have counted so far."""
    files = (folder / "response_times").glob("*.health.jsonl")
    lines = [line for path in files for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]
    return sum((json.loads(line)["arrivals"] or {"offered": 0})["offered"] for line in lines)


def kill_the_command(locust: Locust, server: TimedServer) -> Run:
    process = begin(locust, server, *ARRIVALS)
    wait_until(lambda: offered(locust.folder) > 0)
    process.kill()
    wait_until(lambda: len(done(locust.folder)) == 2, timeout_s=15)
    wait_until(lambda: not processes_in(locust.folder))
    return locust.finish(process)


def join(locust: Locust, server: TimedServer, *arguments: str) -> Run:
    """A second worker joins a running test."""
    port = str(free_port())
    ports = ("--master-bind-host", "127.0.0.1", "--master-bind-port", port, "--master-port", port)
    more = (*RECORDED, *arguments, "--processes", "1", *ports, "-H", server.url)
    process = locust.start(AUTH, *more, **OS_VARIABLES)
    wait_until(lambda: re.search("All users spawned|Spawning is complete", output(locust.folder)) is not None)
    late = start_worker(locust, port)
    run = locust.finish(process)
    assert late.wait(20) == 0
    return run


def start_worker(locust: Locust, port: str) -> subprocess.Popen[bytes]:
    """In the folder of the test, but with an output of its own."""
    folder, locust.folder = locust.folder, locust.folder / "worker"
    locust.folder.mkdir(exist_ok=True)
    worker = locust.start(AUTH, "--worker", "--master-port", port, **OS_VARIABLES)
    locust.folder = folder
    return worker


def join_arrivals(locust: Locust, server: TimedServer) -> Run:
    """None of the places may go to the newcomer."""
    return join(locust, server, *ARRIVALS, "--max-in-flight", "6", "-t", "8s")


def join_users(locust: Locust, server: TimedServer) -> Run:
    return join(locust, server, "-u", "4", "-r", "4", "-t", "8s", "--response-times", str(locust.folder / "times"))


def lose_one_before_the_start(locust: Locust, server: TimedServer) -> Run:
    port = str(free_port())
    ports = ("--master", "--master-bind-host", "127.0.0.1", "--master-bind-port", port, "--expect-workers", "2")
    more = (*RECORDED, *ports, "--expect-workers-max-wait", "14", "-u", "2", "-H", server.url)
    process = locust.start(AUTH, *more, **OS_VARIABLES)
    dead = start_worker(locust, port)
    wait_until(lambda: "1 workers connected" in output(locust.folder))
    time.sleep(1)  # it says that it is prepared
    dead.kill()
    wait_until(lambda: "state to missing" in output(locust.folder))
    start_worker(locust, port)
    return locust.finish(process)


def lose_nobody(locust: Locust, server: TimedServer) -> Run:
    return locust.finish(begin(locust, server, "--arrival-steps", "20:1s,0:1s"))


SCENARIOS: tuple[Callable[[Locust, TimedServer], Run], ...] = (  # the longest first
    freeze_one_for_good,
    lose_one_before_the_start,
    freeze_one_until_after_the_end,
    lose_one_of_a_budget,
    lose_one_then_the_other_of_endless_arrivals,
    interrupt_endless_arrivals_that_lost_one,
    lose_users_in_the_last_second,
    freeze_one_for_a_while,
    kill_the_command,
    join_arrivals,
    join_users,
    lose_nobody,
)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Run]]:
    """Each scenario's run by its name."""

    def run(scenario: Callable[[Locust, TimedServer], Run]) -> Run:
        locust = Locust(tmp_path_factory.mktemp(scenario.__name__))
        try:
            with timed_server(locust.folder, "--service", "fixed:0.01") as server:
                return scenario(locust, server)
        finally:
            locust.stop_all()

    with ThreadPoolExecutor(6) as threads:
        done = dict(zip((s.__name__ for s in SCENARIOS), threads.map(run, SCENARIOS), strict=True))
    yield done
    for one in done.values():
        assert not processes_in(one.folder) + processes_in(one.folder / "worker")


def lost(run: Run) -> list[dict[str, Any]]:
    file = run.folder / "response_times/lost-workers.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def test_a_budget_ends(runs: dict[str, Run]) -> None:
    run = runs["lose_one_of_a_budget"]
    assert run.exit_code == 2, run.output
    said = "with it 50 % of the requests: the budget can no longer be answered, and the test ends"
    assert run.output.count(said) == 1
    assert [(row["process"], row["share"], row["of"]) for row in lost(run)] == [("worker-0", 0.5, "requests")]


@pytest.mark.parametrize(
    "name", ["lose_one_then_the_other_of_endless_arrivals", "interrupt_endless_arrivals_that_lost_one"]
)
def test_endless_arrivals_go_on_and_say_what_is_missing(runs: dict[str, Run], name: str) -> None:
    run = runs[name]
    assert run.exit_code == 2, run.output
    assert run.output.count("Worker worker-1 (") == 1
    assert "with it 50 % of the arrivals: the test goes on without it" in run.output
    assert "Traceback" not in run.output
    row = lost(run)[0]
    assert (row["process"], row["share"], row["of"]) == ("worker-1", 0.5, "arrivals")


def test_half_of_the_arrivals_are_missing_then(runs: dict[str, Run]) -> None:
    run = runs["lose_one_then_the_other_of_endless_arrivals"]
    seconds = [line["arrivals"]["offered"] for line in run.health[0]]
    assert 38 <= sorted(seconds)[len(seconds) // 2] <= 42
    assert len(run.health[0]) > len(run.health[1]) + 2


def test_the_last_worker_ends_an_endless_test(runs: dict[str, Run]) -> None:
    run = runs["lose_one_then_the_other_of_endless_arrivals"]
    assert "no worker is left, and the test ends" in run.output
    assert [row["process"] for row in lost(run)] == ["worker-1", "worker-0"]


def test_users_lost_in_the_last_seconds_are_recorded(runs: dict[str, Run]) -> None:
    run = runs["lose_users_in_the_last_second"]
    assert run.exit_code == 2, run.output
    assert "% of the users: it was noticed at the end of the test" in run.output
    (row,) = lost(run)
    assert (row["process"], row["of"]) == ("worker-0", "users")
    assert row["share"] in (0.4, 0.6)
    assert [record["test_stop_unix_s"] is None for record in run.processes] == [True, False]


def test_a_worker_that_was_frozen_and_is_back_is_not_lost(runs: dict[str, Run]) -> None:
    run = runs["freeze_one_for_a_while"]
    assert "was lost" in run.output and "is back" in run.output
    assert run.exit_code == 0, run.output
    assert lost(run) == []


def test_a_worker_that_is_back_after_the_end_is_waited_for(runs: dict[str, Run]) -> None:
    run = runs["freeze_one_until_after_the_end"]
    assert "was lost" in run.output and "is back" in run.output
    assert run.exit_code == 0, run.output
    assert lost(run) == []
    assert run.arrivals["offered"] == run.arrivals["answered"] == run.csv_counts[0] == 8 * 80
    assert run.recorded_by("response") == 8 * 80


def test_a_worker_that_never_comes_back_is_left(runs: dict[str, Run]) -> None:
    run = runs["freeze_one_for_good"]
    assert run.exit_code == 2, run.output
    assert [row["process"] for row in lost(run)] == ["worker-1"]


def test_workers_end_with_their_command(runs: dict[str, Run]) -> None:
    run = runs["kill_the_command"]
    assert run.output.count("The command that started this worker is gone") == 2
    assert run.arrivals["offered"] > 0


def test_who_comes_late_takes_no_places(runs: dict[str, Run]) -> None:
    run = runs["join_arrivals"]
    assert run.exit_code == 0, run.output
    assert run.output.count("came after the test had begun: it has no share of it") == 1
    assert [record["process"] for record in run.processes] == ["worker-0"]
    assert run.arrivals["offered"] == run.arrivals["answered"] == run.csv_counts[0] == 8 * 80
    assert run.output.count("Sending spawn jobs") == 1


def test_who_comes_late_in_the_closed_model_is_recorded(runs: dict[str, Run]) -> None:
    run = runs["join_users"]
    assert run.exit_code == 0, run.output
    assert [record["process"] for record in read_records(run)] == ["worker-0", "worker-1"]
    rows = [row for path in (run.folder / "times").glob("*.csv") for row in read_csv(path)]
    assert sum(int(row["count"]) for row in rows) == run.csv_counts[0]


def read_records(run: Run) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted((run.folder / "times").glob("*.json"))]


def test_nobody_waits_for_a_worker_that_died_before_the_start(runs: dict[str, Run]) -> None:
    run = runs["lose_one_before_the_start"]
    assert run.exit_code == 2, run.output
    assert "error: 1 of 2 workers were there and prepared after 14 s. --expect-workers-max-wait" in run.output
    assert "Traceback" not in run.output


def test_nobody_lost_leaves_no_file_and_the_last_step_has_its_time(runs: dict[str, Run]) -> None:
    run = runs["lose_nobody"]
    assert run.exit_code == 0, run.output
    assert lost(run) == []
    assert run.arrivals["answered"] == 20
    for record in run.processes:
        assert record["test_stop_unix_s"] - record["spawning_complete_unix_s"] > 2
