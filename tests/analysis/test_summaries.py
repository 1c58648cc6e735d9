from __future__ import annotations

import math

import pandas as pd
import pytest

from analysis.summaries import combined


def reported(*runs: dict[str, float]) -> pd.DataFrame:
    rows = [
        {"run": number, "endpoint": "all", "metric": metric, "value": value, "samples": int(run["count"])}
        for number, run in enumerate(runs, start=1)
        for metric, value in run.items()
    ]
    return pd.DataFrame(rows)


def values(frame: pd.DataFrame) -> dict[str, float]:
    return dict(zip(frame["metric"], frame["value"], strict=True))


def test_what_adds_is_added_and_percentiles_are_those_of_a_run() -> None:
    runs = reported(
        {"count": 100, "success_ratio": 1.0, "mean": 10, "min": 3, "max": 90, "p95": 40, "throughput": 10},
        {"count": 300, "success_ratio": 0.8, "mean": 30, "min": 2, "max": 70, "p95": 60, "throughput": 30},
    )
    seen = combined(runs, {1, 2})
    assert values(seen) == pytest.approx(
        {"count": 400, "success_ratio": 0.85, "mean": 25, "min": 2, "max": 90, "p95": 40, "throughput": 10}
    )
    assert set(seen["samples"]) == {400}


def test_the_middle_of_three_runs() -> None:
    runs = reported(*({"count": 1, "p95": value} for value in (70, 20, 50)))
    assert values(combined(runs, {1, 2, 3}))["p95"] == 50


def test_a_value_that_a_run_lacks_is_missing_for_all() -> None:
    runs = reported({"count": 1, "p95": 70, "p99": 80}, {"count": 1, "p95": math.nan})
    seen = values(combined(runs, {1, 2}))
    assert seen["count"] == 2
    assert math.isnan(seen["p95"])
    assert math.isnan(seen["p99"])


def test_one_run_keeps_its_numbers_to_the_last_bit() -> None:
    runs = reported({"count": 3, "mean": 0.1 + 0.2, "success_ratio": 1 / 3})
    assert values(combined(runs, {1})) == {"count": 3, "mean": 0.1 + 0.2, "success_ratio": 1 / 3}


def test_runs_of_another_side_do_not_count() -> None:
    assert values(combined(reported({"count": 1}, {"count": 10}), {2})) == {"count": 10}
