"""The open model, as a user starts it, against a server in a process of its own that knows when it answered what."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.timed_server import timed_server

from .conftest import OS_VARIABLES, RECORDED, Locust, Run, free_port, read_csv, wait_until
from .test_workloads import WebUi, processes_in

AUTH = "keystone_auth.py"
VALIDATE = "keystone_validate.py"
RATE = 100
STALL_S = 2.0


def started(locust: Locust, folder: Path, url: str, *arguments: str) -> subprocess.Popen[bytes]:
    folder.mkdir()
    locust.folder = folder
    return locust.start(AUTH, *RECORDED, "-H", url, *arguments, **OS_VARIABLES)


def finished(locust: Locust, folder: Path, process: subprocess.Popen[bytes]) -> Run:
    locust.folder = folder
    return locust.finish(process)


STALLED = {
    "few": ("--max-in-flight", "10"),
    "enough": ("--max-in-flight", "300"),
    "dropping": ("--max-in-flight", "10", "--max-lateness", "0.5"),
}


def test_a_stall_is_seen_by_everyone_who_arrives_meanwhile(locust: Locust, tmp_path: Path) -> None:
    """Twelve seconds, two of them stalled; the three runs go on at the same time, each on a server of its own."""
    runs, logs = {}, {}
    with ExitStack() as stack:
        servers, processes = {}, {}
        for name, arguments in STALLED.items():
            (tmp_path / f"{name}-server").mkdir()
            servers[name] = stack.enter_context(
                timed_server(tmp_path / f"{name}-server", "--service", "fixed:0.003", "--stall", f"4:{STALL_S}")
            )
            more = ("--arrival-rate", str(RATE), "-t", "12s", *arguments)
            processes[name] = started(locust, tmp_path / name, servers[name].url, *more)
        for name in STALLED:
            runs[name] = finished(locust, tmp_path / name, processes[name])
    logs = {name: server.log() for name, server in servers.items()}
    for name, run in runs.items():
        assert run.exit_code == 0, run.output
        assert "spawn rate is very high" not in run.output  # nobody has chosen one
        arrivals = run.arrivals
        assert arrivals["offered"] == 12 * RATE
        assert arrivals["started"] + arrivals["dropped"] == arrivals["offered"]
        assert arrivals["answered"] == arrivals["started"] == len(logs[name]) == run.csv_counts[0]
        assert run.recorded_by("response") == run.recorded_by("service") == len(logs[name])
        assert run.recorded_by("both") == 0
        assert [process["model"] for process in run.processes] == ["open"]
        # Locust's own statistics: response times
        row = read_csv(run.folder / "locust_stats.csv")[-1]
        assert float(row["95%"]) / 1000 == pytest.approx(run.quantile_s("response", 0.95), rel=0.05)

    few, enough, dropping = (runs[name] for name in STALLED)
    for run in (few, enough):  # nearly the longest wait: 200 of 1200 waited, evenly from 0 to 2 s
        assert 0.85 * STALL_S < run.quantile_s("response", 0.99) < 1.5 * STALL_S
        assert run.arrivals["dropped"] == 0
    assert few.quantile_s("service", 0.99) < 0.25 * few.quantile_s("response", 0.99)
    assert enough.quantile_s("service", 0.99) > 0.7 * STALL_S
    assert few.arrivals["late_all_busy"] > 100
    assert few.arrivals["in_flight_max"] == 10
    assert enough.arrivals["in_flight_max"] > 150
    # those that arrived in the first 1.5 s of the stall, less the ten that were in flight
    assert 100 < dropping.arrivals["dropped"] < 200
    # Answered late are only those in flight during the stall; the others waited at most as long as they may.
    assert dropping.quantile_s("response", 0.97) < 0.9


def test_a_frozen_server_is_no_fast_server(locust: Locust, tmp_path: Path) -> None:
    with timed_server(tmp_path, "--service", "fixed:0.003") as server:
        arguments = ("--arrival-rate", "50", "--max-in-flight", "20", "-t", "6s")
        process = started(locust, tmp_path / "run", server.url, *arguments)
        wait_until(lambda: "All users spawned" in (tmp_path / "run" / "output.txt").read_text())
        time.sleep(1.5)
        os.kill(server.pid, signal.SIGSTOP)
        time.sleep(3)
        os.kill(server.pid, signal.SIGCONT)
        run = finished(locust, tmp_path / "run", process)
    assert run.exit_code == 0, run.output
    assert run.arrivals["answered"] == run.arrivals["offered"] == 300 == len(server.log())
    assert run.quantile_s("response", 0.75) > 0.75  # half of all waited, evenly up to 3 s
    assert run.quantile_s("service", 0.75) < 0.2


def test_counts_agree_with_failures_reconnects_and_processes(
    locust: Locust, tmp_path: Path, two_processes: tuple[str, ...]
) -> None:
    behaviour = ("--service", "lognormal:0.01:1", "--fail-every", "7", "--drop-every", "11", "--close-every", "5")
    with timed_server(tmp_path, *behaviour) as server:
        arguments = ("--arrival-rate", "150", "--arrival-process", "poisson", "--max-in-flight", "41", "-t", "3s")
        run = finished(
            locust, tmp_path / "run", started(locust, tmp_path / "run", server.url, *arguments, *two_processes)
        )
    log = server.log()
    assert run.exit_code == 1, run.output
    failed = sum(line.status != 201 for line in log)
    assert failed > 20
    assert run.csv_counts == (len(log), failed)
    assert run.arrivals["offered"] == run.arrivals["answered"] == len(log) == pytest.approx(450, abs=100)
    assert run.recorded_by("response") == run.recorded_by("service") == len(log)
    assert len(run.processes) == 2
    assert all(process["arrivals"]["started"] > 100 for process in run.processes)
    assert len({line.connection for line in log}) > 50


def test_a_rate_file_ends_the_run_by_itself(locust: Locust, tmp_path: Path, two_processes: tuple[str, ...]) -> None:
    (tmp_path / "rates.csv").write_text("seconds,rate_rps\n1,40\n0.5,0\n1,100\n")
    with timed_server(tmp_path, "--service", "fixed:0.003") as server:
        arguments = ("--arrival-rates", str(tmp_path / "rates.csv"), "--max-in-flight", "20", *two_processes)
        run = finished(locust, tmp_path / "run", started(locust, tmp_path / "run", server.url, *arguments))
    times = [line.arrived_unix_s for line in server.log()]
    assert run.exit_code == 0, run.output
    assert run.csv_counts == (140, 0)
    assert len(times) == run.arrivals["offered"] == 140
    assert 2.3 < max(times) - min(times) < 4
    assert max(b - a for a, b in itertools.pairwise(times)) > 0.3


def test_overload_counts_what_never_started(locust: Locust, tmp_path: Path) -> None:
    """Two places at 0.1 s each carry 20 of the 100 a second; after the end there is one more second."""
    with timed_server(tmp_path, "--service", "fixed:0.1") as server:
        arguments = ("--arrival-rate", "100", "--max-in-flight", "2", "-t", "2s", "-s", "1")
        run = finished(locust, tmp_path / "run", started(locust, tmp_path / "run", server.url, *arguments))
    arrivals = run.arrivals
    assert arrivals["offered"] == 200
    assert arrivals["unstarted"] > 100
    assert f"Arrivals: 200 offered, {arrivals['started']} started" in run.output
    assert "arrivals still wait for a user" in run.output
    assert arrivals["offered"] == arrivals["started"] + arrivals["unstarted"]
    assert arrivals["started"] == arrivals["answered"] + arrivals["unanswered"]
    assert arrivals["answered"] == run.csv_counts[0]
    assert arrivals["answered"] <= len(server.log()) <= arrivals["started"]


def test_what_was_never_answered_is_counted(locust: Locust, tmp_path: Path) -> None:
    """Ten places; from the second second on the server is silent until long after the end."""
    with timed_server(tmp_path, "--service", "fixed:0.005", "--stall", "1:30") as server:
        arguments = ("--arrival-rate", "40", "--max-in-flight", "10", "-t", "2s", "-s", "1")
        run = finished(locust, tmp_path / "run", started(locust, tmp_path / "run", server.url, *arguments))
    arrivals = run.arrivals
    assert run.exit_code == 0, run.output
    assert (arrivals["offered"], arrivals["unanswered"]) == (80, 10)
    assert arrivals["answered"] + arrivals["unstarted"] + arrivals["unanswered"] == 80
    assert arrivals["answered"] == run.csv_counts[0] == pytest.approx(40, abs=1)
    assert "10 requests had no answer when --stop-timeout was over" in run.output
    assert sum(line["arrivals"]["unanswered"] for line in run.health[0]) == 10


def test_more_arrivals_than_can_be_counted_end_in_time(locust: Locust, tmp_path: Path) -> None:
    """Dropping them never let the event loop turn: neither the run time nor SIGTERM ended it."""
    with timed_server(tmp_path, "--service", "fixed:0.005") as server:
        arguments = ("--arrival-rate", "400000", "--max-lateness", "0.01", "--max-in-flight", "5", "-t", "1s")
        run = finished(locust, tmp_path / "run", started(locust, tmp_path / "run", server.url, *arguments))
    arrivals = run.arrivals
    assert run.exit_code == 0, run.output
    assert arrivals["offered"] == arrivals["dropped"] + arrivals["answered"] == 400_000
    assert arrivals["answered"] == len(server.log()) == run.csv_counts[0]


SLOW_WORKERS = """
import gevent
from keystone_auth import KeystoneAuth
from locust import events
from locust.runners import WorkerRunner

