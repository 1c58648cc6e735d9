"""Published results beside ours, in the published shape: tables, and the document's own words. Pure.

An experiment may name a file of configs/reference/, and experiment.json holds what that says (harness/reference.py
describes it). A value of ours stands in a cell where exactly one treatment has the levels of the cell's table, row and
column; it is that of all its runs taken together, as in the comparison table.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from analysis import pairing, rally_tables, token_formats
from analysis.decide import Analysis
from analysis.metrics import ALL_REQUESTS
from analysis.rally_tables import Interval
from analysis.record import Level, RecordError, Treatment
from analysis.tables import Block, Row

PUBLISHED, HERE = "published", "here"


@dataclasses.dataclass(frozen=True)
class Quantity:
    """What a column holds: how it follows from our metrics, and how it is written."""

    value: Callable[[Mapping[str, float]], float]
    """Of the values of metrics.METRICS by name, and "users". Raises KeyError where one is missing."""
    write: str


QUANTITIES: dict[str, Quantity] = {
    # ab: concurrency x time / requests, which is T/n for one client.
    "time_per_request_ms": Quantity(lambda m: 1000 * m["users"] / m["throughput"], "{:.3f}"),
    "requests_per_s": Quantity(lambda m: m["throughput"], "{:.2f}"),
    "min_s": Quantity(lambda m: m["min"] / 1000, "{:.3f}"),
    "mean_s": Quantity(lambda m: m["mean"] / 1000, "{:.3f}"),
    "max_s": Quantity(lambda m: m["max"] / 1000, "{:.3f}"),
    "p90_s": Quantity(lambda m: m["p90"] / 1000, "{:.3f}"),
    "p95_s": Quantity(lambda m: m["p95"] / 1000, "{:.3f}"),
    "success_ratio": Quantity(lambda m: m["success_ratio"], "{:.1%}"),
    "count": Quantity(lambda m: m["count"], "{:.0f}"),
}
"""As record.REFERENCE_QUANTITIES. Times are response times of successful requests."""


@dataclasses.dataclass(frozen=True)
class Line:
    """A row of a published table: a value for each column, theirs and ours; None where ours was not measured."""

    table: str
    head: str
    published: tuple[Level, ...]
    here: tuple[Level, ...]
    treatment: str | None = None
    """Key of ours, where every value is of one and the same."""


@dataclasses.dataclass(frozen=True)
class Graph:
    """Graphs of one treatment, in a file that the document links to."""

    treatment: str
    file: str
    title: str


@dataclasses.dataclass(frozen=True)
class Measured:
    """What a document's files are made of: ours alone."""

    lines: Sequence[Line]
    tables: Sequence[Block]
    conditions: str
    """In words, what our server was."""
    doubts: Sequence[str]
    """Why the numbers cannot be trusted, in sentences."""
    graphs: Mapping[str, Sequence[str]]
    """Names of the files with graphs, by the table's title."""
    interval: Interval


@dataclasses.dataclass(frozen=True)
class Summary:
    """How a published document sums its tables up: a block with both sides, and the files that it consists of."""

    block: Callable[[Sequence[Line]], Block]
    files: Callable[[Measured], dict[str, str]]
    sentences: Callable[[Sequence[Line], Interval], list[str]] = lambda lines, interval: []
    context: Callable[[Treatment], str] | None = None
    """What the document prints above each table, of the levels of ours. Then ours is a table of its own, as theirs."""
    graph_file: Callable[[Treatment, str], str] | None = None
    """Where the document has graphs of each line: the name of their file, of the line's levels and its last value."""
    row_head: str = ""
    """Head of the column with the rows' names, in tables of their own."""


SUMMARIES = {
    "token_formats": Summary(token_formats.block, lambda m: token_formats.files(m.lines, m.conditions, m.doubts)),
    "keystone_apache": Summary(
        rally_tables.block, rally_tables.files, rally_tables.sentences, rally_tables.context, rally_tables.graph_file,
        rally_tables.ACTION,
    ),
}  # fmt: skip
"""As record.REFERENCE_SUMMARIES."""


def lines(analysis: Analysis) -> list[Line]:
    """Every row of the tables; empty without a reference. Raises RecordError where the record's is damaged."""
    published = analysis.experiment.record.reference
    if published is None:
        return []
    try:
        return list(_lines(analysis, published))
    except (KeyError, TypeError, AttributeError) as error:
        raise RecordError(
            f"{analysis.experiment.folder}: its reference is not what configs/reference/ holds ({error!r}). "
            "The file is damaged or hand-edited."
        ) from error


