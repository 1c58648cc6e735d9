"""Keystone: how fast does it validate tokens? GET or HEAD /v3/auth/tokens on a pool of tokens.

This is what every OpenStack service does with the token of every request it gets. The caller (X-Auth-Token) is the
user of the OS_* variables or of `--os-cloud`, who must be allowed to validate others' tokens, as an admin is; with
`--caller own` each token is validated by its own right. Before the load each Locust process that runs users makes
`--token-pool` tokens (default 20) to be validated (X-Subject-Token): of the users of `--users-csv`, or else of the
caller. How large the pool is decides how often the server's cache helps.

    locust -f keystone_validate.py --host http://keystone:5000 --token-pool 20 -u 32 -r 32 -t 60s --headless

Success is 200, for GET with the expected user in the body. Everything else is a failure, named by status and Keystone's
error title ("404 Not Found", "401 Unauthorized"). With `--revoked-tokens 10%` that share of the pool is revoked before
the load: success is 404 then, under a name of its own. Revocations stay in Keystone's list until the tokens would have
expired, and every validation looks through it: compare shares on servers that were started fresh.

Tokens are replaced shortly before they expire, beside the load; the fact `expired_tokens_count` says how many. Where
that did not succeed in time, "the token had expired" stands behind the failure.
Where no token can be made, Locust ends with one message and exit code 2.
"""

# mypy: allow-untyped-calls, allow-untyped-decorators
# (Locust's event hooks are not typed.)

from __future__ import annotations

import dataclasses
import http
import itertools
import random
from collections.abc import Callable, Iterator

import _preparation
from _errors import NotReady
from _http import HttpLoadUser
from _http_client import Request
from _http_parser import Response
from _keystone import (
    TOKEN_HEADER,
    Token,
    authenticate_once,
    judge_check,
    judge_revoked,
    judge_validation,
    token_format,
)
from _keystone_credentials import (
    Credential,
    credential_of,
)
from _keystone_setup import make_all, revoke_once
from _keystone_tokens import KeptToken, TokenKeeper
from _keystone_users import OPTIONS, Target, check_first_user, read_target
from _load_user import LoadUser
from _option_kinds import add_choice, add_count, add_share, count_of, share_of
from _options import chosen, option
from _response_times import record_fact
from _shares import evenly
from _user_numbers import walk_all
from locust import events
from locust.argument_parser import LocustArgumentParser
from locust.env import Environment

NAME = "/v3/auth/tokens"
REVOKED_NAME = f"{NAME} (revoked)"
USER_AGENT = "stackswarm-keystone_validate"
HTTP_METHODS = ("GET", "HEAD")
CALLERS = ("admin", "own")
TOKEN_POOL = 20
EXPIRED = ": the token had expired"


@dataclasses.dataclass(slots=True)
class Row:
    """One token of the pool, and how it is validated."""

    user_id: str
    is_revoked: bool
    token: str = dataclasses.field(repr=False)
    request: Request
    """Changes where it holds a token that is replaced."""
    is_expired: Callable[[], bool]
    """Whether this token, or the caller's, is."""


class KeystoneValidate(LoadUser, HttpLoadUser):
    """Validates the tokens of the pool, one after the other."""

    pool: list[Row]
    walk: Iterator[Row]

    def on_start(self) -> None:
        """Begin the walk through the pool at another token than the other users."""
        self.walk = walk_all(self.environment, self.pool)

    def make_request(self) -> None:
        """One GET or HEAD /v3/auth/tokens."""
        row = next(self.walk)
        self.ask(row.request, REVOKED_NAME if row.is_revoked else NAME, lambda response: judge(row, response))


def judge(row: Row, response: Response) -> str | None:
    """What a whole response is worth."""
    if row.is_revoked:
        failure = judge_revoked(response.status, response.body)
    elif row.request.method == "HEAD":
        failure = judge_check(response.status, response.body)
    else:
        failure = judge_validation(response.status, response.body, row.user_id)
    is_refusal = response.status in (http.HTTPStatus.UNAUTHORIZED, http.HTTPStatus.NOT_FOUND)
    return failure + EXPIRED if failure and is_refusal and row.is_expired() else failure


@dataclasses.dataclass(frozen=True)
class Plan:
    """What the options ask for."""

    http_method: str
    caller: str
    revoked: list[bool]
    """For each token of the pool."""


