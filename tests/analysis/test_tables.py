from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from analysis import decide, load, tables
from tests.analysis.synthetic import PROCESSES, USERS

Make = Callable[..., Path]


def analyse(folder: Path) -> decide.Analysis:
    return decide.analyse(load.load_experiment(folder))


def test_one_block_for_each_level_that_the_baseline_does_not_name(demo_analysis: decide.Analysis) -> None:
    first, second = tables.blocks(demo_analysis)
    assert (first.title, second.title) == ("users = 4, all requests", "users = 16, all requests")
    assert first.columns == ("processes = 1 (baseline)", "processes = 2", "ratio of runs [95 %]")
    assert [row.head for row in second.rows if row.decides] == ["throughput, responses/s", "verdict"]
    assert not any(row.decides for row in first.rows)


def test_only_the_primary_metric_has_a_word(demo_analysis: decide.Analysis) -> None:
    words = [
        cell for block in tables.blocks(demo_analysis) for row in block.rows for cell in row.cells if cell.isalpha()
    ]
    assert words == ["faster"]


def test_the_generators_own_numbers_have_no_ratio(demo_analysis: decide.Analysis) -> None:
    rows = {row.head: row.cells for row in tables.blocks(demo_analysis)[0].rows}
    assert rows["generator CPU, % of a core"] == ("25.0", "25.0", "")
    assert rows["server CPU per request, ms"][2] == "1.000 [1.000, 1.000]"


def test_many_treatments_are_split_with_the_baseline_repeated(make: Make) -> None:
    analysis = analyse(
        make(factors={PROCESSES: [1, 2, 3, 4], USERS: [4]}, replicates=1, primary={"metric": "throughput"})
    )
    blocks = tables.blocks(analysis, comparisons_a_block=2)
    assert [len(block.columns) for block in blocks] == [5, 3]
    assert {block.columns[0] for block in blocks} == {"processes = 1 (baseline)"}


def test_the_baseline_stands_first_whatever_its_level(make: Make) -> None:
    analysis = analyse(make(factors={PROCESSES: [1, 2, 4], USERS: [4]}, baseline={PROCESSES: 2}, replicates=1))
    (block,) = tables.blocks(analysis)
    assert block.columns[:2] == ("processes = 2 (baseline)", "processes = 1")


def test_one_endpoint_is_not_repeated(demo_analysis: decide.Analysis, make: Make) -> None:
    assert tables.endpoints(demo_analysis) == []
    assert tables.endpoints(analyse(make(endpoints=("GET /b", "GET /a"), replicates=1))) == ["GET /a", "GET /b"]


def test_terminal_markdown_and_model_hold_the_same_cells(demo_analysis: decide.Analysis) -> None:
    from rich.console import Console

    for block in tables.blocks(demo_analysis):
        console = Console(width=200)
        with console.capture() as capture:
            console.print(tables.to_terminal(block))
        markdown = tables.to_markdown(block).replace("\\", "")
        for row in block.rows:
            assert all(cell in capture.get() and cell in markdown for cell in (row.head, *row.cells))


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("a|b", "a\\|b"),
        ("<script>alert(1)</script>", "&lt;script&gt;alert(1)&lt;/script&gt;"),
        ("one\ntwo", "one two"),
        ("[x](http://y)", "\\[x\\](http://y)"),
        ("`code` *b* _i_ & co", "\\`code\\` \\*b\\* \\_i\\_ &amp; co"),
    ],
)
def test_markdown_is_escaped(text: str, escaped: str) -> None:
    assert tables.escape_markdown(text) == escaped


def test_a_command_in_a_text_of_ours_is_code() -> None:
    assert tables.markdown_of_own("Look at a_b, then `python -m x --resume *`.") == (
        "Look at a\\_b, then `python -m x --resume *`."
    )
    assert tables.markdown_of_own("one ` alone, <b>") == "one \\` alone, &lt;b&gt;"


def test_a_second_clock_that_says_the_same_is_not_shown_twice() -> None:
    def rows(*service: str) -> list[tables.Row]:
        return [tables.Row("p95 response time, ms", ("1", "2")), tables.Row("p95 service time, ms", service)]

    assert tables._without_second_clock(rows("1", "2")) == rows("1", "2")[:1]
    assert tables._without_second_clock(rows("1", "1")) == rows("1", "1")
