"""--objective and --abort-when, on a real Locust against a server whose failures and service times are known."""

from __future__ import annotations

import re
import signal
import time
from pathlib import Path

import _abortion
import pytest

from tests.timed_server import timed_server

from .conftest import OS_VARIABLES, Locust

AUTH = "keystone_auth.py"
EVERY_TENTH_FAILS = ("--service", "fixed:0.01", "--fail-every", "10")


def objectives(*rules: str) -> tuple[str, ...]:
    return tuple(word for rule in rules for word in ("--objective", rule))


def judged(output: str) -> list[str]:
    return [line for line in output.splitlines() if line.startswith(("pass: ", "fail: ", "inconclusive: "))]


def test_one_line_an_objective_and_the_exit_code(locust: Locust, tmp_path: Path) -> None:
    rules = ("failure_ratio <= 10%", "p95(response_time) < 5ms", "count(response_time > 1us) < 90", "throughput > 1/s")
    with timed_server(tmp_path, *EVERY_TENTH_FAILS) as server:
        arguments = ("--requests", "100", "-u", "2", "-r", "2", *objectives(*rules))
        run = locust.run(AUTH, *arguments, "-H", server.url, **OS_VARIABLES)
    assert run.exit_code == 1, run.output
    lines = judged(run.output)
    assert lines[0] == "pass: failure_ratio <= 10%: 10 %, counted in this one run"
    assert lines[1].startswith("fail: p95(response_time) < 5ms: 1")
    assert lines[2] == "fail: count(response_time > 1us) < 90: 90, counted in this one run"
    assert lines[3].startswith("pass: throughput > 1/s: ")


def test_too_little_data_is_no_pass(locust: Locust, tmp_path: Path) -> None:
    with timed_server(tmp_path, *EVERY_TENTH_FAILS) as server:
        arguments = ("--requests", "60", "-u", "2", "-r", "2", *objectives("p99(response_time) < 1min"))
        run = locust.run(AUTH, *arguments, "-H", server.url, **OS_VARIABLES)
    assert run.exit_code == 3, run.output
    assert judged(run.output) == ["inconclusive: p99(response_time) < 1min: too few responses to say"]


def test_processes_are_judged_together_although_some_requests_failed(
    locust: Locust, tmp_path: Path, two_processes: tuple[str, ...]
) -> None:
    with timed_server(tmp_path, *EVERY_TENTH_FAILS) as server:
        rules = objectives("count(response_time > 1us) <= 270", "failure_ratio < 11%")
        arguments = ("--requests", "300", "-u", "4", "-r", "4", *two_processes, *rules)
        run = locust.run(AUTH, *arguments, "-H", server.url, **OS_VARIABLES)
    assert run.exit_code == 0, run.output
    assert judged(run.output) == [
        "pass: count(response_time > 1us) <= 270: 270, counted in this one run",
        "pass: failure_ratio < 11%: 10 %, counted in this one run",
    ]


def test_an_interrupted_run_is_judged_on_what_it_counted(locust: Locust, tmp_path: Path) -> None:
    with timed_server(tmp_path, "--service", "fixed:0.01") as server:
        arguments = ("--headless", "--only-summary", "-u", "2", *objectives("failure_ratio > 0%"), "-H", server.url)
        process = locust.start(AUTH, *arguments, **OS_VARIABLES)
        while "spawned" not in (tmp_path / "output.txt").read_text():
            time.sleep(0.05)
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        run = locust.finish(process)
    assert (run.exit_code, judged(run.output)) == (1, ["fail: failure_ratio > 0%: 0 %, counted in this one run"])


@pytest.mark.parametrize("processes", [1, 2])
def test_a_hopeless_run_is_aborted(
    locust: Locust, tmp_path: Path, two_processes: tuple[str, ...], processes: int
) -> None:
    with timed_server(tmp_path, "--service", "fixed:0.02", "--fail-every", "2") as server:
        several = two_processes if processes == 2 else ()
        rules = ("--abort-when", "throughput < 1/s", "--abort-when", "failure_ratio > 40%")
        arguments = ("-u", "2", "-r", "2", "-t", "60s", *several, *rules)
        began = time.monotonic()
        run = locust.run(AUTH, *arguments, "-H", server.url, **OS_VARIABLES)
    assert run.exit_code == 1, run.output
    assert re.search(r"Aborted by --abort-when failure_ratio > 40%: (50|49\.\d|50\.\d) % over 5 s", run.output), (
        run.output
    )
    assert 5 < time.monotonic() - began < 30


def test_a_rule_that_is_none_is_refused(locust: Locust) -> None:
    run = locust.run(AUTH, "--objective", "p95(respnse_time) < 1s", "-H", "http://127.0.0.1:1", **OS_VARIABLES)
    assert run.exit_code == 2
    assert "there is no 'respnse_time' here; did you mean response_time?" in run.output
    assert "Traceback" not in run.output


@pytest.mark.parametrize(
    ("text", "window_s"),
    [("failure_ratio > 50%", 5), ("failure_ratio > 50% over 10s", 10), ("p95(response_time)  > 2s over 1 s", 1)],
)
def test_a_rule_to_abort_says_over_how_long(text: str, window_s: int) -> None:
    assert _abortion.read_abortion(text).window_s == window_s


@pytest.mark.parametrize("text", ["failure_ratio > 50% over 0s", "failure_ratio > 50% over 601s", "over 10s", "10s"])
def test_what_is_no_rule_to_abort(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a rule|is held against 1 to 600"):
        _abortion.read_abortion(text)


@pytest.mark.parametrize(("is_open", "most"), [(False, 50), (True, 85.36)])
def test_an_open_load_may_bunch_below_the_ceiling(is_open: bool, most: float) -> None:
    assert _abortion.most_answers(5, is_open) == pytest.approx(most, abs=0.01)
