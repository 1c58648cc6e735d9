"""What Keystone workloads need made before load, outside of it: many tokens, application credentials, revoked tokens.

Every request here carries SETUP_USER_AGENT. What would stay on a cloud is removed after the load; should that not be
possible, because the process was killed, an application credential expires by itself after LIFETIME.
"""

# mypy: allow-untyped-calls
# (gevent is not typed.)

from __future__ import annotations

import dataclasses
import datetime
import http
import json
import logging
import secrets
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

import gevent
from _errors import NotReady
from _keystone import (
    TOKEN_HEADER,
    Token,
    ask_once,
    authenticate_once,
    describe_failure,
)
from _keystone_credentials import (
    MARK,
    Credential,
)
from gevent.pool import Pool

MAKERS = 4
"""Requests for tokens and the like that are made at the same time."""
PROGRESS_S = 5.0
REMOVAL_S = 30.0
"""Longest time for removing what was made."""
REQUEST_S = 10.0
"""Longest time for one request of the removal."""
LIFETIME = datetime.timedelta(days=7)

Job = TypeVar("Job")
Made = TypeVar("Made")

log = logging.getLogger(__name__)


def make_all(what: str, make: Callable[[Job], Made], jobs: Sequence[Job]) -> list[Made]:
    """`make` for each job, MAKERS at a time, in the order of the jobs; says how far it is every few seconds.

    Raises the first NotReady that `make` raises; no further one is begun then, and those begun have ended.
    """
    pool, waiting, said = Pool(MAKERS), iter(jobs), time.monotonic()
    made: list[Made] = []

    def attempt(job: Job) -> Made | NotReady:
        try:
            return make(job)
        except NotReady as error:  # gevent would print a traceback of it
            return error

    try:
        for one in pool.imap(attempt, waiting):
            if isinstance(one, NotReady):
                raise one
            made.append(one)
            if time.monotonic() - said >= PROGRESS_S:
                said = time.monotonic()
                log.info("%s: %d of %d made", what, len(made), len(jobs))
    except BaseException:
        list(waiting)
        pool.join(REQUEST_S)
        raise
    return made


@dataclasses.dataclass(frozen=True)
class ApplicationCredential:
    """One that was made before the load. The secret stays out of repr()."""

    id: str
    secret: str = dataclasses.field(repr=False)
    name: str
    owner: Credential
    token: Token


class ApplicationCredentials:
    """Those that this process has made, until they are removed."""

    def __init__(self, url: str, verify: bool | str) -> None:
        """`url`: of /v3/auth/tokens."""
        self._url, self._verify = url, verify
        self._made: list[ApplicationCredential] = []

    def make(self, owners: Sequence[Credential]) -> list[ApplicationCredential]:
        """One for each owner, in their order. Raises NotReady where one is refused; none is left then."""
        try:
            return make_all("application credentials", self._make, owners)
        except BaseException:
            self.remove()
            raise

    def remove(self) -> None:
        """Remove them all. What cannot be removed is said in the log, and expires by itself."""
        left, self._made = self._made, []
        removed: list[ApplicationCredential] = []
        with gevent.Timeout(REMOVAL_S, False):
            removed = [one for one in Pool(MAKERS).imap_unordered(self._remove, left) if one is not None]
        stayed = {one.name for one in left} - {one.name for one in removed}
        if stayed:
            log.error(
                "%d application credentials could not be removed, and expire in %d days: %s",
                len(stayed), LIFETIME.days, ", ".join(sorted(stayed)),
            )  # fmt: skip

    def _make(self, owner: Credential) -> ApplicationCredential:
        token = authenticate_once(self._url, owner, self._verify)
        name = f"{MARK}-{secrets.token_hex(8)}"
        expires_at = (datetime.datetime.now(datetime.UTC) + LIFETIME).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        wanted = {"name": name, "description": f"made by {MARK} for a measurement", "expires_at": expires_at}
        body = json.dumps({"application_credential": wanted})
        response = ask_once("POST", self._collection(token), {"X-Auth-Token": token.id}, body, self._verify)
        if response.status_code != http.HTTPStatus.CREATED:
            failure = describe_failure(response.status_code, response.content)
            raise NotReady(f"{self._url}: no application credential for {owner.label}: {failure}.")
        found = response.json()["application_credential"]
        made = ApplicationCredential(found["id"], found["secret"], name, owner, token)
        self._made.append(made)
        return made

    def _remove(self, made: ApplicationCredential) -> ApplicationCredential | None:
        try:
            if self._delete(made, made.token):
                return made
            again = authenticate_once(self._url, made.owner, self._verify, REQUEST_S)  # the load outlasted the token
            return made if self._delete(made, again) else None
        except NotReady:
            return None

    def _delete(self, made: ApplicationCredential, token: Token) -> bool:
        url = f"{self._collection(token)}/{made.id}"
        response = ask_once("DELETE", url, {"X-Auth-Token": token.id}, None, self._verify, REQUEST_S)
        return response.status_code in (http.HTTPStatus.NO_CONTENT, http.HTTPStatus.NOT_FOUND)

    def _collection(self, token: Token) -> str:
        return f"{self._url.removesuffix('/auth/tokens')}/users/{token.user_id}/application_credentials"


def revoke_once(url: str, token: Token, label: str, verify: bool | str) -> None:
    """Revoke a token by its own right. Raises NotReady where that is refused."""
    response = ask_once("DELETE", url, {"X-Auth-Token": token.id, TOKEN_HEADER: token.id}, None, verify)
    if response.status_code != http.HTTPStatus.NO_CONTENT:
        failure = describe_failure(response.status_code, response.content)
        raise NotReady(f"{url} does not revoke a token of {label}: {failure}.")
