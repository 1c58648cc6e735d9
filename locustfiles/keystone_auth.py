"""Keystone: how fast does it authenticate? POST /v3/auth/tokens by one method, for one scope.

Each Locust user is one client with one connection (`--connection new`: one for each request), which authenticates as
one Keystone user after the other and waits `--think-time` seconds (default 0) between an answer and the next request.

    locust -f keystone_auth.py --host http://keystone:5000 --users-csv users.csv -u 32 -r 32 -t 60s --headless

`--host` may carry a path (http://cloud/identity) and may be left out where OS_AUTH_URL or a cloud is set. Users come
from `--users-csv` (mode 0600), each Locust user walking its own share in an order that `--seed` repeats; without it
from OS_* variables or clouds.yaml (`--os-cloud`). One user is logged in before the load; where that fails, Locust ends
with one message and exit code 2.

`--auth-method` password (the default) sends name and password. token sends an unscoped token of the user's to get one
for `--scope`; application_credential sends the id and secret of one. Before the load each Locust process that runs
users makes such tokens or application credentials for `--prepared-users` users (default 20), and application
credentials are removed afterwards. Requests are named for their method.

Success is 201 with an X-Subject-Token. Everything else is a failure, named by status and Keystone's error title
("401 Unauthorized", "429 Too Many Requests") or by what happened to the connection ("timed out"). With
`--wrong-passwords 10%` that share of requests sends a wrong password: success is 401 then, under a name of its own.
Where Keystone locks users out, they will be, and so it is done to users alone that were made for load.
"""

# mypy: allow-untyped-calls, allow-untyped-decorators
# (Locust's event hooks are not typed.)

from __future__ import annotations

import dataclasses
import itertools
import random
import secrets
from collections.abc import Iterator
from fractions import Fraction

import _preparation
from _errors import NotReady
from _http import HttpLoadUser
from _http_client import Request
from _http_parser import Response
from _keystone import (
    METHODS,
    SCOPES,
    TOKEN_HEADER,
    Token,
    application_credential_body,
    authenticate_once,
    authentication_body,
    issue_once,
    judge_authentication,
    judge_refusal,
    rescoping_body,
    token_format,
)
from _keystone_credentials import (
    MARK,
    MARK_COLUMN,
    Credential,
)
from _keystone_setup import ApplicationCredentials, make_all
from _keystone_tokens import KeptToken, TokenKeeper
from _keystone_users import OPTIONS, Target, read_target
from _load_user import LoadUser
from _option_kinds import add_choice, add_count, add_share, count_of, share_of
from _options import chosen, option
from _response_times import record_fact
from _shares import evenly
from _user_numbers import walk
from locust import events
from locust.argument_parser import LocustArgumentParser
from locust.env import Environment

NAME = "/v3/auth/tokens"
NAMES = {
    "password": NAME,
    "token": f"{NAME} (token)",
    "application_credential": f"{NAME} (application credential)",
}
PREPARED_USERS = 20
WRONG_NAME = f"{NAME} (wrong password)"
HEADERS = {"Content-Type": "application/json", "User-Agent": "stackswarm-keystone_auth"}


@dataclasses.dataclass(frozen=True)
class Plan:
    """What the options ask for."""

    method: str
    scope: str
    prepared_users: int
    wrong: Fraction
    """Share of the requests with a wrong password."""


@dataclasses.dataclass(slots=True)
class Row:
    """One Keystone user's requests. The right one changes where it holds a token that is replaced."""

    right: Request
    wrong: Request | None = None


class KeystoneAuth(LoadUser, HttpLoadUser):
    """Authenticates, again and again."""

    rows: list[Row]
    """One for each Keystone user."""
    name: str
    """Of the requests."""
    wrong: Iterator[bool]
    """For each request of this process whether its password is wrong."""
    walk: Iterator[Row]

    def on_start(self) -> None:
        """Take this user's share of the Keystone users."""
        self.walk = walk(self.environment, self.rows)
        self.format_known = False

    def make_request(self) -> None:
        """One POST /v3/auth/tokens."""
        row = next(self.walk)
        if next(self.wrong) and row.wrong is not None:
            self.ask(row.wrong, WRONG_NAME, lambda response: judge_refusal(response.status, response.body))
            return
        response = self.ask(row.right, self.name, judge)
        if not self.format_known and response.failure is None:
            self.note_format(response.headers[TOKEN_HEADER])

    def note_format(self, token: str) -> None:
        """Record the token format this server issues, once a user."""
        record_fact(self.environment, "token_format", token_format(token))
        self.format_known = True


def judge(response: Response) -> str | None:
    """What a whole response is worth."""
    return judge_authentication(response.status, response.headers, response.body)


def read_plan(environment: Environment) -> Plan:
    """Read the options. Raises NotReady where one is wrong, or two do not go together."""
    plan = Plan(
        chosen(environment, "auth_method", METHODS),
        chosen(environment, "scope", SCOPES),
        count_of(environment, "prepared_users", PREPARED_USERS),
        share_of(environment, "wrong_passwords"),
    )
    if plan.method == "application_credential" and plan.scope != "project":
        raise NotReady("--scope: an application credential is for one project, so its only scope is project.")
    if plan.method != "password" and plan.wrong:
        raise NotReady(f"--wrong-passwords: there is no password in --auth-method {plan.method}.")
    return plan


