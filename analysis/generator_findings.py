"""Checks of the load generator: was the load what it was meant to be? Rows of validity.CHECKS."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

from analysis import backlog, metrics
from analysis.backlog import Backlog, Clock
from analysis.findings import TIMES, Case, Finding, Severity, of_runs
from analysis.generator import Health
from analysis.load import STEADY_STATE
from analysis.record import LostWorker, RunRecord

MOST_RUN_QUEUE = 0.05
MOST_LAG_US = 5000.0
MOST_LAG_SHARE = 0.05
LEAST_ACHIEVED = 0.98
MOST_LATE = 0.01
MOST_OF_A_LIMIT = 0.9
TAIL_METRICS = frozenset({"p95", "p99", "max", "service_p95", "service_p99", "service_max"})
"""Primary metrics that a lag of one request in a hundred is about."""


def health_of(case: Case) -> dict[int, Health]:
    """Health by run, of the complete runs that recorded it."""
    return case.experiment.health


def generator_lagging(case: Case) -> Iterator[Finding]:
    """The event loop was late: response times are longer than what the server took, by up to the lag."""
    yield from _findings(
        case,
        "generator_lagging",
        _lagging(case),
        "The load generator's event loop was late in {n}: response times are too long by up to that.",
        lambda h: f"99 % of what was due ran within {(h.loop_lag_p99_us or 0) / 1000:.1f} ms",
        f"99th percentile of the lag above {MOST_LAG_US / 1000:.0f} ms and above {MOST_LAG_SHARE:.0%} of the median "
        "response time",
        "Leave the generator a processor of its own, or give the load more processes.",
        case.severity if case.primary.name in TAIL_METRICS else lambda treatment: _lag_severity(case, treatment),
    )


def _lag_severity(case: Case, treatment: str) -> Severity:
    """Severe where the mean lag is more of the median response time than the margin: only then can it turn a verdict
    about throughput or a typical response time. The tail is another matter: TAIL_METRICS.
    """
    for run, health in health_of(case).items():
        if case.experiment.treatment_of[run] == treatment:
            median_us = case.seen(run).response_times.percentile_us(0.5) or 0.0
            if (health.loop_lag_mean_us or 0.0) > case.experiment.record.margin * median_us:
                return case.severity(treatment)
    return Severity.NOTE


def generator_starved(case: Case) -> Iterator[Finding]:
    """The generator waited for a processor, and its event loop was in time all the same: worth knowing, no more."""
    lagging = _lagging(case)
    yield from _findings(
        case,
        "generator_starved",
        {
            run: h
            for run, h in health_of(case).items()
            if h.run_queue_share and h.run_queue_share > MOST_RUN_QUEUE and run not in lagging
        },
        "The load generator had to wait for a processor in {n}; its event loop was in time all the same.",
        lambda h: f"waited {h.run_queue_share or 0:.1%} of the time",
        f"ready to run and not running for more than {MOST_RUN_QUEUE:.0%} of the time",
        "Leave the generator a processor of its own.",
        lambda treatment: Severity.NOTE,
    )


def _lagging(case: Case) -> dict[int, Health]:
    return {run: h for run, h in health_of(case).items() if (h.loop_lag_p99_us or 0) > _most_lag_us(case, run)}


def _most_lag_us(case: Case, run: int) -> float:
    return max(MOST_LAG_US, MOST_LAG_SHARE * (case.seen(run).response_times.percentile_us(0.5) or 0.0))


def workers_lost(case: Case) -> Iterator[Finding]:
    """Generator processes that went missing: from then on the load was less than the file says, by their share."""
    lost = {record.number: record for record in case.complete_records if record.lost_workers}
    severities = {run: _loss_severity(case, record) for run, record in lost.items()}
    for severity in Severity:
        runs = [run for run in lost if severities[run] is severity]
        if runs:
            yield Finding(
                "workers_lost",
                severity,
                f"Load generator processes were lost in {len(runs)} of {len(case.experiment.complete_runs())} runs, "
                "and their share of the load with them.",
                tuple(f"{case.run_label(run)}: {_loss(lost[run], worker)}"
                      for run in runs for worker in lost[run].lost_workers),
                "none lost before the end of steady state",
                "Read locust/console.log and the system's log (memory?), remove these runs' folders, and "
                "`python -m harness run --resume FOLDER`.",
                case.treatments_of(runs),
            )  # fmt: skip


def _loss_severity(case: Case, record: RunRecord) -> Severity:
    end = record.windows[STEADY_STATE].end_unix_s
    within = any(worker.last_seen_unix_s is None or worker.last_seen_unix_s < end for worker in record.lost_workers)
    return case.severity(case.treatments_of([record.number])[0]) if within else Severity.NOTE


def _loss(record: RunRecord, worker: LostWorker) -> str:
    window, seen = record.windows[STEADY_STATE], worker.last_seen_unix_s
    if seen is None:
        when = "it recorded nothing"
    elif seen < window.start_unix_s:
        when = f"silent from {window.start_unix_s - seen} s before steady state on"
    elif seen < window.end_unix_s:
        when = f"silent from {seen - window.start_unix_s} s into steady state on"
    else:
        when = "silent after steady state only"
    return f"{worker.process} with {100 * worker.share:.3g} % of the {worker.of}, {when}"


def rate_missed(case: Case) -> Iterator[Finding]:
    """The open model offered arrivals that were not started: the load was less than the file says."""
    missed = {
        run: h for run, h in health_of(case).items() if h.offered and h.started < LEAST_ACHIEVED * h.offered
    }  # fmt: skip
    yield from _findings(
        case,
        "rate_missed",
        missed,
        "The offered load was not reached in {n}.",
        lambda h: f"{h.started} of {h.offered} arrivals were started, {h.started / h.offered:.1%}",
        f"arrivals started below {LEAST_ACHIEVED:.0%} of those offered",
        "Lower the arrival rate, or raise load.max_in_flight.",
        case.severity,
    )


def backlog_grows(case: Case) -> Iterator[Finding]:
    """More arrived than was answered, and not by chance: response times have no steady state."""
    growing = {run: b for run, b in backlog.backlogs(case.experiment).items() if b.censored}

    def severity(run: int) -> Severity:
        decides = any(case.rests_on(clock) for clock in growing[run].censored)
        return case.severity(case.treatments_of([run])[0]) if decides else Severity.NOTE

    found = of_runs(
        case,
        "backlog_grows",
        {run: _growth(case, run, queues) for run, queues in growing.items()},
        severity,
        "The server was not keeping up in {n}: more arrived than it answered, so that response times have no steady "
        "state and depend on how long one measures. They are not shown.",
        "growth of the backlog at most max(5 %, 2.58 / √n) of the n arrivals offered in steady state",
        "Offer less than the server answers (load.arrival_rate_rps below the throughput shown, which is its capacity), "
        "or ask for throughput.",
    )
    yield from (dataclasses.replace(finding, metrics=TIMES) for finding in found)


def _growth(case: Case, run: int, queues: Backlog) -> str:
    clock: Clock = "response" if "response" in queues.censored else "service"
    first, last = (queues.queue(clock)[place] for place in (0, -1))
    seen = case.seen(run)
    times = seen.response_times if clock == "response" else seen.service_times
    name = case.primary.name.removeprefix(metrics.SERVICE)
    metric = metrics.BY_NAME[name if name in ("p50", "p90", "p95", "p99") else "p90"]
    value_us = times.percentile_us(float(metric.name[1:]) / 100)
    bound = (
        ""
        if value_us is None
        else (
            f"; {metric.name} of the {clock} times of those answered in time, "
            f"{metrics.format_value(metric, value_us / 1000)} ms, is a lower bound"
        )
    )
    return (
        f"backlog grew from {first:,.0f} to {last:,.0f} requests in {seen.window_s:,.0f} s ({queues.offered:,} "
        f"arrivals){bound}"
    )


def arrivals_late(case: Case) -> Iterator[Finding]:
    """Arrivals that started late although a user was free: the generator's fault, and in no server's response time."""
    late = {run: h for run, h in health_of(case).items() if h.offered and h.late_by_itself > MOST_LATE * h.offered}
    yield from _findings(
        case,
        "arrivals_late",
        late,
        "The load generator itself started arrivals late in {n}.",
        lambda h: f"{h.late_by_itself} of {h.offered} arrivals were late with a user free",
        f"more than {MOST_LATE:.0%} of the arrivals",
        "Leave the generator a processor of its own, or give the load more processes.",
        case.severity,
    )


def arrivals_waited(case: Case) -> Iterator[Finding]:
    """Arrivals that had to wait for a user: the server, or max_in_flight, was the limit. Response times include it."""
    waited = {run: h for run, h in health_of(case).items() if h.offered and h.late_all_busy > MOST_LATE * h.offered}
    yield from _findings(
        case,
        "arrivals_waited",
        waited,
        "Arrivals waited because all of max_in_flight were busy in {n}; the waiting is part of their response time.",
        lambda h: f"{h.late_all_busy} of {h.offered} arrivals waited",
        f"more than {MOST_LATE:.0%} of the arrivals",
        "Raise load.max_in_flight, unless that limit is part of the question.",
        lambda treatment: Severity.NOTE,
    )


def arrivals_dropped(case: Case) -> Iterator[Finding]:
    """Arrivals later than max_lateness were given up: the slowest are missing from the response times."""
    dropped = {run: h for run, h in health_of(case).items() if h.dropped}
    for severity in Severity:
        chosen = {
            run: h for run, h in dropped.items() if (h.dropped > MOST_LATE * h.offered) is (severity is Severity.SEVERE)
        }
        yield from _findings(
            case,
            "arrivals_dropped",
            chosen,
            "Arrivals were dropped as too late in {n}, and those would have been the slowest.",
            lambda h: f"{h.dropped} of {h.offered} arrivals dropped",
            f"any; severe above {MOST_LATE:.0%} of the arrivals",
            "Lower the arrival rate, or raise load.max_in_flight or load.max_lateness.",
            case.severity if severity is Severity.SEVERE else lambda treatment: Severity.NOTE,
        )


def generator_at_a_limit(case: Case) -> Iterator[Finding]:
    """Nearly all file descriptors or ports in use: the next connection fails, and it is not the server's fault."""
    near = {run: h for run, h in health_of(case).items() if h.limit_share and h.limit_share > MOST_OF_A_LIMIT}
    yield from _findings(
        case,
        "generator_at_a_limit",
        near,
        "The load generator nearly ran out of file descriptors or ports in {n}.",
        lambda h: f"{h.limit_share or 0:.0%} in use",
        f"more than {MOST_OF_A_LIMIT:.0%} of the limit",
        "Raise the limit (ulimit -n, ip_local_port_range), or keep connections.",
        case.severity,
    )


