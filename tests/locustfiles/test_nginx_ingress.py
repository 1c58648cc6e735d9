"""nginx_ingress.py as a user starts it, against a real nginx that fails in every way it can, and counts."""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509

from tests.nginx_server import BODY, HOST, NginxServer, nginx_server

from .conftest import RECORDED, Locust, Run, wait_until
from .test_http_tls import Authority
from .test_workloads import WebUi, assert_refused

INGRESS = "nginx_ingress.py"
GET = "GET /"
NAMED = ("--request-host", HOST)
FEW = ("-u", "2", "-r", "100", "--requests", "10")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    made = Authority(tmp_path_factory.mktemp("authority"), "authority")
    made.server(x509.DNSName(HOST))
    return made


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[NginxServer]:
    with nginx_server(tmp_path_factory.mktemp("nginx"), authority.file.with_name("server.pem")) as server:
        yield server


@pytest.fixture
def nginx(running: NginxServer) -> NginxServer:
    running.forget()
    return running


def assert_counted_alike(run: Run, nginx: NginxServer, outcomes: dict[tuple[str, str], int]) -> None:
    """Locust's CSV, our recording and nginx's log say the same."""
    assert "Traceback" not in run.output
    assert run.recorded == outcomes
    failed = sum(count for (_, outcome), count in outcomes.items() if outcome != "success")
    assert run.csv_counts == (len(nginx.log()), failed)


@pytest.mark.parametrize(("connection", "connections"), [("kept", 4), ("new", 60)])
def test_a_budget_on_kept_and_new_connections(
    locust: Locust, nginx: NginxServer, connection: str, connections: int
) -> None:
    arguments = ("-u", "4", "-r", "100", "--requests", "60", "--think-time", "0.01", "--connection", connection)
    expected = ("--path", "/a?b=c", "--expected-bytes", str(len(BODY)))
    run = locust.run(INGRESS, *arguments, *expected, *NAMED, "-H", nginx.url + "/base/")
    assert run.exit_code == 0, run.output
    assert_counted_alike(run, nginx, {("GET /a?b=c", "success"): 60})
    log = nginx.log()
    assert {(line.status, line.host, line.path) for line in log} == {(200, HOST, "/base/a?b=c")}
    assert len({line.connection for line in log}) == connections
    (process,) = run.processes
    assert (process["model"], process["budget"]) == ("closed", {"requests": 60, "answered": 60})


def test_two_processes_and_the_open_model(locust: Locust, nginx: NginxServer, two_processes: tuple[str, ...]) -> None:
    arguments = ("--arrival-steps", "100:1s", "--max-in-flight", "8", *two_processes)
    run = locust.run(INGRESS, *arguments, *NAMED, "-H", nginx.url)
    assert run.exit_code == 0, run.output
    assert run.csv_counts == (len(nginx.log()), 0) == (100, 0)
    assert run.recorded_by("response") == run.recorded_by("service") == 100
    assert [process["model"] for process in run.processes] == ["open"] * 2
    assert run.arrivals["answered"] == 100


EVERY_PATH = """
import itertools
from nginx_ingress import HEADERS, NginxIngress

paths = itertools.cycle({paths!r})

def make_request(self):
    path = next(paths)
    self.ask(self.plan.site.request("GET", path, HEADERS), path, self.judge)

NginxIngress.make_request = make_request
NginxIngress.read_timeout_s = 0.5
"""
OUTCOMES = {
    "/": "success",
    "/502": "502 Bad Gateway",
    "/503": "503 Service Unavailable",
    "/504": "504 Gateway Timeout",
    "/nothing": "connection closed without a response",
    "/reset": "connection reset",
    "/short": "200, then short body",
    "/late": "timed out",
}


def test_every_failure_has_its_name(locust: Locust, nginx: NginxServer) -> None:
    path = locust.folder / "every_path.py"
    path.write_text(EVERY_PATH.format(paths=list(OUTCOMES)))
    run = locust.run(path, "-u", "2", "-r", "100", "--requests", str(3 * len(OUTCOMES)), *NAMED, "-H", nginx.url)
    assert run.exit_code == 1, run.output
    assert "Traceback" not in run.output
    assert run.recorded == {(f"GET {path}", outcome): 3 for path, outcome in OUTCOMES.items()}
    # What was given up is logged when its time is over, and so is what nginx asked itself for /504.
    statuses = Counter((line.path, line.status) for line in nginx.log() if line.path != "/late")
    assert statuses == {
        **{("/", 200): 3, ("/502", 502): 3, ("/503", 503): 3, ("/504", 504): 3},
        **{("/nothing", 444): 3, ("/reset", 444): 3, ("/short", 200): 3},
    }
    wait_until(lambda: Counter(line.path for line in nginx.log())["/late"] == 6)  # or other tests would find them


EXPECTED = {
    "another host": (("--request-host", "other.example.com"), "404 Not Found", 404),
    "the address' own": ((), "404 Not Found", 404),
    "a status that is wanted": (("--expected-status", "404"), "success", 404),
    "one that is not": ((*NAMED, "--expected-status", "404"), "200 OK", 200),
    "one byte more": ((*NAMED, "--expected-bytes", str(len(BODY) + 1)), "unexpected size", 200),
}


def test_what_is_a_success(tmp_path: Path, nginx: NginxServer) -> None:
    """All at the same time: starting Locust takes most of each case's time."""
    runs = start_all(tmp_path, {name: ("-H", nginx.url, *case[0]) for name, case in EXPECTED.items()})
    for name, run in runs.items():
        assert run.recorded == {(GET, EXPECTED[name][1]): 10}, name
        assert run.exit_code == (0 if EXPECTED[name][1] == "success" else 1)
    assert Counter(line.status for line in nginx.log()) == {404: 30, 200: 20}
    own = f"127.0.0.1:{nginx.port}"
    assert Counter(line.host for line in nginx.log()) == {"other.example.com": 10, own: 20, HOST: 20}


