"""The graphs of each line: what they draw is what was recorded."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from analysis import cell_graphs, plots, reference
from analysis.decide import Analysis
from analysis.figure_parts import FULL
from tests.analysis.test_rally_tables import measured  # noqa: F401 - a fixture


def rows(*responses: tuple[int, float, int]) -> pd.DataFrame:
    return pd.DataFrame(responses, columns=["offset_s", "duration_s", "count"])


def test_requests_in_flight_are_the_time_of_the_responses_over_the_seconds() -> None:
    one = cell_graphs.in_flight(rows((3, 2.0, 1)))
    assert one["value"].tolist() == pytest.approx([0, 0.5, 1, 0.5])  # from 1 to 2 until 3 to 4
    four_users = rows(*((second, 0.5, 8) for second in range(10)))
    assert cell_graphs.in_flight(four_users)["value"].tolist() == pytest.approx([4] * 9 + [3])
    assert cell_graphs.in_flight(four_users, 5)["value"].tolist() == pytest.approx([4, 3.8])
    burst = rows((1, 1.0, 1), (2, 1.0, 7), (3, 1.0, 4))
    assert max(cell_graphs.in_flight(burst)["value"]) > 4 == max(cell_graphs.in_flight(burst, most=4)["value"])
    assert cell_graphs.in_flight(rows((0, 3.0, 1)))["value"].tolist() == pytest.approx(
        [0.5]
    )  # nothing before the load began


def test_a_histogram_counts_every_response_once() -> None:
    counted = cell_graphs.histogram(rows((0, 0.1, 3), (1, 0.19, 5), (1, 0.5, 8)))
    assert len(counted) == 4  # the square root of 16
    assert counted["value"].tolist() == [3 + 5, 0, 0, 8]
    assert (counted["from_s"].iloc[0], counted["to_s"].iloc[-1]) == (0.1, 0.5)


def test_a_closed_figure_for_each_line_with_its_numbers(measured: Analysis) -> None:  # noqa: F811
    drawn = [figure for figure in plots.figures(measured) if figure.name.startswith("cell-")]
    assert [figure.title for figure in drawn] == [
        f"Durations, load profile and histogram: processes = {n}, users = {users}" for users in (4, 16) for n in (1, 2)
    ]
    rows_of = measured.by_treatment
    for figure, graph in zip(drawn, reference.graphs(measured), strict=True):
        assert figure.collapsed and len(figure.spec["concat"]) == 3
        value = cell_graphs.COLUMNS.index("value")
        (count,) = rows_of[
            (rows_of["treatment"] == graph.treatment)
            & (rows_of["endpoint"] == "all requests")
            & (rows_of["metric"] == "count")
        ]["value"]
        counted = [row for row in figure.rows if row[0] == cell_graphs.HISTOGRAM]
        assert sum(float(row[value]) for row in counted) == count
        durations = [row for row in figure.rows if row[0] == cell_graphs.DURATIONS]
        assert [row[2] for row in durations] == ["0", "1", "2", "3", "4", "5"]


def test_long_runs_are_drawn_with_few_points(measured: Analysis) -> None:  # noqa: F811
    (first, *_) = reference.graphs(measured)
    durations, profile, _ = cell_graphs.cell(measured, first.treatment, 2, FULL.lines)
    assert len(durations) == len(profile) == 2
    assert durations["to_s"].tolist() == [3, 6]


def test_no_graphs_where_no_page_has_them(demo_analysis: Analysis, tmp_path: Path) -> None:
    assert cell_graphs.figures(demo_analysis) == []
    assert cell_graphs.files(demo_analysis) == {}
