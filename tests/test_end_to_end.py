"""The whole way, on a real Keystone: command line → server → Locust → record → report.

Slow tests, about two minutes in all. What they assert is counts, folders and texts, never how fast anything was.
"""

import csv
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import psutil
import pytest

from analysis import record

REPOSITORY = Path(__file__).resolve().parent.parent
SERVERS = REPOSITORY / ".servers"
EXPERIMENT = """
question: Does the whole way work?
workload: keystone_auth
server:
  system: keystone
  configuration: uwsgi
  parameters: {processes: 1, token_provider: fernet, cache: dict, hash_rounds: 4}
dataset: {projects: 2, users_per_project: 20}
load: {users: 4}
timing: {warm_up: 1s, steady_state: 3s}
"""
PLANTED = {"OS_PASSWORD": "planted-os-password", "OS_TOKEN": "planted-os-token", "LOCUST_USERS": "77"}


def harness(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "harness", *map(str, arguments)]


def environment(home: Path) -> dict[str, str]:
    """A user's environment that would spoil the run, or leak into it, if anything of it were taken over."""
    (home / ".config/openstack").mkdir(parents=True, exist_ok=True)
    cloud = "clouds: {mine: {auth: {auth_url: http://127.0.0.1:9, username: me, password: planted-cloud-password}}}"
    (home / ".config/openstack/clouds.yaml").write_text(cloud)
    (home / ".locust.conf").write_text("users = 55\n")
    return {**os.environ, **PLANTED, "OS_CLOUD": "mine", "HOME": str(home)}


def secrets() -> set[str]:
    """Every secret there is: planted ones, and those of all prepared Keystones."""
    found = {"planted-os-password", "planted-os-token", "planted-cloud-password"}
    for state in (SERVERS / "prepared").glob("keystone-*"):
        if (state / "users.csv").exists():
            with (state / "users.csv").open() as file:
                found |= {row["password"] for row in csv.DictReader(file)}
            found.add((state / "admin-password").read_text())
    return found


