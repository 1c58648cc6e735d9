"""What the numbers mean and how they were got, in sentences for the report. Pure."""

from __future__ import annotations

import math

from analysis import answer, compare, steady_state
from analysis.decide import Analysis
from analysis.steady_state import State


def notes(analysis: Analysis) -> list[str]:
    """For the first page: whether the two times differ here, and what was not looked at."""
    return [*_load_model(analysis), *_not_assessed(analysis)]


def _not_assessed(analysis: Analysis) -> list[str]:
    if analysis.experiment.imported or not _is_unassessed(analysis):
        return []
    return [
        "Whether the runs had reached a steady state was not assessed: it takes "
        f"{steady_state.LEAST_SECONDS} s of an even load."
    ]


def _is_unassessed(analysis: Analysis) -> bool:
    states = steady_state.states(analysis.experiment).values()
    return bool(states) and {steady_state.state_of(series) for series in states} <= {State.NOT_ASSESSED}


def _load_model(analysis: Analysis) -> list[str]:
    models = {str(run.load.get("model")) for run in analysis.experiment.records.values() if run.load.get("model")}
    if models == {"closed"}:
        return [
            "Closed workload model: a user sends its next request when the last is answered, so response time and "
            "service time coincide, and the waiting that a steady stream of arrivals would suffer is not in them."
        ]
    if "open" in models:
        return [
            "Open workload model: response time counts from the intended start of a request, service time from its "
            "actual start."
        ]
    return []


def table_note(analysis: Analysis) -> str:
    """What stands under the comparison table."""
    if analysis.experiment.imported:
        return (
            "As Locust's summary reports them: over the whole run, warm-up included. Percentiles are Locust's own: cut "
            "to whole milliseconds and, from 100 ms on, rounded to two digits. Its response times are those of "
            f"failures, too (before 0.12, of successes alone). {_several_runs(analysis)}"
        )
    return (
        "Values: all complete replicates of a treatment merged, their histograms added before percentiles are taken. "
        "Ratios: to the baseline, from one number a run, so that they need not be the quotient of the two values; with "
        f"the {answer.level_text(analysis.level)} interval in "
        "brackets; [none] where the replicates are too few for one, – where a run does not carry the metric. "
        "Ratios without a verdict were looked at, not decided."
    )


def _several_runs(analysis: Analysis) -> str:
    if analysis.experiment.record.replicates == 1:
        return "With one run a side a ratio has no interval."
    return (
        "Several runs of a side: counts and success added, the lowest min, the highest max, the mean of all responses; "
        "throughput and percentiles are those of the middle run, the lower of two, as percentiles cannot be averaged. "
        f"Ratios: from one number a run, with the {answer.level_text(analysis.level)} interval in brackets; [none] "
        "where the runs are too few for one."
    )


def sentences(analysis: Analysis) -> list[str]:
    """The method, for the analyst who wants to check it."""
    if analysis.experiment.imported:
        statistics = _statistics(analysis) if analysis.experiment.record.replicates > 1 else []
        return [table_note(analysis), *statistics]
    return [*_measurement(analysis), *_statistics(analysis)]


def _measurement(analysis: Analysis) -> list[str]:
    timing, order = analysis.experiment.record.timing, analysis.experiment.record.order
    declared = ", ".join(f"{name.removesuffix('_s').replace('_', '-')} {value:g} s" for name, value in timing.items())
    ordered = ", ".join(f"{name.replace('_', ' ')} {str(value).replace('_', ' ')}" for name, value in order.items())
    return [
        f"Windows as declared: {declared or 'none'}. Only responses completed in steady state count; the warm-up is "
        "kept and drawn, and is in no number.",
        _steadiness(analysis),
        f"Order of the runs: {ordered or 'not recorded'}.",
        "Throughput: successful responses a second of steady state. Failures are counted apart, and are in no "
        "response time.",
        "Percentile: nearest rank, the value of rank ceil(p × n) of the n counted values; buckets are within 0.5 % of "
        "each value. Shown from 6 responses for p50, 36 for p90, 72 for p95 and 368 for p99, where a distribution-free "
        "two-sided 95 % interval for it exists.",
        "Server CPU per request: growth of the CPU time of all server processes over steady state, divided by the "
        "responses in it. Memory: the highest sum of resident sets; pages that processes share count once for each. "
        "100 % of a core is one busy processor.",
    ]


def _steadiness(analysis: Analysis) -> str:
    found = {steady_state.state_of(series) for series in steady_state.states(analysis.experiment).values()}
    if found <= {State.NOT_ASSESSED}:
        return (
            f"Whether the runs were steady was not assessed: that takes {steady_state.LEAST_SECONDS} s of steady "
            "state, and a load that is not meant to change."
        )
    return (
        "Whether a run was steady: throughput and mean response time a second, by a trend test that allows for seconds "
        "that resemble their neighbours (Mann-Kendall on batches) and by MSER-5. The window stays the declared one."
    )


def _whole_range(analysis: Analysis) -> list[str]:
    """Where the interval's ends are the extremes: so few runs leave nothing to cut off."""
    sides = {(c.effect.treatment_runs, c.effect.baseline_runs) for c in analysis.deciding if c.effect.low is not None}
    return [
        f"With {one} against {other} runs the interval is the whole range of the ratios of any two runs: nothing "
        f"can be cut off, and it holds {answer.level_text(1 - 2 / math.comb(one + other, one))} in truth."
        for one, other in sorted(sides)
        if compare.interval_rank(other, one, analysis.level) == 1
    ]


def _statistics(analysis: Analysis) -> list[str]:
    record, deciding = analysis.experiment.record, max(len(analysis.deciding), 1)
    margin = answer.margin_text(record.margin)
    subject = "one comparison carries" if deciding == 1 else f"{deciding} comparisons carry"
    return [
        "The unit is the run: the ratio is the middle one of the ratios of each run of one side to each of the other "
        "(Hodges and Lehmann's estimate, on logarithms), and so near the ratio of the medians, seldom equal to it; "
        "its interval inverts the exact Mann-Whitney test.",
        f"Level {answer.level_text(analysis.level)}: 1 − 0.05/m for m = {deciding}, because {subject} the verdict. "
        f"That takes {compare.smallest_replicates(deciding)} replicates a side at least.",
        *_whole_range(analysis),
        f"Verdict, in this order: invalid (a severe finding), same (interval within {margin}), faster or slower "
        "(interval excludes 1), inconclusive. Replicates that would decide: at the noise and the difference seen, in "
        f"four of five repetitions, at most {compare.MOST_REPLICATES}.",
    ]
