"""Queues of known capacity, offered less and more than that: what is said of them, and what is not."""

from __future__ import annotations

import dataclasses
import json
import math
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from analysis import backlog, decide, load, metrics, objectives, plots, record, tables
from analysis.backlog import most_growth
from analysis.compare import Verdict
from analysis.findings import Finding, Severity
from analysis.generator import Arrivals
from analysis.metrics import ALL_REQUESTS
from analysis.objectives import Outcome
from tests.analysis import synthetic
from tests.analysis.synthetic import PROCESSES, Sample

Make = Callable[..., Path]
RATE_RPS = 50.0


def open_model(make: Make, primary: str = "p90", replicates: int = 4, warm_up_s: int = 5) -> Path:
    return make(
        model="open",
        factors={PROCESSES: [1, 2]},
        primary={"metric": primary},
        replicates=replicates,
        warm_up_s=warm_up_s,
        steady_s=20,
    )


def queue(folder: Path, capacity_rps: Callable[[int], float], in_flight: float = math.inf) -> dict[str, list[Sample]]:
    """M/D/1 in every run, RATE_RPS offered, at a capacity for each number of processes; samples by folder's name."""
    return {
        run.name: synthetic.write_open_queue(run, RATE_RPS, 1 / capacity_rps(processes(run)), in_flight=in_flight)
        for run in sorted((folder / "runs").iterdir())
    }


def processes(run: Path) -> int:
    return int(json.loads((run / "run.json").read_text("utf-8"))["treatment"][PROCESSES])


def analyse(folder: Path, *rules: str) -> decide.Analysis:
    experiment = load.load_experiment(folder)
    named = dataclasses.replace(experiment.record, objectives=list(rules))
    return decide.analyse(dataclasses.replace(experiment, record=named))


def found(analysis: decide.Analysis, name: str) -> list[Finding]:
    return [finding for finding in analysis.findings if finding.name == name]


def values(analysis: decide.Analysis, metric: str) -> list[float]:
    rows = analysis.by_treatment
    return rows[(rows["metric"] == metric) & (rows["endpoint"] == ALL_REQUESTS)]["value"].tolist()


def test_below_capacity_response_times_are_those_of_the_arrivals(make: Make) -> None:
    folder = open_model(make, replicates=1)
    samples = queue(folder, lambda n: 62.5)
    analysis = analyse(folder)
    assert not found(analysis, "backlog_grows") and not found(analysis, "littles_law")
    for (run, endpoint), seen in analysis.observations.items():
        name = analysis.experiment.runs.set_index("run").loc[run, "folder"]
        window = analysis.experiment.records[run].windows["steady_state"]
        times = [us / 1000 for end, _, _, us in samples[name] if window.start_unix_s <= end < window.end_unix_s]
        p90 = metrics.BY_NAME["p90"].value(seen)
        assert p90 == pytest.approx(np.quantile(times, 0.9, method="inverted_cdf"), rel=0.006), endpoint


def test_above_capacity_there_are_no_response_times(make: Make) -> None:
    folder = open_model(make)
    queue(folder, lambda n: 30.0 if n == 1 else 62.5)
    analysis = analyse(folder)
    (finding,) = found(analysis, "backlog_grows")
    assert finding.severity is Severity.SEVERE
    assert [c.verdict for c in analysis.deciding] == [Verdict.INVALID]
    assert len(finding.evidence) == 4 and all("processes = 1" in line for line in finding.evidence)
    assert "in 20 s" in finding.evidence[0] and "p90 of the response times" in finding.evidence[0]
    assert "is a lower bound" in finding.evidence[0]
    for metric in ("min", "mean", "p50", "p90", "max", "service_p90", "service_max"):
        overloaded, fine = values(analysis, metric)
        assert math.isnan(overloaded) and fine > 0, metric
    assert values(analysis, "throughput")[0] == pytest.approx(30, rel=0.01)
    assert values(analysis, "offered") == pytest.approx([50, 50], rel=0.06)
    assert values(analysis, "success_ratio") == [1, 1]
    assert not found(analysis, "few_samples") and not found(analysis, "littles_law")


def test_no_figure_draws_what_is_missing(make: Make) -> None:
    folder = open_model(make)
    queue(folder, lambda n: 30.0 if n == 1 else 62.5)
    heatmap = plots.heatmap(analyse(folder))
    assert heatmap is not None
    assert "processes = 1: the backlog grew" in heatmap.caption and "processes = 2" not in heatmap.caption
    assert [panel["title"]["text"] for panel in heatmap.spec["concat"]] == [
        "processes = 1: lower bounds",
        "processes = 2",
    ]
    distribution = plots.distribution(analyse(folder))
    assert distribution is not None
    assert {row[0] for row in distribution.rows} == {"processes = 2"}


def test_one_overloaded_run_takes_its_treatments_response_times_along(make: Make) -> None:
    folder = open_model(make)
    queue(folder, lambda n: 62.5)
    run = sorted((folder / "runs").iterdir())[0]
    synthetic.write_open_queue(run, RATE_RPS, 1 / 30)
    analysis = analyse(folder)
    (finding,) = found(analysis, "backlog_grows")
    assert len(finding.evidence) == 1
    missing = [math.isnan(value) for value in values(analysis, "p90")]
    assert missing == [processes(run) == 1, processes(run) == 2]


