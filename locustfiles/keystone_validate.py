"""Keystone: how fast does it validate tokens? GET /v3/auth/tokens on a pool of tokens, asked by one caller.

This is what every OpenStack service does with the token of every request it gets. The caller (X-Auth-Token) is the
user of the OS_* variables or of `--os-cloud`, who must be allowed to validate others' tokens, as an admin is. Before
the load each Locust process that runs users makes `--token-pool` tokens (default 20) to be validated (X-Subject-Token):
of the users of `--users-csv`, or else of the caller. How large the pool is decides how often the server's cache helps.

    locust -f keystone_validate.py --host http://keystone:5000 --token-pool 20 -u 32 -r 32 -t 60s --headless

Success is 200 with the expected user in the body. Everything else is a failure, named by status and Keystone's error
title ("404 Not Found", "401 Unauthorized"). Where no token can be made, Locust ends with one message and exit code 2.
"""

# mypy: allow-untyped-calls, allow-untyped-decorators
# (Locust's event hooks are not typed.)

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator

import _preparation
from _http import HttpLoadUser
from _http_client import Request
from _keystone import (
    TOKEN_HEADER,
    authenticate_once,
    credential_of,
    judge_validation,
    token_format,
)
from _keystone_users import OPTIONS, check_first_user, read_target
from _load_user import LoadUser
from _options import option
from _response_times import record_fact
from _user_numbers import walk_all
from gevent.pool import Pool
from locust import events
from locust.argument_parser import LocustArgumentParser
from locust.env import Environment

NAME = "/v3/auth/tokens"
USER_AGENT = "stackswarm-keystone_validate"
MAKERS = 4
"""Tokens of the pool that are asked for at the same time."""


class KeystoneValidate(LoadUser, HttpLoadUser):
    """Validates the tokens of the pool, one after the other."""

    pool: list[tuple[Request, str]]
    """For each token the request that validates it, and the id of the user it is of."""
    walk: Iterator[tuple[Request, str]]

    def on_start(self) -> None:
        """Begin the walk through the pool at another token than the other users."""
        self.walk = walk_all(self.environment, self.pool)

    def make_request(self) -> None:
        """One GET /v3/auth/tokens."""
        request, user_id = next(self.walk)
        self.ask(request, NAME, lambda response: judge_validation(response.status, response.body, user_id))


def check(environment: Environment) -> None:
    """Log the caller in, and the first user of the pool. Raises NotReady where that fails."""
    target = read_target(environment)
    authenticate_once(target.url, credential_of(target.cloud, " for the caller who validates"), target.verify)
    check_first_user(environment)


def prepare(environment: Environment) -> None:
    """Make the caller's token and the pool. Raises NotReady where Keystone refuses one."""
    target = read_target(environment)
    asker = credential_of(target.cloud, " for the caller who validates")
    users = list(target.users)
    random.Random(option(environment, "seed", 1)).shuffle(users)
    wanted = [users[n % len(users)] for n in range(option(environment, "token_pool", 20))]
    caller = authenticate_once(target.url, asker, target.verify)
    tokens = Pool(MAKERS).map(lambda user: authenticate_once(target.url, user, target.verify), wanted)
    KeystoneValidate.site = target.site
    headers = {"User-Agent": USER_AGENT, "Accept": "application/json", "X-Auth-Token": caller.id}
    KeystoneValidate.pool = [
        (target.site.request("GET", "", {**headers, TOKEN_HEADER: token.id}), token.user_id) for token in tokens
    ]
    record_fact(environment, "token_format", token_format(tokens[0].id))
    record_fact(environment, "token_pool", len(wanted))


def pool_size(text: str) -> int:
    """Parse --token-pool; raises argparse's error for anything but a whole number from 1 up."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of tokens, such as 20")
    return int(text)


@events.init_command_line_parser.add_listener
def _add_options(parser: LocustArgumentParser) -> None:
    parser.add_argument(
        "--token-pool",
        type=pool_size,
        metavar="N",
        default=20,
        env_var="STACKSWARM_TOKEN_POOL",
        help="keystone_validate: how many tokens each process makes before the load, and validates. Default 20.",
    )


_preparation.before_load(KeystoneValidate, check, prepare, (*OPTIONS, "token_pool", "seed"))
