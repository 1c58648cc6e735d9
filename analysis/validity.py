"""Can the measurement be trusted? A closed list of checks; each names its threshold, its evidence and what to do next.

A check is one row in CHECKS. It looks at a Case and yields Findings. A severe finding forbids the verdict of every
comparison it touches; a note explains.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import pandas as pd

from analysis import comparability, compare, intervals, metrics, pairing
from analysis.compare import Verdict
from analysis.load import COMPLETE, Experiment
from analysis.metrics import ALL_REQUESTS, Metric, Observation, Observations
from analysis.record import RunRecord

if TYPE_CHECKING:
    from analysis.decide import Comparison

MOST_FAILURES = 0.01
MOST_GENERATOR_CPU = 0.7
MOST_TOTALS_APART = 0.01


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
        """Keys of the treatments on either side of a comparison that decides; all where none does."""
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


Check = Callable[[Case], Iterable[Finding]]


def check(case: Case) -> list[Finding]:
    """All findings, severe ones first, else in the order of CHECKS."""
    found = [finding for one_check in CHECKS for finding in one_check(case)]
    return sorted(found, key=lambda finding: finding.severity is not Severity.SEVERE)


def forbids(finding: Finding, treatments: Iterable[str]) -> bool:
    """Whether a comparison of `treatments` can have no verdict because of `finding`."""
    if finding.severity is not Severity.SEVERE:
        return False
    return finding.treatments is None or bool(set(finding.treatments) & set(treatments))


def runs_incomplete(case: Case) -> Iterator[Finding]:
    """Planned runs that failed, were interrupted, or are missing."""
    runs = case.experiment.runs
    lost = runs[runs["status"] != COMPLETE]
    for severity in Severity:
        rows = lost[[case.severity(treatment) is severity for treatment in lost["treatment"]]]
        if len(rows):
            yield Finding(
                "runs_incomplete",
                severity,
                f"{len(rows)} of {len(runs)} planned runs {_were(len(rows))} not completed, and left out.",
                tuple(f"{_run_label(case, r['run'])}: {r['status']}, {r['reason'] or 'no reason recorded'}"
                      for r in _records(rows)),
                "all planned runs complete: those that are lost may be those that would have told against it",
                "Look at the run's log, then `python -m harness run --resume FOLDER`.",
                tuple(dict.fromkeys(rows["treatment"])),
            )  # fmt: skip


def one_run_a_side(case: Case) -> Iterator[Finding]:
    """Summaries of another tool that hold one run of each side."""
    if case.experiment.imported and len(case.experiment.treatments) > 1:
        yield Finding(
            "one_run_a_side",
            Severity.SEVERE,
            "One run a side: how much runs differ from each other by themselves is unknown.",
            (f"{len(case.experiment.treatments)} summaries, one run each",),
            "4 replicates a side",
            "Repeat each side in alternating order, or describe the experiment and let `python -m harness run` do so.",
        )


def no_successes(case: Case) -> Iterator[Finding]:
    """Complete runs without a single successful response in steady state."""
    empty = [run for run in case.experiment.complete_runs() if not _seen(case, run).successes]
    if empty and not case.experiment.imported:
        touched = _treatments(case, empty)
        yield Finding(
            "no_successes",
            _worst(case, touched),
            f"{len(empty)} of {len(case.experiment.complete_runs())} complete runs had no success in steady state.",
            tuple(f"{_run_label(case, run)}: {_seen(case, run).failures} failures"
                  for run in empty),
            "at least one successful response a run",
            "Read the failures in the appendix and the server's log; a response may take longer than steady state.",
            touched,
        )  # fmt: skip


def failures(case: Case) -> Iterator[Finding]:
    """Treatments with more failed responses than MOST_FAILURES, at all endpoints together or at one."""
    for treatment in case.experiment.treatments:
        over = {e: seen for e, seen in case.outcomes(treatment).items() if seen[0] > MOST_FAILURES * seen[1]}
        if over:
            yield Finding(
                "failures",
                case.severity(treatment),
                f"With {case.label(treatment)}, more than {_percent(MOST_FAILURES)} of the responses are failures.",
                (*(f"{endpoint}: {_share(*seen)}" for endpoint, seen in over.items()), *_outcomes(case, treatment)),
                f"{_percent(MOST_FAILURES)} failures; failures are counted apart and are in no response time",
                "Find their cause first: response times of those that succeed tell little when others fail.",
                (treatment,),
            )


def generator_busy(case: Case) -> Iterator[Finding]:
    """A load generator process that has little of its core left; severe only where it could change the verdict."""
    shares = {
        run: o.generator.busiest_cpu_share
        for (run, endpoint), o in case.observations.items()
        if endpoint == ALL_REQUESTS and o.generator and o.generator.busiest_cpu_share > MOST_GENERATOR_CPU
    }
    for severity in Severity:
        busy = [run for run in shares if _generator_severity(case, set(_treatments(case, shares)), run) is severity]
        if busy:
            yield Finding(
                "generator_busy",
                severity,
                f"The load generator was busy in {len(busy)} of {len(case.experiment.complete_runs())} runs: "
                "it may have delayed requests and limited the throughput itself.",
                tuple(f"{_run_label(case, run)}: {_percent(shares[run])} of a core" for run in busy),
                f"{_percent(MOST_GENERATOR_CPU)} of a core for the busiest generator process",
                "Give the load more processes (load.processes) or another machine.",
                _treatments(case, busy),
            )  # fmt: skip


def _generator_severity(case: Case, busy: set[str], run: int) -> Severity:
    """A busy generator makes its side look worse, so a side that wins in spite of it wins all the same."""
    treatment = _treatments(case, [run])[0]
    for comparison in case.comparisons:
        if comparison.verdict is None or treatment not in comparison.keys:
            continue
        baseline, other = comparison.keys
        better = {Verdict.FASTER: other, Verdict.SLOWER: baseline}.get(comparison.verdict)
        if better is None or busy & set(comparison.keys) != {better}:
            return Severity.SEVERE
    return Severity.NOTE


def totals_disagree(case: Case) -> Iterator[Finding]:
    """The histograms' total and that of Locust's own CSV, of the whole run, warm-up included."""
    totals = case.experiment.totals.dropna()
    apart = totals[(totals["recorded"] - totals["locust"]).abs() > MOST_TOTALS_APART * totals["locust"].clip(lower=1)]
    fewer = apart["recorded"] < apart["locust"]
    for rows, severe, why in (
        (apart[fewer], True, "responses were lost before they were recorded"),
        (apart[~fewer], False, "Locust's CSV is known to miss the end of a run, the histograms do not"),
    ):
        if len(rows):
            touched = _treatments(case, rows["run"])
            yield Finding(
                "totals_disagree",
                _worst(case, touched) if severe else Severity.NOTE,
                f"In {len(rows)} of {len(totals)} runs the histograms and Locust's own CSV count differently: {why}.",
                tuple(f"run {r['run']}: {r['recorded']:,} in the histograms, {r['locust']:,.0f} by Locust"
                      for r in _records(rows)),
                f"{_percent(MOST_TOTALS_APART)} apart",
                "Look for a killed Locust process or a full disk in the run's log." if severe
                else "Use the histograms' numbers, as this report does.",
                touched,
            )  # fmt: skip


def files_damaged(case: Case) -> Iterator[Finding]:
    """What in the files is not as the format says."""
    for loses_data in (True, False):
        odd = [o for o in case.experiment.oddities if o.loses_data is loses_data]
        touched = _treatments(case, [o.run for o in odd if o.run is not None])
        if odd:
            yield Finding(
                "files_damaged",
                _worst(case, touched) if loses_data else Severity.NOTE,
                f"{len(odd)} {'file is' if len(odd) == 1 else 'files are'} not as the format says.",
                tuple(f"run {o.run}, {o.file}: {o.what}" if o.run is not None else f"{o.file}: {o.what}" for o in odd),
                "every line whole; a torn last line is what a killed writer leaves",
                "Repeat these runs: remove their folders and `python -m harness run --resume FOLDER`." if loses_data
                else "None, unless many runs are affected.",
                touched if loses_data else None,
            )  # fmt: skip


def environment_differs(case: Case) -> Iterator[Finding]:
    """Host, versions and the rest of the environment, which should be the same in all runs."""
    yield from _differences(
        case, "environment_differs", "The environment", comparability.environment_differences(case.complete_records)
    )


def configuration_differs(case: Case) -> Iterator[Finding]:
    """Server and load, which should differ in the factors only."""
    factors = list(case.experiment.record.factors)
    yield from _differences(
        case,
        "configuration_differs",
        "The configuration",
        comparability.configuration_differences(case.complete_records, factors),
    )


def _differences(case: Case, name: str, subject: str, found: list[comparability.Difference]) -> Iterator[Finding]:
    for severe in (True, False):
        rows = [d for d in found if d.decisive is severe]
        if rows and not case.experiment.imported:
            yield Finding(
                name,
                Severity.SEVERE if severe else Severity.NOTE,
                f"{subject} differs between runs beyond the factors: {', '.join(d.path for d in rows[:4])}"
                f"{' and more' if len(rows) > 4 else ''}.",
                tuple(str(d) for d in rows),
                "equal in all runs, apart from the factors",
                "Repeat all runs under one environment." if severe else "Judge whether it matters to the question.",
            )


def few_replicates(case: Case) -> Iterator[Finding]:
    """Fewer complete replicates than an interval at the verdict's level takes."""
    deciding = [c for c in case.comparisons if c.verdict is not None]
    fewest = compare.smallest_replicates(len(deciding)) if deciding else 0
    few = [
        c for c in deciding if c.effect.low is None and min(c.effect.baseline_runs, c.effect.treatment_runs) < fewest
    ]
    if few and not case.experiment.imported:
        yield Finding(
            "few_replicates",
            Severity.NOTE,
            "Too few replicates for an interval, so no difference can be told from chance.",
            tuple(
                f"{case.label(c.keys[1])}: {c.effect.treatment_runs} runs against {c.effect.baseline_runs}" for c in few
            ),
            f"{fewest} a side for {len(deciding)} {'comparison' if len(deciding) == 1 else 'comparisons'} that decide",
            f"Set replicates to {fewest} or more.",
            tuple(dict.fromkeys(key for c in few for key in c.keys)),
        )


