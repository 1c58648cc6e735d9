"""Fernet against UUID tokens, in the words of configs/reference/keystone-token-formats-2015.yml's document. Pure.

A line holds the time per request in ms at one client, and the requests a second at twenty, of one format and operation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from analysis.record import Level
from analysis.tables import Block, Row

if TYPE_CHECKING:
    from analysis.reference import Line

Values = Mapping[tuple[str, str], tuple[Level, ...]]
"""By format and operation, which are a line's head and table."""

FORMATS = ("Fernet", "UUID")
OPERATIONS = ("token creation", "token validation")
MEASURES = (("response time", False), ("requests per second", True))
"""The two columns, each with whether more of it is faster."""
NO_INTERVAL = "These are single values, without an interval; which of the differences are sure is said in index.html."


def percentage(fernet: Level, uuid: Level, more_is_faster: bool) -> str | None:
    """ "13% faster": by how much Fernet differs from UUID, in percent of UUID's value; None where one is missing."""
    if not isinstance(fernet, int | float) or not isinstance(uuid, int | float) or not uuid:
        return None
    change = fernet / uuid - 1
    return f"{100 * abs(change):.0f}% {'faster' if (change > 0) == more_is_faster else 'slower'}"


def percentages(values: Values) -> Iterator[tuple[str, str, str | None]]:
    """(measure, operation, "13% faster"), in the document's order."""
    for column, (measure, more_is_faster) in enumerate(MEASURES):
        for operation in OPERATIONS:
            fernet, uuid = (values[name, operation][column] for name in FORMATS)
            yield measure, operation, percentage(fernet, uuid, more_is_faster)


def block(lines: Sequence[Line]) -> Block:
    """The four percentages, theirs and ours."""
    published = percentages({(line.head, line.table): line.published for line in lines})
    here = percentages({(line.head, line.table): line.here for line in lines})
    rows = [
        Row(f"Fernet {operation} {measure}", (theirs or "–", ours or "–"))
        for (measure, operation, theirs), (_, _, ours) in zip(published, here, strict=True)
    ]
    return Block("Fernet against UUID", ("published", "here"), tuple(rows))


def files(lines: Sequence[Line], conditions: str, doubts: Sequence[str]) -> dict[str, str]:
    """_Fernet_results.md and _UUID_results.md as the document's script writes them, and _summary.md in its words.

    `doubts` stand first in each: sentences about why the numbers cannot be trusted.
    """
    values = {(line.head, line.table): line.here for line in lines}
    warning = [f"**These numbers cannot be trusted.** {doubt}" for doubt in doubts]
    texts = {f"_{name}_results.md": list(_results(name, values)) for name in FORMATS}
    texts["_summary.md"] = list(_summary(values, conditions))
    return {name: "\n\n".join([*warning, *paragraphs]) + "\n" for name, paragraphs in texts.items()}


def _results(name: str, values: Values) -> Iterator[str]:
    for operation in OPERATIONS:
        time_ms, rate = values[name, operation]
        yield f"## {name} {operation}"
        # Blanks and digits are ab's.
        yield "Time per request:       " + ("not measured" if time_ms is None else f"{time_ms:.3f} [ms] (mean)")
        yield "Requests per second:    " + ("not measured" if rate is None else f"{rate:.2f} [#/sec] (mean)")


def _summary(values: Values, conditions: str) -> Iterator[str]:
    yield "## Response time"
    for measure, operation, words in percentages(values):
        if (measure, operation) == (MEASURES[1][0], OPERATIONS[0]):
            yield "## Requests per second"
            yield f"({conditions})"
        yield f"Fernet {operation} {measure} " + (f"is {words} than UUID." if words else "was not measured.")
    yield NO_INTERVAL
