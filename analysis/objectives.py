"""Objectives and rules judged on what was measured: one row for each rule and treatment. Pure.

The unit is the run, as everywhere: one number a run. A rule passes for a treatment when the whole interval of the
median run is as the rule wants it, fails when nothing of the interval is, and else is inconclusive. The interval has
level 1 - 0.05/m, m being the treatments for which the rule must hold. A change is judged in the same way on the
interval of the ratio to the baseline. A count is no estimate: it must be as the rule wants it in every run, and says
nothing of further runs. What no run could show (too few responses, no baseline) is inconclusive; no data is never a
pass.
"""

from __future__ import annotations

import dataclasses
import enum
import math
import statistics
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from analysis import compare, histograms, intervals, pairing, rules
from analysis.backlog import Clock
from analysis.decide import Analysis
from analysis.findings import forbids
from analysis.histograms import Histogram
from analysis.load import COMPLETE
from analysis.metrics import ALL_REQUESTS, BY_NAME, Observation
from analysis.record import RecordError, Treatment
from analysis.rules import Measure, Rule, RuleError


class Outcome(enum.StrEnum):
    """What an objective comes to for one treatment."""

    INVALID = "invalid"
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"
    PASS = "pass"  # noqa: S105 - a word, not a password


@dataclasses.dataclass(frozen=True)
class Judgement:
    """One rule, held against one treatment."""

    rule: Rule
    treatment: Treatment
    value: float | None
    """In the measure's unit, of the median run; a ratio less 1 for a change; of the worst run for a count."""
    low: float | None
    high: float | None
    """Ends of the interval; for a count the lowest and the highest run."""
    level: float | None
    """None for a count, which is no estimate."""
    runs: int
    outcome: Outcome
    reason: str
    """Why it is inconclusive or invalid; else empty."""
    baseline: Treatment | None = None
    """Of a change."""


def read_rules(analysis: Analysis) -> list[Rule]:
    """The experiment's objectives. Raises RecordError where one is no rule."""
    try:
        return [rules.parse(text) for text in analysis.experiment.record.objectives]
    except RuleError as error:
        raise RecordError(f"{analysis.experiment.folder}: objectives: {error}") from error


def judge(analysis: Analysis, baseline: Analysis | None = None) -> list[Judgement]:
    """Every objective of the experiment for every treatment, in their order.

    A change is relative to the same treatment in `baseline`, where given, else to the experiment's own baseline.
    Raises RecordError where an objective is no rule, or a change has no baseline.
    """
    return [judgement for rule in read_rules(analysis) for judgement in _judge_rule(rule, analysis, baseline)]


def worst(judgements: Iterable[Judgement]) -> Outcome:
    """The one outcome of many: invalid before fail before inconclusive before pass."""
    found = {judgement.outcome for judgement in judgements}
    return next((outcome for outcome in Outcome if outcome in found), Outcome.PASS)


def _judge_rule(rule: Rule, analysis: Analysis, baseline: Analysis | None) -> Iterator[Judgement]:
    treatments = analysis.experiment.treatments.values()
    sides = list(_sides(analysis, baseline)) if rule.is_change else [(treatment, None) for treatment in treatments]
    if not sides:
        raise RecordError(f"{analysis.experiment.folder}: {rule.text}: {_NO_SIDES[baseline is not None]}")
    level = compare.level_for(len(sides))
    for treatment, other in sides:
        values = _Values.of(analysis, rule.measure, treatment)
        if other is not None:
            others = _Values.of(baseline or analysis, rule.measure, other)
            judged = _judge_change(rule, treatment, values, others, level)
        else:
            judged = _judge_value(rule, treatment, values, level)
        yield _veto(dataclasses.replace(judged, baseline=other), analysis, baseline)


_NO_SIDES = {
    False: "a change needs a baseline: --baseline FOLDER, or an experiment that names one.",
    True: "the folder of --baseline has no treatment in common with it.",
}


def _sides(analysis: Analysis, baseline: Analysis | None) -> Iterator[tuple[Treatment, Treatment | None]]:
    """(treatment, what it is compared with)."""
    treatments = analysis.experiment.treatments
    if baseline is None:
        for pair in pairing.pairs(treatments.values(), analysis.experiment.record.baseline, {}):
            yield pair.treatment, pair.baseline
    elif set(treatments) & set(baseline.experiment.treatments):
        yield from ((treatment, treatment) for treatment in treatments.values())


