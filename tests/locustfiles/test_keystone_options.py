"""The options of the Keystone workloads, as a user gives them, against a Keystone whose behaviour is known."""

from __future__ import annotations

import ipaddress
import json
import os
import signal
import time
import urllib.request
from pathlib import Path

import pytest
from cryptography import x509

from tests.certificates import Authority
from tests.known_server import Answer, KnownServer, Logged, Request

from .conftest import (
    OS_VARIABLES,
    PASSWORD,
    PLANTED_TOKEN,
    RECORDED,
    Locust,
    error,
    keystone,
    token_body,
    wait_until,
)
from .test_workloads import AUTH, GET, POST, SHORT, VALIDATE, WebUi, assert_no_secret, assert_refused

BUDGET = ("-u", "4", "-r", "100", "-t", "60s", "--requests", "40")


def setup_requests(server: KnownServer, method: str, part: str) -> list[Logged]:
    return [line for line in server.logged("stackswarm-setup") if line.method == method and part in line.path]


def test_rescoping_by_token(locust: Locust, users_csv: Path) -> None:
    sent: list[dict[str, object]] = []

    def remember(request: Request) -> None:
        sent.append(json.loads(request.body)["auth"])

    options = ("--auth-method", "token", "--scope", "system", "--catalog", "no", "--prepared-users", "3")
    with KnownServer(keystone(change=remember)) as server:
        run = locust.run(AUTH, *BUDGET, "-H", server.url, "--users-csv", str(users_csv), *options)
        paths = {line.path for line in server.logged("stackswarm-keystone_auth")}
        made = setup_requests(server, "POST", "/v3/auth/tokens")
    assert run.exit_code == 0, run.output
    assert run.recorded == {(f"{POST} (token)", "success"): 40}
    assert paths == {"/v3/auth/tokens?nocatalog"}
    assert len(made) == 2 + 3  # the check logs in and asks for another scope; then one token a user
    assert {str(auth["scope"]) for auth in sent} == {"{'system': {'all': True}}"}
    assert len({str(auth["identity"]) for auth in sent}) == 3
    assert_no_secret(locust.folder, run.output)


def test_application_credentials_are_removed_after_an_interrupt(locust: Locust, own_users_csv: Path) -> None:
    with KnownServer(keystone()) as server:
        arguments = (*RECORDED, "-u", "4", "-H", server.url, "--users-csv", str(own_users_csv))
        process = locust.start(AUTH, *arguments, "--auth-method", "application_credential", "--prepared-users", "5")
        wait_until(lambda: len(server.logged("stackswarm-keystone_auth")) > 20)
        os.kill(process.pid, signal.SIGINT)
        run = locust.finish(process)
        sent = server.logged("stackswarm-keystone_auth")
        made, removed = (setup_requests(server, method, "/application_credentials") for method in ("POST", "DELETE"))
    assert run.recorded == {(f"{POST} (application credential)", "success"): len(sent)}
    assert len(made) == len(removed) == 5
    assert len({line.path for line in removed}) == 5
    assert min(line.time_unix_s for line in removed) >= max(line.time_unix_s for line in sent)
    assert_no_secret(locust.folder, run.output)


def test_application_credentials_are_removed_where_one_is_refused(locust: Locust, users_csv: Path) -> None:
    known = keystone()
    refused: list[Request] = []

    def answer(request: Request) -> Answer:
        if request.method == "POST" and "application_credentials" in request.path:
            refused.append(request)
            if len(refused) == 4:
                return error(403, "Forbidden")
        return known(request)

    with KnownServer(answer) as server:
        arguments = (*SHORT, "-H", server.url, "--users-csv", str(users_csv))
        run = locust.run(AUTH, *arguments, "--auth-method", "application_credential")
        made, removed = (setup_requests(server, method, "/application_credentials") for method in ("POST", "DELETE"))
        assert server.logged("stackswarm-keystone_auth") == []
    assert_refused(run.exit_code, run.output, "no application credential for user")
    assert len(made) < 12
    assert len(removed) == sum(line.status == 201 for line in made) > 0


@pytest.mark.parametrize("accepted", [False, True])
def test_a_tenth_of_wrong_passwords(locust: Locust, own_users_csv: Path, accepted: bool) -> None:
    """A Keystone that accepts them is caught."""

    def accept(request: Request) -> Answer | None:
        return Answer(201, {"X-Subject-Token": "t"}, token_body("x")) if accepted else None

    with KnownServer(keystone(change=accept)) as server:
        arguments = (*BUDGET, "-H", server.url, "--users-csv", str(own_users_csv), "--wrong-passwords", "10%")
        run = locust.run(AUTH, *arguments)
        statuses = [line.status for line in server.logged("stackswarm-keystone_auth")]
    wrong = "201 Created with a wrong password" if accepted else "success"
    assert run.exit_code == (1 if accepted else 0), run.output
    assert run.recorded == {(POST, "success"): 36, (f"{POST} (wrong password)", wrong): 4}
    assert statuses.count(401) == (0 if accepted else 4)