@events.init.add_listener
def on_init(environment, **_):
    if isinstance(environment.runner, WorkerRunner):
        environment.events.test_start.add_listener(lambda **_: gevent.sleep(1.6))
"""


def test_slow_workers_do_not_shorten_the_schedule(locust: Locust, tmp_path: Path) -> None:
    """The master's timer begins long before the workers do; where they may not go on it is said what was cut."""
    (tmp_path / "slow.py").write_text(SLOW_WORKERS)
    processes, runs = {}, {}
    with timed_server(tmp_path, "--service", "fixed:0.005") as server:
        for name, stop_timeout in (("whole", "65"), ("cut", "1")):
            locust.folder = tmp_path / name
            locust.folder.mkdir()
            port = str(free_port())
            arguments = (
                "--arrival-rate",
                "40",
                "--max-in-flight",
                "10",
                "-t",
                "3s",
                "-s",
                stop_timeout,
                "-H",
                server.url,
            )
            ports = ("--processes", "2", "--master-bind-port", port, "--master-port", port)
            processes[name] = locust.start(tmp_path / "slow.py", *RECORDED, *arguments, *ports, **OS_VARIABLES)
        for name, process in processes.items():
            runs[name] = finished(locust, tmp_path / name, process)
    for run in runs.values():
        assert run.exit_code == 0, run.output
        # A request that is in flight where it is cut is given up, and the server may have answered it all the same.
        assert sum(run.arrivals[name] for name in ("answered", "unanswered", "unstarted")) == 120
        assert run.arrivals["offered"] == 120
        assert run.csv_counts[0] == run.arrivals["answered"]
    answered = sum(run.csv_counts[0] for run in runs.values())
    assert answered <= len(server.log()) <= answered + runs["cut"].arrivals["unanswered"]
    assert runs["whole"].arrivals["unanswered"] == 0
    assert runs["whole"].arrivals["unstarted"] == 0
    assert runs["cut"].arrivals["unstarted"] > 10
    assert "arrivals were never started" in runs["cut"].output


