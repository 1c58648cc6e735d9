"""What was measured in one run: its files, reduced to sums as soon as they are read.

Frames, one run each:

response_times  HISTOGRAM_COLUMNS; phase is "warm_up", "steady_state" or "outside"
timeline        TIMELINE_COLUMNS; second (Unix), offset_s (from the start of steady state), response_us (sum of the
                response times of these responses)
usage           run and record.USAGE_COLUMNS
exceptions      EXCEPTION_COLUMNS: what the locustfile raised, by Locust's own CSV
machine         run and record.MACHINE_COLUMNS
"""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import io
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis import reduction, response_rows, server_counts
from analysis.csv_tables import Oddity, concat, empty_frame, parsed, read_table
from analysis.fingerprints import Fingerprint, fingerprint
from analysis.generator import Health, read_health
from analysis.machine import MACHINE_FRAME, read_machine
from analysis.record import (
    LARGEST_NUMBER,
    RESPONSE_TIME_COLUMNS,
    STEADY_STATE,
    USAGE_COLUMNS,
    WARM_UP,
    RunRecord,
    listed_files,
)
from analysis.reduction import Reduced
from analysis.server_counts import Answers

OUTSIDE = "outside"
RESPONSE_TIMES = ("response_times", "response_times/*.csv")
"""Role and pattern of the histograms."""

HISTOGRAM_COLUMNS = ("run", "phase", "endpoint", "outcome", "clock", "bucket_us", "count")
TIMELINE_COLUMNS = ("run", "second", "offset_s", "phase", "endpoint", "outcome", "count", "response_us")
TOTALS_COLUMNS = ("run", "recorded", "locust")
EXCEPTION_COLUMNS = ("run", "message", "count")

TABLES: dict[str, tuple[str, ...]] = {
    "response_times": HISTOGRAM_COLUMNS,
    "timeline": TIMELINE_COLUMNS,
    "usage": ("run", *USAGE_COLUMNS),
    "exceptions": EXCEPTION_COLUMNS,
    "machine": MACHINE_FRAME,
}
"""Columns of the tables of a run, by name."""


@dataclasses.dataclass(frozen=True, eq=False)
class Measurements:
    """One run in memory."""

    run: int
    tables: dict[str, pd.DataFrame]
    """Those of TABLES."""
    health: Health | None
    """How the load generator fared; None where nobody could tell."""
    totals: tuple[int, int, float | None]
    """TOTALS_COLUMNS: responses of the whole run, by the histograms and by Locust's own CSV."""
    fingerprints: tuple[Fingerprint, ...]
    """What tells copies: of steady state, and of each file of response times."""
    oddities: tuple[Oddity, ...]
    reduced: Reduced
    answers: Answers | None
    """As the server's own log counts them, and the generator; None without such a log."""


LARGE = frozenset({"response_times", "timeline", "usage"})
"""Tables that are as long as a run, or longer; `reduced` holds what is asked of them."""


def read_reduced(path: Path, run: RunRecord) -> Measurements:
    """As read(), without the LARGE tables: to be sent from one process to another, or kept of a thousand runs."""
    measured = read(path, run)
    small = {name: table for name, table in measured.tables.items() if name not in LARGE}
    return dataclasses.replace(measured, tables=small)


def read(path: Path, run: RunRecord) -> Measurements:
    """Read the files of one run's folder; what is damaged in them is left out and becomes an Oddity."""
    oddities = list(_unlisted(path, run))
    parts = _histograms(path, run, oddities)
    rows = concat([part for _, part in parts], RESPONSE_TIME_COLUMNS)
    rows["phase"] = _phases(rows["second"], run)
    rows.insert(0, "run", run.number)
    usage = _usage(path, run, oddities)
    usage.insert(0, "run", run.number)
    timeline = _timeline(rows, run)
    histograms = _added(rows, HISTOGRAM_COLUMNS, ["count"])
    varied = _varied(histograms)
    prints = [fingerprint(name, part, _first(part), varied) for name, part in parts]
    locust = role_files(path, run, "locust", "locust/*.csv")
    health = read_health(role_files(path, run, "health", "response_times/*.health.jsonl"), run.windows[STEADY_STATE])
    tables = {
        "response_times": histograms,
        "timeline": timeline,
        "usage": usage,
        "exceptions": _exceptions(locust, run.number),
        "machine": read_machine(role_files(path, run, "machine", "machine.csv"), run.number),
    }
    answers = server_counts.read(
        path, run, rows, role_files(path, run, *server_counts.WARM_UP_RESPONSE_TIMES),
        role_files(path, run, *server_counts.SERVER_COUNTS), oddities,
    )  # fmt: skip
    return Measurements(
        run=run.number,
        tables=tables,
        health=health,
        totals=(run.number, int(timeline["count"].sum()), _locust_total(locust)),
        fingerprints=(*prints, _steady_fingerprint(timeline, run, varied)),
        oddities=tuple(oddities),
        reduced=reduction.of_run(path, run, tables, health, locust),
        answers=answers,
    )


