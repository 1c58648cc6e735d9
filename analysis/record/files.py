"""Records from and to their files, and the folders of an experiment."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from pathlib import Path
from typing import Any, TypeVar

from analysis.record.format import (
    EXPERIMENT_FILE,
    PARTIAL_SUFFIX,
    RUN_FILE,
    RUNS_FOLDER,
    SCHEMA_VERSION,
    ExperimentRecord,
    LostWorker,
    PlannedRun,
    ProcessRecord,
    RecordError,
    RunRecord,
    Window,
)


def write_experiment(folder: Path, record: ExperimentRecord) -> None:
    """Write experiment.json into `folder`."""
    _write_json(folder / EXPERIMENT_FILE, dataclasses.asdict(record))


def read_experiment(folder: Path) -> ExperimentRecord:
    """Read experiment.json of `folder`.

    Raises RecordError where it is missing, damaged, or of a later schema.
    """
    data = _read_json(folder / EXPERIMENT_FILE)
    data["plan"] = [_build(PlannedRun, row, folder / EXPERIMENT_FILE) for row in data.get("plan", [])]
    return _build(ExperimentRecord, data, folder / EXPERIMENT_FILE)


def write_run(folder: Path, record: RunRecord) -> None:
    """Write run.json into `folder`."""
    _write_json(folder / RUN_FILE, dataclasses.asdict(record))


def read_run(folder: Path) -> RunRecord:
    """Read run.json of `folder`; raises RecordError as read_experiment does."""
    path = folder / RUN_FILE
    data = _read_json(path)
    data["windows"] = {name: _build(Window, window, path) for name, window in data.get("windows", {}).items()}
    data["lost_workers"] = [_build(LostWorker, worker, path) for worker in data.get("lost_workers", [])]
    return _build(RunRecord, data, path)


def read_process(path: Path) -> ProcessRecord:
    """Read one response_times/<process>.json; raises RecordError as read_experiment does."""
    return _build(ProcessRecord, _read_json(path), path)


def run_folders(experiment: Path) -> list[Path]:
    """Folders of whole runs, in plan order. Interrupted (.partial) folders are left out."""
    runs = experiment / RUNS_FOLDER
    if not runs.is_dir():
        return []
    return sorted(f for f in runs.iterdir() if f.is_dir() and not f.name.endswith(PARTIAL_SUFFIX))


def planned_name(path: Path) -> str:
    """Name of the planned folder, without the "+2" of a repeated attempt."""
    return path.name.split("+")[0]


def listed_files(run: RunRecord, role: str) -> list[Any] | None:
    """What run.json lists for one role of files; None where it lists nothing."""
    listed = run.files.get(role)
    names = [listed] if isinstance(listed, str) else listed
    return names if isinstance(names, list) else None


def finish_run(partial: Path) -> Path:
    """Rename a .partial folder to its final name, and return that. An existing folder is never replaced.

    Raises RecordError where the final name is taken.
    """
    final = partial.with_name(partial.name.removesuffix(PARTIAL_SUFFIX))
    if final.exists():
        raise RecordError(f"{final} exists already; nothing is overwritten. Use another output folder.")
    partial.rename(final)
    return final


Record = TypeVar("Record")


def _build(kind: type[Record], data: dict[str, Any], path: Path) -> Record:
    version = data.get("schema_version", SCHEMA_VERSION)
    if not isinstance(version, int):
        raise RecordError(f"{path}: schema_version is no number. The file is damaged or hand-edited.")
    if version > SCHEMA_VERSION:
        raise RecordError(f"{path}: schema version {version}, and this reads up to {SCHEMA_VERSION}. Update it.")
    names = {field.name for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    try:
        return kind(**{name: value for name, value in data.items() if name in names})
    except TypeError as error:
        raise RecordError(f"{path}: not a {kind.__name__} ({error}). The file is damaged or hand-edited.") from error


def _read_json(path: Path) -> dict[str, Any]:
    try:
        data = _parsed(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise RecordError(f"{path}: no such file. Is this a result folder of `python -m harness run`?") from error
    except (OSError, ValueError) as error:
        raise RecordError(f"{path}: cannot be read ({error}).") from error
    if not isinstance(data, dict):
        raise RecordError(f"{path}: not a JSON object. The file is damaged or hand-edited.")
    return data


def _parsed(text: str) -> Any:
    """JSON, its lone surrogates, which no file and no table can hold, replaced by question marks.

    Raises ValueError for what is no JSON, NaN and Infinity among it, and for numbers that no float holds.
    """
    data = json.loads(text, parse_constant=_finite, parse_float=_finite)
    lone = re.search(r"\\u[dD][89a-fA-F]", text)
    return json.loads(json.dumps(data, ensure_ascii=False).encode("utf-8", "replace")) if lone else data


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is no number that a record may hold")
    return number


def _write_json(path: Path, data: dict[str, Any]) -> None:
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    temporary.replace(path)
