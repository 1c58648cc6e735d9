"""The report's files: index.html and report.md from one view, tidy CSV and Parquet, verdicts.json, JUnit XML.

`render_*` return text; `write` alone touches the disk.
"""

from __future__ import annotations

import base64
import dataclasses
import functools
import hashlib
import json
import math
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jinja2
import pandas as pd

from analysis import (
    answer,
    comparability,
    compare,
    configuration,
    exports,
    method,
    metrics,
    objective_table,
    objectives,
    pairing,
    reference,
    steady_state,
    tables,
    traffic,
    validity,
)
from analysis.comparison import Comparison
from analysis.decide import Analysis
from analysis.findings import Finding
from analysis.load import COMPLETE
from analysis.objectives import Judgement
from analysis.steady_state import State
from analysis.tables import Block

if TYPE_CHECKING:
    from analysis.figure_parts import Detail

VERDICTS_SCHEMA_VERSION = 1
TEMPLATES = Path(__file__).parent / "templates"
LARGEST_PAGE_BYTES = 3_000_000
MOST_DIFFERENCES = 12
MOST_WITH_FIGURES = 24
"""Experiments on one page; more would be drawn with too few points to be of use."""
MARKER = "verdicts.json"
"""Its presence tells a folder of a former report, which may be replaced, from any other."""


class ReportError(Exception):
    """The report cannot be written where it was asked for."""


@dataclasses.dataclass(frozen=True)
class SideBySide:
    """What differs in configuration between two sides, beside what differs in performance."""

    title: str
    effects: list[str]
    """The primary metric's ratio, one line for each combination of the other levels."""
    parameters: tuple[tuple[str, str, str], ...]
    files: tuple[configuration.FileDifference, ...]
    note: str


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
    outcome_title: str
    outcome_rows: list[tuple[str, ...]]
    body_rows: list[tuple[str, ...]]
    differences: list[SideBySide]
    objectives: Block | None
    objective_notes: list[str]
    reference_blocks: list[Block]
    reference_notes: list[str]
    figures: Sequence[Any] = ()
    differences_left_out: int = 0
    runs_left_out: int = 0
    most_evidence: int = 20
    shortened: str = ""


def view(analysis: Analysis, number: int = 1) -> View:
    """The view of one experiment, without figures, which only index.html draws."""
    record = analysis.experiment.record
    runs = analysis.experiment.runs
    complete = int((runs["status"] == COMPLETE).sum())
    judged = objectives.judge(analysis)
    rows = _run_rows(analysis)
    steady = any(row[-1] not in {"", State.NOT_ASSESSED} for row in rows)
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
        run_columns=(
            "run",
            "block",
            "replicate",
            "server",
            "treatment",
            "status",
            "reason",
            *(["steady state"] * steady),
        ),
        run_rows=[row if steady else row[:-1] for row in rows],
        outcome_title="failures of the whole run" if analysis.experiment.imported else "outcomes in steady state",
        outcome_rows=traffic.outcomes(analysis)[: traffic.MOST_ROWS],
        body_rows=traffic.body_rows(analysis)[: traffic.MOST_ROWS],
        differences=_differences(analysis),
        objectives=objective_table.block(judged, analysis.names) if judged else None,
        objective_notes=objective_table.notes(judged),
        reference_blocks=reference.blocks(analysis),
        reference_notes=reference.notes(analysis),
    )


def render_html(analyses: Sequence[Analysis]) -> str:
    """index.html: one file that needs no network, and never more than LARGEST_PAGE_BYTES.

    Where it would be larger it is made again with less detail, and says so. Raises ReportError where even the text is
    too much for one page.
    """
    from analysis.figure_parts import FULL

    views = [view(analysis, number) for number, analysis in enumerate(analyses, start=1)]
    detail, last = FULL, math.inf
    while len(analyses) <= MOST_WITH_FIGURES:
        page = _page([_with_figures(v, a, detail) for v, a in zip(views, analyses, strict=True)])
        if _size(page) <= LARGEST_PAGE_BYTES:
            return page
        # What is left is not in the figures' points: drawing them with still fewer would not help.
        if _size(page) > 0.9 * last:
            break
        detail, last = detail.halved(), _size(page)
    for shorten in (_without_figures, _answer_only):
        page = _page([shorten(v) for v in views])
        if _size(page) <= LARGEST_PAGE_BYTES:
            return page
    raise ReportError(
        f"index.html of {len(analyses)} experiments would be larger than {LARGEST_PAGE_BYTES / 1e6:g} MB. "
        "Report fewer at a time."
    )


