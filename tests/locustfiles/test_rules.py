"""The grammar of rules stands twice, because locustfiles work alone: one table goes through both."""

from __future__ import annotations

import dataclasses
import math
import random

import _rules
import pytest

from analysis import histograms, objectives, rules
from analysis.metrics import Observation

BOTH = [
    ("p95(response_time) < 250ms", 250_000),
    ("p95( response_time )<.25s", None),
    ("p99.9(service_time) <= 1.5 s", 1_500_000),
    ("p50(response_time) >= 300us", 300),
    ("min(response_time) > 10µs", 10),
    ("mean(service_time) < 2min", 120_000_000),
    ("max(response_time)<1s", 1_000_000),
    ("count(response_time > 100ms) < 5", 5),
    ("count( service_time>100ms ) <= 0", 0),
    ("failure_ratio  <  7%", 7 / 100),
    ("failure_ratio < 0.07", 0.07),
    ("success_ratio >= 99.9%", 0.999),
    ("throughput > 20/s", 20),
    ("throughput > 20", 20),
    ("failure_ratio <= 0%", 0),
    ("success_ratio >= 100%", 1),
    ("success_ratio >= 1", 1),
]
NEITHER = [
    ("p95 < 1s", "p95"),
    ("p95(response_time) < 250", "'250' is not a limit"),
    ("p95(response_time) < -1s", "'-1s' is"),
    ("p95(response_time) == 1s", "is not a rule"),
    ("p95(response_time)", "is not a rule"),
    ("p100(response_time) < 1s", "p100"),
    ("p0(response_time) < 1s", "p0"),
    ("p95(respnse_time) < 1s", "did you mean response_time?"),
    ("trhoughput > 1/s", "did you mean throughput?"),
    ("fialure_ratio < 1%", "did you mean failure_ratio?"),
    ("mena(response_time) < 1s", "did you mean mean?"),
    ("count(response_time) < 3", "count() takes a time and a limit"),
    ("count(response_time > 1s) < 3s", "'3s' is not a limit"),
    ("failure_ratio < 1s", "'1s' is not a limit"),
    ("throughput > 20%", "'20%' is not a limit"),
    ("", "is not a rule"),
    ("failure_ratio < 5", "'5' is a ratio, and so 500%; did you mean 5%?"),
    ("success_ratio > 99", "did you mean 99%?"),
    ("failure_ratio < 101%", "it can never fail"),
    ("failure_ratio >= 0%", "it can never fail"),
    ("success_ratio > 100%", "it can never hold"),
    ("throughput >= 0/s", "it can never fail"),
    ("p95(response_time) < 0ms", "it can never hold"),
    ("p95(response_time) < ٥ms", "'٥ms' is not a limit"),
    ("p٩٥(response_time) < 5ms", "there is no"),
    ("count(response_time > ٥s) < 5", "'٥s' is not a limit"),
]
ANALYSIS_ALONE = ["change(p95(response_time)) < 10%", "change(throughput) > -5%", "server_peak_memory < 512MiB"]


@pytest.mark.parametrize(("text", "limit"), BOTH)
def test_both_read_the_same(text: str, limit: float | None) -> None:
    if limit is None:
        for parse in (rules.parse, _rules.parse):
            with pytest.raises(ValueError, match="is not a limit"):
                parse(text)
        return
    one, other = rules.parse(text), _rules.parse(text)
    assert (one.limit, one.is_for_locust) == (limit, True)
    assert (one.text, one.sign, one.limit, *dataclasses.astuple(one.measure)) == (
        other.text, other.sign, other.limit, other.name, other.unit, other.time, other.fraction, other.above_us,
    )  # fmt: skip


@pytest.mark.parametrize(("text", "words"), NEITHER)
def test_both_refuse_the_same(text: str, words: str) -> None:
    for parse in (rules.parse, _rules.parse):
        with pytest.raises(ValueError) as caught:
            parse(text)
        assert words in str(caught.value)
        assert repr(text) in str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("change(throughput) > -5", "did you mean -5%?"),
        ("change(throughput) > -100%", None),
        ("change(throughput) >= -100%", "it can never fail"),
        ("change(mean(response_time)) < 200%", None),
        ("change(failure_ratio) < -120%", "it can never hold"),
    ],
)
def test_a_change_has_its_own_ends(text: str, words: str | None) -> None:
    if words is None:
        assert rules.parse(text).is_change
        return
    with pytest.raises(ValueError) as caught:
        rules.parse(text)
    assert words in str(caught.value)


@pytest.mark.parametrize("text", ANALYSIS_ALONE)
def test_a_load_generator_refuses_what_it_cannot_know(text: str) -> None:
    assert not rules.parse(text).is_for_locust
    with pytest.raises(ValueError):
        _rules.parse(text)


def seen(clocks: dict[str, list[int]], failures: int) -> tuple[Observation, _rules.Counts]:
    """The same responses for both, 10 s of them."""
    counts = _rules.Counts()
    for clock, values in clocks.items():
        counts.add((1, "GET /", "success", clock, value, 1) for value in values)
    failed = [clock for clock in clocks if failures]
    counts.add((1, "GET /", "503 Service Unavailable", clock, 9_999_999, failures) for clock in failed)
    times = {clock: histograms.from_arrays(values, [1] * len(values)) for clock, values in clocks.items()}
    response = times.get("response") or times["both"]
    service = times.get("service") or histograms.EMPTY
    return Observation(10.0, response.total, failures, response, service, None, None, 0.0), counts


VALUES = random.Random(7).choices(range(1_000, 200_000), k=400)


@pytest.mark.parametrize(
    ("clocks", "failures"),
    [
        ({"both": VALUES}, 0),
        ({"response": VALUES, "service": [value // 2 for value in VALUES]}, 3),
        ({"both": VALUES[:71]}, 2),
        ({"both": [5_000]}, 0),
        ({"both": []}, 0),
        ({"both": []}, 4),
    ],
)
@pytest.mark.parametrize("text", [text for text, limit in BOTH if limit is not None])
def test_both_see_the_same(clocks: dict[str, list[int]], failures: int, text: str) -> None:
    observation, counts = seen(clocks, failures)
    one = objectives.measured(rules.parse(text).measure, observation)
    other = counts.value(_rules.parse(text), 10.0)
    assert other == (one if one is None else pytest.approx(one, rel=1e-12))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("p95(response_time) < 1s", 95.0),
        ("p50(service_time) < 1s", 50.0),
        ("min(response_time) < 1s", 1.0),
        ("mean(response_time) < 1s", 50.5),
        ("max(response_time) < 1s", 100.0),
        ("count(response_time > 90us) < 1", 10.0),
        ("failure_ratio < 1%", 0.2),
        ("throughput > 1/s", 10.0),
    ],
)
def test_known_values(text: str, value: float) -> None:
    observation, counts = seen({"both": list(range(1, 101))}, 25)
    assert objectives.measured(rules.parse(text).measure, observation) == value
    assert counts.value(_rules.parse(text), 10.0) == value


def test_a_share_that_equals_its_limit_is_not_below_it() -> None:
    for parse in (rules.parse, _rules.parse):
        for percent in range(1, 100):
            assert not parse(f"failure_ratio < {percent}%").holds(percent / 100)
            assert parse(f"failure_ratio <= {percent}%").holds(percent / 100)


def test_the_fewest_responses_for_a_percentile_are_the_reports() -> None:
    for fraction in (0.5, 0.9, 0.95, 0.99, 0.999, 0.05):
        assert _rules.smallest_sample_for(fraction) == histograms.smallest_sample_for(fraction)
        assert math.isfinite(fraction)