# --- the number of a run -------------------------------------------------------------------------------------------


def run_values(analysis: Analysis, measure: Measure, treatment: Treatment) -> list[float]:
    """The measure's value of each complete run of a treatment, NaN where a run does not carry it."""
    runs = analysis.experiment.complete_runs(pairing.key(treatment))
    if analysis.experiment.imported:
        return [_reported(analysis, measure, run) for run in runs]
    seen = [analysis.observations.get((run, ALL_REQUESTS)) for run in runs]
    return [math.nan if o is None or (value := measured(measure, o)) is None else value for o in seen]


@dataclasses.dataclass(frozen=True)
class _Values:
    """A treatment's values of one measure."""

    of_runs: Sequence[float]
    """As run_values."""
    bounds: Sequence[bool]
    """By run, whether its slowest are missing: a count is a lower bound, and other times are not carried."""
    imported: bool

    @classmethod
    def of(cls, analysis: Analysis, measure: Measure, treatment: Treatment) -> _Values:
        runs = analysis.experiment.complete_runs(pairing.key(treatment))
        seen = [analysis.observations.get((run, ALL_REQUESTS)) for run in runs]
        bounds = [measure.time is not None and o is not None and _clock(measure, o) in o.censored for o in seen]
        return cls(run_values(analysis, measure, treatment), bounds, analysis.experiment.imported)


def _clock(measure: Measure, seen: Observation) -> Clock:
    return "service" if measure.time == "service_time" and seen.service_times.total else "response"


def _reported(analysis: Analysis, measure: Measure, run: int) -> float:
    """The tool's own number of an imported run, in the measure's unit; NaN where it recorded none."""
    name = {"failure_ratio": "success_ratio", "percentile": f"p{100 * (measure.fraction or 0):g}"}.get(
        measure.name, measure.name
    )
    if measure.time == "service_time" or measure.name == "count" or name not in BY_NAME:
        return math.nan  # "count" is a metric, too: of all responses
    rows = analysis.by_run
    found = rows.loc[(rows["run"] == run) & (rows["endpoint"] == ALL_REQUESTS) & (rows["metric"] == name), "value"]
    value = float(next(iter(found), math.nan))
    if measure.name == "failure_ratio":
        return 1 - value
    return value * 1000 if measure.unit == "us" else value


def measured(measure: Measure, seen: Observation) -> float | None:
    """The value of one run, in the measure's unit; None where it does not carry it.

    A count of times whose slowest are missing is a lower bound.
    """
    if measure.time is not None:
        clock = _clock(measure, seen)
        if measure.above_us is not None:
            counted = seen.response_times if clock == "response" else seen.service_times
            return (
                float(counted.counts[counted.buckets_us > np.float64(measure.above_us)].sum())
                if seen.responses
                else None
            )
        return _of_times(measure, seen.times(clock))
    if measure.name == "failure_ratio":
        return seen.failures / seen.responses if seen.responses else None
    value = BY_NAME[measure.name].value(seen)
    return value * 1000 if value is not None and measure.unit == "us" else value


def _of_times(measure: Measure, times: Histogram) -> float | None:
    if measure.fraction is not None:
        enough = times.total >= histograms.smallest_sample_for(measure.fraction)
        return times.percentile_us(measure.fraction) if enough else None
    return {"min": times.min_us, "mean": times.mean_us, "max": times.max_us}[measure.name]()


# --- the judgement -------------------------------------------------------------------------------------------------


def _judge_value(rule: Rule, treatment: Treatment, seen: _Values, level: float) -> Judgement:
    values = seen.of_runs
    if not values or any(math.isnan(value) for value in values):
        return _undecided(rule, treatment, values, level, _missing(rule, seen))
    if rule.measure.name == "count":
        return _judge_count(rule, treatment, seen)
    median, ends = statistics.median(values), intervals.median_interval(values, level)
    if ends is None:
        needed = intervals.fewest_runs_for_median(level)
        few = f"no {_percent(level)} interval of {len(values)} runs exists; it takes {needed} replicates"
        return dataclasses.replace(_undecided(rule, treatment, values, level, few), value=median)
    return Judgement(rule, treatment, median, *ends, level, len(values), *_within(rule, *ends))


