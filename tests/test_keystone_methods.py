"""Every way to authenticate and to validate, on one real Keystone: what Locust counted is what the server logged.

One server, started by the harness's own modules; each case is one run of Locust, a few at the same time. Nothing
here says how fast anything was.
"""

import concurrent.futures
import contextlib
import csv
import dataclasses
import os
import re
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness import configuration, server
from harness.systems import keystone

REPOSITORY = Path(__file__).resolve().parent.parent
AUTH, VALIDATE = "keystone_auth", "keystone_validate"
POST, GET, HEAD = (f"{method} /v3/auth/tokens" for method in ("POST", "GET", "HEAD"))
REQUESTS = 20
TENTH = ("--wrong-passwords", "0.1")


@dataclasses.dataclass(frozen=True)
class Up:
    """The Keystone."""

    running: server.Running
    database: Path

    @property
    def log(self) -> str:
        return self.running.server.processes[-1].log.read_text()


@pytest.fixture(scope="module")
def up() -> Iterator[Up]:
    chosen = configuration.read("keystone", "uwsgi")
    parameters: dict[str, configuration.Value] = {
        **{"processes": 1, "token_provider": "fernet", "cache": "dict", "hash_rounds": 4},
    }
    prepared = keystone.prepare(chosen, parameters, {"projects": 2, "users_per_project": 20}, lambda message: None)
    places: list[Path] = []

    def make(place: Path) -> server.Server:
        places.append(place)
        return keystone.server(prepared, place, chosen, parameters)

    with server.scratch_folder() as scratch, server.running(make, scratch) as running:
        yield Up(running, places[-1] / "state/keystone.db")


@dataclasses.dataclass(frozen=True)
class Case:
    """How Locust is started, and the requests that are expected: name, status and the names of the outcomes."""

    workload: str
    options: tuple[str, ...]
    expected: dict[str, int]


def auth(method: str, name: str, scope: str, *more: str) -> Case:
    return Case(AUTH, ("--auth-method", method, "--scope", scope, *more), {POST + name: 201})


TWO = ("--processes", "2", "--master-bind-host", "127.0.0.1", "--master-bind-port", "{port}", "--master-port", "{port}")
CASES = {
    **{f"password, {s}": auth("password", "", s) for s in ("project", "domain", "system", "unscoped")},
    **{f"token, {s}": auth("token", " (token)", s) for s in ("project", "domain", "system", "unscoped")},
    "application credential": auth("application_credential", " (application credential)", "project"),
    "application credential, two processes": auth(
        "application_credential", " (application credential)", "project", *TWO
    ),
    "wrong passwords": Case(AUTH, TENTH, {POST: 201, f"{POST} (wrong password)": 401}),
    "no catalogue, new connections": auth("password", "", "project", "--catalog", "no", "--connection", "new"),
    "GET": Case(VALIDATE, (), {GET: 200}),
    "GET, own": Case(VALIDATE, ("--caller", "own", "--catalog", "no"), {GET: 200}),
    "HEAD": Case(VALIDATE, ("--http-method", "HEAD"), {HEAD: 200}),
    "HEAD, own": Case(VALIDATE, ("--http-method", "HEAD", "--caller", "own"), {HEAD: 200}),
    "revoked": Case(VALIDATE, ("--revoked-tokens", "0.25"), {GET: 200, f"{GET} (revoked)": 404}),
}


def run(up: Up, case: Case, folder: Path) -> str:
    """What Locust said, if it did not end well."""
    target, port = up.running.target, str(server.free_port())
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("OS_", "LOCUST_", "STACKSWARM_"))}
    command = [sys.executable, "-m", "locust", "-f", str(REPOSITORY / f"locustfiles/{case.workload}.py"), "--headless"]
    command += ["--only-summary", "-H", target.url, "-u", "2", "-r", "100", "--requests", str(REQUESTS), "-t", "60s"]
    command += ["--prepared-users" if case.workload == AUTH else "--token-pool", "4", "--response-times", "times"]
    command += ["--users-csv", target.options["users-csv"], *(word.format(port=port) for word in case.options)]
    done = subprocess.run(
        command, cwd=folder, env={**kept, **target.environment, "HOME": str(folder)},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    return "" if done.returncode == 0 else f"{case}: {done.stdout}{done.stderr}"


def recorded(folder: Path) -> Counter[tuple[str, str]]:
    counts: Counter[tuple[str, str]] = Counter()
    for path in (folder / "times").glob("*.csv"):
        for row in csv.DictReader(path.open()):
            counts[row["endpoint"], row["outcome"]] += int(row["count"])
    return counts


@pytest.fixture(scope="module")
def finished(up: Up, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Counter[tuple[str, str]]]:
    """What each case counted."""
    folders = {name: tmp_path_factory.mktemp("case") for name in CASES}
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        problems = list(pool.map(run, [up] * len(CASES), CASES.values(), folders.values()))
    assert "".join(problems) == ""
    return {name: recorded(folder) for name, folder in folders.items()}


def test_every_way_succeeds_under_its_own_name(finished: dict[str, Counter[tuple[str, str]]]) -> None:
    assert {name: {endpoint for endpoint, _ in counts} for name, counts in finished.items()} == {
        name: set(case.expected) for name, case in CASES.items()
    }
    assert {outcome for counts in finished.values() for _, outcome in counts} == {"success"}
    assert {sum(counts.values()) for counts in finished.values()} == {REQUESTS}


def test_counts_equal_those_of_the_servers_log(up: Up, finished: dict[str, Counter[tuple[str, str]]]) -> None:
    counted: Counter[tuple[str, str, str, str]] = Counter()
    for name, case in CASES.items():
        query = "?nocatalog" if "--catalog" in case.options else ""
        for endpoint, status in case.expected.items():
            key = endpoint.split()[0], query, str(status), case.workload
            counted[key] += finished[name][endpoint, "success"]
    line = r"^request .* status=(\d+) method=(\w+) path=/v3/auth/tokens(\S*) .* agent=\"stackswarm-(keystone_\w+)\"$"
    found = re.findall(line, up.log, re.MULTILINE)
    assert counted == Counter((method, query, status, agent) for status, method, query, agent in found)


def test_a_tenth_of_the_passwords_and_a_quarter_of_the_tokens_were_wrong(
    finished: dict[str, Counter[tuple[str, str]]],
) -> None:
    passwords, tokens = (min(finished[name].values()) for name in ("wrong passwords", "revoked"))
    assert passwords == REQUESTS // 10
    # Two users walk through the four tokens of the pool, one of which was revoked.
    assert abs(tokens - REQUESTS // 4) <= 2


@pytest.mark.usefixtures("finished")
def test_no_application_credential_stays(up: Up) -> None:
    made = re.findall(r"status=201 method=POST path=/v3/users/\w+/application_credentials ", up.log)
    removed = re.findall(r"status=204 method=DELETE path=/v3/users/\w+/application_credentials/", up.log)
    assert len(made) == len(removed) == 4 + 2 * 4
    with contextlib.closing(sqlite3.connect(up.database)) as database:
        assert database.execute("SELECT count(*) FROM application_credential").fetchone() == (0,)
