from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from analysis import heatmap, load
from tests.analysis.synthetic import PROCESSES, USERS

Make = Callable[..., Path]
ONE = {"factors": {PROCESSES: [1], USERS: [4]}, "baseline": {}, "primary": {"metric": "throughput"}}


def test_each_response_is_in_one_cell_and_none_is_lost(demo: Path) -> None:
    experiment = load.load_experiment(demo)
    treatments = list(experiment.treatments)
    cells = heatmap.cells(experiment, treatments)
    counted = experiment.timeline[experiment.timeline["outcome"] == "success"].merge(
        experiment.runs[["run", "treatment"]], on="run"
    )
    expected = counted[counted["phase"] != load.OUTSIDE].groupby(["treatment", "offset_s"])["count"].sum().to_dict()
    assert cells.groupby(["treatment", "from_s"])["count"].sum().to_dict() == expected
    assert cells.groupby(["treatment", "from_s"])["share"].sum().to_numpy() == pytest.approx(1)


def test_a_cell_holds_the_times_between_its_edges(make: Make) -> None:
    experiment = load.load_experiment(make(**ONE, replicates=1))
    (treatment,) = experiment.treatments
    cells = heatmap.cells(experiment, [treatment])
    rows = experiment.response_times
    rows = rows[rows["phase"] != load.OUTSIDE]
    for edges, part in cells.groupby(["from_ms", "to_ms"]):
        low, high = (float(edge) * 1000 for edge in edges)
        inside = rows[(rows["bucket_us"] >= low) & (rows["bucket_us"] < high)]
        assert part["count"].sum() == inside["count"].sum()


def test_failures_and_service_times_are_not_in_it(make: Make) -> None:
    experiment = load.load_experiment(make(**ONE, replicates=1, model="open", failure_ratio=lambda t: 0.3))
    successes = experiment.timeline[
        (experiment.timeline["outcome"] == "success") & (experiment.timeline["phase"] != load.OUTSIDE)
    ]
    cells = heatmap.cells(experiment, experiment.treatments)
    assert cells["count"].sum() == successes["count"].sum() > 0


def test_cells_are_limited_in_both_directions(make: Make) -> None:
    experiment = load.load_experiment(make(**ONE, replicates=1, steady_s=95, warm_up_s=5))
    cells = heatmap.cells(experiment, experiment.treatments, columns=20)
    assert cells["from_s"].nunique() <= 21
    assert cells["from_ms"].nunique() <= heatmap.MOST_ROWS
    assert set(cells["to_s"] - cells["from_s"]) == {5}
    assert 0 in set(cells["from_s"]), "no column holds warm-up and steady state at once"


def test_few_responses_get_few_rows() -> None:
    times = pd.Series([1000, 1_000_000])
    assert len(heatmap._edges_us(times, 4)) == 11
    assert len(heatmap._edges_us(times, 1e6)) == heatmap.MOST_ROWS + 1
    assert len(heatmap._edges_us(pd.Series([1000, 1000]), 1e6)) == 2
    edges = heatmap._edges_us(times, 1e6)
    assert edges[0] < 1000
    assert edges[-1] > 1_000_000
    assert edges[2] / edges[1] == pytest.approx(math.exp(math.log(edges[-1] / edges[0]) / heatmap.MOST_ROWS))


def test_a_damaged_file_is_left_out(make: Make) -> None:
    folder = make(**ONE, replicates=1)
    for file in folder.glob("runs/*/response_times/worker-0.csv"):
        file.write_text("second,nothing\n1,2\n", encoding="utf-8")
    experiment = load.load_experiment(folder)
    cells = heatmap.cells(experiment, experiment.treatments)
    assert cells["count"].sum() == experiment.timeline.loc[experiment.timeline["phase"] != load.OUTSIDE, "count"].sum()


def test_nothing_to_draw_is_an_empty_frame(demo: Path) -> None:
    experiment = load.load_experiment(demo)
    assert list(heatmap.cells(experiment, []).columns) == list(heatmap.CELL_COLUMNS)
