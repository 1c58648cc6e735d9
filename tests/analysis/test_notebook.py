"""analysis/explore.ipynb runs from top to bottom, on the result folder that is shipped with the tests."""

from __future__ import annotations

import json
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from analysis import decide, load

REPOSITORY = Path(__file__).parents[2]
NOTEBOOK = REPOSITORY / "analysis/explore.ipynb"
RESULT = REPOSITORY / "tests/fixtures/keystone-processes"


@pytest.fixture(scope="module")
def outputs() -> list[str]:
    """What each code cell showed, as text."""
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    resources = {"metadata": {"path": str(NOTEBOOK.parent)}}
    NotebookClient(notebook, timeout=120, kernel_name="python3", resources=resources).execute()
    return [json.dumps(cell.outputs, ensure_ascii=False) for cell in notebook.cells if cell.cell_type == "code"]


def test_it_runs_and_says_what_the_report_says(outputs: list[str]) -> None:
    assert "Does Keystone answer more authentications" in outputs[1]
    assert "faster: With processes = 2, throughput at users = 16 was 2.158 times" in outputs[2]
    assert sum("<svg" in output for output in outputs) == 3
    assert "processes = 1, users = 16" in outputs[-1]


def test_it_is_kept_without_outputs() -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(not cell.outputs and cell.execution_count is None for cell in code)


def test_the_result_it_runs_on_is_whole_small_and_says_nothing_of_its_makers_files() -> None:
    analysis = decide.analyse(load.load_experiment(RESULT))
    assert [v.verdict for v in analysis.deciding] == ["faster"]
    assert len(analysis.experiment.complete_runs()) == 8
    assert not analysis.experiment.oddities
    files = [path for path in RESULT.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 500_000
    for path in files:
        text = path.read_text("utf-8")
        assert not any(word in text for word in ("/home", "/root", "/tmp", "password", "secret")), path
