from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from analysis import decide, load, traffic
from analysis.decide import Analysis
from analysis.metrics import ALL_REQUESTS
from tests.analysis.synthetic import ENDPOINT, PROCESSES, USERS

Make = Callable[..., Path]
ONE = {"factors": {PROCESSES: [1], USERS: [4]}, "baseline": {}, "primary": {"metric": "throughput"}}


def analyse(folder: Path) -> Analysis:
    return decide.analyse(load.load_experiment(folder))


def write_sizes(folder: Path, sizes: list[tuple[float, int]]) -> None:
    """Locust's CSV of each run: mean body size, responses."""
    for run, (size, count) in zip(sorted((folder / "runs").iterdir()), sizes, strict=True):
        text = f"Type,Name,Request Count,Failure Count,Average Content Size\n,Aggregated,{count},0,{size}\n"
        (run / "locust" / "load_stats.csv").write_text(text, encoding="utf-8")


def test_outcomes_add_up_and_keep_their_status(make: Make) -> None:
    analysis = analyse(make(**ONE, replicates=2, failure_ratio=lambda t: 0.25))
    success, failure = traffic.outcomes(analysis)
    assert success[:3] == ("processes = 1, users = 4", ENDPOINT, "success")
    assert failure[2] == "503 Service Unavailable"
    seen = [analysis.observations[run, ALL_REQUESTS] for run in (1, 2)]
    assert [int(row[3].replace(",", "")) for row in (success, failure)] == [
        sum(o.successes for o in seen),
        sum(o.failures for o in seen),
    ]
    assert float(success[4]) + float(failure[4]) == pytest.approx(100, abs=0.1)


@pytest.mark.parametrize(("share", "text"), [(1.0, "100"), (0.99999, "> 99.9"), (0.9985, "99.9"), (0.00001, "0.001")])
def test_a_share_is_never_rounded_to_all(share: float, text: str) -> None:
    assert traffic._share(share) == text


def test_bytes_are_the_mean_size_times_the_rate(make: Make) -> None:
    folder = make(**ONE, replicates=2)
    write_sizes(folder, [(600.0, 100), (900.0, 300)])
    analysis = analyse(folder)
    (body,) = traffic.bodies(analysis).values()
    assert body.mean_bytes == 825
    responses = sum(analysis.observations[run, ALL_REQUESTS].responses for run in (1, 2))
    assert body.bytes_per_s == pytest.approx(825 * responses / (2 * 6))


@pytest.mark.parametrize("size", ["nan", "-1", "", "many"])
def test_one_run_without_a_size_leaves_the_treatment_without(make: Make, size: str) -> None:
    folder = make(**ONE, replicates=2)
    write_sizes(folder, [(600.0, 100), (size, 300)])  # type: ignore[list-item]
    assert traffic.bodies(analyse(folder)) == {}


def test_without_locusts_sizes_nothing_is_said(demo_analysis: Analysis) -> None:
    assert traffic.body_rows(demo_analysis) == []
