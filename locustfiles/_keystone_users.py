"""What both Keystone workloads need before load: where Keystone is, who asks it, and whether it lets them in."""

# mypy: allow-untyped-calls, allow-untyped-decorators
# (Locust's event hooks are not typed.)

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Sequence

from _errors import NotReady
from _http_client import Site
from _keystone import (
    Cloud,
    Credential,
    authenticate_once,
    credential_of,
    host_of,
    read_cloud,
    read_users,
    token_url,
)
from _options import option
from locust import events
from locust.argument_parser import LocustArgumentParser
from locust.env import Environment

OPTIONS = ("users_csv", "os_cloud", "connection")
CONNECTIONS = ("kept", "new")


@dataclasses.dataclass(frozen=True)
class Target:
    """Where Keystone is, and who authenticates there."""

    url: str
    """Of /v3/auth/tokens."""
    verify: bool | str
    users: list[Credential]
    """The users of --users-csv, or else the one of the OS_* variables or the cloud."""
    cloud: Cloud
    keep_alive: bool = True
    """False: every request of the load is made on a connection of its own."""

    @property
    def site(self) -> Site:
        """The URL as the load's client takes it. Raises NotReady where the certificate authority's file is none."""
        return Site.of(self.url, self.verify, self.keep_alive)


def read_target(environment: Environment) -> Target:
    """Read host, users and credentials. Raises NotReady where something is missing or wrong; asks no server.

    Where --host was not given, the environment's host becomes the cloud's URL, so that Locust shows it.
    """
    cloud = read_cloud(option(environment, "os_cloud"))
    host = host_of(cloud, environment.host)
    url = token_url(host)
    path = option(environment, "users_csv")
    users = read_users(path) if path else [credential_of(cloud, ", or give --users-csv")]
    environment.host = host
    return Target(url, cloud.verify, users, cloud, chosen(environment, "connection", CONNECTIONS) == "kept")


def chosen(environment: Environment, name: str, known: Sequence[str]) -> str:
    """The option's value, one of `known`; the first where Locust is used as a library.

    Raises NotReady for another one, which the web UI lets through.
    """
    value = str(option(environment, name, known[0]))
    if value not in known:
        raise NotReady(f"--{name.replace('_', '-')}: {value!r} is none of {', '.join(known)}.")
    return value


def check_first_user(environment: Environment) -> None:
    """Log one user in, outside of the load. Raises NotReady where that fails."""
    target = read_target(environment)
    authenticate_once(target.url, target.users[0], target.verify)


def users_file(text: str) -> str:
    """Check a --users-csv while the command line is read, before a worker or a web UI is started."""
    try:
        read_users(text)
    except NotReady as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


@events.init_command_line_parser.add_listener
def _add_options(parser: LocustArgumentParser) -> None:
    parser.add_argument(
        "--users-csv",
        type=users_file,
        metavar="FILE",
        env_var="STACKSWARM_USERS_CSV",
        include_in_web_ui=False,
        help="Keystone users, mode 0600, with the columns username,password,user_domain_id,project_name,"
        "project_domain_id. Each Locust user takes its own share. Without it: the user of OS_* or --os-cloud.",
    )
    parser.add_argument(
        "--os-cloud",
        metavar="NAME",
        env_var="STACKSWARM_OS_CLOUD",
        include_in_web_ui=False,
        help="Cloud of clouds.yaml: credentials, and the host where --host is not given. Default: OS_CLOUD, or OS_*.",
    )
    parser.add_argument(
        "--connection",
        choices=CONNECTIONS,
        default=CONNECTIONS[0],
        env_var="STACKSWARM_CONNECTION",
        help="kept: each user sends all its requests on one connection. new: each on one of its own, which is part of "
        "the response time. Default kept.",
    )
