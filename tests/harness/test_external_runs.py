"""Runs of a real Locust on somebody else's server: levels that the operator sets, and loads that it does not bear."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from analysis import record
from analysis.record import RunRecord
from harness import external, runner
from harness.external import Consent
from harness.validate import read
from tests.known_server import Answer, KnownServer, Request

from .conftest import Quiet

REPOSITORY = Path(__file__).resolve().parents[2]
SETUP = "stackswarm-setup"
TOKEN = {"token": {"user": {"id": "u"}, "issued_at": "2026-01-01T00:00:00Z", "expires_at": "2026-01-02T00:00:00Z"}}
PASSWORD = "planted-password"
EXPERIMENT = """
question: Is their server faster with the other delay?
workload: keystone_auth
server:
  external:
    host: {url}
    parameters: {{delay_ms: 10}}
    apply: [{python}, {flip}, "{url}/set/{{parameters.delay_ms}}"]
    probe: {{get: /status, contains: "delay {{parameters.delay_ms}}", timeout: 1s}}
    users_csv: {users}
load: {{users: 2}}
timing: {{warm_up: 200ms, steady_state: 1s}}
"""
LEVELS = "factors={server.external.parameters.delay_ms: [10, 40]}"
FLIP = "import sys, urllib.request\nprint(urllib.request.urlopen(sys.argv[1]).read().decode())\n"


class Theirs:
    """A little Keystone that answers after a delay, which a GET of /set/MS changes."""

    def __init__(self) -> None:
        self.delay_ms = "0"
        self.status = 201
        self.credentials: set[str] = set()
        self.credentials_made = 0

    def answer(self, request: Request) -> Answer:
        if request.path.startswith("/set/"):
            self.delay_ms = request.path.removeprefix("/set/")
            return Answer(body=f"set by {PASSWORD}".encode())
        if request.path == "/status":
            return Answer(body=f"delay {self.delay_ms}".encode())
        if "application_credentials" in request.path:
            return self.keep(request)
        is_load = request.headers.get("user-agent") != SETUP
        after_s = int(self.delay_ms) / 1000 if is_load else 0.0
        status = self.status if is_load else 201
        return Answer(status, {"X-Subject-Token": "gAAAAABplanted"}, json.dumps(TOKEN).encode(), after_s)

    def keep(self, request: Request) -> Answer:
        if request.method == "DELETE":
            self.credentials.discard(request.path.rsplit("/", 1)[1])
            return Answer(204)
        self.credentials_made += 1
        self.credentials.add(f"id{self.credentials_made}")
        made = {"id": f"id{self.credentials_made}", "secret": "s"}
        return Answer(201, body=json.dumps({"application_credential": made}).encode())


@pytest.fixture
def theirs() -> Theirs:
    return Theirs()


@pytest.fixture
def experiment(server: KnownServer, tmp_path: Path) -> Path:
    users, flip, file = tmp_path / "users.csv", tmp_path / "flip.py", tmp_path / "theirs.yml"
    columns = "username,password,user_domain_id,project_name,project_domain_id"
    users.touch(mode=0o600)
    users.write_text(f"{columns}\n" + "".join(f"u{i},{PASSWORD},default,p,default\n" for i in range(4)))
    flip.write_text(FLIP)
    file.write_text(EXPERIMENT.format(url=server.url, python=sys.executable, flip=flip, users=users))
    return file


Run = Callable[..., list[tuple[Path, RunRecord]]]


@pytest.fixture
def run(experiment: Path, tmp_path: Path) -> Run:
    """run(changes…) → folders and records of the runs that were made."""

    def doing(*changes: str, consent: Consent = Consent(allow_apply=True)) -> list[tuple[Path, RunRecord]]:  # noqa: B008
        file = read(experiment, changes)
        folder = tmp_path / "result"
        (folder / "runs").mkdir(parents=True)
        record.write_experiment(folder, runner.describe(file))
        outcomes = runner.run(file, folder, Quiet(), consent)
        found = [(path, record.read_run(path)) for path in record.run_folders(folder)]
        assert len(found) == len(outcomes)
        return found

    return doing


def test_each_level_is_set_and_measured(run: Run, server: KnownServer, tmp_path: Path) -> None:
    found = run(LEVELS)
    assert [(outcome.status, outcome.reason) for _, outcome in found] == [("complete", None)] * 2
    for path, outcome in found:
        delay_ms = outcome.treatment["server.external.parameters.delay_ms"]
        assert outcome.server == {"external": {"host": server.url, "parameters": {"delay_ms": delay_ms}}}
        rows = [line.split(",") for line in (path / "response_times/local.csv").read_text().splitlines()[1:]]
        times_us = [int(row[-2]) for row in rows if row[2] == "success"]
        assert sorted(times_us)[len(times_us) // 2] == pytest.approx(1000 * float(str(delay_ms)), rel=0.6)
        roles = {line.split(",")[1] for line in (path / "usage.csv").read_text().splitlines()[1:]}
        assert roles == {"generator"}
        assert f"set by [redacted]" in (path / "server/operator.log").read_text()  # noqa: F541
    assert not [p for p in (tmp_path / "result").rglob("*") if p.is_file() and PASSWORD in p.read_text()]
    notes = record.read_experiment(tmp_path / "result").notes
    assert notes[0].startswith(f"{server.url} was an external server: not started by this experiment; its state before")


def test_a_server_that_fails_is_left_alone(
    run: Run, theirs: Theirs, server: KnownServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # Here everything is loopback. The runner is told otherwise; the experiment was read before that.
    theirs.status = 429
    monkeypatch.setattr(external, "is_loopback", lambda _: False)
    consent = Consent.of(["127.0.0.1"], allow_apply=True)
    changes = (LEVELS, "server.external.rate_ceiling=500/s", "timing.steady_state=40s")
    began = time.time()
    found = run(*changes, consent=consent)
    ((_, outcome),) = found  # and the other level is not tried
    assert (outcome.status, outcome.reason) == (
        "failed", "aborted by abort_when: failure_ratio >= 50%: 100 % over 10 s.",
    )  # fmt: skip
    load = [line.time_unix_s for line in server.logged("stackswarm-keystone_auth")]
    assert load and max(load) - min(load) < 15 and time.time() - began < 40
    # Runs that nobody dared to make are no result: the gate says so, whatever the rules may be.
    for rules in ((), ("--rule", "failure_ratio < 1%")):
        gate = [sys.executable, "-m", "analysis", "gate", str(tmp_path / "result"), *rules]
        done = subprocess.run(gate, cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 4, done.stdout + done.stderr
        assert "invalid: 0 of 2 planned runs complete" in done.stdout


def test_a_run_too_short_for_ten_seconds_of_failures_fails_all_the_same(run: Run, theirs: Theirs) -> None:
    theirs.status = 503
    ((_, outcome),) = run()
    assert (outcome.status, outcome.reason) == ("failed", "100 % of the answers were failures (429 counts as one)")


def test_a_closed_load_above_the_ceiling_is_ended(run: Run, server: KnownServer) -> None:
    ((_, outcome),) = run("server.external.rate_ceiling=10/s", "timing.steady_state=20s")
    assert outcome.status == "failed" and outcome.reason is not None
    assert outcome.reason.startswith("aborted by rate_ceiling: 10/s: ")
    # 200 a second were possible: 10 s hold 100, and what is beyond them came before the next look, a second later.
    assert 100 < len(server.logged("stackswarm-keystone_auth")) < 450


def harness(*arguments: str) -> subprocess.Popen[str]:
    variables = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    command = [sys.executable, "-m", "harness", *arguments]
    return subprocess.Popen(
        command, cwd=REPOSITORY, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def wait_for(what: Callable[[], bool], timeout_s: float = 30) -> None:
    deadline = time.monotonic() + timeout_s
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_without_consent_nothing_is_run_and_all_is_shown(experiment: Path, tmp_path: Path, server: KnownServer) -> None:
    with harness("run", str(experiment), "--set", LEVELS, "--output", str(tmp_path / "out")) as process:
        output, _ = process.communicate(timeout=60)
    assert process.returncode == 2
    for level in (10, 40):
        assert f"{sys.executable} {tmp_path / 'flip.py'} {server.url}/set/{level}" in output.replace("\n", " ")
    assert "--allow-apply" in output and "Traceback" not in output
    assert server.log == [] and not (tmp_path / "out").exists()


def other_address() -> str | None:
    """An address of this machine's own that is not loopback."""
    found = [a.address for addresses in psutil.net_if_addrs().values() for a in addresses if a.family == socket.AF_INET]
    return next((address for address in found if not address.startswith("127.")), None)


