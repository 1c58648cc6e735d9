"""What a schedule offers, by known answers."""

import pytest

from harness import arrivals
from harness.arrivals import Piece, Schedule

RAMP = "10:2s,10..40:6s"


def test_it_is_read_as_locust_reads_it() -> None:
    assert arrivals.read("arrival_steps", RAMP) == Schedule((Piece(10, 10, 2), Piece(10, 40, 6)))
    rates = arrivals.read("arrival_rates", "seconds,rate_rps\n1.5,20\n3,0\n")
    assert rates == Schedule((Piece(20, 20, 1.5), Piece(0, 0, 3)))


@pytest.mark.parametrize(
    ("start_s", "end_s", "expected"),
    [
        (2, 8, (10, 25, 40)),
        (5, 8, (25, 32.5, 40)),
        (0, 8, (10, 21.25, 40)),  # (2 x 10 + 6 x 25) / 8
        (1, 3, (10, 11.25, 15)),  # (1 x 10 + 1 x 12.5) / 2
    ],
)
def test_the_rate_between_two_moments(start_s: float, end_s: float, expected: tuple[float, float, float]) -> None:
    assert arrivals.read("arrival_steps", RAMP).rates_rps(start_s, end_s) == pytest.approx(expected)


def test_lengths_add_up() -> None:
    schedule = arrivals.read("arrival_steps", ",".join(["5:0.1s"] * 30))
    assert (schedule.length_s, schedule.last_rps) == (3.0, 5.0)


@pytest.mark.parametrize(("rate_rps", "text"), [(40.0, "40"), (0.0, "0"), (0.00005, "0.00005"), (12.5, "12.5")])
def test_a_rate_has_no_exponent(rate_rps: float, text: str) -> None:
    assert arrivals.plain(rate_rps) == text


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("arrival_steps", "10", "'10' is not RATE:TIME"),
        ("arrival_rates", "peak.csv", "peak.csv: line 1: the header must be"),
        ("arrival_rates", "none.csv", "none.csv cannot be read"),
    ],
)
def test_what_is_no_schedule_is_said_in_words(key: str, value: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        arrivals.find(key, value, {"peak.csv": "10,20"})
