"""Keystone's v3 authentication protocol: build a request, judge a response. Knows nothing of load."""

from __future__ import annotations

import dataclasses
import datetime
import http
import json
import math
import re
from collections.abc import Mapping
from typing import Any

import requests
from _errors import NotReady
from _keystone_credentials import Credential, first_line

SUCCESS = None
"""What judge() and its kin return for a response that is what it should be."""

METHODS = ("password", "token", "application_credential")
"""Ways to authenticate, in Keystone's own words."""

SCOPES = ("project", "domain", "system", "unscoped")
"""What a token may be for."""

TOKEN_HEADER = "X-Subject-Token"  # noqa: S105 (a header's name)

SETUP_USER_AGENT = "stackswarm-setup"
"""Requests made before load begins carry this name, so that the server's request log can be counted without them."""


@dataclasses.dataclass(frozen=True)
class Token:
    """An issued token. The id is a secret: it stays out of repr()."""

    id: str = dataclasses.field(repr=False)
    user_id: str
    lifetime_s: float = math.inf
    """From issue to expiry, by the server's clock, which may not be ours."""


def token_url(host: str) -> str:
    """URL of /v3/auth/tokens for a --host or OS_AUTH_URL, which may carry a path and may end in "/" or "/v3".

    Raises NotReady for anything that is not an http or https URL.
    """
    if not re.fullmatch(r"https?://[^/\s\\@][^\s\\@]*", host):  # with \ or @, two readers find two hosts
        shown = "What was given" if "@" in host else repr(host)  # before the @ is a password
        raise NotReady(
            f"{shown} is not the URL of a Keystone: give --host (or OS_AUTH_URL) as http://address:port/path."
        )
    base = host.rstrip("/")
    return base.removesuffix("/v3").rstrip("/") + "/v3/auth/tokens"


def authentication_body(credential: Credential, scope: str = "project") -> str:
    """Body of POST /v3/auth/tokens: password method, any of SCOPES."""
    user = _named(credential.user_id, credential.username, credential.user_domain_id, credential.user_domain_name)
    return _body("password", {"user": {**user, "password": credential.password}}, _scope(credential, scope))


def rescoping_body(token: str, credential: Credential, scope: str) -> str:
    """Body of POST /v3/auth/tokens: token method, any of SCOPES. `credential` says which project or domain."""
    return _body("token", {"id": token}, _scope(credential, scope))


def application_credential_body(id_: str, secret: str) -> str:
    """Body of POST /v3/auth/tokens. The scope is the application credential's own; Keystone refuses to be told one."""
    return _body("application_credential", {"id": id_, "secret": secret}, None)


def _body(method: str, proof: Mapping[str, Any], scope: object) -> str:
    auth: dict[str, Any] = {"identity": {"methods": [method], method: proof}}
    return json.dumps({"auth": auth if scope is None else {**auth, "scope": scope}})


def _scope(credential: Credential, scope: str) -> object:
    c = credential
    if scope == "project":
        return {"project": _named(c.project_id, c.project_name, c.project_domain_id, c.project_domain_name)}
    if scope == "domain":
        id_, name = (c.domain_id, c.domain_name) if c.domain_id or c.domain_name else _own_domain(c)
        return {"domain": {"id": id_} if id_ else {"name": name}}
    # Said in so many words: without a scope, Keystone takes the user's default project.
    return {"system": {"all": True}} if scope == "system" else "unscoped"


def _own_domain(credential: Credential) -> tuple[str | None, str | None]:
    return credential.user_domain_id, credential.user_domain_name


def _named(id_: str | None, name: str | None, domain_id: str | None, domain_name: str | None) -> dict[str, Any]:
    if id_:
        return {"id": id_}
    return {"name": name, "domain": {"id": domain_id} if domain_id else {"name": domain_name}}


def judge_authentication(status: int, headers: Mapping[str, str], body: bytes) -> str | None:
    """None for a success, 201 with a token; else the failure in words."""
    if status != http.HTTPStatus.CREATED:
        return describe_failure(status, body)
    return SUCCESS if headers.get(TOKEN_HEADER) else f"201 without {TOKEN_HEADER}"


def judge_validation(status: int, body: bytes, user_id: str) -> str | None:
    """None for a success, 200 that names the expected user; else the failure in words."""
    if status != http.HTTPStatus.OK:
        return describe_failure(status, body)
    found = user_of_token(body)
    if found is None:
        return "200 without a token's user in the body"
    return SUCCESS if found == user_id else "200 with another user than expected"


def judge_refusal(status: int, body: bytes) -> str | None:
    """None for a success, 401, where the password was wrong on purpose; else the failure in words."""
    if status == http.HTTPStatus.UNAUTHORIZED:
        return SUCCESS
    return f"{describe_failure(status, body)} with a wrong password"


def judge_check(status: int, body: bytes) -> str | None:
    """None for a success of HEAD, 200; its answer has no body, and so names no user."""
    return SUCCESS if status == http.HTTPStatus.OK else describe_failure(status, body)


