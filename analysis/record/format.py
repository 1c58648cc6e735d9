"""What is in a result folder: its files, their columns, and what the records in it say.

An experiment folder holds::

    experiment.yml      the file as the user wrote it
    experiment.json     ExperimentRecord: the resolved experiment and its plan
    runs/NNN-<levels>-rep<k>/
        run.json        RunRecord
        response_times/<process>.csv    RESPONSE_TIME_COLUMNS, one file a Locust process
        response_times/<process>.json   what that process knows of itself (ProcessRecord)
        response_times/<process>.health.jsonl   HEALTH_FIELDS, one line a second
        response_times/lost-workers.jsonl       where a worker was lost: what the master says of it (LostWorker)
        usage.csv       USAGE_COLUMNS
        arrival_rates.csv   with load.arrival_rates: what Locust read
        machine.csv     MACHINE_COLUMNS
        server_counts.csv   SERVER_COUNTS_COLUMNS, where the server keeps access logs
        locust/         Locust's own CSV files and log
        server/         the server's logs
        configuration/  the rendered configuration, secrets redacted

A run is written under ``<name>.partial`` and renamed when it is whole; a folder still called so was interrupted.

An imported run holds IMPORTED_FILES instead of the last six, and its run.json has no windows.
"""

from __future__ import annotations

import dataclasses
from typing import Any

SCHEMA_VERSION = 1

RESPONSE_TIME_COLUMNS = ("second", "endpoint", "outcome", "clock", "bucket_us", "count")
"""Histograms, tidy, without repeated rows but in any order.

second     whole Unix second in which the response was complete (int)
endpoint   Locust's request type and name, "POST /v3/auth/tokens"
outcome    "success", or the failure in words, "401 Unauthorized"
clock      "response" (from the intended start), "service" (from the actual start), or
           "both" in the closed model, where the two are the same number
bucket_us  the bucket's representative value, whole microseconds; within 0.5 % of every value counted in it
count      responses
"""

USAGE_COLUMNS = ("time_unix_s", "role", "pid", "name", "cpu_s", "rss_bytes", "part")
"""Samples of every process: role "server" or "generator"; cpu_s is cumulative user + system time of that process.

part is the name of the started process that it belongs to, itself or as a descendant: "uwsgi", "backend-1"; "locust"
for the generator. Folders of before have no such column, which reads as "".
"""

SERVER_COUNTS_COLUMNS = ("second", "part", "upstream", "status", "count")
"""Answers by the server's own access logs, over the whole run, its warm-up among it.

second    whole Unix second in which the answer was complete (int)
part      name of the started process whose log this is, as in USAGE_COLUMNS: "balancer"
upstream  part that the answer came from; "" where that process answered itself
status    HTTP status; nginx says 499 where the client left before the answer
count     answers
"""

MACHINE_COLUMNS = ("time_unix_s", "busy_s", "harness_s", "stolen_s", "swapped_bytes", "throttled_s")
"""Counters of the machine as a whole, cumulative; an empty cell where the system does not tell.

busy_s         time of all processors in processes, anybody's (user, nice and system)
harness_s      time that the harness itself took of it
stolen_s       time of all processors that a hypervisor gave to others
swapped_bytes  memory that was read back from swap or written to it
throttled_s    time that the control group of harness, server and generator was held back for using up its quota
"""

HEALTH_FIELDS = (
    "second",
    "cpu_us",
    "run_queue_delay_us",
    "loop_lag_us",
    "open_files",
    "open_files_limit",
    "ports_in_use",
    "ports_limit",
    "tcp_retransmits",
    "listen_overflows",
    "arrivals",
)
"""One JSON object a line: the load generator watching itself. null where the system does not tell.

A line is written when its second is over, while a test runs. A process that did not get to run for whole seconds has no
line for them; what was counted in them is in the next line.

second              whole Unix second, as in RESPONSE_TIME_COLUMNS
cpu_us              cumulative: user + system time of the process since it started, all threads
run_queue_delay_us  cumulative: how long the main thread was ready to run and had no CPU; Linux only
loop_lag_us         list of samples, 20 a second: how late the event loop woke a greenlet that slept for 50 ms.
                    Up to 1000 µs of each is the precision of the event loop's own timer
open_files          open file descriptors; open_files_limit: how many the process may have
ports_in_use        local ports with connections to the server, TIME_WAIT among them, of all processes on the machine;
                    counted every 10 s, null in between. ports_limit: how many ephemeral ports there are
tcp_retransmits     cumulative: segments sent again; of all processes on the machine
listen_overflows    cumulative: connections that found a listener's queue full; of all listeners on the machine
arrivals            object of ARRIVAL_FIELDS and in_flight_max, the most requests in flight at one time in that second;
                    null in the closed model
"""

