"""Result folders to tidy frames. Reads files and changes nothing; all that is odd in them is kept as an Oddity.

Frames of an Experiment:

runs            one row a planned run: run, block, replicate, treatment (pairing.key), status, reason, folder,
                server_number, start_unix_s, end_unix_s (steady state; missing where the run has none)
response_times  run, phase, endpoint, outcome, clock, bucket_us, count; phase is "warm_up", "steady_state" or "outside"
timeline        run, second (Unix), offset_s (from the start of steady state), phase, endpoint, outcome, count
usage           run and record.USAGE_COLUMNS
totals          run, recorded, locust: responses of the whole run, by the histograms and by Locust's own CSV
reported        values taken from another tool's summary instead of histograms: run, endpoint, metric, value, samples
failed          failures of a summary, whose time is unknown: run, endpoint, outcome, kind (RESPONSE, GENERATOR or
                LOCUSTFILE), count
history         rates of a summary over time, windows of the tool's own: run, second (Unix), users, throughput, failures
"""

from __future__ import annotations

import csv
import dataclasses
import io
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd
import pydantic

from analysis import pairing
from analysis.generator import HEALTH_COLUMNS, read_health
from analysis.record import (
    EXPERIMENT_FILE,
    PARTIAL_SUFFIX,
    RESPONSE_TIME_COLUMNS,
    RUN_FILE,
    RUNS_FOLDER,
    USAGE_COLUMNS,
    ExperimentRecord,
    PlannedRun,
    RecordError,
    RunRecord,
    Treatment,
    Window,
    read_experiment,
    read_run,
    run_folders,
)

COMPLETE, FAILED, MISSING, INTERRUPTED = "complete", "failed", "missing", "interrupted"
WARM_UP, STEADY_STATE, OUTSIDE = "warm_up", "steady_state", "outside"

RUN_COLUMNS = ("run", "block", "replicate", "treatment", "status", "reason", "folder", "server_number",
               "start_unix_s", "end_unix_s", "window_s")  # fmt: skip
HISTOGRAM_COLUMNS = ("run", "phase", "endpoint", "outcome", "clock", "bucket_us", "count")
TIMELINE_COLUMNS = ("run", "second", "offset_s", "phase", "endpoint", "outcome", "count")
TOTALS_COLUMNS = ("run", "recorded", "locust")
REPORTED_COLUMNS = ("run", "endpoint", "metric", "value", "samples")
FAILED_COLUMNS = ("run", "endpoint", "outcome", "kind", "count")
HISTORY_COLUMNS = ("run", "second", "users", "throughput", "failures")

RESPONSE, GENERATOR, LOCUSTFILE = "response", "generator", "locustfile"
"""Whose failure it was: what was answered (or not), the load generator's own, one that the locustfile declared."""
IN_THE_LOCUSTFILE = "exception in the locustfile"
"""Stands in the endpoint column of `failed` for exceptions that belong to no request."""

LARGEST_NUMBER = 2**53
"""No count, time or size here is larger; up to it whole numbers are exact as floats, and sums stay within 64 bits."""
LONGEST_WINDOW_S = 366 * 86_400

_NUMBERS = {
    "run": "int64", "second": "int64", "offset_s": "int64", "bucket_us": "int64", "count": "int64", "samples": "int64",
    "value": "float64", "recorded": "int64", "locust": "float64", "time_unix_s": "float64", "pid": "int64",
    "cpu_s": "float64", "rss_bytes": "float64", "users": "float64", "throughput": "float64", "failures": "float64",
}  # fmt: skip
"""Types of the columns that are numbers; the others are text."""


@dataclasses.dataclass(frozen=True)
class Oddity:
    """Something in the files that is not as the format says; never repaired in silence."""

    run: int | None
    file: str
    what: str
    loses_data: bool
    """False for what an interrupted writer leaves, a last line without its end."""


@dataclasses.dataclass(frozen=True)
class Repeated:
    """An attempt at a planned run that failed, and after which `--resume` did the run again."""

    run: int
    folder: str
    reason: str