def check(environment: Environment) -> None:
    """Log one user in, by the method and for the scope asked for. Raises NotReady where that fails."""
    plan = read_plan(environment)
    target = read_users_and_site(environment, plan)
    user = target.users[0]
    if plan.method == "token":
        rescope(target, user, authenticate_once(target.url, user, target.verify, scope="unscoped"), plan.scope)
    else:
        authenticate_once(target.url, user, target.verify, scope=plan.scope)


def read_users_and_site(environment: Environment, plan: Plan) -> Target:
    """As read_target(), in every process: a worker elsewhere reads a users' file of its own. Raises NotReady."""
    target = read_target(environment, plan.scope)
    if plan.wrong:
        check_users_are_ours(target.users)
    return target


def check_users_are_ours(users: list[Credential]) -> None:
    """Raise NotReady unless every user was made for load: wrong passwords may lock out who they belong to."""
    for user in users:
        if user.created_by != MARK:
            raise NotReady(
                f"--wrong-passwords could lock out {user.label}, who is not marked as made for load. It "
                f"needs a --users-csv where the column {MARK_COLUMN} says {MARK} for every user, as our datasets' do."
            )


def rescope(target: Target, user: Credential, token: Token, scope: str) -> None:
    """Ask for one token by token, outside of the load. Raises NotReady where that fails."""
    issue_once(target.url, rescoping_body(token.id, user, scope), user.label, scope, target.verify)


def prepare(environment: Environment) -> None:
    """Make the users' requests and what they hold, once for the whole process. Raises NotReady."""
    plan = read_plan(environment)
    target = read_users_and_site(environment, plan)
    request = target.site.request("POST", target.query, HEADERS)
    KeystoneAuth.site = target.site
    KeystoneAuth.name = NAMES[plan.method]
    KeystoneAuth.wrong = evenly(plan.wrong) if plan.wrong else itertools.repeat(False)
    if plan.method == "password":
        KeystoneAuth.rows = with_passwords(target.users, request, plan)
        return
    users = list(target.users)
    random.Random(option(environment, "seed", 1)).shuffle(users)
    del users[plan.prepared_users :]
    if plan.method == "token":
        KeystoneAuth.rows = with_tokens(environment, target, users, request, plan.scope)
    else:
        KeystoneAuth.rows = with_application_credentials(environment, target, users, request)


def with_passwords(users: list[Credential], request: Request, plan: Plan) -> list[Row]:
    """Requests by password; wrong ones, too, where they are wanted."""

    def made(user: Credential) -> Request:
        return request.with_body(authentication_body(user, plan.scope).encode())

    if not plan.wrong:
        return [Row(made(user)) for user in users]
    wrong = secrets.token_urlsafe(16)
    return [Row(made(user), made(dataclasses.replace(user, password=wrong))) for user in users]


def with_tokens(
    environment: Environment, target: Target, users: list[Credential], request: Request, scope: str
) -> list[Row]:
    """Requests by an unscoped token, which is replaced before it expires. Raises NotReady."""
    rows = [Row(request) for _ in users]

    def kept(job: tuple[Credential, Row]) -> KeptToken:
        user, row = job

        def issue() -> Token:
            return authenticate_once(target.url, user, target.verify, scope="unscoped")

        def use(token: Token) -> None:
            row.right = request.with_body(rescoping_body(token.id, user, scope).encode())

        return KeptToken(issue(), issue, use)

    keeper = TokenKeeper(environment, make_all("tokens", kept, list(zip(users, rows, strict=True))))
    _preparation.clear_later(environment, keeper.stop)
    return rows


def with_application_credentials(
    environment: Environment, target: Target, users: list[Credential], request: Request
) -> list[Row]:
    """Requests by application credential, which are removed after the load. Raises NotReady."""
    credentials = ApplicationCredentials(target.url, target.verify)
    made = credentials.make(users)
    _preparation.clear_later(environment, credentials.remove)
    return [Row(request.with_body(application_credential_body(one.id, one.secret).encode())) for one in made]


@events.init_command_line_parser.add_listener
def _add_options(parser: LocustArgumentParser) -> None:
    add_choice(
        parser, "auth_method", METHODS, "keystone_auth: what a user authenticates with. token: an unscoped token."
    )
    add_choice(
        parser,
        "scope",
        SCOPES,
        "keystone_auth: what tokens are for. domain: OS_DOMAIN_ID or OS_DOMAIN_NAME, or else the user's own.",
    )
    add_count(
        parser,
        "prepared_users",
        PREPARED_USERS,
        "keystone_auth: for how many users each process makes a token or application credential before the load, "
        "where --auth-method is one of these.",
    )
    add_share(
        parser,
        "wrong_passwords",
        "keystone_auth: share of the requests, such as 0.1, that send a wrong password and expect 401. Only for "
        "users whose line in --users-csv says created_by stackswarm.",
    )


OWN_OPTIONS = ("auth_method", "scope", "prepared_users", "wrong_passwords", "seed")
_preparation.before_load(KeystoneAuth, check, prepare, (*OPTIONS, *OWN_OPTIONS))
