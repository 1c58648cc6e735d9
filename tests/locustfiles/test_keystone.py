"""Keystone's protocol: tables of what is sent, and of what an answer means."""

from __future__ import annotations

import json
import math
from collections.abc import Callable

import pytest
from _errors import NotReady
from _keystone import (
    application_credential_body,
    authenticate_once,
    authentication_body,
    judge_authentication,
    judge_check,
    judge_refusal,
    judge_revoked,
    judge_validation,
    lifetime_of_token,
    rescoping_body,
    token_format,
    token_url,
)
from _keystone_credentials import (
    Credential,
)

from tests.known_server import Answer, KnownServer

PASSWORD = "planted-Passw0rd-7f3a"


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("http://x", "http://x/v3/auth/tokens"),
        ("http://x/", "http://x/v3/auth/tokens"),
        ("http://x:5000/v3", "http://x:5000/v3/auth/tokens"),
        ("http://x:5000/v3/", "http://x:5000/v3/auth/tokens"),
        ("https://x/identity", "https://x/identity/v3/auth/tokens"),
        ("https://x/identity/v3//", "https://x/identity/v3/auth/tokens"),
        ("http://[::1]:5000", "http://[::1]:5000/v3/auth/tokens"),
    ],
)
def test_host_may_carry_a_path_and_the_version(host: str, url: str) -> None:
    assert token_url(host) == url


@pytest.mark.parametrize("host", ["x:5000", "ftp://x", "http://", "", "127.0.0.1", r"http://a\@b", "http://u:pw@b"])
def test_a_host_that_is_no_url_is_refused(host: str) -> None:
    with pytest.raises(NotReady, match="not the URL of a Keystone"):
        token_url(host)


def test_body_by_names() -> None:
    body = authentication_body(
        Credential("ann", PASSWORD, user_domain_id="default", project_name="p", project_domain_name="Default")
    )
    assert json.loads(body) == {
        "auth": {
            "identity": {
                "methods": ["password"],
                "password": {"user": {"name": "ann", "domain": {"id": "default"}, "password": PASSWORD}},
            },
            "scope": {"project": {"name": "p", "domain": {"name": "Default"}}},
        }
    }


def test_body_by_ids_and_with_every_character() -> None:
    password = 'quote" back\\slash ünï \u2028'
    auth = json.loads(authentication_body(Credential(None, password, user_id="u1", project_id="p1")))["auth"]
    assert auth["identity"]["password"]["user"] == {"id": "u1", "password": password}
    assert auth["scope"]["project"] == {"id": "p1"}


ANN = Credential(
    "ann", PASSWORD, user_domain_id="d", project_name="p", project_domain_id="d", origin="users.csv line 2"
)


@pytest.mark.parametrize(
    ("user", "scope", "sent"),
    [
        (ANN, "domain", {"domain": {"id": "d"}}),
        (Credential("ann", PASSWORD, user_domain_name="D"), "domain", {"domain": {"name": "D"}}),
        (Credential("ann", PASSWORD, user_domain_id="d", domain_name="E"), "domain", {"domain": {"name": "E"}}),
        (Credential("ann", PASSWORD, user_domain_id="d", domain_id="e"), "domain", {"domain": {"id": "e"}}),
        (ANN, "system", {"system": {"all": True}}),
        (ANN, "unscoped", "unscoped"),
    ],
)
def test_scopes(user: Credential, scope: str, sent: object) -> None:
    assert json.loads(authentication_body(user, scope))["auth"]["scope"] == sent
    assert json.loads(rescoping_body("t", user, scope))["auth"]["scope"] == sent


def test_bodies_of_the_other_methods() -> None:
    assert json.loads(rescoping_body("t", ANN, "project"))["auth"] == {
        "identity": {"methods": ["token"], "token": {"id": "t"}},
        "scope": {"project": {"name": "p", "domain": {"id": "d"}}},
    }
    assert json.loads(application_credential_body("i", "s"))["auth"] == {
        "identity": {"methods": ["application_credential"], "application_credential": {"id": "i", "secret": "s"}}
    }


def error(title: object) -> bytes:
    return json.dumps({"error": {"code": 0, "title": title, "message": "m"}}).encode()


@pytest.mark.parametrize(
    ("status", "headers", "body", "verdict"),
    [
        (201, {"X-Subject-Token": "t"}, b"{}", None),
        (201, {}, b"{}", "201 without X-Subject-Token"),
        (200, {"X-Subject-Token": "t"}, b"{}", "200 OK"),
        (401, {}, error("Unauthorized"), "401 Unauthorized"),
        (403, {}, error("Account Locked"), "403 Forbidden: Account Locked"),
        (429, {}, b"slow down", "429 Too Many Requests"),
        (302, {"Location": "/"}, b"", "302 Found"),
        (500, {}, b"<html>", "500 Internal Server Error"),
        (503, {}, error(17), "503 Service Unavailable"),
        (500, {}, b"[]", "500 Internal Server Error"),
        (500, {}, b'{"error": "text"}', "500 Internal Server Error"),
        (799, {}, b"", "799 unknown status"),
        (400, {}, error("x\n" * 500), "400 Bad Request: " + ("x " * 40).strip()),
    ],
)
def test_judging_an_authentication(status: int, headers: dict[str, str], body: bytes, verdict: str | None) -> None:
    assert judge_authentication(status, headers, body) == verdict