def few_samples(case: Case) -> Iterator[Finding]:
    """Percentiles that are not shown, because too few responses carry them."""
    if case.experiment.imported:
        return
    evidence = []
    for treatment in case.experiment.treatments:
        rows = case.by_treatment[
            (case.by_treatment["treatment"] == treatment) & (case.by_treatment["endpoint"] == ALL_REQUESTS)
        ]
        hidden = [
            metrics.BY_NAME[name]
            for name, value in zip(rows["metric"], rows["value"], strict=True)
            if pd.isna(value) and metrics.BY_NAME[name].samples_needed > 1
        ]
        if hidden:
            needs = ", ".join(f"{m.name} needs {m.samples_needed}" for m in hidden)
            evidence.append(f"{case.label(treatment)}: {int(rows['samples'].max())} responses; {needs}")
    if evidence:
        yield Finding(
            "few_samples",
            Severity.NOTE,
            "Some percentiles are not shown: too few successful responses carry them.",
            tuple(evidence),
            "6 responses for p50, 36 for p90, 72 for p95, 368 for p99",
            "Lengthen timing.steady_state or raise the offered load.",
        )


CHECKS: tuple[Check, ...] = (
    runs_incomplete,
    one_run_a_side,
    no_successes,
    failures,
    generator_busy,
    totals_disagree,
    files_damaged,
    environment_differs,
    configuration_differs,
    few_replicates,
    few_samples,
)
"""The closed list. Each function's name is the name of its findings."""


