"""The commands as a user runs them: output, files and exit codes."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from analysis import pages
from analysis.__main__ import app
from tests.analysis.synthetic import PROCESSES, USERS

FIXTURES = Path(__file__).parents[1] / "fixtures"
REPOSITORY = Path(__file__).parents[2]
Make = Callable[..., Path]


def call(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the page, which takes seconds and is tested elsewhere."""
    monkeypatch.setattr(pages, "render_html", lambda analyses: "page")


def golden(name: str, output: str) -> None:
    """The whole output against tests/fixtures/terminal/NAME.txt."""
    assert output == (FIXTURES / "terminal" / f"{name}.txt").read_text("utf-8")


@pytest.mark.usefixtures("quick")
def test_the_whole_output_of_a_doubtful_report(make: Make, tmp_path: Path) -> None:
    folder = make(replicates=3, rate=lambda t: 14.0, failure_ratio=lambda t: 0.08 if t[PROCESSES] == 2 else 0.0)
    shutil.rmtree(min((folder / "runs").iterdir()))
    result = call("report", folder, "-o", tmp_path / "out")
    assert result.exit_code == 0
    golden("doubtful", result.stdout.replace(str(tmp_path), "FOLDER"))


@pytest.mark.usefixtures("quick")
def test_no_line_is_wider_than_100_columns(demo: Path, make: Make, tmp_path: Path) -> None:
    wide = make(factors={PROCESSES: [1, 2, 4], USERS: [4]}, replicates=1, primary={"metric": "throughput"})
    for number, folder in enumerate((demo, wide)):
        output = call("report", folder, "-o", tmp_path / str(number)).stdout
        assert max(len(line) for line in output.splitlines()[:-1]) <= 100


@pytest.mark.usefixtures("quick")
def test_the_report_goes_into_the_folder_by_default(small_copy: Path) -> None:
    result = call("report", small_copy)
    assert result.stdout.splitlines()[-1] == f"Report: {small_copy / 'report' / 'index.html'}"
    assert (small_copy / "report" / "index.html").is_file()
    assert call("report", small_copy).exit_code == 0  # its own folder may be replaced


@pytest.mark.usefixtures("quick")
def test_a_locust_csv_prefix_is_reported(tmp_path: Path) -> None:
    for name in ("one_process", "two_processes"):
        shutil.copy(FIXTURES / "locust_csv" / f"{name}_stats.csv", tmp_path)
    alone = call("report", tmp_path / "one_process")
    assert alone.exit_code == 0
    assert "No verdict" in alone.stdout
    assert (tmp_path / "one_process_report" / "index.html").is_file()
    both = call("report", tmp_path / "one_process", tmp_path / "two_processes", "-o", tmp_path / "both")
    assert both.exit_code == 0
    assert "invalid: This measurement cannot decide: one run a side" in both.stdout.replace("\n", " ")


def test_gate_passes_a_whole_experiment(demo: Path) -> None:
    result = call("gate", demo)
    assert (result.exit_code, result.stdout) == (0, "pass: 16 of 16 planned runs complete\n")


def test_gate_passes_an_inconclusive_experiment(make: Make) -> None:
    assert call("gate", make(replicates=1)).exit_code == 0


@pytest.mark.parametrize("which", [{PROCESSES: 1, USERS: 4}, {PROCESSES: 2, USERS: 16}])
def test_gate_fails_where_a_run_is_missing_or_failed(demo_copy: Path, which: dict[str, int]) -> None:
    for path in (demo_copy / "runs").iterdir():
        record = json.loads((path / "run.json").read_text("utf-8"))
        if record["treatment"] == which and record["replicate"] == 2:
            (path / "run.json").write_text(
                json.dumps(record | {"status": "failed", "reason": "died"}), encoding="utf-8"
            )
    result = call("gate", demo_copy)
    assert result.exit_code == 4
    assert "15 of 16 planned runs complete" in result.stdout


def test_gate_fails_on_a_severe_finding(make: Make) -> None:
    result = call("gate", make(failure_ratio=lambda t: 0.2, replicates=1))
    assert result.exit_code == 4
    assert result.stdout.startswith("severe: With processes = 1")


def test_gate_fails_where_nothing_ran(small_copy: Path) -> None:
    shutil.rmtree(small_copy / "runs")
    assert call("gate", small_copy).exit_code == 4


@pytest.mark.parametrize("verb", ["report", "gate"])
@pytest.mark.parametrize(
    "damage", ["empty folder", "no folder", "damaged json", "later schema", "unknown metric", "plan"]
)
def test_what_is_no_result_folder_is_one_clear_message(
    small_copy: Path, tmp_path: Path, verb: str, damage: str
) -> None:
    folder = small_copy
    path = folder / "experiment.json"
    data = json.loads(path.read_text("utf-8"))
    if damage == "empty folder":
        folder = tmp_path / "empty"
        folder.mkdir()
    elif damage == "no folder":
        folder = tmp_path / "nothing"
    else:
        damaged = {
            "damaged json": "{",
            "later schema": json.dumps(data | {"schema_version": 99}),
            "unknown metric": json.dumps(data | {"primary": {"metric": "thruput"}}),
            "plan": json.dumps(data | {"plan": [3]}),
            "timing": json.dumps(data | {"timing": {"warm_up_s": "2 s"}}),
            "factors": json.dumps(data | {"factors": {PROCESSES: 3}}),
            "at": json.dumps(data | {"primary": {"metric": "throughput", "at": [16]}}),
            "notes": json.dumps(data | {"notes": [3]}),
        }
        path.write_text(damaged[damage], encoding="utf-8")
    result = call(verb, folder)
    assert result.exit_code == 2
    assert len(result.stderr.strip().splitlines()) == 1
    assert str(folder) in result.stderr
    assert "Traceback" not in result.output