def test_capacity_can_be_compared_under_overload(make: Make) -> None:
    folder = open_model(make, primary="throughput")
    queue(folder, lambda n: 30.0 if n == 1 else 40.0)
    analysis = analyse(folder)
    (finding,) = found(analysis, "backlog_grows")
    assert finding.severity is Severity.NOTE
    assert [c.verdict for c in analysis.deciding] == [Verdict.FASTER]
    assert all(math.isnan(value) for value in values(analysis, "p90"))


def test_a_rule_about_times_does_not_forbid_throughputs_verdict(make: Make) -> None:
    folder = open_model(make, primary="throughput")
    queue(folder, lambda n: 30.0 if n == 1 else 40.0)
    analysis = analyse(folder, "p95(response_time) < 1min")
    assert [f.severity for f in found(analysis, "backlog_grows")] == [Severity.SEVERE]
    assert [c.verdict for c in analysis.deciding] == [Verdict.FASTER]


@pytest.mark.parametrize(
    ("rule", "severity"),
    [
        ("p95(response_time) < 1min", Severity.SEVERE),
        ("count(response_time > 1min) < 5", Severity.SEVERE),
        ("p95(service_time) < 1min", Severity.NOTE),
        ("throughput > 1/s", Severity.NOTE),
    ],
)
def test_a_generator_that_holds_arrivals_back_knows_service_times(make: Make, rule: str, severity: Severity) -> None:
    folder = open_model(make, primary="throughput", replicates=1)
    queue(folder, lambda n: 30.0, in_flight=10)
    analysis = analyse(folder, rule)
    assert [f.severity for f in found(analysis, "backlog_grows")] == [severity]
    assert all(math.isnan(value) for value in values(analysis, "p90"))
    assert all(value > 0 for value in values(analysis, "service_p90"))


@pytest.mark.parametrize(
    ("rule", "outcome"),
    [
        ("count(response_time > 1min) < 5", Outcome.INCONCLUSIVE),
        ("count(response_time > 1ms) < 5", Outcome.FAIL),
        ("count(response_time > 1ms) > 5", Outcome.PASS),
        ("count(response_time > 1min) > 5", Outcome.INCONCLUSIVE),
        ("count(service_time > 1min) < 5", Outcome.PASS),
        ("p50(response_time) < 1min", Outcome.INCONCLUSIVE),
        ("change(p50(response_time)) < 50%", Outcome.INCONCLUSIVE),
    ],
)
def test_a_lower_bound_decides_only_what_it_can(make: Make, rule: str, outcome: Outcome) -> None:
    folder = open_model(make, replicates=1)
    queue(folder, lambda n: 30.0, in_flight=10)
    judged = objectives.judge(dataclasses.replace(analyse(folder, rule), findings=[]))
    assert {judgement.outcome for judgement in judged} == {outcome}
    if outcome is Outcome.INCONCLUSIVE:
        assert "the backlog grew in 1 of 1 runs" in judged[0].reason


def test_offered_stands_right_before_throughput_and_chooses_nothing(make: Make) -> None:
    folder = open_model(make)
    queue(folder, lambda n: 30.0)
    analysis = analyse(folder)
    (block,) = tables.blocks(analysis)
    heads = [row.head for row in block.rows]
    assert heads[:2] == ["offered, arrivals/s", "throughput, responses/s"]
    offered, throughput = block.rows[:2]
    assert float(offered.cells[0]) == pytest.approx(50, rel=0.06) and offered.cells[2] == ""
    assert throughput.cells[0] == "30.0" and throughput.cells[2] != ""
    rows = analysis.by_run
    assert len(rows[rows["metric"] == "offered"]) == 8


def test_the_closed_model_has_no_offered_load(demo_analysis: decide.Analysis) -> None:
    assert "offered" not in set(demo_analysis.by_run["metric"])
    assert backlog.backlogs(demo_analysis.experiment) == {}


# --- the bound -----------------------------------------------------------------------------------------------------


def test_most_growth() -> None:
    assert most_growth(200) == pytest.approx(2.5758 * math.sqrt(200), rel=1e-4)
    assert most_growth(10_000) == 500
    assert most_growth(0) == 0


@pytest.mark.parametrize(("utilization", "low", "high"), [(0.8, 0.0, 0.0), (0.95, 0.0, 0.01), (1.3, 0.95, 1.0)])
def test_chance_does_not_reach_the_bound_and_overload_does(utilization: float, low: float, high: float) -> None:
    random = np.random.default_rng(7)
    growing = [_grows(random, 100.0, utilization, 20) for _ in range(300)]
    assert low <= sum(growing) / len(growing) <= high