@dataclasses.dataclass(frozen=True, eq=False)
class Experiment:
    """One experiment folder (or a set of imported summaries) in memory."""

    folder: Path
    record: ExperimentRecord
    records: dict[int, RunRecord]
    runs: pd.DataFrame
    response_times: pd.DataFrame
    timeline: pd.DataFrame
    usage: pd.DataFrame
    health: pd.DataFrame
    """generator.HEALTH_COLUMNS: how the generator's processes fared in each second."""
    totals: pd.DataFrame
    reported: pd.DataFrame
    oddities: tuple[Oddity, ...] = ()
    imported: bool = False
    """True for another tool's summaries: one number a run and metric, without histograms or windows."""
    repeated: tuple[Repeated, ...] = ()
    failed: pd.DataFrame = dataclasses.field(default_factory=lambda: empty_frame(FAILED_COLUMNS))
    history: pd.DataFrame = dataclasses.field(default_factory=lambda: empty_frame(HISTORY_COLUMNS))

    @property
    def treatments(self) -> dict[str, Treatment]:
        """Treatment by its key, in the order of the factors' levels."""
        return treatments(self.record)

    def complete_runs(self, treatment: str | None = None) -> list[int]:
        """Numbers of the runs that count: status complete, of one treatment or of all."""
        rows = self.runs[self.runs["status"] == COMPLETE]
        return [int(n) for n in (rows if treatment is None else rows[rows["treatment"] == treatment])["run"]]

    def failures(self) -> pd.DataFrame:
        """Failures in steady state, or in the whole run where windows are unknown: run, endpoint, outcome, count."""
        rows = self.timeline[(self.timeline["phase"] == STEADY_STATE) & (self.timeline["outcome"] != "success")]
        return (self.failed if self.imported else rows)[["run", "endpoint", "outcome", "count"]]


def load_experiment(folder: Path) -> Experiment:
    """Read an experiment folder.

    Raises RecordError where experiment.json is missing or damaged: without the plan nothing can be said to be missing.
    A damaged run is a failed run, with its reason.
    """
    record = _read_plan(folder)
    if record.imported:
        from analysis.importers import imported_folder  # it needs this module's frames

        return imported_folder.read(folder, record)
    oddities: list[Oddity] = []
    found, repeated = _read_runs(folder, record, oddities)
    records = {number: run for number, (_, run) in found.items() if isinstance(run, RunRecord)}
    runs = _runs_frame(folder, record, found)
    counted = set(runs.loc[runs["status"] == COMPLETE, "run"])
    parts = [
        _read_measurements(path, run, oddities)
        for number, (path, run) in found.items()
        if isinstance(run, RunRecord) and number in counted
    ]
    return Experiment(
        folder=folder,
        record=record,
        records=records,
        runs=runs,
        response_times=_concat([p[0] for p in parts], HISTOGRAM_COLUMNS),
        timeline=_concat([p[1] for p in parts], TIMELINE_COLUMNS),
        usage=_concat([p[2] for p in parts], ("run", *USAGE_COLUMNS)),
        health=_concat([p[4] for p in parts], HEALTH_COLUMNS),
        totals=pd.DataFrame([p[3] for p in parts], columns=list(TOTALS_COLUMNS)).astype({"locust": "float64"}),
        reported=empty_frame(REPORTED_COLUMNS),
        oddities=tuple(oddities),
        repeated=tuple(repeated),
    )


def _read_plan(folder: Path) -> ExperimentRecord:
    file = folder / EXPERIMENT_FILE
    try:
        record = read_experiment(folder)
    except (AttributeError, TypeError) as error:
        raise RecordError(f"{file}: not an experiment's record ({error}).") from error
    checked = _checked(record, file)
    if not isinstance(checked.primary.get("at") or {}, dict):
        raise RecordError(f"{file}: primary.at: should be levels by factor. The file is damaged or hand-edited.")
    return checked


Record = TypeVar("Record", ExperimentRecord, RunRecord)


def _checked(record: Record, file: Path) -> Record:
    """The record, its values checked against the types it declares. Raises RecordError for the first that is not."""
    try:
        checked: Record = _CHECKERS[type(record)].validate_python(dataclasses.asdict(record))
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        message = f"{file}: {place}: {first['msg'].lower()}. The file is damaged or hand-edited."
        raise RecordError(message) from error
    return checked


_CHECKERS: dict[type, pydantic.TypeAdapter[Any]] = {
    kind: pydantic.TypeAdapter(kind) for kind in (ExperimentRecord, RunRecord)
}


