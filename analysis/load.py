"""Result folders to tidy frames. Reads files and changes nothing; all that is odd in them is kept as an Oddity.

Frames of an Experiment:

runs            one row a planned run: run, block, replicate, treatment (pairing.key), status, reason, folder,
                server_number, start_unix_s, end_unix_s (steady state; missing where the run has none)
response_times  run, phase, endpoint, outcome, clock, bucket_us, count; phase is "warm_up", "steady_state" or "outside"
timeline        run, second (Unix), offset_s (from the start of steady state), phase, endpoint, outcome, count,
                response_us (sum of the response times of these responses)
usage           run and record.USAGE_COLUMNS
totals          run, recorded, locust: responses of the whole run, by the histograms and by Locust's own CSV
outcomes        run, endpoint, outcome, count: responses in steady state
reported        values taken from another tool's summary instead of histograms: run, endpoint, metric, value, samples
failed          failures of a summary, whose time is unknown: run, endpoint, outcome, kind (RESPONSE, GENERATOR or
                LOCUSTFILE), count
history         rates of a summary over time, windows of the tool's own: run, second (Unix), users, throughput, failures
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import ctypes
import dataclasses
import functools
import itertools
import multiprocessing
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from analysis import measurements, pairing
from analysis.csv_tables import Oddity, concat, empty_frame
from analysis.fingerprints import Fingerprint
from analysis.generator import Health
from analysis.machine import read_machine
from analysis.measurements import (
    EXCEPTION_COLUMNS,
    HISTOGRAM_COLUMNS,
    OUTSIDE,
    TABLES,
    TIMELINE_COLUMNS,
    TOTALS_COLUMNS,
    role_files,
)
from analysis.record import (
    COMPLETE,
    FAILED,
    LARGEST_NUMBER,
    RUNS_FOLDER,
    STEADY_STATE,
    WARM_UP,
    ExperimentRecord,
    RunRecord,
    Treatment,
)
from analysis.reduction import Reduced
from analysis.run_folders import INTERRUPTED, MISSING, RUN_COLUMNS, Repeated, read_plan, read_runs, runs_frame
from analysis.server_counts import Answers

# A result's text may hold a lone surrogate, as JSON can. Arrow, which pandas prefers where it is installed, cannot.
pd.set_option("mode.string_storage", "python")

__all__ = [
    "COMPLETE",
    "FAILED",
    "FAILED_COLUMNS",
    "GENERATOR",
    "HISTOGRAM_COLUMNS",
    "HISTORY_COLUMNS",
    "INTERRUPTED",
    "IN_THE_LOCUSTFILE",
    "LARGEST_NUMBER",
    "LOCUSTFILE",
    "MISSING",
    "OUTSIDE",
    "REPORTED_COLUMNS",
    "RESPONSE",
    "RUN_COLUMNS",
    "STEADY_STATE",
    "TIMELINE_COLUMNS",
    "TOTALS_COLUMNS",
    "WARM_UP",
    "Experiment",
    "Oddity",
    "Repeated",
    "empty_frame",
    "load_experiment",
    "read_seconds",
    "role_files",
    "rows_of",
    "treatments",
]
"""What there is to know of a loaded experiment, in one place for those who read it."""

REPORTED_COLUMNS = ("run", "endpoint", "metric", "value", "samples")
OUTCOME_COLUMNS = ("run", "endpoint", "outcome", "count")
FAILED_COLUMNS = ("run", "endpoint", "outcome", "kind", "count")
HISTORY_COLUMNS = ("run", "second", "users", "throughput", "failures")

RESPONSE, GENERATOR, LOCUSTFILE = "response", "generator", "locustfile"
"""Whose failure it was: what was answered (or not), the load generator's own, one that the locustfile declared."""
IN_THE_LOCUSTFILE = "exception in the locustfile"
"""Stands in the endpoint column of `failed` for exceptions that belong to no request."""

MANY_RUNS = 64
"""From here on further processes, which take a second to begin, are worth it, and the large tables are not kept."""

Progress = Callable[[int, int], object]
"""Called with how many runs are done, of how many."""


