"""Keystone's v3 authentication protocol: build a request, judge a response, read credentials. Knows nothing of load."""

from __future__ import annotations

import csv
import dataclasses
import datetime
import http
import json
import math
import re
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import requests
from _errors import HostUnknown, NotReady

SUCCESS = None
"""What judge() and its kin return for a response that is what it should be."""

USERS_COLUMNS = ("username", "password", "user_domain_id", "project_name", "project_domain_id")

MARK_COLUMN = "created_by"
"""A further column that a users file may have."""

MARK = "stackswarm"
"""What stands there for a user that was made for load, and belongs to nobody: such a one may be locked out."""

METHODS = ("password", "token", "application_credential")
"""Ways to authenticate, in Keystone's own words."""

SCOPES = ("project", "domain", "system", "unscoped")
"""What a token may be for."""

TOKEN_HEADER = "X-Subject-Token"  # noqa: S105 (a header's name)

SETUP_USER_AGENT = "stackswarm-setup"
"""Requests made before load begins carry this name, so that the server's request log can be counted without them."""


@dataclasses.dataclass(frozen=True)
class Credential:
    """A user with a password, and what tokens are for. Names or ids; where both are given the id counts."""

    username: str | None
    password: str = dataclasses.field(repr=False)
    user_id: str | None = None
    user_domain_id: str | None = None
    user_domain_name: str | None = None
    project_id: str | None = None
    project_name: str | None = None
    project_domain_id: str | None = None
    project_domain_name: str | None = None
    domain_id: str | None = None
    """For scope domain; without it the user's own domain."""
    domain_name: str | None = None
    created_by: str | None = None
    """MARK for a user that was made for load."""
    origin: str = ""
    """Where it was read, for messages: "users.csv line 3"."""

    @property
    def label(self) -> str:
        """The user in a message, never with the password."""
        return f"user {self.username or self.user_id!r}" + (f" ({self.origin})" if self.origin else "")


@dataclasses.dataclass(frozen=True)
class Cloud:
    """What OS_* variables and clouds.yaml say, in openstacksdk's order of precedence."""

    auth_url: str | None
    verify: bool | str
    """False: certificates are not checked. A string: the file of the certificate authority."""
    credential: Credential | None
    missing: str
    """Why there is no credential; empty where there is one."""


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


def read_users(path: str | Path) -> list[Credential]:
    """Users of a CSV file with the columns USERS_COLUMNS, in any order.

    Raises NotReady, naming file and line, where the file is missing, readable by others, or not what it should be.
    """
    path = Path(path)
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise NotReady(f"{path}: is a folder. Give --users-csv a file.")
        if mode & (stat.S_IRWXG | stat.S_IRWXO):
            octal = f"{stat.S_IMODE(mode):04o}"
            raise NotReady(f"{path}: holds passwords and is open to others (mode {octal}). Run: chmod 600 {path}")
        with path.open(encoding="utf-8-sig", newline="") as file:
            users = _users_of_rows(csv.reader(file, strict=True), path)
    except OSError as error:
        raise NotReady(f"{path}: cannot be read ({error.strerror}). Give --users-csv an existing file.") from error
    except (csv.Error, UnicodeDecodeError) as error:
        raise NotReady(f"{path}: not a CSV file in UTF-8 ({type(error).__name__}).") from None
    if not users:
        raise NotReady(
            f"{path}: holds no user. It needs a header, {','.join(USERS_COLUMNS)}, and one line for each user."
        )
    return users


def _users_of_rows(rows: Iterable[list[str]], path: Path) -> list[Credential]:
    columns: list[str] | None = None
    users = []
    for line, row in enumerate(rows, start=1):
        if columns is None:
            columns = _header(row, path)
        elif row:
            users.append(_user_of_row(columns, row, f"{path} line {line}"))
    return users


def _header(row: list[str], path: Path) -> list[str]:
    columns = [name.strip() for name in row]
    if sorted(columns) not in (sorted(USERS_COLUMNS), sorted((*USERS_COLUMNS, MARK_COLUMN))):
        # The row itself is not shown: in a file without a header it holds a password.
        raise NotReady(
            f"{path} line 1: the header must name these columns, and may name {MARK_COLUMN}, no others: "
            f"{','.join(USERS_COLUMNS)}"
        )
    return columns


