from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from analysis import decide, figure_parts, load, plots, plots_over_time
from analysis.metrics import ALL_REQUESTS
from analysis.plots import Detail, Figure
from tests.analysis.synthetic import PROCESSES, USERS

Make = Callable[..., Path]
CACHE = "server.parameters.cache"


def analyse(folder: Path) -> decide.Analysis:
    return decide.analyse(load.load_experiment(folder))


def data_of(figure: Figure, *columns: str) -> list[dict[str, Any]]:
    """All rows that a figure draws which have these columns."""
    sets = figure.spec["datasets"].values()
    return [row for rows in sets for row in rows if set(columns) <= set(row)]


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> decide.Analysis:
    """Two swept factors besides the one that is compared, two replicates."""
    from tests.analysis import synthetic

    folder = tmp_path_factory.mktemp("sweep") / "experiment"
    factors = {PROCESSES: [1, 2], USERS: [4, 16], "load.think_time": [0, 1], CACHE: ["dict", "none"]}
    primary = {"metric": "throughput", "at": {USERS: 16, "load.think_time": 1, CACHE: "none"}}
    synthetic.make(folder, synthetic.Plan(factors=factors, replicates=2, primary=primary, steady_s=3))
    return analyse(folder)


def test_a_figure_a_swept_factor_and_not_dozens(sweep: decide.Analysis) -> None:
    drawn = plots.figures(sweep)
    assert [figure.title for figure in drawn] == [
        "Throughput and p95 response time against users",
        "Throughput and p95 response time against think_time",
        "Response-time distribution",
        "Every run, second by second",
        "Response times, second by second",
    ]
    first = drawn[0]
    assert "2 further combinations of levels are in metrics.csv" in first.caption
    at = [row[first.columns.index("at")] for row in first.rows]
    assert "think_time = 1, cache = none" in at, "what decides is among those that are drawn"


def test_panels_are_few_and_those_that_decide_are_among_them(sweep: decide.Analysis) -> None:
    figure = plots.timeline(sweep, Detail(panels=4))
    assert figure is not None
    shown = {row[0] for row in figure.rows}
    assert len(shown) == 4
    assert {sweep.label(key) for c in sweep.deciding for key in c.keys} <= shown
    assert "12 further treatments are in timeline.csv." in figure.caption


@pytest.mark.parametrize(("count", "text"), [(0, ""), (1, " 1 further run is in a."), (2, " 2 further runs are in a.")])
def test_what_is_left_out_is_counted_in_grammar(count: int, text: str) -> None:
    assert figure_parts.further(count, "run", "runs", "in a") == text


def test_the_distribution_goes_through_the_tables_percentiles(demo_analysis: decide.Analysis) -> None:
    figure = plots.distribution(demo_analysis)
    assert figure is not None
    table = demo_analysis.by_treatment[demo_analysis.by_treatment["endpoint"] == ALL_REQUESTS].dropna(subset=["value"])
    expected = {
        (demo_analysis.label(t), m): v
        for t, m, v in zip(table["treatment"], table["metric"], table["value"], strict=True)
    }
    points = {(row["treatment"], row["percentile"]): row for row in data_of(figure, "tail")}
    compared = [
        (name, metric, f"{metric[1:]} %") for name, metric in expected if metric in ("p50", "p90", "p95", "p99")
    ]
    assert len(compared) == 16
    for name, metric, percentile in compared:
        assert points[name, percentile]["value"] == pytest.approx(expected[name, metric], rel=1e-5)


def test_the_tail_axis_is_even_in_nines(demo_analysis: decide.Analysis) -> None:
    figure = plots.distribution(demo_analysis)
    assert figure is not None
    tails = {row["percentile"]: row["tail"] for row in data_of(figure, "tail")}
    assert (tails["50 %"], tails["90 %"], tails["99 %"]) == (2, 10, 100)
    assert "99.9 %" not in tails, "fewer than 3688 responses do not carry it"


def test_the_band_holds_the_line_and_is_of_all_replicates(demo_analysis: decide.Analysis) -> None:
    figure = plots.distribution(demo_analysis)
    assert figure is not None
    banded = [row for row in data_of(figure, "tail") if row["low"] is not None]
    assert banded
    assert all(row["low"] <= row["value"] <= row["high"] for row in banded)
    tail = [row for row in data_of(figure, "tail") if row["percentile"] == "99 %"]
    # 360 responses of a run with one process do not carry it, 576 of a run with two do.
    assert {row["treatment"]: row["low"] is not None for row in tail} == {
        f"processes = {processes}, users = {users}": processes == 2 for processes in (1, 2) for users in (4, 16)
    }


def test_service_times_have_a_panel_of_their_own(make: Make) -> None:
    figure = plots.distribution(analyse(make(replicates=1, model="open", factors={PROCESSES: [1, 2], USERS: [4]})))
    assert figure is not None
    titles = [panel["title"]["text"] for panel in figure.spec["concat"]]
    assert titles == ["users = 4 · response time", "users = 4 · service time"]


def test_a_short_timeline_draws_each_run_as_the_csv_has_it(demo_analysis: decide.Analysis) -> None:
    figure = plots.timeline(demo_analysis)
    assert figure is not None
    assert "A line is a run" in figure.caption
    drawn = {(row["run"], row["offset_s"]): row for row in data_of(figure, "offset_s", "throughput")}
    rows = plots_over_time.by_second(demo_analysis)
    assert len(drawn) == len(rows) == 16 * 8
    for row in rows.to_dict("records"):
        mark = drawn[f"run {row['run']}", row["offset_s"]]
        assert mark["throughput"] == row["throughput"]
        assert mark["server_rss_bytes"] == row["server_rss_bytes"]


