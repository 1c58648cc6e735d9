"""Published results beside ours, in the published shape: tables, and the document's own words. Pure.

An experiment may name a file of configs/reference/, and experiment.json holds what that says (harness/reference.py
describes it). A value of ours stands in a cell where exactly one treatment has the levels of the cell's table, row and
column; it is that of all its runs taken together, as in the comparison table.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from analysis import pairing, token_formats
from analysis.decide import Analysis
from analysis.metrics import ALL_REQUESTS
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


@dataclasses.dataclass(frozen=True)
class Summary:
    """How a published document sums its tables up: a block with both sides, and the files that it consists of."""

    block: Callable[[Sequence[Line]], Block]
    files: Callable[[Sequence[Line], str, Sequence[str]], dict[str, str]]
    """Of ours. The second argument says in words what our server was, the third why the numbers cannot be trusted."""


SUMMARIES = {"token_formats": Summary(token_formats.block, token_formats.files)}
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
            here = [
                _here(analysis, column["quantity"], {**table["at"], **row["at"], **column["at"]})
                if column["quantity"]
                else text
                for column, text in zip(published["columns"], row["published"], strict=True)
            ]
            yield Line(table["title"], row["head"], tuple(row["published"]), tuple(here))


def _here(analysis: Analysis, quantity: str, at: Treatment) -> float | None:
    held_constant = analysis.experiment.record.held_constant
    found = [
        key
        for key, treatment in analysis.experiment.treatments.items()
        if pairing.has_levels({**held_constant, **treatment}, at)
    ]
    if len(found) != 1:
        return None
    rows = analysis.by_treatment
    rows = rows[(rows["treatment"] == found[0]) & (rows["endpoint"] == ALL_REQUESTS)].dropna(subset="value")
    values = dict(zip(rows["metric"], rows["value"], strict=True))
    users = {**held_constant, **analysis.experiment.treatments[found[0]]}.get("load.users")
    values |= {"users": users} if isinstance(users, int) else {}
    try:
        return QUANTITIES[quantity].value(values)
    except (KeyError, ZeroDivisionError):
        return None


def blocks(analysis: Analysis) -> list[Block]:
    """The published tables, each row twice, as published and as measured here; then how the document sums them up."""
    published = analysis.experiment.record.reference
    measured = lines(analysis)
    if published is None:
        return []
    heads = tuple(str(column["head"]) for column in published["columns"])
    writers = [QUANTITIES[c["quantity"]].write if c["quantity"] else "{}" for c in published["columns"]]
    found = []
    for table in published["tables"]:
        rows = [row for line in measured if line.table == table["title"] for row in _rows(line, writers)]
        title = " · ".join(text for text in (_capital(table["title"]), table["context"]) if text)
        found.append(Block(title, heads, tuple(rows)))
    if published["summary"]:
        found.append(SUMMARIES[published["summary"]].block(measured))
    return found


def _rows(line: Line, writers: Sequence[str]) -> Iterator[Row]:
    for side, values in ((PUBLISHED, line.published), (HERE, line.here)):
        cells = (_written(value, write) for value, write in zip(values, writers, strict=True))
        yield Row(f"{line.head}, {side}", tuple(cells))


def _written(value: Level, write: str) -> str:
    if value is None:
        return "–"
    return value if isinstance(value, str) else write.format(value)


def notes(analysis: Analysis) -> list[str]:
    """What stands under the tables: where they are from, and what they are not."""
    published = analysis.experiment.record.reference
    if published is None:
        return []
    return [
        f"Published: {published['title']}, {published['url']}. Hardware: {published['hardware']}. "
        f"Software: {published['software']}.",
        "It is another machine and another release: values are not comparable one by one, only which is faster, and "
        "roughly by how much.",
        *published["remarks"],
        "Here: all runs of a treatment taken together, without an interval; what is sure is said by the verdicts. "
        "A dash was not measured.",
    ]


def files(analysis: Analysis) -> dict[str, str]:
    """Further files for beside the report, as the published document has them: name to text."""
    published = analysis.experiment.record.reference
    if published is None or not published["summary"]:
        return {}
    doubts = [finding.message for finding in analysis.severe]  # who copies a file copies them, too
    return SUMMARIES[published["summary"]].files(lines(analysis), _conditions(analysis), doubts)


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
    rows = [dataclasses.asdict(line) for line in lines(analysis)]
    return {"title": published["title"], "url": published["url"], "columns": columns, "rows": rows}


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
