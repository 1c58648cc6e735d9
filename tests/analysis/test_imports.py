from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOM = Path(__file__).parents[2] / "analysis"
FILES = sorted(ROOM.rglob("*.py"))


def imported(file: Path) -> set[str]:
    """Top-level names of all modules that a file imports, anywhere in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add((node.module or "").split(".")[0])
    return names


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOM)))
def test_analysis_knows_neither_the_other_rooms_nor_locust(file: Path) -> None:
    assert not imported(file) & {"locust", "harness", "locustfiles", "gevent"}


@pytest.mark.parametrize("module", ["compare", "histograms", "intervals", "pairing"])
def test_the_cores_have_no_clock_file_or_process(module: str) -> None:
    assert not imported(ROOM / f"{module}.py") & {"time", "datetime", "os", "pathlib", "subprocess", "pandas"}
