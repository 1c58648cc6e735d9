"""The Keystone workloads as a user starts them, against a Keystone whose behaviour is known."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.known_server import Answer, KnownServer, Request

from .conftest import (
    LOCUSTFILES,
    OS_VARIABLES,
    PASSWORD,
    PLANTED_TOKEN,
    RECORDED,
    Locust,
    error,
    free_port,
    keystone,
    read_csv,
    wait_until,
    write_users,
)

AUTH = "keystone_auth.py"
VALIDATE = "keystone_validate.py"
POST = "POST /v3/auth/tokens"
GET = "GET /v3/auth/tokens"
SHORT = ("-u", "4", "-r", "100", "-t", "1s")


def assert_no_secret(run_folder: Path, output: str) -> None:
    assert PASSWORD not in output
    assert PLANTED_TOKEN not in output
    for path in run_folder.rglob("*"):
        if path.is_file() and path.name != "users.csv":
            text = path.read_text(errors="replace")
            assert PASSWORD not in text, path
            assert PLANTED_TOKEN not in text, path


def test_authentication_counts_agree_and_no_secret_leaks(locust: Locust, users_csv: Path) -> None:
    with KnownServer(keystone()) as server:
        run = locust.run(AUTH, *SHORT, "-H", server.url + "/v3/", "--users-csv", str(users_csv), "-L", "DEBUG")
        sent = len(server.logged("stackswarm-keystone_auth"))
    assert run.exit_code == 0, run.output
    assert run.csv_counts == (sent, 0)
    assert run.recorded == {(POST, "success"): sent}
    assert len(server.logged("stackswarm-setup")) == 1
    (process,) = run.processes
    assert process["process"] == "local"
    assert process["facts"] == {"token_format": "fernet"}
    assert process["model"] == "closed"
    start, spawned, stop = (process[f"{name}_unix_s"] for name in ("test_start", "spawning_complete", "test_stop"))
    assert start <= spawned < stop
    assert_no_secret(locust.folder, run.output)


def test_two_processes_share_users_and_counts(locust: Locust, users_csv: Path, two_processes: tuple[str, ...]) -> None:
    names: list[str] = []

    def remember(request: Request) -> None:
        names.append(json.loads(request.body)["auth"]["identity"]["password"]["user"]["name"])

    with KnownServer(keystone(change=remember, after_s=0.05)) as server:
        run = locust.run(AUTH, *SHORT, *two_processes, "-H", server.url, "--users-csv", str(users_csv))
        sent = len(server.logged("stackswarm-keystone_auth"))
    assert run.exit_code == 0, run.output
    assert run.csv_counts == (sent, 0)
    assert run.recorded == {(POST, "success"): sent}
    assert [process["process"] for process in run.processes] == ["worker-0", "worker-1"]
    # Twelve Keystone users, four Locust users: the first four requests are of four, and every one has been taken.
    assert len(set(names[:4])) == 4
    assert len(set(names)) == 12


def test_validation_with_a_pool(locust: Locust, users_csv: Path, two_processes: tuple[str, ...]) -> None:
    tokens: set[str] = set()

    def remember(request: Request) -> None:
        tokens.add(request.headers["x-subject-token"])

    with KnownServer(keystone(prefix="/identity", change=remember)) as server:
        arguments = (*RECORDED, *SHORT, *two_processes, "--users-csv", str(users_csv), "--token-pool", "5")
        process = locust.start(VALIDATE, *arguments, OS_AUTH_URL=server.url + "/identity/v3", **OS_VARIABLES)
        wait_until(lambda: len(server.logged("stackswarm-keystone_validate")) > 0)
        commands = [p.cmdline() for p in processes_in(locust.folder)]
        run = locust.finish(process)
        sent = server.logged("stackswarm-keystone_validate")
        made = server.logged("stackswarm-setup")
    assert run.exit_code == 0, run.output
    assert run.csv_counts == (len(sent), 0)
    assert run.recorded == {(GET, "success"): len(sent)}
    assert [process["facts"] for process in run.processes] == [{"token_format": "fernet", "token_pool": 5}] * 2
    assert len(made) == 2 + 2 * (1 + 5)  # two logins to check; in each process the caller and the pool
    assert len(tokens) == 5
    assert len(commands) == 3
    assert PASSWORD not in str(commands)
    assert max(line.time_unix_s for line in made) < min(line.time_unix_s for line in sent)
    assert_no_secret(locust.folder, run.output)


def test_making_tokens_does_not_eat_the_run_time(locust: Locust) -> None:
    with KnownServer(keystone(after_s=0.2)) as server:
        run = locust.run(VALIDATE, "-u", "4", "-r", "100", "-t", "2s", "-H", server.url, **OS_VARIABLES)
        times = [line.time_unix_s for line in server.logged("stackswarm-keystone_validate")]
    assert run.exit_code == 0, run.output
    assert max(times) - min(times) > 1.4
    (process,) = run.processes
    assert process["test_stop_unix_s"] - process["test_start_unix_s"] >= 1.9


@pytest.mark.parametrize("connection", ["kept", "new"])
def test_connections_are_kept_or_new(locust: Locust, connection: str) -> None:
    with KnownServer(keystone()) as server:
        arguments = (*SHORT, "-H", server.url, "--connection", connection)
        run = locust.run(VALIDATE, *arguments, **OS_VARIABLES)
        sent = server.logged("stackswarm-keystone_validate")
    assert run.exit_code == 0, run.output
    assert run.recorded == {(GET, "success"): len(sent)}
    connections = {line.connection for line in sent}
    assert len(connections) == (4 if connection == "kept" else len(sent))


FAILURES = [
    (error(401, "Unauthorized"), "401 Unauthorized"),
    (Answer(429, body=b"slow down"), "429 Too Many Requests"),
    (error(500, "Database Locked"), "500 Internal Server Error: Database Locked"),
    (Answer(302, {"Location": "/v3/auth/tokens"}), "302 Found"),
    (Answer(201, {}, b"{}"), "201 without X-Subject-Token"),
    (Answer(drop=True), "connection closed without a response"),
    (Answer(201, {"X-Subject-Token": "t"}, b"{", missing_bytes=9), "201, then short body"),
]


def test_every_failure_has_its_name(locust: Locust) -> None:
    def fail(request: Request) -> Answer | None:
        index = request.number % (len(FAILURES) + 1)
        return FAILURES[index][0] if index < len(FAILURES) else None

    with KnownServer(keystone(change=fail)) as server:
        run = locust.run(AUTH, *SHORT, "-H", server.url, **OS_VARIABLES)
        sent = server.logged("stackswarm-keystone_auth")
    assert run.exit_code == 1, run.output
    assert "Traceback" not in run.output
    assert {outcome for _, outcome in run.recorded} == {name for _, name in FAILURES} | {"success"}
    assert sum(run.recorded.values()) == len(sent) == run.csv_counts[0]
    assert run.csv_counts[1] == len(sent) - run.recorded[POST, "success"]
    assert run.recorded[POST, "429 Too Many Requests"] == sum(line.status == 429 for line in sent)
    occurrences = {row["Error"]: int(row["Occurrences"]) for row in read_csv(run.folder / "locust_failures.csv")}
    assert sum(occurrences.values()) == run.csv_counts[1]
    assert_no_secret(locust.folder, run.output)


def test_a_kill_loses_at_most_the_last_second(locust: Locust, users_csv: Path) -> None:
    with KnownServer(keystone(after_s=0.02)) as server:
        arguments = ("--headless", "-u", "4", "-r", "100", "-H", server.url, "--users-csv", str(users_csv))
        process = locust.start(AUTH, *arguments, "--response-times", "response_times")
        wait_until(lambda: len(server.logged("stackswarm-keystone_auth")) > 250)
        killed_at = time.time()
        os.kill(process.pid, signal.SIGKILL)
        run = locust.finish(process)
        answered = [line.time_unix_s for line in server.logged("stackswarm-keystone_auth")]
    kept = sum(run.recorded.values())
    # A quarter of a second for the two processes' clocks and turns on a busy machine.
    assert kept >= sum(moment < killed_at - 1.25 for moment in answered)
    assert 0 < kept <= len(answered)
    assert run.processes[0]["test_stop_unix_s"] is None


BAD = {
    "no host": ([], {}, "Where is Keystone?"),
    "host is no URL": (["-H", "127.0.0.1:5000"], OS_VARIABLES, "is not the URL of a Keystone"),
    "nobody answers": (["-H", "http://127.0.0.1:1"], OS_VARIABLES, "Connection refused"),
    "no credential": (["-H", "{url}"], {}, "No Keystone credential: no OS_USERNAME, OS_PASSWORD"),
    "wrong password": (["-H", "{url}"], OS_VARIABLES | {"OS_PASSWORD": "wrong-" + PASSWORD}, "401 Unauthorized"),
    "no users file": (["-H", "{url}", "--users-csv", "none.csv"], {}, "none.csv: cannot be read"),
    "readable users file": (["-H", "{url}", "--users-csv", "open.csv"], {}, "chmod 600 open.csv"),
    "users folder": (["-H", "{url}", "--users-csv", "."], {}, ".: is a folder. Give --users-csv a file."),
    "folder in use": (["-H", "{url}", "--response-times", "old"], OS_VARIABLES, "old/local.csv is there already"),
    "folder cannot be": (["-H", "{url}", "--response-times", "bad.csv/x"], OS_VARIABLES, "cannot write there"),
    "think time": (["-H", "{url}", "--think-time", "-1"], OS_VARIABLES, "'-1' is not a number of seconds"),
}


def test_bad_input_is_one_message_before_any_load(tmp_path: Path, users_csv: Path) -> None:
    """All at the same time: starting Locust takes most of each case's time."""
    with KnownServer(keystone()) as server:
        cases = {
            name: start_bad(tmp_path / name.replace(" ", "-"), users_csv, server.url, *BAD[name][:2]) for name in BAD
        }
        for name, (locust, process) in cases.items():
            run = locust.finish(process)
            assert_refused(run.exit_code, run.output, BAD[name][2])
            assert (locust.folder / "old" / "local.csv").read_text() == "kept\n"
        assert server.logged("stackswarm-keystone") == []


