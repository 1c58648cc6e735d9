"""What a thousand runs need: time that grows with their number and no faster, and sums that are right."""

from __future__ import annotations

import pickle
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis import decide, load, measurements, pages, plots_over_time
from analysis.csv_tables import concat
from analysis.metrics import ALL_REQUESTS
from benchmarks import analysis_folder

MOST_TIMES_AS_LONG = 1.7
"""A run of 40 against a run of 10. Where each run looked at all, it would be 4."""


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """Experiments of 10 and of 40 runs, by their number."""
    parent = tmp_path_factory.mktemp("many")
    for runs in (10, 40):
        analysis_folder.make(parent / str(runs), runs, steady_state_s=5)
    return {runs: parent / str(runs) for runs in (10, 40)}


def cpu_s(folder: Path) -> float:
    began_s = time.process_time()
    analysis = decide.analyse(load.load_experiment(folder))
    plots_over_time.by_second(analysis)
    pages.render_markdown([analysis])
    return time.process_time() - began_s


def test_the_time_a_run_does_not_grow_with_the_number_of_runs(folders: dict[int, Path]) -> None:
    cpu_s(folders[10])  # imports
    rounds = [{runs: cpu_s(folder) for runs, folder in folders.items()} for _ in range(2)]
    few, many = (min(taken[runs] for taken in rounds) / runs for runs in (10, 40))
    assert many < MOST_TIMES_AS_LONG * few


def test_the_benchmarks_folder_is_what_it_says(tmp_path: Path) -> None:
    folder = tmp_path / "experiment"
    analysis_folder.make(folder, 8, steady_state_s=120)
    experiment = load.load_experiment(folder)
    assert experiment.totals["recorded"].tolist() == experiment.totals["locust"].tolist()
    assert experiment.timeline["endpoint"].nunique() == analysis_folder.ENDPOINTS
    assert len(experiment.health) == 8
    analysis = decide.analyse(experiment)
    assert analysis.findings == []
    (verdict,) = analysis.deciding
    assert verdict.verdict == "faster"
    assert verdict.effect.ratio == pytest.approx(analysis_folder.FASTER, rel=0.05)


def test_the_benchmarks_buckets_are_the_recorders() -> None:
    # The rule of the recorder, whose room this one may not import.
    values = np.array([1, 255, 256, 257, 300, 512, 1000, 123_456, 2**40 + 12345])
    shifts = [max(int(v).bit_length() - 8, 0) for v in values]
    expected = [((int(v) >> s) << s) + ((1 << (s - 1)) if s else 0) for v, s in zip(values, shifts, strict=True)]
    assert analysis_folder.buckets_us(values).tolist() == expected


def test_the_rows_of_a_run(folders: dict[int, Path]) -> None:
    timeline = load.load_experiment(folders[10]).timeline
    for run in (1, 7, 10):
        assert load.rows_of(timeline, run).equals(timeline[timeline["run"] == run])
    assert load.rows_of(timeline, 11).empty


def test_runs_are_in_order_whatever_their_folders_are_called(folders: dict[int, Path], tmp_path: Path) -> None:
    folder = tmp_path / "experiment"
    analysis_folder.make(folder, 4, steady_state_s=10)
    for number, path in enumerate(sorted((folder / "runs").iterdir())):
        path.rename(path.with_name(f"{9 - number}-renamed"))
    experiment = load.load_experiment(folder)
    assert experiment.complete_runs() == [1, 2, 3, 4]
    assert experiment.usage["run"].is_monotonic_increasing


def test_many_runs_are_handed_on_without_their_tables(
    folders: dict[int, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And say the same as few, whose tables are kept; who asks for a table gets it all the same."""
    kept = load.load_experiment(folders[10])
    monkeypatch.setattr(load, "MANY_RUNS", 10)
    sent = load.load_experiment(folders[10], processes=2)
    one, other = decide.analyse(kept), decide.analyse(sent)
    pd.testing.assert_frame_equal(one.by_run, other.by_run)
    pd.testing.assert_frame_equal(plots_over_time.by_second(one), plots_over_time.by_second(other))
    assert pages.render_markdown([one]) == pages.render_markdown([other])
    assert not set(vars(sent)) & measurements.LARGE, "the report has asked for a table"
    pd.testing.assert_frame_equal(kept.timeline, sent.timeline)


def test_a_run_that_is_sent_is_a_small_part_of_it(tmp_path: Path) -> None:
    analysis_folder.make(tmp_path / "experiment", 2, steady_state_s=300)
    experiment = load.load_experiment(tmp_path / "experiment")
    path = min((tmp_path / "experiment" / "runs").iterdir())
    whole, sent = (len(pickle.dumps(read(path, experiment.records[1])))
                   for read in (measurements.read, measurements.read_reduced))  # fmt: skip
    assert sent < whole / 3


# --- sums ---

ROW = st.tuples(st.integers(0, 3), st.sampled_from("abc"), st.sampled_from([1, 2, 2**53]), st.integers(1, 2**40))


@settings(max_examples=50)
@given(st.lists(ROW, min_size=1, max_size=40), st.booleans())
def test_added_is_grouping_by_all_keys(rows: list[tuple[int, str, int, int]], huge: bool) -> None:
    frame = pd.DataFrame(rows, columns=["run", "endpoint", "bucket_us", "count"]).astype({"endpoint": "category"})
    frame["second"] = frame["run"] * (2**53 if huge else 1)  # together with the buckets beyond 63 bits
    keys = ["run", "endpoint", "second", "bucket_us"]
    expected = frame.groupby(keys, observed=True)["count"].sum().reset_index()
    added = measurements._added(frame, [*keys, "count"], ["count"])
    assert added.astype({"endpoint": "str"}).equals(expected.astype({"endpoint": "str"}))


def test_tables_with_other_names_are_joined_by_name() -> None:
    one, two = (pd.DataFrame({"role": pd.Categorical(names), "pid": [1, 2]}) for names in (["b", "c"], ["a", "b"]))
    joined = concat([one, two], ["role", "pid"])
    assert joined["role"].tolist() == ["b", "c", "a", "b"]
    assert isinstance(joined["role"].dtype, pd.CategoricalDtype)


def test_all_endpoints_add_up_to_all_requests(folders: dict[int, Path]) -> None:
    analysis = decide.analyse(load.load_experiment(folders[10]))
    for run in (1, 2):
        parts = [seen for (of, name), seen in analysis.observations.items() if of == run and name != ALL_REQUESTS]
        assert len(parts) == analysis_folder.ENDPOINTS
        assert sum(seen.responses for seen in parts) == analysis.observations[run, ALL_REQUESTS].responses
