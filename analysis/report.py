"""The report's files, written: index.html, report.md, tidy CSV and Parquet, verdicts.json, JUnit XML."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import pandas as pd

from analysis import experiment_names, exports, objectives, pages, pairing, reference, verdicts
from analysis.decide import Analysis
from analysis.pages import ReportError

MARKER = "verdicts.json"
"""Its presence tells a folder of a former report, which may be replaced, from any other."""


def write(analyses: Sequence[Analysis], folder: Path) -> Path:
    """Write all files of the report into `folder`; returns the path of index.html.

    Raises ReportError where `folder` holds something that is no former report (nothing else is ever overwritten), and
    where it cannot be written.
    """
    claim(folder)
    from analysis import cell_graphs, plots_over_time

    names = experiment_names.distinct(analyses)
    tables_of = {
        "metrics": _joined(names, (_readable(a, a.by_run) for a in analyses)),
        "comparison": _joined(names, (comparison_frame(a) for a in analyses)),
        "timeline": _joined(names, (_readable(a, plots_over_time.by_second(a)) for a in analyses)),
    }
    suites = [exports.suite(a, objectives.judge(a), a.severe, n) for n, a in zip(names, analyses, strict=True)]
    texts = {
        MARKER: json.dumps(verdicts.document(analyses), indent=1, ensure_ascii=False, allow_nan=False) + "\n",
        **{f"{name}.csv": exports.csv(table) for name, table in tables_of.items()},
        "junit.xml": exports.junit_xml(suites),
        "report.md": pages.render_markdown(analyses),
        "index.html": pages.render_html(analyses),
        **_published_files(analyses, reference.files),
        **_published_files(analyses, cell_graphs.files),
    }
    # A lone surrogate, which JSON can hold and UTF-8 cannot, is written as its escape.
    files = {name: text.encode("utf-8", errors="backslashreplace") for name, text in texts.items()}
    files |= {f"{name}.parquet": exports.parquet(table) for name, table in tables_of.items()}
    for name, data in files.items():
        try:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(data)
        except OSError as error:
            raise ReportError(
                f"{folder / name}: cannot be written ({error.strerror}). Choose another with -o."
            ) from error
    return folder / "index.html"


def _published_files(analyses: Sequence[Analysis], files: Callable[[Analysis], dict[str, str]]) -> dict[str, str]:
    """What published documents consist of; their names begin with the experiment's where there are several."""
    several = len(analyses) > 1
    return {
        (_apart(experiment, name) if several else name): text
        for experiment, analysis in zip(experiment_names.distinct(analyses), analyses, strict=True)
        for name, text in files(analysis).items()
    }


def _apart(experiment: str, name: str) -> str:
    """Pages that link to each other stay together, in a folder."""
    experiment = re.sub("[^A-Za-z0-9._-]+", "-", experiment).strip("-")
    return f"{experiment}{name}" if name.startswith("_") else f"{experiment}/{name}"


def claim(folder: Path) -> None:
    """Make `folder` ready for a report. Raises ReportError where it holds other files, or cannot be made."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        occupied = any(folder.iterdir()) and not (folder / MARKER).is_file()
    except OSError as error:
        raise ReportError(f"{folder}: cannot be written ({error.strerror}). Choose another with -o.") from error
    if occupied:
        raise ReportError(f"{folder}: holds other files, and nothing is overwritten. Choose another folder with -o.")


def comparison_frame(analysis: Analysis) -> pd.DataFrame:
    """comparison.csv: one row a compared treatment x endpoint x metric."""
    return pd.DataFrame(
        [
            {
                "treatment": pairing.label(c.pair.treatment, analysis.names),
                "baseline": pairing.label(c.pair.baseline, analysis.names),
                "endpoint": c.endpoint,
                "metric": c.metric.name,
                "unit": c.metric.unit,
                "baseline_value": c.baseline_value,
                "treatment_value": c.treatment_value,
                "ratio": c.effect.ratio,
                "low": c.effect.low,
                "high": c.effect.high,
                "level": c.effect.level,
                "baseline_runs": c.effect.baseline_runs,
                "treatment_runs": c.effect.treatment_runs,
                "verdict": c.verdict.value if c.verdict else None,
            }
            for c in analysis.comparisons
        ]
    )


def _readable(analysis: Analysis, frame: pd.DataFrame) -> pd.DataFrame:
    """The treatment's key replaced by one column a factor, which is what a group-by wants."""
    treatments = analysis.experiment.treatments
    place = list(frame.columns).index("treatment")
    levels = frame.drop(columns="treatment")
    codes, keys = pd.factorize(frame["treatment"])  # each treatment once: there are few of them, thousands of times
    for path in reversed(list(analysis.experiment.record.factors)):
        levels.insert(place, path, pd.Series([treatments[key].get(path) for key in keys]).take(codes).array)
    return levels


def _joined(names: Iterable[str], frames: Iterable[pd.DataFrame]) -> pd.DataFrame:
    """The tables of all experiments as one, with a column that names them."""
    named = [frame.assign(experiment=name) for name, frame in zip(names, frames, strict=True)]
    filled = [frame for frame in named if len(frame)] or named[:1]
    joined = pd.concat(filled, ignore_index=True)
    return joined[["experiment", *(c for c in joined.columns if c != "experiment")]]