def read_seconds(path: Path, run: RunRecord, oddities: list[Oddity]) -> pd.DataFrame:
    """Histograms of one run by the second, RESPONSE_TIME_COLUMNS, of all its processes."""
    return concat([rows for _, rows in _histograms(path, run, oddities)], RESPONSE_TIME_COLUMNS)


def _histograms(path: Path, run: RunRecord, oddities: list[Oddity]) -> list[tuple[str, pd.DataFrame]]:
    """Each file's name and usable rows."""
    parts = []
    for file in role_files(path, run, *RESPONSE_TIMES):
        said: list[Oddity] = []
        rows = read_table(file, RESPONSE_TIME_COLUMNS, run.number, path, said)
        name = str(file.relative_to(path)) if file.is_relative_to(path) else file.name
        is_torn = any(not oddity.loses_data for oddity in said)
        parts.append((file.name, response_rows.checked(rows, response_rows.sayer(run.number, name, said), is_torn)))
        oddities += said
    return parts


def _usage(path: Path, run: RunRecord, oddities: list[Oddity]) -> pd.DataFrame:
    """USAGE_COLUMNS; folders of before have no `part`, which is "" then."""
    tables = []
    for file in role_files(path, run, "usage", "usage.csv"):
        has_parts = _header(file)[-1:] == [USAGE_COLUMNS[-1]]
        columns = USAGE_COLUMNS if has_parts else USAGE_COLUMNS[:-1]
        rows = read_table(file, columns, run.number, path, oddities)
        if not has_parts:
            rows[USAGE_COLUMNS[-1]] = pd.Categorical([""] * len(rows), categories=[""])
        tables.append(rows)
    return concat(tables, USAGE_COLUMNS)


def _header(file: Path) -> list[str]:
    with contextlib.suppress(OSError), file.open(encoding="utf-8", errors="replace") as stream:
        return stream.readline().strip().split(",")
    return []


def role_files(path: Path, run: RunRecord, role: str, pattern: str) -> list[Path]:
    """Files of one role of a run, as run.json lists them, else those that match `pattern`; each that exists, once."""
    listed = listed_files(run, role)
    files = [path / str(name) for name in listed] if listed is not None else sorted(path.glob(pattern))
    inner = [g for f in files for g in (sorted(f.glob("*.csv")) if f.is_dir() else [f]) if g.is_file()]
    return list({f.resolve(): f for f in inner}.values())


def _unlisted(path: Path, run: RunRecord) -> Iterator[Oddity]:
    """Histograms in the folder that run.json does not list."""
    listed = {file.resolve() for file in role_files(path, run, *RESPONSE_TIMES)}
    for file in sorted(path.glob(RESPONSE_TIMES[1])):
        if file.resolve() not in listed:
            yield Oddity(run.number, str(file.relative_to(path)), "not listed in run.json; left out", False)


def _first(rows: pd.DataFrame) -> int:
    return int(rows["second"].min()) if len(rows) else 0


def _varied(histograms: pd.DataFrame) -> int:
    counts = histograms.loc[(histograms["clock"] != "service") & (histograms["phase"] == STEADY_STATE), "count"]
    return int(counts.sum() - counts.max()) if len(counts) else 0


def _steady_fingerprint(timeline: pd.DataFrame, run: RunRecord, varied: int) -> Fingerprint:
    window, seconds = run.windows.get(STEADY_STATE), timeline["second"].to_numpy()
    first, end = np.searchsorted(seconds, [window.start_unix_s, window.end_unix_s]) if window else (0, 0)
    steady = timeline.iloc[first:end]
    columns = ["second", "endpoint", "outcome", "count", "response_us"]
    return fingerprint(STEADY_STATE, steady[columns], _start(run), varied)


