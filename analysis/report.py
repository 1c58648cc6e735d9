"""The report's files: index.html and report.md from one view, tidy CSV, verdicts.json.

`render_*` return text; `write` alone touches the disk.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd

from analysis import answer, comparability, compare, method, pairing, tables, validity
from analysis.comparison import Comparison
from analysis.decide import Analysis
from analysis.findings import Finding
from analysis.load import COMPLETE
from analysis.tables import Block

VERDICTS_SCHEMA_VERSION = 1
TEMPLATES = Path(__file__).parent / "templates"
MARKER = "verdicts.json"
"""Its presence tells a folder of a former report, which may be replaced, from any other."""


class ReportError(Exception):
    """The report cannot be written where it was asked for."""


@dataclasses.dataclass(frozen=True)
class View:
    """What a page says of one experiment, in the order in which it says it."""

    anchor: str
    question: str
    name: str
    workload: str
    runs_line: str
    answers: list[dict[str, str]]
    notes: list[str]
    findings: list[Finding]
    checks: int
    blocks: list[Block]
    endpoint_blocks: list[Block]
    table_note: str
    method: list[str]
    held_constant: list[tuple[str, str]]
    environment: list[tuple[str, str]]
    run_columns: tuple[str, ...]
    run_rows: list[tuple[str, ...]]
    failure_rows: list[tuple[str, ...]]
    figures: Sequence[Any] = ()


def view(analysis: Analysis, number: int = 1) -> View:
    """The view of one experiment, without figures, which only index.html draws."""
    record = analysis.experiment.record
    runs = analysis.experiment.runs
    complete = int((runs["status"] == COMPLETE).sum())
    return View(
        anchor=f"experiment-{number}",
        question=record.question,
        name=record.name,
        workload=record.workload,
        runs_line=f"{complete} of {len(runs)} planned runs complete",
        answers=[{"verdict": v.value if v else "", "sentence": s} for v, s in answer.answers(analysis)],
        notes=[*record.notes, *method.load_model_notes(analysis)],
        findings=analysis.findings,
        checks=len(validity.CHECKS),
        blocks=tables.blocks(analysis),
        endpoint_blocks=[b for e in tables.endpoints(analysis) for b in tables.blocks(analysis, e)],
        table_note=method.table_note(analysis),
        method=method.sentences(analysis),
        held_constant=_held_constant(analysis),
        environment=_environment(analysis),
        run_columns=("run", "block", "replicate", "server", "treatment", "status", "reason"),
        run_rows=_run_rows(analysis),
        failure_rows=_failure_rows(analysis),
    )


def render_html(analyses: Sequence[Analysis]) -> str:
    """index.html: one file that needs no network."""
    from analysis import plots

    views = [
        dataclasses.replace(view(analysis, number), figures=plots.figures(analysis))
        for number, analysis in enumerate(analyses, start=1)
    ]
    drawn = any(v.figures for v in views)
    javascript = _javascript() if drawn else ""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        trim_blocks=True,
        undefined=jinja2.StrictUndefined,
        finalize=_keep_percent,
    )
    css = (TEMPLATES / "report.css").read_text(encoding="utf-8")
    return environment.get_template("report.html.j2").render(
        reports=views, css=_trusted(css), javascript=_trusted(javascript)
    )


@functools.cache
def _javascript() -> str:
    """Vega, Vega-Lite and Vega-Embed: about 0.9 MB, and seconds to put together."""
    import vl_convert

    bundle: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    # A closing tag within a string of it would end the element.
    return bundle.replace("</script", "<\\/script")


def render_markdown(analyses: Sequence[Analysis]) -> str:
    """report.md: the first page and the method, for a pull request."""
    environment = jinja2.Environment(  # noqa: S701 - Markdown: every text passes escape_markdown instead
        loader=jinja2.FileSystemLoader(TEMPLATES),
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters["md"] = lambda text: tables.escape_markdown(str(text))
    environment.filters["markdown_table"] = tables.to_markdown
    views = [view(analysis, number) for number, analysis in enumerate(analyses, start=1)]
    text = environment.get_template("report.md.j2").render(reports=views)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def write(analyses: Sequence[Analysis], folder: Path) -> Path:
    """Write all files of the report into `folder`; returns the path of index.html.

    Raises ReportError where `folder` holds something that is no former report (nothing else is ever overwritten), and
    where it cannot be written.
    """
    claim(folder)
    from analysis import plots

    seconds = [(a, plots.by_second(a)) for a in analyses]
    texts = {
        MARKER: json.dumps(verdicts(analyses), indent=1, ensure_ascii=False, allow_nan=False) + "\n",
        "metrics.csv": _csv([(a, _readable(a, a.by_run)) for a in analyses]),
        "comparison.csv": _csv([(a, comparison_frame(a)) for a in analyses]),
        "timeline.csv": _csv([(a, _readable(a, frame)) for a, frame in seconds]),
        "report.md": render_markdown(analyses),
        "index.html": render_html(analyses),
    }
    for name, text in texts.items():
        # A lone surrogate, which JSON can hold and UTF-8 cannot, is written as its escape.
        try:
            (folder / name).write_text(text, encoding="utf-8", newline="\n", errors="backslashreplace")
        except OSError as error:
            raise ReportError(
                f"{folder / name}: cannot be written ({error.strerror}). Choose another with -o."
            ) from error
    return folder / "index.html"


def claim(folder: Path) -> None:
    """Make `folder` ready for a report. Raises ReportError where it holds other files, or cannot be made."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        occupied = any(folder.iterdir()) and not (folder / MARKER).is_file()
    except OSError as error:
        raise ReportError(f"{folder}: cannot be written ({error.strerror}). Choose another with -o.") from error
    if occupied:
        raise ReportError(f"{folder}: holds other files, and nothing is overwritten. Choose another folder with -o.")


