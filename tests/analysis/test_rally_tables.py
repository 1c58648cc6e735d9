"""Rally's page about Keystone in Apache: its own numbers come out as it says, and ours in its shape."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest

from analysis import pages, rally_tables, reference, report
from analysis.decide import Analysis
from analysis.reference import Line, Measured
from analysis.tables import Block, Row, plain_rows
from harness import reference as reference_files
from harness.install import REPOSITORY
from tests.analysis import synthetic
from tests.analysis.test_reference import USERS, analysed

PUBLISHED = reference_files.read("keystone-apache-2014")
PAGE = """
| action | min (sec) | avg (sec) | max (sec) | 90 percentile | 95 percentile | success | count |apache enabled keystone|
| total | 0.537 | 0.998 | 4.553 | 1.233 | 1.391 | 100.0% | 10000 | N |
| total | 0.208 | 0.299 | 3.228 | 0.437 | 0.485 | 100.0% | 10000 | Y |
| total | 1.036 | 3.905 | 11.254 | 5.258 | 5.700 | 100.0% | 10000 | N |
| total | 0.515 | 0.970 | 2.076 | 1.113 | 1.192 | 100.0% | 10000 | Y |
| total | 1.493 | 7.752 | 16.007 | 10.428 | 11.183 | 100.0% | 10000 | N |
| total | 1.115 | 1.986 | 6.224 | 2.133 | 2.244 | 100.0% | 10000 | Y |
"""
"""The rows of the published page."""
SERVERS = {1: "N", 2: "Y"}
EMPTY = (None,) * 7


def cells(line: str) -> tuple[str, ...]:
    return tuple(cell.strip() for cell in line.strip("|").split("|"))


def as_if_measured_here() -> list[Line]:
    rows = [(t["title"], r["head"], tuple(r["published"])) for t in PUBLISHED["tables"] for r in t["rows"]]
    return [Line(table, head, values, values) for table, head, values in rows]


@pytest.fixture
def measured(small_copy: Path) -> Analysis:
    """The synthetic experiment in place of ours: 1 process is N, 2 are Y, and nothing is between them."""
    tables = []
    for table in PUBLISHED["tables"]:
        n, between, y = table["rows"]
        levels = ({synthetic.PROCESSES: 1}, {synthetic.PROCESSES: 3}, {synthetic.PROCESSES: 2})
        rows = [{**row, "at": at} for row, at in zip((n, between, y), levels, strict=True)]
        tables.append({**table, "rows": rows})
    constant = {"dataset.projects": 12, "dataset.users_per_project": 512, "load.requests": 320}
    return analysed(small_copy, {**PUBLISHED, "tables": tables}, held_constant=constant)


def test_the_published_numbers_are_those_of_the_page(measured: Analysis) -> None:
    theirs = [block for block in reference.blocks(measured) if ", published" in block.title]
    rows = [row for block in theirs for row in list(plain_rows(block))[1:]]
    assert [next(iter(plain_rows(block))) for block in theirs] == [cells(PAGE.splitlines()[1])] * 3
    assert rows == [cells(line) for line in PAGE.splitlines()[2:]]
    assert [block.title for block in theirs] == [
        f"Concurrency = {c}, published · {{'context': {{'users': {{'concurrent': 30, 'tenants': 12, "
        f"'users_per_tenant': 512}}}}, 'runner': {{'concurrency': {c}, 'times': 10000, 'type': 'constant'}}}}"
        for c in (4, 16, 32)
    ]


def test_the_published_numbers_give_the_published_factors() -> None:
    rows = [row.cells for row in rally_tables.block(as_if_measured_here()).rows if row.decides]
    assert rows == [(words, words) for words in ("3.3x", "4.0x", "3.9x")]
    assert rally_tables.sentences(as_if_measured_here(), lambda before, after: None) == [
        f"Concurrency = {c}: running keystone inside apache gives {x} better performance for this setup. "
        f"How much runs differ by themselves is not known from so few. Published: {x}."
        for c, x in ((4, "3.3x"), (16, "4.0x"), (32, "3.9x"))
    ]


def test_the_chain_divides_the_whole_between_the_front_end_and_the_processes() -> None:
    values = {"N": 1.2, "Y (1 process)": 1.5, "Y": 0.5}
    lines = [Line("c = 4", "total", (*EMPTY, name), (0.1, mean, 9.0, None, None, None, None, name))
             for name, mean in values.items()]  # fmt: skip
    assert [(step, theirs, ours) for _, step, theirs, ours in rally_tables.quotients(lines)] == [
        ("Apache instead of one process", None, pytest.approx(2.4)),
        ("of that, another front end", None, pytest.approx(0.8)),
        ("of that, more processes", None, pytest.approx(3.0)),
    ]
    slower = [dataclasses.replace(line, here=(0.1, 1 / (line.here[1] or 1), *line.here[2:])) for line in lines]  # type: ignore[operator]
    wanted = "gives 0.4x the performance for this setup. From run to run it may be 0.2x to 2.0x, so there may be no "
    assert wanted in rally_tables.sentences(slower, lambda before, after: (0.5, 4.0))[0]
    assert "was not measured here" in rally_tables.sentences(lines[:2], lambda before, after: None)[0]


def test_ours_has_their_shape_and_our_context(measured: Analysis) -> None:
    ours = next(block for block in reference.blocks(measured) if block.title.startswith("Concurrency = 4, here"))
    head, n, between, y = plain_rows(ours)
    assert ours.title.endswith(
        "{'context': {'users': {'tenants': 12, 'users_per_tenant': 512}}, "
        "'runner': {'concurrency': 4, 'times': 320, 'type': 'constant'}}"
    )
    assert head == cells(PAGE.splitlines()[1])
    assert between == ("total", *["–"] * 7, "Y (1 process)")
    assert (n[0], n[-1], y[0], y[-1]) == ("total", "N", "total", "Y")
    values = measured.by_treatment
    for row, processes in ((n, 1), (y, 2)):
        (key,) = [
            key for key, levels in measured.experiment.treatments.items()
            if levels == {synthetic.PROCESSES: processes, USERS: 4}
        ]  # fmt: skip
        rows = values[(values["treatment"] == key) & (values["endpoint"] == "all requests")]
        of = dict(zip(rows["metric"], rows["value"], strict=True))
        assert row[1:6] == tuple(f"{of[name] / 1000:.3f}" for name in ("min", "mean", "max", "p90", "p95"))
        assert row[6:8] == (f"{of['success_ratio']:.1%}", f"{of['count']:.0f}")


def test_the_report_says_it_and_the_page_is_written_with_what_it_links_to(measured: Analysis, tmp_path: Path) -> None:
    folder = report.write([measured], tmp_path / "report").parent
    page = (folder / "index.html").read_text("utf-8")
    for text in (page, (folder / "report.md").read_text("utf-8")):
        for wanted in ("Published: 3.3x.", "Published: 4.0x.", "eventlet", "another machine and another release"):
            assert wanted in text
    assert len(page.encode()) < pages.LARGEST_PAGE_BYTES
    document = (folder / "authenticate.rst").read_text("utf-8")
    assert "1. Concurrency = 4, here\n\n``{'context'" in document
    linked = re.findall(r"^- \./(\S+)$", document, re.MULTILINE)
    assert linked == [f"authenticate/times_320_concurrency_{c}_apacheEnabledKeystone_{s}.html"
                      for c in (4, 16) for s in "NY"]  # fmt: skip
    for name in linked:
        graphs = (folder / name).read_text("utf-8")
        assert "<svg" in graphs and "<script" not in graphs and "Load profile" in graphs
    both = report._published_files([measured, measured], reference.files)
    name = f"keystone-processes-{measured.experiment.folder.name}"
    assert list(both) == [f"{name}/authenticate.rst", f"{name}-2/authenticate.rst"]


def test_the_interval_is_that_of_the_comparison(demo_analysis: Analysis) -> None:
    (c,) = [
        c for c in demo_analysis.comparisons
        if c.metric.name == "mean" and c.endpoint == "all requests" and c.pair.treatment[USERS] == 16
    ]  # fmt: skip
    assert reference._interval(demo_analysis, *c.keys) == (c.effect.low, c.effect.high)
    assert c.effect.low is not None and c.effect.low < 1  # two processes are faster
    assert reference._interval(demo_analysis, *reversed(c.keys)) is None


def test_doubts_go_with_the_page() -> None:
    table = Block("Concurrency = 4, here · {}", ("avg (sec)",), (Row("total", ("0.998",)),), "action")
    text = rally_tables.files(
        Measured(as_if_measured_here(), [table], "cache dict", ["It died."], {}, lambda b, a: None)
    )["authenticate.rst"]
    assert "**These numbers cannot be trusted.** It died." in text
    assert (
        "+--------+-----------+\n| action | avg (sec) |\n+--------+-----------+\n| total  | 0.998     |\n+---" in text
    )


@pytest.mark.parametrize(
    ("levels", "enabled", "name"),
    [
        ({"load.requests": 10000, "load.users": 4}, "N", "times_10000_concurrency_4_apacheEnabledKeystone_N.html"),
        ({"load.requests": 9, "load.users": 1}, "Y (1 ../x)", "times_9_concurrency_1_apacheEnabledKeystone_Y_1_x.html"),
    ],
)
def test_graphs_are_named_as_the_page_names_them(levels: Any, enabled: str, name: str) -> None:
    assert rally_tables.graph_file(levels, enabled) == f"authenticate/{name}"


def test_the_experiment_measures_every_line_of_the_tables() -> None:
    """One treatment for each line, of the experiment as it stands."""
    from harness import validate

    experiment = validate.read(REPOSITORY / "configs/experiments/seed-keystone-apache.yml")
    treatments = experiment.treatments()
    wanted = [{**table["at"], **row["at"]} for table in PUBLISHED["tables"] for row in table["rows"]]
    assert [sum(treatment == at for treatment in treatments) for at in wanted] == [1] * 9 == [1] * len(treatments)
