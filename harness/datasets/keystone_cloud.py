"""Keystone's administration, by python-keystoneclient: what is asked of a cloud, and how often it is asked again."""

# mypy: allow-untyped-calls
# (python-keystoneclient is not typed.)

from __future__ import annotations

import dataclasses
import os
import random
import textwrap
import threading
import urllib.parse
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import requests
from keystoneauth1 import exceptions, session
from keystoneclient.v3.client import Client
from requests.adapters import HTTPAdapter

from harness.datasets.errors import CloudError, DatasetError
from harness.datasets.parallel import Stopped
from harness.datasets.users_file import MARK
from harness.hosts import checked_url

MARK_ATTRIBUTE, DATASET_ATTRIBUTE = "created_by", "stackswarm_dataset"
"""Keystone keeps attributes that it does not know, with projects and with users."""
TIMEOUT_S = 60.0
"""Of one request."""
LONGEST_WAIT_S = 30.0
TRANSIENT = {409, 429, 500, 502, 503, 504}
REFUSED_ATTEMPTS = 2
"""For 401. More could lock the administrator out; keystoneauth has tried a new token before each is counted."""

Answer = TypeVar("Answer")


@dataclasses.dataclass(frozen=True)
class Object:
    """A project or user as the cloud shows it."""

    kind: str
    id: str
    name: str
    domain_id: str
    created_by: str | None
    dataset: str | None


@dataclasses.dataclass(frozen=True)
class Patience:
    """How often a request is made that fails for now, and how long the first wait is; each further one is doubled."""

    attempts: int = 6
    first_wait_s: float = 0.5

    def wait_s(self, failures: int, retry_after: str | None, share: float) -> float:
        """Seconds until the next attempt: half is certain, the rest by `share`, so that thirty do not come at once."""
        if retry_after is not None and retry_after.isdecimal():
            return min(float(retry_after), LONGEST_WAIT_S) + share * self.first_wait_s
        return min(self.first_wait_s * 2.0 ** (failures - 1), LONGEST_WAIT_S) * (0.5 + share / 2)


def marks(dataset: str) -> dict[str, str]:
    """The attributes that say an object is ours; nothing without them is ever changed or removed."""
    return {MARK_ATTRIBUTE: MARK, DATASET_ATTRIBUTE: dataset}