ARRIVAL_FIELDS = ("offered", "started", "late", "late_all_busy", "dropped", "unstarted", "unanswered")
"""What becomes of the open model's arrivals. offered = started + dropped + unstarted, over the whole test.

offered        arrivals whose intended start fell into the second
started        requests made for arrivals, in that second
late           of the started: more than ProcessRecord.arrivals["late_s"] after the intended start
late_all_busy  of the late: all users were busy, as max in flight is too small or the server too slow. The others are
               the generator's own fault
dropped        given up in that second, because they would have started later than --max-lateness
unstarted      neither started nor dropped when the test was over
unanswered     of the started: given up at the end, unanswered when --stop-timeout was over. Records of before have none
"""

METRICS = (
    "throughput",
    "min",
    "mean",
    "p50",
    "p90",
    "p95",
    "p99",
    "max",
    "success_ratio",
    "count",
    "server_cpu_ms_per_request",
    "server_peak_memory",
    "generator_cpu",
)
"""Names that an experiment's primary.metric may have; analysis/metrics.py says what each is."""

IMPORTED_FILES = {"reported": "reported.csv", "failed": "failed.csv", "history": "history.csv",
                  "oddities": "oddities.json"}  # fmt: skip
"""Role to file of a run that another tool measured. Secrets and control characters are taken out of all texts.

reported  run, endpoint, metric (metrics.METRICS), value, samples (responses): the tool's own numbers
failed    run, endpoint, outcome, kind ("response", "generator", "locustfile"), count
history   run, second (Unix), users, throughput, failures: rates over the tool's own windows
oddities  list of {file, what, loses_data}: what was odd in the tool's files, which are not kept
"""

REFERENCE_QUANTITIES = (
    "time_per_request_ms",
    "requests_per_s",
    "min_s",
    "mean_s",
    "max_s",
    "p90_s",
    "p95_s",
    "success_ratio",
    "count",
)
REFERENCE_SUMMARIES = ("token_formats", "keystone_apache")
"""Names that a file of configs/reference/ may have in its columns, and as its summary; analysis/reference.py says what
each is."""

EVENT_ACTIONS = ("kill", "stop", "continue")
"""What may be done to a process and those it started: SIGKILL, SIGSTOP, SIGCONT."""

EXPERIMENT_FILE = "experiment.json"
RUN_FILE = "run.json"
RUNS_FOLDER = "runs"
PARTIAL_SUFFIX = ".partial"

COMPLETE, FAILED = "complete", "failed"
"""What RunRecord.status may be."""
WARM_UP, STEADY_STATE = "warm_up", "steady_state"
"""Names of RunRecord.windows."""

LARGEST_NUMBER = 2**53
"""No count, time or size here is larger; up to it whole numbers are exact as floats, and sums stay within 64 bits."""
LONGEST_WINDOW_S = 366 * 86_400

Level = str | int | float | bool | None
Treatment = dict[str, Level]


class RecordError(Exception):
    """A folder or file that is not what this format says: what, where, what to do."""


@dataclasses.dataclass(frozen=True)
class Window:
    """A half-open interval of whole Unix seconds, [start_unix_s, end_unix_s)."""

    start_unix_s: int
    end_unix_s: int
    measured_s: float | None = None
    """Exact length where the load began and ended within seconds, as with a budget of requests."""
    begin_unix_s: float | None = None
    """Exact start of such a load. Records of before have none."""

    @property
    def length_s(self) -> float:
        """Length in seconds."""
        return self.end_unix_s - self.start_unix_s if self.measured_s is None else self.measured_s


@dataclasses.dataclass(frozen=True)
class PlannedRun:
    """One row of the plan: its place in the order, and what is varied."""

    number: int
    block: int
    replicate: int
    treatment: Treatment
    folder: str
    """Bare name of the run's folder; a repeated attempt has "+2", "+3" … after it."""
    server_number: int
    """Runs with the same server_number share one started server."""


