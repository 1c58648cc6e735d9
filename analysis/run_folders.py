"""Which runs there are: the plan, the one folder that counts of each run, and what became of the others."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd
import pydantic

from analysis import pairing
from analysis.csv_tables import Oddity
from analysis.record import (
    COMPLETE,
    EXPERIMENT_FILE,
    FAILED,
    LONGEST_WINDOW_S,
    PARTIAL_SUFFIX,
    RUN_FILE,
    RUNS_FOLDER,
    STEADY_STATE,
    ExperimentRecord,
    PlannedRun,
    RecordError,
    RunRecord,
    flaw,
    planned_name,
    read_experiment,
    read_run,
    run_folders,
)

MISSING, INTERRUPTED = "missing", "interrupted"

LATEST_UNIX_S = 253_402_300_799
"""The last second that has a date of four digits for its year."""

RUN_COLUMNS = ("run", "block", "replicate", "treatment", "status", "reason", "folder", "server_number",
               "start_unix_s", "end_unix_s", "window_s")  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Repeated:
    """An attempt at a planned run that failed, and after which `--resume` did the run again."""

    run: int
    folder: str
    reason: str


def read_plan(folder: Path) -> ExperimentRecord:
    """experiment.json, its values checked. Raises RecordError where it is missing or damaged."""
    file = folder / EXPERIMENT_FILE
    try:
        record = read_experiment(folder)
    except (AttributeError, TypeError) as error:
        raise RecordError(f"{file}: not an experiment's record ({error}).") from error
    checked = _checked(record, file)
    if not isinstance(checked.primary.get("at") or {}, dict):
        raise RecordError(f"{file}: primary.at: should be levels by factor. The file is damaged or hand-edited.")
    if (wrong := next(_impossible(checked), None)) is not None:
        raise RecordError(f"{file}: {wrong}. The file is damaged or hand-edited.")
    return checked


def _impossible(record: ExperimentRecord) -> Iterator[str]:
    """Values of the right type that no experiment has."""
    if not 0 < record.margin < 1:
        yield f"margin: {record.margin:g} should lie between 0 and 1"
    if record.replicates < 1:
        yield f"replicates: {record.replicates} should be 1 or more"
    if not 0 <= record.created_unix_s <= LATEST_UNIX_S:
        yield f"created_unix_s: {record.created_unix_s:g} is no possible time"
    for name, value_s in record.timing.items():
        if not 0 <= value_s <= LONGEST_WINDOW_S:
            yield f"timing.{name}: {value_s:g} is no possible length"
    numbers = [run.number for run in record.plan]
    for name, values in (("number", numbers), ("folder", [run.folder for run in record.plan])):
        if twice := [value for value, times in Counter(values).items() if times > 1]:
            yield f"plan: {name} {twice[0]} stands there more than once"
    if numbers and min(numbers) < 0:
        yield f"plan: number {min(numbers)} is below zero"


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


Attempt = tuple[Path, RunRecord | RecordError]
"""A run's folder, and its record or what is wrong with it."""
Found = dict[int, Attempt]
"""By run number: the one attempt that counts."""


def read_runs(folder: Path, record: ExperimentRecord, oddities: list[Oddity]) -> tuple[Found, list[Repeated]]:
    """The one folder that counts of each run, and the failed attempts that --resume repeated."""
    planned = {run.number: run for run in record.plan}
    found: Found = {}
    repeated: list[Repeated] = []
    for number, rows in _attempts(folder, record, planned, oddities).items():
        name = Path(planned[number].folder).name
        attempts = [row for row in rows if planned_name(row[0]) == name] or rows[:1]
        attempts.sort(key=lambda row: _repetition(row[0]))
        complete = [row for row in attempts if _is_complete(row[1])]
        # The first that is complete: which of several measurements counts is never a matter of choice.
        found[number] = (complete or attempts[-1:])[0]
        for path, run in (row for row in rows if row != found[number]):
            if (path, run) in attempts and not _is_complete(run):
                repeated.append(Repeated(number, path.name, _reason(folder, run)))
            else:
                oddities.append(_foreign(number, path))
    oddities.sort(key=lambda oddity: oddity.file)
    return dict(sorted(found.items())), repeated