def verdicts(analyses: Sequence[Analysis]) -> dict[str, Any]:
    """verdicts.json: for machines, what the page says in words."""
    return {"schema_version": VERDICTS_SCHEMA_VERSION, "experiments": [_verdicts_of(a) for a in analyses]}


def _verdicts_of(analysis: Analysis) -> dict[str, Any]:
    record = analysis.experiment.record
    runs = analysis.experiment.runs
    return {
        "name": record.name,
        "question": record.question,
        "runs": {"planned": len(runs), "complete": int((runs["status"] == COMPLETE).sum())},
        "primary": record.primary,
        "margin": record.margin,
        "answers": [sentence for _, sentence in answer.answers(analysis)],
        "verdicts": [_comparison_json(c) for c in analysis.deciding],
        "comparisons": [_comparison_json(c) for c in analysis.comparisons if c.verdict is None],
        "findings": [_finding_json(analysis, f) for f in analysis.findings],
    }


def _comparison_json(c: Comparison) -> dict[str, Any]:
    return {
        "verdict": c.verdict.value if c.verdict else None,
        "metric": c.metric.name,
        "unit": c.metric.unit,
        "endpoint": c.endpoint,
        "treatment": c.pair.treatment,
        "baseline": c.pair.baseline,
        "treatment_value": _number(c.treatment_value),
        "baseline_value": _number(c.baseline_value),
        "ratio": _number(c.effect.ratio),
        "interval": [_number(c.effect.low), _number(c.effect.high)] if c.effect.low is not None else None,
        "level": c.effect.level,
        "runs": {"treatment": c.effect.treatment_runs, "baseline": c.effect.baseline_runs},
        "replicates_needed": dataclasses.asdict(c.needed) | {"at_most": compare.MOST_REPLICATES} if c.needed else None,
    }


def _finding_json(analysis: Analysis, finding: Finding) -> dict[str, Any]:
    treatments = analysis.experiment.treatments
    touched = None if finding.treatments is None else [treatments[key] for key in finding.treatments]
    return {**dataclasses.asdict(finding), "treatments": touched}


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
    for path in reversed(list(analysis.experiment.record.factors)):
        levels.insert(place, path, [treatments[key].get(path) for key in frame["treatment"]])
    return levels


def _csv(frames: Iterable[tuple[Analysis, pd.DataFrame]]) -> str:
    named = [frame.assign(experiment=a.experiment.record.name) for a, frame in frames]
    filled = [frame for frame in named if len(frame)] or named[:1]
    joined = pd.concat(filled, ignore_index=True)
    ordered = joined[["experiment", *(c for c in joined.columns if c != "experiment")]]
    return ordered.to_csv(index=False, float_format="%.6g", lineterminator="\n")


def _held_constant(analysis: Analysis) -> list[tuple[str, str]]:
    record = analysis.experiment.record
    rows = [(path, _text(value)) for path, value in record.held_constant.items()]
    return rows + [("changed with --set", override) for override in record.overrides]


def _environment(analysis: Analysis) -> list[tuple[str, str]]:
    """Of the first complete run; what differs between runs is a finding."""
    complete = analysis.experiment.complete_runs()
    if not complete or complete[0] not in analysis.experiment.records:
        return []
    run = analysis.experiment.records[complete[0]]
    flat = {
        **comparability.flatten(run.environment, "environment"),
        "server.version": run.server.get("version"),
        **comparability.flatten(run.locust.get("facts", {}), "facts"),
    }
    return [(path.removeprefix("environment."), _text(value)) for path, value in flat.items() if value is not None]


def _run_rows(analysis: Analysis) -> list[tuple[str, ...]]:
    columns = ("run", "block", "replicate", "server_number", "treatment", "status", "reason")
    return [
        tuple(
            analysis.label(value) if name == "treatment" else "" if value is None or pd.isna(value) else str(value)
            for name, value in zip(columns, row, strict=True)
        )
        for row in analysis.experiment.runs[list(columns)].itertuples(index=False)
    ]


def _failure_rows(analysis: Analysis) -> list[tuple[str, ...]]:
    rows = analysis.experiment.failures()
    treatment_of = dict(zip(analysis.experiment.runs["run"], analysis.experiment.runs["treatment"], strict=True))
    labelled = rows.assign(treatment=[analysis.label(treatment_of[run]) for run in rows["run"]])
    counts = labelled.groupby(["treatment", "endpoint", "outcome"])["count"].sum().nlargest(50).reset_index()
    columns = ["treatment", "endpoint", "outcome", "count"]
    return [tuple(str(value) for value in row) for row in counts[columns].itertuples(index=False)]


def _keep_percent(value: Any) -> Any:
    """A number and its percent sign on one line; text that is trusted is code, and is left alone."""
    return value.replace(" %", "\u00a0%") if type(value) is str else value


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _number(value: float | None) -> float | None:
    return None if value is None or pd.isna(value) else float(f"{value:.6g}")


def _trusted(text: str) -> Any:
    """Text of our own files and dependencies, which autoescape must leave alone."""
    from markupsafe import Markup

    return Markup(text)  # noqa: S704
