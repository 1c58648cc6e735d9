from __future__ import annotations

import re
import shutil
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

from analysis import decide, load, pages, verdicts
from analysis.__main__ import app
from analysis.findings import Severity
from analysis.importers import imported_folder, locust_csv
from analysis.record import RecordError

FILES = Path(__file__).parents[1] / "fixtures" / "locust_csv"
SIDES = [Path(f"{side}={FILES / version / 'run'}") for side, version in
         (("old", "0.8.1"), ("old", "1.0.3"), ("new", "2.47.0"), ("new", "hostile"))]  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    imported_folder.write(locust_csv.load_prefixes(SIDES), tmp_path / "imported")
    return tmp_path / "imported"


def test_what_is_read_again_is_what_was_imported(folder: Path) -> None:
    direct, again = locust_csv.load_prefixes(SIDES), load.load_experiment(folder)
    for name in ("runs", "reported", "failed", "history"):
        pd.testing.assert_frame_equal(getattr(direct, name), getattr(again, name), check_exact=True)
    assert again.oddities == direct.oddities
    assert again.record == direct.record
    assert again.imported


def test_the_report_is_the_same(folder: Path) -> None:
    direct, again = (decide.analyse(e) for e in (locust_csv.load_prefixes(SIDES), load.load_experiment(folder)))
    assert verdicts.document([again]) == verdicts.document([direct])
    assert pages.render_markdown([again]) == pages.render_markdown([direct])


def test_no_secret_and_no_place_of_the_machine_is_written(folder: Path) -> None:
    for file in folder.rglob("*"):
        text = file.read_text("utf-8") if file.is_file() else ""
        assert not [
            part for part in ("planted-secret", "PlantedSecret", "eyJhbGci", "\x1b", str(FILES)) if part in text
        ]


def test_a_folder_with_files_is_left_alone(folder: Path) -> None:
    with pytest.raises(RecordError, match="nothing is overwritten"):
        imported_folder.write(locust_csv.load_prefixes(SIDES), folder)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("reported.csv", "run,endpoint\n1,a\n"),
        ("reported.csv", "run,endpoint,metric,value,samples\n1,a,p95,-3,1\n"),
        ("reported.csv", "run,endpoint,metric,value,samples\n2,a,p95,3,1\n"),
        ("reported.csv", "run,endpoint,metric,value,samples\n1,a,p95,many,1\n"),
        ("reported.csv", "\0\xff"),
        ("history.csv", ""),
        ("failed.csv", "x"),
        ("oddities.json", "[1]"),
        ("oddities.json", "{"),
        ("run.json", "{}"),
        ("run.json", "["),
    ],
)
def test_a_damaged_run_is_a_failed_run_with_its_reason(folder: Path, name: str, text: str) -> None:
    (next((folder / "runs").iterdir()).parent / "001-old-rep1" / name).write_text(text, encoding="latin-1")
    experiment = load.load_experiment(folder)
    first = experiment.runs.iloc[0]
    assert first["status"] == "failed"
    assert name in first["reason"]
    assert experiment.complete_runs() == [2, 3, 4]


def test_a_lost_run_is_missing_and_the_gate_says_so(folder: Path) -> None:
    shutil.rmtree(folder / "runs" / "001-old-rep1")
    assert load.load_experiment(folder).runs.iloc[0]["status"] == "missing"
    result = CliRunner().invoke(app, ["gate", str(folder)])
    assert result.exit_code == 4
    assert "3 of 4 planned runs complete" in result.output


def clean(folder: Path, name: str, rate: float) -> Path:
    """A summary without failures, of a given rate."""
    header = (FILES / "2.47.0" / "run_stats.csv").read_text("utf-8").splitlines()[0]
    numbers = f"1000,0,5,5,1,9,10,{rate},0.0," + ",".join(["5"] * 11)
    text = "\r\n".join([header, f"GET,/a,{numbers}", f",Aggregated,{numbers}", ""])
    (folder / f"{name}_stats.csv").write_bytes(text.encode())
    return folder / name


def test_import_then_gate_passes_for_what_is_whole(tmp_path: Path) -> None:
    rates = {"old": (100, 101, 102, 103), "new": (150, 151, 152, 153)}
    files = [f"{side}={clean(tmp_path, f'{side}{n}', rate)}" for side, r in rates.items() for n, rate in enumerate(r)]
    target = tmp_path / "imported"
    result = CliRunner().invoke(app, ["import", *files, "-o", str(target)])
    assert (result.exit_code, result.output) == (0, f"Imported: {target} (8 runs)\n")
    assert CliRunner().invoke(app, ["gate", str(target)]).exit_code == 0
    (verdict,) = verdicts.document([decide.analyse(load.load_experiment(target))])["experiments"][0]["verdicts"]
    assert verdict["verdict"] == "faster"
    assert verdict["runs"] == {"treatment": 4, "baseline": 4}
    assert verdict["ratio"] == pytest.approx(1.5, abs=0.02)
    assert CliRunner().invoke(app, ["import", *files, "-o", str(target)]).exit_code == 2


