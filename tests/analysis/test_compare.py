from __future__ import annotations

import itertools
import math
import random
import statistics
from collections import Counter

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.stats import mannwhitneyu

from analysis import compare
from analysis.compare import Effect, Needed, Verdict

RUNS = st.lists(st.floats(0.01, 1000), min_size=4, max_size=8)


def effect_of(ratio: float, low: float | None, high: float | None, noise: float = 0.03, runs: int = 4) -> Effect:
    return Effect(ratio, low, high, 0.95, noise, runs, runs)


# --- the exact distribution ---


@pytest.mark.parametrize(("first", "second"), [(1, 1), (1, 4), (2, 3), (3, 3), (4, 4), (5, 3)])
def test_u_counts_by_enumeration_of_all_orderings(first: int, second: int) -> None:
    places = range(first + second)
    seen: Counter[int] = Counter()
    for chosen in itertools.combinations(places, first):
        seen[sum(y > x for x in chosen for y in places if y not in chosen)] += 1
    assert compare.u_counts(first, second) == tuple(seen[u] for u in range(first * second + 1))


@pytest.mark.parametrize("n", [2, 10, 50])
def test_u_counts_sum_to_all_orderings_and_are_symmetric(n: int) -> None:
    counts = compare.u_counts(n, n)
    assert sum(counts) == math.comb(2 * n, n)
    assert counts == counts[::-1]


@given(st.lists(st.floats(-100, 100), min_size=2, max_size=14, unique=True), st.integers(1, 13))
def test_p_equals_scipy(values: list[float], cut: int) -> None:
    assume(cut < len(values))
    ours = compare.mann_whitney_p(values[:cut], values[cut:])
    assert ours == pytest.approx(mannwhitneyu(values[:cut], values[cut:], method="exact").pvalue)


# --- estimate and interval ---

AT_TERM = [0.80, 0.83, 1.89, 1.04, 1.45, 1.38, 1.91, 1.64, 0.73, 1.46]
EARLIER = [1.15, 0.88, 0.90, 0.74, 1.21]


def test_interval_of_hollander_and_wolfe_as_r_gives_it() -> None:
    # Placental permeability, Hollander & Wolfe, example 4.1; the data of R's help page of wilcox.test. There
    # wilcox.test(x, y, conf.int = TRUE) gives an estimate of 0.305 and the interval -0.15 to 0.76 for x - y.
    assert compare.shift(EARLIER, AT_TERM) == pytest.approx(0.305)
    ends = compare.shift_interval(EARLIER, AT_TERM, 0.95)
    assert ends == (pytest.approx(-0.15), pytest.approx(0.76))
    assert compare.mann_whitney_p(AT_TERM, EARLIER) == pytest.approx(0.2544, abs=5e-5)


# R 4.2.2: wilcox.test(log(treatment), log(baseline), conf.int = TRUE, exact = TRUE, conf.level = level), its estimate
# and conf.int through exp(), printed with ten digits.
BY_R = [
    (EARLIER, AT_TERM, 0.95, 1.311767137, 0.8595041322, 1.9594594595, 0.2544122544),
    ([20.7, 21.4, 20.1, 19.8], [44.7, 46.2, 43.9, 41.5], 0.95, 2.15914938, 1.939252336, 2.333333333, 0.02857142857),
    *(
        ([101.3, 98.7, 104.2, 97.1, 99.9, 102.6], [108.4, 103.3, 111.9, 106.1, 100.4, 109.7], level, 1.062956504,
         low, high, 0.02597402597)
        for level, low, high in [
            (0.95, 1.006822612, 1.111448835), (0.975, 0.9913627639, 1.1201201201), (0.99, 0.9911154985, 1.1297631308),
        ]
    ),
    *(
        ([15.2, 16.8, 14.9, 15.7, 17.3, 16.1, 15.5, 14.6, 16.4, 15.9], [15.0, 16.6, 14.2, 15.4, 13.8, 16.0, 14.7],
         level, 0.9527004897, low, high, 0.1612505142)
        for level, low, high in [(0.95, 0.8903225806, 1.0191082803), (0.99, 0.8679245283, 1.0440251572)]
    ),
]  # fmt: skip