@dataclasses.dataclass(frozen=True, eq=False)
class Experiment:
    """One experiment folder (or a set of imported summaries) in memory."""

    folder: Path
    record: ExperimentRecord
    records: dict[int, RunRecord]
    runs: pd.DataFrame
    health: dict[int, Health]
    """How the load generator fared, by run; a run of which nobody could tell is not there."""
    totals: pd.DataFrame
    reported: pd.DataFrame
    oddities: tuple[Oddity, ...] = ()
    imported: bool = False
    """True for another tool's summaries: one number a run and metric, without histograms or windows."""
    repeated: tuple[Repeated, ...] = ()
    exceptions: pd.DataFrame = dataclasses.field(default_factory=lambda: empty_frame(EXCEPTION_COLUMNS))
    machine: pd.DataFrame = dataclasses.field(default_factory=lambda: read_machine((), 0))
    fingerprints: dict[int, tuple[Fingerprint, ...]] = dataclasses.field(default_factory=dict)
    """By run, what would tell a copy of it."""
    reduced: Mapping[int, Reduced] = dataclasses.field(default_factory=dict)
    """By complete run, what is asked of its response times and usage; a summary of another tool has none."""
    large: Callable[[str], pd.DataFrame] = lambda name: empty_frame(TABLES[name])
    """Gives the large tables by name, those of measurements.LARGE; of MANY_RUNS it reads them once more."""
    failed: pd.DataFrame = dataclasses.field(default_factory=lambda: empty_frame(FAILED_COLUMNS))
    history: pd.DataFrame = dataclasses.field(default_factory=lambda: empty_frame(HISTORY_COLUMNS))
    answers: dict[int, Answers] = dataclasses.field(default_factory=dict)
    """By run, answers as the server's own log counts them; a run without such a log is not there."""

    @functools.cached_property
    def response_times(self) -> pd.DataFrame:
        """Histograms of all runs."""
        return self.large("response_times")

    @functools.cached_property
    def timeline(self) -> pd.DataFrame:
        """Responses by the second, of all runs."""
        return self.large("timeline")

    @functools.cached_property
    def usage(self) -> pd.DataFrame:
        """Samples of processes, of all runs."""
        return self.large("usage")

    @functools.cached_property
    def outcomes(self) -> pd.DataFrame:
        """Responses in steady state of all runs, by endpoint and outcome."""
        rows = [(run, *row) for run, reduced in self.reduced.items() for row in reduced.outcomes]
        return pd.DataFrame(rows, columns=list(OUTCOME_COLUMNS)).astype({"run": "int64", "count": "int64"})

    @functools.cached_property
    def treatments(self) -> dict[str, Treatment]:
        """Treatment by its key, in the order of the factors' levels."""
        return treatments(self.record)

    @functools.cached_property
    def treatment_of(self) -> dict[int, str]:
        """Key of its treatment by the number of each planned run."""
        return dict(zip(self.runs["run"].tolist(), self.runs["treatment"].tolist(), strict=True))

    def complete_runs(self, treatment: str | None = None) -> list[int]:
        """Numbers of the runs that count: status complete, of one treatment or of all."""
        complete = self.runs.loc[self.runs["status"] == COMPLETE, "run"].tolist()
        return [run for run in complete if treatment is None or self.treatment_of[run] == treatment]

    def failures(self) -> pd.DataFrame:
        """Failures in steady state, or in the whole run where windows are unknown: run, endpoint, outcome, count."""
        rows = self.failed if self.imported else self.outcomes[self.outcomes["outcome"] != "success"]
        return rows[list(OUTCOME_COLUMNS)]


