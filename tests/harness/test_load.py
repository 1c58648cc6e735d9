"""The Locust command line, and the windows of a run."""

import dataclasses
import json
from pathlib import Path

import pytest

from analysis.record import LostWorker, ProcessRecord, Window
from harness import load, windows
from harness.load import LoadError
from harness.server import Target
from harness.validate import LOCUSTFILES, read

GOOD = Path(__file__).resolve().parents[2] / "configs/experiments/keystone-processes.yml"
DECLARED = frozenset({"users_csv", "token_pool"})
TARGET = Target("http://127.0.0.1:18000", {"OS_PASSWORD": "hidden"}, {"users-csv": "/scratch/users.csv"})


def command(*overrides: str) -> list[str]:
    file = read(GOOD, overrides)
    return load.command(file.at(file.treatments()[0]), TARGET, load.files(Path("/run")), 1001, DECLARED, lambda: 15001)


def option(argv: list[str], name: str) -> str | None:
    return argv[argv.index(f"--{name}") + 1] if f"--{name}" in argv else None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("host", "http://127.0.0.1:18000"),
        ("users", "4"),
        ("spawn-rate", "4"),
        ("run-time", "10s"),  # 2 s warm-up, 6 s steady state, 2 s to spare
        ("users-csv", "/scratch/users.csv"),
        ("abort-when", None),
        ("response-times", "/run/response_times"),
        ("csv", "/run/locust/locust"),
        ("exit-code-on-error", "0"),
        ("seed", "1001"),
        ("stop-timeout", "65"),  # longer than the 60 s after which a request counts as failed
        ("processes", None),
    ],
)
def test_options(name: str, value: str | None) -> None:
    assert option(command(), name) == value


OPEN = "load={model: open, arrival_rate_rps: 120.5, max_in_flight: 300, max_lateness: 500ms}"
NO_FACTORS = ("factors={}", "baseline={}", "primary={}")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("arrival-rate", "120.5"),
        ("arrival-process", "constant"),
        ("max-in-flight", "300"),
        ("max-lateness", "0.5"),
        ("run-time", "10s"),
        ("users", None),
        ("think-time", None),
    ],
)
def test_options_of_the_open_model(name: str, value: str | None) -> None:
    assert option(command(*NO_FACTORS, OPEN), name) == value


@pytest.mark.parametrize(
    ("rates", "name", "value"),
    [
        ("arrival_steps: '10:2s,10..40:6s'", "arrival-steps", "10:2s,10..40:6s,40:2s"),  # and as long as Locust runs
        ("arrival_steps: '10:2s,40..0:6s'", "arrival-steps", "10:2s,40..0:6s,0:2s"),
        ("arrival_rates: r.csv", "arrival-rates", "/run/arrival_rates.csv"),
        ("arrival_rates: r.csv", "run-time", "10s"),
        ("arrival_rates: r.csv", "arrival-rate", None),
    ],
)
def test_options_of_a_schedule(rates: str, name: str, value: str | None) -> None:
    changes = (*NO_FACTORS, f"load={{model: open, {rates}, max_in_flight: 9}}")
    file = read(GOOD, changes, {"r.csv": "seconds,rate_rps\n8,3\n"})
    assert option(load.command(file.experiment, TARGET, load.files(Path("/run")), 1, DECLARED), name) == value


def test_a_rate_file_goes_on_as_long_as_locust_runs(tmp_path: Path) -> None:
    text = "seconds,rate_rps\n2,10\n6,0.00005\n\n"
    load.write_rates(load.files(tmp_path), text, read(GOOD).experiment.load)
    assert (tmp_path / "arrival_rates.csv").read_text() == "seconds,rate_rps\n2,10\n6,0.00005\n2,0.00005\n"


@pytest.mark.parametrize(("name", "value"), [("requests", "5000"), ("users", "16"), ("run-time", "3125s")])
def test_options_of_a_budget(name: str, value: str) -> None:
    changes = ("load={users: 16, requests: 5000}", "timing={warm_up: 3s}")
    assert option(command(*NO_FACTORS, *changes), name) == value


