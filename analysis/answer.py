"""The answer in plain sentences. Pure: an Analysis in, text out."""

from __future__ import annotations

import math
import statistics

from analysis import compare, findings, metrics, pairing
from analysis.compare import Verdict
from analysis.comparison import Comparison
from analysis.decide import Analysis
from analysis.load import COMPLETE


def answers(analysis: Analysis) -> list[tuple[Verdict | None, str]]:
    """One (verdict, sentence) for each comparison that decides; where none does, one that says what there is."""
    deciding = analysis.deciding
    if deciding:
        return [(c.verdict, _sentence(analysis, c)) for c in deciding]
    return [(None, _without_comparison(analysis))]


def ratio_text(comparison: Comparison) -> str:
    """ "1.574 [1.548, 1.625]", the ratio alone where no interval exists, a dash where no ratio does."""
    measured = comparison.effect
    if measured.ratio is None:
        return "–"
    if measured.low is None or measured.high is None:
        return f"{_number(measured.ratio)} [none]"
    return f"{_number(measured.ratio)} [{_number(measured.low)}, {_number(measured.high)}]"


def level_text(level: float) -> str:
    """A level as a percentage: "95 %", "99.17 %"."""
    return f"{100 * level:.4g} %"


def margin_text(margin: float) -> str:
    """A margin: "±5 %"."""
    return f"±{100 * margin:.3g} %"


def replicates_text(replicates: int | None) -> str:
    """A number of replicates a side, or that it is more than will be suggested."""
    return f"more than {compare.MOST_REPLICATES}" if replicates is None else f"about {replicates}"


def _sentence(analysis: Analysis, comparison: Comparison) -> str:
    measured, verdict = comparison.effect, comparison.verdict
    if verdict is Verdict.INVALID:
        doubts = [
            f.message.rstrip(".")
            for f in analysis.severe
            if findings.forbids(f, comparison.keys, findings.subject_of(comparison.metric.name))
        ]
        reasons = "; ".join(text[:1].lower() + text[1:] for text in doubts)
        seen = f" Measured all the same: {_seen(analysis, comparison)}." if measured.ratio is not None else ""
        return f"This measurement cannot decide: {reasons}.{seen}"
    if verdict is Verdict.INCONCLUSIVE:
        return f"{_capital(_seen(analysis, comparison))}. {_what_would_decide(analysis, comparison)}"
    if verdict is Verdict.SAME:
        margin = margin_text(analysis.experiment.record.margin)
        return f"{_capital(_seen(analysis, comparison))}: the whole interval lies within the margin of {margin}."
    return f"{_capital(_seen(analysis, comparison))}: the whole interval lies {_side(comparison)} 1."


def _side(comparison: Comparison) -> str:
    return "above" if comparison.effect.low is not None and comparison.effect.low > 1 else "below"


def _seen(analysis: Analysis, comparison: Comparison) -> str:
    """What was measured: levels, ratio, the two values, the interval."""
    names, metric, measured = analysis.names, comparison.metric, comparison.effect
    varied = list(analysis.experiment.record.baseline)
    treatment = pairing.label(comparison.pair.treatment, names, varied)
    baseline = pairing.label(comparison.pair.baseline, names, varied)
    context = f" at {pairing.label(comparison.pair.context, names)}" if comparison.pair.context else ""
    unit = f" {metric.unit if metric.shown_unit is None else metric.shown_unit}"
    medians = [_median(analysis, comparison, treatment) for treatment in reversed(comparison.keys)]
    values = " against ".join(metrics.format_value(metric, value) for value in medians)
    numbers = f"medians of {_sides(analysis, comparison)}: {values}{unit}".rstrip()
    if measured.ratio is None:
        return f"with {treatment}, {metric.title}{context} cannot be compared with {baseline} ({numbers})"
    interval = (
        f"; {level_text(measured.level)} interval of the ratio {_number(measured.low)} to {_number(measured.high)}"
        if measured.low is not None and measured.high is not None
        else ""
    )
    return (
        f"with {treatment}, {metric.title}{context} was {_number(measured.ratio)} times that with {baseline} "
        f"({numbers}{interval}{_against_the_medians(measured, *medians)})"
    )