def start_all(tmp_path: Path, cases: dict[str, tuple[str, ...]]) -> dict[str, Run]:
    started: dict[str, tuple[Locust, subprocess.Popen[bytes]]] = {}
    for number, (name, arguments) in enumerate(cases.items()):
        (folder := tmp_path / str(number)).mkdir()
        locust = Locust(folder)
        started[name] = locust, locust.start(INGRESS, *RECORDED, *FEW, *arguments)
    try:
        return {name: locust.finish(process) for name, (locust, process) in started.items()}
    finally:
        for locust, _ in started.values():
            locust.stop_all()


def test_a_server_that_goes_away(locust: Locust, tmp_path: Path) -> None:
    (folder := tmp_path / "nginx").mkdir()
    with nginx_server(folder) as server:
        arguments = ("-u", "2", "-r", "100", "-t", "20s", "--think-time", "0.01", *NAMED, "-H", server.url)
        process = locust.start(INGRESS, *RECORDED, *arguments)
        wait_until(lambda: len(server.log()) > 20)
        server.stop()
        wait_until(lambda: locust.folder.joinpath("response_times", "local.csv").read_text().count("refused") > 0)
        process.terminate()
        run = locust.finish(process)
        answered = len(server.log())
    assert run.recorded[GET, "success"] == answered
    assert run.recorded[GET, "connection refused"] > 0
    # Those on the way at that moment, at most one a user, and each in one of these words.
    cut = {"success", "connection refused", "connection reset", "connection closed without a response"}
    assert {outcome for _, outcome in run.recorded} <= cut


BAD = {
    "no host": ((), "Where is the server? Give --host"),
    "no URL": (("-H", "127.0.0.1:80"), "The server's URL must look like http://address:port/path"),
    "refused": (("-H", "http://127.0.0.1:1"), "Nobody answers at http://127.0.0.1:1: connection refused."),
    "path": (("-H", "{url}", "--path", "x"), "--path: 'x' is not a path"),
    "host": (("-H", "{url}", "--request-host", "a/b"), "--request-host: 'a/b': a Host is a name"),
    "two hosts": (("-H", "{url}", "--request-host", "a\r\nHost: b"), "a Host is a name or address"),
    "status": (("-H", "{url}", "--expected-status", "99"), "'99' is not a status from 200 to 599"),
    "bytes": (("-H", "{url}", "--expected-bytes", "-1"), "'-1' is not a number of bytes"),
    "no authority": (("-H", "{tls_url}", "--ca-file", "none.pem"), "none.pem: not a file of certificates"),
    "authority without TLS": (
        ("-H", "{url}", "--ca-file", "{ca}"),
        "--ca-file is for a --host that begins with https",
    ),
    "another authority": (("-H", "{tls_url}", *NAMED, "--ca-file", "{other}"), "signed by the authority of --ca-file"),
    "another name": (("-H", "{tls_url}", "--ca-file", "{ca}"), "It must be for 127.0.0.1 (--request-host, or else"),
    "no TLS": (("-H", "https://127.0.0.1:{port}", "--ca-file", "{ca}"), "Does this port speak TLS?"),
    "open and closed": (("-H", "{url}", "--arrival-rate", "5"), "--requests belongs to the closed model"),
}


def test_bad_input_is_one_message_and_no_request(tmp_path: Path, nginx: NginxServer, authority: Authority) -> None:
    (folder := tmp_path / "other").mkdir()
    values = {"url": nginx.url, "tls_url": nginx.tls_url, "port": nginx.port, "ca": authority.file}
    values["other"] = Authority(folder, "other").file
    cases = {name: tuple(text.format(**values) for text in arguments) for name, (arguments, _) in BAD.items()}
    for name, run in start_all(tmp_path, cases).items():
        assert_refused(run.exit_code, run.output, BAD[name][1])
    # Nothing but the TLS greeting that reached the port without TLS, which nginx takes for half a request.
    assert [(line.status, line.host) for line in nginx.log()] == [(400, "-")]


def test_tls_with_an_authority_and_a_host_of_its_own(locust: Locust, nginx: NginxServer, authority: Authority) -> None:
    arguments = ("--ca-file", str(authority.file), *NAMED, "--connection", "new", "-H", nginx.tls_url)
    run = locust.run(INGRESS, *FEW, *arguments)
    assert run.exit_code == 0, run.output
    assert_counted_alike(run, nginx, {(GET, "success"): 10})
    assert {line.host for line in nginx.log()} == {HOST}


def test_the_web_ui_asks_for_another_host(locust: Locust, nginx: NginxServer) -> None:
    ui = WebUi()
    process = locust.start(INGRESS, *ui.arguments, "--response-times", "response_times")
    wait_until(ui.is_there)
    form = {"user_count": 2, "spawn_rate": 100, "host": nginx.url, "requests": 10}
    assert "a Host is a name" in ui.ask("swarm", **form, request_host="a/b")["message"]
    assert ui.ask("swarm", **form, request_host=HOST)["success"]
    wait_until(lambda: len(nginx.log()) == 10 and ui.ask("stats/requests")["state"] == "stopped")
    process.terminate()
    run = locust.finish(process)
    assert run.recorded == {(GET, "success"): 10}
    assert {line.host for line in nginx.log()} == {HOST}
