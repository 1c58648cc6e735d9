"""An exact number of requests: answered, counted by the server, and over."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.timed_server import timed_server

from .conftest import OS_VARIABLES, Locust, wait_until
from .test_workloads import WebUi

AUTH = "keystone_auth.py"
TROUBLE = ("--service", "lognormal:0.004:1", "--fail-every", "10", "--drop-every", "13", "--close-every", "7")


@pytest.mark.parametrize(
    ("requests", "arguments"),
    [(251, ("-u", "7", "-r", "7")), (40, ("-u", "8", "-r", "4", "--think-time", "0.2", "-t", "60s"))],
)
def test_so_many_and_no_more(locust: Locust, tmp_path: Path, requests: int, arguments: tuple[str, ...]) -> None:
    with timed_server(tmp_path, *TROUBLE) as server:
        run = locust.run(AUTH, "--requests", str(requests), *arguments, "-H", server.url, **OS_VARIABLES)
    log = server.log()
    assert run.exit_code == 1, run.output  # Locust's own: some requests have failed
    assert run.csv_counts == (requests, sum(line.status != 201 for line in log))
    assert len(log) == requests == sum(run.recorded.values())
    assert run.recorded_by("both") == requests
    (process,) = run.processes
    assert process["budget"] == {"requests": requests, "answered": requests}
    assert process["model"] == "closed"


def test_processes_share_it(locust: Locust, tmp_path: Path, two_processes: tuple[str, ...]) -> None:
    with timed_server(tmp_path, *TROUBLE) as server:
        arguments = ("--requests", "301", "-u", "5", "-r", "5", *two_processes, "--exit-code-on-error", "0")
        run = locust.run(AUTH, *arguments, "-H", server.url, **OS_VARIABLES)
    assert run.exit_code == 0, run.output
    assert run.csv_counts[0] == len(server.log()) == sum(run.recorded.values()) == 301
    assert [process["budget"]["answered"] for process in run.processes] == [151, 150]


def test_the_run_time_is_an_upper_bound(locust: Locust, tmp_path: Path) -> None:
    with timed_server(tmp_path, "--service", "fixed:0.01") as server:
        arguments = ("--requests", "100000", "-u", "3", "-r", "3", "-t", "1s")
        run = locust.run(AUTH, *arguments, "-H", server.url, **OS_VARIABLES)
    assert run.exit_code == 0, run.output
    assert 10 < run.processes[0]["budget"]["answered"] == len(server.log()) == run.csv_counts[0] < 1000


SHAPE = """
from keystone_auth import KeystoneAuth
from locust import LoadTestShape

class Shape(LoadTestShape):
    def tick(self):
        return (6, 6) if self.get_run_time() < 1 else (2, 6)
"""


@pytest.mark.parametrize("processes", [(), ("--processes", "2")])
def test_a_shape_may_change_the_users_meanwhile(locust: Locust, tmp_path: Path, processes: tuple[str, ...]) -> None:
    (tmp_path / "shape.py").write_text(SHAPE)
    with timed_server(tmp_path, "--service", "fixed:0.02") as server:
        run = locust.run(tmp_path / "shape.py", "--requests", "500", *processes, "-H", server.url, **OS_VARIABLES)
    assert run.exit_code == 0, run.output
    assert run.csv_counts == (500, 0)
    assert len(server.log()) == 500


class BudgetUi(WebUi):
    def has_ended(self, requests: int) -> bool:
        """What the UI says may be two seconds old; so it is asked once for both."""
        report = self.ask("stats/requests")
        return report["state"] == "stopped" and report["stats"][-1]["num_requests"] == requests


@pytest.mark.parametrize("processes", [1, 2])
def test_the_web_ui_counts_it_twice(
    locust: Locust, tmp_path: Path, processes: int, two_processes: tuple[str, ...]
) -> None:
    ui = BudgetUi()
    more = two_processes if processes == 2 else ()
    with timed_server(tmp_path, "--service", "fixed:0.005") as server:
        process = locust.start(AUTH, *ui.arguments, *more, "--requests", "1", **OS_VARIABLES)
        wait_until(ui.is_there)
        if processes == 2:
            wait_until(lambda: [w["state"] for w in ui.ask("stats/requests").get("workers", [])] == ["ready"] * 2)
        for requests in (60, 45):
            assert ui.ask("swarm", user_count=4, spawn_rate=4, host=server.url, requests=requests)["success"]
            wait_until(lambda requests=requests: ui.has_ended(requests))
            if processes == 2:
                wait_until(lambda: [w["state"] for w in ui.ask("stats/requests")["workers"]] == ["ready"] * 2)
        os.kill(process.pid, signal.SIGINT)
        run = locust.finish(process)
    assert run.exit_code == 0, run.output
    assert "Traceback" not in run.output
    assert len(server.log()) == 105


def test_nobody_asks_before_all_users_are_there(locust: Locust, tmp_path: Path, two_processes: tuple[str, ...]) -> None:
    """The first of them would have answered this budget alone, within the second that it takes to start the others."""
    with timed_server(tmp_path, "--service", "fixed:0.005") as server:
        arguments = ("--requests", "40", "-u", "8", "-r", "4", *two_processes)
        run = locust.run(AUTH, *arguments, "-H", server.url, **OS_VARIABLES)
    assert run.exit_code == 0, run.output
    begun_s = min(process["spawning_complete_unix_s"] for process in run.processes)
    assert begun_s - max(process["test_start_unix_s"] for process in run.processes) > 0.5
    log = server.log()
    assert min(line.arrived_unix_s for line in log) >= begun_s - 0.05
    assert len({line.connection for line in log}) == 8