def test_the_pass_before_a_budget_is_the_warm_up_alone() -> None:
    experiment = read(GOOD, (*NO_FACTORS, "load={users: 16, requests: 5000}", "timing={warm_up: 3s}")).experiment
    warm_up = load.warm_up_pass(experiment)
    argv = load.command(warm_up, TARGET, load.files(Path("/run/warm_up")), 1, DECLARED)
    assert (option(argv, "run-time"), option(argv, "requests")) == ("5s", None)


def test_no_secret_is_on_the_command_line() -> None:
    assert "hidden" not in " ".join(command())


def test_a_locustfile_gets_no_option_that_it_does_not_have() -> None:
    experiment = read(GOOD).experiment
    argv = load.command(experiment, TARGET, load.files(Path("/run")), 1, frozenset())
    assert option(argv, "users-csv") is None


def test_rules_that_abort_a_run_are_passed_on_one_by_one() -> None:
    argv = command("abort_when=['failure_ratio > 50%', 'throughput < 1/s']", "objectives=['failure_ratio < 1%']")
    given = [argv[i + 1] for i, word in enumerate(argv) if word == "--abort-when"]
    assert given == ["failure_ratio > 50%", "throughput < 1/s"]
    assert "--objective" not in argv  # judged by analysis, over all runs


def test_why_locust_aborted_is_read_from_its_log(tmp_path: Path) -> None:
    output = load.files(tmp_path)
    assert load.abortion(output) is None
    output.log.parent.mkdir()
    output.log.write_text("[2026] vm/ERROR/_objectives: Aborted by --abort-when failure_ratio > 50%: 83 % over 5 s.\n")
    assert load.abortion(output) == "aborted by abort_when: failure_ratio > 50%: 83 % over 5 s."
    # The words are the locustfile's, which the harness does not import.
    assert f'ABORTED = "{load.ABORTED}"' in (LOCUSTFILES / "_objectives.py").read_text("utf-8")


def test_a_load_that_ended_with_requests_unanswered_is_no_run(tmp_path: Path) -> None:
    output = load.files(tmp_path)
    output.log.parent.mkdir()
    output.log.write_text("All users spawned\n")
    load.check_answered(output)
    output.log.write_text("Not all users finished their tasks & terminated in 65.0 seconds. Stopping them...\n")
    with pytest.raises(LoadError, match="still unanswered 65 s after"):
        load.check_answered(output)


def test_worker_processes_have_a_master_on_loopback_only() -> None:
    argv = command("load.processes=2", "load.think_time=250ms")
    assert option(argv, "processes") == "2"
    assert option(argv, "run-time") == "11s"  # a second more: so long may the master wait for its workers
    assert option(argv, "master-bind-host") == option(argv, "master-host") == "127.0.0.1"
    assert option(argv, "master-bind-port") == option(argv, "master-port") == "15001"
    assert option(argv, "think-time") == "0.25"


def test_options_of_the_locustfile_are_passed_on() -> None:
    changes = ("workload=keystone_validate", "options.keystone_validate={token_pool: 5}")
    assert option(command(*changes), "token-pool") == "5"


def test_locust_inherits_nothing_that_would_configure_it() -> None:
    foreign = {"LOCUST_USERS": "9", "STACKSWARM_SEED": "9", "OS_CLOUD": "mine", "OS_PASSWORD": "mine"}
    inherited = {**foreign, "PATH": "/bin", "HOME": "/home/me"}
    variables = load.environment(TARGET, inherited, Path("/empty"))
    assert variables == {"PATH": "/bin", "OS_PASSWORD": "hidden", "HOME": "/empty", "PYTHONUNBUFFERED": "1"}


def process(start: float | None, spawned: float | None, stop: float | None) -> ProcessRecord:
    return ProcessRecord("local", 1, "closed", 0.004, start, spawned, stop, {})


@pytest.mark.parametrize(
    ("records", "warm_up", "steady"),
    [
        ([process(100.2, 100.4, 112)], Window(100, 103), Window(103, 109)),
        ([process(100.2, 100.4, 112), process(100.1, 101.3, 112.5)], Window(100, 104), Window(104, 110)),
        ([process(100, 101, 109)], Window(100, 103), Window(103, 109)),
    ],
)
def test_windows(records: list[ProcessRecord], warm_up: Window, steady: Window) -> None:
    assert windows.windows(records, 2.0, 6.0) == {"warm_up": warm_up, "steady_state": steady}


