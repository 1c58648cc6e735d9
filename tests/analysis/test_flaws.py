"""Run folders that were damaged or faked: each is a failed run, with its reason."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from analysis import load, record
from analysis.record import ExperimentRecord, PlannedRun, ProcessRecord, RunRecord, Window, flaw
from tests.analysis import synthetic
from tests.analysis.synthetic import PROCESSES, START, USERS

PLAN = synthetic.Plan()
Change = dict[str, Any]


def judged(folder: Path, planned: PlannedRun, run: RunRecord, **experiment: Any) -> str | None:
    whole: ExperimentRecord = synthetic.experiment_record(PLAN, [planned])
    (folder / "response_times").mkdir(exist_ok=True)
    for file in run.files["response_times"]:
        (folder / file).touch()
    if "requests" in run.load:
        experiment = {"timing": {"warm_up_s": 2.0}} | experiment
    return flaw(folder, run, planned, dataclasses.replace(whole, **experiment))


def one_run(treatment: dict[str, Any] | None = None, **changes: Any) -> tuple[PlannedRun, RunRecord]:
    planned = PlannedRun(1, 1, 1, treatment or {PROCESSES: 2, USERS: 16}, "001", 1)
    run = synthetic.run_record(PLAN, planned, START)
    return planned, dataclasses.replace(run, **changes)


def windows(warm_up: tuple[int, int] | None, steady: tuple[int, int], measured_s: float | None = None) -> Change:
    found = {"steady_state": Window(START + steady[0], START + steady[1], measured_s)}
    return {"windows": found | ({} if warm_up is None else {"warm_up": Window(START + warm_up[0], START + warm_up[1])})}


def budget(measured_s: float | None) -> Change:
    return windows(None, (0, 6), measured_s) | {"load": {"model": "closed", "requests": 100}}


def test_a_whole_run_has_no_flaw(tmp_path: Path) -> None:
    assert judged(tmp_path, *one_run()) is None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (windows((0, 2), (2, 8)), None),
        (windows((0, 3), (3, 9)), None),
        (windows((0, 2), (1, 7)), "begins 1 s before its warm-up ends"),
        (windows((0, 2), (3, 9)), "begins 1 s after its warm-up ends"),
        (windows(None, (2, 8)), "without a window of its warm-up"),
        (windows((0, 1), (1, 7)), "its warm-up lasted 1 s instead of 2 s"),
        (windows((0, 2), (2, 8), 0.001), "a measured_s, which only a budget"),
        (budget(None), None),
        (budget(5.2), None),
        (budget(4.1), None),
        (budget(3.9), "of 6 whole seconds cannot have lasted 3.9 s"),
        (budget(0.001), "cannot have lasted 0.001 s"),
        (budget(6.1), "cannot have lasted 6.1 s"),
    ],
)
def test_windows(tmp_path: Path, changes: Change, words: str | None) -> None:
    why = judged(tmp_path, *one_run(**changes))
    assert (why is None) if words is None else (why is not None and words in why)


@pytest.mark.parametrize(
    ("times", "lost", "words"),
    [
        ((0.2, 0.4, 9.5), [], None),
        ((0.2, None, None), [], None),
        ((0.05, 0.1, 9.5), [], None),
        ((0.2, 1.2, 9.5), [], "begins 0.2 s before the end of its warm-up"),
        ((0.2, -1.1, 9.5), [], "begins 2.1 s after the end of its warm-up"),
        ((0.2, 0.4, 8.1), [], "its load ended 0.9 s before its steady state"),
        ((0.2, 0.4, 8.1), ["local"], None),
    ],
)
def test_windows_are_those_of_the_processes(
    tmp_path: Path, times: tuple[float | None, ...], lost: list[str], words: str | None
) -> None:
    begun, spawned, stopped = (None if t is None else START + t for t in times)
    (tmp_path / "response_times").mkdir()
    about = ProcessRecord("local", 1, "closed", 0.005, begun, spawned, stopped, {})
    (tmp_path / "response_times/local.json").write_text(json.dumps(dataclasses.asdict(about)), "utf-8")
    workers = [record.LostWorker(process, 0.5, "users", None) for process in lost]
    planned, run = one_run(**windows((0, 3), (3, 9)), lost_workers=workers)
    why = judged(tmp_path, planned, run)
    assert (why is None) if words is None else (why is not None and words in why)


def test_a_budget_lasted_as_long_as_its_processes(tmp_path: Path) -> None:
    (tmp_path / "response_times").mkdir()
    about = ProcessRecord("local", 1, "closed", 0.005, START + 0.3, START + 0.3, START + 5.5, {})
    (tmp_path / "response_times/local.json").write_text(json.dumps(dataclasses.asdict(about)), "utf-8")
    assert judged(tmp_path, *one_run(**budget(5.2))) is None
    assert "lasted 5.200 s, and not 4.5 s" in str(judged(tmp_path, *one_run(**budget(4.5))))


@pytest.mark.parametrize(
    ("begin_s", "measured_s", "words"),
    [
        (0.6, 4.9, None),
        (0.6, 5.2, "lasted 4.900 s, and not 5.2 s"),
        (1.4, 4.9, "cannot have begun"),
        (-0.1, 4.9, "begun"),
    ],
)
def test_a_budget_begins_when_all_users_are_there(
    tmp_path: Path, begin_s: float, measured_s: float, words: str | None
) -> None:
    (tmp_path / "response_times").mkdir()
    about = ProcessRecord("local", 1, "closed", 0.005, START + 0.3, START + 0.6, START + 5.5, {})
    (tmp_path / "response_times/local.json").write_text(json.dumps(dataclasses.asdict(about)), "utf-8")
    changes = budget(measured_s)
    changes["windows"]["steady_state"] = dataclasses.replace(
        changes["windows"]["steady_state"], begin_unix_s=START + begin_s
    )
    why = judged(tmp_path, *one_run(**changes))
    assert (why is None) if words is None else (why is not None and words in why)


def test_a_budget_is_the_plans(tmp_path: Path) -> None:
    timing = {"warm_up_s": 2.0, "steady_state_s": 6.0}
    assert (
        judged(tmp_path, *one_run(**budget(5.2)), timing=timing) == "it has a budget of requests, and its plan a length"
    )


def test_what_a_process_says_of_itself_must_be_readable(tmp_path: Path) -> None:
    (tmp_path / "response_times").mkdir()
    (tmp_path / "response_times/local.json").write_text("{", "utf-8")
    assert str(judged(tmp_path, *one_run())).startswith("response_times/local.json: cannot be read")


SERVER = {"system": "keystone", "configuration": "uwsgi", "parameters": {"processes": 2}}
COMMAND = {"exit_code": 0, "command": ["python", "-m", "locust", "--token-pool", "200"]}
POOL = "options.keystone_auth.token_pool"


@pytest.mark.parametrize(
    ("treatment", "changes", "words"),
    [
        ({PROCESSES: 4}, {"server": SERVER}, "server.parameters.processes = 4, and the rest of its record 2"),
        ({PROCESSES: "2"}, {"server": SERVER}, 'server.parameters.processes = "2", and the rest of its record 2'),
        ({PROCESSES: 2}, {"server": SERVER}, None),
        ({"server.configuration": "apache"}, {"server": SERVER}, 'server.configuration = "apache"'),
        ({"server": "a whole one"}, {"server": SERVER}, None),
        ({"dataset.projects": 12}, {}, None),
        ({USERS: 16}, {"load": {"users": 4}}, "load.users = 16, and the rest of its record 4"),
        ({"load.arrival_rate_rps": 10}, {"load": {"arrival_rate_rps": 10.0}}, None),
        ({"load.think_time": "500ms"}, {"load": {"think_time": 0.5}}, None),
        ({"load.think_time": "500ms"}, {"load": {"think_time": 0.6}}, "load.think_time"),
        ({"load.arrival_steps": "1:3s"}, {"load": {"arrival_steps": "2:3s"}}, "load.arrival_steps"),
        ({POOL: 200}, {"locust": COMMAND}, None),
        ({POOL: 1}, {"locust": COMMAND}, f'{POOL} = 1, and the rest of its record "200"'),
        ({"options.keystone_validate.token_pool": 1}, {"locust": COMMAND}, None),
        ({"workload": "keystone_validate"}, {"workload": "keystone_auth"}, 'workload = "keystone_validate"'),
        ({"workload": "keystone_auth"}, {}, None),
        (
            {USERS: 16},
            {"workload": "keystone_validate"},
            "its workload is keystone_validate, and the plan's keystone_auth",
        ),
    ],
)
def test_a_record_that_contradicts_its_treatment(
    tmp_path: Path, treatment: dict[str, Any], changes: Change, words: str | None
) -> None:
    why = judged(tmp_path, *one_run(treatment, **changes))
    assert (why is None) if words is None else (why is not None and words in why)


@pytest.mark.parametrize(
    ("status", "lost", "counts"),
    [(0, False, True), (0, True, True), (2, True, True), (2, False, False), (1, True, False), (None, False, False)],
)
def test_the_status_that_locust_ended_with(tmp_path: Path, status: int | None, lost: bool, counts: bool) -> None:
    workers = [record.LostWorker("worker-1", 0.5, "users", None)] if lost else []
    why = judged(tmp_path, *one_run(locust={"exit_code": status}, lost_workers=workers))
    assert (why is None) is counts
    assert counts or "Locust ended with status" in str(why)


def edit(folder: Path, **changes: object) -> None:
    path = min((folder / "runs").iterdir()) / "run.json"
    path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | changes), encoding="utf-8")


def test_a_contradiction_is_a_failed_run_and_resume_does_it_again(small_copy: Path) -> None:
    assert record.missing_runs(small_copy) == []
    edit(small_copy, locust={"exit_code": 1})
    experiment = load.load_experiment(small_copy)
    row = experiment.runs.iloc[0]
    assert (row["status"], row["reason"]) == ("failed", "Locust ended with status 1, as no complete run does")
    assert [run.number for run in record.missing_runs(small_copy)] == [1]


def test_another_experiments_run_is_left_out_and_its_place_is_empty(small_copy: Path) -> None:
    edit(small_copy, experiment="another")
    experiment = load.load_experiment(small_copy)
    assert experiment.runs.iloc[0]["status"] == "missing"
    assert [(o.run, o.what) for o in experiment.oddities] == [(1, "a run of another experiment, another; left out")]
    assert [run.number for run in record.missing_runs(small_copy)] == [1]


Edit = Callable[[dict[str, Any]], object]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda e: e.update(margin=-1), "margin: -1 should lie between 0 and 1"),
        (lambda e: e.update(margin=0), "margin: 0 should"),
        (lambda e: e.update(margin=1), "margin: 1 should"),
        (lambda e: e.update(margin=1e9), "margin: 1e+09 should"),
        (lambda e: e.update(margin=float("nan")), "NaN is no number"),
        (lambda e: e.update(margin=float("inf")), "Infinity is no number"),
        (lambda e: e.update(replicates=-4), "replicates: -4 should"),
        (lambda e: e["timing"].update(steady_state_s=-6.0), "timing.steady_state_s: -6 is no possible length"),
        (lambda e: e.update(created_unix_s=-1e300), "created_unix_s: -1e+300 is no possible time"),
        (lambda e: e.update(created_unix_s=1796075987543.8), "created_unix_s: 1.79608e+12 is no possible time"),
        (lambda e: e["timing"].update(warm_up_s=float("nan")), "NaN is no number"),
        (lambda e: e["factors"].update({USERS: [4, float("nan")]}), "NaN is no number"),
        (lambda e: e["order"].update(seed=float("-inf")), "-Infinity is no number"),
        (lambda e: e["plan"][1].update(number=1), "plan: number 1 stands there more than once"),
        (lambda e: e["plan"][1].update(folder=e["plan"][0]["folder"]), "stands there more than once"),
        (lambda e: e["plan"][1].update(number=-2), "plan: number -2 is below zero"),
        (lambda e: e.update(schema_version="1"), "schema_version is no number"),
    ],
)
def test_an_experiment_that_cannot_be_is_one_clear_error(small_copy: Path, change: Edit, words: str) -> None:
    path = small_copy / "experiment.json"
    data = json.loads(path.read_text("utf-8"))
    change(data)
    path.write_text(json.dumps(data), encoding="utf-8")
    with pytest.raises(record.RecordError) as error:
        load.load_experiment(small_copy)
    assert words in str(error.value)
    assert "experiment.json" in str(error.value)


def test_a_number_that_no_float_holds_is_none_in_a_record(small_copy: Path) -> None:
    path = small_copy / "experiment.json"
    path.write_text(path.read_text("utf-8").replace('"margin": 0.05', '"margin": 1e999'), encoding="utf-8")
    with pytest.raises(record.RecordError, match="1e999 is no number"):
        load.load_experiment(small_copy)


def test_a_run_with_such_a_number_is_a_failed_run(small_copy: Path) -> None:
    edit(small_copy, environment={"load_average": float("nan")})
    row = load.load_experiment(small_copy).runs.iloc[0]
    assert row["status"] == "failed" and "NaN is no number" in row["reason"]


def test_a_histogram_that_is_not_listed_is_left_out_and_told(small_copy: Path, small: Path) -> None:
    run = min((small_copy / "runs").iterdir())
    text = (run / "response_times/worker-0.csv").read_text("utf-8")
    (run / "response_times/worker-9.csv").write_text(text, encoding="utf-8")
    experiment = load.load_experiment(small_copy)
    (oddity,) = experiment.oddities
    assert (oddity.run, oddity.file, oddity.loses_data) == (1, "response_times/worker-9.csv", False)
    assert experiment.timeline["count"].sum() == load.load_experiment(small).timeline["count"].sum()


def test_a_number_in_another_notation_is_counted_as_damaged(small_copy: Path) -> None:
    path = min((small_copy / "runs").iterdir()) / "response_times/worker-0.csv"
    lines = len(path.read_text("utf-8").splitlines())
    with path.open("a", encoding="utf-8") as stream:
        stream.write("1700000025,POST /v3,success,both,1000,9e15\n")
    (oddity,) = load.load_experiment(small_copy).oddities
    assert oddity.what.startswith(f"1 of {lines} lines are damaged and were left out")
