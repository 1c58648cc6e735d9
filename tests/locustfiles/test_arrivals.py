"""Intended start times: tables, without a clock."""

from __future__ import annotations

import itertools
import math
import re

import pytest
import scipy.stats
from _arrivals import Piece, Schedule, read_rate, read_rate_file, read_steps, steady

TABLE = [
    ("10:1s", [n / 10 for n in range(10)]),
    ("2:1,4:1s", [0, 0.5, 1, 1.25, 1.5, 1.75]),
    ("2:1s,0:10s,2:1s", [0, 0.5, 11, 11.5]),
    ("0:2s,1:2s", [2, 3]),
    # integral t²: the n-th arrival at √n
    ("0..8:4s", [math.sqrt(n) for n in range(16)]),
    # integral 8t − t²: falls to nothing
    ("8..0:4s", [4 - math.sqrt(16 - n) for n in range(16)]),
    # half an arrival of the first piece is carried over into the second
    ("1:2.5s,1:2.5s", [0, 1, 2, 3, 4]),
    ("0.5:0.1m", [0, 2, 4]),
]


@pytest.mark.parametrize(("steps", "expected"), TABLE)
def test_constant(steps: str, expected: list[float]) -> None:
    assert list(Schedule(read_steps(steps)).starts()) == pytest.approx(expected)


@pytest.mark.parametrize("processes", [2, 3, 7])
@pytest.mark.parametrize("steps", ["100:10s", "10..100:10s", "7:3s,50..5:9s,0:2s,3:4s"])
def test_processes_together_are_the_one(steps: str, processes: int) -> None:
    schedule = Schedule(read_steps(steps))
    merged = sorted(itertools.chain(*(schedule.starts(k, processes) for k in range(processes))))
    assert merged == pytest.approx(list(schedule.starts()))


@pytest.mark.parametrize(("rate", "until_s", "expected"), [(100.0, 20.0, 2000), (0.1, 30.0, 3), (3.0, 0.1, 1)])
def test_as_many_as_the_rate_says(rate: float, until_s: float, expected: int) -> None:
    assert len(list(Schedule(steady(rate)).starts(until_s=until_s))) == expected


def test_a_day_does_not_drift() -> None:
    """Times come from the arrival's number: those of a rate without a finite binary fraction are still exact."""
    late = next(itertools.islice(Schedule(steady(1000 / 3)).starts(), 1_000_000, None))
    assert late == pytest.approx(3000.0, abs=1e-6)


@pytest.mark.parametrize("processes", [1, 3])
def test_poisson_gaps_are_exponential(processes: int) -> None:
    """Kolmogorov-Smirnov against the exponential distribution of the total rate."""
    schedule = Schedule(steady(200.0), "poisson", seed=7)
    starts = sorted(itertools.chain(*(schedule.starts(k, processes, until_s=100.0) for k in range(processes))))
    gaps = [b - a for a, b in itertools.pairwise(starts)]
    assert scipy.stats.kstest(gaps, scipy.stats.expon(scale=1 / 200).cdf).pvalue > 0.05
    assert len(starts) == pytest.approx(20_000, abs=4 * math.sqrt(20_000))
    # memoryless: a gap says nothing of the next
    assert abs(scipy.stats.spearmanr(gaps[:-1], gaps[1:]).statistic) < 4 / math.sqrt(len(gaps))


def test_poisson_follows_a_ramp() -> None:
    """The arrivals' places in the rate's integral are uniform."""
    ramp = read_steps("0..400:100s")
    starts = list(Schedule(ramp, "poisson", seed=3).starts())
    assert len(starts) == pytest.approx(20_000, abs=4 * math.sqrt(20_000))
    assert scipy.stats.kstest([(t / 100) ** 2 for t in starts], "uniform").pvalue > 0.05


def test_the_seed_repeats_and_the_processes_differ() -> None:
    def first(seed: int, k: int, n: int = 2) -> list[float]:
        return list(itertools.islice(Schedule(steady(10.0), "poisson", seed).starts(k, n), 20))

    assert first(1, 0) == first(1, 0)
    assert len({tuple(first(seed, k)) for seed in (1, 2) for k in (0, 1)}) == 4


def test_length() -> None:
    assert Schedule(read_steps("10:30s,20:1m,1:0.5h")).length_s == 1890
    assert Schedule(steady(1.0)).length_s == math.inf


def test_rate_file() -> None:
    assert read_rate_file(["seconds,rate_rps\n", "30,10\n", "\n", "0.5, 20.5\n"]) == (
        Piece(10, 10, 30),
        Piece(20.5, 20.5, 0.5),
    )


@pytest.mark.parametrize(
    "text", ["", "10", "10:", "10:30x", "10:30s,", "a:3", "10..:3s", "-1:3s", "5:0s", "0:5s", "1_0:3s", "٣:3s"]
)
def test_bad_steps_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"such as|above 0|needs some time"):
        read_steps(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"{'9' * 400}:1s", "inf arrivals a second are not between"),
        (f"1:{'9' * 400}s", "more than 1000 days"),
        (f"1:{'9' * 307}h", "more than 1000 days"),
        (f"0:{'9' * 400}s,1:1s", "more than 1000 days"),
        (f"0.{'0' * 310}1:1s", "are not between"),
        (f"1:1s,0..0.{'0' * 330}:1s,1..0.{'0' * 312}3:1s", "are not between"),
        (f"1:0.{'0' * 400}1s", "needs some time"),
        ("1000000:2h", "more than 1e+09 arrivals"),
        (",".join(["1000000:15m"] * 2), "more than 1e+09 arrivals"),
    ],
)
def test_numbers_beyond_all_measure_are_refused(text: str, said: str) -> None:
    """Each ran for ever at full CPU, or would have."""
    with pytest.raises(ValueError, match=re.escape(said)):
        read_steps(text)


@pytest.mark.parametrize("row", [f"1,{'9' * 400}", f"{'9' * 400},1", "3600,1000000"])
def test_so_they_are_in_files(row: str) -> None:
    with pytest.raises(ValueError, match=r"are not between|1000 days|1e\+09 arrivals"):
        read_rate_file(["seconds,rate_rps", row])


@pytest.mark.parametrize("text", ["", "30,10", "seconds,rate_rps\n30", "seconds,rate_rps\n3,-1", "seconds,rate_rps"])
def test_bad_rate_files_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"line|above 0"):
        read_rate_file(text.splitlines())


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "many", "", "1_0", "٣", "1e400", "1e-400", "2e6", "1e-7"])
def test_bad_rates_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a number of arrivals a second above 0|are not between 1e-06 and"):
        read_rate(text)


@pytest.mark.parametrize("text", ["1e3", "1000", "1000.", "1e+03", " 1000 "])
def test_rates_as_programs_write_them(text: str) -> None:
    assert read_rate(text) == 1000
