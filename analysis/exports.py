"""What other programs read: Parquet, JUnit XML, HdrHistogram logs. `write_hdr_log` alone touches the disk."""

from __future__ import annotations

import dataclasses
import datetime
import io
import math
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from hdrh.histogram import HdrHistogram

from analysis import answer, load, objective_table, objectives, pairing
from analysis.comparison import Comparison
from analysis.decide import Analysis
from analysis.findings import Finding
from analysis.load import Experiment
from analysis.objectives import Judgement, Outcome
from analysis.printable import printable

# --- tidy tables ---------------------------------------------------------------------------------------------------


def csv(frame: pd.DataFrame) -> str:
    """A tidy table as CSV, numbers to six digits; a missing value is an empty cell."""
    floats = frame.select_dtypes("float").columns
    # Not pandas' own float_format, which takes twice as long.
    texts = {name: pd.Series(_six_digits(frame[name].tolist()), frame.index, "object") for name in floats}
    return frame.assign(**texts).to_csv(index=False, lineterminator="\n")


def _six_digits(values: list[float]) -> list[str]:
    return ["" if math.isnan(value) else f"{value:.6g}" for value in values]


def parquet(frame: pd.DataFrame) -> bytes:
    """A tidy table as Parquet, in full precision. A column of several types, as levels may be, becomes text."""
    plain = pd.DataFrame({name: _one_type(frame[name]) for name in frame.columns})
    stream = io.BytesIO()
    plain.to_parquet(stream, index=False)
    return stream.getvalue()


def _one_type(column: pd.Series[Any]) -> pd.Series[Any]:
    if pd.api.types.is_numeric_dtype(column.dtype):
        return column
    kinds = {str} if column.dtype == "str" else {type(value) for value in column.dropna()}
    if kinds <= {int} or kinds <= {bool} or kinds <= {int, float}:
        return column
    if kinds <= {str}:
        # Each text once: there are few of them, thousands of times.
        places, texts = pd.factorize(column)
        escaped = np.array([*(_escaped(text) for text in texts), None], dtype="object")
        return pd.Series(escaped[places], index=column.index, dtype="object")
    levels = [None if pd.isna(value) else _escaped(pairing.level_text(value)) for value in column]
    return pd.Series(levels, index=column.index, dtype="object")


def _escaped(text: str) -> str:
    """A lone surrogate, which Arrow cannot hold, is written as its escape."""
    return text.encode("utf-8", errors="backslashreplace").decode("utf-8")


# --- JUnit XML -----------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Case:
    """One testcase."""

    kind: str
    name: str
    outcome: Outcome
    message: str


@dataclasses.dataclass(frozen=True)
class Suite:
    """One experiment's testcases."""

    name: str
    created_unix_s: float
    cases: tuple[Case, ...]


_ELEMENTS = {Outcome.FAIL: "failure", Outcome.INVALID: "error", Outcome.INCONCLUSIVE: "skipped"}


def suite(
    analysis: Analysis, judgements: Iterable[Judgement], doubts: Sequence[Finding], name: str | None = None
) -> Suite:
    """One testcase for the measurement itself, one for each verdict, one for each objective and treatment.

    A verdict that decides passes, slower or not: only an objective can fail. `doubts`: the severe findings.
    `name`: what the experiment is called where there are several; its own name by default.
    """
    cases = [
        _measurement(analysis, doubts),
        *(_verdict(analysis, comparison) for comparison in analysis.deciding),
        *(
            Case(
                "objective",
                f"{j.rule.text}: {pairing.label(j.treatment, analysis.names)}",
                j.outcome,
                f"{j.outcome.value}: {objective_table.seen_text(j)}",
            )
            for j in judgements
        ),
    ]
    record = analysis.experiment.record
    return Suite(name or record.name, record.created_unix_s, tuple(cases))


def _measurement(analysis: Analysis, doubts: Sequence[Finding]) -> Case:
    valid = objectives.all_complete(analysis) and not doubts
    runs, complete = analysis.experiment.runs, analysis.experiment.complete_runs()
    message = "; ".join([f"{len(complete)} of {len(runs)} planned runs complete", *(f.message for f in doubts)])
    return Case("measurement", "all planned runs are complete, and no severe finding stands",
                Outcome.PASS if valid else Outcome.INVALID, message)  # fmt: skip


def _verdict(analysis: Analysis, comparison: Comparison) -> Case:
    sides = [pairing.label(t, analysis.names) for t in (comparison.pair.treatment, comparison.pair.baseline)]
    word = comparison.verdict.value if comparison.verdict else ""
    outcome = Outcome(word) if word in set(Outcome) else Outcome.PASS
    message = f"{word}: ratio {answer.ratio_text(comparison)}"
    return Case("verdict", f"{comparison.metric.name}: {' against '.join(sides)}", outcome, message)