def _lines(analysis: Analysis, published: Mapping[str, Any]) -> Iterator[Line]:
    for table in published["tables"]:
        for row in table["rows"]:
            measured = [
                _treatment(analysis, {**table["at"], **row["at"], **column["at"]}) if column["quantity"] else None
                for column in published["columns"]
            ]
            here = [
                _here(analysis, column["quantity"], treatment) if column["quantity"] else text
                for column, text, treatment in zip(published["columns"], row["published"], measured, strict=True)
            ]
            one = {treatment for treatment, column in zip(measured, published["columns"], strict=True)
                   if column["quantity"]}  # fmt: skip
            whose = one.pop() if len(one) == 1 else None
            yield Line(table["title"], row["head"], tuple(row["published"]), tuple(here), whose)


def _treatment(analysis: Analysis, at: Treatment) -> str | None:
    """Key of the one treatment that has these levels; None where there is none, or several."""
    found = [key for key in analysis.experiment.treatments if pairing.has_levels(levels_of(analysis, key), at)]
    return found[0] if len(found) == 1 else None


def levels_of(analysis: Analysis, treatment: str) -> Treatment:
    """Levels of a treatment by key, and all that is held constant."""
    return {**analysis.experiment.record.held_constant, **analysis.experiment.treatments[treatment]}


def _here(analysis: Analysis, quantity: str, treatment: str | None) -> float | None:
    if treatment is None:
        return None
    rows = analysis.by_treatment
    rows = rows[(rows["treatment"] == treatment) & (rows["endpoint"] == ALL_REQUESTS)].dropna(subset="value")
    values = dict(zip(rows["metric"], rows["value"], strict=True))
    users = levels_of(analysis, treatment).get("load.users")
    values |= {"users": users} if isinstance(users, int) else {}
    try:
        return QUANTITIES[quantity].value(values)
    except (KeyError, ZeroDivisionError):
        return None


def blocks(analysis: Analysis) -> list[Block]:
    """The published tables and ours, then how the document sums them up.

    Each row twice, as published and as measured here; or, where the document says above each table what was measured,
    ours as a table of its own and theirs beneath it.
    """
    published = analysis.experiment.record.reference
    measured = lines(analysis)
    if published is None:
        return []
    summary = SUMMARIES[published["summary"]] if published["summary"] else None
    found = []
    for table in published["tables"]:
        of_table = [line for line in measured if line.table == table["title"]]
        if summary and summary.context:
            found += [_ours(analysis, table, of_table), _theirs(published, table, of_table, summary.row_head)]
        else:
            heads, writers = _columns(published)
            rows = [row for line in of_table for row in _rows(line, writers)]
            title = " · ".join(text for text in (_capital(table["title"]), table["context"]) if text)
            found.append(Block(title, heads, tuple(rows)))
    return [*found, summary.block(measured)] if summary else found


def _columns(published: Mapping[str, Any]) -> tuple[tuple[str, ...], list[str]]:
    """Heads of the columns, and how their values are written."""
    writers = [QUANTITIES[c["quantity"]].write if c["quantity"] else "{}" for c in published["columns"]]
    return tuple(str(column["head"]) for column in published["columns"]), writers


def _ours(analysis: Analysis, table: Mapping[str, Any], measured: Sequence[Line]) -> Block:
    published: Mapping[str, Any] = analysis.experiment.record.reference or {}
    summary = SUMMARIES[published["summary"]]
    levels = {**analysis.experiment.record.held_constant, **table["at"]}
    about = summary.context(levels) if summary.context else ""
    heads, writers = _columns(published)
    rows = [Row(line.head, _cells(line.here, writers)) for line in measured]
    title = f"{_capital(table['title'])}, {HERE} · {about}{_replicates(analysis)}"
    return Block(title, heads, tuple(rows), summary.row_head)


def _replicates(analysis: Analysis) -> str:
    runs = analysis.experiment.record.replicates
    return f", {runs} times" if runs > 1 else ""


def _theirs(published: Mapping[str, Any], table: Mapping[str, Any], measured: Sequence[Line], head: str) -> Block:
    """Lines with a number alone: what was not published has no place in what was."""
    heads, writers = _columns(published)
    numbers = [place for place, column in enumerate(published["columns"]) if column["quantity"]]
    shown = [line for line in measured if any(line.published[place] is not None for place in numbers)]
    rows = tuple(Row(line.head, _cells(line.published, writers)) for line in shown)
    return Block(f"{_capital(table['title'])}, {PUBLISHED} · {table['context']}", heads, rows, head)


