"""The comparison table: one model, shown in the terminal, as Markdown and in HTML. Pure."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from analysis import answer, metrics, pairing
from analysis.comparison import Comparison
from analysis.decide import Analysis
from analysis.metrics import ALL_REQUESTS, Metric
from analysis.printable import printable
from analysis.record import Treatment

if TYPE_CHECKING:
    from rich.table import Table as TerminalTable


ROUNDED = " (Locust's, rounded)"


@dataclasses.dataclass(frozen=True)
class Row:
    """One metric: its name with unit, and one text for each column."""

    head: str
    cells: tuple[str, ...]
    decides: bool = False
    """The primary metric and its verdict, which are set apart."""


@dataclasses.dataclass(frozen=True)
class Block:
    """One table: the treatments that share the levels in its title."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    row_head: str = ""
    """Head of the column with the rows' heads."""


def blocks(analysis: Analysis, endpoint: str = ALL_REQUESTS, comparisons_a_block: int = 3) -> list[Block]:
    """The comparison table of one endpoint, a block for each combination of levels that the baseline does not name.

    Columns: the baseline, then for each other treatment its value and the ratio with its interval. A block holds at
    most `comparisons_a_block` treatments besides the baseline; further ones follow in another, the baseline repeated.
    """
    return [
        _block(analysis, endpoint, context, chunk)
        for context, group in _groups(analysis)
        for chunk in _chunks(group, comparisons_a_block)
    ]


def endpoints(analysis: Analysis) -> list[str]:
    """Single endpoints, where there is more than one; else they repeat ALL_REQUESTS and are left out."""
    names = [name for name in dict.fromkeys(analysis.by_treatment["endpoint"]) if name != ALL_REQUESTS]
    return names if len(names) > 1 or ALL_REQUESTS not in set(analysis.by_treatment["endpoint"]) else []


Group = list[tuple[Treatment, bool]]
"""Treatments of one context, each with whether it is the baseline; the baseline stands first."""


def _groups(analysis: Analysis) -> Iterator[tuple[Treatment, Group]]:
    baseline = analysis.experiment.record.baseline
    contexts: dict[str, tuple[Treatment, Group]] = {}
    for treatment in analysis.experiment.treatments.values():
        context = {path: level for path, level in treatment.items() if path not in baseline}
        _, group = contexts.setdefault(pairing.key(context), (context, []))
        group.append((treatment, pairing.key({**treatment, **baseline}) == pairing.key(treatment) and bool(baseline)))
    for context, group in contexts.values():
        yield context, sorted(group, key=lambda member: not member[1])


def _chunks(group: Group, size: int) -> Iterator[Group]:
    base, others = [m for m in group if m[1]], [m for m in group if not m[1]]
    if not others:
        yield group
    for start in range(0, len(others), size):
        yield base + others[start : start + size]


def _block(analysis: Analysis, endpoint: str, context: Treatment, group: Group) -> Block:
    varied = [path for path in analysis.experiment.record.factors if path not in context]
    values = _values(analysis, endpoint)
    compared = {(c.keys[1], c.metric.name): c for c in analysis.comparisons if c.endpoint == endpoint}
    columns: list[str] = []
    for treatment, is_baseline in group:
        columns.append(
            pairing.label(treatment, analysis.names, varied) + (" (baseline)" if is_baseline and len(group) > 1 else "")
        )
        columns += (
            []
            if is_baseline or not _has_pair(compared, treatment)
            else [f"ratio of runs [{answer.level_text(analysis.level)}]"]
        )
    rows: list[Row] = []
    for metric in metrics.METRICS:
        if any((pairing.key(treatment), metric.name) in values for treatment, _ in group):
            rows += _rows(analysis, metric, group, values, compared)
    rows = _without_second_clock(rows)
    title = pairing.label(context, analysis.names) if context else ""
    return Block(", ".join(part for part in (title, endpoint) if part), tuple(columns), tuple(rows))


