"""Keystone alone against Keystone in Apache, as configs/reference/keystone-apache-2014.yml's document has it. Pure.

A line holds what Rally prints of one configuration at one concurrency; its last value is the document's column "apache
enabled keystone".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from analysis.record import Level, Treatment
from analysis.tables import Block, Row

if TYPE_CHECKING:
    from analysis.reference import Line, Measured

Values = Mapping[tuple[str, Level], Level]
"""Mean time of an authentication, by table and "apache enabled keystone"."""

MEAN = 1
"""Place of the column "avg (sec)", of which the document's "4x" is."""
ALONE, ONE_PROCESS, IN_APACHE = "N", "Y (1 process)", "Y"
STEPS = (
    ("Apache instead of one process", ALONE, IN_APACHE),
    ("of that, another front end", ALONE, ONE_PROCESS),
    ("of that, more processes", ONE_PROCESS, IN_APACHE),
)
"""What is said of each table, and the two configurations whose quotient it is. The last two multiply to the first."""
Interval = Callable[[str | None, str | None], tuple[float, float] | None]
"""Of the ratio of two treatments' mean times, after / before, by their keys; None where there is none."""
ACTION = "action"
"""Head of Rally's first column."""


def context(levels: Treatment) -> str:
    """Rally's context and runner, of ours: what stays the same, and the levels of the table. Without what is unknown.

    Rally's `concurrent` is how many users it made at once; here none is made by requests.
    """
    users = {"tenants": levels.get("dataset.projects"), "users_per_tenant": levels.get("dataset.users_per_project")}
    runner = {"concurrency": levels.get("load.users"), "times": levels.get("load.requests"), "type": "constant"}
    known = {"context": {"users": _known(users)}, "runner": _known(runner)}
    return str(known)


def _known(values: Mapping[str, Level]) -> dict[str, Level]:
    return {name: value for name, value in values.items() if value is not None}


def quotient(before: Level, after: Level) -> float | None:
    """By how much a mean time became better: before / after; None where one is missing."""
    if not isinstance(before, int | float) or not isinstance(after, int | float) or not after:
        return None
    return before / after


def times(value: float | None) -> str:
    """ "3.3x", rounded as the document's "4x" would be to one digit more; a dash for None."""
    return "–" if value is None else f"{value:.1f}x"


def quotients(lines: Sequence[Line]) -> Iterator[tuple[str, str, float | None, float | None]]:
    """(table, step, published, here) for each table and each of STEPS, in their order."""
    published: Values = {(line.table, line.published[-1]): line.published[MEAN] for line in lines}
    here: Values = {(line.table, line.published[-1]): line.here[MEAN] for line in lines}
    for table in dict.fromkeys(line.table for line in lines):
        for step, before, after in STEPS:
            theirs, ours = (quotient(side.get((table, before)), side.get((table, after))) for side in (published, here))
            yield table, step, theirs, ours


def block(lines: Sequence[Line]) -> Block:
    """How many times as fast, by the mean time: theirs and ours, and what of ours is whose."""
    rows = [
        Row(f"{table}: {step}", (times(theirs), times(ours)), decides=step == STEPS[0][0])
        for table, step, theirs, ours in quotients(lines)
    ]
    return Block("How many times as fast: avg (sec) before / after", ("published", "here"), tuple(rows))


def sentences(lines: Sequence[Line], interval: Interval) -> list[str]:
    """The document's "4x" of each table: ours with its interval, and the published beside it."""
    whose = {(line.table, line.published[-1]): line.treatment for line in lines}
    return [
        f"{table[:1].upper()}{table[1:]}: {_sentence(ours)}"
        f"{_sure(interval(whose.get((table, ALONE)), whose.get((table, IN_APACHE))))} Published: {times(theirs)}."
        for table, step, theirs, ours in quotients(lines)
        if step == STEPS[0][0]
    ]


def _sure(bounds: tuple[float, float] | None) -> str:
    """What the runs allow, of the ratio of the mean times after / before."""
    if bounds is None:
        return " How much runs differ by themselves is not known from so few."
    low, high = (1 / bound for bound in reversed(bounds))
    doubt = ", so there may be no difference" if low <= 1 <= high else ""
    return f" From run to run it may be {times(low)} to {times(high)}{doubt}."


def _sentence(ours: float | None) -> str:
    if ours is None:
        return "running keystone inside apache was not measured here, or not without it."
    word = "better" if ours >= 1 else "the"
    return f"running keystone inside apache gives {times(ours)} {word} performance for this setup."


def graph_file(levels: Treatment, enabled: str) -> str:
    """Where the graphs of a line are, as the document names them: times_10000_concurrency_4_apacheEnabledKeystone_N."""
    words = re.sub(r"\W+", "_", enabled).strip("_")
    times_, concurrency = levels.get("load.requests"), levels.get("load.users")
    return f"authenticate/times_{times_}_concurrency_{concurrency}_apacheEnabledKeystone_{words}.html"


def files(measured: Measured) -> dict[str, str]:
    """authenticate.rst, the document's page with our numbers. Doubts stand first, as nobody copies a page in parts."""
    doubts = [f"**These numbers cannot be trusted.** {doubt}" for doubt in measured.doubts]
    summary = [
        "Summary\n-------",
        "\n".join(f"- {sentence}" for sentence in sentences(measured.lines, measured.interval)),
    ]
    setup = ["Setup\n-----", measured.conditions]
    results = [part for number, table in enumerate(measured.tables, 1) for part in _result(number, table, measured)]
    title = "=========\nBenchmark\n=========\nAuthenticate users with keystone to get tokens."
    parts = [title, *doubts, *summary, *setup, "Results\n-------", *results]
    return {"authenticate.rst": "\n\n".join(parts) + "\n"}


def _result(number: int, table: Block, measured: Measured) -> Iterator[str]:
    head, _, about = table.title.partition(" · ")
    yield f"{number}. {head}"
    yield f"``{about}``"
    yield grid_table([(ACTION, *table.columns), *((row.head, *row.cells) for row in table.rows)])
    graphs = measured.graphs.get(head, ())
    if graphs:
        yield "Graphs"
        yield "\n".join(f"- ./{name}" for name in graphs)


def grid_table(rows: Sequence[Sequence[str]]) -> str:
    """Rows as reStructuredText draws a table; the first is its head."""
    widths = [max(len(cell) for cell in column) + 2 for column in zip(*rows, strict=True)]
    rule = "+" + "+".join("-" * width for width in widths) + "+"
    lines = [rule]
    for row in rows:
        lines += ["|" + "|".join(f" {cell}".ljust(width) for cell, width in zip(row, widths, strict=True)) + "|", rule]
    return "\n".join(lines)
