from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from analysis import decide, load, verdicts
from analysis.load import Experiment
from analysis.record import RecordError, missing_runs
from tests.analysis.synthetic import PROCESSES, USERS


def first_run(folder: Path) -> Path:
    return min((folder / "runs").iterdir())


def status(experiment: Experiment, run: int = 1) -> tuple[str, str | None]:
    row = experiment.runs[experiment.runs["run"] == run].iloc[0]
    return str(row["status"]), row["reason"]


def edit_run(folder: Path, **changes: object) -> None:
    path = first_run(folder) / "run.json"
    path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | changes), encoding="utf-8")


def test_a_whole_experiment(demo: Path) -> None:
    experiment = load.load_experiment(demo)
    assert len(experiment.complete_runs()) == 16
    assert experiment.oddities == ()
    assert list(experiment.treatments.values()) == [{PROCESSES: p, USERS: u} for p in (1, 2) for u in (4, 16)]
    assert set(experiment.response_times["phase"]) == {"warm_up", "steady_state"}


def test_frames_agree_with_each_other(demo: Path) -> None:
    experiment = load.load_experiment(demo)
    assert experiment.response_times["count"].sum() == experiment.timeline["count"].sum()
    assert experiment.totals["recorded"].tolist() == experiment.totals["locust"].tolist()
    warm_up = experiment.timeline[experiment.timeline["phase"] == "warm_up"]
    assert warm_up["offset_s"].between(-2, -1).all()


def test_several_process_files_are_added(demo: Path) -> None:
    experiment = load.load_experiment(demo)
    lines = sum(
        int(line.rsplit(",", 1)[1])
        for file in (first_run(demo) / "response_times").glob("*.csv")
        for line in file.read_text("utf-8").splitlines()[1:]
    )
    assert experiment.timeline.loc[experiment.timeline["run"] == 1, "count"].sum() == lines


def test_without_experiment_json_nothing_is_read(small_copy: Path) -> None:
    (small_copy / "experiment.json").unlink()
    with pytest.raises(RecordError, match="no such file"):
        load.load_experiment(small_copy)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"name": "x"}', '{"schema_version": 99}'])
def test_a_damaged_experiment_json_is_refused(small_copy: Path, text: str) -> None:
    (small_copy / "experiment.json").write_text(text, encoding="utf-8")
    with pytest.raises(RecordError, match=r"experiment\.json"):
        load.load_experiment(small_copy)


def test_missing_and_interrupted_runs_are_told_apart(small_copy: Path) -> None:
    first, second, *_ = sorted((small_copy / "runs").iterdir())
    shutil.rmtree(first)
    second.rename(second.with_name(second.name + ".partial"))
    experiment = load.load_experiment(small_copy)
    assert status(experiment, 1) == ("missing", "planned, but not there")
    assert status(experiment, 2) == ("interrupted", "interrupted before it was whole")
    assert len(experiment.complete_runs()) == 2


def test_no_runs_folder_means_all_are_missing(small_copy: Path) -> None:
    shutil.rmtree(small_copy / "runs")
    assert set(load.load_experiment(small_copy).runs["status"]) == {"missing"}


@pytest.mark.parametrize("text", [None, "", "{", "[1]", "{}", '{"windows": 3}', '{"windows": {"steady_state": []}}'])
def test_a_damaged_run_json_is_a_failed_run(small_copy: Path, text: str | None) -> None:
    path = first_run(small_copy) / "run.json"
    path.unlink()
    if text is not None:
        path.write_text(text, encoding="utf-8")
    word, reason = status(load.load_experiment(small_copy))
    assert word == "failed"
    assert reason and "run.json" in reason and str(small_copy) not in reason


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"status": "failed", "reason": "the server died"}, "the server died"),
        ({"windows": {}}, "complete, but without a steady-state window"),
        (
            {"windows": {"steady_state": {"start_unix_s": 5, "end_unix_s": 5}}},
            "complete, but without a steady-state window",
        ),
        ({"treatment": {PROCESSES: 9, USERS: 4}}, "its treatment is not the planned one"),
    ],
)
def test_runs_that_do_not_count(small_copy: Path, changes: dict[str, object], reason: str) -> None:
    edit_run(small_copy, **changes)
    assert status(load.load_experiment(small_copy)) == ("failed", reason)


def test_a_folder_whose_name_is_no_text_is_read_all_the_same(small_copy: Path) -> None:
    first = first_run(small_copy)
    first.rename(os.fsdecode(os.fsencode(first.parent) + b"/001-\xff"))
    assert status(load.load_experiment(small_copy))[0] == "complete"