def judge_revoked(status: int, body: bytes) -> str | None:
    """None for a success, 404, where the token was revoked before; else the failure in words."""
    if status == http.HTTPStatus.NOT_FOUND:
        return SUCCESS
    return f"{describe_failure(status, body)} for a revoked token"


def lifetime_of_token(body: bytes) -> float:
    """Seconds from issue to expiry, from the body of an issued token; infinite where it says nothing of it."""
    try:
        token = json.loads(body)["token"]
        issued, expires = (datetime.datetime.fromisoformat(token[key]) for key in ("issued_at", "expires_at"))
        return (expires - issued).total_seconds()
    except (ValueError, KeyError, TypeError):
        return math.inf


def user_of_token(body: bytes) -> str | None:
    """User id in the body of an issued or validated token; None where the body is something else."""
    try:
        found = json.loads(body)["token"]["user"]["id"]
    except (ValueError, KeyError, TypeError):
        return None
    return found if isinstance(found, str) else None


def describe_failure(status: int, body: bytes) -> str:
    """A failed answer in words: "401 Unauthorized", and Keystone's error title where that says more."""
    try:
        phrase = http.HTTPStatus(status).phrase
    except ValueError:
        phrase = "unknown status"
    title = _error_title(body)
    if not title or title.lower() == phrase.lower():
        return f"{status} {phrase}"
    return f"{status} {phrase}: {title}"


def _error_title(body: bytes) -> str:
    try:
        title = json.loads(body)["error"]["title"]
    except (ValueError, KeyError, TypeError):
        return ""
    # Only a title: a server's free text would make every failure one of its own.
    return re.sub(r"[^ -~]+", " ", title)[:80].strip() if isinstance(title, str) else ""


def token_format(token: str) -> str:
    """ "fernet", "jws", "pkiz", "pki", "uuid", or "unknown": told from the token's first characters and its length."""
    if re.fullmatch(r"[0-9a-fA-F]{32}", token):
        return "uuid"
    for beginning, name in (("gAAAAA", "fernet"), ("eyJ", "jws"), ("PKIZ_", "pkiz"), ("MII", "pki")):
        if token.startswith(beginning):
            return name
    return "unknown"


def authenticate_once(
    url: str, credential: Credential, verify: bool | str = True, timeout_s: float = 60.0, scope: str = "project"
) -> Token:
    """Ask for one token, outside of the load. Raises NotReady where Keystone cannot be reached or refuses."""
    return issue_once(url, authentication_body(credential, scope), credential.label, scope, verify, timeout_s)


def issue_once(
    url: str, body: str, label: str, scope: str, verify: bool | str = True, timeout_s: float = 60.0
) -> Token:
    """As authenticate_once(), with the body of any method. `label` and `scope` are for the message."""
    response = ask_once("POST", url, {}, body, verify, timeout_s)
    failure = judge_authentication(response.status_code, response.headers, response.content)
    user_id = user_of_token(response.content)
    if failure or user_id is None:
        raise NotReady(_refusal(url, label, scope, failure or "no user in the answer"))
    return Token(response.headers[TOKEN_HEADER], user_id, lifetime_of_token(response.content))


def ask_once(
    method: str, url: str, headers: Mapping[str, str], body: str | None, verify: bool | str, timeout_s: float = 60.0
) -> requests.Response:
    """One request outside of the load. Raises NotReady where nobody answers."""
    sent = {"Content-Type": "application/json", "User-Agent": SETUP_USER_AGENT, "Connection": "close", **headers}
    try:
        with requests.Session() as session:
            session.trust_env = False  # the load uses neither proxies nor ~/.netrc, so this must not either
            return session.request(
                method, url, data=body, headers=sent, timeout=timeout_s, verify=verify, allow_redirects=False
            )
    except OSError as error:  # requests' own errors are OSErrors too; a missing certificate file is nothing else
        raise NotReady(
            f"No Keystone answers at {url}: {_cause(error)}. Is the address right, and the server up?"
        ) from None


_ADVICE = {
    "429": "It limits the rate of requests, and has had enough before any load: wait, and ask who runs it whether, and "
    "how fast, it may be loaded.",
    "503": "It is overloaded, or not up yet.",
}


def _refusal(url: str, label: str, scope: str, failure: str) -> str:
    status = failure.partition(" ")[0]
    if status != "401":
        is_fault = status.startswith("5")
        otherwise = "The server answers, but is not well: look into its log." if is_fault else "Is this a Keystone v3?"
        return f"{url} does not issue a token to {label}: {failure}. {_ADVICE.get(status, otherwise)}"
    advice = {
        "project": "Check name, password, project and their domains.",
        "unscoped": "Check name, password and domain.",
    }.get(scope, f"Check name and password, and that the user has a role on the {scope}.")
    return f"{url} refuses {label}: {failure}. {advice}"


def _cause(error: BaseException) -> str:
    """The innermost reason: "Connection refused" instead of requests' three layers around it."""
    reason: BaseException = error
    while True:
        inner = getattr(reason, "reason", None) or reason.__cause__ or reason.__context__
        if not isinstance(inner, BaseException):
            break
        reason = inner
    if isinstance(reason, OSError) and reason.strerror:
        return reason.strerror
    return first_line(reason)
