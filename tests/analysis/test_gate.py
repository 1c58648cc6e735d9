"""`python -m analysis gate`, as CI calls it: exit codes, what is printed, and JUnit XML."""

from __future__ import annotations

import dataclasses
import json
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from analysis import decide, load
from analysis.compare import Verdict
from analysis.record import ExperimentRecord, read_experiment
from tests.analysis import synthetic
from tests.analysis.synthetic import PROCESSES
from tests.analysis.test_command_line import call

Make = Callable[..., Path]
ALONE: dict[str, Any] = {
    "factors": {PROCESSES: [1]}, "baseline": {}, "primary": {"metric": "throughput"}, "steady_s": 4,
    "rate": lambda t: 40.0,
}  # fmt: skip


@pytest.fixture(scope="module")
def six(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One treatment, six replicates, for reading only."""
    folder = tmp_path_factory.mktemp("six") / "experiment"
    synthetic.make(folder, synthetic.Plan(**ALONE, replicates=6))
    return folder


def gate(folder: Path, *rules: str, **options: object) -> tuple[int, list[str]]:
    given = [word for rule in rules for word in ("--rule", rule)]
    named = [word for name, value in options.items() for word in (f"--{name}", value)]
    result = call("gate", folder, *given, *named)
    return result.exit_code, (result.stdout or result.stderr).splitlines()


PASSES, FAILS, OPEN = "failure_ratio < 1%", "mean(response_time) > 1s", "p99(response_time) < 1min"


@pytest.mark.parametrize(
    ("rules", "code", "last"),
    [
        ((PASSES,), 0, "pass: 6 of 6 planned runs complete; of 1 objective 1 pass"),
        (
            (PASSES, FAILS, OPEN),
            1,
            "fail: 6 of 6 planned runs complete; of 3 objectives 1 fail, 1 inconclusive, 1 pass",
        ),
        ((PASSES, OPEN), 3, "inconclusive: 6 of 6 planned runs complete; of 2 objectives 1 inconclusive, 1 pass"),
        ((PASSES, PASSES), 0, "pass: 6 of 6 planned runs complete; of 1 objective 1 pass"),
    ],
)
def test_exit_codes(six: Path, rules: tuple[str, ...], code: int, last: str) -> None:
    found, lines = gate(six, *rules)
    assert (found, lines[-1]) == (code, last)
    assert len(lines) == len(set(rules)) + 1


def test_objectives_of_the_file_are_judged_too(six: Path, tmp_path: Path) -> None:
    data = json.loads((six / "experiment.json").read_text("utf-8"))
    folder = tmp_path / "same"
    folder.mkdir()
    (folder / "runs").symlink_to(six / "runs")
    (folder / "experiment.json").write_text(json.dumps(data | {"objectives": [FAILS]}), encoding="utf-8")
    code, lines = gate(folder, PASSES)
    assert code == 1
    assert [line.split(": ")[0] for line in lines] == ["fail", "pass", "fail"]


def test_the_report_prints_them(six: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("analysis.pages.render_html", lambda analyses: "page")
    monkeypatch.setattr("analysis.run_folders.read_experiment", _with_objectives(FAILS))
    lines = call("report", six, "-o", tmp_path / "out").stdout.splitlines()
    (row,) = [line for line in lines if FAILS in line and "processes = 1" in line]
    assert row.split()[-1] == "fail"
    assert row.startswith(" ▸ ")


def _with_objectives(*texts: str) -> Callable[[Path], ExperimentRecord]:
    return lambda folder: dataclasses.replace(read_experiment(folder), objectives=list(texts))


def test_an_invalid_measurement_comes_before_a_failed_rule(make: Make) -> None:
    folder = make(**{**ALONE, "replicates": 1, "failure_ratio": lambda t: 0.2})
    code, lines = gate(folder, "count(response_time > 1us) < 1")
    assert code == 4
    assert lines[0].startswith("severe: ")
    assert lines[1].startswith("invalid: count(response_time > 1us) < 1: processes = 1: ")


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ("p95(respnse_time) < 1s", "did you mean response_time?"),
        ("thruput > 1", "did you mean throughput?"),
        ("change(throughput) > -5%", "a change needs a baseline: --baseline FOLDER"),
    ],
)
def test_a_wrong_rule_is_usage(six: Path, rule: str, words: str) -> None:
    code, lines = gate(six, rule)
    assert code == 2
    assert len(lines) == 1
    assert words in lines[0]


def test_a_baseline_folder(six: Path, make: Make) -> None:
    faster = make(**{**ALONE, "rate": lambda t: 60.0, "seed": 2, "replicates": 6})
    code, lines = gate(faster, "change(throughput) > -5%", "change(mean(response_time)) < 10%", baseline=six)
    assert code == 0, lines
    assert lines[0].startswith("pass: change(throughput) > -5%: processes = 1: +")
    assert gate(six, "change(throughput) > -5%", baseline=faster)[0] == 1
    assert gate(six, "change(throughput) > -5%", baseline=faster / "nowhere")[0] == 2
    assert gate(six, "change(throughput) > -5%", baseline=six / "runs" / "..")[0] == 2


def test_a_baseline_that_was_asked_something_else_is_none(six: Path, make: Make) -> None:
    other = make(**ALONE, replicates=6, endpoints=("GET /z",))
    found, lines = gate(six, "change(throughput) > -50%", baseline=other)
    assert found == 4
    assert "GET /z: 0 % with the folder and 100 % with --baseline of the requests" in lines[0]


@pytest.mark.parametrize(
    ("path", "value", "code"),
    [
        ("cpu.model", "another processor", 4),
        ("kernel", "7.0.0", 0),
        ("load_average", 3, 0),
        ("held_constant", {"load.model": "open"}, 4),
        ("held_constant", {"server.parameters.cache": "null"}, 0),
    ],
)
def test_a_baseline_of_another_machine_or_load_is_none(
    six: Path, make: Make, path: str, value: object, code: int
) -> None:
    other = make(**ALONE, replicates=6)
    if path == "held_constant":
        data = json.loads((other / "experiment.json").read_text("utf-8"))
        (other / "experiment.json").write_text(json.dumps(data | {path: data[path] | value}))  # type: ignore[operator]
    for run in (other / "runs").iterdir() if path != "held_constant" else ():
        data = json.loads((run / "run.json").read_text("utf-8"))
        inner = data["environment"]
        *way, last = path.split(".")
        for key in way:
            inner = inner[key]
        inner[last] = value
        (run / "run.json").write_text(json.dumps(data), encoding="utf-8")
    found, lines = gate(six, "change(throughput) > -50%", baseline=other)
    assert found == code, lines
    expected = {4: "severe: The folder of --baseline was measured", 0: "note: the two folders differ in"}[code]
    assert any(line.startswith(expected) for line in lines) == (path != "load_average")


def test_junit_xml_says_what_the_exit_code_says(six: Path, tmp_path: Path) -> None:
    file = tmp_path / "gate.xml"
    gate(six, PASSES, FAILS, OPEN, junit=file)
    (suite,) = ET.parse(file).getroot()
    assert [suite.get(name) for name in ("tests", "failures", "errors", "skipped")] == ["4", "1", "0", "1"]
    outcomes = {case.get("name"): [inner.tag for inner in case] for case in suite.iter("testcase")}
    assert outcomes == {
        "all planned runs are complete, and no severe finding stands": [],
        f"{PASSES}: processes = 1": [],
        f"{FAILS}: processes = 1": ["failure"],
        f"{OPEN}: processes = 1": ["skipped"],
    }


def test_failures_are_judged_and_cast_doubt_on_times_only(make: Make) -> None:
    folder = make(**{**ALONE, "replicates": 6, "failure_ratio": lambda t: 0.3})
    about_failures, about_times = "failure_ratio < 5%", "mean(response_time) < 1min"
    code, lines = gate(folder, about_failures)
    assert code == 1, lines
    assert lines[0].startswith("severe: ")
    assert lines[1].startswith(f"fail: {about_failures}: processes = 1: ")
    assert gate(folder, "failure_ratio < 90%", "success_ratio > 10%")[0] == 0
    code, lines = gate(folder, about_failures, about_times)
    assert (code, lines[-1].split(":")[0]) == (4, "invalid")
    assert any(line.startswith(f"invalid: {about_times}") for line in lines)
    assert any(line.startswith(f"fail: {about_failures}") for line in lines)
    assert gate(folder)[0] == 4  # nothing was asked about failures alone


def test_junit_of_failures_is_a_failure_and_no_error(make: Make, tmp_path: Path) -> None:
    folder, file = make(**{**ALONE, "replicates": 6, "failure_ratio": lambda t: 0.3}), tmp_path / "gate.xml"
    gate(folder, "failure_ratio < 5%", junit=file)
    (suite,) = ET.parse(file).getroot()
    assert [suite.get(name) for name in ("failures", "errors")] == ["1", "0"]


def test_a_verdict_about_success_stands_where_many_fail(make: Make) -> None:
    plan = {**ALONE, "factors": {PROCESSES: [1, 2]}, "baseline": {PROCESSES: 1}, "replicates": 4,
            "failure_ratio": lambda t: 0.3 * t[PROCESSES]}  # fmt: skip
    words = [
        decide.analyse(load.load_experiment(make(**{**plan, "primary": {"metric": metric}}))).deciding[0].verdict
        for metric in ("success_ratio", "throughput")
    ]
    assert words == [Verdict.SLOWER, Verdict.INVALID]


def test_other_timing_of_the_baseline_is_said(six: Path, make: Make) -> None:
    other = make(**{**ALONE, "steady_s": 5}, replicates=4)
    code, lines = gate(six, "change(throughput) > -50%", baseline=other)
    assert code == 0, lines
    notes = [line for line in lines if line.startswith("note: the two folders differ in ")]
    assert any("timing.steady_state_s: 4.0 against 5.0" in note for note in notes)
    assert any("replicates: 6 against 4" in note for note in notes)