def _seen(case: Case, run: int) -> Observation:
    return case.observations.get((run, ALL_REQUESTS), metrics.merge([]))


def _treatments(case: Case, runs: Iterable[int]) -> tuple[str, ...]:
    rows = case.experiment.runs[case.experiment.runs["run"].isin(list(runs))]
    return tuple(dict.fromkeys(rows["treatment"]))


def _run_label(case: Case, run: int) -> str:
    return f"run {run} ({case.label(_treatments(case, [run])[0])})"


def _worst(case: Case, treatments: Iterable[str]) -> Severity:
    return Severity.SEVERE if set(treatments) & case.deciding_treatments else Severity.NOTE


def _share(count: int, total: int) -> str:
    low, high = intervals.wilson(count, total)
    return f"{count:,} of {total:,} = {_percent(count / total)} (95 % interval {_percent(low)} to {_percent(high)})"


def _outcomes(case: Case, treatment: str) -> Iterator[str]:
    """The three most frequent failures, by name."""
    rows, runs = case.experiment.timeline, case.experiment.complete_runs(treatment)
    rows = rows[rows["run"].isin(runs) & (rows["phase"] == "steady_state") & (rows["outcome"] != "success")]
    for outcome, count in rows.groupby("outcome")["count"].sum().nlargest(3).items():
        yield f"{outcome}: {count:,}"


def _records(rows: pd.DataFrame) -> list[dict[Hashable, Any]]:
    return rows.to_dict("records")


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"


def _were(count: int) -> str:
    return "was" if count == 1 else "were"
