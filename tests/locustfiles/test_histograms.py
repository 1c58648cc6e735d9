"""The histograms without a clock, a file, or Locust."""

from __future__ import annotations

import pytest
from _histograms import (
    MAX_ENDPOINTS,
    MAX_OUTCOMES,
    OTHER_ENDPOINTS,
    OTHER_FAILURES,
    RELATIVE_ERROR,
    Histograms,
    bucket_us,
    outcome_of,
)
from hypothesis import given
from hypothesis import strategies as st

HOURS_US = 10 * 3600 * 10**6


@given(st.integers(0, HOURS_US))
def test_a_bucket_is_within_half_a_percent(value: int) -> None:
    assert abs(bucket_us(value) - value) <= 0.005 * value
    assert abs(bucket_us(value) - value) <= RELATIVE_ERROR * value


@given(st.integers(0, HOURS_US))
def test_a_representative_stays_in_its_bucket(value: int) -> None:
    assert bucket_us(bucket_us(value)) == bucket_us(value)
    assert bucket_us(value) <= bucket_us(value + 1)


def test_short_times_are_exact_and_octaves_have_128_buckets() -> None:
    assert [bucket_us(value) for value in range(256)] == list(range(256))
    for octave in (8, 9, 20):
        assert len({bucket_us(value) for value in range(2**octave, 2 ** (octave + 1))}) == 128


class CatchResponseError(Exception):
    """What Locust wraps the locustfile's words in."""


@pytest.mark.parametrize(
    ("exception", "outcome"),
    [
        (None, "success"),
        (CatchResponseError("401 Unauthorized"), "401 Unauthorized"),
        (ValueError("what  was\nthat"), "ValueError: what was that"),
        (ValueError(), "ValueError"),
        (CatchResponseError(""), "failure without a message"),
        (RuntimeError("<socket at 0x7f12ab34cd>"), "RuntimeError: <socket at 0x…>"),
        (CatchResponseError("x" * 1000), "x" * 200),
    ],
)
def test_outcomes_are_named_on_one_line(exception: Exception | None, outcome: str) -> None:
    assert outcome_of(exception) == outcome


def fill(histograms: Histograms, times_ms: list[float]) -> None:
    for time_ms in times_ms:
        histograms.on_request("GET", "/x", time_ms, None, context={}, response_length=3)


def test_known_values_are_counted_where_they_belong() -> None:
    clock = iter([10.0, 10.99, 11.0])
    histograms = Histograms(lambda: next(clock))
    histograms.on_request("GET", "/x", 0.1, None)
    histograms.on_request("GET", "/x", 0.1004, None)
    histograms.on_request("POST", "/x", 1.0, CatchResponseError("500"))
    assert sorted(histograms.take()) == [
        (10, "GET /x", "success", "both", 100, 2),
        (11, "POST /x", "500", "both", bucket_us(1000), 1),
    ]
    assert histograms.take() == []


def test_only_finished_seconds_are_taken() -> None:
    clock = iter([10.5, 11.5])
    histograms = Histograms(lambda: next(clock))
    fill(histograms, [1, 1])
    assert [row[0] for row in histograms.take(before_second=11)] == [10]
    assert [row[0] for row in histograms.take()] == [11]


@given(st.lists(st.floats(0, 60_000), max_size=50), st.lists(st.floats(0, 60_000), max_size=50))
def test_counts_of_two_processes_add_up_to_those_of_one(one: list[float], other: list[float]) -> None:
    def counts(*parts: list[float]) -> dict[tuple[object, ...], int]:
        total: dict[tuple[object, ...], int] = {}
        for part in parts:
            histograms = Histograms(lambda: 5.0)
            fill(histograms, part)
            for *key, count in histograms.take():
                total[tuple(key)] = total.get(tuple(key), 0) + count
        return total

    assert counts(one, other) == counts(one + other)


def test_an_event_that_is_no_measurement_is_left_out() -> None:
    histograms = Histograms(lambda: 5.0)
    histograms.on_request("GET", "/x", None, None)
    assert histograms.take() == []


def test_a_hostile_server_cannot_fill_the_memory() -> None:
    histograms = Histograms(lambda: 5.0)
    for number in range(3 * MAX_ENDPOINTS):
        histograms.on_request("GET", f"/{number}", 1.0, CatchResponseError(f"failure {number}"))
    rows = histograms.take()
    assert len({row[1] for row in rows}) == MAX_ENDPOINTS + 1
    assert len({row[2] for row in rows}) == MAX_OUTCOMES + 1
    assert {OTHER_ENDPOINTS} < {row[1] for row in rows}
    assert {OTHER_FAILURES} < {row[2] for row in rows}
    assert sum(row[5] for row in rows) == 3 * MAX_ENDPOINTS
