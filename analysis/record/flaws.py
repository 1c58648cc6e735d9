"""Which runs count: what forbids it whatever their status says, and so what `run --resume` has to do."""

from __future__ import annotations

import json
from pathlib import Path

from analysis.record.files import listed_files, planned_name, read_experiment, read_run, run_folders
from analysis.record.format import (
    COMPLETE,
    LARGEST_NUMBER,
    LONGEST_WINDOW_S,
    STEADY_STATE,
    PlannedRun,
    RecordError,
    RunRecord,
    Window,
)


def missing_runs(experiment: Path) -> list[PlannedRun]:
    """Planned runs without a single attempt that counts, in plan order: what `run --resume` has to do.

    Raises RecordError as read_experiment does. A damaged run.json is a run that does not count.
    """
    plan = read_experiment(experiment).plan
    planned = {run.folder: run for run in plan}
    folders = [(path, planned[planned_name(path)]) for path in run_folders(experiment) if planned_name(path) in planned]
    done = {run.number for path, run in folders if _counts(path, run)}
    return [run for run in plan if run.number not in done]


def _counts(folder: Path, planned: PlannedRun) -> bool:
    try:
        run = read_run(folder)
        return run.status == COMPLETE and flaw(folder, run, planned) is None
    except (RecordError, AttributeError, TypeError):
        return False


def flaw(folder: Path, run: RunRecord, planned: PlannedRun) -> str | None:
    """Why a run cannot count whatever its status, in one clause; None where it can.

    A process's histogram that is listed and not there took its responses with it: the run's numbers would be too low.
    """
    if json.dumps(run.treatment, sort_keys=True) != json.dumps(planned.treatment, sort_keys=True):
        return "its treatment is not the planned one"
    if not all(_is_possible(window) for window in run.windows.values()):
        return "its windows are no possible times; run.json is damaged"
    if run.status != COMPLETE:
        return None
    if STEADY_STATE not in run.windows or run.windows[STEADY_STATE].length_s <= 0:
        return "complete, but without a steady-state window"
    lost = [str(name) for name in listed_files(run, "response_times") or [] if not (folder / str(name)).exists()]
    return f"{', '.join(lost)}: listed in run.json, but not there" if lost else None


def _is_possible(window: Window) -> bool:
    return 0 <= window.start_unix_s <= window.end_unix_s <= LARGEST_NUMBER and window.length_s <= LONGEST_WINDOW_S