def _attempts(
    folder: Path, record: ExperimentRecord, planned: dict[int, PlannedRun], oddities: list[Oddity]
) -> dict[int, list[Attempt]]:
    """All folders of each planned run, by its number."""
    by_folder = {Path(run.folder).name: run.number for run in planned.values()}
    attempts: dict[int, list[Attempt]] = {}
    for path in run_folders(folder):
        run = _read_one_run(path)
        likely = by_folder.get(planned_name(path), _leading_number(path.name))
        number = run.number if isinstance(run, RunRecord) else likely
        if isinstance(run, RunRecord) and run.experiment != record.name:
            oddities.append(
                Oddity(number, path.name, f"a run of another experiment, {run.experiment}; left out", False)
            )
        elif number is None or number not in planned:
            oddities.append(_foreign(number, path))
        else:
            attempts.setdefault(number, []).append((path, _judged(path, run, planned[number], record)))
    return attempts


def _foreign(number: int | None, path: Path) -> Oddity:
    return Oddity(number, path.name, "a folder that belongs to no planned run; left out", False)


def _judged(
    path: Path, run: RunRecord | RecordError, planned: PlannedRun, record: ExperimentRecord
) -> RunRecord | RecordError:
    """A run with a flaw is a failed one, and its windows are not to be relied on."""
    why = flaw(path, run, planned, record) if isinstance(run, RunRecord) else None
    if isinstance(run, RecordError) or why is None:
        return run
    return dataclasses.replace(run, status=FAILED, reason=why, windows={})


def _repetition(path: Path) -> int:
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
        return _checked(read_run(path), path / RUN_FILE)
    except RecordError as error:
        return error
    except (AttributeError, TypeError) as error:
        return RecordError(f"{path}: run.json is not a run's record ({error}).")


def _leading_number(name: str) -> int | None:
    digits = re.match(r"\d+", name)
    return int(digits.group()) if digits else None


def runs_frame(folder: Path, record: ExperimentRecord, found: Found) -> pd.DataFrame:
    """One row a planned run, RUN_COLUMNS, ordered by number."""
    planned = {run.number: run for run in record.plan}
    rows = [_run_row(folder, planned[number], found.get(number)) for number in sorted(planned)]
    frame = pd.DataFrame(rows, columns=list(RUN_COLUMNS))
    return frame.astype({"start_unix_s": "Int64", "end_unix_s": "Int64", "window_s": "float64"})


def _run_row(folder: Path, planned: PlannedRun, found: Attempt | None) -> dict[str, Any]:
    row: dict[str, Any] = {
        "run": planned.number,
        "block": planned.block,
        "replicate": planned.replicate,
        "treatment": pairing.key(planned.treatment),
        "folder": planned.folder if found is None else found[0].name.encode("utf-8", "replace").decode(),
        "server_number": planned.server_number,
    }
    if found is None:
        return row | _absence(folder, planned)
    _, run = found
    if isinstance(run, RecordError):
        return row | {"status": FAILED, "reason": _reason(folder, run)}
    row |= {"status": run.status if run.status == COMPLETE else FAILED, "reason": run.reason}
    window = run.windows.get(STEADY_STATE)
    if window is None:
        return row
    return row | {
        "start_unix_s": window.start_unix_s,
        "end_unix_s": window.end_unix_s,
        "window_s": window.length_s,
    }


def _absence(folder: Path, planned: PlannedRun) -> dict[str, str]:
    partial = folder / RUNS_FOLDER / (Path(planned.folder).name + PARTIAL_SUFFIX)
    if partial.is_dir():
        return {"status": INTERRUPTED, "reason": "interrupted before it was whole"}
    return {"status": MISSING, "reason": "planned, but not there"}
