from __future__ import annotations

import shutil
from pathlib import Path

import pandas as pd
import pytest

from analysis import answer, decide, load, method, tables
from analysis.compare import Verdict
from analysis.importers import locust_csv
from analysis.metrics import ALL_REQUESTS
from analysis.record import RecordError

FILES = Path(__file__).parents[1] / "fixtures" / "locust_csv"
HEADER = (FILES / "one_process_stats.csv").read_text("utf-8").splitlines()[0]


def reported(analysis: decide.Analysis, endpoint: str, run: int = 1) -> dict[str, float]:
    rows = analysis.by_run[(analysis.by_run["endpoint"] == endpoint) & (analysis.by_run["run"] == run)]
    return dict(zip(rows["metric"], rows["value"], strict=True))


def stats(folder: Path, *rows: str) -> Path:
    path = folder / "mine_stats.csv"
    path.write_text("\n".join([HEADER, *rows, ""]), encoding="utf-8")
    return path


def test_one_prefix_has_numbers_and_no_verdict() -> None:
    analysis = decide.analyse(locust_csv.load_prefixes([FILES / "one_process"]))
    seen = reported(analysis, ALL_REQUESTS)
    assert seen["throughput"] == pytest.approx(123.375 - 0.1334)
    assert seen["count"] == 7400
    assert seen["success_ratio"] == pytest.approx(7392 / 7400)
    assert {name: seen[name] for name in ("min", "p50", "p90", "p95", "p99")} == pytest.approx(
        {"min": 12.5034, "p50": 44, "p90": 240, "p95": 290, "p99": 460}
    )
    assert reported(analysis, "POST /v3/auth/tokens")["p95"] == 420
    assert analysis.deciding == []
    assert answer.answers(analysis) == [
        (None, "No verdict: one treatment, nothing to compare it with. Throughput, responses/s: 123.")
    ]


def test_what_the_file_does_not_hold_stays_missing() -> None:
    analysis = decide.analyse(locust_csv.load_prefixes([FILES / "one_process"]))
    assert not {"server_cpu", "generator_cpu", "server_peak_memory"} & set(analysis.by_run["metric"])
    assert analysis.findings == []


def test_failures_above_one_percent_are_found(tmp_path: Path) -> None:
    row = (FILES / "one_process_stats.csv").read_text("utf-8").splitlines()[3].replace(",7400,8,", ",7400,80,")
    analysis = decide.analyse(locust_csv.load_prefixes([stats(tmp_path, row)]))
    assert [f.name for f in analysis.findings] == ["failures"]
    assert analysis.findings[0].evidence[0].startswith("all requests: 80 of 7,400 = 1.08 %")


def test_two_prefixes_are_compared_and_invalid() -> None:
    paths = [FILES / "one_process", FILES / "two_processes_stats.csv"]
    analysis = decide.analyse(locust_csv.load_prefixes(paths))
    (comparison,) = analysis.deciding
    assert comparison.verdict is Verdict.INVALID
    assert comparison.effect.ratio == pytest.approx(194.91 / (123.375 - 0.1334))
    assert comparison.effect.low is None
    assert [f.name for f in analysis.findings] == ["one_run_a_side"]
    assert "one run a side" in answer.answers(analysis)[0][1]


def test_the_first_prefix_is_the_baseline_of_all_others(tmp_path: Path) -> None:
    paths = [Path(shutil.copy(FILES / "one_process_stats.csv", tmp_path / f"{name}_stats.csv")) for name in "abc"]
    analysis = decide.analyse(locust_csv.load_prefixes(paths))
    assert [(c.pair.baseline["csv"], c.pair.treatment["csv"]) for c in analysis.deciding] == [("a", "b"), ("a", "c")]


