"""What was seen in one steady-state window, or in the windows of several replicates merged into one. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis import histograms
from analysis import usage as usage_of
from analysis.backlog import Backlog, Clock
from analysis.endpoints import ALL_REQUESTS
from analysis.histograms import Histogram
from analysis.record import STEADY_STATE, Window
from analysis.usage import RoleUsage

GENERATOR = "generator"
SHORTEST_BUDGET_S = 2.0
"""A load of fewer seconds has too few samples of its generator for a CPU time."""


@dataclasses.dataclass(frozen=True, eq=False)
class Observation:
    """What one endpoint, or all together, showed in a steady-state window (or several, merged)."""

    window_s: float
    successes: int
    failures: int
    response_times: Histogram
    """Successful responses only: a failure has another distribution, and often a timeout's."""
    service_times: Histogram
    """Empty in the closed model, where service time and response time coincide."""
    server: RoleUsage | None
    generator: RoleUsage | None
    server_responses: float
    """Responses in the part of the window that the server's usage samples cover."""
    offered: int | None = None
    """Arrivals of the open model; None in the closed model, of one endpoint, and where nobody counted them."""
    times_apart: bool = False
    """Service times were measured apart from response times, as in the open model."""
    censored: frozenset[Clock] = frozenset()
    """Clocks whose slowest are missing, as the backlog grew: their histograms hold lower bounds, and are no metric."""

    @property
    def responses(self) -> int:
        """Successes and failures."""
        return self.successes + self.failures

    def times(self, clock: Clock) -> Histogram:
        """What may be said of the times by one clock: nothing where they are censored."""
        if clock in self.censored:
            return histograms.EMPTY
        return self.response_times if clock == "response" else self.service_times


def merge(parts: Iterable[Observation]) -> Observation:
    """Several windows as one: counts, seconds and CPU added, histograms added, peaks the highest.

    A histogram to which one of the windows gave lower bounds holds lower bounds.
    """
    seen = list(parts)
    offered = [o.offered for o in seen if o.offered is not None]
    return Observation(
        window_s=sum(o.window_s for o in seen),
        successes=sum(o.successes for o in seen),
        failures=sum(o.failures for o in seen),
        response_times=histograms.add(o.response_times for o in seen),
        service_times=histograms.add(o.service_times for o in seen),
        server=usage_of.merge([o.server for o in seen if o.server]),
        generator=usage_of.merge([o.generator for o in seen if o.generator]),
        server_responses=sum(o.server_responses for o in seen if o.server),
        offered=sum(offered) if offered and len(offered) == len(seen) else None,
        times_apart=any(o.times_apart for o in seen),
        censored=frozenset[Clock]().union(*(o.censored for o in seen)),
    )


def of_run(
    response_times: pd.DataFrame, usage: pd.DataFrame, window: Window, queue: Backlog | None, is_open: bool
) -> dict[str, Observation]:
    """Of one run's tables, load.HISTOGRAM_COLUMNS and USAGE_COLUMNS: by endpoint, ALL_REQUESTS first."""
    window_s = float(window.length_s)
    counts = _Counts.of(response_times[response_times["phase"] == STEADY_STATE])
    seen = dataclasses.replace(
        _observation(counts, window_s, _roles(usage, window)),
        offered=queue.offered if queue else None,
        times_apart=is_open or bool(counts.is_service.any()),
        censored=queue.censored if queue else frozenset(),
    )
    found = {ALL_REQUESTS: seen}
    for endpoint in np.unique(counts.endpoint):
        part = _observation(counts.at(counts.endpoint == endpoint), window_s, {})
        name = str(counts.endpoints[endpoint])
        found[name] = dataclasses.replace(part, times_apart=seen.times_apart, censored=seen.censored)
    return found


def _roles(samples: pd.DataFrame, window: Window) -> dict[str, RoleUsage]:
    roles = samples["role"]
    parts = {str(role): samples[(roles == role).to_numpy()] for role in roles.unique()}
    found = {role: _usage(role, rows, window) for role, rows in parts.items()}
    return {role: used for role, used in found.items() if used is not None}


def _usage(role: str, samples: pd.DataFrame, window: Window) -> RoleUsage | None:
    """None where the samples do not tell.

    Before and after a budget's load its server is idle, so that whole seconds hold all of its CPU time. The generator
    is not: it starts, and writes its files. So its time counts from begin to end of the load, which takes some samples.
    """
    start, end = float(window.start_unix_s), float(window.end_unix_s)
    if window.measured_s is not None and role == GENERATOR:
        if window.measured_s < SHORTEST_BUDGET_S:
            return None
        if window.begin_unix_s is not None:
            start, end = window.begin_unix_s, window.begin_unix_s + window.measured_s
    return usage_of.role_usage(samples, start, end, window.length_s)


@dataclasses.dataclass(frozen=True, eq=False)
class _Counts:
    """Rows of load.HISTOGRAM_COLUMNS as parallel arrays: there are thousands of them for each of thousands of runs."""

    endpoints: pd.Index[Any]
    endpoint: NDArray[np.int64]
    """Place in `endpoints`."""
    is_success: NDArray[np.bool_]
    is_service: NDArray[np.bool_]
    bucket_us: NDArray[np.int64]
    count: NDArray[np.int64]

    @classmethod
    def of(cls, rows: pd.DataFrame) -> _Counts:
        endpoint, endpoints = pd.factorize(rows["endpoint"], sort=True)
        return cls(
            endpoints,
            endpoint,
            (rows["outcome"] == "success").to_numpy(),
            (rows["clock"] == "service").to_numpy(),
            rows["bucket_us"].to_numpy(),
            rows["count"].to_numpy(),
        )

    def at(self, chosen: NDArray[np.bool_]) -> _Counts:
        """Only the chosen rows."""
        return _Counts(
            self.endpoints,
            self.endpoint[chosen],
            self.is_success[chosen],
            self.is_service[chosen],
            self.bucket_us[chosen],
            self.count[chosen],
        )

    @property
    def total(self) -> int:
        return int(self.count.sum())

    @property
    def histogram(self) -> Histogram:
        return histograms.from_arrays(self.bucket_us, self.count)


def _observation(counts: _Counts, window_s: float, roles: dict[str, RoleUsage]) -> Observation:
    success = counts.at(counts.is_success & ~counts.is_service)
    failures = counts.at(~counts.is_success & ~counts.is_service).total
    server = roles.get("server")
    return Observation(
        window_s=window_s,
        successes=success.total,
        failures=failures,
        response_times=success.histogram,
        service_times=counts.at(counts.is_success & counts.is_service).histogram,
        server=server,
        generator=roles.get(GENERATOR),
        server_responses=(success.total + failures) * server.covered_s / window_s if server else 0.0,
    )
