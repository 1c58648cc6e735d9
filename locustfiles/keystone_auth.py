"""Keystone: how fast does it authenticate? POST /v3/auth/tokens with user, password and project.

Each Locust user is one client with one connection, which authenticates as one Keystone user after the other and waits
`--think-time` seconds (default 0) between an answer and the next request.

    locust -f keystone_auth.py --host http://keystone:5000 --users-csv users.csv -u 32 -r 32 -t 60s --headless

`--host` may carry a path (http://cloud/identity) and may be left out where OS_AUTH_URL or a cloud is set. Users come
from `--users-csv` (mode 0600), each Locust user walking its own share in an order that `--seed` repeats; without it
from OS_* variables or clouds.yaml (`--os-cloud`). One user is logged in before the load; where that fails, Locust ends
with one message and exit code 2.

Success is 201 with an X-Subject-Token. Everything else is a failure, named by status and Keystone's error title
("401 Unauthorized", "429 Too Many Requests") or by what happened to the connection ("timed out").
"""

from __future__ import annotations

from collections.abc import Iterator

import _preparation
from _http import HttpLoadUser
from _http_client import Request
from _http_parser import Response
from _keystone import TOKEN_HEADER, authentication_body, judge_authentication, token_format
from _keystone_users import OPTIONS, check_first_user, read_target
from _load_user import LoadUser
from _response_times import record_fact
from _user_numbers import walk
from locust.env import Environment

NAME = "/v3/auth/tokens"
HEADERS = {"Content-Type": "application/json", "User-Agent": "stackswarm-keystone_auth"}


class KeystoneAuth(LoadUser, HttpLoadUser):
    """Authenticates with a password, again and again."""

    requests: list[Request]
    """One for each Keystone user."""
    walk: Iterator[Request]

    def on_start(self) -> None:
        """Take this user's share of the Keystone users."""
        self.walk = walk(self.environment, self.requests)
        self.format_known = False

    def make_request(self) -> None:
        """One POST /v3/auth/tokens."""
        response = self.ask(next(self.walk), NAME, judge)
        if not self.format_known and response.failure is None:
            self.note_format(response.headers[TOKEN_HEADER])

    def note_format(self, token: str) -> None:
        """Record the token format this server issues, once a user."""
        record_fact(self.environment, "token_format", token_format(token))
        self.format_known = True


def judge(response: Response) -> str | None:
    """What a whole response is worth."""
    return judge_authentication(response.status, response.headers, response.body)


def prepare(environment: Environment) -> None:
    """Read the users and make their requests, once for the whole process."""
    target = read_target(environment)
    KeystoneAuth.site = target.site
    request = KeystoneAuth.site.request("POST", "", HEADERS)
    KeystoneAuth.requests = [request.with_body(authentication_body(user).encode()) for user in target.users]


_preparation.before_load(KeystoneAuth, check_first_user, prepare, OPTIONS)
