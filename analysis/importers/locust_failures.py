"""PREFIX_failures.csv and PREFIX_exceptions.csv: what failed, how often, and whose failure it was.

A failure of the load generator's own, or one that the locustfile declares, says nothing about the server, or only what
the locustfile's author thinks; so they are told apart from an answer of the server.
"""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd

from analysis import load
from analysis.importers.csv_rows import Table, read_table
from analysis.importers.harmless import harmless
from analysis.importers.locust_stats import Summary, endpoint_of
from analysis.importers.oddities import Oddities
from analysis.load import GENERATOR, IN_THE_LOCUSTFILE, LOCUSTFILE, RESPONSE
from analysis.metrics import ALL_REQUESTS
from analysis.record import RecordError

FAILURES, EXCEPTIONS = "_failures.csv", "_exceptions.csv"

UNNAMED = "a failure that no file beside the summary names"

_GENERATOR = re.compile(
    r"too many open files|cannot assign requested address|no buffer space available|greenletexit|"
    r"can't start new thread|memoryerror|cannot allocate memory|no file descriptors available",
    re.IGNORECASE,
)
"""EMFILE, EADDRNOTAVAIL, ENOBUFS, a user that Locust killed, no thread, no memory: of the load generator's machine, in
Linux' words, which the exceptions of all of Locust's clients carry."""
_LOCUSTFILE = re.compile(
    r"\s*(CatchResponseError|KeyError|AttributeError|TypeError|NameError|IndexError|AssertionError|"
    r"UnboundLocalError|RescheduleTask\w*|InterruptTaskSet|StopUser|StopLocust)\b"
)


def whose(error: str) -> str:
    """GENERATOR, LOCUSTFILE, or RESPONSE for everything else."""
    if _GENERATOR.search(error):
        return GENERATOR
    return LOCUSTFILE if _LOCUSTFILE.match(error) else RESPONSE


def read_failures(run: int, prefix: Path, summaries: list[Summary], oddities: Oddities) -> pd.DataFrame:
    """Failures and exceptions of one run: load.FAILED_COLUMNS.

    No file is no oddity: old versions write none. Then the summary's own counts are there, as UNNAMED.
    """
    rows = [*_failures(run, prefix, summaries, oddities), *_exceptions(run, prefix, oddities)]
    return pd.DataFrame(rows, columns=list(load.FAILED_COLUMNS)).astype({"run": "int64", "count": "int64"})


def _failures(run: int, prefix: Path, summaries: list[Summary], oddities: Oddities) -> list[dict[str, object]]:
    file = prefix.with_name(prefix.name + FAILURES)
    if not file.is_file():
        return _unnamed(run, summaries)
    found: list[dict[str, object]] = []
    table = _table(file, ("Name", "Error", "Occurrences"), oddities)
    for row in table.rows if table else []:
        count = row.count("Occurrences")
        if count is None:
            oddities.note(file.name, "a failure without a whole number of occurrences; left out", row.line)
            continue
        error = row.text("Error")
        found.append({"run": run, "endpoint": endpoint_of(row, file.name, oddities), "kind": whose(error),
                      "outcome": harmless(error, file.name, row.line, oddities), "count": count})  # fmt: skip
    total = next((s.failures for s in summaries if s.endpoint == ALL_REQUESTS), None)
    counted = sum(int(str(row["count"])) for row in found)
    if total is not None and counted != total:
        oddities.note(file.name, f"{counted:,} occurrences, and {total:,} failures in the summary")
    if found and table and table.joined_by_hand and counted != total:
        # Such a file has no end of its last line, whose number is its last field: a cut one looks like a whole one.
        oddities.note(file.name, "the last number may be cut off; its line is left out", table.rows[-1].line)
        return found[:-1]
    return found


def _unnamed(run: int, summaries: list[Summary]) -> list[dict[str, object]]:
    parts = [s for s in summaries if s.endpoint != ALL_REQUESTS] or summaries
    return [
        {"run": run, "endpoint": s.endpoint, "kind": RESPONSE, "outcome": UNNAMED, "count": s.failures}
        for s in parts
        if s.failures
    ]


def _exceptions(run: int, prefix: Path, oddities: Oddities) -> list[dict[str, object]]:
    file = prefix.with_name(prefix.name + EXCEPTIONS)
    if not file.is_file():
        return []
    found: list[dict[str, object]] = []
    table = _table(file, ("Count", "Message"), oddities)
    for row in table.rows if table else []:
        count = row.count("Count")
        if count is None:
            oddities.note(file.name, "an exception without a whole number; left out", row.line)
            continue
        text = row.text("Message")
        kind = GENERATOR if _GENERATOR.search(f"{text} {row.text('Traceback')}") else LOCUSTFILE
        found.append({"run": run, "endpoint": IN_THE_LOCUSTFILE, "kind": kind,
                      "outcome": harmless(text, file.name, row.line, oddities), "count": count})  # fmt: skip
    return found


def _table(file: Path, needed: tuple[str, ...], oddities: Oddities) -> Table | None:
    """A file that is of use without being needed: where it is none of Locust's, that is an oddity."""
    try:
        table = read_table(file, oddities)
    except RecordError:
        oddities.note(file.name, "cannot be read; left out")
        return None
    if not set(needed) <= set(table.columns):
        oddities.note(file.name, f"lacks {', '.join(n for n in needed if n not in table.columns)}; left out")
        return None
    return table
