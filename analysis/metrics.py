"""The metrics: one row each in METRICS says name, unit, which way is better, format, and how it is computed.

A metric is a function of an Observation: what was seen in one steady-state window, or in the windows of several
replicates merged into one. So the same function gives the number of a run and that of a treatment, and a treatment's
percentile is that of its merged histogram, never an average of percentiles.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Literal

import pandas as pd

from analysis import endpoints, histograms, observation, summaries
from analysis.backlog import Clock
from analysis.load import Experiment
from analysis.usage import RoleUsage

ALL_REQUESTS = endpoints.ALL_REQUESTS
Observation = observation.Observation
merge = observation.merge


@dataclasses.dataclass(frozen=True)
class Metric:
    """One metric: `value` returns None where it is unknown, and is never estimated."""

    name: str
    """As in record.METRICS, where an experiment may name it as its primary one."""
    title: str
    unit: str
    """Of the value, as it stands in the tidy CSV."""
    better: Literal["higher", "lower"]
    value: Callable[[Observation], float | None]
    per_endpoint: bool = True
    """False for what belongs to a run as a whole."""
    samples_needed: int = 1
    """Successful responses below which the value is not shown."""
    shown_unit: str | None = None
    """Unit for people, where it is another one; a value times shown_factor is in it."""
    shown_factor: float = 1
    chooses: bool = True
    """False for the load generator's own numbers and for counts: no configuration is chosen by them, so the table shows
    no ratio, unless one is the primary metric."""

    @property
    def head(self) -> str:
        """Title and unit, for people."""
        unit = self.unit if self.shown_unit is None else self.shown_unit
        return f"{self.title}, {unit}" if unit else self.title


def _offered(seen: Observation) -> float | None:
    return seen.offered / seen.window_s if seen.offered is not None and seen.window_s > 0 else None


def _throughput(seen: Observation) -> float | None:
    return seen.successes / seen.window_s if seen.window_s > 0 else None


def _success_ratio(seen: Observation) -> float | None:
    return seen.successes / seen.responses if seen.responses else None


def _server_cpu_ms_per_request(seen: Observation) -> float | None:
    return 1000 * seen.server.cpu_s / seen.server_responses if seen.server and seen.server_responses else None


def _cores(used: RoleUsage | None) -> float | None:
    return used.cpu_s / used.covered_s if used else None


def _cpu_metric(name: str, title: str, value: Callable[[Observation], float | None], chooses: bool) -> Metric:
    """CPU time a second, which a tidy table holds in cores and people read in percent of one."""
    return Metric(name, title, "cores", "lower", value, False, 1, "% of a core", 100, chooses)


def _time_metric(clock: Clock, statistic: str) -> Metric:
    """`statistic` is min, mean, max, or pNN for a percentile; response time has the plain name."""
    fraction = float(statistic[1:]) / 100 if statistic.startswith("p") else None
    needed = histograms.smallest_sample_for(fraction) if fraction else 1

    def value(seen: Observation) -> float | None:
        histogram = seen.times(clock)
        if histogram.total < needed:
            return None
        if fraction is not None:
            value_us = histogram.percentile_us(fraction)
        else:
            value_us = {"min": histogram.min_us, "mean": histogram.mean_us, "max": histogram.max_us}[statistic]()
        return None if value_us is None else value_us / 1000

    name = statistic if clock == "response" else f"{SERVICE}{statistic}"
    return Metric(name, f"{statistic} {clock} time", "ms", "lower", value, samples_needed=needed)


SERVICE = "service_"
STATISTICS = ("min", "mean", "p50", "p90", "p95", "p99", "max")

METRICS: tuple[Metric, ...] = (
    Metric("offered", "offered", "arrivals/s", "higher", _offered, per_endpoint=False, chooses=False),
    Metric("throughput", "throughput", "responses/s", "higher", _throughput),
    *(_time_metric("response", statistic) for statistic in STATISTICS),
    *(_time_metric("service", statistic) for statistic in STATISTICS),
    Metric("success_ratio", "success", "ratio", "higher", _success_ratio, shown_unit="%", shown_factor=100),
    Metric("count", "responses", "", "higher", lambda seen: seen.responses, chooses=False),
    Metric("server_cpu_ms_per_request", "server CPU per request", "ms", "lower", _server_cpu_ms_per_request,
           per_endpoint=False),
    _cpu_metric("server_cpu", "server CPU", lambda seen: _cores(seen.server), True),
    Metric("server_peak_memory", "peak server memory", "bytes", "lower",
           lambda seen: seen.server.peak_rss_bytes if seen.server else None,
           per_endpoint=False, shown_unit="MiB", shown_factor=2**-20),
    _cpu_metric("generator_cpu", "generator CPU", lambda seen: _cores(seen.generator), False),
    _cpu_metric("generator_cpu_busiest", "busiest generator",
                lambda seen: seen.generator.busiest_cpu_share if seen.generator else None, False),
)  # fmt: skip

BY_NAME = {metric.name: metric for metric in METRICS}

Observations = dict[tuple[int, str], Observation]


def observe(experiment: Experiment) -> Observations:
    """Observation of each complete run by (run, endpoint), endpoint ALL_REQUESTS included.

    A treatment's runs have the same endpoints: one that was never answered in a run had 0 responses there.
    """
    found = {
        (run, endpoint): seen
        for run in experiment.complete_runs()
        if run in experiment.reduced
        for endpoint, seen in experiment.reduced[run].observations.items()
    }
    return _with_unanswered(found, experiment.treatment_of)


def _with_unanswered(observations: Observations, treatment_of: Mapping[int, str]) -> Observations:
    """With an observation of 0 responses for each endpoint that another run of the treatment has."""
    known: dict[str, dict[str, None]] = {}
    for run, endpoint in observations:
        known.setdefault(treatment_of[run], {})[endpoint] = None
    whole: Observations = {}
    for (run, name), seen in observations.items():
        if name == ALL_REQUESTS:
            nothing = dataclasses.replace(
                merge([]), window_s=seen.window_s, times_apart=seen.times_apart, censored=seen.censored
            )
            for endpoint in known[treatment_of[run]]:
                whole[run, endpoint] = observations.get((run, endpoint), nothing)
    return whole


def by_run(experiment: Experiment, observations: Observations) -> pd.DataFrame:
    """Long form, one row a run x endpoint x metric: run, treatment, endpoint, metric, unit, value, samples.

    value is missing where the run does not carry the metric. samples: successful responses behind it.
    """
    measured = [
        {
            "run": run,
            "endpoint": endpoint,
            "metric": metric.name,
            "value": metric.value(seen),
            "samples": seen.successes,
        }
        for (run, endpoint), seen in observations.items()
        for metric in _applicable(seen, endpoint)
    ]
    columns = ["run", "endpoint", "metric", "value", "samples"]
    reported = summaries.with_unanswered(experiment.reported, experiment.treatment_of)
    rows = pd.DataFrame(measured, columns=columns)
    rows = pd.concat([rows, reported]) if len(reported) else rows
    rows.insert(1, "treatment", rows["run"].map(experiment.treatment_of))
    rows.insert(4, "unit", rows["metric"].map({metric.name: metric.unit for metric in METRICS}))
    return rows.astype({"value": "float64"}).reset_index(drop=True)


def by_treatment(experiment: Experiment, observations: Observations) -> pd.DataFrame:
    """Long form of the merged replicates: treatment, endpoint, metric, value, samples."""
    rows: list[dict[str, object]] = []
    parts: dict[str, dict[str, list[Observation]]] = {treatment: {} for treatment in experiment.treatments}
    for (run, endpoint), one in observations.items():
        parts[experiment.treatment_of[run]].setdefault(endpoint, []).append(one)
    reported = summaries.with_unanswered(experiment.reported, experiment.treatment_of)
    for treatment, by_endpoint in parts.items():
        for endpoint in sorted(by_endpoint, key=lambda name: (name != ALL_REQUESTS, name)):
            seen = merge(by_endpoint[endpoint])
            rows += [
                {"treatment": treatment, "endpoint": endpoint, "metric": m.name, "value": m.value(seen),
                 "samples": seen.successes}
                for m in _applicable(seen, endpoint)
            ]  # fmt: skip
        runs = set(experiment.complete_runs(treatment))
        rows += _reported_rows(reported, treatment, runs)
    frame = pd.DataFrame(rows, columns=["treatment", "endpoint", "metric", "value", "samples"])
    return frame.astype({"value": "float64"})


def format_value(metric: Metric, value: float | None) -> str:
    """A value for people, in the metric's shown unit: three digits, and a success ratio never rounded up to 100 %."""
    if value is None or math.isnan(value):
        return "–"
    shown = value * metric.shown_factor
    if metric.name == "success_ratio":
        return f"{math.floor(shown * 100 + 1e-6) / 100:.2f}" if value < 1 else "100"
    if metric.name == "count" or shown >= 100:
        return f"{shown:,.0f}"
    return f"{shown:.1f}" if shown >= 10 else f"{shown:.2f}" if shown >= 1 else f"{shown:.3g}"


def _applicable(seen: Observation, endpoint: str) -> list[Metric]:
    """Metrics that can have a value here: service times only where they were measured apart from response times."""
    return [
        metric
        for metric in METRICS
        if (metric.per_endpoint or endpoint == ALL_REQUESTS)
        and not (metric.name.startswith(SERVICE) and not seen.times_apart)
        and not (metric.name == "offered" and not seen.times_apart)
    ]


def _reported_rows(reported: pd.DataFrame, treatment: str, runs: set[int]) -> list[dict[str, object]]:
    rows = summaries.combined(reported, runs).assign(treatment=treatment)
    return [{str(name): value for name, value in row.items()} for row in rows.to_dict("records")]