def treatments(record: ExperimentRecord) -> dict[str, Treatment]:
    """Treatments of the plan by key, in the order in which `factors` names paths and levels."""
    unordered = {pairing.key(planned.treatment): planned.treatment for planned in record.plan}

    def place(treatment: Treatment) -> list[int]:
        texts = {path: [pairing.level_text(level) for level in levels] for path, levels in record.factors.items()}
        levels = {path: pairing.level_text(level) for path, level in treatment.items()}
        return [texts[p].index(levels[p]) if levels.get(p) in texts[p] else len(texts[p]) for p in record.factors]

    return dict(sorted(unordered.items(), key=lambda item: place(item[1])))


# --- which runs there are ------------------------------------------------------------------------------------------

Found = dict[int, tuple[Path, RunRecord | RecordError]]


def _read_runs(folder: Path, record: ExperimentRecord, oddities: list[Oddity]) -> tuple[Found, list[Repeated]]:
    """The one folder that counts of each run, and the failed attempts that --resume repeated."""
    by_folder = {Path(planned.folder).name: planned.number for planned in record.plan}
    folder_of = {number: name for name, number in by_folder.items()}
    candidates: dict[int, list[tuple[Path, RunRecord | RecordError]]] = {}
    for path in run_folders(folder):
        run = _read_one_run(path)
        planned = by_folder.get(_planned_name(path), _leading_number(path.name))
        number = run.number if isinstance(run, RunRecord) else planned
        if number is None or number not in folder_of:
            oddities.append(Oddity(number, path.name, "a folder that belongs to no planned run; left out", False))
            continue
        candidates.setdefault(number, []).append((path, run))
    found: Found = {}
    repeated: list[Repeated] = []
    for number, rows in candidates.items():
        attempts = [row for row in rows if _planned_name(row[0]) == folder_of[number]] or rows[:1]
        attempts.sort(key=lambda row: _attempt(row[0]))
        complete = [row for row in attempts if _is_complete(row[1])]
        # The first that is complete: which of several measurements counts is never a matter of choice.
        found[number] = (complete or attempts[-1:])[0]
        for path, run in rows:
            if path == found[number][0]:
                continue
            if (path, run) in attempts and not _is_complete(run):
                repeated.append(Repeated(number, path.name, _reason(folder, run)))
            else:
                oddities.append(Oddity(number, path.name, "a folder that belongs to no planned run; left out", False))
    oddities.sort(key=lambda oddity: oddity.file)
    return found, repeated


def _planned_name(path: Path) -> str:
    """Name of the planned folder, without the "+2" of a repeated attempt."""
    return path.name.split("+")[0]


def _attempt(path: Path) -> int:
    number = path.name.partition("+")[2]
    return int(number) if re.fullmatch("[0-9]{1,9}", number) else 1


def _is_complete(run: RunRecord | RecordError) -> bool:
    return isinstance(run, RunRecord) and run.status == COMPLETE


def _reason(folder: Path, run: RunRecord | RecordError) -> str:
    if isinstance(run, RecordError):
        return str(run).replace(str(folder) + "/", "")
    return run.reason or "no reason recorded"


def _read_one_run(path: Path) -> RunRecord | RecordError:
    try:
        return _failed_if_files_are_missing(path, _checked(read_run(path), path / RUN_FILE))
    except RecordError as error:
        return error
    except (AttributeError, TypeError) as error:
        return RecordError(f"{path}: run.json is not a run's record ({error}).")


def _failed_if_files_are_missing(path: Path, run: RunRecord) -> RunRecord:
    """A process's histogram that is listed and not there took its responses with it: the run's numbers are too low."""
    lost = [str(name) for name in _listed(run, "response_times") or [] if not (path / str(name)).exists()]
    if run.status != COMPLETE or not lost:
        return run
    reason = f"{', '.join(lost)}: listed in run.json, but not there; remove the run's folder to repeat it"
    return dataclasses.replace(run, status=FAILED, reason=reason)


def _leading_number(name: str) -> int | None:
    digits = re.match(r"\d+", name)
    return int(digits.group()) if digits else None


def _runs_frame(folder: Path, record: ExperimentRecord, found: Found) -> pd.DataFrame:
    planned = {run.number: run for run in record.plan}
    rows = [_run_row(folder, planned[number], found.get(number)) for number in sorted(planned)]
    frame = pd.DataFrame(rows, columns=list(RUN_COLUMNS))
    return frame.astype({"start_unix_s": "Int64", "end_unix_s": "Int64", "window_s": "float64"})