def _size(page: str) -> int:
    return len(page.encode("utf-8", errors="backslashreplace"))


def _with_figures(of: View, analysis: Analysis, detail: Detail) -> View:
    from analysis import plots
    from analysis.figure_parts import FULL

    most = 5 * detail.table_rows
    return dataclasses.replace(
        of,
        figures=plots.figures(analysis, detail),
        differences=of.differences[:MOST_DIFFERENCES],
        differences_left_out=max(0, len(of.differences) - MOST_DIFFERENCES),
        run_rows=of.run_rows[:most],
        runs_left_out=max(0, len(of.run_rows) - most),
        shortened="" if detail == FULL else "Figures are drawn with fewer points, to keep the page small.",
    )


def _without_figures(of: View) -> View:
    return dataclasses.replace(
        of, endpoint_blocks=[], differences=[], outcome_rows=of.outcome_rows[:20], run_rows=of.run_rows[:100],
        runs_left_out=max(0, len(of.run_rows) - 100), most_evidence=10,
        shortened="Without figures and details, which would not fit. Report fewer experiments at a time to see them.",
    )  # fmt: skip


def _answer_only(of: View) -> View:
    bare = _without_figures(of)
    return dataclasses.replace(
        bare, blocks=[], outcome_rows=[], body_rows=[], run_rows=[], runs_left_out=len(of.run_rows), most_evidence=3,
        shortened="Without tables, which would not fit; they are in comparison.csv and metrics.csv.",
    )  # fmt: skip


def _page(views: Sequence[View]) -> str:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        trim_blocks=True,
        undefined=jinja2.StrictUndefined,
        finalize=_keep_percent,
    )
    css, drawing = ((TEMPLATES / name).read_text(encoding="utf-8") for name in ("report.css", "report.js"))
    javascript = _javascript() if any(v.figures for v in views) else ""
    return environment.get_template("report.html.j2").render(
        reports=views,
        css=_trusted(css),
        javascript=_trusted(javascript),
        drawing=_trusted(drawing),
        policy=_policy([javascript, drawing] if javascript else []),
        packed=_packed,
    )


def _policy(scripts: Iterable[str]) -> str:
    """What the page allows itself: nothing from anywhere, and no script but these, whatever a name may contain."""
    hashes = (base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in scripts)
    allowed = " ".join(f"'sha256-{digest}'" for digest in hashes) or "'none'"
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; "
        "form-action 'none'"
    )


def _packed(spec: dict[str, Any]) -> dict[str, Any]:
    """The specification with its data as columns and rows, which take a third of the room; report.js unpacks them."""
    packed = {
        name: {"columns": list(rows[0]) if rows else [], "rows": [list(row.values()) for row in rows]}
        for name, rows in spec["datasets"].items()
    }
    return spec | {"datasets": packed}


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
    from analysis import plots_over_time

    tables_of = {
        "metrics": _joined([(a, _readable(a, a.by_run)) for a in analyses]),
        "comparison": _joined([(a, comparison_frame(a)) for a in analyses]),
        "timeline": _joined([(a, _readable(a, plots_over_time.by_second(a))) for a in analyses]),
    }
    texts = {
        MARKER: json.dumps(verdicts(analyses), indent=1, ensure_ascii=False, allow_nan=False) + "\n",
        **{f"{name}.csv": exports.csv(table) for name, table in tables_of.items()},
        "junit.xml": exports.junit_xml([exports.suite(a, objectives.judge(a), a.severe) for a in analyses]),
        "report.md": render_markdown(analyses),
        "index.html": render_html(analyses),
        **_published_files(analyses),
    }
    # A lone surrogate, which JSON can hold and UTF-8 cannot, is written as its escape.
    files = {name: text.encode("utf-8", errors="backslashreplace") for name, text in texts.items()}
    files |= {f"{name}.parquet": exports.parquet(table) for name, table in tables_of.items()}
    for name, data in files.items():
        try:
            (folder / name).write_bytes(data)
        except OSError as error:
            raise ReportError(
                f"{folder / name}: cannot be written ({error.strerror}). Choose another with -o."
            ) from error
    return folder / "index.html"