def test_cpu_over_time_is_in_cores_as_in_the_table_of_metrics(demo_analysis: decide.Analysis) -> None:
    rows = plots_over_time.by_second(demo_analysis)
    steady = rows[rows["phase"] == "steady_state"].groupby("run")["server_cpu"].mean()
    metric = demo_analysis.by_run[demo_analysis.by_run["metric"] == "server_cpu"].set_index("run")["value"]
    assert steady.to_dict() == pytest.approx(metric.to_dict(), rel=0.01)
    figure = plots.timeline(demo_analysis)
    assert figure is not None and "server CPU, cores" in figure.columns
    drawn = {(row["run"], row["offset_s"]): row["server_cpu"] for row in data_of(figure, "offset_s", "server_cpu")}
    places = zip(rows["run"], rows["offset_s"], rows["server_cpu"], strict=True)
    assert all(drawn[f"run {run}", second] == pytest.approx(cores, rel=1e-4) for run, second, cores in places)


def test_memory_over_time_is_the_sum_of_the_processes(demo_analysis: decide.Analysis) -> None:
    rows = plots_over_time.by_second(demo_analysis)
    processes = rows["treatment"].map(lambda key: json.loads(key)[PROCESSES])
    assert (rows["server_rss_bytes"] == processes * 80 * 2**20).all()


def test_a_long_timeline_is_the_median_of_the_replicates_with_their_range(demo_analysis: decide.Analysis) -> None:
    figure = plots.timeline(demo_analysis, Detail(lines=3))
    assert figure is not None
    assert "The line is the median of the replicates" in figure.caption
    rows = plots_over_time.by_second(demo_analysis)
    drawn = data_of(figure, "offset_s", "throughput")
    assert len(drawn) == 4 * 8
    expected = rows.groupby(["treatment", "offset_s"])["throughput"].agg(["median", "min", "max"])
    marks = sorted((row["throughput"], row["throughput_low"], row["throughput_high"]) for row in drawn)
    assert marks == sorted(expected.itertuples(index=False, name=None))


def test_a_very_long_timeline_is_drawn_together(demo_analysis: decide.Analysis) -> None:
    figure = plots.timeline(demo_analysis, Detail(points=16))
    assert figure is not None
    assert "Each point is the mean of 2 s." in figure.caption
    drawn = data_of(figure, "offset_s", "throughput")
    assert len(drawn) == 16
    assert {row["phase"] for row in drawn if row["offset_s"] < 0} == {"warm_up"}
    assert {row["phase"] for row in drawn if row["offset_s"] >= 0} == {"steady_state"}


def test_figures_stay_within_their_detail(sweep: decide.Analysis) -> None:
    small = Detail(points=200, panels=2, table_rows=10)
    for figure in plots.figures(sweep, small):
        assert len(figure.rows) <= 10
        assert figure.rows_left_out >= 0
    sizes = [
        sum(len(json.dumps(figure.spec)) for figure in plots.figures(sweep, detail))
        for detail in (figure_parts.FULL, small)
    ]
    assert sizes[1] < sizes[0] / 3


def test_one_run_a_side_has_no_interval_and_no_band(make: Make) -> None:
    analysis = analyse(make(replicates=1))
    for figure in plots.figures(analysis):
        assert not [row for row in data_of(figure, "low") if row["low"] is not None]


def test_names_are_data_and_titles_and_nothing_else(make: Make) -> None:
    hostile = "x'\"];datum.y{{7*7}}${1}"
    factors = {CACHE: ["dict", hostile], USERS: [hostile]}
    folder = make(
        replicates=1,
        factors=factors,
        baseline={CACHE: "dict"},
        primary={"metric": "throughput"},
        response_ms=lambda t: 50.0,
    )
    figures = plots.figures(analyse(folder))
    assert figures
    for figure in figures:
        places = [path for path, text in _strings(figure.spec) if hostile in text]
        assert places
        for path in places:
            is_data = path[0] == "datasets" and path[-1] != "key"
            assert is_data or path[-2] in ("domain", "sort", "title"), path


def _strings(value: Any, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], str]]:
    if isinstance(value, str):
        return [(path, value)]
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    keys = [(path, str(key)) for key in value] if isinstance(value, dict) else []
    return [
        *(((*p, "key"), key) for p, key in keys),
        *itertools.chain(*(_strings(v, (*path, str(k))) for k, v in inner)),
    ]


@pytest.mark.parametrize(
    ("top_mib", "ticks_mib"),
    [
        (305, [0, 100, 200, 300]),
        (3, [0, 1, 2, 3]),
        (0, [0, 1]),
        (90, [0, 50]),
        (2000, [0, 500, 1000, 1500, 2000]),
    ],
)
def test_memory_has_round_ticks(top_mib: float, ticks_mib: list[float]) -> None:
    assert [tick / 2**20 for tick in plots_over_time._byte_ticks(top_mib * 2**20)] == ticks_mib


def test_imported_summaries_have_dots_and_percentiles(tmp_path: Path) -> None:
    from analysis.importers import locust_csv

    fixtures = sorted((Path(__file__).parent.parent / "fixtures" / "locust_csv").glob("*_stats.csv"))
    analysis = decide.analyse(locust_csv.load_prefixes(fixtures[:2]))
    assert {figure.name for figure in plots.figures(analysis)} <= {"against-0", "distribution"}
    assert plots.figures(analysis)
    assert isinstance(plots_over_time.by_second(analysis), pd.DataFrame)
