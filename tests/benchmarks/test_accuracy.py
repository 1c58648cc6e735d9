"""The instrument against known times, as benchmarks/accuracy.py measures it, for seconds and with generous bounds.

Stalls, frozen servers and lost arrivals are in tests/locustfiles/test_open_model.py.
"""

from __future__ import annotations

from benchmarks import accuracy
from benchmarks.runs import Row, table


def number(value: str) -> float:
    """Of "0.12 ms" or "0.1%"."""
    return float(value.split(maxsplit=1)[0].rstrip("%"))


def test_recorded_quantiles_are_those_of_raw_timestamps() -> None:
    rows = list(accuracy.recorder_rows(2))
    assert len(rows) == 3
    assert all(number(value) < 0.7 for row in rows for value in row.values), table(rows)


def test_starts_are_more_punctual_than_a_bare_timer_loop() -> None:
    _, ours, bare = accuracy.pacing_rows(2)
    assert number(ours.values[0]) < 1.5 * number(bare.values[0])


def test_the_client_adds_less_than_a_bare_blocking_socket() -> None:
    rows: dict[str, Row] = {row.what.split(",")[0].strip(): row for row in accuracy.client_rows(2)}
    ours, bare = (number(rows[name].values[0]) for name in ("client minus server", "bare blocking socket"))
    assert bare > 0
    assert ours < 1.5 * bare


def test_the_recorder_is_a_small_part_of_a_request() -> None:
    cpu_us, rate = accuracy.cost_of_a_request(
        accuracy.locust(accuracy.AUTH, 4, ["-u", "20", "-r", "20"], accuracy.BUSY)
    )
    health_us = accuracy.health_cost_us() / rate
    for model in ("closed", "open"):
        assert accuracy.recorder_cost_us(model) + health_us < 0.1 * cpu_us