class Cloud:
    """A Keystone, and an administrator of it. May be used from several threads.

    Every method raises CloudError where Keystone refuses or still fails at the last attempt, and Stopped once `stop` is
    set. All requests go to the host of `auth_url`, whatever the catalogue or an answer says: there is where the person
    at the keyboard agreed to write.
    """

    def __init__(
        self, auth_url: str, auth: Any, verify: bool | str, connections: int, patience: Patience = Patience()
    ) -> None:
        http = requests.Session()
        http.trust_env = False  # as the locustfiles: neither proxies nor ~/.netrc
        for scheme in ("http://", "https://"):
            http.mount(scheme, HTTPAdapter(pool_connections=1, pool_maxsize=connections))
        self.auth_url, self.stop = auth_url, threading.Event()
        self._patience = patience
        self._session = session.Session(
            auth=auth, verify=verify, timeout=TIMEOUT_S, session=http, redirect=False, user_agent="stackswarm-dataset"
        )
        self._client = Client(session=self._session, endpoint_override=auth_url)

    def log_in(self) -> None:
        """Ask for the first token. Raises DatasetError where the credentials are wrong."""
        try:
            self._ask(f"log in at {self.auth_url}", self._session.get_token, refused_attempts=1)
        except CloudError as error:
            if isinstance(error.__cause__, exceptions.Unauthorized):
                raise DatasetError(
                    f"{self.auth_url} refuses the administrator of OS_*: 401 Unauthorized. Check OS_USERNAME, "
                    "OS_PASSWORD, OS_PROJECT_NAME and their domains"
                ) from None
            raise

    def domain_id(self, domain: str) -> str:
        """Id of a domain, given by id or name. Raises DatasetError where there is none."""
        if domain in {"", ".", ".."}:  # in a URL, these lead elsewhere
            raise DatasetError(f"--domain {domain!r} is no domain; name an existing one")
        quoted = urllib.parse.quote(domain, safe="")
        found = self._ask_or_none(f"find domain {domain}", lambda: self._client.domains.get(quoted))
        named = [found] if found else self._ask(f"find domain {domain}", lambda: self._client.domains.list(name=domain))
        if not named:
            raise DatasetError(f"{self.auth_url} has no domain {domain!r}; name an existing one with --domain")
        return str(named[0].id)

    def domain_ids(self) -> list[str]:
        """Ids of all domains."""
        return [str(domain.id) for domain in self._ask("list domains", self._client.domains.list)]

    def role_id(self, role: str) -> str:
        """Id of a role that is no domain's own. Raises DatasetError where there is none."""
        named = self._ask(f"find role {role}", lambda: self._client.roles.list(name=role))
        if not named:
            raise DatasetError(f"{self.auth_url} has no role {role!r}; name an existing one with --role")
        return str(named[0].id)

    def has_role(self, role_id: str) -> bool:
        """Whether there is a role of this id, which tells clouds apart."""
        return self._ask_or_none("find a role", lambda: self._client.roles.get(role_id)) is not None

    def create_project(self, name: str, domain_id: str, dataset: str) -> Object | None:
        """Make a project. None where the name is taken, maybe by an earlier attempt of ours."""
        return self._create(
            "project", name,
            lambda: self._client.projects.create(
                name, domain=domain_id, description=_description(dataset), **marks(dataset)
            ),
        )  # fmt: skip

    def create_user(self, name: str, domain_id: str, dataset: str, project_id: str, password: str) -> Object | None:
        """Make a user. None where the name is taken, maybe by an earlier attempt of ours."""
        return self._create(
            "user", name,
            lambda: self._client.users.create(
                name, domain=domain_id, default_project=project_id, password=password,
                description=_description(dataset), **marks(dataset),
            ),
        )  # fmt: skip

    def set_password(self, user: Object, password: str) -> None:
        """Of a user whose password was lost with the program that made it."""
        self._ask(f"set the password of {user.name}", lambda: self._client.users.update(user.id, password=password))

    def grant(self, role_id: str, user: Object, **on: str) -> None:
        """Give a user a role on one thing: project=ID, domain=ID or system="all"; once more does no harm."""
        what = f"give {user.name} a role on {'the system' if 'system' in on else ' '.join(*on.items())}"
        self._ask(what, lambda: self._client.roles.grant(role_id, user=user.id, **on))

    def get(self, kind: str, id_: str) -> Object | None:
        """The project or user of this id; None where there is none."""
        found = self._ask_or_none(f"read {kind} {id_}", lambda: self._manager(kind).get(id_))
        return found and _object(kind, found)

    def find(self, kind: str, name: str, domain_id: str) -> Object | None:
        """The project or user of this name; None where there is none."""
        found = self._ask(f"find {kind} {name}", lambda: self._manager(kind).list(domain=domain_id, name=name))
        return _object(kind, found[0]) if found else None

    def all_of(self, kind: str, domain_id: str) -> list[Object]:
        """All projects or users of a domain."""
        found = self._ask(f"list {kind}s", lambda: self._manager(kind).list(domain=domain_id))
        return [_object(kind, one) for one in found]

    def delete(self, object_: Object) -> str | None:
        """Remove it. None where it has gone, also if somebody else was first; else why Keystone keeps it."""
        try:
            self._ask_or_none(
                f"remove {object_.kind} {object_.name}", lambda: self._manager(object_.kind).delete(object_.id)
            )
        except CloudError as error:
            if isinstance(error.__cause__, exceptions.Forbidden):
                return f"Keystone refuses to remove it: {_in_words(error.__cause__)}"
            raise
        return None

    def _create(self, kind: str, name: str, make: Callable[[], Any]) -> Object | None:
        try:
            return _object(kind, self._ask(f"make {kind} {name}", make, transient=TRANSIENT - {409}))
        except CloudError as error:
            if isinstance(error.__cause__, exceptions.Conflict):
                return None
            raise

    def _manager(self, kind: str) -> Any:
        return {"project": self._client.projects, "user": self._client.users}[kind]

    def _ask_or_none(self, what: str, call: Callable[[], Answer]) -> Answer | None:
        try:
            return self._ask(what, call)
        except CloudError as error:
            if isinstance(error.__cause__, exceptions.NotFound):
                return None
            raise

    def _ask(
        self,
        what: str,
        call: Callable[[], Answer],
        transient: set[int] = TRANSIENT,
        refused_attempts: int = REFUSED_ATTEMPTS,
    ) -> Answer:
        """The answer, asked for as often as the failure is one that may pass. The CloudError's cause is the last."""
        failures = 0
        while True:
            if self.stop.is_set():
                raise Stopped
            try:
                return call()
            except exceptions.ClientException as error:
                failures += 1
                if failures >= self._attempts(error, transient, refused_attempts):
                    raise CloudError(_refusal(what, error, failures)) from error
                last = error
            except (KeyError, TypeError, ValueError) as error:  # an answer without what keystoneclient looks for
                raise CloudError(f"cannot {what}: {self.auth_url} answers, but not as a Keystone v3 does") from error
            self.stop.wait(self._patience.wait_s(failures, _retry_after(last), random.random()))

    def _attempts(self, error: BaseException, transient: set[int], refused_attempts: int) -> int:
        if isinstance(error, exceptions.SSLError):
            return 1  # a certificate does not become good
        if isinstance(error, exceptions.ConnectionError):
            return self._patience.attempts
        status = getattr(error, "http_status", None)
        if status == 401:
            return refused_attempts
        return self._patience.attempts if status in transient else 1