def test_interrupted_it_answers_what_had_arrived(locust: Locust, tmp_path: Path) -> None:
    with timed_server(tmp_path, "--service", "fixed:0.05") as server:
        arguments = ("--arrival-rate", "60", "--max-in-flight", "5", "-t", "60s")
        process = started(locust, tmp_path / "run", server.url, *arguments)
        wait_until((tmp_path / "run" / "response_times" / "local.csv").exists)
        time.sleep(2.5)
        os.kill(process.pid, signal.SIGINT)
        run = finished(locust, tmp_path / "run", process)
    assert run.exit_code == 0, run.output
    assert 50 < run.arrivals["offered"] < 400
    assert run.arrivals["offered"] == run.arrivals["answered"] == len(server.log()) == run.csv_counts[0]


def test_validation_follows_the_model_too(locust: Locust, tmp_path: Path) -> None:
    with timed_server(tmp_path, "--service", "bimodal:0.002:0.05:0.1") as server:
        arguments = ("--arrival-steps", "30..90:2s", "--max-in-flight", "20", "--token-pool", "3")
        locust.folder = tmp_path
        run = locust.run(VALIDATE, *arguments, "-H", server.url, **OS_VARIABLES)
    assert run.exit_code == 0, run.output
    assert run.csv_counts == (120, 0)
    assert len(server.log()) == run.arrivals["answered"] == 120


