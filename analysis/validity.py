"""Can the measurement be trusted? A closed list of checks; each names its threshold, its evidence and what to do next.

A check is one row in CHECKS. It looks at a Case and yields Findings. A severe finding forbids the verdict of every
comparison it touches; a note explains.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any

import pandas as pd

from analysis import (
    carry_over,
    comparability,
    compare,
    evidence_findings,
    generator_findings,
    import_findings,
    intervals,
    littles_law,
    machine_findings,
    metrics,
    run_findings,
)
from analysis.compare import Verdict
from analysis.comparison import Comparison
from analysis.findings import SUBJECTS, Case, Finding, Severity
from analysis.load import COMPLETE, IN_THE_LOCUSTFILE
from analysis.metrics import ALL_REQUESTS

MOST_FAILURES = 0.01
MOST_GENERATOR_CPU = 0.7
MOST_TOTALS_APART = 0.01
MOST_TOTALS_OVER = 0.05


Check = Callable[[Case], Iterable[Finding]]


def check(case: Case) -> list[Finding]:
    """All findings, severe ones first, else in the order of CHECKS."""
    found = [finding for one_check in CHECKS for finding in one_check(case)]
    return sorted(found, key=lambda finding: finding.severity is not Severity.SEVERE)


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
                tuple(f"{case.run_label(r['run'])}: {r['status']}, {r['reason'] or 'no reason recorded'}"
                      for r in _records(rows)),
                "all planned runs complete: those that are lost may be those that would have told against it",
                "Look at the run's log, then `python -m harness run --resume FOLDER`.",
                tuple(dict.fromkeys(rows["treatment"])),
            )  # fmt: skip


def one_run_a_side(case: Case) -> Iterator[Finding]:
    """Summaries of another tool that hold one run of a side."""
    if not case.experiment.imported or len(case.experiment.treatments) < 2:
        return
    single = [t for t in case.experiment.treatments if len(case.experiment.complete_runs(t)) == 1]
    if single:
        everywhere = len(single) == len(case.experiment.treatments)
        side = "One run a side" if everywhere else f"One run of {', '.join(case.label(t) for t in single)}"
        yield Finding(
            "one_run_a_side",
            Severity.SEVERE,
            f"{side}: how much runs differ from each other by themselves is unknown.",
            (f"{len(single)} {'summary' if len(single) == 1 else 'summaries'}, one run each",),
            "4 replicates a side",
            "Repeat each side in alternating order and name them as LABEL=PREFIX, or describe the experiment and let "
            "`python -m harness run` do so.",
            tuple(single),
        )


def no_successes(case: Case) -> Iterator[Finding]:
    """Complete runs without a single successful response in steady state."""
    empty = [run for run in case.experiment.complete_runs() if not case.seen(run).successes]
    if empty and not case.experiment.imported:
        touched = case.treatments_of(empty)
        yield Finding(
            "no_successes",
            case.worst(touched),
            f"{len(empty)} of {len(case.experiment.complete_runs())} complete runs had no success in steady state.",
            tuple(f"{case.run_label(run)}: {case.seen(run).failures} failures"
                  for run in empty),
            "at least one successful response a run",
            "Read the failures in the appendix and the server's log; a response may take longer than steady state.",
            touched,
        )  # fmt: skip


def failures(case: Case) -> Iterator[Finding]:
    """Treatments with more failed responses than MOST_FAILURES, at all endpoints together or at one."""
    over = {
        treatment: {e: seen for e, seen in case.outcomes(treatment).items() if seen[0] > MOST_FAILURES * seen[1]}
        for treatment in case.experiment.treatments
    }
    over = {treatment: endpoints for treatment, endpoints in over.items() if endpoints}
    for severity in Severity:
        touched = [treatment for treatment in over if case.severity(treatment) is severity]
        if touched:
            labels = [case.label(treatment) for treatment in touched]
            where = " and with ".join(labels) if len(labels) < 3 else f"{len(labels)} treatments"
            yield Finding(
                "failures",
                severity,
                f"With {where}, more than {_percent(MOST_FAILURES)} of the responses are failures.",
                tuple(
                    line if len(touched) == 1 else f"{case.label(treatment)}: {line}"
                    for treatment in touched
                    for line in _failed(case, treatment, over[treatment])
                ),
                f"{_percent(MOST_FAILURES)} failures; failures are counted apart and are in no response time",
                "Find their cause first: response times of those that succeed tell little when others fail.",
                tuple(touched),
                # How many fail is just what was counted: a rule or a verdict about that is sound.
                SUBJECTS - {"success_ratio"},
            )
    yield from import_findings.failures_at_least(case, MOST_FAILURES)


def _failed(case: Case, treatment: str, over: dict[str, tuple[int, int]]) -> Iterator[str]:
    """Share of failures by endpoint with its interval, then the most frequent by name."""
    yield from (f"{endpoint}: {_share(*seen)}" for endpoint, seen in over.items())
    yield from _outcomes(case, treatment)


def generator_busy(case: Case) -> Iterator[Finding]:
    """A load generator process that has little of its core left; severe only where it could change the verdict."""
    shares = {
        run: o.generator.busiest_cpu_share
        for (run, endpoint), o in case.observations.items()
        if endpoint == ALL_REQUESTS and o.generator and o.generator.busiest_cpu_share > MOST_GENERATOR_CPU
    }
    for severity in Severity:
        busy = [run for run in shares if _generator_severity(case, set(case.treatments_of(shares)), run) is severity]
        if busy:
            yield Finding(
                "generator_busy",
                severity,
                f"The load generator was busy in {len(busy)} of {len(case.experiment.complete_runs())} runs: "
                "it may have delayed requests and limited the throughput itself.",
                tuple(f"{case.run_label(run)}: {_percent(shares[run])} of a core" for run in busy),
                f"{_percent(MOST_GENERATOR_CPU)} of a core for the busiest generator process",
                "Give the load more processes (load.processes) or another machine.",
                case.treatments_of(busy),
            )  # fmt: skip


def _generator_severity(case: Case, busy: set[str], run: int) -> Severity:
    """A busy generator makes its side look worse, so a side that wins in spite of it wins all the same."""
    treatment = case.treatments_of([run])[0]
    for comparison in case.comparisons:
        if comparison.verdict is None or treatment not in comparison.keys:
            continue
        baseline, other = comparison.keys
        better = {Verdict.FASTER: other, Verdict.SLOWER: baseline}.get(comparison.verdict)
        if better is None or busy & set(comparison.keys) != {better}:
            return Severity.SEVERE
    return Severity.NOTE


def usage_missing(case: Case) -> Iterator[Finding]:
    """Runs without usage samples over steady state, so that nobody knows whether the load generator kept up."""
    unknown = [run for run in case.experiment.complete_runs() if case.seen(run).generator is None]
    if unknown and not case.experiment.imported:
        yield Finding(
            "usage_missing",
            Severity.NOTE,
            f"In {len(unknown)} of {len(case.experiment.complete_runs())} runs the load generator's CPU is unknown, "
            "and so whether it was busy.",
            tuple(case.run_label(run) for run in unknown),
            "samples over 90 % of steady state",
            "Look into the run's usage.csv.",
            case.treatments_of(unknown),
        )


def totals_disagree(case: Case) -> Iterator[Finding]:
    """The histograms' total and that of Locust's own CSV, of the whole run, warm-up included."""
    totals = case.experiment.totals.dropna()
    # A worker that was lost had reported to Locust three seconds' worth less, or a second's more, than it had recorded.
    lossy = [record.number for record in case.complete_records if record.lost_workers]
    totals = totals[~totals["run"].isin(lossy)]
    apart = totals[(totals["recorded"] - totals["locust"]).abs() > MOST_TOTALS_APART * totals["locust"].clip(lower=1)]
    fewer = apart["recorded"] < apart["locust"]
    # Locust writes its CSV once a second, and so may miss the last of a run; more than a few per cent it does not miss.
    few = ~fewer & (apart["recorded"] <= (1 + MOST_TOTALS_OVER) * apart["locust"])
    for rows, severe, why in (
        (apart[fewer], True, "responses were lost before they were recorded"),
        (apart[~fewer & ~few], True, "responses were recorded twice, or not by this run"),
        (apart[few], False, "Locust's CSV is known to miss the end of a run, the histograms do not"),
    ):
        if len(rows):
            touched = case.treatments_of(rows["run"])
            yield Finding(
                "totals_disagree",
                case.worst(touched) if severe else Severity.NOTE,
                f"In {len(rows)} of {len(totals)} runs the histograms and Locust's own CSV count differently: {why}.",
                tuple(f"run {r['run']}: {r['recorded']:,} in the histograms, {r['locust']:,.0f} by Locust"
                      for r in _records(rows)),
                f"{_percent(MOST_TOTALS_APART)} fewer, {_percent(MOST_TOTALS_OVER)} more",
                "Look for a killed Locust process, a full disk, or a file of another run in the run's folder." if severe
                else "Use the histograms' numbers, as this report does.",
                touched,
            )  # fmt: skip


def files_damaged(case: Case) -> Iterator[Finding]:
    """What in the files is not as the format says."""
    for loses_data in (True, False):
        odd = [o for o in case.experiment.oddities if o.loses_data is loses_data and not case.experiment.imported]
        touched = case.treatments_of([o.run for o in odd if o.run is not None])
        if odd:
            yield Finding(
                "files_damaged",
                case.worst(touched) if loses_data else Severity.NOTE,
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
    if few and not _said_by_one_run_a_side(case, few):
        yield Finding(
            "few_replicates",
            Severity.NOTE,
            "Too few replicates for an interval, so no difference can be told from chance.",
            tuple(
                f"{case.label(c.keys[1])}: {c.effect.treatment_runs} against {c.effect.baseline_runs} runs" for c in few
            ),
            f"{fewest} a side for "
            + ("1 comparison that decides" if len(deciding) == 1 else f"{len(deciding)} comparisons that decide"),
            f"Set replicates to {fewest} or more.",
            tuple(dict.fromkeys(key for c in few for key in c.keys)),
        )


def _said_by_one_run_a_side(case: Case, few: list[Comparison]) -> bool:
    return case.experiment.imported and all(1 in (c.effect.baseline_runs, c.effect.treatment_runs) for c in few)


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
            for name, value, samples in zip(rows["metric"], rows["value"], rows["samples"], strict=True)
            if pd.isna(value) and metrics.BY_NAME[name].samples_needed > max(samples, 1)
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
    generator_findings.generator_lagging,
    generator_findings.generator_starved,
    generator_findings.workers_lost,
    generator_findings.rate_missed,
    generator_findings.backlog_grows,
    generator_findings.arrivals_late,
    generator_findings.arrivals_waited,
    generator_findings.arrivals_dropped,
    generator_findings.generator_at_a_limit,
    generator_findings.network_losses,
    usage_missing,
    totals_disagree,
    evidence_findings.server_counts_differ,
    files_damaged,
    evidence_findings.runs_copied,
    evidence_findings.runs_overlap,
    evidence_findings.traffic_differs,
    evidence_findings.plan_edited,
    import_findings.imported_with_oddities,
    import_findings.generator_failures,
    import_findings.locustfile_failures,
    environment_differs,
    configuration_differs,
    few_replicates,
    few_samples,
    run_findings.runs_repeated,
    littles_law.littles_law,
    run_findings.window_differs,
    run_findings.drift,
    carry_over.carry_over,
    run_findings.script_exceptions,
    run_findings.server_restarted,
    machine_findings.swapped,
    machine_findings.throttled,
    machine_findings.machine_busy,
    run_findings.mean_above_p90,
    run_findings.noise_above_margin,
)
"""The closed list. Each function's name is the name of its findings."""


def _share(count: int, total: int) -> str:
    low, high = intervals.wilson(count, total)
    return f"{count:,} of {total:,} = {_percent(count / total)} (95 % interval {_percent(low)} to {_percent(high)})"


def _outcomes(case: Case, treatment: str) -> Iterator[str]:
    """The three most frequent failures, by name."""
    rows = case.experiment.failures()
    rows = rows[rows["run"].isin(case.experiment.complete_runs(treatment)) & (rows["endpoint"] != IN_THE_LOCUSTFILE)]
    for outcome, count in rows.groupby("outcome")["count"].sum().nlargest(3).items():
        yield f"{outcome}: {count:,}"


def _records(rows: pd.DataFrame) -> list[dict[Hashable, Any]]:
    return rows.to_dict("records")


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"


def _were(count: int) -> str:
    return "was" if count == 1 else "were"