def test_checking_tokens_by_their_own_right(locust: Locust, users_csv: Path) -> None:
    callers: set[tuple[str, str]] = set()

    def remember(request: Request) -> None:
        callers.add((request.headers["x-auth-token"], request.headers["x-subject-token"]))

    options = ("--http-method", "HEAD", "--caller", "own", "--catalog", "no", "--token-pool", "8")
    with KnownServer(keystone(change=remember)) as server:
        run = locust.run(VALIDATE, *BUDGET, "-H", server.url, "--users-csv", str(users_csv), *options)
        sent = server.logged("stackswarm-keystone_validate")
    assert run.exit_code == 0, run.output
    assert run.recorded == {("HEAD /v3/auth/tokens", "success"): 40}
    assert {(line.method, line.path) for line in sent} == {("HEAD", "/v3/auth/tokens?nocatalog")}
    assert len(callers) == 8
    assert all(caller == subject for caller, subject in callers)


def test_users_begin_far_from_each_other_in_the_pool(locust: Locust, users_csv: Path) -> None:
    asked: list[str] = []

    def remember(request: Request) -> None:
        asked.append(request.headers["x-subject-token"])

    with KnownServer(keystone(change=remember, after_s=0.2)) as server:
        arguments = ("-u", "4", "-r", "100", "-t", "60s", "--requests", "12", "--token-pool", "12")
        run = locust.run(VALIDATE, *arguments, "-H", server.url, "--users-csv", str(users_csv), **OS_VARIABLES)
    assert run.exit_code == 0, run.output
    assert len(set(asked)) == 12  # side by side, the four would have taken six or so


def test_revoked_tokens(locust: Locust, users_csv: Path) -> None:
    with KnownServer(keystone()) as server:
        options = ("--token-pool", "8", "--revoked-tokens", "0.25", "--users-csv", str(users_csv))
        run = locust.run(VALIDATE, *BUDGET, "-H", server.url, *options, **OS_VARIABLES)
        revoked = setup_requests(server, "DELETE", "/v3/auth/tokens")
        statuses = [line.status for line in server.logged("stackswarm-keystone_validate")]
    assert run.exit_code == 0, run.output
    assert run.recorded == {(GET, "success"): statuses.count(200), (f"{GET} (revoked)", "success"): statuses.count(404)}
    assert abs(statuses.count(404) - 10) <= 4
    assert len(statuses) == 40
    assert len(revoked) == 2


class ShortLived:
    """A Keystone whose tokens live for two seconds; from its second one for a user on it may refuse to make any."""

    LIFETIME_S = 2.0

    def __init__(self, replaces: bool) -> None:
        self.replaces = replaces
        self.born: dict[str, float] = {}

    def __call__(self, request: Request) -> Answer:
        return self.issue(request) if request.method == "POST" else self.validate(request)

    def issue(self, request: Request) -> Answer:
        name = json.loads(request.body)["auth"]["identity"]["password"]["user"]["name"]
        number = sum(token.split("~")[1] == name for token in self.born)
        if number > 4 and not self.replaces:
            return error(503, "Service Unavailable")
        token = f"{PLANTED_TOKEN}~{name}~{number}"
        self.born[token] = time.monotonic()
        times = {"issued_at": "2026-01-01T10:00:00.000000Z", "expires_at": "2026-01-01T10:00:02.000000Z"}
        body = json.dumps({"token": {"user": {"id": name}, **times}}).encode()
        return Answer(201, {"X-Subject-Token": token}, body)

    def validate(self, request: Request) -> Answer:
        caller, subject = (request.headers[name] for name in ("x-auth-token", "x-subject-token"))
        if self.is_old(caller):
            return error(401, "Unauthorized")
        if self.is_old(subject):
            return error(404, "Not Found")
        return Answer(200, {}, json.dumps({"token": {"user": {"id": subject.split("~")[1]}}}).encode(), 0.01)

    def is_old(self, token: str) -> bool:
        return time.monotonic() > self.born[token] + self.LIFETIME_S


def test_tokens_are_replaced_before_they_expire(locust: Locust) -> None:
    with KnownServer(ShortLived(replaces=True)) as server:
        run = locust.run(VALIDATE, "-u", "2", "-t", "4s", "--token-pool", "2", "-H", server.url, **OS_VARIABLES)
        sent = server.logged("stackswarm-keystone_validate")
    assert run.exit_code == 0, run.output
    assert run.recorded == {(GET, "success"): len(sent)}
    # The caller's and two of the pool, every one and a half seconds.
    assert run.processes[0]["facts"]["expired_tokens_count"] in range(4, 10)