def _grows(random: np.random.Generator, rate_rps: float, utilization: float, window_s: int) -> bool:
    arrivals = np.cumsum(random.exponential(1 / rate_rps, int(2 * rate_rps * (window_s + 5))))
    arrivals = arrivals[arrivals < window_s + 5]
    work = np.cumsum(np.full(len(arrivals), utilization / rate_rps))
    # Lindley: a request begins when the one before it has ended.
    ends = np.maximum.accumulate(arrivals - work + utilization / rate_rps) + work
    first, last = (int((arrivals < edge).sum() - (ends < edge).sum()) for edge in (5, window_s + 5))
    return last - first > most_growth(int((arrivals >= 5).sum()))


def arrivals(ended: float | None) -> Arrivals:
    """Ten a second for four seconds, all started at once; steady state is the second half."""
    up_to = np.array([20.0, 30.0, 40.0])
    return Arrivals(np.array([2, 3, 4]), up_to, up_to, ended)


@pytest.mark.parametrize(
    ("count", "ended", "waiting"),
    [
        ([10, 10, 10, 10], 40, [0, 0, 0]),
        ([20, 20, 20, 20], 40, [0, 0, 0]),  # two requests an arrival
        ([9, 9, 9, 9], 40, [0, 0, 0]),  # every tenth raised an exception instead
        ([5, 5, 5, 5], 20, [10, 15, 20]),  # half of them were given up in the end
        ([5, 5, 5, 5], None, [10, 15, 20]),
    ],
)
def test_what_an_arrival_is(count: list[int], ended: float | None, waiting: list[float]) -> None:
    queues = backlog.of_run(arrivals(ended), np.arange(4), np.array(count), 20)
    assert queues.waiting.tolist() == pytest.approx(waiting)


# --- Little's law in the open model --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("primary", "response_s", "severity"),
    [("p90", 0.02, None), ("p90", 1.5, None), ("p90", 6.0, Severity.SEVERE), ("throughput", 6.0, Severity.NOTE)],
)
def test_the_window_holds_a_few_response_times(
    make: Make, primary: str, response_s: float, severity: Severity | None
) -> None:
    folder = open_model(make, primary, replicates=1, warm_up_s=15)
    for run in (folder / "runs").iterdir():
        synthetic.write_open_queue(run, RATE_RPS, response_s, one_by_one=False)
    findings = found(analyse(folder), "littles_law")
    assert [f.severity for f in findings] == ([severity] if severity else [])
    assert not severity or "fewer than about four response times" in findings[0].message


@pytest.mark.parametrize(("primary", "severity"), [("p90", Severity.SEVERE), ("throughput", Severity.NOTE)])
def test_requests_that_hang_are_missed(make: Make, primary: str, severity: Severity) -> None:
    folder = open_model(make, primary, replicates=1)
    for run in (folder / "runs").iterdir():
        samples = synthetic.write_open_queue(run, RATE_RPS, 0.1, one_by_one=False)
        synthetic.write_response_times(run, samples[40:], "open")  # the first of the warm-up never hear back
        give_up(run, 40)
    analysis = analyse(folder)
    (finding,) = found(analysis, "littles_law")
    assert finding.severity is severity
    assert "do not account for the requests under way" in finding.message
    assert not found(analysis, "backlog_grows")


def give_up(run: Path, unanswered: int) -> None:
    path = run / "response_times" / "worker-0.health.jsonl"
    lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    lines[-1]["arrivals"]["unanswered"] = unanswered
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


@pytest.mark.parametrize(("stall_s", "is_found"), [(0.5, False), (1.2, True)])
def test_a_backlog_at_one_end_is_a_note(make: Make, stall_s: float, is_found: bool) -> None:
    folder = open_model(make, replicates=1)
    for run in (folder / "runs").iterdir():
        end = json.loads((run / "run.json").read_text("utf-8"))["windows"]["steady_state"]["end_unix_s"]
        samples = synthetic.write_open_queue(run, RATE_RPS, 0.005)
        held = [
            (end + 0.5, name, outcome, round(us + (end + 0.5 - at) * 1e6)) if at > end - stall_s
            else (at, name, outcome, us)
            for at, name, outcome, us in samples
        ]  # fmt: skip
        synthetic.write_response_times(run, held, "open")
    analysis = analyse(folder)
    assert not found(analysis, "backlog_grows")
    assert [f.severity for f in found(analysis, "littles_law")] == ([Severity.NOTE] if is_found else [])


def test_a_run_without_counted_arrivals_says_nothing(make: Make) -> None:
    folder = open_model(make, replicates=1)
    queue(folder, lambda n: 30.0)
    for path in folder.glob("runs/*/response_times/*.health.jsonl"):
        path.write_text("", encoding="utf-8")
    analysis = analyse(folder)
    assert not found(analysis, "backlog_grows") and not found(analysis, "littles_law")
    assert all(math.isnan(value) for value in values(analysis, "offered"))
    assert all(value > 0 for value in values(analysis, "p90"))


def test_the_record_names_what_arrivals_are() -> None:
    assert set(record.ARRIVAL_FIELDS) >= {"offered", "started", "dropped", "unstarted", "unanswered"}
    assert Counter(metric.name for metric in metrics.METRICS)["offered"] == 1
