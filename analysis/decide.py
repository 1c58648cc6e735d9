"""From an experiment to its answer: observe, compare, find what casts doubt, give the verdict. Pure."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterable, Iterator

import pandas as pd

from analysis import compare, metrics, pairing, validity
from analysis.compare import Verdict
from analysis.comparison import Comparison
from analysis.findings import Case, Finding, Severity, forbids, subject_of
from analysis.load import Experiment
from analysis.metrics import ALL_REQUESTS, BY_NAME, Metric, Observations
from analysis.pairing import Pair
from analysis.record import RecordError


@dataclasses.dataclass(frozen=True, eq=False)
class Analysis:
    """Everything the report says about one experiment."""

    experiment: Experiment
    primary: Metric
    names: dict[str, str]
    """Dotted path of a factor to its short name."""
    observations: Observations
    by_run: pd.DataFrame
    by_treatment: pd.DataFrame
    level: float
    comparisons: list[Comparison]
    findings: list[Finding]

    @property
    def deciding(self) -> list[Comparison]:
        """The comparisons that carry a verdict."""
        return [c for c in self.comparisons if c.verdict is not None]

    @property
    def severe(self) -> list[Finding]:
        """The findings that forbid a verdict."""
        return [f for f in self.findings if f.severity is Severity.SEVERE]

    def label(self, treatment: str) -> str:
        """A treatment in words, by its key."""
        return pairing.label(self.experiment.treatments[treatment], self.names)


def analyse(experiment: Experiment) -> Analysis:
    """Compare all treatments with the baseline, check the measurement, and decide.

    Raises RecordError where the primary metric is none of metrics.METRICS.
    """
    primary = primary_metric(experiment)
    record = experiment.record
    pairs = pairing.pairs(experiment.treatments.values(), record.baseline, record.primary.get("at") or {})
    level = compare.level_for(sum(pair.decides for pair in pairs))
    observations = metrics.observe(experiment)
    by_run = metrics.by_run(experiment, observations)
    by_treatment = metrics.by_treatment(experiment, observations)
    numbers = _Numbers(_lookup(by_run), _lookup(by_treatment))
    comparisons = [c for pair in pairs for c in _compare(pair, numbers, primary, level, record.margin)]
    findings = validity.check(Case(experiment, observations, by_run, by_treatment, primary, comparisons))
    return Analysis(
        experiment=experiment,
        primary=primary,
        names=pairing.short_names(record.factors),
        observations=observations,
        by_run=by_run,
        by_treatment=by_treatment,
        level=level,
        comparisons=[_veto(comparison, findings) for comparison in comparisons],
        findings=findings,
    )


def primary_metric(experiment: Experiment) -> Metric:
    """The metric of the verdict, throughput where the experiment names none."""
    name = str(experiment.record.primary.get("metric", "throughput"))
    if name in BY_NAME:
        return BY_NAME[name]
    near = difflib.get_close_matches(name, list(BY_NAME), n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise RecordError(
        f"{experiment.folder}: primary metric {name!r} is not known.{hint} There are: {', '.join(BY_NAME)}."
    )


@dataclasses.dataclass(frozen=True)
class _Numbers:
    """By (treatment, endpoint, metric): the values of the runs, and that of the merged replicates."""

    of_runs: dict[tuple[str, str, str], list[float]]
    merged: dict[tuple[str, str, str], list[float]]

    def value(self, *place: str) -> float | None:
        treatment, endpoint, metric = place
        return next(iter(self.merged.get((treatment, endpoint, metric), [])), None)

    def measured(self, pair: Pair) -> list[tuple[str, str]]:
        """(endpoint, metric) that either side of a pair has."""
        sides = {pairing.key(pair.baseline), pairing.key(pair.treatment)}
        return list(dict.fromkeys((endpoint, metric) for side, endpoint, metric in self.of_runs if side in sides))


def _compare(pair: Pair, numbers: _Numbers, primary: Metric, level: float, margin: float) -> Iterator[Comparison]:
    base, other = pairing.key(pair.baseline), pairing.key(pair.treatment)
    for endpoint, name in numbers.measured(pair):
        sides = [numbers.of_runs.get((side, endpoint, name), []) for side in (base, other)]
        measured = compare.effect(sides[0], sides[1], level)
        decides = pair.decides and name == primary.name and endpoint == ALL_REQUESTS
        word = compare.verdict(measured, primary.better == "higher", margin) if decides else None
        yield Comparison(
            pair=pair,
            endpoint=endpoint,
            metric=BY_NAME[name],
            baseline_value=numbers.value(base, endpoint, name),
            treatment_value=numbers.value(other, endpoint, name),
            effect=measured,
            verdict=word,
            needed=compare.needed(measured, margin) if word is Verdict.INCONCLUSIVE else None,
        )


def _lookup(rows: pd.DataFrame) -> dict[tuple[str, str, str], list[float]]:
    """(treatment, endpoint, metric) to its values.

    Missing ones stay, as NaN: a ratio of those runs alone that happen to carry a metric would favour one kind of run.
    """
    found: dict[tuple[str, str, str], list[float]] = {}
    columns = (rows["treatment"], rows["endpoint"], rows["metric"], rows["value"])
    for treatment, endpoint, metric, value in zip(*columns, strict=True):
        found.setdefault((treatment, endpoint, metric), []).append(float(value))
    return found


def _veto(comparison: Comparison, findings: Iterable[Finding]) -> Comparison:
    """Invalid, where a severe finding touches either side."""
    subject = subject_of(comparison.metric.name)
    if comparison.verdict is None or not any(forbids(f, comparison.keys, subject) for f in findings):
        return comparison
    return dataclasses.replace(comparison, verdict=Verdict.INVALID, needed=None)