def _published_files(analyses: Sequence[Analysis]) -> dict[str, str]:
    """What published documents consist of; their names begin with the experiment's where there are several."""
    prefix = len(analyses) > 1
    return {
        (analysis.experiment.record.name if prefix else "") + name: text
        for analysis in analyses
        for name, text in reference.files(analysis).items()
    }


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
        "objectives": [_objective_json(j) for j in objectives.judge(analysis)],
        "findings": [_finding_json(analysis, f) for f in analysis.findings],
        "reference": reference.json_of(analysis),
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


def _objective_json(judged: Judgement) -> dict[str, Any]:
    return {
        "objective": judged.rule.text,
        "outcome": judged.outcome.value,
        "treatment": judged.treatment,
        "baseline": judged.baseline,
        "value": _number(judged.value),
        "interval": [_number(judged.low), _number(judged.high)] if judged.low is not None else None,
        "unit": "ratio" if judged.rule.is_change else judged.rule.measure.unit,
        "limit": judged.rule.limit,
        "level": judged.level,
        "runs": judged.runs,
        "reason": judged.reason,
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


def _joined(frames: Iterable[tuple[Analysis, pd.DataFrame]]) -> pd.DataFrame:
    """The tables of all experiments as one, with a column that names them."""
    named = [frame.assign(experiment=a.experiment.record.name) for a, frame in frames]
    filled = [frame for frame in named if len(frame)] or named[:1]
    joined = pd.concat(filled, ignore_index=True)
    return joined[["experiment", *(c for c in joined.columns if c != "experiment")]]


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
    """One row a planned run; the last column is its class of steadiness."""
    series = steady_state.states(analysis.experiment)
    states = {run: steady_state.state_of(assessments).value for run, assessments in series.items()}
    columns = ("run", "block", "replicate", "server_number", "treatment", "status", "reason")
    labels = {treatment: analysis.label(treatment) for treatment in analysis.experiment.treatments}
    return [
        (
            *(
                labels[value] if name == "treatment" else "" if value is None or pd.isna(value) else str(value)
                for name, value in zip(columns, row, strict=True)
            ),
            states.get(row[0], ""),
        )
        for row in analysis.experiment.runs[list(columns)].itertuples(index=False)
    ]


def _differences(analysis: Analysis) -> list[SideBySide]:
    """One for each difference of configuration, with the pairs that it stands for."""
    primary = [c for c in analysis.comparisons if c.metric is analysis.primary and c.endpoint == metrics.ALL_REQUESTS]
    grouped: dict[tuple[object, ...], list[tuple[Comparison, configuration.ConfigurationDifference]]] = {}
    for comparison in primary:
        found = configuration.difference(analysis.experiment, comparison.pair)
        if found is not None:
            key = (_sides_text(analysis, comparison), found.parameters, found.files)
            grouped.setdefault(key, []).append((comparison, found))
    return [_side_by_side(analysis, members) for members in grouped.values()]


def _sides_text(analysis: Analysis, comparison: Comparison) -> str:
    varied = list(analysis.experiment.record.baseline)
    sides = (comparison.pair.baseline, comparison.pair.treatment)
    return " → ".join(pairing.label(side, analysis.names, varied) for side in sides)


def _side_by_side(
    analysis: Analysis, members: Sequence[tuple[Comparison, configuration.ConfigurationDifference]]
) -> SideBySide:
    comparison, found = members[0]
    files = f"{len(found.files)} of {found.files_compared} configuration files differ"
    note = f"{files if found.files_compared else 'No configuration files were recorded'}."
    return SideBySide(
        title=_sides_text(analysis, comparison),
        effects=[_effect_text(analysis, c) for c, _ in members],
        parameters=found.parameters,
        files=found.files,
        note=f"{note} Taken from run {found.runs[0]} and run {found.runs[1]}; ports and secrets are left out.",
    )


def _effect_text(analysis: Analysis, comparison: Comparison) -> str:
    at = f" at {pairing.label(comparison.pair.context, analysis.names)}" if comparison.pair.context else ""
    word = f": {comparison.verdict.value}" if comparison.verdict else ""
    return f"{comparison.metric.title}{at}: ratio {answer.ratio_text(comparison)}{word}"


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