@pytest.mark.skipif(other_address() is None, reason="this machine has no address but the loopback one")
def test_load_that_would_leave_the_machine_takes_consent(experiment: Path, tmp_path: Path, server: KnownServer) -> None:
    host = f"http://{other_address()}:1"
    changes = ("--set", f"server={{external: {{host: '{host}', rate_ceiling: 5/s}}}}", "--i-may-load", "192.0.2.77")
    with harness("run", str(experiment), *changes, "--output", str(tmp_path / "out")) as process:
        output, _ = process.communicate(timeout=60)
    assert process.returncode == 2
    assert f"--i-may-load {other_address()}" in output and not (tmp_path / "out").exists()


def test_ctrl_c_leaves_nothing_on_the_server(
    experiment: Path, tmp_path: Path, server: KnownServer, theirs: Theirs
) -> None:
    changes = ("--set", "options={keystone_auth: {auth_method: application_credential}}", "--allow-apply")
    arguments = (*changes, "--set", "timing.steady_state=60s", "--output", str(tmp_path / "out"))
    with harness("run", str(experiment), *arguments) as process:
        wait_for(lambda: len(server.logged("stackswarm-keystone_auth")) > 20)
        assert len(theirs.credentials) == theirs.credentials_made == 4
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=40)
    assert process.returncode == 130
    assert theirs.credentials == set()


def test_ctrl_c_ends_an_apply_with_all_its_children(experiment: Path, tmp_path: Path) -> None:
    # It comes as early as it can: from the command itself.
    note = tmp_path / "child"
    hang = ["sh", "-c", f"sleep 61 & echo $! > {note}; kill -INT $PPID; wait"]
    change = f"server.external.apply={json.dumps(hang)}"
    arguments = ("--set", change, "--allow-apply", "--output", str(tmp_path / "out"))
    with harness("run", str(experiment), *arguments) as process:
        process.communicate(timeout=60)
    assert process.returncode == 130
    child = int(note.read_text())
    wait_for(lambda: not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE, 10)