class ProcessList(threading.Thread):
    """Every command line seen while the experiment ran."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.seen: set[str] = set()
        self.stopped = threading.Event()

    def run(self) -> None:
        while not self.stopped.wait(0.1):
            for process in psutil.process_iter(["cmdline"]):
                self.seen.add(" ".join(process.info["cmdline"] or ()))


class Done:
    """A finished `harness run`."""

    def __init__(self, folder: Path, process: subprocess.CompletedProcess[str], processes: set[str]) -> None:
        self.folder, self.status, self.processes = folder, process.returncode, processes
        self.text = process.stdout + process.stderr
        self.runs = [(f, record.read_run(f)) for f in record.run_folders(folder)]


def run_experiment(place: Path, *arguments: str) -> Done:
    file = place / "whole-way.yml"
    file.write_text(EXPERIMENT)
    watch = ProcessList()
    watch.start()
    command = harness("run", file, "-o", place / "result", *arguments)
    done = subprocess.run(
        command,
        cwd=REPOSITORY,
        env=environment(place / "home"),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    watch.stopped.set()
    watch.join()
    return Done(place / "result", done, watch.seen)


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Done:
    """One process against two, at two levels of load on the same server, once each."""
    factors = "factors={server.parameters.processes: [1, 2], load.users: [3, 4]}"
    baseline = "baseline={server.parameters.processes: 1}"
    return run_experiment(tmp_path_factory.mktemp("compared"), "--set", factors, "--set", baseline)


@pytest.fixture(scope="module")
def validated(tmp_path_factory: pytest.TempPathFactory) -> Done:
    """Token validation of JWS tokens, from two Locust processes, with memcached."""
    changes = (
        "workload=keystone_validate",
        "server.parameters.token_provider=jws",
        "server.parameters.cache=memcached",
        "load.processes=2",
        "options={keystone_validate: {token_pool: 3}}",
    )
    flags = [word for change in changes for word in ("--set", change)]
    return run_experiment(tmp_path_factory.mktemp("validated"), *flags)


@pytest.fixture(params=["compared", "validated"])
def done(request: pytest.FixtureRequest) -> Done:
    finished: Done = request.getfixturevalue(request.param)
    return finished


def recorded(run: Path, outcome: str = "success") -> int:
    files = sorted((run / "response_times").glob("*.csv"))
    assert files
    rows = [row for file in files for row in csv.DictReader(file.open())]
    return sum(int(row["count"]) for row in rows if row["outcome"] == outcome)


def logged(run: Path, agent: str, status: int) -> int:
    log = (run / "server/uwsgi.log").read_text()
    return len(re.findall(rf'^request .* status={status} .* agent="{agent}"$', log, re.MULTILINE))


def locust_total(run: Path) -> tuple[int, int]:
    rows = list(csv.DictReader((run / "locust/locust_stats.csv").open()))
    total = next(row for row in rows if row["Name"] == "Aggregated")
    return int(total["Request Count"]), int(total["Failure Count"])


def test_every_run_is_complete_and_the_exit_status_says_so(done: Done) -> None:
    assert done.status == 0, done.text
    assert [outcome.status for _, outcome in done.runs] == ["complete"] * len(done.runs)


def test_counts_equal_those_of_the_servers_request_log(done: Done) -> None:
    for folder, outcome in done.runs:
        expected = 201 if outcome.workload == "keystone_auth" else 200
        count = recorded(folder)
        assert count > 10
        assert count == logged(folder, f"stackswarm-{outcome.workload}", expected)
        assert locust_total(folder) == (count, 0)


def test_a_run_says_what_it_ran_against(compared: Done, validated: Done) -> None:
    one, two = (
        next(outcome for _, outcome in compared.runs if outcome.treatment["server.parameters.processes"] == n)
        for n in (1, 2)
    )
    assert one.server["configuration_sha256"] != two.server["configuration_sha256"]
    assert (one.server["version"], one.locust["facts"]["token_format"]) == ("30.0.0", "fernet")
    [(folder, jws)] = validated.runs
    assert jws.locust["facts"]["token_format"] == "jws"
    assert len(list((folder / "response_times").glob("worker-*.csv"))) == 2
    assert "memcached" in (folder / "usage.csv").read_text()


def test_both_processes_answered(compared: Done) -> None:
    for folder, outcome in compared.runs:
        log = (folder / "server/uwsgi.log").read_text()
        workers = set(re.findall(r"^request worker=(\d) status=201 .*keystone_auth", log, re.MULTILINE))
        assert len(workers) == outcome.treatment["server.parameters.processes"]


def test_usage_of_server_and_generator_was_sampled_through_the_steady_state(done: Done) -> None:
    for folder, outcome in done.runs:
        rows = list(csv.DictReader((folder / "usage.csv").open()))
        window = outcome.windows["steady_state"]
        for role in ("server", "generator"):
            times = [float(row["time_unix_s"]) for row in rows if row["role"] == role]
            assert min(times) < window.start_unix_s and max(times) >= window.end_unix_s


def text_of(file: Path) -> str:
    # Parquet has its schema in it, in base64 with the zeros that a Fernet token begins with.
    return pd.read_parquet(file).to_csv() if file.suffix == ".parquet" else file.read_text(errors="replace")


def test_no_secret_is_in_any_result_or_process_list(done: Done) -> None:
    texts = {str(p): text_of(p) for p in done.folder.rglob("*") if p.is_file()}
    texts |= {"output": done.text, "process list": "\n".join(done.processes)}
    known = secrets()
    assert len(known) >= 5
    assert any("uwsgi --ini" in line for line in done.processes) and any("locust -f" in line for line in done.processes)
    assert {name for name, text in texts.items() if any(secret in text for secret in known)} == set()
    tokens = re.compile(r"gAAAAA[\w-]{60}|eyJ[\w-]{60}")
    assert {name for name, text in texts.items() if tokens.search(text)} == set()


def test_nothing_is_left_running_and_no_scratch_folder_is_left(done: Done) -> None:
    assert not [p for p in psutil.process_iter(["cmdline"]) if str(done.folder) in " ".join(p.info["cmdline"] or ())]
    mine = {word for line in done.processes for word in line.split() if "/.servers/scratch/" in word}
    assert mine
    assert not [path for path in mine if Path(path).exists()]


def test_the_report_is_printed_and_written(compared: Done) -> None:
    printed = " ".join(compared.text.split())
    assert "inconclusive: With processes = 2, throughput at users = " in printed
    assert "replicates a side" in printed
    page = (compared.folder / "report/index.html").read_text()
    assert "cache = dict, and ships with null" in page
    assert json.loads((compared.folder / "report/verdicts.json").read_text())


@pytest.fixture
def begun(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """A `harness run` of two runs on one server, in the middle of the second."""
    file = tmp_path / "whole-way.yml"
    file.write_text(EXPERIMENT)
    command = harness("run", file, "-o", tmp_path / "result", "--no-report", "--set", "factors={load.users: [3, 4]}")
    process = subprocess.Popen(command, cwd=REPOSITORY, stderr=subprocess.PIPE, text=True)
    runs = tmp_path / "result/runs"
    deadline = time.monotonic() + 120
    while not (len(list(runs.glob("001*rep1"))) == 1 and any(runs.glob("002*.partial/response_times/*.csv"))):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    yield process, tmp_path / "result"
    process.kill()
    process.wait()


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_ends_it_within_ten_seconds_and_resume_does_the_rest(
    begun: tuple[subprocess.Popen[str], Path], number: signal.Signals, status: int
) -> None:
    process, folder = begun
    family = psutil.Process(process.pid).children(recursive=True)
    assert len(family) >= 4
    kept = {p: p.read_bytes() for p in (folder / "runs").glob("001*rep1/**/*") if p.is_file()}
    process.send_signal(number)
    _, said = process.communicate(timeout=10)
    assert process.returncode == status
    assert "interrupted" in said and "Traceback" not in said
    assert [p for p in family if p.is_running() and p.status() != psutil.STATUS_ZOMBIE] == []
    assert len(record.run_folders(folder)) == 1

    resume = harness("run", "--resume", os.path.relpath(folder, REPOSITORY), "--no-report")
    again = subprocess.run(resume, cwd=REPOSITORY, timeout=120, check=False)
    assert again.returncode == 0
    assert [record.read_run(f).number for f in record.run_folders(folder)] == [1, 2]
    assert {p: p.read_bytes() for p in kept} == kept


def test_a_killed_run_is_cleared_away_by_the_next_one(begun: tuple[subprocess.Popen[str], Path]) -> None:
    process, folder = begun
    family = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    process.wait()
    resume = harness("run", "--resume", folder, "--no-report")
    assert subprocess.run(resume, cwd=REPOSITORY, timeout=120, check=False).returncode == 0
    assert [p for p in family if p.is_running() and p.status() != psutil.STATUS_ZOMBIE] == []


def test_resume_refuses_an_experiment_that_was_edited(compared: Done, tmp_path: Path) -> None:
    copy = tmp_path / "result"
    shutil.copytree(compared.folder, copy)
    text = (copy / "experiment.yml").read_text()
    (copy / "experiment.yml").write_text(text.replace("users_per_project: 20", "users_per_project: 3"))
    resume = harness("run", "--resume", copy)
    done = subprocess.run(resume, cwd=REPOSITORY, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2
    assert "(other: held_constant)" in done.stderr and "Traceback" not in done.stderr
