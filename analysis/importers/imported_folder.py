"""Imported runs as an experiment folder of analysis/record: written by `python -m analysis import`."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pandas as pd
import pydantic

from analysis import load, pairing, record
from analysis.importers import locust_csv
from analysis.importers.locust_csv import FRAMES
from analysis.load import Experiment, Oddity
from analysis.record import IMPORTED_FILES, ExperimentRecord, PlannedRun, RecordError, RunRecord

_ODDITIES = pydantic.TypeAdapter(list[Oddity])


def write(experiment: Experiment, folder: Path) -> None:
    """Write an imported experiment into `folder`, which must not be there or be empty. Raises RecordError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise RecordError(f"{folder}: holds files, and nothing is overwritten. Choose another folder with -o.")
        for planned in experiment.record.plan:
            _write_run(experiment, planned, folder / record.RUNS_FOLDER / planned.folder)
        # Last, so that a folder that is not whole is none.
        record.write_experiment(folder, experiment.record)
    except OSError as error:
        raise RecordError(f"{folder}: cannot be written ({error.strerror}). Choose another with -o.") from error


def read(folder: Path, plan: ExperimentRecord) -> Experiment:
    """Read what write() wrote. A damaged run is a failed run, with its reason."""
    runs = locust_csv.runs_frame(plan.plan)
    parts: list[dict[str, Any]] = []
    for place, planned in enumerate(plan.plan):
        path = folder / record.RUNS_FOLDER / Path(planned.folder).name
        try:
            parts.append(_read_run(path, planned))
        except RecordError as error:
            runs.loc[place, "status"] = load.FAILED if path.is_dir() else load.MISSING
            runs.loc[place, "reason"] = str(error).replace(f"{folder}/", "")
    frames = {role: [part[role] for part in parts] for role in FRAMES}
    return locust_csv.experiment(folder, plan, runs, frames, [oddity for part in parts for oddity in part["oddities"]])


def _write_run(experiment: Experiment, planned: PlannedRun, folder: Path) -> None:
    folder.mkdir(parents=True)
    for role in FRAMES:
        frame = getattr(experiment, role)
        frame[frame["run"] == planned.number].to_csv(folder / IMPORTED_FILES[role], index=False, lineterminator="\n")
    oddities = [dataclasses.asdict(oddity) for oddity in experiment.oddities if oddity.run == planned.number]
    text = json.dumps(oddities, indent=1, ensure_ascii=False) + "\n"
    (folder / IMPORTED_FILES["oddities"]).write_text(text, encoding="utf-8")
    record.write_run(folder, _run_record(experiment.record, planned))


def _run_record(experiment: ExperimentRecord, planned: PlannedRun) -> RunRecord:
    return RunRecord(
        experiment=experiment.name,
        number=planned.number,
        block=planned.block,
        replicate=planned.replicate,
        treatment=planned.treatment,
        workload=experiment.workload,
        status=load.COMPLETE,
        reason=None,
        windows={},
        load={},
        server={},
        environment={},
        locust={},
        files=dict(IMPORTED_FILES),
    )


def _read_run(path: Path, planned: PlannedRun) -> dict[str, Any]:
    run = record.read_run(path)
    if run.status != load.COMPLETE or pairing.key(run.treatment) != pairing.key(planned.treatment):
        raise RecordError(f"{path / record.RUN_FILE}: not the imported run that was planned. It was edited.")
    frames = {role: _read_frame(path / IMPORTED_FILES[role], columns, planned) for role, columns in FRAMES.items()}
    return {**frames, "oddities": _read_oddities(path / IMPORTED_FILES["oddities"])}


def _read_frame(file: Path, columns: tuple[str, ...], planned: PlannedRun) -> pd.DataFrame:
    kinds = load.empty_frame(columns).dtypes
    types = {name: str(kinds[name]) for name in columns}
    missing = {name: [] if kind == "str" else [""] for name, kind in types.items()}
    try:
        frame: pd.DataFrame = pd.read_csv(file, dtype=types, keep_default_na=False, na_values=missing, encoding="utf-8")
    except (OSError, ValueError) as error:
        raise RecordError(f"{file}: cannot be read ({str(error).splitlines()[0]}). Import it again.") from error
    numbers = frame.select_dtypes("number").to_numpy(dtype=float)
    outside = ((numbers < 0) | (numbers > load.LARGEST_NUMBER)).any()
    if tuple(frame.columns) != columns or outside or (frame["run"] != planned.number).any():
        raise RecordError(f"{file}: not a table of {', '.join(columns)} of run {planned.number}. It was edited.")
    return frame


def _read_oddities(file: Path) -> list[Oddity]:
    try:
        return _ODDITIES.validate_json(file.read_bytes())
    except (OSError, pydantic.ValidationError) as error:
        raise RecordError(f"{file}: cannot be read ({str(error).splitlines()[0]}). Import it again.") from error