def _run_row(folder: Path, planned: PlannedRun, found: tuple[Path, RunRecord | RecordError] | None) -> dict[str, Any]:
    row: dict[str, Any] = {
        "run": planned.number,
        "block": planned.block,
        "replicate": planned.replicate,
        "treatment": pairing.key(planned.treatment),
        "folder": planned.folder,
        "server_number": planned.server_number,
    }
    if found is None:
        partial = folder / RUNS_FOLDER / (Path(planned.folder).name + PARTIAL_SUFFIX)
        status = INTERRUPTED if partial.is_dir() else MISSING
        reason = "interrupted before it was whole" if status == INTERRUPTED else "planned, but not there"
        return row | {"status": status, "reason": reason}
    path, run = found
    row["folder"] = path.name
    if isinstance(run, RecordError):
        return row | {"status": FAILED, "reason": _reason(folder, run)}
    if pairing.key(run.treatment) != row["treatment"]:
        return row | {"status": FAILED, "reason": "its treatment is not the planned one"}
    window = run.windows.get(STEADY_STATE)
    if run.status == COMPLETE and (window is None or window.length_s <= 0):
        return row | {"status": FAILED, "reason": "complete, but without a steady-state window"}
    if not all(_is_possible(w) for w in run.windows.values()):
        return row | {"status": FAILED, "reason": "its windows are no possible times; run.json is damaged"}
    times = (
        {"start_unix_s": window.start_unix_s, "end_unix_s": window.end_unix_s, "window_s": window.length_s}
        if window
        else {}
    )
    return row | times | {"status": run.status if run.status == COMPLETE else FAILED, "reason": run.reason}


def _is_possible(window: Window) -> bool:
    return 0 <= window.start_unix_s <= window.end_unix_s <= LARGEST_NUMBER and window.length_s <= LONGEST_WINDOW_S


# --- what was measured in a run ------------------------------------------------------------------------------------


def _read_measurements(
    path: Path, run: RunRecord, oddities: list[Oddity]
) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame, tuple[int, int, float | None], pd.DataFrame]:
    files = role_files(path, run, "response_times", "response_times/*.csv")
    rows = _concat(
        [_read_table(f, RESPONSE_TIME_COLUMNS, run.number, path, oddities) for f in files], RESPONSE_TIME_COLUMNS
    )
    rows["phase"] = _phases(rows["second"], run)
    rows.insert(0, "run", run.number)
    usage = _concat(
        [
            _read_table(f, USAGE_COLUMNS, run.number, path, oddities)
            for f in role_files(path, run, "usage", "usage.csv")
        ],
        USAGE_COLUMNS,
    )
    usage.insert(0, "run", run.number)
    timeline = _timeline(rows, run)
    totals = (run.number, int(timeline["count"].sum()), _locust_total(role_files(path, run, "locust", "locust/*.csv")))
    health = read_health(role_files(path, run, "health", "response_times/*.health.jsonl"), run.number)
    health["phase"] = _phases(health["second"], run)
    return _sum_counts(rows, HISTOGRAM_COLUMNS), timeline, usage, totals, health


def role_files(path: Path, run: RunRecord, role: str, pattern: str) -> list[Path]:
    """Files of one role of a run, as run.json lists them, else those that match `pattern`; each that exists, once."""
    listed = _listed(run, role)
    files = [path / str(name) for name in listed] if listed is not None else sorted(path.glob(pattern))
    inner = [g for f in files for g in (sorted(f.glob("*.csv")) if f.is_dir() else [f]) if g.is_file()]
    return list({f.resolve(): f for f in inner}.values())


def _listed(run: RunRecord, role: str) -> list[Any] | None:
    listed = run.files.get(role)
    names = [listed] if isinstance(listed, str) else listed
    return names if isinstance(names, list) else None


def _timeline(rows: pd.DataFrame, run: RunRecord) -> pd.DataFrame:
    # Each response is there once for each clock: as "both", or as "response" and as "service".
    once = rows[rows["clock"] != "service"].copy()
    window = run.windows.get(STEADY_STATE)
    once["offset_s"] = once["second"] - (window.start_unix_s if window else 0)
    return _sum_counts(once, TIMELINE_COLUMNS)


def _phases(seconds: pd.Series[int], run: RunRecord) -> pd.Series[str]:
    phases = pd.Series(OUTSIDE, index=seconds.index, dtype="str")
    for name in (WARM_UP, STEADY_STATE):
        window = run.windows.get(name)
        if window is not None:
            phases[(seconds >= window.start_unix_s) & (seconds < window.end_unix_s)] = name
    return phases


