"""The rooms may import each other in one way only, and this test is what holds it."""

import ast
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent
ROOMS = {"analysis", "harness", "locustfiles", "configs", "results", "benchmarks", "tests"}
ALLOWED = {"harness": {"analysis.record", "analysis.rules"}}
"""The format that the harness writes, and the grammar of the objectives that it has to check before a run."""


def imported_modules(source: str) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def forbidden(room: str, modules: set[str]) -> set[str]:
    allowed = ALLOWED.get(room, set())
    foreign = {name for name in modules if name.split(".")[0] in ROOMS - {room}}
    return {name for name in foreign if not any(name == a or name.startswith(a + ".") for a in allowed)}


@pytest.mark.parametrize("room", ["analysis", "harness", "locustfiles"])
def test_no_room_imports_what_it_must_not(room: str) -> None:
    files = sorted((REPOSITORY / room).rglob("*.py"))
    assert files
    found = {str(f.relative_to(REPOSITORY)): forbidden(room, imported_modules(f.read_text("utf-8"))) for f in files}
    assert {file: names for file, names in found.items() if names} == {}


def test_analysis_does_not_import_the_load_generator() -> None:
    for file in (REPOSITORY / "analysis").rglob("*.py"):
        names = {name.split(".")[0] for name in imported_modules(file.read_text("utf-8"))}
        assert not names & {"locust", "gevent"}, file


def test_what_the_harness_may_import_needs_nothing_but_the_standard_library() -> None:
    import sys

    files = [REPOSITORY / "analysis/rules.py", *(REPOSITORY / "analysis/record").glob("*.py")]
    assert len(files) > 2
    for file in files:
        others = {name for name in imported_modules(file.read_text("utf-8")) if not name.startswith("analysis.record.")}
        assert {name.split(".")[0] for name in others} <= set(sys.stdlib_module_names), file


@pytest.mark.parametrize(
    ("room", "source", "expected"),
    [
        ("harness", "from analysis import record", set()),
        ("harness", "from analysis.record import RunRecord", set()),
        ("harness", "from analysis import rules", set()),
        ("harness", "from analysis import compare", {"analysis.compare"}),
        ("harness", "import locustfiles._keystone", {"locustfiles._keystone"}),
        ("analysis", "from harness.plan import plan", {"harness.plan.plan"}),
        ("locustfiles", "import analysis", {"analysis"}),
    ],
)
def test_the_rule_itself_sees_what_is_forbidden(room: str, source: str, expected: set[str]) -> None:
    assert forbidden(room, imported_modules(source)) == expected
