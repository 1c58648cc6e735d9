"""Checks of what happened within and around single runs. Rows of validity.CHECKS, as those that stand there."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Iterator

from analysis import metrics, steady_state
from analysis.findings import TIMES, Case, Finding, Severity, by_severity, of_runs
from analysis.littles_law import number
from analysis.metrics import ALL_REQUESTS
from analysis.steady_state import RESPONSE_TIME, THROUGHPUT, Assessment, State

MOST_EXCEPTIONS = 0.01
"""Of the responses: as many failures are a finding, too."""


def runs_repeated(case: Case) -> Iterator[Finding]:
    """Attempts that failed and were done again; the run that counts is the first complete one."""
    repeated = case.experiment.repeated
    runs = sorted({attempt.run for attempt in repeated})
    if repeated:
        yield Finding(
            "runs_repeated",
            Severity.NOTE,
            f"{len(runs)} {'run' if len(runs) == 1 else 'runs'} failed and {'was' if len(runs) == 1 else 'were'} "
            "repeated.",
            tuple(f"{case.run_label(a.run)}, {a.folder}: {a.reason}" for a in repeated),
            "none; the first complete attempt counts, and is not measured side by side with its block",
            "Read the reasons: failures of one treatment alone are a result too.",
            case.treatments_of(runs),
        )


# --- what must not happen within steady state ------------------------------------------------------------------------


def window_differs(case: Case) -> Iterator[Finding]:
    """Steady states of another length than planned, or of different lengths among the runs."""
    rows = case.experiment.runs[case.experiment.runs["run"].isin(case.experiment.complete_runs())]
    if case.experiment.imported or rows.empty:
        return
    lengths = {
        int(run): int(end) - int(start)
        for run, start, end in zip(rows["run"], rows["start_unix_s"], rows["end_unix_s"], strict=True)
        if "requests" not in case.experiment.records[int(run)].load  # a budget takes as long as it takes
    }
    if not lengths:
        return
    usual = statistics.mode(sorted(lengths.values()))
    planned = number(case.experiment.record.timing.get("steady_state_s"))
    expected = usual if planned is None else planned
    # A planned length may have a fraction, and windows are whole seconds.
    other = [run for run, length in lengths.items() if abs(length - expected) >= 1]
    if not other and len(set(lengths.values())) > 1:
        other = [run for run, length in lengths.items() if length != usual]
    if other:
        yield Finding(
            "window_differs",
            Severity.SEVERE,
            f"In {len(other)} of {len(lengths)} runs steady state has another length than "
            f"{'the others' if planned is None else 'planned'}.",
            tuple(f"{case.run_label(run)}: {lengths[run]:,} s instead of {expected:g} s" for run in other),
            "the planned timing.steady_state in all runs",
            "Repeat these runs; look for a run that ended early, or for a run.json that was edited.",
            case.treatments_of(other),
        )


def drift(case: Case) -> Iterator[Finding]:
    """Runs that were not steady within their steady state; severe where what moved is what the verdict is about."""
    unsteady = {
        run: {name: a for name, a in series.items() if a.state in {State.DRIFTING, State.NO_STEADY_STATE}}
        for run, series in steady_state.states(case.experiment).items()
    }
    unsteady = {run: series for run, series in unsteady.items() if series}
    times_alone = {run: series for run, series in unsteady.items() if set(series) == {RESPONSE_TIME}}
    for found in _drifts(case, {run: series for run, series in unsteady.items() if run not in times_alone}):
        yield found
    for found in _drifts(case, times_alone):
        yield dataclasses.replace(found, metrics=TIMES)


def _drifts(case: Case, unsteady: dict[int, dict[str, Assessment]]) -> Iterator[Finding]:
    change, level = f"{100 * steady_state.MOST_CHANGE:.3g} %", f"{steady_state.LEVEL:g}"
    yield from of_runs(
        case,
        "drift",
        {run: "; ".join(_unsteady(name, a) for name, a in series.items()) for run, series in unsteady.items()},
        lambda run: _drift_severity(case, run, set(unsteady[run])),
        "In {n} the server did not keep to a steady state, so that their numbers depend on when one looks.",
        f"drift: a trend of more than {change} of the mean over the window, p < {level} for all runs together; no "
        f"steady state: MSER-5 truncates in the last half, and the means before and after are {change} apart",
        "Lengthen timing.warm_up, and timing.steady_state with it; look for what grows: memory, a cache, a queue.",
    )


def _unsteady(name: str, found: Assessment) -> str:
    if found.state is State.DRIFTING:
        return f"{name} drifts by {100 * (found.change or 0):+.3g} % of its mean over the window (p = {found.p:.1g})"
    return f"{name} is {100 * (found.step or 0):+.3g} % from {found.truncation_s} s on, and no steady state before"


def _drift_severity(case: Case, run: int, moved: set[str]) -> Severity:
    """A verdict about throughput does not rest on response times, nor the other way round; others rest on both."""
    name = case.primary.name
    subject = {"throughput": THROUGHPUT, "count": THROUGHPUT, **dict.fromkeys(_TIMES, RESPONSE_TIME)}.get(name)
    if subject is not None and subject not in moved:
        return Severity.NOTE
    return case.severity(case.treatments_of([run])[0])


_TIMES = tuple(prefix + statistic for prefix in ("", metrics.SERVICE) for statistic in metrics.STATISTICS)


def server_restarted(case: Case) -> Iterator[Finding]:
    """Processes of the server that end or begin within steady state: one that died, and the one in its place."""
    reduced = case.experiment.reduced
    events = {run: reduced[run].restarts for run in case.experiment.complete_runs() if run in reduced}
    events = {run: seen for run, seen in events.items() if seen}
    for severity, runs in by_severity(case, events):
        yield Finding(
            "server_restarted",
            severity,
            f"In {len(runs)} of {len(case.experiment.complete_runs())} runs processes of the server ended or began "
            "within steady state.",
            tuple(f"{case.run_label(run)}: {line}" for run in runs for line in events[run]),
            "the same processes from beginning to end of steady state",
            "Read the server's log for the reason: out of memory, a crash, or a limit of requests a worker.",
            case.treatments_of(runs),
        )


def script_exceptions(case: Case) -> Iterator[Finding]:
    """Exceptions of the locustfile itself: a user that raises one has made no request, and no failure is counted."""
    totals = case.experiment.totals
    responses = dict(zip(totals["run"], totals["recorded"], strict=True))
    rows = case.experiment.exceptions
    raised = {int(str(run)): part.sort_values("count", ascending=False) for run, part in rows.groupby("run")}
    share = {run: part["count"].sum() / max(responses.get(run, 0), 1) for run, part in raised.items()}
    yield from of_runs(
        case,
        "script_exceptions",
        {run: f"{part['count'].sum():,} exceptions, {part['message'].iloc[0]}" for run, part in raised.items()},
        lambda run: case.severity(case.treatments_of([run])[0]) if share[run] > MOST_EXCEPTIONS else Severity.NOTE,
        "The locustfile itself raised exceptions in {n}: these requests are in no number here, not even as failures.",
        f"any; severe above {100 * MOST_EXCEPTIONS:.3g} % of the responses",
        "Read locust/*_exceptions.csv in the run's folder, and repair the locustfile.",
    )


def mean_above_p90(case: Case) -> Iterator[Finding]:
    """Treatments whose mean response time is that of a few extreme responses."""
    times = {name: metrics.BY_NAME[name] for name in ("mean", "p90", "max")}
    rows = case.by_treatment
    columns = (rows[name] for name in ("treatment", "endpoint", "metric", "value"))
    values = {(treatment, e, metric): value for treatment, e, metric, value in zip(*columns, strict=True)}
    nothing = float("nan")  # and no NaN is above anything
    above = {
        (treatment, e): [values.get((treatment, e, name), nothing) for name in times]
        for treatment, e, metric in values
        if metric == "p90" and values.get((treatment, e, "mean"), nothing) > values[treatment, e, "p90"]
    }
    if not above or case.experiment.imported:
        return
    yield Finding(
        "mean_above_p90",
        Severity.NOTE,
        "The mean response time lies above the 90th percentile: a few extreme responses make the mean.",
        tuple(
            f"{case.label(treatment)}, {endpoint}: "
            + ", ".join(f"{m.name} {metrics.format_value(m, v)} ms" for m, v in zip(times.values(), found, strict=True))
            for (treatment, endpoint), found in above.items()
        ),
        "mean at most p90",
        "Judge by percentiles; look for timeouts, retries, and a server that stood still for a while.",
        tuple(dict.fromkeys(treatment for treatment, _ in above)),
    )


def noise_above_margin(case: Case) -> Iterator[Finding]:
    """Treatments whose replicates differ from each other by more than the margin that the verdict is about."""
    margin = case.experiment.record.margin
    rows = case.by_run[(case.by_run["endpoint"] == ALL_REQUESTS) & (case.by_run["metric"] == case.primary.name)]
    noisy: dict[str, str] = {}
    for treatment in case.experiment.treatments:
        values = rows.loc[rows["treatment"] == treatment, "value"].dropna()
        noise = float(values.std() / values.mean()) if len(values) > 1 and values.mean() > 0 else 0.0
        if noise > margin:
            low, high = (metrics.format_value(case.primary, float(v)) for v in (values.min(), values.max()))
            unit = case.primary.unit if case.primary.shown_unit is None else case.primary.shown_unit
            noisy[treatment] = (
                f"{case.label(treatment)}: {100 * noise:.3g} % over {len(values)} runs ({low} to {high} {unit}".rstrip()
                + ")"
            )
    if noisy:
        yield Finding(
            "noise_above_margin",
            Severity.NOTE,
            f"From run to run {case.primary.title} differs by more than the margin of ±{100 * margin:.3g} %.",
            tuple(noisy.values()),
            f"coefficient of variation at most {100 * margin:.3g} %",
            "Look for what else the machine did; a longer timing.steady_state and more replicates make it matter less.",
            tuple(noisy),
        )