def test_equal_names_are_told_apart_by_their_folders(tmp_path: Path) -> None:
    for name in ("v1.0", "v1.1"):
        (tmp_path / name).mkdir()
        shutil.copy(FILES / "one_process_stats.csv", tmp_path / name / "load_stats.csv")
    experiment = locust_csv.load_prefixes([tmp_path / "v1.0" / "load", tmp_path / "v1.1" / "load"])
    assert experiment.record.factors["csv"] == ["v1.0/load", "v1.1/load"]


def test_the_same_file_twice_is_refused() -> None:
    with pytest.raises(RecordError, match="twice"):
        locust_csv.load_prefixes([FILES / "one_process", FILES / "one_process_stats.csv"])


@pytest.mark.parametrize("text", ["", "a,b\n1,2\n", '"Method","Name","# requests"\n', HEADER + "\n"])
def test_what_is_no_stats_file_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "mine_stats.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(RecordError, match=r"mine_stats\.csv"):
        locust_csv.load_prefixes([path])


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="neither a result folder"):
        locust_csv.load_prefixes([tmp_path / "nothing"])


def test_no_responses_are_not_response_times_of_zero(tmp_path: Path) -> None:
    zeros = ",".join(["0", "0", "0", "0.0", "0", "0", "0", "0.0", "0.0", *["N/A"] * 11])
    analysis = decide.analyse(locust_csv.load_prefixes([stats(tmp_path, f"GET,/a,{zeros}", f",Aggregated,{zeros}")]))
    seen = reported(analysis, ALL_REQUESTS)
    assert seen["count"] == 0
    assert all(pd.isna(seen[name]) for name in ("min", "mean", "p50", "p99", "max", "success_ratio"))
    assert analysis.findings == []


def test_a_torn_last_row_is_left_out_and_the_missing_total_is_told(tmp_path: Path) -> None:
    row = (FILES / "one_process_stats.csv").read_text("utf-8").splitlines()[1]
    analysis = decide.analyse(locust_csv.load_prefixes([stats(tmp_path, row, ",Aggregated,74")]))
    assert ALL_REQUESTS not in set(analysis.by_run["endpoint"])
    (finding,) = analysis.findings
    assert finding.name == "imported_with_oddities"
    assert finding.evidence == (
        "run 1 (csv = mine), mine_stats.csv:3: a line that is not whole; left out",
        "run 1 (csv = mine), mine_stats.csv: no Aggregated or Total row: it has no numbers for all requests",
    )


# --- numbers that contradict each other ------------------------------------------------------------------------------


def row(name: str, times: str, percentiles: str, counts: str = "100,0", rates: str = "10.0,0.0") -> str:
    """A row of the columns of Locust 2: counts, times (mean, min, max), rates, eleven percentiles."""
    return f"{name},{counts},5,{times},10,{rates},{percentiles}"


GOOD = "5,5,5,6,7,8,9,9,9,9,9"


@pytest.mark.parametrize(
    ("times", "percentiles", "missing", "said"),
    [
        ("5,1,9", GOOD, set(), None),
        ("5,1,9", "5,5,5,6,7,30,9,9,9,9,9", {"p95"}, "a percentile above the maximum: 95%; left out"),
        ("5,4,9", "2,5,5,6,7,8,9,9,9,9,9", {"p50"}, "a percentile below the minimum: 50%; left out"),
        (
            "5,4,9",
            "0,0,0,0,0,0,0,0,0,0,0",
            {"p50", "p90", "p95", "p99"},
            "a percentile of zero, and the minimum is more",
        ),
        ("5,1,9", "5,5,5,6,7,8,N/A,N/A,9,9,9", {"p99"}, "a percentile without a number: 98%; left out"),
        ("5,1,9", "5,5,5,6,8,7,9,9,9,9,9", {"p90", "p95"}, "a percentile below the 90% percentile: 95%; left out"),
        ("5,9,1", GOOD, {"min", "max"}, "a minimum above the maximum; both are left out"),
        ("50,1,9", GOOD, {"mean"}, "a mean outside minimum and maximum; left out"),
        ("x,1,9", GOOD, {"mean"}, "all requests: no number in Average Response Time"),
    ],
)
def test_a_number_that_cannot_be_is_missing_and_said(
    tmp_path: Path, times: str, percentiles: str, missing: set[str], said: str | None
) -> None:
    path = stats(tmp_path, row("GET,/a", "5,1,9", GOOD), row(",Aggregated", times, percentiles))
    experiment = locust_csv.load_prefixes([path])
    rows = experiment.reported[experiment.reported["endpoint"] == ALL_REQUESTS]
    assert set(rows.loc[rows["value"].isna(), "metric"]) == missing
    assert {o.file for o in experiment.oddities} <= {"mine_stats.csv:3"}
    assert (said is None) == (not experiment.oddities)
    assert said is None or any(o.what.startswith(said) for o in experiment.oddities)


