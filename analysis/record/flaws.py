"""Which runs count: what forbids it whatever their status says, and so what `run --resume` has to do.

A run is no run where its record contradicts itself, its plan, or what the load generator's processes wrote: the harness
never leaves such a one, so that a folder was damaged or edited.
"""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from analysis.record.files import (
    listed_files,
    planned_name,
    read_experiment,
    read_process,
    read_run,
    run_folders,
)
from analysis.record.format import (
    COMPLETE,
    LARGEST_NUMBER,
    LONGEST_WINDOW_S,
    STEADY_STATE,
    WARM_UP,
    ExperimentRecord,
    Level,
    PlannedRun,
    ProcessRecord,
    RecordError,
    RunRecord,
    Window,
)

LOST_WORKERS_STATUS = 2
"""Locust ends with it where a worker was lost, and the run is kept; all others end with 0."""
ROUNDED_S = 0.002
"""Of measured_s, which is rounded to milliseconds, and of what it is compared with."""
UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def missing_runs(experiment: Path) -> list[PlannedRun]:
    """Planned runs without a single attempt that counts, in plan order: what `run --resume` has to do.

    Raises RecordError as read_experiment does. A damaged run.json is a run that does not count.
    """
    record = read_experiment(experiment)
    planned = {run.folder: run for run in record.plan}
    folders = [(path, planned[planned_name(path)]) for path in run_folders(experiment) if planned_name(path) in planned]
    done = {run.number for path, run in folders if _counts(path, run, record)}
    return [run for run in record.plan if run.number not in done]


def _counts(folder: Path, planned: PlannedRun, experiment: ExperimentRecord) -> bool:
    try:
        run = read_run(folder)
        is_own = run.status == COMPLETE and run.experiment == experiment.name
        return is_own and flaw(folder, run, planned, experiment) is None
    except (RecordError, AttributeError, TypeError):
        return False


def flaw(folder: Path, run: RunRecord, planned: PlannedRun, experiment: ExperimentRecord) -> str | None:
    """Why a run cannot count whatever its status, in one clause; None where it can."""
    if json.dumps(run.treatment, sort_keys=True) != json.dumps(planned.treatment, sort_keys=True):
        return "its treatment is not the planned one"
    if not all(_is_possible(window) for window in run.windows.values()):
        return "its windows are no possible times; run.json is damaged"
    if run.status != COMPLETE:
        return None
    if STEADY_STATE not in run.windows or run.windows[STEADY_STATE].length_s <= 0:
        return "complete, but without a steady-state window"
    checks = (
        _lost_files(folder, run),
        _contradictions(run, experiment),
        _window_flaws(run, experiment),
        _process_flaws(folder, run, experiment),
    )
    return next(itertools.chain(*checks), None)


def _is_possible(window: Window) -> bool:
    return 0 <= window.start_unix_s <= window.end_unix_s <= LARGEST_NUMBER and window.length_s <= LONGEST_WINDOW_S


def _lost_files(folder: Path, run: RunRecord) -> Iterator[str]:
    """A process's histogram that is listed and not there took its responses with it: the numbers would be too low."""
    lost = [str(name) for name in listed_files(run, "response_times") or [] if not (folder / str(name)).exists()]
    if lost:
        yield f"{', '.join(lost)}: listed in run.json, but not there"


# --- what the record says of itself --------------------------------------------------------------------------------


def _contradictions(run: RunRecord, experiment: ExperimentRecord) -> Iterator[str]:
    status = run.locust.get("exit_code")
    if status != 0 and not (run.lost_workers and status == LOST_WORKERS_STATUS):
        yield f"Locust ended with status {json.dumps(status)}, as no complete run does"
    if "workload" not in run.treatment and run.workload != experiment.workload:
        yield f"its workload is {run.workload}, and the plan's {experiment.workload}"
    for path, level in run.treatment.items():
        recorded = _recorded(run, path)
        if recorded is not None and not _agree(level, recorded):
            yield f"its treatment says {path} = {json.dumps(level)}, and the rest of its record {json.dumps(recorded)}"


def _recorded(run: RunRecord, path: str) -> Any:
    """What a run's record holds at a factor's path; None where it holds nothing, as of a data set."""
    part, *keys = path.split(".", 2)
    if part == "options":
        workload, option = keys if len(keys) == 2 else ("", "")
        return _option(run.locust.get("command"), option) if workload == run.workload else None
    value: Any = {"server": run.server, "load": run.load, "workload": run.workload}.get(part) if keys else None
    value = run.workload if path == "workload" else value
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _option(command: object, name: str) -> str | None:
    """The value of an option on Locust's command line."""
    words = [str(word) for word in command] if isinstance(command, list) else []
    flag = "--" + name.replace("_", "-")
    return next((value for word, value in itertools.pairwise(words) if word == flag), None)


