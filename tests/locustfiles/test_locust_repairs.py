"""Each repair of Locust, shown by a run that goes wrong without it.

The probe is a locustfile that imports the repairs, and nothing else of this project.
"""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import psutil
import pytest

from tests.known_server import Answer, KnownServer, Request

from .conftest import Locust, Run, read_csv, wait_until

REPAIRED = "import _locust_repairs\n"

HTTP = """
from locust import FastHttpUser, constant, events, task

class Probe(FastHttpUser):
    wait_time = constant({think_time})

    @task
    def ask(self):
        self.client.request("{method}", "/x")
"""

EVENTS = """
import time
import gevent
from locust import User, constant, events, task

class Probe(User):
    @task
    def fire(self):
        for time_ms in {times_ms}:
            self.environment.events.request.fire(
                request_type="GET", name=f"/{{time_ms}}", response_time=time_ms, response_length=0, context={{}}
            )
        gevent.sleep({pause_s})
"""


def probe(locust: Locust, text: str) -> Path:
    path = locust.folder / "probe.py"
    path.write_text(REPAIRED + text)
    return path


def run_probe(locust: Locust, text: str, *arguments: str) -> Run:
    """Run the probe, which knows no --response-times."""
    path = probe(locust, text)
    return locust.finish(locust.start(path, "--headless", "--only-summary", "--csv", "locust", *arguments))


def test_the_csv_files_hold_the_whole_run(locust: Locust) -> None:
    def answer(request: Request) -> Answer:
        return Answer(200 if request.number % 4 else 500, after_s=0.01)

    with KnownServer(answer) as server:
        text = HTTP.format(think_time=0, method="POST")
        run = run_probe(locust, text, "-u", "2", "-r", "100", "-t", "2s", "-H", server.url)
        sent = len(server.log)
        failed = sum(line.status == 500 for line in server.log)
    assert run.csv_counts == (sent, failed)
    assert int(read_csv(locust.folder / "locust_stats_history.csv")[-1]["Total Request Count"]) == sent
    assert [int(row["Occurrences"]) for row in read_csv(locust.folder / "locust_failures.csv")] == [failed]


def test_percentiles_keep_their_digits_and_json_leaves_the_counts(locust: Locust) -> None:
    times_ms = [0.045, 0.45, 1.5, 105.4, 7654.3]
    text = EVENTS.format(times_ms=times_ms, pause_s=0.01)
    run = run_probe(locust, text, "-u", "1", "-t", "1s", "--json-file", "result")
    rows = {row["Name"]: row for row in read_csv(run.folder / "locust_stats.csv")}
    for time_ms in times_ms:
        row = rows[f"/{time_ms}"]
        for column in ("50%", "99%", "Median Response Time"):
            assert float(row[column]) == pytest.approx(time_ms, rel=0.005)
    entries = json.loads((run.folder / "result.json").read_text())
    assert {entry["name"]: entry["num_requests"] for entry in entries} == {
        name: int(row["Request Count"]) for name, row in rows.items() if name != "Aggregated"
    }
    assert run.csv_counts[0] > 0


SLOW_START = """
from locust import events
times = []
events.test_start.add_listener(lambda **_: times.append(time.monotonic()))
events.test_stop.add_listener(lambda **_: open("duration", "w").write(str(time.monotonic() - times[0])))
end = time.monotonic() + 1.5
while time.monotonic() < end:
    pass
"""


def test_run_time_is_not_shortened_by_a_slow_start(locust: Locust) -> None:
    run_probe(locust, EVENTS.format(times_ms=[1], pause_s=0.1) + SLOW_START, "-u", "1", "-t", "2s")
    assert float((locust.folder / "duration").read_text()) > 1.9


SLOW_END = """
import gevent
from locust.runners import WorkerRunner

@events.init.add_listener
def _(environment, **_):
    if isinstance(environment.runner, WorkerRunner):
        events.quit.add_listener(lambda **_: (gevent.sleep(2.5), open(f"ended-{environment.runner.worker_index}", "w")))
"""