@pytest.mark.parametrize("arguments", [["nowhere"], ["a=nowhere"], ["a="], ["="], [str(FILES)], [f"a={FILES}"]])
def test_what_cannot_be_imported_is_one_error(tmp_path: Path, arguments: list[str]) -> None:
    result = CliRunner().invoke(app, ["import", *arguments, "-o", str(tmp_path / "x")])
    assert result.exit_code == 2
    assert len(result.output.strip().splitlines()) == 1
    assert not (tmp_path / "x").exists()


def test_import_says_its_oddities(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["import", str(FILES / "hostile" / "run"), "-o", str(tmp_path / "x")])
    assert (
        "  run 1, run_stats.csv:3: a text with what looks like a secret; it is shown as [redacted] (5 times"
        in result.output
    )
    assert "9 oddities; nothing was repaired" in result.output


def test_a_pattern_of_a_shell_names_one_run(tmp_path: Path) -> None:
    files = sorted(str(path) for path in (FILES / "2.47.0").iterdir())
    result = CliRunner().invoke(app, ["import", *files, "-o", str(tmp_path / "x")])
    assert result.output.startswith(f"Imported: {tmp_path / 'x'} (1 run)\n")


def test_the_gate_judges_by_what_the_tool_reported(tmp_path: Path) -> None:
    files = [f"one={clean(tmp_path, f'r{n}', 100 + n)}" for n in range(6)]
    target = tmp_path / "imported"
    assert CliRunner().invoke(app, ["import", *files, "-o", str(target)]).exit_code == 0
    rules = {
        "p95(response_time) < 6ms": "pass",  # 5 ms in each of the six summaries
        "p95(response_time) < 4ms": "fail",
        "failure_ratio < 1%": "pass",
        "throughput > 99/s": "pass",
        "max(response_time) < 9ms": "fail",  # 9 ms
        "p95(service_time) < 1s": "inconclusive",
        "count(response_time > 1s) < 5": "inconclusive",
    }
    for rule, outcome in rules.items():
        result = CliRunner().invoke(app, ["gate", str(target), "--rule", rule])
        (line,) = [line for line in result.output.splitlines() if line.startswith(f"{outcome}: {rule}: ")]
        assert ("the tool that measured them recorded none" in line) == (outcome == "inconclusive")
        assert "72 responses" not in result.output
        assert "note: imported runs are judged by the numbers that their tool reported" in result.output


def test_summaries_have_no_histograms_to_export(folder: Path) -> None:
    result = CliRunner().invoke(app, ["export", str(folder)])
    assert result.exit_code == 2
    assert "holds another tool's summaries" in result.stderr


@pytest.mark.parametrize(
    ("requests", "mean", "is_copied"),
    [(20, "18.870757910446393", True), (200, "18", False), (2000, "18", True)],
)
def test_whole_milliseconds_of_few_requests_are_alike_by_chance(
    tmp_path: Path, requests: int, mean: str, is_copied: bool
) -> None:
    for name in ("a", "b"):
        file = clean(tmp_path, name, 20.0).with_name(f"{name}_stats.csv")
        text = file.read_text("utf-8").replace(",1000,0,5,5,", f",{requests},0,5,{mean},").replace(",9,10,", ",90,10,")
        file.write_text(text, encoding="utf-8")
    analysis = decide.analyse(locust_csv.load_prefixes([tmp_path / "a", tmp_path / "b"]))
    found = [f for f in analysis.findings if f.name == "runs_copied"]
    assert len(found) == is_copied
    for finding in found:
        assert finding.message.startswith("The numbers of 2 runs are copies")
        assert "harness" not in finding.next_action and "Import" in finding.next_action


@pytest.mark.parametrize("copied", [True, False])
def test_copies_of_one_summary_are_no_replicates(tmp_path: Path, copied: bool) -> None:
    source = next((FILES / "2.47.0").glob("*_stats.csv")).read_text("utf-8")
    sides = []
    for n in range(8):
        # Times of its own for each run.
        own = (
            source
            if copied
            else re.sub(r"(\d+\.\d+)(?=,)", lambda m, n=n: f"{float(m[1]) * (1 + n / 100):.6f}", source)
        )
        (tmp_path / f"run{n}_stats.csv").write_text(own, encoding="utf-8")
        sides.append(Path(f"{'old' if n < 4 else 'new'}={tmp_path}/run{n}"))
    analysis = decide.analyse(locust_csv.load_prefixes(sides))
    assert [f.severity for f in analysis.findings if f.name == "runs_copied"] == [Severity.SEVERE] * copied