def load_experiment(folder: Path, report_progress: Progress = lambda done, of: None, processes: int = 1) -> Experiment:
    """Read an experiment folder; `report_progress` is told of each run that is read.

    With more than one process, many runs are read side by side. A script that asks for that needs the usual
    `if __name__ == "__main__"`.

    Raises RecordError where experiment.json is missing or damaged: without the plan nothing can be said to be missing.
    A damaged run is a failed run, with its reason.
    """
    record = read_plan(folder)
    if record.imported:
        from analysis.importers import imported_folder  # it needs this module's frames

        return imported_folder.read(folder, record)
    oddities: list[Oddity] = []
    found, repeated = read_runs(folder, record, oddities)
    records = {number: run for number, (_, run) in found.items() if isinstance(run, RunRecord)}
    complete = [(found[number][0], run) for number, run in records.items() if run.status == COMPLETE]
    is_large = len(complete) >= MANY_RUNS
    measured = list(_measured(complete, report_progress, processes if is_large else 1, not is_large))

    def joined(table: str) -> pd.DataFrame:
        # Taken from the runs, so that no more than one table is in memory twice.
        whole = concat([m.tables.pop(table) for m in measured], TABLES[table])
        _give_memory_back()
        return whole

    def read_again(table: str) -> pd.DataFrame:
        return concat([measurements.read(path, run).tables[table] for path, run in complete], TABLES[table])

    return Experiment(
        folder=folder,
        record=record,
        records=records,
        runs=runs_frame(folder, record, found),
        reduced={m.run: m.reduced for m in measured},
        large=read_again if is_large else {name: joined(name) for name in measurements.LARGE}.__getitem__,
        health={m.run: m.health for m in measured if m.health is not None},
        totals=pd.DataFrame([m.totals for m in measured], columns=list(TOTALS_COLUMNS)).astype({"locust": "float64"}),
        reported=empty_frame(REPORTED_COLUMNS),
        oddities=(*oddities, *(oddity for m in measured for oddity in m.oddities)),
        repeated=tuple(repeated),
        exceptions=joined("exceptions"),
        machine=joined("machine"),
        fingerprints={m.run: m.fingerprints for m in measured},
        answers={m.run: m.answers for m in measured if m.answers is not None},
    )


def _measured(
    complete: list[tuple[Path, RunRecord]], report_progress: Progress, processes: int, keep: bool
) -> Iterator[measurements.Measurements]:
    """Runs in their order; with the large tables or without."""
    with contextlib.ExitStack() as stack:
        read = measurements.read if keep else measurements.read_reduced
        reading: Iterator[measurements.Measurements] = itertools.starmap(read, complete)
        if processes > 1:
            # Spawned, since the fork of a process with threads, as Arrow's, may hang.
            context = multiprocessing.get_context("spawn")
            pool = stack.enter_context(concurrent.futures.ProcessPoolExecutor(processes, context))
            reading = pool.map(read, *zip(*complete, strict=True), chunksize=4)
        for done, measured in enumerate(reading, start=1):
            report_progress(done, len(complete))
            yield measured


def read_seconds(experiment: Experiment, run: int) -> pd.DataFrame:
    """Histograms of one run by the second, RESPONSE_TIME_COLUMNS; what is damaged is left out, as on loading."""
    (folder,) = experiment.runs.loc[experiment.runs["run"] == run, "folder"]
    return measurements.read_seconds(experiment.folder / RUNS_FOLDER / str(folder), experiment.records[run], [])


def _give_memory_back() -> None:
    """Of thousands of small arrays glibc keeps the memory after they are gone: as much again as the tables take."""
    with contextlib.suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)


def rows_of(frame: pd.DataFrame, run: int) -> pd.DataFrame:
    """The rows of one run in a frame of an Experiment. As those are ordered by run, it takes no longer with more."""
    first, end = np.searchsorted(frame["run"].to_numpy(), [run, run + 1])
    return frame.iloc[first:end]


def treatments(record: ExperimentRecord) -> dict[str, Treatment]:
    """Treatments of the plan by key, in the order in which `factors` names paths and levels."""
    unordered = {pairing.key(planned.treatment): planned.treatment for planned in record.plan}

    def place(treatment: Treatment) -> list[int]:
        texts = {path: [pairing.level_text(level) for level in levels] for path, levels in record.factors.items()}
        levels = {path: pairing.level_text(level) for path, level in treatment.items()}
        return [texts[p].index(levels[p]) if levels.get(p) in texts[p] else len(texts[p]) for p in record.factors]

    return dict(sorted(unordered.items(), key=lambda item: place(item[1])))
