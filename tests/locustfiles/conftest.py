"""Runs of a real Locust, as a user starts it, against servers whose behaviour is known.

Locust is never imported into the tests' own process: it replaces sockets and threads by gevent's for everyone in it.
"""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.known_server import Answer, Request

LOCUSTFILES = Path(__file__).resolve().parents[2] / "locustfiles"
sys.path.insert(0, str(LOCUSTFILES))

PASSWORD = "planted-Passw0rd-7f3a"
RECORDED = ("--headless", "--only-summary", "--csv", "locust", "--response-times", "response_times")
PLANTED_TOKEN = "gAAAAABplantedtoken"
USERS_HEADER = "username,password,user_domain_id,project_name,project_domain_id"


@dataclasses.dataclass
class Run:
    """A finished run of Locust."""

    exit_code: int
    output: str
    folder: Path

    @property
    def csv_counts(self) -> tuple[int, int]:
        """Requests and failures of `--csv`."""
        total = read_csv(self.folder / "locust_stats.csv")[-1]
        return int(total["Request Count"]), int(total["Failure Count"])

    @property
    def recorded(self) -> Counter[tuple[str, str]]:
        """Responses by endpoint and outcome, of all processes."""
        counts: Counter[tuple[str, str]] = Counter()
        for path in (self.folder / "response_times").glob("*.csv"):
            for row in read_csv(path):
                counts[row["endpoint"], row["outcome"]] += int(row["count"])
        return counts

    def quantile_s(self, clock: str, share: float) -> float:
        """Quantile of all recorded times of a clock, in seconds."""
        counts: Counter[int] = Counter()
        for path in (self.folder / "response_times").glob("*.csv"):
            for row in read_csv(path):
                if row["clock"] == clock:
                    counts[int(row["bucket_us"])] += int(row["count"])
        times_us = sorted(counts.elements())
        return times_us[min(int(len(times_us) * share), len(times_us) - 1)] / 1e6

    def recorded_by(self, clock: str) -> int:
        """Responses recorded by a clock."""
        rows = (row for path in (self.folder / "response_times").glob("*.csv") for row in read_csv(path))
        return sum(int(row["count"]) for row in rows if row["clock"] == clock)

    @property
    def arrivals(self) -> Counter[str]:
        """What became of the arrivals, all processes together."""
        counts: Counter[str] = Counter()
        for process in self.processes:
            counts.update({name: value for name, value in process["arrivals"].items() if name != "late_s"})
        return counts

    @property
    def health(self) -> list[list[dict[str, Any]]]:
        """Each process' health, line by line."""
        files = sorted((self.folder / "response_times").glob("*.health.jsonl"))
        return [[json.loads(line) for line in path.read_text().splitlines()] for path in files]

    @property
    def processes(self) -> list[dict[str, Any]]:
        """What each process recorded of itself."""
        return [json.loads(path.read_text()) for path in sorted((self.folder / "response_times").glob("*.json"))]


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


