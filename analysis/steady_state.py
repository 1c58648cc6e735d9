"""Did a run reach a steady state within the declared window, and keep to it? Pure: seconds in, a class out.

The window is the declared one, always: what is found here never moves it, since a cut chosen by looking at the numbers
favours one kind of run. It is told instead, per run, in four classes: steady, drifting, no steady state, not assessed.

Two series of one number a second are looked at: throughput, which most verdicts are about, and the mean response time,
which moves where throughput does not (in the open model throughput is the arrival rate until the server is full).
The mean and not the median, because a growing tail is a drift too, and because it follows from sums and counts.

Neighbouring seconds resemble each other: a queue that is long stays long for a while. A least-squares line through
seconds that correlate by 0.5 is "significant" at 1 % in 13 of 100 steady runs. So the trend test is that of Mann and
Kendall (Mann, Econometrica 13, 1945; Kendall, Rank Correlation Methods, 1975), with its exact distribution, on the
means of few long batches; the size of the trend is Theil and Sen's median slope (Sen, Journal of the American
Statistical Association 63, 1968). benchmarks/calibration.py counts its false alarms on noise with memory: at most the
level up to a correlation of 0.5, and above it, though not by much, at 0.7.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from analysis.load import Experiment

LEAST_SECONDS = 60
MOST_CHANGE = 0.1
"""Of the mean: what a trend over the whole window, or the step at a late truncation point, may come to."""
LEVEL = 0.01
"""For all runs of an experiment together: each run has LEVEL / runs, each of its series an equal share of that."""
STEP_SHARE = 0.25
"""Of the level, for the step at the truncation point, which was chosen by looking; and batches resemble neighbours."""
MSER_BATCH = 5
MSER_LEFT = 5
"""Batches that a truncation leaves at least: of fewer, the variance is small by chance."""
FEWEST_BATCHES, MOST_BATCHES, TREND_BATCH_S = 8, 10, 10
"""Of the trend test: batches of TREND_BATCH_S where that makes a number of them between the two."""
THROUGHPUT, RESPONSE_TIME = "throughput", "mean response time"
CHANGING_LOADS = frozenset({"arrival_steps", "arrival_rates"})
"""Keys of a load that changes by design: there is no steady state to be kept to."""

Series = NDArray[np.float64]


class State(enum.StrEnum):
    """What a window is; the worst last but one, since not to have looked is no judgement."""

    STEADY = "steady"
    DRIFTING = "drifting"
    NO_STEADY_STATE = "no steady state"
    NOT_ASSESSED = "not assessed"


@dataclasses.dataclass(frozen=True)
class Assessment:
    """One series of one run. All but `state` is None where it was not assessed."""

    state: State
    change: float | None = None
    """Trend over the window, relative to the mean."""
    p: float | None = None
    """Of the trend, two-sided."""
    truncation_s: int | None = None
    """Seconds after which MSER-5 would have begun."""
    step: float | None = None
    """Mean after that point against the mean before it, less 1; 0 where the point is the beginning."""


NOT_ASSESSED = Assessment(State.NOT_ASSESSED)


def assess(seconds: Sequence[float] | Series, level: float = LEVEL) -> Assessment:
    """Class of one series, one number a second; NaN where a second has none.

    drifting: the trend comes to more than MOST_CHANGE of the mean, and its p is below `level`. no steady state: MSER-5
    truncates within the last half, and the means before and after that point are more than MOST_CHANGE apart, which
    they are not by chance at `level`. MSER-5 alone would call every tenth short run of pure noise so.
    Not assessed: fewer than LEAST_SECONDS, or a batch without any number.

    Below 90 seconds there are 8 batches, whose smallest p is 5e-5: at a `level` below that no drift can be seen.
    """
    values = np.asarray(seconds, dtype=float)
    if len(values) < LEAST_SECONDS:
        return NOT_ASSESSED
    batches = min(max(len(values) // TREND_BATCH_S, FEWEST_BATCHES), MOST_BATCHES)
    trend_means = batch_means(values, len(values) // batches)[:batches]
    means = batch_means(values, MSER_BATCH)
    if not (np.isfinite(trend_means).all() and np.isfinite(means).all() and means.mean() > 0):
        return NOT_ASSESSED
    change, p = theil_sen(trend_means) * batches / float(trend_means.mean()), mann_kendall_p(trend_means)
    cut = truncation(means)
    step = _step(means, cut)
    state = State.STEADY
    if abs(change) > MOST_CHANGE and p < level:
        state = State.DRIFTING
    elif cut > len(means) / 2 and abs(step) > MOST_CHANGE and _step_p(means, cut) < STEP_SHARE * level:
        state = State.NO_STEADY_STATE
    return Assessment(state, change, p, cut * MSER_BATCH, step)


def batch_means(values: Series, batch: int) -> Series:
    """Means of neighbouring batches, over what is no NaN in each; values that fill no batch at the end are left out."""
    whole = values[: len(values) // batch * batch].reshape(-1, batch)
    known = np.isfinite(whole)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(known, whole, 0.0).sum(axis=1) / known.sum(axis=1))


def truncation(means: Series) -> int:
    """MSER's truncation point: how many leading batches to drop so that the mean of the rest is known best.

    The d that minimizes sum over i > d of (y_i - mean)^2 / (n - d)^2, the squared standard error of the rest's mean
    (White, "An effective truncation heuristic for bias reduction in simulation output", Simulation 69, 1997). With
    batches of five it is MSER-5 (White, Cobb & Spratt, "A comparison of five steady-state truncation heuristics for
    simulation", Winter Simulation Conference 2000). The last MSER_LEFT batches are no candidates, and a point in the
    last half means that there was no steady state to be found (Hoad, Robinson & Davies, "Automating warm-up length
    estimation", Journal of the Operational Research Society 61, 2010).
    """
    left = np.arange(len(means), 0, -1)
    total, squares = (np.cumsum(part[::-1])[::-1] for part in (means - means.mean(), (means - means.mean()) ** 2))
    error = (squares - total**2 / left) / left**2
    return int(np.argmin(error[: max(len(means) - MSER_LEFT, 0) + 1]))


def _step(means: Series, cut: int) -> float:
    """Relative step of the mean at a point."""
    before = float(means[:cut].mean()) if cut else 0.0
    if before <= 0:
        return math.inf if cut else 0.0
    return (float(means[cut:].mean()) - before) / before


def _step_p(means: Series, cut: int) -> float:
    """Student's p of the step at a point, for independent batches; the point is not the first."""
    before, after = means[:cut], means[cut:]
    size = len(means)
    variance = float(((before - before.mean()) ** 2).sum() + ((after - after.mean()) ** 2).sum()) / (size - 2)
    if before.mean() <= 0 or variance <= 1e-12 * float(means.mean()) ** 2:  # rounding errors of a series without noise
        return 0.0
    from scipy.stats import t  # slow to import

    error = math.sqrt(variance * (1 / len(before) + 1 / len(after)))
    return float(2 * t.sf(abs(float(after.mean() - before.mean())) / error, size - 2))


def theil_sen(values: Sequence[float] | Series) -> float:
    """Median of the slopes between all pairs of points, a unit apart."""
    first, second = np.triu_indices(len(values), 1)
    series = np.asarray(values, dtype=float)
    return float(np.median((series[second] - series[first]) / (second - first)))


def mann_kendall_p(values: Sequence[float] | Series) -> float:
    """Exact two-sided p of Kendall's S between values and their order; ties count as neither, which is conservative."""
    first, second = np.triu_indices(len(values), 1)
    series = np.asarray(values, dtype=float)
    s = int(np.sign(series[second] - series[first]).sum())
    counts = inversions(len(values))
    discordant = (len(counts) - 1 - abs(s) + 1) // 2  # at most so many of the pairs may be out of order
    return min(1.0, 2 * sum(counts[: discordant + 1]) / sum(counts))


@functools.cache
def inversions(length: int) -> tuple[int, ...]:
    """How many of the orders of `length` things have 0, 1, 2, … pairs out of order (Mahonian numbers)."""
    counts = [1]
    for size in range(2, length + 1):
        wider = [0] * (len(counts) + size - 1)
        for place, count in enumerate(counts):
            for more in range(size):
                wider[place + more] += count
        counts = wider
    return tuple(counts)


# --- the runs of an experiment -------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=4)  # the finding, the method and the table of runs ask for the same
def states(experiment: Experiment) -> dict[int, dict[str, Assessment]]:
    """Assessment by complete run and series, each at its share of LEVEL; of no series where the load was to change."""
    runs = experiment.runs[experiment.runs["run"].isin(experiment.complete_runs())]
    if experiment.imported or runs.empty:
        return {}
    changing = {run for run, record in experiment.records.items() if CHANGING_LOADS & set(record.load)}
    return {
        int(run): {}
        if run in changing
        else {
            name: assess(seconds, LEVEL / (2 * len(runs)))
            for name, seconds in _series(experiment.reduced[int(run)].seconds, float(window_s)).items()
        }
        for run, window_s in zip(runs["run"], runs["window_s"], strict=True)
    }


def _series(seconds: Mapping[str, NDArray[Any]], window_s: float) -> dict[str, Series]:
    """Throughput and mean response time of the seconds of steady state that were load from end to end."""
    inside = seconds["offset_s"] >= 0
    counts, sums = (seconds[name][inside].astype(float) for name in ("throughput", "response_us"))
    if window_s < len(counts):  # a budget begins and ends within its first and last second
        counts, sums = counts[1:-1], sums[1:-1]
    with np.errstate(invalid="ignore"):
        return {THROUGHPUT: counts, RESPONSE_TIME: sums / counts}


def state_of(assessments: dict[str, Assessment]) -> State:
    """Class of a run: the worst of its series that were assessed."""
    found = {assessment.state for assessment in assessments.values()}
    order = (State.NO_STEADY_STATE, State.DRIFTING, State.STEADY)
    return next((state for state in order if state in found), State.NOT_ASSESSED)
