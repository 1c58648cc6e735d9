"""Two results of one experiment in one report."""

from __future__ import annotations

import dataclasses
import json
import shutil
import xml.etree.ElementTree as ET
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

from analysis import __main__ as command_line
from analysis import decide, experiment_names, load, report

NAME = "keystone-processes"


@pytest.fixture(scope="module")
def results(small: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The same experiment run twice, as the harness names its results."""
    folder = tmp_path_factory.mktemp("results")
    return [Path(shutil.copytree(small, folder / stamp)) for stamp in ("20250101T000000Z", "20250102T000000Z")]


def _named(analysis: decide.Analysis, name: str, folder: str) -> decide.Analysis:
    record = dataclasses.replace(analysis.experiment.record, name=name)
    return dataclasses.replace(
        analysis, experiment=dataclasses.replace(analysis.experiment, record=record, folder=Path(folder))
    )


def test_names_are_told_apart_by_as_much_of_the_folder_as_it_takes(demo_analysis: decide.Analysis) -> None:
    def names(*given: tuple[str, str]) -> list[str]:
        return experiment_names.distinct([_named(demo_analysis, name, folder) for name, folder in given])

    assert names(("a", "/r/1"), ("b", "/r/1")) == ["a", "b"]
    assert names(("a", "/r/1"), ("b", "/r/1"), ("a", "/r/2")) == ["a (1)", "b", "a (2)"]
    assert names(("a", "/old/1"), ("a", "/new/1")) == ["a (old/1)", "a (new/1)"]
    assert names(("a", "/r/1"), ("a", "/r/1")) == ["a (1)", "a (1) (2)"]
    assert names(("a", "/1"), ("a", "/x/1")) == ["a (/1)", "a (x/1)"]


def test_no_two_rows_of_a_report_have_one_key(results: list[Path], tmp_path: Path) -> None:
    analyses = [decide.analyse(load.load_experiment(folder)) for folder in results]
    folder = report.write(analyses, tmp_path / "report").parent
    expected = [f"{NAME} ({result.name})" for result in results]
    metrics = pd.read_csv(folder / "metrics.csv")
    assert list(dict.fromkeys(metrics["experiment"])) == expected
    assert not metrics.duplicated(["experiment", "run", "endpoint", "metric"]).any()
    assert set(pd.read_csv(folder / "comparison.csv")["experiment"]) == set(expected)
    assert set(pd.read_parquet(folder / "timeline.parquet")["experiment"]) == set(expected)
    verdicts = json.loads((folder / "verdicts.json").read_text("utf-8"))
    assert [experiment["name"] for experiment in verdicts["experiments"]] == expected
    suites = ET.parse(folder / "junit.xml").getroot()
    assert [suite.get("name") for suite in suites] == expected
    page, markdown = (folder / "index.html").read_text("utf-8"), (folder / "report.md").read_text("utf-8")
    for name in expected:
        assert page.count(name) == 2  # in the contents, and at the head of its own part
        assert name in markdown.replace("\\", "")


def test_one_folder_named_twice_is_one_clear_error(results: list[Path], tmp_path: Path) -> None:
    again = results[0] / ".." / results[0].name
    done = CliRunner().invoke(command_line.app, ["report", str(results[0]), str(again), "-o", str(tmp_path / "r")])
    assert done.exit_code == 2
    assert "the same folder is named twice" in done.output
