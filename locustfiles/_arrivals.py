"""When requests are meant to start: a rate, a process and a seed → intended start times. No clock, no file, no Locust.

A rate over time is a sequence of `Piece`s. Its integral is the number of arrivals that are due by then, and start times
are the inverse of that, exactly: nothing is added up step by step, so nothing drifts.

    constant   arrival i of all processes starts where the integral is i; process k of n has every n-th of them, from k
    poisson    process k of n has gaps of its own from an exponential distribution, at an n-th of the rate; independent
               Poisson processes add up to one of the sum of their rates (Kingman, Poisson Processes, 1993, section 2.2)
"""

from __future__ import annotations

import dataclasses
import math
import random
import re
from collections.abc import Iterable, Iterator, Sequence

PROCESSES = ("constant", "poisson")

_UNITS_S = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}
_NUMBER = r"(\d+(?:\.\d*)?|\.\d+)"
_PIECE = re.compile(rf"{_NUMBER}(?:\.\.{_NUMBER})?:{_NUMBER}([smh]?)", re.ASCII)
_ANY_NUMBER = re.compile(rf"{_NUMBER}(?:[eE][+-]?\d+)?", re.ASCII)
MOST_ARRIVALS = 1e9
"""More is a slip of the pen: a thousand a second for eleven days, or a million for a quarter of an hour."""
HIGHEST_RPS = 1e6
LOWEST_RPS = 1e-6
"""One arrival in eleven days."""
LONGEST_S = 1000 * 86400.0
_SLACK = 1e-9
"""Arrivals that fall on the very end belong to what comes after it, rounding errors or not."""


@dataclasses.dataclass(frozen=True)
class Piece:
    """A stretch of time in which the rate goes linearly from one value to another."""

    start_rps: float
    end_rps: float
    length_s: float
    """May be infinite where the rate is constant."""

    @property
    def arrivals(self) -> float:
        """The rate's integral over the whole piece; need not be a whole number."""
        mean_rps = (self.start_rps + self.end_rps) / 2
        return mean_rps * self.length_s if mean_rps else 0.0

    def time_of(self, arrivals: float) -> float:
        """Seconds from the piece's start until the integral is `arrivals`, which must be at most self.arrivals.

        The root of start·t + slope·t²/2 = arrivals, in the form that divides by neither zero nor a small slope.
        """
        if arrivals <= 0:
            return 0.0
        slope = (self.end_rps - self.start_rps) / self.length_s
        root = math.sqrt(max(self.start_rps**2 + 2 * slope * arrivals, 0.0))
        return min(2 * arrivals / (self.start_rps + root), self.length_s)


@dataclasses.dataclass(frozen=True)
class Schedule:
    """Everything that decides when requests start. `process` is one of PROCESSES."""

    pieces: tuple[Piece, ...]
    process: str = "constant"
    seed: int = 1

    @property
    def length_s(self) -> float:
        """Seconds until the last piece ends; infinite for a single rate."""
        return math.fsum(piece.length_s for piece in self.pieces)

    def starts(self, k: int = 0, n: int = 1, until_s: float = math.inf) -> Iterator[float]:
        """Intended starts of process `k` of `n`, in seconds from the test's start, ascending, all before `until_s`.

        The same arguments give the same times. Endless where the schedule and `until_s` are.
        """
        positions = _every_nth(k, n) if self.process == "constant" else _exponential_sums(self.seed, k, n)
        for start_s in _times(self.pieces, positions):
            if start_s >= until_s - _SLACK:
                return
            yield start_s


def _every_nth(k: int, n: int) -> Iterator[float]:
    while True:
        yield float(k)
        k += n


def _exponential_sums(seed: int, k: int, n: int) -> Iterator[float]:
    """Where the integral of the total rate is when process k of n has its arrivals."""
    draw = random.Random(f"arrivals {seed} {k} {n}").expovariate
    position = 0.0
    while True:
        position += n * draw(1.0)
        yield position


def _times(pieces: Sequence[Piece], positions: Iterable[float]) -> Iterator[float]:
    """Invert the rate's integral at ascending positions."""
    remaining = iter(pieces)
    piece, before, start_s = next(remaining), 0.0, 0.0
    for position in positions:
        while position >= before + piece.arrivals - _SLACK:
            before += piece.arrivals
            start_s += piece.length_s
            following = next(remaining, None)
            if following is None:
                return
            piece = following
        yield start_s + piece.time_of(position - before)


def steady(rate_rps: float) -> tuple[Piece, ...]:
    """One rate without end."""
    return (Piece(rate_rps, rate_rps, math.inf),)


def read_rate(text: str) -> float:
    """A rate in arrivals a second; raises ValueError for anything that is not such a number above 0."""
    if _ANY_NUMBER.fullmatch(text.strip()) is None or float(text) == 0:
        raise ValueError(f"{text!r} is not a number of arrivals a second above 0, such as 10 or 0.5")
    _check_rate(float(text))
    return float(text)


def read_steps(text: str) -> tuple[Piece, ...]:
    """Steps and ramps, "10:30s,10..100:1m,100:30s": rate or first..last rate, then for how long (s, m, h; s if none).

    Raises ValueError, in words, for anything else.
    """
    pieces = []
    for part in text.split(","):
        match = _PIECE.fullmatch(part.strip())
        if match is None:
            raise ValueError(f"{part.strip()!r} is not RATE:TIME or RATE..RATE:TIME, such as 10:30s or 10..100:1m")
        first, last, length, unit = match.groups()
        pieces.append(Piece(float(first), float(last or first), float(length) * _UNITS_S[unit]))
    return _checked(pieces)


def read_rate_file(lines: Iterable[str]) -> tuple[Piece, ...]:
    """A CSV file with the header seconds,rate_rps: for that many seconds that rate, one line after the other.

    Raises ValueError, naming the line, for anything else.
    """
    rows = [(number, line.strip()) for number, line in enumerate(lines, start=1) if line.strip()]
    if not rows or rows[0][1].replace(" ", "") != "seconds,rate_rps":
        raise ValueError("line 1: the header must be seconds,rate_rps")
    pieces = []
    for number, row in rows[1:]:
        match = re.fullmatch(rf"{_NUMBER}\s*,\s*{_NUMBER}", row, re.ASCII)
        if match is None:
            raise ValueError(f"line {number}: {row[:40]!r} is not two numbers, such as 30,10.5")
        pieces.append(Piece(float(match[2]), float(match[2]), float(match[1])))
    return _checked(pieces)


def _check_rate(rate_rps: float) -> None:
    if not LOWEST_RPS <= rate_rps <= HIGHEST_RPS:
        raise ValueError(f"{rate_rps:g} arrivals a second are not between {LOWEST_RPS:g} and {HIGHEST_RPS:g}")


def _checked(pieces: list[Piece]) -> tuple[Piece, ...]:
    for rate_rps in {rate for piece in pieces for rate in (piece.start_rps, piece.end_rps)} - {0.0}:
        _check_rate(rate_rps)
    if any(piece.length_s <= 0 for piece in pieces):
        raise ValueError("a time of 0 s is no step: every rate needs some time")
    if not any(piece.arrivals for piece in pieces):
        raise ValueError("no rate above 0, so no request would ever start")
    if math.fsum(piece.length_s for piece in pieces) > LONGEST_S:
        raise ValueError(f"all times together are more than {LONGEST_S / 86400:g} days")
    if math.fsum(piece.arrivals for piece in pieces) > MOST_ARRIVALS:
        raise ValueError(f"they come to more than {MOST_ARRIVALS:g} arrivals, the most that one test may have")
    return tuple(pieces)
