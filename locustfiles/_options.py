"""The options that every workload shares. Importing this module registers them with Locust.

There is no option for a password, and there must be none: a command line can be read by every user of the machine.
"""

# mypy: allow-untyped-calls, allow-untyped-decorators
# (Locust's event hooks are not typed.)

from __future__ import annotations

import argparse
import math
from typing import Any

from locust import User, events
from locust.argument_parser import LocustArgumentParser
from locust.env import Environment


def option(environment: Environment, name: str, default: Any = None) -> Any:
    """Value of the command-line option `name`; `default` where Locust is used as a library, without options."""
    return getattr(environment.parsed_options, name, default)


def think_time(user: User) -> float:
    """Seconds a user waits between an answer and its next request: the `wait_time` of every closed workload."""
    return float(option(user.environment, "think_time", 0.0))


def seconds(text: str) -> float:
    """Parse a number of seconds, "0.5"; raises argparse's error for anything that is not a finite number from 0 up."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not math.isfinite(value) or value < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds, such as 0 or 0.5")
    return value


@events.init_command_line_parser.add_listener
def _add_options(parser: LocustArgumentParser) -> None:
    # Locust's own default is every interface of the machine, for a page that starts load; --web-host decides.
    parser.set_defaults(web_host="127.0.0.1")
    parser.add_argument(
        "--think-time",
        type=seconds,
        metavar="SECONDS",
        default=0.0,
        env_var="STACKSWARM_THINK_TIME",
        help="Closed model: time a user waits between an answer and its next request. Default 0.",
    )
    parser.add_argument(
        "--seed",
        type=int,
        metavar="N",
        default=1,
        env_var="STACKSWARM_SEED",
        help="Makes the order in which users and tokens are taken repeatable. Default 1.",
    )
    parser.add_argument(
        "--response-times",
        metavar="DIR",
        env_var="STACKSWARM_RESPONSE_TIMES",
        include_in_web_ui=False,
        help="Write response-time histograms of every second into this folder, one CSV file for each Locust process. "
        "The folder is created; one that holds recordings already is refused.",
    )