def test_the_web_ui_starts_and_stops_it(locust: Locust, tmp_path: Path) -> None:
    ui = WebUi()
    with timed_server(tmp_path, "--service", "fixed:0.003") as server:
        locust.folder = tmp_path
        more = ("--response-times", "response_times")
        process = locust.start(AUTH, *ui.arguments, *more, "-H", server.url, **OS_VARIABLES)
        wait_until(ui.is_there)
        form = {"user_count": 1, "spawn_rate": 1, "host": server.url, "arrival_rate": "80", "max_in_flight": "7"}
        ui.ask("swarm", **form)
        wait_until(lambda: ui.requests() > 60)
        assert ui.ask("stats/requests")["user_count"] == 7
        assert "A test is running: stop it first" in refused(ui, form | {"arrival_rate": "5"})
        ui.ask("stop")
        wait_until(lambda: ui.ask("stats/requests")["state"] == "stopped")
        first = ui.requests()
        # closed again, with a form that leaves the fields empty
        ui.ask("swarm", **(form | {"arrival_rate": "", "max_in_flight": "", "user_count": 2, "requests": "30"}))
        wait_until(lambda: ui.ask("stats/requests")["state"] == "stopped" and ui.requests() == 30)
        for wrong, said in WRONG_FORMS:
            assert said in refused(ui, form | wrong)
        closed = form | {"user_count": 2, "spawn_rate": 2, "arrival_rate": "", "max_in_flight": "", "requests": ""}
        assert ui.ask("swarm", **closed)["success"]
        assert ui.ask("swarm", **(closed | {"user_count": 3}))["success"]  # as Locust has it
        wait_until(lambda: ui.ask("stats/requests")["user_count"] == 3)
        assert "A test is running" in refused(ui, form)
        assert "'abc' is not a number of seconds" in refused(ui, closed | {"think_time": "abc"})
        ui.ask("stop")
        wait_until(lambda: ui.ask("stats/requests")["state"] == "stopped")
        last = ui.requests()
        os.kill(process.pid, signal.SIGINT)
        run = locust.finish(process)
    assert run.exit_code == 0, run.output
    assert "Traceback" not in run.output
    assert "spawn rate is very high" not in run.output
    assert len(server.log()) == first + 30 + last
    assert run.recorded_by("response") == first
    assert run.recorded_by("both") == 30 + last


def refused(ui: WebUi, form: dict[str, Any]) -> str:
    answer = ui.ask("swarm", **form)
    assert answer["success"] is False
    return str(answer["message"])


WRONG_FORMS = (
    ({"arrival_rate": "many"}, "'many' is not a number of arrivals a second"),
    ({"arrival_process": "foo"}, "invalid choice: 'foo'"),
    ({"arrival_rate": "", "max_in_flight": "", "arrival_process": "poisson"}, "--arrival-process belongs to the open"),
    ({"arrival_rate": "", "max_in_flight": "", "think_time": "nan"}, "'nan' is not a number of seconds"),
    ({"arrival_rate": "", "max_in_flight": "", "think_time": "-1"}, "'-1' is not a number of seconds"),
    ({"seed": "x"}, "invalid int value: 'x'"),
)


