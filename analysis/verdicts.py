"""verdicts.json: for programs, what the page says in words. Its schema is docs/verdicts.schema.json. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import pandas as pd

from analysis import answer, compare, experiment_names, objectives, reference
from analysis.comparison import Comparison
from analysis.decide import Analysis
from analysis.findings import Finding
from analysis.load import COMPLETE
from analysis.objectives import Judgement

SCHEMA_VERSION = 1


def document(analyses: Sequence[Analysis]) -> dict[str, Any]:
    """verdicts.json: for machines, what the page says in words."""
    named = zip(experiment_names.distinct(analyses), analyses, strict=True)
    return {"schema_version": SCHEMA_VERSION, "experiments": [_verdicts_of(n, a) for n, a in named]}


def _verdicts_of(name: str, analysis: Analysis) -> dict[str, Any]:
    record = analysis.experiment.record
    runs = analysis.experiment.runs
    return {
        "name": name,
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
    subjects = None if finding.metrics is None else sorted(finding.metrics)
    return {**dataclasses.asdict(finding), "treatments": touched, "metrics": subjects}


def _number(value: float | None) -> float | None:
    return None if value is None or pd.isna(value) else float(f"{value:.6g}")