def lose_a_histogram(run: Path) -> None:
    (run / "response_times" / "worker-1.csv").unlink()


def edit(**changes: object) -> Callable[[Path], None]:
    return lambda run: edit_run(run.parent.parent, **changes)


@pytest.mark.parametrize(
    "damage",
    [
        lose_a_histogram,
        shutil.rmtree,
        lambda run: (run / "run.json").write_text("{", "utf-8"),
        lambda run: run.rename(run.with_name(run.name + ".partial")),
        edit(status="failed"),
        edit(windows={}),
        edit(windows=[]),
        edit(windows={"steady_state": {"start_unix_s": 0, "end_unix_s": 2**40}}),
        edit(treatment={PROCESSES: 9, USERS: 4}),
        edit(files=None),
    ],
)
def test_a_run_that_does_not_count_is_one_that_resume_does_again(
    small_copy: Path, damage: Callable[[Path], object]
) -> None:
    assert missing_runs(small_copy) == []
    damage(first_run(small_copy))
    assert status(load.load_experiment(small_copy))[0] != "complete"
    assert [run.number for run in missing_runs(small_copy)] == [1]


def test_the_repetition_of_a_run_that_lost_a_file_counts(small_copy: Path) -> None:
    first = first_run(small_copy)
    shutil.copytree(first, first.with_name(first.name + "+2"))
    lose_a_histogram(first)
    experiment = load.load_experiment(small_copy)
    assert status(experiment)[0] == "complete"
    assert [attempt.folder for attempt in experiment.repeated] == [first.name]
    assert missing_runs(small_copy) == []


def test_a_folder_of_no_planned_run_is_left_out_and_told(small_copy: Path) -> None:
    shutil.copytree(first_run(small_copy), small_copy / "runs" / "900-mine")
    (small_copy / "runs" / "notes").mkdir()
    experiment = load.load_experiment(small_copy)
    assert [oddity.file for oddity in experiment.oddities] == ["900-mine", "notes"]
    assert len(experiment.complete_runs()) == 4


def damaged(folder: Path, change: Callable[[str], str], name: str = "response_times/worker-0.csv") -> Experiment:
    path = first_run(folder) / name
    path.write_text(change(path.read_text("utf-8")), encoding="utf-8")
    return load.load_experiment(folder)


def total(experiment: Experiment) -> int:
    return int(experiment.timeline.loc[experiment.timeline["run"] == 1, "count"].sum())


def test_a_torn_last_line_is_left_out_and_told(small_copy: Path, small: Path) -> None:
    experiment = damaged(small_copy, lambda text: text + "1700000025,POST /v3/auth/to")
    (oddity,) = experiment.oddities
    assert (oddity.run, oddity.loses_data, oddity.file) == (1, False, "response_times/worker-0.csv")
    assert total(experiment) == total(load.load_experiment(small))


def test_a_torn_count_is_not_taken_for_a_smaller_one(small_copy: Path) -> None:
    experiment = damaged(small_copy, lambda text: text + "1700000025,POST /v3/auth/tokens,success,both,1000,1")
    assert "torn" in experiment.oddities[0].what
    assert not (experiment.response_times["bucket_us"] == 1000).any()


@pytest.mark.parametrize(
    "line",
    [
        "1700000025,POST /v3,success,both,abc,1",
        "1700000025,POST /v3,success,both,1000,-5",
        "1700000025,POST /v3,success,both,1000",
        "1700000025,POST /v3,success,both,1000,1,surplus",
        ",POST /v3,success,both,1000,1",
    ],
)
def test_a_damaged_line_is_left_out_and_told(small_copy: Path, small: Path, line: str) -> None:
    experiment = damaged(small_copy, lambda text: text + line + "\n")
    (oddity,) = experiment.oddities
    assert oddity.loses_data
    assert "1 of " in oddity.what
    assert total(experiment) == total(load.load_experiment(small))


@pytest.mark.parametrize("text", ["", "\0\0\0", "a,b\n1,2\n", "\n\n", '"unclosed\n', "\ufffd" * 50])
def test_a_file_that_is_no_table_is_left_out_as_a_whole(small_copy: Path, text: str) -> None:
    experiment = damaged(small_copy, lambda _: text)
    assert experiment.oddities
    assert all(oddity.run == 1 for oddity in experiment.oddities)
    assert total(experiment) > 0  # the other process's file


def test_a_missing_usage_file_leaves_usage_missing(small_copy: Path) -> None:
    (first_run(small_copy) / "usage.csv").unlink()
    experiment = load.load_experiment(small_copy)
    assert 1 not in set(experiment.usage["run"])
    assert status(experiment)[0] == "complete"