def _sum_counts(rows: pd.DataFrame, columns: Iterable[str]) -> pd.DataFrame:
    keys = [name for name in columns if name != "count"]
    return rows.groupby(keys, sort=True)["count"].sum().reset_index()


def _locust_total(files: list[Path]) -> float | None:
    """Request count of the Aggregated row of Locust's _stats.csv; None without one."""
    for path in files:
        if not path.name.endswith("_stats.csv"):
            continue
        try:
            with path.open(newline="", encoding="utf-8", errors="replace") as stream:
                rows = [row for row in csv.DictReader(stream) if row.get("Name") == "Aggregated"]
            total = float(rows[-1]["Request Count"]) if rows else -1.0
        except (KeyError, ValueError, TypeError, OSError, csv.Error):
            return None
        return total if 0 <= total <= LARGEST_NUMBER else None
    return None


# --- tables on disk ------------------------------------------------------------------------------------------------


def _read_table(path: Path, columns: tuple[str, ...], run: int, folder: Path, oddities: list[Oddity]) -> pd.DataFrame:
    """A CSV file with exactly `columns`; lines that are not whole are left out and become an Oddity."""
    name = str(path.relative_to(folder)) if path.is_relative_to(folder) else path.name
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        oddities.append(Oddity(run, name, f"cannot be read ({error.strerror})", True))
        return empty_frame(columns)
    if text and not text.endswith("\n"):
        text = text[: text.rfind("\n") + 1]
        oddities.append(Oddity(run, name, "the last line is torn; it was left out", False))
    numbers = {column: kind for column, kind in _NUMBERS.items() if column in columns}
    kinds = {column: numbers.get(column, "str") for column in columns}
    try:
        with np.errstate(invalid="ignore"):  # a number that no integer holds is found implausible below
            rows = pd.read_csv(io.StringIO(text), dtype=kinds, keep_default_na=False)[list(columns)]
        if not _plausible(rows).all():
            raise ValueError("a number below zero or beyond 2^53")
    except (ValueError, KeyError, OverflowError) as error:
        rows, lost = _read_damaged(text, columns, numbers)
        oddities.append(Oddity(run, name, f"{lost} ({_first_line(error)})", True))
    if "count" in rows and rows["count"].astype(float).sum() > LARGEST_NUMBER:
        oddities.append(Oddity(run, name, "counts that add up to more than 2^53; left out as a whole", True))
        return empty_frame(columns)
    return rows


def _read_damaged(text: str, columns: tuple[str, ...], numbers: dict[str, str]) -> tuple[pd.DataFrame, str]:
    try:
        reader = csv.DictReader(io.StringIO(text.replace("\0", "")), restkey="surplus")
        if not set(columns) <= set(reader.fieldnames or ()):
            raise ValueError("no header")
        raw = pd.DataFrame(list(reader), columns=[*columns, "surplus"])
    except (csv.Error, ValueError):
        return empty_frame(columns), f"not a table of {', '.join(columns)}; left out as a whole"
    converted = {column: raw[column].map(_parsed).astype(float) for column in numbers}
    for column, kind in numbers.items():
        if kind == "int64":
            converted[column] = converted[column].where(converted[column] % 1 == 0)
    whole = pd.DataFrame(converted).notna().all(axis=1) & raw[list(columns)].notna().all(axis=1) & raw["surplus"].isna()
    whole &= _plausible(pd.DataFrame(converted))
    rows = raw.assign(**converted)[list(columns)][whole].astype(dict(numbers))
    return rows, f"{int((~whole).sum())} of {len(raw)} lines are damaged and were left out"


def _plausible(rows: pd.DataFrame) -> pd.Series[bool]:
    numbers = rows.select_dtypes("number").to_numpy(dtype=float)
    return pd.Series(((numbers >= 0) & (numbers <= LARGEST_NUMBER)).all(axis=1), index=rows.index)


def _parsed(text: object) -> float:
    try:
        return float(str(text))
    except ValueError:
        return float("nan")


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def empty_frame(columns: Iterable[str]) -> pd.DataFrame:
    """A frame without rows whose columns have the types that files give them."""
    return pd.DataFrame({column: pd.Series(dtype=_NUMBERS.get(column, "str")) for column in columns})


def _concat(frames: list[pd.DataFrame], columns: Iterable[str]) -> pd.DataFrame:
    filled = [frame for frame in frames if len(frame)]
    return pd.concat(filled, ignore_index=True) if filled else empty_frame(columns)
