"""What a page says of one experiment, in the order in which it says it: plain data for the templates. Pure."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Sequence
from typing import Any

import pandas as pd

from analysis import (
    answer,
    comparability,
    configuration,
    experiment_names,
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
from analysis.steady_state import State
from analysis.tables import Block


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


def of_all(analyses: Sequence[Analysis]) -> list[View]:
    """The views of all experiments of a report, told apart by their names."""
    named = zip(analyses, experiment_names.distinct(analyses), strict=True)
    return [of(analysis, number, name) for number, (analysis, name) in enumerate(named, start=1)]


@functools.lru_cache(maxsize=4)  # index.html and report.md say the same
def of(analysis: Analysis, number: int = 1, name: str | None = None) -> View:
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
        name=name or record.name,
        workload=record.workload,
        runs_line=f"{complete} of {len(runs)} planned runs complete",
        answers=[{"verdict": v.value if v else "", "sentence": s} for v, s in answer.answers(analysis)],
        notes=[*record.notes, *method.notes(analysis)],
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


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