def _without_second_clock(rows: list[Row]) -> list[Row]:
    """Rows of service time that repeat those of response time, where both clocks are one, are left out."""
    seen = {row.head: row.cells for row in rows}
    return [
        row
        for row in rows
        if row.decides
        or "service time" not in row.head
        or seen.get(row.head.replace("service time", "response time")) != row.cells
    ]


def _rows(
    analysis: Analysis,
    metric: Metric,
    group: Group,
    values: dict[tuple[str, str], float],
    compared: dict[tuple[str, str], Comparison],
) -> Iterator[Row]:
    cells, words = [], []
    for treatment, is_baseline in group:
        place = (pairing.key(treatment), metric.name)
        cells.append(metrics.format_value(metric, values.get(place)))
        words.append("")
        if not is_baseline and _has_pair(compared, treatment):
            comparison = compared.get(place)
            shown = comparison is not None and (metric.chooses or comparison.verdict is not None)
            cells.append(answer.ratio_text(comparison) if comparison is not None and shown else "")
            words.append(comparison.verdict.value if comparison is not None and comparison.verdict else "")
    decides = any(words)
    # A percentile of a summary is not a percentile of ours, and a table without its note must say so, too.
    rounded = analysis.experiment.imported and metric.samples_needed > 1
    yield Row(metric.head + ROUNDED if rounded else metric.head, tuple(cells), decides)
    if decides:
        yield Row("verdict", tuple(words), True)


def _has_pair(compared: dict[tuple[str, str], Comparison], treatment: Treatment) -> bool:
    return any(key == pairing.key(treatment) for key, _ in compared)


def _values(analysis: Analysis, endpoint: str) -> dict[tuple[str, str], float]:
    rows = analysis.by_treatment[analysis.by_treatment["endpoint"] == endpoint]
    return {(t, m): v for t, m, v in zip(rows["treatment"], rows["metric"], rows["value"], strict=True)}


# --- the same model, three ways ------------------------------------------------------------------------------------


def to_terminal(block: Block) -> TerminalTable:
    """A rich table; the rows that decide are marked by a sign as well as by weight."""
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    title = escape(printable(block.title))
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("")
    for column in block.columns:
        table.add_column(escape(printable(column)), justify="right")
    for row in block.rows:
        head = f"▸ {row.head}" if row.decides else f"  {row.head}"
        table.add_row(*(escape(printable(cell)) for cell in (head, *row.cells)), style="bold" if row.decides else None)
    return table


def to_markdown(block: Block) -> str:
    """A table of GitHub's Markdown."""
    lines = [
        [escape_markdown(block.row_head)] + [escape_markdown(column) for column in block.columns],
        ["---"] + ["--:"] * len(block.columns),
        *(_markdown_row(row) for row in block.rows),
    ]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _markdown_row(row: Row) -> list[str]:
    cells = [escape_markdown(text) for text in (row.head, *row.cells)]
    return [f"**{cell}**" if cell and row.decides else cell for cell in cells]


def escape_markdown(text: str) -> str:
    """Text that Markdown and the HTML in it leave alone, on one line."""
    return _escaped_markdown(" ".join(printable(text).split()))


def _escaped_markdown(flat: str) -> str:
    return re.sub(r"([\\`*_\[\]|#~])", r"\\\1", flat).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def markdown_of_own(text: str) -> str:
    """escape_markdown() for texts of ours, in which `a command` is code and stays it."""
    parts = re.split(r"(`[^`\\<>&]+`)", " ".join(printable(text).split()))
    return "".join(part if n % 2 else _escaped_markdown(part) for n, part in enumerate(parts))


def plain_rows(block: Block) -> Iterable[tuple[str, ...]]:
    """Header and rows as tuples of text."""
    yield (block.row_head, *block.columns)
    for row in block.rows:
        yield (row.head, *row.cells)
