"""Arrivals that change over time: what load.arrival_steps and the file of load.arrival_rates come to.

Both are Locust's options, and the locustfiles' own reader says what they mean: asked in a process of its own, because
the rooms do not import each other, and two readers of one text would part some day.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from harness.experiment import ExperimentFile, Load
from harness.install import REPOSITORY

READERS = {"arrival_steps": "read_steps", "arrival_rates": "read_rate_file"}
"""Keys of `load` that hold a schedule, and their readers in locustfiles/_arrivals.py."""

ASK = """
import json, sys
sys.path.insert(0, sys.argv[1])
import _arrivals
text = sys.stdin.read()
try:
    pieces = _arrivals.read_steps(text) if sys.argv[2] == "read_steps" else _arrivals.read_rate_file(text.splitlines())
except ValueError as error:
    print(json.dumps(str(error)))
else:
    print(json.dumps([[piece.start_rps, piece.end_rps, piece.length_s] for piece in pieces]))
"""


@dataclasses.dataclass(frozen=True)
class Piece:
    """A stretch of time in which the rate goes linearly from one value to another."""

    start_rps: float
    end_rps: float
    length_s: float

    def at(self, moment_s: float) -> float:
        """Rate at a moment after the piece's start, in arrivals a second."""
        return self.start_rps + (self.end_rps - self.start_rps) * moment_s / self.length_s


@dataclasses.dataclass(frozen=True)
class Schedule:
    """A rate over time, from the start of the run."""

    pieces: tuple[Piece, ...]

    @property
    def length_s(self) -> float:
        """Length in seconds; to the microsecond, because lengths such as 0.1 s do not add up exactly."""
        return round(math.fsum(piece.length_s for piece in self.pieces), 6)

    @property
    def last_rps(self) -> float:
        """The rate at its end."""
        return self.pieces[-1].end_rps

    def rates_rps(self, start_s: float, end_s: float) -> tuple[float, float, float]:
        """Lowest, mean and highest rate between two moments within the schedule.

        The mean is the integral by the length: of a linear piece exactly the rate in its middle times its length.
        """
        parts = self._within(start_s, end_s)
        mean_rps = math.fsum(p.at(p.length_s / 2) * p.length_s for p in parts) / (end_s - start_s)
        ends = [rate for part in parts for rate in (part.start_rps, part.end_rps)]
        return min(ends), mean_rps, max(ends)

    def _within(self, start_s: float, end_s: float) -> list[Piece]:
        parts, begun_s = [], 0.0
        for piece in self.pieces:
            first, last = max(start_s - begun_s, 0.0), min(end_s - begun_s, piece.length_s)
            if last > first:
                parts.append(Piece(piece.at(first), piece.at(last), last - first))
            begun_s += piece.length_s
        return parts


@functools.cache
def read(key: str, text: str) -> Schedule:
    """The schedule that a text means: steps, or the contents of a file of rates.

    Raises ValueError, in words, where it means none.
    """
    command = [sys.executable, "-c", ASK, str(REPOSITORY / "locustfiles"), READERS[key]]
    asked = subprocess.run(command, input=text, capture_output=True, text=True, encoding="utf-8", check=True)
    answer = json.loads(asked.stdout)
    if isinstance(answer, str):
        raise ValueError(answer)
    return Schedule(tuple(Piece(*numbers) for numbers in answer))


def read_files(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """Contents of the files with these names, relative to `folder`; those that cannot be read are left out."""
    texts = {}
    for name in names:
        try:
            texts[name] = (folder / name).read_text(encoding="utf-8-sig")
        except (OSError, ValueError):
            continue
    return texts


def find(key: str, value: str, rate_files: Mapping[str, str]) -> Schedule:
    """The schedule of a value of `load`: the steps themselves, or the name of one of these files.

    Raises ValueError, in words, where there is none.
    """
    if key == "arrival_rates" and value not in rate_files:
        raise ValueError(f"{value} cannot be read; name a file, relative to the experiment's")
    try:
        return read(key, value if key == "arrival_steps" else rate_files[value])
    except ValueError as error:
        raise ValueError(f"{value}: {error}" if key == "arrival_rates" else str(error)) from None


def schedule_of(load: Load, rate_files: Mapping[str, str]) -> Schedule | None:
    """The schedule of a valid load; None where its rate does not change, or it has none."""
    given = [(key, value) for key in READERS if (value := getattr(load, key)) is not None]
    return find(*given[0], rate_files) if given else None


def sentences(file: ExperimentFile) -> list[str]:
    """What the schedules of an experiment offer in steady state."""
    found = []
    for treatment in file.treatments():
        experiment = file.at(treatment)
        schedule = schedule_of(experiment.load, file.rate_files)
        if schedule is not None:
            lowest, mean, highest = schedule.rates_rps(experiment.timing.warm_up, schedule.length_s)
            name = experiment.load.arrival_steps or experiment.load.arrival_rates
            found.append(
                f"Arrivals follow {name} from the start of the run: {mean:.4g} a second on average over steady state, "
                f"between {lowest:.4g} and {highest:.4g}. The window begins with a whole second, up to one later."
            )
    return list(dict.fromkeys(found))


def plain(rate_rps: float) -> str:
    """A rate without exponent, which Locust's options do not know."""
    return f"{rate_rps:.9f}".rstrip("0").rstrip(".")