def network_losses(case: Case) -> Iterator[Finding]:
    """TCP segments sent again, or connections that found the server's queue full: some waits were the network's."""
    lost = {run: h for run, h in health_of(case).items() if h.retransmits or h.listen_overflows}
    yield from _findings(
        case,
        "network_losses",
        lost,
        "TCP segments were sent again, or connection requests lost, on the generator's machine in {n}.",
        lambda h: f"{h.retransmits or 0} retransmitted, {h.listen_overflows or 0} listen queue overflows",
        "any, by the counters of the whole machine",
        "Look for other traffic on the machine; raise the server's listen queue.",
        lambda treatment: Severity.NOTE,
    )


def _findings(  # noqa: PLR0913, PLR0917, one argument for each part of a finding
    case: Case,
    name: str,
    runs: dict[int, Health],
    message: str,
    evidence: Callable[[Health], str],
    threshold: str,
    next_action: str,
    severity_of: Callable[[str], Severity],
) -> Iterator[Finding]:
    """As of_runs, with the evidence taken from each run's health and the severity from its treatment."""
    yield from of_runs(
        case,
        name,
        {run: evidence(health) for run, health in runs.items()},
        lambda run: severity_of(case.treatments_of([run])[0]),
        message,
        threshold,
        next_action,
    )