@pytest.mark.parametrize(
    ("high", "top"), [("99.6", 100), ("105.1", 110), ("994.0", 990), ("9960", 10000), ("12499", 12000)]
)
def test_what_locusts_rounding_moves_is_no_oddity(tmp_path: Path, high: str, top: int) -> None:
    percentiles = ",".join(["5"] * 6 + [str(top)] * 5)
    experiment = locust_csv.load_prefixes([stats(tmp_path, row(",Aggregated", f"5,1,{high}", percentiles))])
    assert experiment.oddities == ()


@pytest.mark.parametrize(
    ("total", "severe", "said"),
    [
        ("101,0", False, "the total counts 101 responses, its rows 100"),
        ("200,0", True, "the total counts 200 responses, its rows 100"),
        ("100,1", True, "the total counts 1 failures, its rows 0"),
        ("100,101", True, "more failures than requests"),
    ],
)
def test_a_total_that_its_rows_do_not_add_up_to(tmp_path: Path, total: str, severe: bool, said: str) -> None:
    path = stats(tmp_path, row("GET,/a", "5,1,9", GOOD), row(",Aggregated", "5,1,9", GOOD, total))
    experiment = locust_csv.load_prefixes([path])
    assert said in {o.what for o in experiment.oddities}
    assert any(o.loses_data for o in experiment.oddities) is severe


def test_two_totals_are_none(tmp_path: Path) -> None:
    total = row(",Aggregated", "5,1,9", GOOD)
    experiment = locust_csv.load_prefixes([stats(tmp_path, row("GET,/a", "5,1,9", GOOD), total, total)])
    assert set(experiment.reported["endpoint"]) == {"GET /a"}
    assert [(o.file, o.loses_data) for o in experiment.oddities] == [("mine_stats.csv:4", True)]


def test_a_name_that_is_there_twice_keeps_both_numbers(tmp_path: Path) -> None:
    first, second = row("GET,/a", "5,1,9", GOOD), row("GET,/a", "6,1,9", GOOD)
    experiment = locust_csv.load_prefixes([stats(tmp_path, first, second, row(",Aggregated", "5,1,9", GOOD, "200,0"))])
    means = experiment.reported[experiment.reported["metric"] == "mean"]
    assert dict(zip(means["endpoint"], means["value"], strict=True)) == {"GET /a": 5, "GET /a (2)": 6, ALL_REQUESTS: 5}
    assert [o.what for o in experiment.oddities] == ["an endpoint's name again; it is shown with a number"]


def replicates(folder: Path, first: tuple[str, ...], second: tuple[str, ...]) -> decide.Analysis:
    """Two runs of one side."""
    paths = []
    for name, rows in (("one", first), ("two", second)):
        (folder / name).mkdir()
        paths.append(Path(f"side={stats(folder / name, *rows).with_name('mine')}"))
    return decide.analyse(locust_csv.load_prefixes(paths))


A, B = row("GET,/a", "5,1,9", GOOD), row("GET,/b", "5,1,9", GOOD, "50,0", "5.0,0.0")