def start_bad(
    folder: Path, users_csv: Path, url: str, arguments: list[str], environment: dict[str, str]
) -> tuple[Locust, subprocess.Popen[bytes]]:
    (folder / "old").mkdir(parents=True)
    (folder / "old" / "local.csv").write_text("kept\n")
    write_users(folder / "open.csv", users_csv.read_text().splitlines(), mode=0o644)
    write_users(folder / "bad.csv", [f"user1,{PASSWORD},default,p,default"])
    locust = Locust(folder)
    given = (text.format(url=url) for text in arguments)
    return locust, locust.start(AUTH, "--headless", *SHORT, *given, **environment)


def assert_refused(exit_code: int, output: str, message: str) -> None:
    assert exit_code == 2, output
    said = [line for line in output.splitlines() if "/INFO/" not in line and "openstack.config" not in line]
    assert len(said) == 1, output
    assert ": error: " in said[0]
    assert message in said[0]
    assert PASSWORD not in output


def test_bad_input_with_processes_leaves_none(locust: Locust, two_processes: tuple[str, ...]) -> None:
    arguments, environment, message = BAD["wrong password"]
    with KnownServer(keystone()) as server:
        arguments = [text.format(url=server.url) for text in arguments]
        run = locust.run(VALIDATE, *SHORT, *two_processes, *arguments, **environment)
    assert_refused(run.exit_code, run.output, message)
    assert not processes_in(locust.folder)