def _judge_count(rule: Rule, treatment: Treatment, seen: _Values) -> Judgement:
    """What a lower bound says for sure: that there are too many, or enough; never that there are few."""
    values, at_most = seen.of_runs, rule.sign.startswith("<")
    held = [rule.holds(value) for value in values]
    known = [not bound or holds is not at_most for holds, bound in zip(held, seen.bounds, strict=True)]
    # The run that is nearest to breaking the rule.
    value = max(values) if at_most else min(values)
    outcome, reason = Outcome.PASS, ""
    if not all(holds for holds, is_known in zip(held, known, strict=True) if is_known):
        outcome = Outcome.FAIL
    elif not all(known):
        outcome, reason = (
            Outcome.INCONCLUSIVE,
            f"the backlog grew in {known.count(False)} of {len(known)} runs: at least that",
        )
    return Judgement(rule, treatment, value, min(values), max(values), None, len(values), outcome, reason)


def _judge_change(rule: Rule, treatment: Treatment, seen: _Values, baseline: _Values, level: float) -> Judgement:
    values, others = seen.of_runs, baseline.of_runs
    for side in (seen, baseline):
        if not side.of_runs or any(math.isnan(value) for value in side.of_runs):
            of = "" if side is seen else "the baseline: "
            return _undecided(rule, treatment, values, level, of + _missing(rule, side))
    effect = compare.effect(others, values, level)
    if effect.ratio is None:
        zero = "a ratio takes a value above zero of every run on both sides"
        return _undecided(rule, treatment, values, level, zero)
    if effect.low is None or effect.high is None:
        few = f"no {_percent(level)} interval of {len(values)} against {len(others)} runs exists"
        return dataclasses.replace(_undecided(rule, treatment, values, level, few), value=effect.ratio - 1)
    ends = effect.low - 1, effect.high - 1
    return Judgement(rule, treatment, effect.ratio - 1, *ends, level, len(values), *_within(rule, *ends))


def _within(rule: Rule, low: float, high: float) -> tuple[Outcome, str]:
    held = {rule.holds(low), rule.holds(high)}
    if len(held) > 1:
        return Outcome.INCONCLUSIVE, "the limit lies within the interval"
    return (Outcome.PASS if held == {True} else Outcome.FAIL), ""


def _undecided(rule: Rule, treatment: Treatment, values: Sequence[float], level: float, reason: str) -> Judgement:
    return Judgement(rule, treatment, None, None, None, level, len(values), Outcome.INCONCLUSIVE, reason)


def _missing(rule: Rule, seen: _Values) -> str:
    values = seen.of_runs
    if not values:
        return "no complete run"
    if any(seen.bounds):
        return f"the backlog grew in {sum(seen.bounds)} of {len(values)} runs, which have no such time"
    lacking = sum(math.isnan(value) for value in values)
    if seen.imported:
        return f"{lacking} of {len(values)} imported runs lack it: the tool that measured them recorded none"
    few = ""
    if rule.measure.fraction is not None:
        few = f": it takes {histograms.smallest_sample_for(rule.measure.fraction)} successful responses a run"
    return f"{lacking} of {len(values)} runs do not carry it{few}"


def _veto(judged: Judgement, analysis: Analysis, baseline: Analysis | None) -> Judgement:
    """Invalid, where a severe finding touches what the judgement rests on."""
    measure = judged.rule.measure
    subject = measure.time or ("success_ratio" if measure.name == "failure_ratio" else measure.name)
    for side, treatment in ((analysis, judged.treatment), (baseline or analysis, judged.baseline)):
        found = [] if treatment is None else [f for f in side.findings if forbids(f, [pairing.key(treatment)], subject)]
        if found:
            return dataclasses.replace(judged, outcome=Outcome.INVALID, reason=f"severe finding: {found[0].name}")
    return judged


def _percent(level: float) -> str:
    return f"{100 * level:.4g} %"


def all_complete(analysis: Analysis) -> bool:
    """Whether every planned run is there and complete, and there is one."""
    statuses = list(analysis.experiment.runs["status"])
    return bool(statuses) and all(status == COMPLETE for status in statuses)