def read_plan(environment: Environment) -> Plan:
    """Read the options. Raises NotReady where one is wrong, or two do not go together."""
    size = count_of(environment, "token_pool", TOKEN_POOL)
    share = share_of(environment, "revoked_tokens")
    plan = Plan(
        chosen(environment, "http_method", HTTP_METHODS),
        chosen(environment, "caller", CALLERS),
        list(itertools.islice(evenly(share), size)),
    )
    if share and plan.caller == "own":
        raise NotReady(
            "--revoked-tokens: a revoked token cannot be validated by its own right: --caller must be admin."
        )
    if share and not any(plan.revoked):
        raise NotReady(f"--revoked-tokens: this share of a --token-pool of {size} is not one token.")
    return plan


def check(environment: Environment) -> None:
    """Log the caller in, and the first user of the pool. Raises NotReady where that fails."""
    plan = read_plan(environment)
    target = read_target(environment)
    if plan.caller == "admin":
        authenticate_once(target.url, caller_of(target), target.verify)
    check_first_user(environment)


def caller_of(target: Target) -> Credential:
    """Who validates, where it is not the token itself. Raises NotReady where nobody is named."""
    return credential_of(target.cloud, " for the caller who validates")


class Pool:
    """Makes the tokens, and the requests that validate them."""

    def __init__(self, target: Target, plan: Plan) -> None:
        """Asks nobody yet."""
        self._target, self._plan = target, plan
        self._caller = ""
        self._rows: list[Row] = []
        self.kept: list[KeptToken] = []

    def make(self, users: list[Credential]) -> list[Row]:
        """One row for each user, in order. Raises NotReady where Keystone refuses a token."""
        if self._plan.caller == "admin":
            asker = caller_of(self._target)
            self.kept.append(KeptToken(self._issue(asker), lambda: self._issue(asker), self._use_caller))
        jobs = list(zip(users, self._plan.revoked, strict=True))
        self._rows = make_all("tokens", lambda job: self._row(*job), jobs)
        return self._rows

    def _issue(self, user: Credential) -> Token:
        return authenticate_once(self._target.url, user, self._target.verify)

    def _row(self, user: Credential, is_revoked: bool) -> Row:
        token = self._issue(user)
        row = Row(token.user_id, is_revoked, token.id, self._request(token.id), lambda: self._is_expired(kept))
        kept = KeptToken(token, lambda: self._issue(user), lambda token: self._use(row, token))
        if is_revoked:
            revoke_once(self._target.url, token, user.label, self._target.verify)
        else:
            self.kept.append(kept)
        return row

    def _is_expired(self, kept: KeptToken) -> bool:
        return kept.is_expired or (self._plan.caller == "admin" and self.kept[0].is_expired)

    def _request(self, token: str) -> Request:
        headers = {"User-Agent": USER_AGENT, "Accept": "application/json"}
        headers |= {"X-Auth-Token": self._caller or token, TOKEN_HEADER: token}
        return self._target.site.request(self._plan.http_method, self._target.query, headers)

    def _use(self, row: Row, token: Token) -> None:
        row.token, row.request = token.id, self._request(token.id)

    def _use_caller(self, token: Token) -> None:
        self._caller = token.id
        for row in self._rows:
            row.request = self._request(row.token)


def prepare(environment: Environment) -> None:
    """Make the caller's token and the pool. Raises NotReady where Keystone refuses one."""
    plan, target = read_plan(environment), read_target(environment)
    users = list(target.users)
    random.Random(option(environment, "seed", 1)).shuffle(users)
    pool = Pool(target, plan)
    KeystoneValidate.site = target.site
    KeystoneValidate.pool = pool.make([users[n % len(users)] for n in range(len(plan.revoked))])
    keeper = TokenKeeper(environment, pool.kept)
    _preparation.clear_later(environment, keeper.stop)
    record_fact(environment, "token_format", token_format(KeystoneValidate.pool[0].token))
    record_fact(environment, "token_pool", len(plan.revoked))


@events.init_command_line_parser.add_listener
def _add_options(parser: LocustArgumentParser) -> None:
    add_count(
        parser,
        "token_pool",
        TOKEN_POOL,
        "keystone_validate: how many tokens each process makes before the load, and validates.",
    )
    add_choice(
        parser,
        "http_method",
        HTTP_METHODS,
        "keystone_validate: GET reads the token's roles and catalogue, HEAD asks only whether it is valid.",
    )
    add_choice(
        parser,
        "caller",
        CALLERS,
        "keystone_validate: who validates. admin: the user of OS_* or --os-cloud. own: each token itself.",
    )
    add_share(
        parser,
        "revoked_tokens",
        "keystone_validate: share of the pool, such as 0.1, that is revoked before the load, and expects 404.",
    )


OWN_OPTIONS = ("token_pool", "http_method", "caller", "revoked_tokens", "seed")
_preparation.before_load(KeystoneValidate, check, prepare, (*OPTIONS, *OWN_OPTIONS))