SHAPE = """
from keystone_auth import KeystoneAuth
from locust import LoadTestShape

class Shape(LoadTestShape):
    def tick(self):
        return (2, 2) if self.get_run_time() < 2 else None
"""

BAD = {
    "rate": (["--arrival-rate", "0"], "'0' is not a number of arrivals a second above 0"),
    "steps": (["--arrival-steps", "10:3s,x"], "'x' is not RATE:TIME"),
    "no file": (["--arrival-rates", "none.csv"], "none.csv: cannot be read"),
    "bad file": (["--arrival-rates", "../bad.csv"], "line 2: 'x,1' is not two numbers"),
    "two rates": (["--arrival-rate", "1", "--arrival-steps", "1:1s"], "both say when requests arrive"),
    "users": (["--arrival-rate", "1", "-u", "5"], "-u 5: in the open model users are the places"),
    "think time": (["--arrival-rate", "1", "--think-time", "1"], "--think-time belongs to the closed model"),
    "budget": (["--arrival-rate", "1", "--requests", "9"], "--requests belongs to the closed model"),
    "no rate": (["--max-in-flight", "9"], "--max-in-flight belongs to the open model"),
    "process": (["--arrival-process", "poisson"], "--arrival-process belongs to the open model"),
    "lateness": (["--arrival-rate", "1", "--max-lateness", "-1"], "is not a number of seconds"),
    "requests": (["--requests", "0"], "'0' is not a whole number from 1 up"),
    "both": (["-f", "../both.py", "--arrival-rate", "1"], "Name one of KeystoneAuth, KeystoneValidate"),
    "shape": (["-f", "../shape.py", "--arrival-rate", "1"], "A LoadTestShape changes the number of users"),
}


def test_what_makes_no_sense_is_one_message_before_any_load(locust: Locust, tmp_path: Path) -> None:
    (tmp_path / "bad.csv").write_text("seconds,rate_rps\nx,1\n")
    (tmp_path / "shape.py").write_text(SHAPE)
    (tmp_path / "both.py").write_text(
        "from keystone_auth import KeystoneAuth\nfrom keystone_validate import KeystoneValidate\n"
    )
    with timed_server(tmp_path) as server:
        cases = {}
        for name, (arguments, _) in BAD.items():
            (tmp_path / name).mkdir()
            locust.folder = tmp_path / name
            locustfile = locust.folder / arguments[1] if "-f" in arguments else AUTH
            given = arguments[2:] if "-f" in arguments else arguments
            cases[name] = locust.start(locustfile, *RECORDED, "-H", server.url, *given, **OS_VARIABLES)
        for name, process in cases.items():
            run = finished(locust, tmp_path / name, process)
            said = [line for line in run.output.splitlines() if ": error: " in line]
            assert run.exit_code == 2, run.output
            assert len(said) == 1, run.output
            assert BAD[name][1] in said[0]
            assert "Traceback" not in run.output
    assert server.log() == []


def test_a_port_that_is_taken_is_refused_before_there_are_workers(locust: Locust, tmp_path: Path) -> None:
    with timed_server(tmp_path) as server:
        taken = server.url.rpartition(":")[2]
        arguments = ("--arrival-rate", "5", "--processes", "2", "--master-bind-port", taken)
        run = finished(locust, tmp_path / "run", started(locust, tmp_path / "run", server.url, *arguments))
    assert run.exit_code == 2, run.output
    assert run.output.count("error: ") == 1
    assert f"port {taken} is taken, by another Locust for one; leave --master-bind-port out" in run.output
    assert "Starting Locust" not in run.output


def test_too_few_places_for_the_processes(locust: Locust, tmp_path: Path, two_processes: tuple[str, ...]) -> None:
    with timed_server(tmp_path) as server:
        arguments = ("--arrival-rate", "5", "--max-in-flight", "1", *two_processes)
        run = finished(locust, tmp_path / "run", started(locust, tmp_path / "run", server.url, *arguments))
    assert run.exit_code == 2, run.output
    assert "2 processes share the load, and 1 users are too few" in run.output
    assert not processes_in(tmp_path / "run")
    assert server.log() == []
