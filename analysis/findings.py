"""Findings, and the Case that the checks of validity.py look at."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
from collections.abc import Callable, Iterable, Iterator

import pandas as pd

from analysis import metrics, pairing, rules
from analysis.backlog import Clock
from analysis.comparison import Comparison
from analysis.load import Experiment
from analysis.metrics import ALL_REQUESTS, Metric, Observation, Observations
from analysis.record import RunRecord


class Severity(enum.StrEnum):
    """severe forbids a verdict, note does not."""

    SEVERE = "severe"
    NOTE = "note"


@dataclasses.dataclass(frozen=True)
class Finding:
    """One thing that casts doubt on the measurement, or that its reader must know."""

    name: str
    severity: Severity
    message: str
    """One sentence: what was found."""
    evidence: tuple[str, ...]
    threshold: str
    next_action: str
    treatments: tuple[str, ...] | None = None
    """Keys of the treatments it touches; None for all."""
    metrics: frozenset[str] | None = None
    """What it casts doubt on, in the words of subject_of(); None for everything that was measured."""

    def shown(self, most: int) -> tuple[str, ...]:
        """The evidence in at most `most` lines; where there is more, the last says how much."""
        rest = len(self.evidence) - most + 1
        return self.evidence if rest < 2 else (*self.evidence[: most - 1], f"and {rest} more")


@dataclasses.dataclass(frozen=True, eq=False)
class Case:
    """What a check may look at. The comparisons are those before any finding forbids a verdict."""

    experiment: Experiment
    observations: Observations
    by_run: pd.DataFrame
    by_treatment: pd.DataFrame
    primary: Metric
    comparisons: list[Comparison]

    @property
    def deciding_treatments(self) -> set[str]:
        """Keys of the treatments on either side of a comparison that decides; all where none does.

        An objective must hold for every treatment, so where there are objectives all decide.
        """
        if self.experiment.record.objectives:
            return set(self.experiment.treatments)
        found = {key for c in self.comparisons if c.verdict is not None for key in c.keys}
        return found or set(self.experiment.treatments)

    @property
    def complete_records(self) -> list[RunRecord]:
        """Records of the complete runs; an imported summary has none."""
        records = self.experiment.records
        return [records[run] for run in self.experiment.complete_runs() if run in records]

    def label(self, treatment: str) -> str:
        """A treatment in words."""
        names = pairing.short_names(self.experiment.record.factors)
        return pairing.label(self.experiment.treatments[treatment], names)

    def outcomes(self, treatment: str) -> dict[str, tuple[int, int]]:
        """(failures, responses) of a treatment by endpoint; a single endpoint is no other than all requests."""
        rows = self.by_treatment[self.by_treatment["treatment"] == treatment]
        values = {(e, m): v for e, m, v in zip(rows["endpoint"], rows["metric"], rows["value"], strict=True)}
        counts = {e: int(v) for (e, m), v in values.items() if m == "count" and not pd.isna(v) and v > 0}
        shares = {endpoint: values.get((endpoint, "success_ratio"), float("nan")) for endpoint in counts}
        seen = {e: (n - round(n * shares[e]), n) for e, n in counts.items() if not pd.isna(shares[e])}
        return {ALL_REQUESTS: seen[ALL_REQUESTS]} if len(seen) == 2 and ALL_REQUESTS in seen else seen

    def severity(self, treatment: str) -> Severity:
        """Severe where the verdict rests on this treatment."""
        return Severity.SEVERE if treatment in self.deciding_treatments else Severity.NOTE

    def rests_on(self, clock: Clock) -> bool:
        """Whether the primary metric or an objective is about the times of one clock."""
        prefix = metrics.SERVICE if clock == "service" else ""
        if self.primary.name in {f"{prefix}{statistic}" for statistic in metrics.STATISTICS}:
            return True
        for text in self.experiment.record.objectives:
            with contextlib.suppress(rules.RuleError):  # who judges it says so
                if rules.parse(text).measure.time == f"{clock}_time":
                    return True
        return False

    def seen(self, run: int) -> Observation:
        """What all requests of a run showed; nothing where the run was not observed."""
        return self.observations.get((run, ALL_REQUESTS), metrics.merge([]))

    def treatments_of(self, runs: Iterable[int]) -> tuple[str, ...]:
        """Keys of the treatments of some runs, each once."""
        known = self.experiment.treatment_of
        return tuple(dict.fromkeys(known[run] for run in sorted(set(runs)) if run in known))

    def run_label(self, run: int) -> str:
        """A run and its treatment in words."""
        return f"run {run} ({self.label(self.treatments_of([run])[0])})"

    def worst(self, treatments: Iterable[str]) -> Severity:
        """Severe where the verdict rests on any of these treatments."""
        return Severity.SEVERE if set(treatments) & self.deciding_treatments else Severity.NOTE


def subject_of(metric: str) -> str:
    """What a metric is about: "response_time" or "service_time" for all their statistics, else the metric's name."""
    if metric in metrics.STATISTICS:
        return "response_time"
    return "service_time" if metric.startswith(metrics.SERVICE) else metric


TIMES = frozenset({"response_time", "service_time"})
SUBJECTS = frozenset(subject_of(name) for name in metrics.BY_NAME)
"""All that Finding.metrics may name."""


def forbids(finding: Finding, treatments: Iterable[str], subject: str) -> bool:
    """Whether `treatments` can have no verdict about `subject`, one of SUBJECTS, because of `finding`."""
    if finding.severity is not Severity.SEVERE or (finding.metrics is not None and subject not in finding.metrics):
        return False
    return finding.treatments is None or bool(set(finding.treatments) & set(treatments))


def of_runs(
    case: Case,
    name: str,
    evidence: dict[int, str],
    severity_of: Callable[[int], Severity],
    message: str,
    threshold: str,
    next_action: str,
) -> Iterator[Finding]:
    """One finding for each severity that occurs among the runs of `evidence`; {n} in the message: "3 of 8 runs"."""
    severities = {run: severity_of(run) for run in evidence}
    for severity in Severity:
        chosen = [run for run in evidence if severities[run] is severity]
        if chosen:
            count = f"{len(chosen)} of {len(case.experiment.complete_runs())} runs"
            yield Finding(
                name,
                severity,
                message.format(n=count),
                tuple(f"{case.run_label(run)}: {evidence[run]}" for run in chosen),
                threshold,
                next_action,
                case.treatments_of(chosen),
            )


def by_severity(
    case: Case, runs: Iterable[int], severity_of: Callable[[int], Severity] | None = None
) -> list[tuple[Severity, list[int]]]:
    """Runs whose treatment decides, then the others; only those of the two that are there."""
    severity_of = severity_of or (lambda run: case.severity(case.treatments_of([run])[0]))
    listed = list(runs)
    split = [(s, [r for r in listed if severity_of(r) is s]) for s in Severity]
    return [(severity, part) for severity, part in split if part]