def test_a_misspelt_metric_is_asked_back(small_copy: Path) -> None:
    path = small_copy / "experiment.json"
    path.write_text(path.read_text("utf-8").replace('"metric": "throughput"', '"metric": "thruput"'), encoding="utf-8")
    assert "Did you mean 'throughput'?" in call("gate", small_copy).stderr


def test_other_files_are_never_overwritten(demo: Path, tmp_path: Path) -> None:
    (tmp_path / "thesis.md").write_text("mine", encoding="utf-8")
    result = call("report", demo, "-o", tmp_path)
    assert result.exit_code == 2
    assert "nothing is overwritten" in result.stderr


@pytest.mark.parametrize(
    "arguments", [["report"], ["gate"], ["gate", "a", "b"], ["gate", "a", "--rule", "x"], ["repotr"]]
)
def test_bad_usage_is_exit_2(arguments: list[str]) -> None:
    assert call(*arguments).exit_code == 2


def test_the_whole_output_of_a_report_as_it_is_piped(demo: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "analysis", "report", str(demo), "-o", str(tmp_path / "out")]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert "\x1b" not in done.stdout
    assert done.stderr == ""
    golden("demo", done.stdout.replace(str(tmp_path), "FOLDER"))


def test_gate_starts_without_what_only_the_report_needs(demo: Path) -> None:
    script = "import sys; from analysis.__main__ import app; app(['gate', sys.argv[1]], standalone_mode=False); "
    script += "print([name for name in ('altair', 'vl_convert', 'jinja2', 'scipy', 'locust') if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", script, str(demo)], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    assert done.stdout.splitlines()[-1] == "[]", done.stderr


def piped(command: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """A shell's pipe, its exit code that of the first command."""
    line = f"set -o pipefail; {sys.executable} -m analysis {command}"
    shell = ["bash", "-c", line, "bash", *(str(argument) for argument in arguments)]
    return subprocess.run(shell, cwd=REPOSITORY, capture_output=True, text=True, check=False)


def test_a_reader_who_stops_early_gets_the_whole_report_in_files(small: Path, tmp_path: Path) -> None:
    done = piped('report "$1" -o "$2" | head -c 1', small, tmp_path / "out")
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "out" / "index.html").is_file()


def test_gate_keeps_its_exit_code_when_nobody_reads(small_copy: Path) -> None:
    shutil.rmtree(small_copy / "runs")
    done = piped('gate "$1" | true', small_copy)
    assert (done.returncode, done.stderr) == (4, "")


@pytest.mark.parametrize("command", ['gate "$1" > /dev/full', 'report "$1" -o /dev/null/x', 'report "$1" -o /proc/x'])
def test_what_cannot_be_written_is_one_clear_message(small: Path, command: str) -> None:
    done = piped(command, small)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert "Traceback" not in done.stderr


@pytest.mark.usefixtures("quick")
def test_a_disk_that_fills_up_is_one_clear_message(small: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "metrics.csv").symlink_to("/dev/full")
    (tmp_path / "out" / "verdicts.json").write_text("{}", encoding="utf-8")
    result = call("report", small, "-o", tmp_path / "out")
    assert result.exit_code == 2
    assert "metrics.csv: cannot be written (No space left on device)" in result.stderr


@pytest.mark.usefixtures("quick")
def test_a_folders_text_does_not_reach_the_terminal_as_control_characters(small_copy: Path) -> None:
    hostile = "\x1b[2J\x1b]0;title\x07 \r\npass: 4 of 4 \u202e\x9b31m\ud800"
    path = small_copy / "experiment.json"
    data = json.loads(path.read_text("utf-8"))
    path.write_text(json.dumps(data | {"question": f"Why {hostile}?", "notes": [hostile]}), encoding="utf-8")
    for run in (small_copy / "runs").iterdir():
        record = json.loads((run / "run.json").read_text("utf-8"))
        record |= {"status": "failed", "reason": hostile} if record["number"] == 1 else {}
        record["environment"][hostile + "host"] = record["number"]
        (run / "run.json").write_text(json.dumps(record), encoding="utf-8")
    for result in (call("report", small_copy), call("gate", small_copy)):
        assert not set(result.output) & set("\x1b\x07\r\u202e\x9b\ud800")
        assert "\\x1b[2J" in result.output
    assert not any(line.startswith("pass:") for line in call("gate", small_copy).output.splitlines())
    assert "\x1b" not in (small_copy / "report" / "report.md").read_text("utf-8")


def test_a_refusal_is_printable_too(tmp_path: Path) -> None:
    assert "\x1b" not in call("gate", tmp_path / "\x1b[2J").stderr
