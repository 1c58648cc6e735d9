"""The kinds of options that workloads have of their own: how each is declared, and read.

Every value is checked twice: while the command line is read, and at the start of a test, for the web UI puts text in an
option's place that no parser has seen.
"""

# mypy: allow-untyped-calls
# (Locust's parser is not typed.)

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction

from _errors import NotReady
from _options import checked, option, whole_number
from locust.argument_parser import LocustArgumentParser
from locust.env import Environment


def add_choice(parser: LocustArgumentParser, name: str, known: Sequence[str], explanation: str) -> None:
    """Declare an option that takes one of `known`, by default the first. chosen() reads it."""
    parser.add_argument(
        _flag(name), choices=known, default=known[0], env_var=_variable(name), help=f"{explanation} Default {known[0]}."
    )


def add_count(parser: LocustArgumentParser, name: str, default: int, explanation: str) -> None:
    """Declare an option that takes a whole number from 1 up. count_of() reads it."""
    parser.add_argument(
        _flag(name), type=checked(whole_number), metavar="N", default=str(default), env_var=_variable(name),
        help=f"{explanation} Default {default}.",
    )  # fmt: skip


def add_share(parser: LocustArgumentParser, name: str, explanation: str) -> None:
    """Declare an option that takes a share, by default 0. share_of() reads it."""
    parser.add_argument(
        _flag(name), type=checked(read_share), metavar="SHARE", default="0", env_var=_variable(name),
        help=f"{explanation} Default 0.",
    )  # fmt: skip


def count_of(environment: Environment, name: str, default: int) -> int:
    """The option's value, a whole number from 1 up. Raises NotReady for another one."""
    try:
        return whole_number(str(option(environment, name, default)))
    except ValueError as error:
        raise NotReady(f"{_flag(name)}: {error}.") from None


def share_of(environment: Environment, name: str) -> Fraction:
    """The option's value, a share from 0 to 1. Raises NotReady for another one."""
    try:
        return read_share(str(option(environment, name) or "0"))
    except ValueError as error:
        raise NotReady(f"{_flag(name)}: {error}.") from None


def read_share(text: str) -> Fraction:
    """A share, "0.1" or "10%". Raises ValueError for anything that is not one from 0 to 1."""
    if re.fullmatch(r"[0-9]{1,3}(\.[0-9]{1,9})?%?", text):
        value = Fraction(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
        if value <= 1:
            return value
    raise ValueError(f"{text!r} is not a share, such as 10% or 0.1")


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _variable(name: str) -> str:
    return f"STACKSWARM_{name.upper()}"