@dataclasses.dataclass(frozen=True)
class ExperimentRecord:
    """experiment.json: everything the report needs to know about the plan."""

    name: str
    question: str
    workload: str
    factors: dict[str, list[Level]]
    """Dotted path to its levels; an empty dict means one treatment."""
    baseline: Treatment
    """Levels that mark the baseline; factors it does not name take the same level on both sides."""
    primary: dict[str, Any]
    """{"metric": "throughput", "at": {path: level}}: what the verdict is about."""
    margin: float
    """Differences within 1 ± margin are "same"; 0.05 by default."""
    held_constant: dict[str, Any]
    """The rest of server, options, dataset and load: dotted path to value."""
    notes: list[str]
    """Plain sentences for the report's first page: how the server differs from what its makers ship."""
    timing: dict[str, float]
    """warm_up_s and steady_state_s."""
    replicates: int
    order: dict[str, Any]
    """policy, seed, server."""
    source: dict[str, str] | None
    overrides: list[str]
    """"--set" changes, PATH=VALUE, as given."""
    plan: list[PlannedRun]
    created_unix_s: float
    schema_version: int = SCHEMA_VERSION
    imported: bool = False
    """Of another tool's summaries by `python -m analysis import`: its runs hold IMPORTED_FILES, and no window."""
    arrival_rates: dict[str, str] = dataclasses.field(default_factory=dict)
    """Contents of the files that load.arrival_rates names, by that name."""
    objectives: list[str] = dataclasses.field(default_factory=list)
    """Rules, as analysis/rules.py reads them, that must hold for every treatment."""
    abort_when: list[str] = dataclasses.field(default_factory=list)
    """Rules that end a run early, which then counts as failed."""
    events: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    """Planned faults of each run: at_s, action and process, as in RunRecord.events."""
    reference: dict[str, Any] | None = None
    """Published results, to be printed beside ours: what a file of configs/reference/ says (harness/reference.py)."""


@dataclasses.dataclass(frozen=True)
class LostWorker:
    """A load generator process that went missing during a run."""

    process: str
    """As its files are called. What they hold is in the run's numbers."""
    share: float
    """Of the load that was asked for, the part that it had: 0.5 is one of two."""
    of: str
    """What that is counted in: "users", "arrivals" or "requests"."""
    last_seen_unix_s: int | None
    """End of the last second that it recorded: from then on its part was missing. None where it recorded none."""


@dataclasses.dataclass(frozen=True)
class RunRecord:
    """run.json: one run, self-describing."""

    experiment: str
    number: int
    block: int
    replicate: int
    treatment: Treatment
    workload: str
    status: str
    """"complete" or "failed"; a failed run is reported and excluded."""
    reason: str | None
    """Why it failed: one sentence."""
    windows: dict[str, Window]
    """"warm_up" and "steady_state"; empty when the run failed before them."""
    load: dict[str, Any]
    """model, users, processes, …"""
    server: dict[str, Any]
    """system, configuration, parameters, version, configuration_sha256."""
    environment: dict[str, Any]
    locust: dict[str, Any]
    """command (argv without secrets), exit_code, facts (what the locustfile found out, token_format for one)."""
    files: dict[str, Any]
    """Role to path or list of paths, relative to the run folder: response_times, processes, health, usage, machine,
    locust, server_logs, configuration, arrival_rates, server_counts, warm_up_response_times."""
    schema_version: int = SCHEMA_VERSION
    lost_workers: list[LostWorker] = dataclasses.field(default_factory=list)
    """The run is kept, and its load was less than asked for."""
    events: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    """What was done to the server's processes: {at_s, action, process, unix_s, error}, in the order of time.

    at_s is planned and counts from the start of the steady state; unix_s is when it was done, null where it was not,
    and error then says why: such a run is a failed one. action is one of EVENT_ACTIONS."""


@dataclasses.dataclass(frozen=True)
class ProcessRecord:
    """response_times/<process>.json: written by the locustfile, with its own code (it imports nothing from here)."""

    process: str
    pid: int
    model: str
    """"closed": response and service time coincide. "open": they do not."""
    relative_error: float
    test_start_unix_s: float | None
    spawning_complete_unix_s: float | None
    test_stop_unix_s: float | None
    facts: dict[str, Any]
    schema_version: int = SCHEMA_VERSION
    arrivals: dict[str, Any] | None = None
    """Open model: totals of ARRIVAL_FIELDS, "answered" (requests that ended, failures among them), "in_flight_max" and
    "late_s", the lateness in seconds from which on an arrival is called late."""
    budget: dict[str, int] | None = None
    """Closed model with --requests: "requests", this process' share, and "answered"."""