class Locust:
    """Starts Locust in a folder of its own, without the caller's credentials and configuration."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith(("OS_", "LOCUST_", "STACKSWARM_"))}
        self.environment |= {"HOME": str(folder), "XDG_CONFIG_HOME": str(folder), "PYTHONPATH": str(LOCUSTFILES)}
        self._started: list[subprocess.Popen[bytes]] = []

    def start(self, locustfile: str | Path, *arguments: str, **environment: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "locust", "-f", str(LOCUSTFILES / locustfile), *arguments]
        with (self.folder / "output.txt").open("wb") as output:
            process = subprocess.Popen(
                command,
                cwd=self.folder,
                env=self.environment | environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._started.append(process)
        return process

    def finish(self, process: subprocess.Popen[bytes], timeout_s: float = 60) -> Run:
        code = process.wait(timeout_s)
        return Run(code, (self.folder / "output.txt").read_text(), self.folder)

    def run(self, locustfile: str | Path, *arguments: str, timeout_s: float = 60, **environment: str) -> Run:
        """Run headless with both recordings; further arguments and environment variables as given."""
        return self.finish(self.start(locustfile, *RECORDED, *arguments, **environment), timeout_s)

    def stop_all(self) -> None:
        for process in self._started:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(10)


@pytest.fixture
def locust(tmp_path: Path) -> Iterator[Locust]:
    runs = Locust(tmp_path)
    yield runs
    runs.stop_all()


@pytest.fixture
def two_processes() -> tuple[str, ...]:
    """Arguments for two worker processes, on a port that is free now."""
    port = str(free_port())
    return ("--processes", "2", "--master-bind-host", "127.0.0.1", "--master-bind-port", port, "--master-port", port)


def free_port() -> int:
    """A port below the ephemeral range, so that no outgoing connection takes it in the meantime."""
    import random
    import socket

    for port in random.sample(range(20000, 32000), 50):
        with socket.socket() as sock:
            try:
                sock.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
    raise AssertionError("no free port")


@pytest.fixture
def users_csv(tmp_path: Path) -> Path:
    """Twelve users, whom `keystone()` knows."""
    rows = [f"user{n},{PASSWORD},default,project{n % 3},default" for n in range(12)]
    return write_users(tmp_path / "users.csv", [USERS_HEADER, *rows])


@pytest.fixture
def own_users_csv(tmp_path: Path) -> Path:
    """The same, marked as made for load."""
    rows = [f"user{n},{PASSWORD},default,project{n % 3},default,stackswarm" for n in range(12)]
    (tmp_path / "own").mkdir()
    return write_users(tmp_path / "own" / "users.csv", [f"{USERS_HEADER},created_by", *rows])


def write_users(path: Path, lines: list[str], mode: int = 0o600) -> Path:
    path.write_text("\n".join(lines) + "\n")
    path.chmod(mode)
    return path


OS_VARIABLES = {
    "OS_USERNAME": "admin",
    "OS_PASSWORD": PASSWORD,
    "OS_PROJECT_NAME": "admin",
    "OS_USER_DOMAIN_ID": "default",
    "OS_PROJECT_DOMAIN_ID": "default",
}


def keystone(
    prefix: str = "", change: Callable[[Request], Answer | None] = lambda request: None, after_s: float = 0.01
) -> Callable[[Request], Answer]:
    """A Keystone in so far as the locustfiles see it; `change` may answer a request of the load in another way."""
    revoked: set[str] = set()

    def answer(request: Request) -> Answer:
        path = request.path.partition("?")[0]
        if "/application_credentials" in path:
            return application_credentials(request)
        if path != prefix + "/v3/auth/tokens":
            return error(404, "Not Found")
        changed = None if "setup" in request.headers["user-agent"] else change(request)
        if changed is not None:
            return changed
        if request.method == "DELETE":
            revoked.add(request.headers["x-subject-token"])
            return Answer(204)
        return issue(request, after_s) if request.method == "POST" else validate(request, after_s, revoked)

    return answer


def issue(request: Request, after_s: float) -> Answer:
    auth = json.loads(request.body)["auth"]
    name = proven_user(auth["identity"])
    if name is None or ("scope" in auth) == ("application_credential" in auth["identity"]):
        return error(401, "Unauthorized")
    return Answer(201, {"X-Subject-Token": f"{PLANTED_TOKEN}-{name}"}, token_body(name), after_s)


def proven_user(identity: dict[str, Any]) -> str | None:
    """Name of the user whom a password, token or application credential stands for."""
    (method,) = identity["methods"]
    proof = identity[method]
    if method == "password":
        return proof["user"]["name"] if proof["user"]["password"] == PASSWORD else None
    if method == "token":
        return proof["id"].removeprefix(PLANTED_TOKEN + "-") if proof["id"].startswith(PLANTED_TOKEN) else None
    return proof["id"].removeprefix("credential-of-id-of-") if proof["secret"] == PASSWORD else None


def application_credentials(request: Request) -> Answer:
    user_id = request.path.split("/users/")[1].split("/")[0]
    if request.headers.get("x-auth-token") != f"{PLANTED_TOKEN}-{user_id.removeprefix('id-of-')}":
        return error(403, "Forbidden")
    if request.method == "DELETE":
        return Answer(204)
    made = {"id": f"credential-of-{user_id}", "secret": PASSWORD}
    return Answer(201, {}, json.dumps({"application_credential": made}).encode())


def validate(request: Request, after_s: float, revoked: set[str]) -> Answer:
    token = request.headers.get("x-subject-token", "")
    if request.headers.get("x-auth-token") not in (f"{PLANTED_TOKEN}-admin", token):
        return error(401, "Unauthorized")
    if not token.startswith(PLANTED_TOKEN) or token in revoked:
        return error(404, "Not Found")
    body = b"" if request.method == "HEAD" else token_body(token.removeprefix(PLANTED_TOKEN + "-"))
    return Answer(200, {}, body, after_s)


def token_body(user_name: str) -> bytes:
    return json.dumps({"token": {"user": {"id": f"id-of-{user_name}", "name": user_name}}}).encode()


def error(status: int, title: str, after_s: float = 0.01) -> Answer:
    return Answer(status, {}, json.dumps({"error": {"code": status, "title": title}}).encode(), after_s)


def wait_until(condition: Callable[[], bool], timeout_s: float = 30.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)