def _start(run: RunRecord) -> int:
    window = run.windows.get(STEADY_STATE)
    return window.start_unix_s if window else 0


def _timeline(rows: pd.DataFrame, run: RunRecord) -> pd.DataFrame:
    # Each response is there once for each clock: as "both", or as "response" and as "service".
    is_service = rows["clock"] == "service"
    once = rows[~is_service] if is_service.any() else rows
    once = once.assign(response_us=once["bucket_us"].astype(float) * once["count"])
    columns = [name for name in TIMELINE_COLUMNS if name != "offset_s"]
    summed = _added(once, columns, ["count", "response_us"])
    summed.insert(2, "offset_s", summed["second"] - _start(run))
    return summed


def _phases(seconds: pd.Series[int], run: RunRecord) -> pd.Categorical[str]:
    names = [OUTSIDE, STEADY_STATE, WARM_UP]
    codes = np.zeros(len(seconds), dtype=np.int8)
    for name in (WARM_UP, STEADY_STATE):
        window = run.windows.get(name)
        if window is not None:
            codes[(seconds >= window.start_unix_s) & (seconds < window.end_unix_s)] = names.index(name)
    return pd.Categorical.from_codes(pd.Series(codes), pd.Index(names))


def _added(rows: pd.DataFrame, columns: Iterable[str], sums: list[str]) -> pd.DataFrame:
    """Rows with `sums` added where all other `columns` are equal, sorted by those in their order."""
    keys = [name for name in columns if name not in sums]
    places = _places([rows[name] for name in keys])
    if places is None or not len(rows):
        return rows.groupby(keys, sort=True, observed=True)[sums].sum().reset_index()
    order = np.argsort(places)
    starts = np.flatnonzero(np.diff(places[order], prepend=-1))
    added = rows.iloc[order[starts]][keys].reset_index(drop=True)
    for name in sums:
        added[name] = np.add.reduceat(rows[name].to_numpy()[order], starts)
    return added


def _places(keys: list[pd.Series[Any]]) -> NDArray[np.int64] | None:
    """One number for each row that sorts as the keys do; None where they span more than 63 bits.

    Several times as fast as grouping by the keys themselves, and this is done for every row there is.
    """
    places = np.zeros(len(keys[0]), dtype=np.int64)
    size = 1
    for key in keys:
        codes = key.cat.codes.to_numpy() if isinstance(key.dtype, pd.CategoricalDtype) else key.to_numpy()
        if not len(codes) or codes.dtype.kind != "i":
            return None
        extent = int(codes.max()) - int(codes.min()) + 1
        size *= extent
        if size >= 2**63:
            return None
        places = places * extent + (codes.astype(np.int64) - int(codes.min()))
    return places


def _locust_total(files: list[Path]) -> float | None:
    """Request count of the Aggregated row of Locust's _stats.csv; None without one."""
    for path in files:
        if not path.name.endswith("_stats.csv"):
            continue
        try:
            with path.open(newline="", encoding="utf-8", errors="replace") as stream:
                rows = [row for row in csv.DictReader(stream) if row.get("Name") == "Aggregated"]
            total = float(rows[-1]["Request Count"]) if rows else -1.0
        except (KeyError, ValueError, TypeError, OSError, csv.Error):
            return None
        return total if 0 <= total <= LARGEST_NUMBER else None
    return None


def _exceptions(files: list[Path], run: int) -> pd.DataFrame:
    """Rows of Locust's _exceptions.csv; a line without a count is left out."""
    rows = []
    for path in files:
        if path.name.endswith("_exceptions.csv"):
            text = path.read_text(encoding="utf-8", errors="replace").replace("\0", "")
            with contextlib.suppress(csv.Error):
                for row in csv.DictReader(io.StringIO(text, newline="")):
                    count = parsed(row.get("Count"))
                    if 1 <= count <= LARGEST_NUMBER:
                        rows.append({"run": run, "message": _last_line(row.get("Message")), "count": int(count)})
    return pd.DataFrame(rows, columns=list(EXCEPTION_COLUMNS)) if rows else empty_frame(EXCEPTION_COLUMNS)


def _last_line(text: object) -> str:
    return (str(text or "").strip().splitlines() or ["no message"])[-1]