@pytest.mark.parametrize("processes", [1, 2])
def test_the_slowest_answers_are_waited_for(locust: Locust, processes: int, two_processes: tuple[str, ...]) -> None:
    """Answers take 1.3 s, so the last ones come well after the end, and after Locust's half second for last reports."""
    more = two_processes if processes == 2 else ()
    with KnownServer(lambda request: Answer(after_s=1.3)) as server:
        text = HTTP.format(think_time=0, method="POST") + SLOW_END
        run = run_probe(locust, text, "-u", "4", "-r", "100", "-t", "2s", "-H", server.url, *more)
        assert run.csv_counts == (len(server.log), 0)
        assert len(server.log) >= 8
    if processes == 2:  # what a worker writes at its very end is there when the command is over
        assert {path.name for path in locust.folder.glob("ended-*")} == {"ended-0", "ended-1"}


def test_the_end_does_not_look_up_its_callers(locust: Locust) -> None:
    """With that look-up everything stands still for 35 ms."""
    run = run_probe(locust, EVENTS.format(times_ms=[1], pause_s=0.1), "-u", "1", "-t", "1s", "-L", "DEBUG")
    assert run.exit_code == 0, run.output
    assert "couldn't determine where stop() was called from" in run.output


def test_no_waiting_user_is_killed_in_a_request(locust: Locust) -> None:
    with KnownServer(lambda request: Answer()) as server:
        text = HTTP.format(think_time=0.1, method="POST")
        run = run_probe(locust, text, "-u", "50", "-r", "1000", "-t", "1s", "-H", server.url)
        assert run.csv_counts == (len(server.log), 0)


def test_the_users_own_stop_timeout_counts(locust: Locust) -> None:
    with KnownServer(lambda request: Answer(after_s=5)) as server:
        text = HTTP.format(think_time=0, method="POST")
        started = time.monotonic()
        run = run_probe(locust, text, "-u", "1", "-t", "1s", "-s", "0", "-H", server.url)
        assert time.monotonic() - started < 4.5
    assert run.csv_counts == (0, 0)


def test_ctrl_c_neither_breaks_a_request_nor_is_lost(locust: Locust) -> None:
    """The user is nearly always the one that runs; without the repair it is the one that gets the KeyboardInterrupt."""
    path = probe(locust, EVENTS.format(times_ms=[1], pause_s=0) + 'open("ready", "w").close()\n')
    process = locust.start(path, "--headless", "--only-summary", "-u", "1")
    wait_until(lambda: "All users spawned" in (locust.folder / "output.txt").read_text())
    os.kill(process.pid, signal.SIGINT)
    run = locust.finish(process, 10)
    assert run.exit_code == 0, run.output
    assert "Traceback" not in run.output


def test_ctrl_c_ends_workers_and_keeps_their_reports(locust: Locust, two_processes: tuple[str, ...]) -> None:
    """As a terminal does it: the signal goes to master and workers at the same time."""
    with KnownServer(lambda request: Answer(after_s=0.9)) as server:
        path = probe(locust, HTTP.format(think_time=0, method="POST"))
        arguments = ("--headless", "--csv", "locust", "-u", "4", "-r", "100", "-H", server.url)
        process = locust.start(path, *arguments, *two_processes)
        wait_until(lambda: len(server.log) >= 4)
        os.killpg(process.pid, signal.SIGINT)
        run = locust.finish(process, 10)
        assert run.csv_counts == (len(server.log), 0)
    assert "Traceback" not in run.output
    # One that has ended may stay in the process table until its new parent looks: that is no process left.
    wait_until(lambda: not [p for p in psutil.process_iter() if _runs_in_group(p, process.pid)])


def _runs_in_group(process: psutil.Process, group: int) -> bool:
    try:
        return os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE
    except (ProcessLookupError, psutil.Error):
        return False