def _rows(line: Line, writers: Sequence[str]) -> Iterator[Row]:
    for side, values in ((PUBLISHED, line.published), (HERE, line.here)):
        yield Row(f"{line.head}, {side}", _cells(values, writers))


def _cells(values: Sequence[Level], writers: Sequence[str]) -> tuple[str, ...]:
    return tuple(_written(value, write) for value, write in zip(values, writers, strict=True))


def _written(value: Level, write: str) -> str:
    if value is None:
        return "–"
    return value if isinstance(value, str) else write.format(value)


def notes(analysis: Analysis) -> list[str]:
    """What stands under the tables: the document's sentence, where they are from, and what they are not."""
    published = analysis.experiment.record.reference
    if published is None:
        return []
    summary = SUMMARIES[published["summary"]] if published["summary"] else None
    said = summary.sentences(lines(analysis), functools.partial(_interval, analysis)) if summary else []
    return [
        *said,
        f"Published: {published['title']}, {published['url']}. Hardware: {published['hardware']}. "
        f"Software: {published['software']}.",
        "It is another machine and another release: values are not comparable one by one, only which is faster, and "
        "roughly by how much.",
        *published["remarks"],
        "Here: all runs of a treatment taken together, without an interval; what is sure is said by the verdicts. "
        "A dash was not measured.",
    ]


def graphs(analysis: Analysis) -> list[Graph]:
    """Graphs that the document has of each line, of those of ours that were measured; in the document's order."""
    published = analysis.experiment.record.reference
    name = SUMMARIES[published["summary"]].graph_file if published and published["summary"] else None
    if name is None:
        return []
    return [
        Graph(line.treatment, name(levels_of(analysis, line.treatment), str(line.here[-1])),
              f"Durations, load profile and histogram: {analysis.label(line.treatment)}")
        for line in lines(analysis)
        if line.treatment is not None
    ]  # fmt: skip


def files(analysis: Analysis) -> dict[str, str]:
    """Further files for beside the report, as the published document has them: name to text."""
    published = analysis.experiment.record.reference
    if published is None or not published["summary"]:
        return {}
    summary, measured = SUMMARIES[published["summary"]], lines(analysis)
    doubts = [finding.message for finding in analysis.severe]  # who copies a file copies them, too
    by_title = {
        table["title"]: [line for line in measured if line.table == table["title"]] for table in published["tables"]
    }
    tables = [_ours(analysis, t, by_title[t["title"]]) for t in published["tables"]] if summary.context else []
    files_of = {graph.treatment: graph.file for graph in graphs(analysis)}
    drawn = {
        f"{_capital(title)}, {HERE}": [files_of[line.treatment] for line in part if line.treatment in files_of]
        for title, part in by_title.items()
    }
    return summary.files(Measured(measured, tables, _conditions(analysis), doubts, drawn,
                                  functools.partial(_interval, analysis)))  # fmt: skip


def _interval(analysis: Analysis, before: str | None, after: str | None) -> tuple[float, float] | None:
    """Interval of the ratio of two treatments' mean times, by key, where they are compared; after / before."""
    for c in analysis.comparisons:
        if (c.metric.name, c.endpoint, *c.keys) == ("mean", ALL_REQUESTS, before, after):
            return None if c.effect.low is None or c.effect.high is None else (c.effect.low, c.effect.high)
    return None


def _conditions(analysis: Analysis) -> str:
    """What stays the same of our server, in place of the document's "default devstack configuration"."""
    prefix = "server."
    constant = analysis.experiment.record.held_constant
    server = {path.rsplit(".", 1)[-1]: value for path, value in constant.items() if path.startswith(prefix)}
    return ", ".join(
        f"{name} {value if isinstance(value, str) else json.dumps(value)}" for name, value in server.items()
    )


def json_of(analysis: Analysis) -> dict[str, Any] | None:
    """For verdicts.json: title, url, and every row with both sides; None without a reference."""
    published = analysis.experiment.record.reference
    if published is None:
        return None
    columns = [{"head": c["head"], "quantity": c["quantity"]} for c in published["columns"]]
    sides = ("table", "head", "published", "here")
    rows = [{name: getattr(line, name) for name in sides} for line in lines(analysis)]
    return {"title": published["title"], "url": published["url"], "columns": columns, "rows": rows}


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