def test_a_budget_is_measured_from_when_all_users_are_there_to_the_last_end() -> None:
    records = [process(100.25, 100.4, 112.5), process(100.5, 100.9, 113.75)]
    assert windows.budget_windows(records) == {"steady_state": Window(100, 114, 13.35, 100.4)}
    assert windows.budget_windows(records)["steady_state"].length_s == 13.35
    with pytest.raises(LoadError, match="was lost"):
        windows.budget_windows([*records, process(100, 100.5, None)])


@pytest.mark.parametrize(
    ("records", "reason"),
    [
        ([process(100, 100.4, 108.9)], "the load ended 0.1 s before the steady state did"),
        ([process(100, None, 112)], "never had all its users running"),
        ([process(100, 100.5, None), process(100, 100.5, 112)], "a Locust process was lost"),
    ],
)
def test_a_run_without_a_whole_steady_state_is_no_run(records: list[ProcessRecord], reason: str) -> None:
    with pytest.raises(LoadError, match=reason):
        windows.windows(records, 2.0, 6.0)


def worker(name: str, stop: float | None) -> ProcessRecord:
    return ProcessRecord(name, 1, "open", 0.004, 100.2, 100.4, stop, {})


def test_the_windows_of_a_run_that_lost_a_worker_are_those_of_the_others() -> None:
    records = [worker("worker-0", None), worker("worker-1", 112)]
    assert windows.windows(records, 2.0, 6.0, ["worker-0"])["steady_state"] == Window(103, 109)
    with pytest.raises(LoadError, match="every Locust process was lost"):
        windows.windows(records, 2.0, 6.0, ["worker-0", "worker-1"])


def test_lost_workers(tmp_path: Path) -> None:
    output = load.files(tmp_path)
    output.response_times.mkdir()
    assert load.lost_workers(output) == []
    rows = [{"process": f"worker-{n}", "share": 0.25, "of": "arrivals", "noticed_unix_s": 200.5} for n in (0, 3)]
    (output.response_times / "lost-workers.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (output.response_times / "worker-3.health.jsonl").write_text('{"second": 194}\n{"second": 195}\n{"seco')
    expected = [LostWorker("worker-0", 0.25, "arrivals", None), LostWorker("worker-3", 0.25, "arrivals", 196)]
    assert load.lost_workers(output) == expected
    (output.response_times / "lost-workers.jsonl").write_text("{")
    with pytest.raises(LoadError, match="cannot be read"):
        load.lost_workers(output)


def test_counts_among_the_facts_are_added_over_processes() -> None:
    parts: tuple[dict[str, object], ...] = (
        {"token_format": "fernet", "expired_tokens_count": 2},
        {"token_format": "fernet"},
        {"token_format": "fernet", "expired_tokens_count": 3},
    )
    records = [dataclasses.replace(process(1.0, 1.5, 9.0), facts=facts) for facts in parts]
    assert load.facts(records) == {"token_format": "fernet", "expired_tokens_count": 5}


def test_run_time_is_whole_seconds_and_not_shorter() -> None:
    assert option(command("timing.warm_up=1500ms"), "run-time") == "10s"


@pytest.mark.parametrize(("ceiling", "expected"), [("", None), (", rate_ceiling: 12.5/s", "12.5")])
def test_on_an_external_server_locust_is_told_when_to_end(tmp_path: Path, ceiling: str, expected: str | None) -> None:
    lines = [line for line in GOOD.read_text().splitlines() if not line.startswith("dataset:")]
    file = tmp_path / "theirs.yml"
    file.write_text("\n".join(lines))
    given = read(file, (*NO_FACTORS, f"server={{external: {{host: 'http://127.0.0.1:5000'{ceiling}}}}}"))
    argv = load.command(given.experiment, TARGET, load.files(Path("/run")), 1, DECLARED)
    assert option(argv, "abort-when") == "failure_ratio >= 50% over 10s"
    assert option(argv, "rate-ceiling") == expected
