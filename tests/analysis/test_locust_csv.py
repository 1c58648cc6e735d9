from __future__ import annotations

import shutil
from pathlib import Path

import pandas as pd
import pytest

from analysis import answer, decide
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
