"""The numbers of a report against those computed from the raw samples themselves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from analysis import decide, endpoints, load, metrics, pairing, record
from analysis.metrics import ALL_REQUESTS, BY_NAME
from tests.analysis import synthetic
from tests.analysis.synthetic import PROCESSES, USERS, Sample

TREATMENTS = [{PROCESSES: p, USERS: u} for p in (1, 2) for u in (4, 16)]


@pytest.fixture(scope="module")
def known(
    demo_samples: tuple[Path, dict[int, list[Sample]]], demo_analysis: decide.Analysis
) -> tuple[decide.Analysis, dict[int, list[Sample]]]:
    return demo_analysis, demo_samples[1]


def inside(analysis: decide.Analysis, samples: dict[int, list[Sample]], runs: list[int]) -> list[Sample]:
    windows = {run: analysis.experiment.records[run].windows["steady_state"] for run in runs}
    return [s for run in runs for s in samples[run] if windows[run].start_unix_s <= int(s[0]) < windows[run].end_unix_s]


def value_of(rows: pd.DataFrame, metric: str, **where: object) -> float:
    for column, wanted in {"endpoint": ALL_REQUESTS, "metric": metric, **where}.items():
        rows = rows[rows[column] == wanted]
    (value,) = rows["value"]
    return float(value)


def test_the_contract_names_are_all_here() -> None:
    assert set(record.METRICS) <= set(BY_NAME)
    assert len(BY_NAME) == len(metrics.METRICS)


@pytest.mark.parametrize("treatment", TREATMENTS)
def test_a_treatment_is_that_of_all_samples_of_its_replicates(
    known: tuple[decide.Analysis, dict[int, list[Sample]]], treatment: dict[str, int]
) -> None:
    analysis, samples = known
    key = pairing.key(treatment)
    seen = inside(analysis, samples, analysis.experiment.complete_runs(key))
    times = np.array([s[3] for s in seen]) / 1000
    expected = {
        "throughput": len(seen) / 24,
        "count": len(seen),
        "success_ratio": 1.0,
        "min": times.min(),
        "mean": times.mean(),
        "max": times.max(),
        **{f"p{p}": np.percentile(times, p, method="inverted_cdf") for p in (50, 90, 95, 99)},
    }
    for name, value in expected.items():
        within = 0 if name in ("throughput", "count", "success_ratio") else 0.005
        assert value_of(analysis.by_treatment, name, treatment=key) == pytest.approx(value, rel=within), name


def test_a_run_is_that_of_its_own_samples(known: tuple[decide.Analysis, dict[int, list[Sample]]]) -> None:
    analysis, samples = known
    for run in analysis.experiment.complete_runs():
        seen = inside(analysis, samples, [run])
        assert value_of(analysis.by_run, "throughput", run=run) == pytest.approx(len(seen) / 6)
        median = np.percentile([s[3] / 1000 for s in seen], 50, method="inverted_cdf")
        assert value_of(analysis.by_run, "p50", run=run) == pytest.approx(median, rel=0.005)


def test_server_and_generator_as_the_generator_of_folders_made_them(
    known: tuple[decide.Analysis, dict[int, list[Sample]]],
) -> None:
    analysis, _ = known
    two = pairing.key({PROCESSES: 2, USERS: 16})
    throughput = value_of(analysis.by_treatment, "throughput", treatment=two)
    assert value_of(analysis.by_treatment, "server_cpu_ms_per_request", treatment=two) == pytest.approx(12, rel=0.01)
    assert value_of(analysis.by_treatment, "server_cpu", treatment=two) == pytest.approx(throughput * 0.012, rel=0.01)
    assert value_of(analysis.by_treatment, "server_peak_memory", treatment=two) == 160 * 2**20
    assert value_of(analysis.by_treatment, "generator_cpu", treatment=two) == pytest.approx(0.25)
    assert value_of(analysis.by_treatment, "generator_cpu_busiest", treatment=two) == pytest.approx(0.20)


def test_failures_are_in_no_response_time_and_no_throughput(make: Callable[..., Path]) -> None:
    experiment = load.load_experiment(make(failure_ratio=lambda t: 0.25, replicates=1))
    for seen in metrics.observe(experiment).values():
        assert seen.failures > 0
        assert seen.response_times.total == seen.successes
        assert BY_NAME["throughput"].value(seen) == seen.successes / 6
        assert BY_NAME["success_ratio"].value(seen) == seen.successes / (seen.successes + seen.failures)


def test_the_open_model_has_both_clocks_and_counts_each_response_once(make: Callable[..., Path]) -> None:
    analysis = decide.analyse(load.load_experiment(make(model="open", replicates=1)))
    run = 1
    service, response = value_of(analysis.by_run, "service_p50", run=run), value_of(analysis.by_run, "p50", run=run)
    assert service == pytest.approx(0.8 * response, rel=0.01)
    assert value_of(analysis.by_run, "count", run=run) == analysis.observations[run, ALL_REQUESTS].response_times.total


def test_the_closed_model_has_no_service_time_rows(known: tuple[decide.Analysis, dict[int, list[Sample]]]) -> None:
    assert not any(name.startswith("service_") for name in known[0].by_run["metric"])


def test_endpoints_add_up_to_all_requests(make: Callable[..., Path]) -> None:
    analysis = decide.analyse(load.load_experiment(make(endpoints=("GET /a", "GET /b"), replicates=1)))
    parts = [value_of(analysis.by_run, "count", run=1, endpoint=name) for name in ("GET /a", "GET /b")]
    assert sum(parts) == value_of(analysis.by_run, "count", run=1)
    assert set(analysis.by_run.loc[analysis.by_run["metric"] == "server_cpu", "endpoint"]) == {ALL_REQUESTS}


@pytest.mark.parametrize(("successes", "shown"), [(367, False), (368, True)])
def test_a_percentile_needs_its_samples(successes: int, shown: bool) -> None:
    rows = metrics.merge([]).response_times
    histogram = type(rows)(np.array([100]), np.array([successes]))
    seen = metrics.Observation(6, successes, 0, histogram, rows, None, None, 0)
    assert (BY_NAME["p99"].value(seen) is not None) is shown


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("throughput", 1234.5, "1,234"),
        ("throughput", 61.72, "61.7"),
        ("p50", 1.234, "1.23"),
        ("p50", 0.01234, "0.0123"),
        ("success_ratio", 1.0, "100"),
        ("success_ratio", 11_998 / 12_000, "99.98"),
        ("success_ratio", 1 - 1e-9, "99.99"),
        ("success_ratio", 0.0, "0.00"),
        ("server_peak_memory", 160 * 2**20, "160"),
        ("server_cpu", 1.17, "117"),
        ("count", 7.0, "7"),
        ("p99", None, "–"),
        ("p99", float("nan"), "–"),
    ],
)
def test_format(name: str, value: float | None, text: str) -> None:
    assert metrics.format_value(BY_NAME[name], value) == text


def test_bucket_of_the_fixture_is_within_half_a_percent() -> None:
    for value in range(1, 2_000_000, 997):
        assert synthetic.bucket_us(value) == pytest.approx(value, rel=0.005)


# --- endpoints that not every run has --------------------------------------------------------------------------------


def rename(run: Path, old: str, new: str) -> None:
    for path in (run / "response_times").glob("*.csv"):
        path.write_text(path.read_text("utf-8").replace(old, new), encoding="utf-8")


@pytest.mark.parametrize("model", ["closed", "open"])
def test_an_endpoint_that_a_run_never_answered_had_0_responses_there(make: Callable[..., Path], model: str) -> None:
    folder = make(model=model, factors={PROCESSES: [1, 2]}, endpoints=("GET /a", "GET /b"), replicates=4)
    _, *others = [run for run in sorted((folder / "runs").iterdir()) if "processes1" in run.name]
    for run in others:
        rename(run, "GET /b", "GET /a")
    analysis = decide.analyse(load.load_experiment(folder))
    key = pairing.key({PROCESSES: 1})
    runs = analysis.experiment.complete_runs(key)
    rates = [value_of(analysis.by_run, "throughput", run=run, endpoint="GET /b") for run in runs]
    assert rates[0] > 20 and rates[1:] == [0, 0, 0]
    assert [value_of(analysis.by_run, "count", run=run, endpoint="GET /b") for run in runs][1:] == [0, 0, 0]
    assert value_of(analysis.by_treatment, "throughput", treatment=key, endpoint="GET /b") == pytest.approx(
        rates[0] / 4
    )
    for name in ("p50", "success_ratio", *(["service_p50"] if model == "open" else [])):
        assert all(np.isnan(value_of(analysis.by_run, name, run=run, endpoint="GET /b")) for run in runs[1:]), name
    compared = {c.metric.name: c.effect for c in analysis.comparisons if c.endpoint == "GET /b"}
    assert compared["throughput"].ratio is None and compared["p50"].ratio is None
    assert compared["throughput"].baseline_runs == 4


def test_an_endpoint_of_another_treatment_alone_is_not_shown_as_0(make: Callable[..., Path]) -> None:
    folder = make(factors={PROCESSES: [1, 2]}, endpoints=("GET /a", "GET /b"), replicates=1)
    for run in (folder / "runs").iterdir():
        if "processes1" in run.name:
            rename(run, "GET /b", "GET /a")
    analysis = decide.analyse(load.load_experiment(folder))
    rows = analysis.by_treatment[analysis.by_treatment["endpoint"] == "GET /b"]
    assert set(rows["treatment"]) == {pairing.key({PROCESSES: 2})}


@pytest.mark.parametrize("name", ["all requests", "all requests (endpoint)"])
def test_an_endpoint_called_as_the_total_is_not_taken_for_it(make: Callable[..., Path], name: str) -> None:
    folder = make(endpoints=("GET /a", "GET /b"), replicates=1)
    before = decide.analyse(load.load_experiment(folder))
    for run in (folder / "runs").iterdir():
        rename(run, "GET /b", name)
    analysis = decide.analyse(load.load_experiment(folder))
    assert value_of(analysis.by_run, "count", run=1) == value_of(before.by_run, "count", run=1)
    named = value_of(analysis.by_run, "count", run=1, endpoint=f"{name} (endpoint)")
    assert named == value_of(before.by_run, "count", run=1, endpoint="GET /b")
    assert all(name in oddity.what and not oddity.loses_data for oddity in analysis.experiment.oddities)
    assert len(analysis.experiment.oddities) == 8  # two files a run


def test_other_names_are_left_alone() -> None:
    assert endpoints.told_apart("GET /all requests") == "GET /all requests"
    assert endpoints.told_apart("GET /a (endpoint)") == "GET /a (endpoint)"
