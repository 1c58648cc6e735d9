from __future__ import annotations

import itertools
import json
import math
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import kendalltau, theilslopes

from analysis import load, method, steady_state, view
from analysis.findings import TIMES, Severity
from analysis.steady_state import LEVEL, MSER_LEFT, RESPONSE_TIME, THROUGHPUT, Series, State, assess
from tests.analysis import synthetic
from tests.analysis.synthetic import PROCESSES, USERS
from tests.analysis.test_validity import analyse, found

Make = Callable[..., Path]
DISTINCT = st.lists(st.integers(-1000, 1000), min_size=3, max_size=12, unique=True)


# --- MSER-5 ---


def mser_as_defined(means: list[float]) -> int:
    """White 1997, term by term."""

    def error(cut: int) -> float:
        rest = means[cut:]
        centre = sum(rest) / len(rest)
        return sum((y - centre) ** 2 for y in rest) / len(rest) ** 2

    return min(range(len(means) - MSER_LEFT + 1), key=error)


@given(st.lists(st.floats(0, 100), min_size=MSER_LEFT, max_size=30))
@settings(max_examples=60)
def test_truncation_is_the_minimum_of_whites_formula(means: list[float]) -> None:
    ours, theirs = steady_state.truncation(np.array(means)), mser_as_defined(means)
    # Where two points are equally good but for rounding, either is right.
    rests = [np.array(means[cut:]) for cut in (ours, theirs)]
    errors = [float(rest.var() / len(rest)) for rest in rests]
    assert errors[0] == pytest.approx(errors[1], rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("length", [0, 5, 12, 25])
def test_truncation_finds_a_warm_up_of_known_length(length: int) -> None:
    means = [50 + 50 * i / max(length, 1) for i in range(length)] + [100 + (-1) ** i for i in range(60 - length)]
    assert abs(steady_state.truncation(np.array(means)) - length) <= 1


def test_batch_means_leave_out_what_is_missing_and_what_fills_no_batch() -> None:
    means = steady_state.batch_means(np.array([1, 2, math.nan, 4, 8, 6, 9]), 3)
    assert means.tolist() == [1.5, 6.0]


# --- the trend ---


@pytest.mark.parametrize("length", [1, 2, 5, 7])
def test_inversions_by_enumeration(length: int) -> None:
    seen: Counter[int] = Counter()
    for order in itertools.permutations(range(length)):
        seen[sum(a > b for a, b in itertools.combinations(order, 2))] += 1
    assert steady_state.inversions(length) == tuple(seen[k] for k in range(length * (length - 1) // 2 + 1))


@given(DISTINCT)
@settings(max_examples=60)
def test_p_and_slope_equal_scipys(values: list[int]) -> None:
    exact = kendalltau(range(len(values)), values, method="exact").pvalue
    assert steady_state.mann_kendall_p([float(v) for v in values]) == pytest.approx(exact)
    assert steady_state.theil_sen([float(v) for v in values]) == pytest.approx(theilslopes(values).slope)


def test_ties_are_evidence_of_nothing() -> None:
    assert steady_state.mann_kendall_p([3.0] * 8) == 1.0
    assert steady_state.mann_kendall_p([1.0, 1, 2, 2, 3, 3]) > steady_state.mann_kendall_p([1.0, 2, 3, 4, 5, 6])


# --- the classes ---


def noise(rows: int, length: int, memory: float = 0.0, seed: int = 1) -> Series:
    """Rows of steady first-order autoregressive noise of standard deviation 1."""
    values = np.random.default_rng(seed).standard_normal((rows, length))
    values[:, 1:] *= math.sqrt(1 - memory**2)
    for i in range(1, length):
        values[:, i] += memory * values[:, i - 1]
    return values


def series(length: int, shape: Callable[[float], float], seed: int = 1) -> Series:
    """Seconds around 100, with 3 % noise."""
    return np.array([100 * shape(i / length) for i in range(length)]) * (1 + 0.03 * noise(1, length, seed=seed)[0])


@pytest.mark.parametrize(
    ("length", "shape", "state"),
    [
        (59, lambda x: 1 + x, State.NOT_ASSESSED),
        (60, lambda x: 1.0, State.STEADY),
        (600, lambda x: 1.0, State.STEADY),
        (60, lambda x: 1 + 0.3 * x, State.DRIFTING),
        (120, lambda x: 1 - 0.2 * x, State.DRIFTING),
        (600, lambda x: 1 + 0.05 * x, State.STEADY),  # certain, and too small to matter
        (600, lambda x: 0.6 if x < 0.03 else 1.0, State.STEADY),  # 18 s of warm-up, which MSER-5 would cut
        (60, lambda x: 0.7 if x < 0.6 else 1.0, State.NO_STEADY_STATE),
        (300, lambda x: 1.0 if x < 0.7 else 0.6 if x < 0.75 else 1.4, State.NO_STEADY_STATE),
        (300, lambda x: 0.0, State.NOT_ASSESSED),
    ],
)
def test_classes_of_known_series(length: int, shape: Callable[[float], float], state: State) -> None:
    for seed in range(5):
        assert assess(series(length, shape, seed=seed), LEVEL / 8).state is state


def test_it_is_told_how_much_and_from_where() -> None:
    drifting = assess(series(120, lambda x: 0.9 + 0.2 * x), LEVEL)
    assert drifting.change == pytest.approx(0.2, abs=0.03)
    late = assess(series(60, lambda x: 0.7 if x < 0.6 else 1.0), LEVEL)
    assert late.truncation_s in {30, 35, 40}
    assert late.step == pytest.approx(0.43, abs=0.1)
    assert assess(series(600, lambda x: 0.6 if x < 0.03 else 1.0)).truncation_s == 20


def test_seconds_without_an_answer_are_missing_and_a_batch_without_any_is_not_assessed() -> None:
    values = series(120, lambda x: 1.0)
    values[::3] = math.nan
    assert assess(values).state is State.STEADY
    values[40:60] = math.nan
    assert assess(values).state is State.NOT_ASSESSED


@pytest.mark.parametrize(("length", "memory"), [(60, 0.0), (60, 0.5), (120, 0.5), (300, 0.7)])
def test_false_alarms_stay_below_their_level_on_noise_with_memory(length: int, memory: float) -> None:
    # 1 % and the sampling error of 800 series; seconds taken for independent would give 13 % at a memory of 0.5.
    found = [assess(row, LEVEL) for row in 1 + 0.1 * noise(800, length, memory)]
    assert sum((a.p or 0) < LEVEL for a in found) / 800 <= 0.02
    assert sum(a.state is not State.STEADY for a in found) / 800 <= 0.02


# --- experiments ---


def write_trend(run: Path, rate: Callable[[float], float], response_ms: Callable[[float], float]) -> None:
    """A run's responses anew, each second's evenly, by the place in the window: below 0 is the warm-up."""
    data = json.loads((run / "run.json").read_text("utf-8"))
    window, start = data["windows"]["steady_state"], data["windows"]["warm_up"]["start_unix_s"]
    length = window["end_unix_s"] - window["start_unix_s"]
    samples = []
    for second in range(start, window["end_unix_s"]):
        place = (second - window["start_unix_s"]) / length
        count = round(rate(place) + (second * 7919 % 5 - 2) / 2)  # something to break the ties of flat stretches
        samples += [(second + 0.5, synthetic.ENDPOINT, "success", round(1000 * response_ms(place)))] * count
    synthetic.write_response_times(run, samples, "closed")
    (run / "locust" / "load_stats.csv").unlink(missing_ok=True)


@pytest.fixture
def minute(make: Make) -> Path:
    """Two treatments, four runs each of 60 s, all of them flat."""
    folder = make(factors={PROCESSES: [1, 2], USERS: [16]}, steady_s=60)
    for path in (folder / "runs").iterdir():
        rate = 60.0 if "processes1" in path.name else 90.0
        write_trend(path, lambda x, rate=rate: rate, lambda x: 100.0)  # type: ignore[misc]
    return folder


def test_flat_runs_of_a_minute_are_steady(minute: Path) -> None:
    analysis = analyse(minute)
    assert analysis.findings == []
    states = steady_state.states(analysis.experiment)
    assert len(states) == 8 and all(set(s) == {THROUGHPUT, RESPONSE_TIME} for s in states.values())
    shown = view.of(analysis)
    assert shown.run_columns[-1] == "steady state"
    assert {row[-1] for row in shown.run_rows} == {"steady"}


@pytest.mark.parametrize(
    ("rate", "response_ms", "severity", "evidence"),
    [
        (lambda x: 60 + 20 * x, lambda x: 100.0, Severity.SEVERE, "throughput drifts by +2"),
        (lambda x: 45.0 if x < 0.6 else 60.0, lambda x: 100.0, Severity.SEVERE, "throughput is +3"),
        (lambda x: 60.0, lambda x: 100 + 40 * x, Severity.NOTE, "mean response time drifts by +3"),
    ],
)
def test_a_run_that_does_not_keep_to_its_steady_state(
    minute: Path,
    rate: Callable[[float], float],
    response_ms: Callable[[float], float],
    severity: Severity,
    evidence: str,
) -> None:
    run = next(path for path in sorted((minute / "runs").iterdir()) if "processes1" in path.name)
    write_trend(run, rate, response_ms)
    analysis = analyse(minute)
    finding = found(analysis, "drift")
    assert finding.severity is severity
    assert "1 of 8 runs" in finding.message
    assert evidence in finding.evidence[0]
    # Rules about throughput and failures are judged where times alone move.
    assert finding.metrics == (TIMES if severity is Severity.NOTE else None)


@pytest.mark.parametrize("key", ["arrival_steps", "arrival_rates"])
def test_a_load_that_is_meant_to_change_is_not_assessed(minute: Path, key: str) -> None:
    run = next(path for path in sorted((minute / "runs").iterdir()) if "processes1" in path.name)
    write_trend(run, lambda x: 60 + 60 * x, lambda x: 100.0)
    for path in (minute / "runs").iterdir():
        data = json.loads((path / "run.json").read_text("utf-8"))
        data["load"][key] = "60..120:62s"
        (path / "run.json").write_text(json.dumps(data), encoding="utf-8")
    states = steady_state.states(load.load_experiment(minute))
    assert {steady_state.state_of(s) for s in states.values()} == {State.NOT_ASSESSED}


def test_the_partial_seconds_at_the_ends_of_a_budget_are_no_drift(minute: Path) -> None:
    plan = json.loads((minute / "experiment.json").read_text("utf-8"))
    del plan["timing"]["steady_state_s"]
    (minute / "experiment.json").write_text(json.dumps(plan), encoding="utf-8")
    for run in (minute / "runs").iterdir():
        data = json.loads((run / "run.json").read_text("utf-8"))
        data["windows"]["steady_state"] |= {"measured_s": 59.2}
        data["load"]["requests"] = 3600
        (run / "run.json").write_text(json.dumps(data), encoding="utf-8")
    states = steady_state.states(load.load_experiment(minute))
    assert {steady_state.state_of(s) for s in states.values()} == {State.NOT_ASSESSED}  # 58 whole seconds are left


def test_short_runs_are_not_assessed_and_that_is_said_once(demo: Path) -> None:
    analysis = analyse(demo)
    assert {steady_state.state_of(s) for s in steady_state.states(analysis.experiment).values()} == {State.NOT_ASSESSED}
    shown = view.of(analysis)
    assert "steady state" not in shown.run_columns
    assert sum("not assessed" in sentence for sentence in method.sentences(analysis)) == 1
