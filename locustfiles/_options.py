"""The options that every workload shares. Importing this module registers them with Locust.

There is no option for a password, and there must be none: a command line can be read by every user of the machine.
"""

# mypy: allow-untyped-calls, allow-untyped-decorators
# (Locust's event hooks are not typed.)

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Callable, Sequence
from typing import Any

from _arrivals import PROCESSES, read_rate, read_steps
from _errors import NotReady
from locust import User, events
from locust.argument_parser import LocustArgumentParser
from locust.env import Environment

_NUMBER = re.compile(r"(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)
"""What float() takes, less signs, underscores, "nan" and "inf"."""


def option(environment: Environment, name: str, default: Any = None) -> Any:
    """Value of the command-line option `name`; `default` where Locust is used as a library, without options."""
    return getattr(environment.parsed_options, name, default)


def chosen(environment: Environment, name: str, known: Sequence[str]) -> str:
    """The option's value, one of `known`; the first where Locust is used as a library.

    Raises NotReady for another one, which the web UI lets through.
    """
    value = str(option(environment, name, known[0]))
    if value not in known:
        raise NotReady(f"--{name.replace('_', '-')}: {value!r} is none of {', '.join(known)}.")
    return value


def think_time(user: User) -> float:
    """Seconds a user waits between an answer and its next request: the `wait_time` of every closed workload."""
    return float(option(user.environment, "think_time", 0.0))


def seconds(text: str) -> float:
    """Parse a number of seconds, "0.5"; raises argparse's error for anything that is not a finite number from 0 up."""
    value = float(text) if _NUMBER.fullmatch(text) else math.inf
    if math.isinf(value):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds, such as 0 or 0.5")
    return value


def whole_number(text: str) -> int:
    """A whole number from 1 up; raises ValueError for anything else."""
    if not (text.isascii() and text.isdecimal() and len(text) <= 15 and int(text) >= 1):
        raise ValueError(f"{text!r} is not a whole number from 1 up")
    return int(text)


def checked(read: Callable[[str], Any]) -> Callable[[str], str]:
    """An argparse type that refuses what `read` does not understand (ValueError, NotReady); the text stays as it is.

    It is read at the start of a test: the web UI puts text in an option's place that no type has seen.
    """

    def check(text: str) -> str:
        try:
            read(text)
        except (ValueError, NotReady) as error:
            raise argparse.ArgumentTypeError(str(error)) from None
        return text

    return check


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
        "--requests",
        type=checked(whole_number),
        metavar="N",
        env_var="STACKSWARM_REQUESTS",
        help="Closed model: end when exactly N requests have been answered, failures among them, by all users and "
        "processes together. --run-time still is an upper bound.",
    )
    parser.add_argument(
        "--seed",
        type=int,
        metavar="N",
        default=1,
        env_var="STACKSWARM_SEED",
        help="Makes the order in which users and tokens are taken, and random arrivals, repeatable. Default 1.",
    )
    parser.add_argument(
        "--response-times",
        metavar="DIR",
        env_var="STACKSWARM_RESPONSE_TIMES",
        include_in_web_ui=False,
        help="Write response-time histograms of every second into this folder, one CSV file for each Locust process. "
        "The folder is created; one that holds recordings already is refused.",
    )


@events.init_command_line_parser.add_listener
def _add_open_model(parser: LocustArgumentParser) -> None:
    parser.add_argument(
        "--arrival-rate",
        type=checked(read_rate),
        metavar="R",
        env_var="STACKSWARM_ARRIVAL_RATE",
        help="Open model: R requests a second, of all processes together, start when they are due, whether or not the "
        "server has answered earlier ones.",
    )
    parser.add_argument(
        "--arrival-steps",
        type=checked(read_steps),
        metavar="STEPS",
        env_var="STACKSWARM_ARRIVAL_STEPS",
        help="Open model: rates and how long each lasts, 10:30s,20:30s; A..B is a ramp, 10..100:1m. The test ends when "
        "they are over and all arrivals have been answered.",
    )
    parser.add_argument(
        "--arrival-rates",
        metavar="FILE",
        env_var="STACKSWARM_ARRIVAL_RATES",
        include_in_web_ui=False,
        help="Open model: as --arrival-steps, from a CSV file with the columns seconds,rate_rps.",
    )
    parser.add_argument(
        "--arrival-process",
        choices=PROCESSES,
        default=PROCESSES[0],
        env_var="STACKSWARM_ARRIVAL_PROCESS",
        help="Open model: equal gaps, or the random ones of independent callers. Default constant.",
    )
    parser.add_argument(
        "--max-in-flight",
        type=checked(whole_number),
        metavar="N",
        env_var="STACKSWARM_MAX_IN_FLIGHT",
        help="Open model: most requests in flight, of all processes together; takes the place of -u. Arrivals beyond "
        "wait, and count from their intended start. Default 500.",
    )
    parser.add_argument(
        "--max-lateness",
        type=checked(seconds),
        metavar="SECONDS",
        env_var="STACKSWARM_MAX_LATENESS",
        help="Open model: arrivals that would start later than this are dropped, and counted. Default: none is.",
    )
