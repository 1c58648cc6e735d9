"""What a plan can decide, before it is run: comparisons, and the replicates that they take."""

from __future__ import annotations

import math

from analysis import rules
from harness.experiment import Experiment, treatments


def comparisons(experiment: Experiment) -> int:
    """How many comparisons of the primary metric the experiment makes: m of the verdict."""
    against = math.prod(len(experiment.factors[path]) for path in experiment.baseline) - 1
    elsewhere = [f for f in experiment.factors if f not in experiment.baseline and f not in experiment.primary.at]
    return max(0, against) * math.prod(len(experiment.factors[f]) for f in elsewhere)


def deciding_replicates(comparisons_made: int) -> int:
    """The fewest replicates a side with which an exact Mann-Whitney interval exists at level 1 - 0.05/m.

    The smallest two-sided p of n against n is 2 / C(2n, n).
    """
    return next(n for n in range(2, 100) if 2 / math.comb(2 * n, n) <= 0.05 / max(1, comparisons_made))


def remarks(experiment: Experiment) -> list[str]:
    """What a plan cannot do, in sentences. It may be run all the same."""
    return [*_verdict_remarks(experiment), *_objective_remarks(experiment)]


def _verdict_remarks(experiment: Experiment) -> list[str]:
    if not experiment.baseline:
        return ["No baseline is named, so there will be tables and no verdict."]
    m = comparisons(experiment)
    needed = deciding_replicates(m)
    if experiment.replicates >= needed:
        return []
    return [
        f"This plan cannot decide: {m} comparison{'s' * (m != 1)} of {experiment.primary.metric} "
        f"need{'s' * (m == 1)} at least {needed} replicates a side, and it has {experiment.replicates}."
    ]


def _objective_remarks(experiment: Experiment) -> list[str]:
    """Objectives are judged on an interval of the median run, which takes replicates; counts are not."""
    read = [rules.parse(text) for text in experiment.objectives]
    estimated = [rule for rule in read if not rule.is_change and rule.measure.name != "count"]
    m = len(treatments(experiment.factors))
    # The smallest two-sided p of the sign test on n runs is 2 / 2^n.
    needed = next(n for n in range(1, 100) if 2.0 ** (1 - n) <= 0.05 / m * (1 + 1e-9))
    if not estimated or experiment.replicates >= needed:
        return []
    return [
        f"This plan cannot decide on its objectives: over {m} treatment{'s' * (m != 1)} they need at least {needed} "
        f"replicates, and it has {experiment.replicates}."
    ]
