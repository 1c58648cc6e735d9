"""Checks of run_findings.py: each is provoked, and stays silent where nothing is wrong."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

from analysis import decide, load
from analysis.compare import Verdict
from analysis.findings import Severity
from tests.analysis.test_validity import analyse, found, run_folder

Make = Callable[..., Path]


def names(analysis: decide.Analysis) -> set[str]:
    return {finding.name for finding in analysis.findings}


def change(run: Path, **changes: object) -> None:
    path = run / "run.json"
    path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | changes), encoding="utf-8")


def repeat(run: Path, attempt: int) -> Path:
    return Path(shutil.copytree(run, run.with_name(f"{run.name}+{attempt}")))


def test_a_repaired_experiment_is_valid_and_says_what_was_repeated(demo_copy: Path) -> None:
    run = run_folder(demo_copy, processes=1, users=16)
    repeat(run, 2)
    change(run, status="failed", reason="the server died")
    analysis = analyse(demo_copy)
    assert len(analysis.experiment.complete_runs()) == 16
    assert analysis.experiment.oddities == ()
    assert [c.verdict for c in analysis.deciding] == [Verdict.FASTER]
    finding = found(analysis, "runs_repeated")
    assert finding.severity is Severity.NOTE
    assert finding.message == "1 run failed and was repeated."
    assert "the server died" in finding.evidence[0]


def test_the_first_complete_of_many_attempts_counts(small_copy: Path) -> None:
    run = run_folder(small_copy, processes=1, users=16)
    for attempt in (2, 9, 10, 11):
        repeat(run, attempt)
    change(run, status="failed", reason="first")
    change(run.with_name(run.name + "+2"), status="failed", reason="second")
    (run.with_name(run.name + "+9") / "run.json").write_text("{", encoding="utf-8")
    experiment = load.load_experiment(small_copy)
    assert run.name + "+10" in set(experiment.runs["folder"])
    assert [r.reason for r in experiment.repeated][:2] == ["first", "second"]
    assert len(experiment.repeated) == 3
    assert [oddity.file for oddity in experiment.oddities] == [run.name + "+11"]


def test_where_all_attempts_failed_the_last_ones_reason_is_told(small_copy: Path) -> None:
    run = run_folder(small_copy, processes=1, users=16)
    change(repeat(run, 2), status="failed", reason="second")
    change(run, status="failed", reason="first")
    experiment = load.load_experiment(small_copy)
    assert "second" in set(experiment.runs["reason"])
    assert [r.reason for r in experiment.repeated] == ["first"]
