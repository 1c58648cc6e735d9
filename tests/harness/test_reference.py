"""Files of published results: what is wrong with one is said before anything runs."""

from pathlib import Path

import pytest

from harness import reference, runner
from harness.configuration import ConfigurationError
from harness.validate import read

SEED = Path(__file__).resolve().parents[2] / "configs/experiments/seed-keystone-token-formats.yml"
GOOD = """
title: t
url: https://example.org
hardware: h
software: s
columns: [{head: a, quantity: count}, {head: b}]
tables: [{title: x, rows: [{head: r, published: [1, "N"]}]}]
"""


@pytest.mark.parametrize("name", reference.names())
def test_every_file_of_the_repository_is_right(name: str) -> None:
    assert reference.read(name)["tables"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('[1, "N"]', "[1]", "table 'x', row 'r': 1 values for 2 columns"),
        ("count}", "cuont}", "there is no 'cuont'; there are: .*did you mean count?"),
        ("https:", "javascript:", "url"),
        ("hardware: h\n", "", "hardware"),
        ("title: t\n", "title: t\nsummary: poem\n", "there is no 'poem'"),
        ("title: t\n", "title: [\n", "expected"),
    ],
)
def test_a_file_that_is_wrong_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: str, new: str, message: str
) -> None:
    monkeypatch.setattr(reference, "FOLDER", tmp_path)
    (tmp_path / "mine.yml").write_text(GOOD)
    assert reference.read("mine")["columns"][1]["quantity"] is None
    (tmp_path / "mine.yml").write_text(GOOD.replace(old, new))
    with pytest.raises(ConfigurationError, match=rf"(?s)mine\.yml: .*{message}"):
        reference.read("mine")


def test_the_record_holds_what_the_file_says() -> None:
    described = runner.describe(read(SEED))
    assert described.reference == reference.read("keystone-token-formats-2015")
    assert described.source is not None
    assert described.reference["url"] == described.source["url"]


def test_options_belong_to_any_workload_that_the_experiment_varies() -> None:
    options = read(SEED).at({"workload": "keystone_validate"}).options
    assert options["keystone_validate"] == {"connection": "new", "token_pool": 1}
