"""The options that every HTTP workload shares. Importing this module registers them with Locust."""

# mypy: allow-untyped-calls, allow-untyped-decorators
# (Locust's event hooks are not typed.)

from __future__ import annotations

from _http_client import tls_context
from _options import checked, chosen
from locust import events
from locust.argument_parser import LocustArgumentParser
from locust.env import Environment

CONNECTIONS = ("kept", "new")


def keeps_connections(environment: Environment) -> bool:
    """Whether --connection says kept. Raises NotReady for an unknown word, which the web UI lets through."""
    return chosen(environment, "connection", CONNECTIONS) == "kept"


certificates_file = checked(tls_context)
"""The file of a certificate authority, read while the command line is."""


@events.init_command_line_parser.add_listener
def _add_options(parser: LocustArgumentParser) -> None:
    parser.add_argument(
        "--connection",
        choices=CONNECTIONS,
        default=CONNECTIONS[0],
        env_var="STACKSWARM_CONNECTION",
        help="kept: each user sends all its requests on one connection. new: each on one of its own, which is part of "
        "the response time. Default kept.",
    )