def junit_xml(suites: Sequence[Suite]) -> str:
    """The suites as the JUnit XML that Ant, Jenkins and GitLab read. Inconclusive is skipped, invalid an error."""
    root = ET.Element("testsuites")
    for number, one in enumerate(suites):
        root.append(_suite_element(number, one))
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _suite_element(number: int, one: Suite) -> ET.Element:
    outcomes = [case.outcome for case in one.cases]
    created = datetime.datetime.fromtimestamp(one.created_unix_s, tz=datetime.UTC)
    element = ET.Element("testsuite", {
        "name": _xml(one.name) or "experiment", "package": "stackswarm", "id": str(number),
        "timestamp": created.strftime("%Y-%m-%dT%H:%M:%S"), "hostname": "localhost", "time": "0",
        "tests": str(len(outcomes)), "failures": str(outcomes.count(Outcome.FAIL)),
        "errors": str(outcomes.count(Outcome.INVALID)), "skipped": str(outcomes.count(Outcome.INCONCLUSIVE)),
    })  # fmt: skip
    ET.SubElement(element, "properties")
    for case in one.cases:
        attributes = {"classname": _xml(f"{one.name}.{case.kind}"), "name": _xml(case.name), "time": "0"}
        inner = ET.SubElement(element, "testcase", attributes)
        tag = _ELEMENTS.get(case.outcome)
        if tag is not None:
            kind = {} if tag == "skipped" else {"type": case.kind}
            ET.SubElement(inner, tag, {"message": _xml(case.message), **kind}).text = _xml(case.message)
    passed = [f"{case.name}: {case.message}" for case in one.cases if case.outcome is Outcome.PASS]
    ET.SubElement(element, "system-out").text = _xml("\n".join(passed), keep_lines=True)
    ET.SubElement(element, "system-err")
    return element


def _xml(text: str, keep_lines: bool = False) -> str:
    """Text that XML can hold: control characters and surrogates as their escapes, noncharacters left out."""
    lines = text.split("\n") if keep_lines else [text]
    return re.sub("[\ufffe\uffff]", "", "\n".join(printable(line).strip() for line in lines))


# --- HdrHistogram log ----------------------------------------------------------------------------------------------

LARGEST_US = 24 * 3600 * 10**6
DIGITS = 3
"""Values within 0.1 %, which is finer than the buckets that are exported (0.4 %)."""


def write_hdr_log(experiment: Experiment, run: int, folder: Path) -> Path:
    """Write RUN.hlog of one run, which must not be there yet; returns its path."""
    (name,) = experiment.runs.loc[experiment.runs["run"] == run, "folder"]
    path = folder / f"{name}.hlog"
    with path.open("x", encoding="utf-8", newline="\n") as stream:
        stream.writelines(hdr_log(load.read_seconds(experiment, run)))
    return path


def hdr_log(rows: pd.DataFrame) -> Iterator[str]:
    """Lines of an HdrHistogram log, of record.RESPONSE_TIME_COLUMNS: one interval a second and tag, in microseconds.

    The tag is endpoint/clock with blanks and commas as underscores, which the format does not allow; failures have
    "/failed" behind it. Intervals are in the order of time, as readers expect it.
    """
    yield "#[Stackswarm; values in microseconds; tag: endpoint/clock, failures apart]\n"
    yield "#[Histogram log format version 1.3]\n"
    start = int(rows["second"].min()) if len(rows) else 0
    began = datetime.datetime.fromtimestamp(start, tz=datetime.UTC).isoformat()
    yield f"#[StartTime: {start:.3f} (seconds since epoch), {began}]\n"
    yield '"StartTimestamp","Interval_Length","Interval_Max","Interval_Compressed_Histogram"\n'
    failed = rows["outcome"] != "success"
    tags = rows["endpoint"].str.cat(rows["clock"], sep="/").str.replace(r"[\s,]+", "_", regex=True)
    tagged = rows.assign(tag=tags.where(~failed, tags + "/failed"))
    for (second, tag), part in tagged.groupby(["second", "tag"], sort=True):
        yield _interval(int(str(second)), str(tag), part)


def _interval(second: int, tag: str, rows: pd.DataFrame) -> str:
    histogram = HdrHistogram(1, LARGEST_US, DIGITS)
    for bucket_us, count in zip(rows["bucket_us"], rows["count"], strict=True):
        histogram.record_value(min(max(int(bucket_us), 1), LARGEST_US), int(count))
    largest = int(rows["bucket_us"].max())
    return f"Tag={tag},{second:.3f},1.000,{largest / 1e6:.6f},{histogram.encode().decode('ascii')}\n"