def connect(cacert: str | None, connections: int) -> Cloud:
    """The Keystone and the administrator that the OS_* variables name. Asks nothing yet. Raises DatasetError."""
    from openstack.config import loader

    url = os.environ.get("OS_AUTH_URL", "").rstrip("/").removesuffix("/v3")
    try:
        checked_url(url, "OS_AUTH_URL")
    except ValueError as error:
        raise DatasetError(f"{error}. Set the OS_* variables of the cloud's administrator") from None
    if cacert is not None and not Path(cacert).is_file():
        raise DatasetError(f"--os-cacert {cacert}: there is no such file")
    # Plain "password" would ask the server where it is, and go there.
    type_ = {"": "v3password", "password": "v3password"}.get(kind := os.environ.get("OS_AUTH_TYPE", ""), kind)
    if missing := _what_is_missing() if type_ == "v3password" else "":
        raise DatasetError(f"no {missing}: set the OS_* variables of the cloud's administrator")
    try:
        # Neither clouds.yaml nor OS_CLOUD: one source for where users are made and removed.
        config = loader.OpenStackConfig(load_yaml_config=False)
        region = config.get_one("envvars", auth_type=type_, cacert=cacert)
        region.config["auth"]["auth_url"] = f"{url}/v3"
        auth, verify = region.get_auth(), region.get_requests_verify_args()[0]
    except Exception as error:  # openstacksdk and keystoneauth raise errors without a common base
        raise DatasetError(f"OS_* variables: {_in_words(error)}") from None
    return Cloud(f"{url}/v3", auth, True if verify is None else verify, connections)


def _what_is_missing() -> str:
    needed = (("OS_USERNAME", "OS_USER_ID"), ("OS_PASSWORD",))
    return ", ".join(names[0] for names in needed if not any(os.environ.get(name) for name in names))


def _description(dataset: str) -> str:
    return f"made by {MARK} for a measurement, dataset {dataset}"


def _object(kind: str, found: Any) -> Object:
    values = found.to_dict()
    created_by, dataset = (
        value if isinstance(value := values.get(name), str) else None for name in (MARK_ATTRIBUTE, DATASET_ATTRIBUTE)
    )
    return Object(kind, values["id"], values["name"], values.get("domain_id") or "", created_by, dataset)


def _retry_after(error: exceptions.ClientException) -> str | None:
    response = getattr(error, "response", None)
    return None if response is None else response.headers.get("Retry-After")


def _refusal(what: str, error: exceptions.ClientException, failures: int) -> str:
    again = f" ({failures} attempts)" if failures > 1 else ""
    advice = {
        401: ". The administrator's password or rights may have changed",
        403: ". It takes an administrator of the domain: check the role of OS_USERNAME",
        429: ". The cloud limits the rate of requests: try a lower --concurrency",
    }.get(getattr(error, "http_status", 0), "")
    return f"cannot {what}: {_in_words(error)}{again}{advice}"


def _in_words(error: BaseException) -> str:
    """The first line, without what only its author can use."""
    text = (str(error).strip().splitlines() or [type(error).__name__])[0]
    if isinstance(error, exceptions.ConnectFailure) and (reason := _system_error(error)):
        # "Unable to establish connection to URL: " and then three layers of libraries around the reason.
        text = f"{text.partition(': ')[0]}: {reason}"
    return textwrap.shorten(text.partition(" (Request-ID: ")[0], 300, placeholder=" …")


def _system_error(error: BaseException) -> str:
    """What the operating system said, "Connection refused" for one; empty where it said nothing."""
    inner: BaseException | None = error
    said = ""
    while isinstance(inner, BaseException):
        said = inner.strerror if isinstance(inner, OSError) and inner.strerror else said
        inner = getattr(inner, "reason", None) or inner.__cause__ or inner.__context__
    return said