def test_expired_tokens_that_cannot_be_replaced_have_a_name(locust: Locust) -> None:
    with KnownServer(ShortLived(replaces=False)) as server:
        run = locust.run(VALIDATE, "-u", "2", "-t", "4s", "--token-pool", "2", "-H", server.url, **OS_VARIABLES)
    assert run.exit_code == 1, run.output
    assert {outcome for _, outcome in run.recorded} == {"success", "401 Unauthorized: the token had expired"}
    assert "A token expires and is not replaced" in run.output
    assert "Traceback" not in run.output


def test_tls_with_a_certificate_authority_of_ones_own(locust: Locust) -> None:
    authority = Authority(locust.folder, "ca")
    certificate = authority.server(x509.IPAddress(ipaddress.ip_address("127.0.0.1")))
    stranger = Authority(locust.folder, "stranger")
    with KnownServer(keystone(), tls=certificate) as server:
        arguments = (*BUDGET, "-H", server.url, "--connection", "new")
        run = locust.run(AUTH, *arguments, "--os-cacert", str(authority.file), **OS_VARIABLES)
        sent = server.logged("stackswarm-keystone_auth")
        by_variable = OS_VARIABLES | {"OS_CACERT": str(authority.file)}
        process = locust.start(AUTH, "--headless", *arguments, "--os-cacert", str(stranger.file), **by_variable)
        refused = locust.finish(process)
    assert run.exit_code == 0, run.output
    assert run.recorded == {(POST, "success"): 40}
    assert len({line.connection for line in sent}) == 40
    assert_refused(refused.exit_code, refused.output, "No Keystone answers at https://")


BAD = {
    "scope": (AUTH, ["--scope", "projekt"], "argument --scope: invalid choice: 'projekt'"),
    "catalogue": (AUTH, ["--catalog", "maybe"], "argument --catalog: invalid choice: 'maybe'"),
    "share": (AUTH, ["--wrong-passwords", "1.5"], "'1.5' is not a share, such as 10% or 0.1"),
    "two": (AUTH, ["--auth-method", "application_credential", "--scope", "domain"], "its only scope is project"),
    "no password": (AUTH, ["--auth-method", "token", "--wrong-passwords", "0.1"], "there is no password in"),
    "not ours": (AUTH, ["--wrong-passwords", "0.1"], "could lock out user 'user0'"),
    "nobody": (AUTH, ["--prepared-users", "0"], "'0' is not a whole number from 1 up"),
    "certificate": (AUTH, ["--os-cacert", "none.pem"], "none.pem: not a file of certificates"),
    "own": (VALIDATE, ["--caller", "own", "--revoked-tokens", "0.5"], "--caller must be admin"),
    "pool": (VALIDATE, ["--token-pool", "0"], "argument --token-pool: '0' is not a whole number from 1 up"),
    "none": (VALIDATE, ["--token-pool", "3", "--revoked-tokens", "0.1"], "a --token-pool of 3 is not one token"),
}


def test_bad_options_are_one_message_before_any_load(tmp_path: Path, users_csv: Path) -> None:
    """All at the same time: starting Locust takes most of each case's time."""
    with KnownServer(keystone()) as server:
        started = {}
        for name, (locustfile, options, _) in BAD.items():
            (tmp_path / name).mkdir()
            locust = Locust(tmp_path / name)
            arguments = ("--headless", *SHORT, "-H", server.url, "--users-csv", str(users_csv), *options)
            started[name] = locust, locust.start(locustfile, *arguments, **OS_VARIABLES)
        for name, (locust, process) in started.items():
            run = locust.finish(process)
            assert_refused(run.exit_code, run.output, BAD[name][2])
        assert server.logged("stackswarm-keystone") == []


def test_the_web_ui_offers_them_with_their_values(locust: Locust) -> None:
    ui = WebUi()
    process = locust.start(".", *ui.arguments, **OS_VARIABLES)
    wait_until(ui.is_there)
    with urllib.request.urlopen(f"http://127.0.0.1:{ui.port}/", timeout=20) as answer:
        page = answer.read().decode()
    os.kill(process.pid, signal.SIGINT)
    locust.finish(process)
    for name in ("auth_method", "scope", "wrong_passwords", "http_method", "caller", "revoked_tokens", "connection"):
        assert f'"{name}"' in page
    assert '"choices": ["password", "token", "application_credential"]' in page
    assert PASSWORD not in page