def _agree(level: Level, recorded: Any) -> bool:
    """Whether a level is what was recorded: 10 as 10.0, "500ms" as 0.5, and options as the command line has them."""
    numbers = [_number(level), _number(recorded)]
    if None not in numbers:
        return numbers[0] == numbers[1]
    if isinstance(level, str) and numbers[1] is not None and (match := re.fullmatch(r"([\d.]+)\s*(ms|s|m|h)", level)):
        return math.isclose(float(match[1]) * UNITS_S[match[2]], numbers[1])
    return json.dumps(level) == json.dumps(recorded) or (isinstance(recorded, str) and str(level) == recorded)


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


# --- the windows ---------------------------------------------------------------------------------------------------


def _window_flaws(run: RunRecord, experiment: ExperimentRecord) -> Iterator[str]:
    steady, warm_up = run.windows[STEADY_STATE], run.windows.get(WARM_UP)
    whole_s = steady.end_unix_s - steady.start_unix_s
    if steady.measured_s is not None:
        if not _has_budget(run):
            yield "its steady state has a measured_s, which only a budget of requests has"
        elif not whole_s - 2 - ROUNDED_S < steady.measured_s < whole_s + ROUNDED_S:
            yield f"its steady state of {whole_s} whole seconds cannot have lasted {steady.measured_s:g} s"
    if steady.begin_unix_s is not None and not 0 <= steady.begin_unix_s - steady.start_unix_s < 1 + ROUNDED_S:
        yield f"its load cannot have begun at {steady.begin_unix_s:g}, in a window from {steady.start_unix_s}"
    if _has_budget(run):
        if "steady_state_s" in experiment.timing:
            yield "it has a budget of requests, and its plan a length"
        return
    planned_s = _number(experiment.timing.get("warm_up_s")) or 0.0
    if warm_up is None:
        if planned_s > 0:
            yield "complete, but without a window of its warm-up"
        return
    if warm_up.end_unix_s > steady.start_unix_s:
        yield f"its steady state begins {warm_up.end_unix_s - steady.start_unix_s} s before its warm-up ends"
    if warm_up.end_unix_s < steady.start_unix_s:
        yield f"its steady state begins {steady.start_unix_s - warm_up.end_unix_s} s after its warm-up ends"
    if warm_up.length_s < planned_s:
        yield f"its warm-up lasted {warm_up.length_s:g} s instead of {planned_s:g} s"


def _has_budget(run: RunRecord) -> bool:
    return run.load.get("requests") is not None


def _process_flaws(folder: Path, run: RunRecord, experiment: ExperimentRecord) -> Iterator[str]:
    """The windows against the times that the load generator's processes wrote down themselves."""
    listed = listed_files(run, "processes")
    files = sorted(folder.glob("response_times/*.json")) if listed is None else [folder / str(name) for name in listed]
    try:
        records = [read_process(file) for file in files]
    except RecordError as error:
        yield str(error).replace(f"{folder}/", "").rstrip(".")
        return
    steady = run.windows[STEADY_STATE]
    # A load of before, whose window has no begin, did not wait until all users were there.
    begins_with = "test_start_unix_s" if steady.begin_unix_s is None else "spawning_complete_unix_s"
    begun, stopped = _times(records, begins_with), _times(records, "test_stop_unix_s")
    if _has_budget(run):
        if begun and stopped and abs(max(stopped) - min(begun) - steady.length_s) > ROUNDED_S:
            yield f"its steady state lasted {max(stopped) - min(begun):.3f} s, and not {steady.length_s:g} s"
        return
    spawned = _times(records, "spawning_complete_unix_s")
    if spawned:
        early_s = max(spawned) + (_number(experiment.timing.get("warm_up_s")) or 0.0) - steady.start_unix_s
        if not -1 < early_s <= 0:
            side = "before" if early_s > 0 else "after"
            yield f"its steady state begins {abs(early_s):.1f} s {side} the end of its warm-up"
    lost = {worker.process for worker in run.lost_workers}
    left = _times([record for record in records if record.process not in lost], "test_stop_unix_s")
    if left and min(left) < steady.end_unix_s:
        yield f"its load ended {steady.end_unix_s - min(left):.1f} s before its steady state"


def _times(records: list[ProcessRecord], name: str) -> list[float]:
    """One time of every process; none where any process does not tell."""
    times = [_number(getattr(record, name)) for record in records]
    known = [time for time in times if time is not None]
    return known if len(known) == len(times) else []