def _user_of_row(columns: list[str], values: list[str], where: str) -> Credential:
    if len(values) != len(columns):
        raise NotReady(f"{where}: {len(values)} values where {len(columns)} are needed ({','.join(columns)})")
    row = dict(zip(columns, values, strict=True))
    empty = [name for name in USERS_COLUMNS if not row[name]]
    if empty:
        raise NotReady(f"{where}: no {', '.join(empty)}. Every column but {MARK_COLUMN} needs a value.")
    return Credential(**row, origin=where)


def read_cloud(name: str | None, scope: str = "project") -> Cloud:
    """What the environment (OS_*) or the cloud `name` of clouds.yaml says; openstacksdk decides which goes first.

    The credential must be good for tokens of that scope, one of SCOPES.
    Raises NotReady where the named cloud does not exist or a file is damaged.
    """
    from openstack.config import loader

    try:
        # Not validated here: openstacksdk names the first missing value only, and a URL alone is of use too.
        region = loader.OpenStackConfig().get_one(cloud=name, validate=False)
        verify = region.get_requests_verify_args()[0]
    except Exception as error:  # openstacksdk, keystoneauth and PyYAML raise errors without a common base
        raise NotReady(f"OS_* variables or clouds.yaml: {_first_line(error)}") from None
    config, auth = region.config, dict(region.config.get("auth") or {})
    # where it is not validated, openstacksdk leaves some values beside `auth`
    values = {key: _text(auth.get(key, config.get(key))) for key in _AUTH_KEYS}
    missing = _what_is_missing(config.get("auth_type"), values, scope)
    fields = {key: value for key, value in values.items() if key not in ("auth_url", "password")}
    origin = f"cloud {region.name!r}" if region.name not in ("", "envvars") else "OS_* variables"
    credential = None if missing else Credential(password=values["password"] or "", origin=origin, **fields)
    return Cloud(values["auth_url"], True if verify is None else verify, credential, missing)


_AUTH_KEYS = (
    "auth_url",
    "username",
    "user_id",
    "password",
    "user_domain_id",
    "user_domain_name",
    "project_id",
    "project_name",
    "project_domain_id",
    "project_domain_name",
    "domain_id",
    "domain_name",
)


def _text(value: object) -> str | None:
    # YAML reads an unquoted password of digits as a number
    return None if value is None or value == "" else str(value)


_NEEDED: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "": (("username", "user_id"), ("password",), ("user_domain_name", "user_domain_id", "user_id")),
    "project": (("project_name", "project_id"), ("project_domain_name", "project_domain_id", "project_id")),
    "domain": (("domain_name", "domain_id", "user_domain_name", "user_domain_id"),),
}
"""Of each tuple one must be there; "" stands for every scope."""


def _what_is_missing(auth_type: str | None, values: Mapping[str, str | None], scope: str) -> str:
    if auth_type not in (None, "", "password", "v3password"):
        return f"auth_type {auth_type!r} is not a password, and this workload begins with one"
    needed = _NEEDED[""] + _NEEDED.get(scope, ())
    absent = ["OS_" + names[0].upper() for names in needed if not any(values[name] for name in names)]
    return f"no {', '.join(absent)}" if absent else ""


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def credential_of(cloud: Cloud, instead: str) -> Credential:
    """The cloud's credential. Raises NotReady where there is none, with `instead`: what else the user could do."""
    if cloud.credential is None:
        raise NotReady(f"No Keystone credential: {cloud.missing}. Set the OS_* variables or name a cloud{instead}.")
    return cloud.credential


def host_of(cloud: Cloud, host: str | None) -> str:
    """The --host, or else the cloud's URL. Raises HostUnknown where nothing says where Keystone is."""
    found = host or cloud.auth_url
    if not found:
        raise HostUnknown(
            "Where is Keystone? Give --host, set OS_AUTH_URL, or name a cloud of clouds.yaml (--os-cloud)."
        )
    return found


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
    if not failure.startswith("401"):
        status = failure.partition(" ")[0]
        advice = "The server answers, but is not well: look into its log." if status.startswith("5") else None
        advice = _ADVICE.get(status) or advice or "Is this a Keystone v3?"
        return f"{url} does not issue a token to {label}: {failure}. {advice}"
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
    return _first_line(reason)