@pytest.mark.parametrize(("baseline", "treatment", "level", "ratio", "low", "high", "p"), BY_R)
def test_effects_as_r_gives_them(
    baseline: list[float], treatment: list[float], level: float, ratio: float, low: float, high: float, p: float
) -> None:
    measured = compare.effect(baseline, treatment, level)
    assert (measured.ratio, measured.low, measured.high) == (
        pytest.approx(ratio, rel=1e-9), pytest.approx(low, rel=1e-9), pytest.approx(high, rel=1e-9)
    )  # fmt: skip
    assert compare.mann_whitney_p(baseline, treatment) == pytest.approx(p, rel=1e-9)


@pytest.mark.parametrize(
    ("first", "second", "level", "rank"),
    # R: qwilcox((1 - level) / 2, m, n), zero where even the outermost differences promise too much.
    [(4, 4, 0.95, 1), (5, 5, 0.95, 3), (6, 6, 0.95, 6), (10, 10, 0.95, 24), (10, 5, 0.95, 9), (3, 3, 0.95, 0),
     (3, 5, 0.95, 1), (4, 4, 0.975, 0), (5, 5, 0.975, 2), (20, 20, 0.95, 128)],
)  # fmt: skip
def test_rank_of_the_interval(first: int, second: int, level: float, rank: int) -> None:
    assert compare.interval_rank(first, second, level) == rank