def test_an_endpoint_that_a_whole_summary_lacks_was_never_answered(tmp_path: Path) -> None:
    both = (A, B, row(",Aggregated", "5,1,9", GOOD, "150,0", "15.0,0.0"))
    analysis = replicates(tmp_path, both, (A, row(",Aggregated", "5,1,9", GOOD)))
    seen = reported(analysis, "GET /b", 2)
    assert (seen["throughput"], seen["count"]) == (0, 0)
    assert pd.isna(seen["mean"]) and pd.isna(seen["p50"])
    merged = analysis.by_treatment[analysis.by_treatment["endpoint"] == "GET /b"].set_index("metric")["value"]
    assert merged["count"] == 50 and pd.isna(merged["mean"])


def test_an_endpoint_that_a_summary_may_have_lost_stays_missing(tmp_path: Path) -> None:
    both = (A, B, row(",Aggregated", "5,1,9", GOOD, "150,0", "15.0,0.0"))
    analysis = replicates(tmp_path, both, (A, row(",Aggregated", "5,1,9", GOOD, "150,0", "15.0,0.0")))
    assert reported(analysis, "GET /b", 2) == {}
    merged = analysis.by_treatment[analysis.by_treatment["endpoint"] == "GET /b"].set_index("metric")["value"]
    assert pd.isna(merged["count"])


def test_an_endpoint_called_as_the_total_is_another(tmp_path: Path) -> None:
    named = row(",all requests", "5,1,9", GOOD, "50,0", "5.0,0.0")
    total = row(",Aggregated", "5,1,9", GOOD, "150,0", "15.0,0.0")
    analysis = decide.analyse(locust_csv.load_prefixes([stats(tmp_path, A, named, total)]))
    assert reported(analysis, ALL_REQUESTS)["count"] == 150
    assert reported(analysis, "all requests (endpoint)")["count"] == 50
    assert [o.what for o in analysis.experiment.oddities] == [
        "an endpoint is called as all of them together; shown as 'all requests (endpoint)'"
    ]


# --- the history -----------------------------------------------------------------------------------------------------

HISTORY = "Timestamp,User Count,Type,Name,Requests/s,Failures/s,50%,100%,Total Request Count,Total Failure Count,Last"


def history(folder: Path, *lines: tuple[int, int]) -> load.Experiment:
    """Lines of (second, count)."""
    path = stats(folder, row(",Aggregated", "5,1,9", GOOD))
    rows = [f"{second},4,,Aggregated,10.5,0.5,5,9,{count},0,1" for second, count in lines]
    (folder / "mine_stats_history.csv").write_text("\r\n".join([HISTORY, *rows, ""]), encoding="utf-8", newline="")
    return locust_csv.load_prefixes([path])


def test_a_steady_clock_is_no_oddity(tmp_path: Path) -> None:
    experiment = history(tmp_path, (1000, 10), (1001, 20), (1002, 30), (1002, 40))
    assert experiment.oddities == ()
    assert list(experiment.history["throughput"]) == [10.0] * 4
    assert list(experiment.history["second"]) == [1000, 1001, 1002, 1002]


def test_a_clock_that_goes_back_leaves_no_timeline(tmp_path: Path) -> None:
    experiment = history(tmp_path, (1000, 10), (1001, 20), (941, 30))
    assert [(o.file, o.what) for o in experiment.oddities] == [
        ("mine_stats_history.csv:4", "the clock goes back by 60 s; the timeline is left out")
    ]
    assert experiment.history.empty


def test_a_clock_that_jumps_is_said_and_kept(tmp_path: Path) -> None:
    experiment = history(tmp_path, (1000, 10), (1001, 20), (1062, 30))
    (oddity,) = experiment.oddities
    assert oddity.file == "mine_stats_history.csv:4"
    assert oddity.what.startswith("61 s without a line")
    assert len(experiment.history) == 3


