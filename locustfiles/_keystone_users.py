"""What both Keystone workloads need before load: where Keystone is, who asks it, and whether it lets them in."""

# mypy: allow-untyped-calls, allow-untyped-decorators
# (Locust's event hooks are not typed.)

from __future__ import annotations

import dataclasses

from _http_client import Site
from _http_options import certificates_file, keeps_connections
from _keystone import (
    authenticate_once,
    token_url,
)
from _keystone_credentials import (
    Cloud,
    Credential,
    credential_of,
    host_of,
    read_cloud,
    read_users,
)
from _options import checked, chosen, option
from locust import events
from locust.argument_parser import LocustArgumentParser
from locust.env import Environment

OPTIONS = ("users_csv", "os_cloud", "os_cacert", "connection", "catalog")
YES_NO = ("yes", "no")


@dataclasses.dataclass(frozen=True)
class Target:
    """Where Keystone is, and who authenticates there."""

    url: str
    """Of /v3/auth/tokens."""
    verify: bool | str
    users: list[Credential]
    """The users of --users-csv, or else the one of the OS_* variables or the cloud."""
    cloud: Cloud
    keep_alive: bool
    """False: every request of the load is made on a connection of its own."""
    query: str
    """What the URL of a request of the load ends with: "", or "?nocatalog"."""

    @property
    def site(self) -> Site:
        """The URL as the load's client takes it. Raises NotReady where the certificate authority's file is none."""
        return Site.of(self.url, self.verify, self.keep_alive)


def read_target(environment: Environment, scope: str = "project") -> Target:
    """Read host, users and credentials. Raises NotReady where something is missing or wrong; asks no server.

    The credentials must be good for tokens of that scope. Where --host was not given, the environment's host becomes
    the cloud's URL, so that Locust shows it.
    """
    keep_alive = keeps_connections(environment)
    query = "" if chosen(environment, "catalog", YES_NO) == "yes" else "?nocatalog"
    cloud = read_cloud(option(environment, "os_cloud"), scope)
    host = host_of(cloud, environment.host)
    url = token_url(host)
    path = option(environment, "users_csv")
    users = read_users(path) if path else [credential_of(cloud, ", or give --users-csv")]
    environment.host = host
    return Target(url, option(environment, "os_cacert") or cloud.verify, users, cloud, keep_alive, query)


def yes_or_no(text: str) -> str:
    """Also what YAML makes of yes and no; anything else is left to `choices`."""
    return {"true": "yes", "false": "no"}.get(text.lower(), text.lower())


def check_first_user(environment: Environment) -> None:
    """Log one user in, outside of the load. Raises NotReady where that fails."""
    target = read_target(environment)
    authenticate_once(target.url, target.users[0], target.verify)


@events.init_command_line_parser.add_listener
def _add_options(parser: LocustArgumentParser) -> None:
    parser.add_argument(
        "--users-csv",
        type=checked(read_users),
        metavar="FILE",
        env_var="STACKSWARM_USERS_CSV",
        include_in_web_ui=False,
        help="Keystone users, mode 0600, with the columns username,password,user_domain_id,project_name,"
        "project_domain_id and perhaps created_by. Each Locust user takes its own share. Without it: the user of OS_* "
        "or --os-cloud.",
    )
    parser.add_argument(
        "--os-cloud",
        metavar="NAME",
        env_var="STACKSWARM_OS_CLOUD",
        include_in_web_ui=False,
        help="Cloud of clouds.yaml: credentials, and the host where --host is not given. Default: OS_CLOUD, or OS_*.",
    )
    parser.add_argument(
        "--os-cacert",
        type=certificates_file,
        metavar="FILE",
        env_var="STACKSWARM_OS_CACERT",
        include_in_web_ui=False,
        help="Certificate authority that an https Keystone is checked with. Default: OS_CACERT or the cloud's, or else "
        "the system's own.",
    )
    parser.add_argument(
        "--catalog",
        type=yes_or_no,
        choices=YES_NO,
        default=YES_NO[0],
        env_var="STACKSWARM_CATALOG",
        help="Whether answers hold the service catalogue; no asks with ?nocatalog. Default yes.",
    )