def _sides(analysis: Analysis, comparison: Comparison) -> str:
    """ "6 against 6 runs of 20 s"; the time is left out where it is unknown, as of imported runs."""
    runs = analysis.experiment.runs
    used = runs[(runs["status"] == COMPLETE) & runs["treatment"].isin(comparison.keys)]
    times_s = [] if analysis.experiment.imported else sorted({f"{t:.3g}" for t in used["window_s"].dropna()}, key=float)
    shown = f" of {' to '.join(dict.fromkeys((times_s[0], times_s[-1])))} s" if times_s else ""
    return f"{comparison.effect.treatment_runs} against {comparison.effect.baseline_runs} runs{shown}"


def _median(analysis: Analysis, comparison: Comparison, treatment: str) -> float | None:
    """Of the numbers that the ratio is made of, one a run, so that a reader can hold the two beside each other."""
    rows = analysis.by_run
    chosen = (rows["treatment"] == treatment) & (rows["endpoint"] == comparison.endpoint)
    values = list(rows.loc[chosen & (rows["metric"] == comparison.metric.name), "value"])
    return statistics.median(values) if values and not any(map(math.isnan, values)) else None


def _against_the_medians(measured: compare.Effect, treatment: float | None, baseline: float | None) -> str:
    """A word where the medians lie the other way round, which few or skewed runs can bring about."""
    if measured.ratio is None or treatment is None or baseline is None:
        return ""
    if (measured.ratio - 1) * (treatment - baseline) >= 0:
        return ""
    return "; the ratio is the middle one of all pairs of runs, not that of the medians"


def _what_would_decide(analysis: Analysis, comparison: Comparison) -> str:
    measured, needed = comparison.effect, comparison.needed
    margin = margin_text(analysis.experiment.record.margin)
    deciding = len(analysis.deciding)
    fewest = compare.smallest_replicates(deciding)
    why = f"The interval includes 1 and reaches beyond the margin of {margin}."
    if measured.ratio is None:
        return "A ratio takes a positive value of every run on both sides."
    if measured.low is None:
        sides = f"{measured.treatment_runs} against {measured.baseline_runs}"
        subject = "one comparison" if deciding == 1 else f"{deciding} comparisons"
        why = f"With {sides} runs no interval exists: for {subject} it takes {fewest} replicates a side."
    if measured.noise is None or needed is None:
        return why
    return (
        f"{why} At the noise seen ({100 * measured.noise:.2g} % from run to run), {replicates_text(needed.difference)} "
        f"replicates a side would show a difference of this size, and {replicates_text(needed.sameness)} that both are "
        f"the same within {margin}."
    )


def _without_comparison(analysis: Analysis) -> str:
    runs = analysis.experiment.runs
    complete = int((runs["status"] == COMPLETE).sum())
    if analysis.primary.name.startswith(metrics.SERVICE) and not _has_service_times(analysis):
        plain = analysis.primary.name.removeprefix(metrics.SERVICE)
        return f"No verdict: service times were not recorded apart; the closed model has one clock. Use {plain}."
    if analysis.comparisons:
        return "No verdict: primary.at selects none of the comparisons below."
    if not complete:
        return f"No verdict: none of {len(runs)} planned runs was completed."
    if len(analysis.experiment.treatments) > 1:
        return "No verdict: no treatment has a baseline to be compared with."
    rows = analysis.by_treatment[analysis.by_treatment["endpoint"] == metrics.ALL_REQUESTS]
    value = next(iter(rows.loc[rows["metric"] == analysis.primary.name, "value"]), None)
    number = metrics.format_value(analysis.primary, value)
    return f"No verdict: one treatment, nothing to compare it with. {_capital(analysis.primary.head)}: {number}."


def _has_service_times(analysis: Analysis) -> bool:
    return bool(analysis.by_run["metric"].str.startswith(metrics.SERVICE).any())


def _number(ratio: float | None) -> str:
    if ratio is None:
        return "–"
    return f"{ratio:.3f}" if 0.1 <= ratio < 100 else f"{ratio:.3g}"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