def processes_in(folder: Path) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter(["cwd", "status"]):
        if process.info["cwd"] == str(folder) and process.info["status"] != psutil.STATUS_ZOMBIE:
            found.append(process)
    return found


def test_a_remote_worker_that_is_not_ready_stops_the_run(locust: Locust, users_csv: Path) -> None:
    """A worker without the users file, as on another machine: the master says so once, and ends with 2."""
    elsewhere = locust.folder / "elsewhere"
    elsewhere.mkdir()
    port = str(free_port())
    master_folder = locust.folder
    with KnownServer(keystone()) as server:
        master = locust.start(
            AUTH, "--headless", *SHORT, "-H", server.url, "--users-csv", users_csv.name, "--master",
            "--master-bind-host", "127.0.0.1", "--master-bind-port", port, "--expect-workers", "1",
        )  # fmt: skip
        locust.folder = elsewhere
        worker = locust.start(AUTH, "--worker", "--master-host", "127.0.0.1", "--master-port", port)
        ended = locust.finish(worker)
        locust.folder = master_folder
        run = locust.finish(master)
        assert server.logged("stackswarm-keystone") == []
    assert (run.exit_code, ended.exit_code) == (2, 2), run.output + ended.output
    assert run.output.count("users.csv: cannot be read") == 1
    assert "Traceback" not in run.output + ended.output


def test_ctrl_c_before_the_load(locust: Locust, two_processes: tuple[str, ...]) -> None:
    with KnownServer(lambda request: Answer(after_s=20)) as server:
        process = locust.start(AUTH, "--headless", *SHORT, *two_processes, "-H", server.url, **OS_VARIABLES)
        wait_until(lambda: server.requests == 1)
        os.kill(process.pid, signal.SIGINT)
        run = locust.finish(process, 15)
    assert run.exit_code == 130
    assert "Traceback" not in run.output
    assert not processes_in(locust.folder)


