"""How the configuration of a treatment differs from that of its baseline: parameters, and the files a server was given.

Read from the run folders, where secrets are redacted already.
"""

from __future__ import annotations

import dataclasses
import difflib

from analysis import comparability, pairing
from analysis.load import Experiment
from analysis.pairing import Pair
from analysis.record import RunRecord
from analysis.run_files import files_of, folder_of

MOST_LINES = 300
"""Lines of a file's difference that are shown."""
LARGEST_FILE_BYTES = 1_000_000


@dataclasses.dataclass(frozen=True)
class FileDifference:
    """One file that differs: a unified difference, from the baseline to the treatment."""

    name: str
    lines: tuple[str, ...]
    lines_left_out: int = 0


@dataclasses.dataclass(frozen=True)
class ConfigurationDifference:
    """What differs between the sides of a pair, taken from the first complete run of each."""

    runs: tuple[int, int]
    """Baseline, treatment."""
    parameters: tuple[tuple[str, str, str], ...]
    """Name, value of the baseline, value of the treatment; of the server's and the load's settings."""
    files: tuple[FileDifference, ...]
    files_compared: int
    """Files that either side has; 0 where none were recorded."""


def difference(experiment: Experiment, pair: Pair) -> ConfigurationDifference | None:
    """The difference of a pair, or None where a side has no complete run with a record."""
    sides = [_first_run(experiment, pairing.key(side)) for side in (pair.baseline, pair.treatment)]
    if sides[0] is None or sides[1] is None:
        return None
    baseline, treatment = sides[0], sides[1]
    texts = [_files(experiment, run) for run in (baseline, treatment)]
    names = sorted({*texts[0], *texts[1]})
    differing = [_file_difference(name, texts[0].get(name), texts[1].get(name)) for name in names]
    return ConfigurationDifference(
        runs=(baseline.number, treatment.number),
        parameters=_parameters(baseline, treatment),
        files=tuple(found for found in differing if found is not None),
        files_compared=len(names),
    )


def _first_run(experiment: Experiment, treatment: str) -> RunRecord | None:
    return next((experiment.records[n] for n in experiment.complete_runs(treatment) if n in experiment.records), None)


def _parameters(baseline: RunRecord, treatment: RunRecord) -> tuple[tuple[str, str, str], ...]:
    flat = [
        {
            **comparability.flatten({k: v for k, v in run.server.items() if k not in MEASURED}, "server"),
            **comparability.flatten(run.load, "load"),
        }
        for run in (baseline, treatment)
    ]
    names = dict.fromkeys([*flat[0], *flat[1]])
    texts = [{name: pairing.level_text(side[name]) if name in side else "–" for name in names} for side in flat]
    return tuple((name, texts[0][name], texts[1][name]) for name in names if texts[0][name] != texts[1][name])


MEASURED = ("started_s", "configuration_sha256")
"""Of a run's server: no settings."""


def _files(experiment: Experiment, run: RunRecord) -> dict[str, str]:
    """Text of each configuration file of a run by its path within the run folder."""
    folder = folder_of(experiment, run.number)
    found = {}
    for file in files_of(experiment, run.number, "configuration", "configuration/*"):
        try:
            if file.stat().st_size <= LARGEST_FILE_BYTES:
                found[file.relative_to(folder).as_posix()] = file.read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
    return found


def _file_difference(name: str, baseline: str | None, treatment: str | None) -> FileDifference | None:
    if baseline == treatment:
        return None
    sides = [[] if text is None else text.splitlines() for text in (baseline, treatment)]
    titles = [f"{side}{'' if text is not None else ': no such file'}"
              for side, text in (("baseline", baseline), ("treatment", treatment))]  # fmt: skip
    lines = list(difflib.unified_diff(sides[0], sides[1], titles[0], titles[1], lineterm="", n=3))
    return FileDifference(name, tuple(lines[:MOST_LINES]), max(0, len(lines) - MOST_LINES))