def test_statistics_that_were_reset_are_said(tmp_path: Path) -> None:
    (oddity,) = history(tmp_path, (1000, 90), (1001, 3), (1002, 30)).oddities
    assert oddity.what.startswith("the count falls from 90 to 3: statistics were reset")


def test_a_summary_older_than_its_history_loses_data(tmp_path: Path) -> None:
    (oddity,) = history(tmp_path, (1000, 90), (1001, 101)).oddities
    assert oddity.loses_data
    assert oddity.what.startswith("counts 101 at its end, and the summary 100")


# --- several runs a side ---------------------------------------------------------------------------------------------


def rates(folder: Path, side: str, *values: float) -> list[Path]:
    for number, value in enumerate(values):
        path = stats(folder, row(",Aggregated", "5,1,9", GOOD, rates=f"{value},0.0"))
        path.rename(folder / f"{side}{number}_stats.csv")
    return [Path(f"{side}={folder / f'{side}{number}'}") for number in range(len(values))]


@pytest.mark.parametrize(
    ("new", "verdict"),
    [
        ((150, 151, 152, 153), Verdict.FASTER),
        ((50, 51, 52, 53), Verdict.SLOWER),
        ((100.5, 101.5, 101.6, 102.5), Verdict.SAME),
        ((90, 99, 120, 130), Verdict.INCONCLUSIVE),
        ((150, 151, 152), Verdict.INCONCLUSIVE),
        ((150,), Verdict.INVALID),
    ],
)
def test_several_runs_a_side_get_a_verdict(tmp_path: Path, new: tuple[float, ...], verdict: Verdict) -> None:
    paths = [*rates(tmp_path, "old", 100, 101, 102, 103), *rates(tmp_path, "new", *new)]
    analysis = decide.analyse(locust_csv.load_prefixes(paths))
    (comparison,) = analysis.deciding
    assert comparison.verdict is verdict
    assert (comparison.effect.baseline_runs, comparison.effect.treatment_runs) == (4, len(new))
    names = {f.name for f in analysis.findings}
    assert ("few_replicates" in names, "one_run_a_side" in names) == (len(new) == 3, len(new) == 1)


def test_one_run_of_one_side_is_named(tmp_path: Path) -> None:
    paths = [*rates(tmp_path, "old", 100, 101, 102, 103), *rates(tmp_path, "new", 150)]
    analysis = decide.analyse(locust_csv.load_prefixes(paths))
    assert [f.message for f in analysis.severe] == [
        "One run of csv = new: how much runs differ from each other by themselves is unknown."
    ]


def test_the_table_says_whose_percentiles_these_are(tmp_path: Path) -> None:
    analysis = decide.analyse(locust_csv.load_prefixes(rates(tmp_path, "old", 100, 101)))
    (block,) = tables.blocks(analysis)
    assert "p95 response time, ms (Locust's, rounded)" in [r.head for r in block.rows]
    assert "middle run" in method.table_note(analysis)


def test_a_file_whose_own_name_has_the_sign_is_no_label(tmp_path: Path) -> None:
    path = stats(tmp_path, row(",Aggregated", "5,1,9", GOOD)).rename(tmp_path / "users=4_stats.csv")
    assert locust_csv.load_prefixes([path]).record.factors == {"csv": ["users=4"]}
    prefix = path.with_name("users=4")
    assert locust_csv.load_prefixes([prefix]).record.factors == {"csv": ["users=4"]}
    assert locust_csv.load_prefixes([Path(f"few={prefix}")]).record.factors == {"csv": ["few"]}


def test_a_label_that_is_also_a_run_is_refused(tmp_path: Path) -> None:
    first, second = rates(tmp_path, "a", 100, 101)
    plain = Path(str(second).partition("=")[2])
    with pytest.raises(RecordError, match="both a label and the name"):
        locust_csv.load_prefixes([Path(f"a1={str(first).partition('=')[2]}"), plain])
