"""What ends a test early: a rule that holds over some seconds, or a ceiling. Pure: it knows no Locust."""

from __future__ import annotations

import dataclasses
import math
import re

from _rules import Rule, parse

WINDOW_S = 5
"""--abort-when looks at the last so many seconds, once the test is as old; a rule may say another number."""
CEILING_WINDOW_S = 10
"""--rate-ceiling R allows 10 R answers in any 10 seconds."""
LONGEST_WINDOW_S = 600


@dataclasses.dataclass(frozen=True)
class Abortion:
    """A rule that ends the test where it holds over the last so many seconds."""

    text: str
    rule: Rule
    window_s: int


def read_abortion(text: str) -> Abortion:
    """ "failure_ratio > 50%" or "failure_ratio > 50% over 10s". Raises ValueError for anything else."""
    flat = " ".join(text.split())
    match = re.fullmatch(r"(.*\S) over (\d{1,3}) ?s", flat)
    window_s = int(match[2]) if match else WINDOW_S
    if not 1 <= window_s <= LONGEST_WINDOW_S:
        raise ValueError(f"{flat!r}: a rule is held against 1 to {LONGEST_WINDOW_S} seconds")
    return Abortion(flat, parse(match[1] if match else flat), window_s)


def most_answers(rate_rps: float, is_open: bool) -> float:
    """How many answers CEILING_WINDOW_S may hold under a ceiling.

    In the open model the load was told its rate, and answers bunch by chance: five standard deviations of a Poisson
    process' count are no excess. In the closed model nothing but this keeps the rate below the ceiling.
    """
    most = rate_rps * CEILING_WINDOW_S
    return most + 5 * math.sqrt(most) if is_open else most
