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
from _http import HttpLoadUser, connection_failure
from _keystone import TOKEN_HEADER, Credential, authentication_body, judge_authentication, token_format
from _keystone_users import OPTIONS, Target, check_first_user, prepare_user_class, read_target
from _load_user import LoadUser
from _response_times import record_fact
from _user_numbers import walk
from locust.env import Environment

NAME = "/v3/auth/tokens"
HEADERS = {"Content-Type": "application/json", "User-Agent": "stackswarm-keystone_auth"}


class KeystoneAuth(LoadUser, HttpLoadUser):
    """Authenticates with a password, again and again."""

    target: Target
    walk: Iterator[Credential]

    def on_start(self) -> None:
        """Take this user's share of the Keystone users."""
        super().on_start()
        self.walk = walk(self.environment, self.target.users)
        self.format_known = False

    def make_request(self) -> None:
        """One POST /v3/auth/tokens."""
        body = authentication_body(next(self.walk))
        with self.client.post(self.target.url, data=body, headers=HEADERS, name=NAME, catch_response=True) as response:
            failure = connection_failure(response) or judge_authentication(
                response.status_code, response.headers, response.content
            )
            if failure:
                response.failure(failure)
            else:
                response.success()
                self.note_format(response.headers[TOKEN_HEADER])

    def note_format(self, token: str) -> None:
        """Record the token format this server issues, once a user."""
        if not self.format_known:
            record_fact(self.environment, "token_format", token_format(token))
            self.format_known = True


def prepare(environment: Environment) -> None:
    """Read the users once for the whole process."""
    KeystoneAuth.target = read_target(environment)
    prepare_user_class(KeystoneAuth, KeystoneAuth.target)


_preparation.before_load(KeystoneAuth, check_first_user, prepare, OPTIONS)