def test_folder_mode_runs_every_workload_and_no_base_class(locust: Locust, users_csv: Path) -> None:
    with KnownServer(keystone()) as server:
        # To a Keystone, what nginx' workload asks is a validation by nobody.
        ingress = ("--path", "/v3/auth/tokens", "--expected-status", "401")
        arguments = (*SHORT, "-H", server.url, "--users-csv", str(users_csv), *ingress)
        listed = locust.finish(locust.start(".", "--list"))
        run = locust.run(".", *arguments, **OS_VARIABLES)
        sent = [name for name in ("auth", "validate") if server.logged(f"stackswarm-keystone_{name}")]
        assert server.logged("stackswarm-nginx_ingress")
    classes = sorted(listed.output.split("Available Users:")[1].split())
    assert classes == ["KeystoneAuth", "KeystoneValidate", "NginxIngress"]
    assert sent == ["auth", "validate"]
    assert run.exit_code == 0, run.output
    assert set(run.recorded) == {(POST, "success"), (GET, "success")}


def test_a_copy_of_the_folder_works_alone(locust: Locust) -> None:
    copy = Path(shutil.copytree(LOCUSTFILES, locust.folder / "copy", ignore=shutil.ignore_patterns("__pycache__")))
    locust.environment.pop("PYTHONPATH")
    with KnownServer(keystone()) as server:
        run = locust.run(copy / AUTH, *SHORT, "-H", server.url, **OS_VARIABLES)
    assert run.exit_code == 0, run.output
    assert run.recorded[POST, "success"] > 0


def test_think_time_is_kept(locust: Locust) -> None:
    with KnownServer(keystone()) as server:
        run = locust.run(AUTH, "-u", "1", "-t", "1s", "--think-time", "0.4", "-H", server.url, **OS_VARIABLES)
    assert 2 <= run.csv_counts[0] <= 3


class WebUi:
    """Locust's web UI, as a browser speaks to it."""

    def __init__(self) -> None:
        self.port = free_port()
        self.arguments = ("--web-host", "127.0.0.1", "--web-port", str(self.port), "--csv", "locust")

    def ask(self, path: str, **form: Any) -> Any:
        data = urllib.parse.urlencode(form).encode() if form or path == "stop" else None
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/{path}", data, timeout=20) as answer:
            return json.load(answer)

    def is_there(self) -> bool:
        try:
            self.ask("stats/requests")
        except OSError:
            return False
        return True

    def requests(self) -> int:
        return int(self.ask("stats/requests")["stats"][-1]["num_requests"])


@pytest.mark.parametrize("processes", [1, 2])
def test_web_ui_counts_over_several_tests(locust: Locust, processes: int, two_processes: tuple[str, ...]) -> None:
    ui = WebUi()
    more = two_processes if processes == 2 else ()
    with KnownServer(keystone()) as server:
        process = locust.start(AUTH, *ui.arguments, *more, "--response-times", "response_times", **OS_VARIABLES)
        wait_until(ui.is_there)
        assert server.log == []  # nothing says where Keystone is: the form will
        if processes == 2:
            wait_until(lambda: len(ui.ask("stats/requests").get("workers", [])) == 2)
        for _ in range(2):
            before = len(server.logged("stackswarm-keystone_auth"))
            assert ui.ask("swarm", user_count=4, spawn_rate=100, host=server.url)["success"]
            wait_until(lambda before=before: len(server.logged("stackswarm-keystone_auth")) > before + 50)
            ui.ask("stop")
            sent = len(server.logged("stackswarm-keystone_auth"))
            wait_until(lambda before=before, sent=sent: ui.requests() == sent - before)
            if processes == 2:
                wait_until(lambda: [w["state"] for w in ui.ask("stats/requests")["workers"]] == ["ready"] * 2)
        os.kill(process.pid, signal.SIGINT)
        run = locust.finish(process)
    assert run.exit_code == 0, run.output
    assert run.recorded == {(POST, "success"): sent}
    assert len(run.processes) == processes
    for path in (run.folder / "response_times").glob("*.csv"):
        keys = [tuple(row[name] for name in list(row)[:5]) for row in read_csv(path)]
        assert len(keys) == len(set(keys))


def test_web_ui_survives_a_host_that_is_no_keystone(locust: Locust) -> None:
    ui = WebUi()
    with KnownServer(keystone()) as server:
        process = locust.start(AUTH, *ui.arguments, **OS_VARIABLES)
        wait_until(ui.is_there)
        ui.ask("swarm", user_count=1, spawn_rate=1, host="http://127.0.0.1:1")
        wait_until(lambda: "Connection refused" in (locust.folder / "output.txt").read_text())
        wait_until(lambda: ui.ask("stats/requests")["state"] in ("stopped", "ready"))
        ui.ask("swarm", user_count=1, spawn_rate=1, host=server.url)
        wait_until(lambda: len(server.logged("stackswarm-keystone_auth")) > 5)
        os.kill(process.pid, signal.SIGINT)
        run = locust.finish(process)
    assert "Traceback" not in run.output
