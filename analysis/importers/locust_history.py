"""PREFIX_stats_history.csv: users and rates over time, of all requests.

The rates are Locust's own: each is the mean of about ten seconds that ended two seconds before, in every version
(StatsEntry.current_rps). Its percentiles are not read: those of 0.13, 0.14 and later of --csv-full-history are over
such a window, the others since the start, and the columns are the same.
"""

from __future__ import annotations

import itertools
import statistics
from pathlib import Path

import pandas as pd

from analysis import load
from analysis.importers.csv_rows import Row, read_table
from analysis.importers.locust_stats import FAILURE_COUNT, FAILURE_RATE, RATE, REQUEST_COUNT, Summary, is_total
from analysis.importers.oddities import Oddities
from analysis.metrics import ALL_REQUESTS
from analysis.record import RecordError

HISTORY = "_stats_history.csv"
USERS = ("User Count", "User count")
COUNT = ("Total Request Count", *REQUEST_COUNT)
FAILED = ("Total Failure Count", *FAILURE_COUNT)
PERCENTILES = ("50%", "90%", "95%", "99%", "100%")
LONGEST_STEP_S = 5
"""Between two lines; Locust writes one every second or every two."""


def read_history(run: int, prefix: Path, summaries: list[Summary], oddities: Oddities) -> pd.DataFrame:
    """Of one run: load.HISTORY_COLUMNS, a row a line for all requests. Empty without a usable file."""
    file = prefix.with_name(prefix.name + HISTORY)
    rows = _total_rows(file, oddities) if file.is_file() else []
    _check_counts(rows, summaries, file.name, oddities)
    if not rows or not _clock_runs_on(rows, file.name, oddities):
        return load.empty_frame(load.HISTORY_COLUMNS)
    points = [{"run": run} | _point(row, earlier) for earlier, row in zip([None, *rows], rows, strict=False)]
    frame = pd.DataFrame(points, columns=list(load.HISTORY_COLUMNS))
    return frame.astype({"second": "int64", "users": "float64", "throughput": "float64", "failures": "float64"})


def _total_rows(file: Path, oddities: Oddities) -> list[Row]:
    try:
        table = read_table(file, oddities)
    except RecordError:
        oddities.note(file.name, "cannot be read; left out")
        return []
    needed = {"Timestamp", "Name", *RATE}
    if not needed <= set(table.columns):
        oddities.note(file.name, f"lacks {', '.join(sorted(needed - set(table.columns)))}; left out")
        return []
    rows = []
    for row in table.rows:
        if not is_total(row):
            continue
        if row.count("Timestamp") is None or row.number(*RATE) is None:
            oddities.note(file.name, "a line without a time or a rate; left out", row.line)
            continue
        rows.append(row)
    return rows


def _point(row: Row, earlier: Row | None) -> dict[str, float | None]:
    rate, failing = row.number(*RATE), row.number(*FAILURE_RATE)
    before = earlier.count(*COUNT) or 0 if earlier else 0
    # In a run's first seconds the window lies before it, and the rate is written as zero all the same.
    if not rate and (row.count(*COUNT) or 0) > before:
        rate = failing = None
    known = rate is not None and failing is not None and rate >= failing
    return {
        "second": row.count("Timestamp"),
        "users": row.number(*USERS),
        "throughput": rate - failing if known and rate is not None and failing is not None else None,
        "failures": failing,
    }


def _clock_runs_on(rows: list[Row], file: str, oddities: Oddities) -> bool:
    """False where the clock was set back: what happened when is then unknown. A jump is said and kept."""
    seconds = [row.count("Timestamp") or 0 for row in rows]
    steps = [later - earlier for earlier, later in itertools.pairwise(seconds)]
    usual = statistics.median_low(steps) if steps else 1
    for row, step in zip(rows[1:], steps, strict=True):
        if step < 0:
            oddities.note(file, f"the clock goes back by {-step:,} s; the timeline is left out", row.line)
        elif step > max(LONGEST_STEP_S, 5 * usual):
            oddities.note(
                file, f"{step:,} s without a line: the clock jumped, or the load generator stood still", row.line
            )
    return all(step >= 0 for step in steps)


def _check_counts(rows: list[Row], summaries: list[Summary], file: str, oddities: Oddities) -> None:
    for earlier, row in zip([None, *rows], rows, strict=False):
        before, count = (earlier.count(*COUNT) if earlier else None), row.count(*COUNT)
        if before is not None and count is not None and count < before:
            oddities.note(file, f"the count falls from {before:,} to {count:,}: statistics were reset, and the summary "
                          "holds what came after", row.line)  # fmt: skip
        if count and all(row.text(name) == "0" for name in PERCENTILES if name in row.fields):
            oddities.note(file, "percentiles of zero in spite of responses; they are not used", row.line)
    total = next((s.responses for s in summaries if s.endpoint == ALL_REQUESTS), None)
    last = rows[-1].count(*COUNT) if rows else None
    if total is not None and last is not None and last > total:
        what = f"counts {last:,} at its end, and the summary {total:,}: not of one run, or the summary is older"
        oddities.note(file, what, rows[-1].line, loses_data=True)