@pytest.mark.parametrize("endpoint", ["NA", "null", "None", 'a "quoted", name', "nan", "Ünïcode ✓"])
def test_endpoint_names_are_kept_as_they_are(make: Callable[..., Path], endpoint: str) -> None:
    experiment = load.load_experiment(make(endpoints=(endpoint,), replicates=1))
    assert set(experiment.timeline["endpoint"]) == {endpoint}


def test_a_listed_file_of_response_times_that_is_missing_fails_the_run(small_copy: Path) -> None:
    (first_run(small_copy) / "response_times" / "worker-1.csv").unlink()
    word, reason = status(load.load_experiment(small_copy))
    assert word == "failed"
    assert reason and reason.startswith("response_times/worker-1.csv: listed in run.json, but not there")


def test_a_file_that_is_listed_twice_is_counted_once(small_copy: Path, small: Path) -> None:
    names = ["response_times/worker-0.csv", "response_times/worker-1.csv", "./response_times/worker-0.csv"]
    edit_run(small_copy, files={"response_times": [*names, *names, "response_times"], "usage": ["usage.csv"] * 2})
    experiment, sound = load.load_experiment(small_copy), load.load_experiment(small)
    assert total(experiment) == total(sound)
    assert len(experiment.usage) == len(sound.usage)


HUGE = (
    "99999999999999999999",
    "9" * 400,
    str(2**63 - 1),
    str(2**63),
    str(2**53 + 2),
    "1e300",
    "inf",
    "nan",
    "-1",
    "0.5",
)


@pytest.mark.parametrize("number", HUGE)
@pytest.mark.parametrize("column", [0, 4, 5])
def test_an_impossible_number_in_a_histogram_is_a_damaged_line(
    small_copy: Path, small: Path, number: str, column: int
) -> None:
    cells = ["1700000025", "POST /v3", "success", "both", "1000", "1"]
    cells[column] = number
    experiment = damaged(small_copy, lambda text: text + ",".join(cells) + "\n")
    (oddity,) = experiment.oddities
    assert oddity.loses_data
    assert "1 of " in oddity.what
    assert total(experiment) == total(load.load_experiment(small))


@pytest.mark.parametrize("number", HUGE[:-1])
@pytest.mark.parametrize("column", [0, 2, 4, 5])
def test_an_impossible_number_in_usage_is_a_damaged_line(small_copy: Path, number: str, column: int) -> None:
    cells = ["1700000025", "server", "500", "uwsgi", "1", "1"]
    cells[column] = number
    experiment = damaged(small_copy, lambda text: text + ",".join(cells) + "\n", "usage.csv")
    assert [oddity.loses_data for oddity in experiment.oddities] == [True]


def test_counts_whose_sum_is_beyond_all_measure_are_left_out(small_copy: Path) -> None:
    line = f"1700000025,POST /v3,success,both,1000,{2**53}\n"
    experiment = damaged(small_copy, lambda text: text + 2000 * line)
    assert "add up" in experiment.oddities[0].what
    assert total(experiment) < 10_000


@pytest.mark.parametrize("last", [2**53, 2**52])
def test_the_largest_numbers_can_be_analysed(small_copy: Path, last: int) -> None:
    start = json.loads((first_run(small_copy) / "run.json").read_text("utf-8"))["windows"]["steady_state"]
    line = f"{start['start_unix_s']},POST /v3,success,both,{2**53},{last - 10_000}\n{last},POST /v3,success,both,1,1\n"
    experiment = damaged(small_copy, lambda text: text + line)
    assert experiment.oddities == ()
    verdicts.document([decide.analyse(experiment)])


@pytest.mark.parametrize("window", [(0, 10**20), (-5, 5), (10**20, 10**20 + 6), (2**53, 2**54), (0, 2**40)])
@pytest.mark.parametrize("word", ["complete", "failed"])
def test_an_impossible_window_is_a_failed_run(small_copy: Path, window: tuple[int, int], word: str) -> None:
    edit_run(
        small_copy,
        status=word,
        windows={"steady_state": dict(zip(("start_unix_s", "end_unix_s"), window, strict=True))},
    )
    assert status(load.load_experiment(small_copy)) == (
        "failed",
        "its windows are no possible times; run.json is damaged",
    )


@pytest.mark.parametrize("number", ["9" * 400, "inf", "nan", "-3", "many", ""])
def test_an_impossible_total_of_locust_is_unknown(small_copy: Path, number: str) -> None:
    experiment = damaged(small_copy, lambda _: f"Name,Request Count\nAggregated,{number}\n", "locust/load_stats.csv")
    assert experiment.totals["locust"].isna().sum() == 1
