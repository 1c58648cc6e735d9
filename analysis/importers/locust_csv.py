"""Plain `locust --csv PREFIX` files to the frames of an Experiment.

Reads PREFIX_stats.csv as Locust 2 writes it. What it does not hold stays missing: windows, warm-up, histograms,
failures by second, the server. Locust's numbers are over the whole run; its percentiles are cut to whole milliseconds
and, from 100 ms up, rounded to two digits.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path

import pandas as pd

from analysis import load, pairing
from analysis.load import Experiment, Oddity
from analysis.metrics import ALL_REQUESTS
from analysis.record import USAGE_COLUMNS, ExperimentRecord, PlannedRun, RecordError

SUFFIX = "_stats.csv"
FACTOR = "csv"

COLUMNS = {
    "Min Response Time": "min",
    "Average Response Time": "mean",
    "50%": "p50",
    "90%": "p90",
    "95%": "p95",
    "99%": "p99",
    "Max Response Time": "max",
}


def load_prefixes(paths: Sequence[Path]) -> Experiment:
    """Each prefix (or path of its _stats.csv) is one run of a treatment of its own, the first being the baseline.

    Raises RecordError where a file is missing or is not a stats file of Locust 2.
    """
    files = [stats_file(path) for path in paths]
    names = _names(files)
    oddities: list[Oddity] = []
    rows = [row for number, file in enumerate(files, start=1) for row in _reported(number, file, oddities)]
    plan = [
        PlannedRun(n, 1, 1, {FACTOR: name}, str(file), n)
        for n, (name, file) in enumerate(zip(names, files, strict=True), 1)
    ]
    runs = pd.DataFrame(
        [
            {"run": p.number, "block": 1, "replicate": 1, "treatment": pairing.key(p.treatment),
             "status": load.COMPLETE, "folder": p.folder, "server_number": p.number}
            for p in plan
        ],
        columns=list(load.RUN_COLUMNS),
    )  # fmt: skip
    return Experiment(
        folder=files[0].parent,
        record=_record(names, plan),
        records={},
        runs=runs,
        response_times=load.empty_frame(load.HISTOGRAM_COLUMNS),
        timeline=load.empty_frame(load.TIMELINE_COLUMNS),
        usage=load.empty_frame(("run", *USAGE_COLUMNS)),
        health={},
        totals=load.empty_frame(load.TOTALS_COLUMNS),
        reported=pd.DataFrame(rows, columns=list(load.REPORTED_COLUMNS)),
        oddities=tuple(oddities),
        imported=True,
    )


def stats_file(path: Path) -> Path:
    """The _stats.csv of a prefix, or the path itself. Raises RecordError where there is none."""
    file = path if path.name.endswith(SUFFIX) else path.with_name(path.name + SUFFIX)
    if not file.is_file():
        raise RecordError(
            f"{path}: neither a result folder of `python -m harness run` nor a prefix of `locust --csv` "
            f"(no file {file.name})."
        )
    return file


def _record(names: list[str], plan: list[PlannedRun]) -> ExperimentRecord:
    return ExperimentRecord(
        name="locust csv: " + " against ".join(reversed(names)),
        question="",
        workload="plain Locust CSV",
        factors={FACTOR: list(names)},
        baseline={FACTOR: names[0]},
        primary={"metric": "throughput", "at": {}},
        margin=0.05,
        held_constant={},
        notes=["Read from Locust's own summary: whole runs, with their warm-up; what is not in it stays missing."],
        timing={},
        replicates=1,
        order={},
        source=None,
        overrides=[],
        plan=plan,
        created_unix_s=0.0,
    )


def _names(files: Sequence[Path]) -> list[str]:
    """The prefix's name, with as much of its folders as tells it from the others."""
    prefixes = [file.with_name(file.name.removesuffix(SUFFIX)) for file in files]
    if len(set(prefixes)) < len(prefixes):
        raise RecordError("The same Locust CSV is named twice; give each run once.")
    short = pairing.short_names(p.resolve().as_posix().replace(".", "\0").replace("/", ".") for p in prefixes)
    return [name.replace(".", "/").replace("\0", ".") for name in short.values()]


def _reported(run: int, file: Path, oddities: list[Oddity]) -> Iterator[dict[str, object]]:
    rows = _read(file)
    if not any(row["Name"] == "Aggregated" for row in rows):
        oddities.append(Oddity(run, file.name, "no Aggregated row: it has no numbers for all requests", True))
    for row in rows:
        endpoint = ALL_REQUESTS if row["Name"] == "Aggregated" else f"{row['Type']} {row['Name']}".strip()
        unreadable = [name for name, value in row.items() if name in _NUMERIC and _number(value) is None]
        if unreadable:
            oddities.append(Oddity(run, file.name, f"{endpoint}: no number in {', '.join(unreadable)}", False))
        for metric, value in _values(row):
            yield {"run": run, "endpoint": endpoint, "metric": metric, "value": value,
                   "samples": int(_number(row["Request Count"]) or 0)}  # fmt: skip


_NUMERIC = ("Request Count", "Failure Count", "Requests/s", "Failures/s", *COLUMNS)


def _values(row: dict[str, str]) -> Iterator[tuple[str, float | None]]:
    requests, failures = _number(row["Request Count"]), _number(row["Failure Count"])
    rate, failing = _number(row["Requests/s"]), _number(row["Failures/s"])
    yield "throughput", rate - failing if rate is not None and failing is not None else None
    for column, metric in COLUMNS.items():
        yield metric, _number(row[column]) if requests else None
    yield "success_ratio", (requests - failures) / requests if requests and failures is not None else None
    yield "count", requests


def _read(file: Path) -> list[dict[str, str]]:
    try:
        with file.open(newline="", encoding="utf-8-sig", errors="replace") as stream:
            reader = csv.DictReader(stream)
            missing = [name for name in ("Type", "Name", *_NUMERIC) if name not in (reader.fieldnames or ())]
            rows = [row for row in reader if None not in row and None not in row.values()]
    except (OSError, csv.Error) as error:
        raise RecordError(f"{file}: cannot be read ({error}).") from error
    if missing:
        raise RecordError(f"{file}: not a stats file of Locust 2; it lacks {', '.join(missing)}.")
    if not rows:
        raise RecordError(f"{file}: holds no whole row. Was Locust stopped before its first response?")
    return rows


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 <= value <= load.LARGEST_NUMBER else None