@pytest.mark.parametrize(
    ("status", "body", "verdict"),
    [
        (200, b'{"token": {"user": {"id": "u1"}}}', None),
        (200, b'{"token": {"user": {"id": "u2"}}}', "200 with another user than expected"),
        (200, b'{"token": {}}', "200 without a token's user in the body"),
        (200, b"", "200 without a token's user in the body"),
        (404, error("Not Found"), "404 Not Found"),
        (401, error("Unauthorized"), "401 Unauthorized"),
    ],
)
def test_judging_a_validation(status: int, body: bytes, verdict: str | None) -> None:
    assert judge_validation(status, body, "u1") == verdict


@pytest.mark.parametrize(
    ("judge", "status", "verdict"),
    [
        (judge_refusal, 401, None),
        (judge_refusal, 201, "201 Created with a wrong password"),
        (judge_refusal, 500, "500 Internal Server Error with a wrong password"),
        (judge_check, 200, None),
        (judge_check, 404, "404 Not Found"),
        (judge_revoked, 404, None),
        (judge_revoked, 200, "200 OK for a revoked token"),
        (judge_revoked, 401, "401 Unauthorized for a revoked token"),
    ],
)
def test_judging_what_is_expected_to_be_refused(
    judge: Callable[[int, bytes], str | None], status: int, verdict: str | None
) -> None:
    assert judge(status, b"") == verdict


@pytest.mark.parametrize(
    ("body", "lifetime_s"),
    [
        (
            b'{"token": {"issued_at": "2026-01-01T10:00:00.000000Z", "expires_at": "2026-01-01T14:00:00.000000Z"}}',
            14400,
        ),
        (b'{"token": {"issued_at": "2026-01-01T10:00:00.000000Z"}}', math.inf),
        (b'{"token": {"issued_at": "now", "expires_at": "later"}}', math.inf),
        (b"[]", math.inf),
    ],
)
def test_lifetime_of_a_token(body: bytes, lifetime_s: float) -> None:
    assert lifetime_of_token(body) == lifetime_s


@pytest.mark.parametrize(
    ("token", "name"),
    [
        ("0123456789abcdef0123456789ABCDEF", "uuid"),
        ("gAAAAABnlongfernet==", "fernet"),
        ("eyJhbGciOiJFUzI1NiJ9.e30.sig", "jws"),
        ("PKIZ_eJzrYGBg", "pkiz"),
        ("MIIEdwYJKoZIhvcNAQcC", "pki"),
        ("0123456789abcdef", "unknown"),
        ("", "unknown"),
    ],
)
def test_token_formats(token: str, name: str) -> None:
    assert token_format(token) == name


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (Answer(401, {}, error("Unauthorized")), r"refuses user 'ann' \(users.csv line 2\): 401 Unauthorized"),
        (Answer(404), "404 Not Found. Is this a Keystone v3"),
        (Answer(429, body=b"slow down"), "429 Too Many Requests. It limits the rate of requests, and has had enough"),
        (Answer(500), "500 Internal Server Error. The server answers, but is not well"),
        (Answer(302, {"Location": "/elsewhere"}), "302 Found"),
        (Answer(201, {"X-Subject-Token": "t"}), "no user in the answer"),
        (Answer(drop=True), "No Keystone answers"),
    ],
)
def test_a_refused_set_up_request_says_why(answer: Answer, message: str) -> None:
    with KnownServer(lambda request: answer) as server, pytest.raises(NotReady, match=message) as caught:
        authenticate_once(token_url(server.url), ANN)
    assert PASSWORD not in str(caught.value)
    assert [line.user_agent for line in server.log] == ["stackswarm-setup"]


@pytest.mark.parametrize(
    ("scope", "advice"),
    [("project", "Check name, password, project"), ("system", "has a role on the system"), ("unscoped", "and domain.")],
)
def test_a_refusal_says_what_to_look_at(scope: str, advice: str) -> None:
    with KnownServer(lambda request: Answer(401)) as server, pytest.raises(NotReady, match=advice):
        authenticate_once(token_url(server.url), ANN, scope=scope)


def test_a_server_that_is_not_there() -> None:
    with pytest.raises(NotReady, match=r"No Keystone answers at http://127.0.0.1:1/.*: Connection refused\."):
        authenticate_once("http://127.0.0.1:1/v3/auth/tokens", ANN)