@pytest.mark.parametrize(("first", "second", "level"), [(4, 4, 0.95), (5, 6, 0.95), (6, 6, 0.99), (3, 7, 0.9)])
def test_rank_by_enumeration(first: int, second: int, level: float) -> None:
    """The greatest rank whose interval misses a true shift of zero in at most 1 - level of all orderings."""
    missed: Counter[int] = Counter()
    total = 0
    for chosen in itertools.combinations(range(first + second), first):
        rest = [y for y in range(first + second) if y not in chosen]
        differences = sorted(y - x for x in chosen for y in rest)
        total += 1
        for rank in range(1, first * second // 2 + 1):
            missed[rank] += differences[rank - 1] > 0 or differences[-rank] < 0
    allowed = [rank for rank, count in missed.items() if count <= (1 - level) * total * (1 + 1e-9)]
    assert compare.interval_rank(first, second, level) == max(allowed, default=0)


@given(st.lists(st.integers(1, 10**6), min_size=8, max_size=16, unique=True), st.integers(4, 12))
@settings(max_examples=50)
def test_interval_holds_the_shifts_that_the_test_does_not_reject(values: list[int], cut: int) -> None:
    assume(4 <= cut <= len(values) - 4)
    x, y = [float(v) for v in values[:cut]], [float(v) for v in values[cut:]]
    ends = compare.shift_interval(x, y, 0.95)
    assert ends is not None
    for shift, inside in (
        (ends[0] - 0.5, False),
        (ends[0] + 0.25, True),
        (ends[1] - 0.25, True),
        (ends[1] + 0.5, False),
    ):
        if ends[0] < shift < ends[1] or not inside:
            p = mannwhitneyu([v + shift for v in x], y, method="exact").pvalue
            assert bool(p > 0.05) is inside


def test_effect_of_known_runs() -> None:
    measured = compare.effect([10, 11, 12, 13], [20, 22, 24, 26])
    assert measured.ratio == pytest.approx(2.0, rel=0.01)
    assert (measured.low, measured.high) == (pytest.approx(20 / 13), pytest.approx(26 / 10))
    assert measured.noise == pytest.approx(statistics.stdev(map(math.log, [10, 11, 12, 13])))


def test_ties_leave_a_closed_interval() -> None:
    measured = compare.effect([10, 10, 10, 10], [10, 10, 10, 11])
    assert (measured.ratio, measured.low) == (1.0, 1.0)
    assert compare.verdict(measured, True, 0.05) is Verdict.INCONCLUSIVE


@given(RUNS, RUNS)
def test_swapping_the_sides_inverts_ratio_and_interval(baseline: list[float], treatment: list[float]) -> None:
    there, back = compare.effect(baseline, treatment), compare.effect(treatment, baseline)
    assert there.ratio and there.low and there.high
    assert back.ratio == pytest.approx(1 / there.ratio)
    assert (back.low, back.high) == (pytest.approx(1 / there.high), pytest.approx(1 / there.low))
    assert back.noise == pytest.approx(there.noise)


@given(RUNS, RUNS, st.floats(0.01, 100))
def test_a_factor_on_one_side_is_a_factor_of_the_ratio(
    baseline: list[float], treatment: list[float], by: float
) -> None:
    plain, scaled = compare.effect(baseline, treatment), compare.effect(baseline, [v * by for v in treatment])
    assert plain.ratio and plain.low and plain.high
    assert scaled.ratio == pytest.approx(plain.ratio * by)
    assert (scaled.low, scaled.high) == (pytest.approx(plain.low * by), pytest.approx(plain.high * by))


@given(RUNS, RUNS, st.randoms())
def test_order_of_runs_does_not_matter(baseline: list[float], treatment: list[float], order: random.Random) -> None:
    shuffled = order.sample(baseline, len(baseline))
    plain, again = compare.effect(baseline, treatment), compare.effect(shuffled, treatment)
    assert (again.ratio, again.low, again.high) == (plain.ratio, plain.low, plain.high)


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_a_value_without_logarithm_makes_no_ratio(bad: float) -> None:
    measured = compare.effect([1, 2, 3, 4], [1, 2, 3, bad])
    assert (measured.ratio, measured.low, measured.noise) == (None, None, None)
    assert compare.verdict(measured, True, 0.05) is Verdict.INCONCLUSIVE


def test_a_side_without_runs_makes_no_ratio() -> None:
    assert compare.effect([], [1, 2, 3]).ratio is None


@pytest.mark.parametrize("replicates", [4, 6])
def test_coverage_in_simulation(replicates: int) -> None:
    random_runs = random.Random(7)
    covered = 0
    for _ in range(1500):
        baseline = [random_runs.lognormvariate(0, 0.05) for _ in range(replicates)]
        treatment = [random_runs.lognormvariate(math.log(1.1), 0.05) for _ in range(replicates)]
        measured = compare.effect(baseline, treatment)
        assert measured.low and measured.high
        covered += measured.low <= 1.1 <= measured.high
    assert 0.95 <= covered / 1500 <= 0.99  # exact: 97.1 % at 4, 95.9 % at 6; the sampling error is 0.5 %


# --- levels and replicates ---


@pytest.mark.parametrize(("comparisons", "fewest"), [(1, 4), (2, 5), (6, 5), (7, 6), (23, 6), (24, 7)])
def test_smallest_replicates(comparisons: int, fewest: int) -> None:
    assert compare.smallest_replicates(comparisons) == fewest
    level = compare.level_for(comparisons)
    assert compare.interval_rank(fewest, fewest, level) > 0
    assert compare.interval_rank(fewest - 1, fewest - 1, level) == 0


def test_level_is_divided_among_comparisons() -> None:
    assert [compare.level_for(m) for m in (0, 1, 2, 10)] == pytest.approx([0.95, 0.95, 0.975, 0.995])


# --- the verdict ---


@pytest.mark.parametrize(
    ("low", "high", "higher_is_better", "expected"),
    [
        (0.99, 1.01, True, Verdict.SAME),
        (1.01, 1.03, True, Verdict.SAME),  # excludes 1, but lies within the margin
        (0.95, 1.05, True, Verdict.SAME),
        (1.01, 1.06, True, Verdict.FASTER),
        (1.01, 1.06, False, Verdict.SLOWER),
        (0.80, 0.97, True, Verdict.SLOWER),
        (0.80, 0.97, False, Verdict.FASTER),
        (0.90, 1.02, True, Verdict.INCONCLUSIVE),
        (1.00, 1.20, True, Verdict.INCONCLUSIVE),
        (0.50, 1.00, False, Verdict.INCONCLUSIVE),
        (None, None, True, Verdict.INCONCLUSIVE),
    ],
)
def test_verdict(low: float | None, high: float | None, higher_is_better: bool, expected: Verdict) -> None:
    assert compare.verdict(effect_of(1.0, low, high), higher_is_better, 0.05) is expected


def test_margin_does_not_grow_with_the_noise() -> None:
    noisy = effect_of(1.0, 0.9, 1.1, noise=0.3)
    assert compare.verdict(noisy, True, 0.05) is Verdict.INCONCLUSIVE


# --- how many would decide ---


@pytest.mark.parametrize(
    ("ratio", "noise", "expected"),
    [
        (1.10, 0.03, Needed(difference=5, sameness=None)),
        (1.05, 0.03, Needed(difference=8, sameness=None)),
        (1.00, 0.02, Needed(difference=None, sameness=6)),
        (1.00, 0.30, Needed(difference=None, sameness=None)),
    ],
)
def test_needed_replicates(ratio: float, noise: float, expected: Needed) -> None:
    assert compare.needed(effect_of(ratio, 0.9, 1.2, noise), 0.05) == expected


def test_needed_is_more_than_there_are() -> None:
    found = compare.needed(effect_of(2.0, 0.9, 3.0, noise=0.01, runs=9), 0.05)
    assert found.difference == 10


def test_needed_is_unknown_without_noise_or_ratio() -> None:
    assert compare.needed(Effect(1.1, None, None, 0.95, None, 1, 1), 0.05) == Needed(None, None)
    assert compare.needed(Effect(None, None, None, 0.95, None, 4, 4), 0.05) == Needed(None, None)


@given(st.floats(1.001, 3), st.floats(0.001, 0.5))
def test_more_noise_never_needs_fewer(ratio: float, noise: float) -> None:
    calm = compare.needed(effect_of(ratio, 0.9, 4, noise), 0.05).difference or math.inf
    loud = compare.needed(effect_of(ratio, 0.9, 4, noise * 2), 0.05).difference or math.inf
    assert calm <= loud


def test_the_suggested_number_decides_in_about_four_of_five() -> None:
    suggested = compare.needed(effect_of(1.06, 0.95, 1.2, noise=0.04), 0.05).difference
    assert suggested is not None
    random_runs, decided = random.Random(3), 0
    for _ in range(400):
        baseline = [random_runs.lognormvariate(0, 0.04) for _ in range(suggested)]
        treatment = [random_runs.lognormvariate(math.log(1.06), 0.04) for _ in range(suggested)]
        decided += compare.verdict(compare.effect(baseline, treatment), True, 0.0) is Verdict.FASTER
    assert 0.72 <= decided / 400 <= 0.93


@pytest.mark.parametrize(("ratio", "noise"), [(1.0, 0.02), (1.0, 0.04), (1.02, 0.02)])
def test_the_suggested_number_proves_sameness_in_about_four_of_five(ratio: float, noise: float) -> None:
    suggested = compare.needed(effect_of(ratio, 0.95, 1.2, noise), 0.05).sameness
    assert suggested is not None
    random_runs, proved = random.Random(3), 0
    for _ in range(400):
        baseline = [random_runs.lognormvariate(0, noise) for _ in range(suggested)]
        treatment = [random_runs.lognormvariate(math.log(ratio), noise) for _ in range(suggested)]
        proved += compare.verdict(compare.effect(baseline, treatment), True, 0.05) is Verdict.SAME
    assert 0.72 <= proved / 400 <= 0.95


# --- many replicates ---


@pytest.mark.parametrize("runs", [70, 100])
@pytest.mark.parametrize("level", [0.9, 0.95, 0.99, 0.999])
def test_where_u_is_not_counted_out_the_interval_is_a_little_longer_and_never_shorter(runs: int, level: float) -> None:
    allowed = (1 - level) / 2 * math.comb(2 * runs, runs)
    exact = next(k for k, below in enumerate(itertools.accumulate(compare.u_counts(runs, runs))) if below > allowed)
    assert exact - 10 <= compare.interval_rank(runs, runs, level) <= exact


def test_the_order_of_the_sides_does_not_matter_to_the_rank() -> None:
    assert compare.interval_rank(4, 30, 0.95) == compare.interval_rank(30, 4, 0.95)


def test_the_interval_of_five_hundred_replicates_a_side_holds_the_shifts_that_the_test_does_not_reject() -> None:
    draw = random.Random(1)
    base, other = ([draw.gauss(shift, 0.05) for _ in range(500)] for shift in (0, 0.02))
    ends = compare.shift_interval(base, other, 0.95)
    assert ends is not None
    for end in ends:
        p = mannwhitneyu([value + end for value in base], other, method="asymptotic").pvalue
        assert p == pytest.approx(0.05, abs=0.001)
