"""One run → a Locust command line (pure); then run it with a deadline."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import math
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from analysis.record import LostWorker, ProcessRecord, RecordError, read_process
from harness import arrivals, external
from harness.experiment import Experiment, Load
from harness.install import REPOSITORY
from harness.server import Target, end_group, free_port, last_words, signals_held

SPARE_S = 2
"""Locust runs this much longer than warm-up and steady state: spawning takes a moment, windows begin on a second."""
WORKERS_SPARE_S = 1
"""And this much more with workers: for so long its master may wait for their word that all users are there."""
SET_BY_HARNESS = frozenset(
    {
        *("response_times", "users_csv", "os_cloud", "os_cacert", "seed", "think_time", "requests"),
        *("objective", "abort_when", "rate_ceiling"),
        *("arrival_rate", "arrival_steps", "arrival_rates", "arrival_process", "max_in_flight", "max_lateness"),
    }
)
STOP_TIMEOUT_S = 65
"""How long Locust waits for answers at the end: longer than the 60 s after which a request counts as failed."""
START_AND_STOP_S = 60
ABORTED = "Aborted by --"
"""What locustfiles/_objectives.py writes into Locust's log, before the option's name."""
POLL_S = 0.1
MOST_FAILURES = 0.5
"""Of the answers of a whole run, on a server that stays."""
LOST_WORKERS_STATUS = 2
"""Locust ends with it where a worker was lost; what the others recorded is whole."""
KILL_GRACE_S = 1.0
"""An interrupted Locust would wait for its requests in flight; nobody needs them any more."""
REMOVAL_S = 35.0
"""On a server that stays, what a workload has made is removed first: 30 s is the longest that a locustfile takes."""


class LoadError(Exception):
    """The load generator failed: what, where its log is."""


class LoadAbortedError(LoadError):
    """The load was ended early, because the server could not bear it: why."""


@dataclasses.dataclass(frozen=True)
class Files:
    """Where a run's Locust writes to."""

    response_times: Path
    csv_prefix: Path
    log: Path
    arrival_rates: Path
    """Read by Locust: the file of load.arrival_rates for spare_s() longer."""


def files(run_folder: Path) -> Files:
    """The files of Locust below a run folder."""
    locust = run_folder / "locust"
    return Files(
        run_folder / "response_times", locust / "locust", locust / "locust.log", run_folder / "arrival_rates.csv"
    )


def command(
    experiment: Experiment,
    target: Target,
    output: Files,
    seed: int,
    declared: frozenset[str],
    port: Callable[[], int] = free_port,
) -> list[str]:
    """The argv of Locust for one run. `declared`: the locustfile's options; it gets no other of the target's.

    Pure but for `port`, which is asked only where worker processes need a master.
    """
    load = experiment.load
    options: dict[str, object] = {
        "host": target.url,
        **_model_options(experiment, output),
        "stop-timeout": STOP_TIMEOUT_S,
        # Failures are results, not a broken run: only a generator that breaks may end with another status.
        "exit-code-on-error": 0,
        "csv": output.csv_prefix,
        "logfile": output.log,
        "response-times": output.response_times,
        "seed": seed,
        **{name: value for name, value in target.options.items() if name.replace("-", "_") in declared},
        **{key.replace("_", "-"): value for key, value in experiment.options.get(experiment.workload, {}).items()},
    }
    if load.processes > 1:
        master_port = port()
        options |= {"processes": load.processes, "master-bind-host": "127.0.0.1", "master-bind-port": master_port}
        options |= {"master-host": "127.0.0.1", "master-port": master_port}
    flags = ["--headless", "--only-summary", "--csv-full-history"]
    flags += [word for rule in experiment.abort_when for word in ("--abort-when", rule)]
    flags += [word for name, value in external.limits(experiment).items() for word in (f"--{name}", value)]
    locustfile = REPOSITORY / "locustfiles" / f"{experiment.workload}.py"
    start = [sys.executable, "-m", "locust", "-f", str(locustfile), *flags]
    return [*start, *(word for name, value in options.items() for word in (f"--{name}", str(value)))]


def _model_options(experiment: Experiment, output: Files) -> dict[str, object]:
    """What the workload model, the budget and the timing come to on the command line."""
    load, timing = experiment.load, experiment.timing
    if load.model == "open":
        options: dict[str, object] = {
            **_rate_options(load, output),
            "arrival-process": load.arrival_process or "constant",
            "max-in-flight": load.max_in_flight,
        }
        options |= {} if load.max_lateness is None else {"max-lateness": f"{load.max_lateness:g}"}
    else:
        options = {"users": load.users, "spawn-rate": load.users, "think-time": f"{load.think_time or 0:g}"}
    if load.requests is not None:
        return options | {"requests": load.requests, "run-time": f"{budget_limit_s(load.requests, load.slots):.0f}s"}
    # Locust takes whole seconds only.
    return options | {"run-time": f"{math.ceil(timing.warm_up + (timing.steady_state or 0) + spare_s(load))}s"}


def spare_s(load: Load) -> int:
    """How much longer Locust runs than warm-up and steady state, in seconds."""
    return SPARE_S + (WORKERS_SPARE_S if load.processes > 1 else 0)


def _rate_options(load: Load, output: Files) -> dict[str, object]:
    """A schedule goes on at its last rate for spare_s: steady state begins with a whole second, and so ends later."""
    if load.arrival_steps is not None:
        last_rps = arrivals.read("arrival_steps", load.arrival_steps).last_rps
        return {"arrival-steps": f"{load.arrival_steps},{arrivals.plain(last_rps)}:{spare_s(load)}s"}
    if load.arrival_rates is not None:
        return {"arrival-rates": output.arrival_rates}
    return {"arrival-rate": f"{load.arrival_rate_rps:g}"}


def write_rates(output: Files, text: str, load: Load) -> None:
    """Write the file that Locust reads: the experiment's, and its last rate for spare_s more."""
    last_rps = arrivals.read("arrival_rates", text).last_rps
    output.arrival_rates.write_text(f"{text.rstrip()}\n{spare_s(load)},{arrivals.plain(last_rps)}\n", encoding="utf-8")


def warm_up_pass(experiment: Experiment) -> Experiment:
    """The uncounted pass before a budget: the same load for the length of the warm-up."""
    timing = experiment.timing.model_copy(update={"warm_up": 0.0, "steady_state": experiment.timing.warm_up})
    return experiment.model_copy(
        update={
            "timing": timing,
            "load": experiment.load.model_copy(update={"requests": None, "requests_per_user": None}),
            "events": [],
        }
    )


def budget_limit_s(requests: int, slots: int) -> float:
    """Longest time for a budget: ten seconds a request and slot, at least ten minutes."""
    return max(600.0, 10.0 * requests / slots)


def expected_s(experiment: Experiment) -> float:
    """How long Locust may run before it is overdue, in seconds."""
    if experiment.load.requests is not None:
        return budget_limit_s(experiment.load.requests, experiment.load.slots)
    return experiment.timing.warm_up + (experiment.timing.steady_state or 0.0)


def own_options(workload: str) -> dict[str, list[str]]:
    """Options of a locustfile that an experiment may set, with underscores: those that are not the harness's to set.

    With the values that each may take; none where it takes other than a few words. Raises LoadError where the
    locustfile cannot be loaded.
    """
    return {name: values for name, values in _declared(workload).items() if name not in SET_BY_HARNESS}


def declared_options(workload: str) -> frozenset[str]:
    """Options that a locustfile adds to Locust's, with underscores. Raises LoadError where it cannot be loaded."""
    return frozenset(_declared(workload))


@functools.cache
def _declared(workload: str) -> dict[str, list[str]]:
    """Asked of Locust itself, in a process of its own."""
    locustfile = REPOSITORY / "locustfiles" / f"{workload}.py"
    with tempfile.TemporaryDirectory() as empty:
        asked = subprocess.run(
            [sys.executable, "-c", ASK_FOR_OPTIONS, str(locustfile)], cwd=empty, stdin=subprocess.DEVNULL,
            env=environment(Target(""), os.environ, Path(empty)), capture_output=True, text=True, check=False,
        )  # fmt: skip
    if asked.returncode != 0:
        raise LoadError(f"{locustfile} cannot be loaded: {asked.stderr.strip().splitlines()[-1]}")
    found: dict[str, list[str]] = json.loads(asked.stdout)
    return found


ASK_FOR_OPTIONS = """
import json, sys
from locust.argument_parser import get_parser
from locust.util.load_locustfile import load_locustfile
def options():
    return {action.dest: [str(choice) for choice in action.choices or ()] for action in get_parser()._actions}
before = options()
load_locustfile(sys.argv[1])
print(json.dumps({name: values for name, values in options().items() if name not in before}))
"""


def environment(target: Target, inherited: Mapping[str, str], home: Path) -> dict[str, str]:
    """Locust's environment: ours without what would configure Locust or OpenStack behind the experiment's back.

    HOME points to an empty folder, because Locust reads ~/.locust.conf and openstacksdk ~/.config/openstack.
    """
    kept = {k: v for k, v in inherited.items() if not k.startswith(("LOCUST_", "OS_", "STACKSWARM_"))}
    return {**kept, **target.environment, "HOME": str(home), "PYTHONUNBUFFERED": "1"}


def run(
    argv: list[str],
    variables: dict[str, str],
    output: Files,
    expected_s: float,
    check: Callable[[], None],
    started: Callable[[int], None],
    removal_s: float = 0.0,
) -> int:
    """Run Locust to its end, and return its exit status. `check` is asked meanwhile, and may raise to end it.

    Where it is ended, it has removal_s to remove what it made on the server.

    Raises LoadError where it overruns expected_s by START_AND_STOP_S + STOP_TIMEOUT_S. No process is ever left behind.
    """
    for folder in (output.csv_prefix.parent, output.response_times):
        folder.mkdir(parents=True, exist_ok=True)
    limit_s = expected_s + START_AND_STOP_S + STOP_TIMEOUT_S
    deadline = time.monotonic() + limit_s
    locust: subprocess.Popen[bytes] | None = None
    with (output.log.parent / "console.log").open("wb") as console:
        try:
            with signals_held():
                locust = subprocess.Popen(
                    argv, env=variables, cwd=output.log.parent, stdin=subprocess.DEVNULL,
                    stdout=console, stderr=subprocess.STDOUT, start_new_session=True,
                )  # fmt: skip
            started(locust.pid)
            while locust.poll() is None:
                check()
                if time.monotonic() > deadline:
                    raise LoadError(f"Locust did not end within {limit_s:.0f} s: {last_words(output.log)}")
                time.sleep(POLL_S)
        finally:
            if locust is not None:
                end(locust, removal_s)
    return locust.returncode


def end(locust: subprocess.Popen[bytes], removal_s: float) -> None:
    """End what is left of Locust. Where it may take removal_s it is interrupted first, as Ctrl-C does.

    It clears up then, also where it still prepares; SIGTERM would end it at once there.
    """
    if removal_s and locust.poll() is None:
        locust.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            locust.wait(removal_s)
    end_group(locust, KILL_GRACE_S)


def abortion(output: Files) -> str | None:
    """Why Locust ended the run early, where a rule of abort_when told it to."""
    log = output.log.read_text(encoding="utf-8", errors="replace") if output.log.exists() else ""
    found = re.search(f"{ABORTED}(abort-when|rate-ceiling) (.*)", log)
    return found and f"aborted by {found[1].replace('-', '_')}: {found[2]}"


def check_failures(output: Files) -> None:
    """Raise LoadAbortedError where a run too short for external.FAILURES_STOP was as hopeless."""
    share = external.failed_share(output.response_times)
    if share is not None and share >= MOST_FAILURES:
        raise LoadAbortedError(f"{100 * share:.3g} % of the answers were failures (429 counts as one)")


def check_answered(output: Files) -> None:
    """Raise LoadError where Locust gave up on requests in flight: the slowest would be missing from its records."""
    if "Not all users finished" in output.log.read_text(encoding="utf-8", errors="replace"):
        raise LoadError(f"some requests were still unanswered {STOP_TIMEOUT_S} s after the end of the load")


def processes(output: Files) -> list[ProcessRecord]:
    """What each Locust process that ran users says of itself.

    Raises LoadError where there is none.
    """
    try:
        found = [read_process(path) for path in sorted(output.response_times.glob("*.json"))]
    except RecordError as error:
        raise LoadError(str(error)) from error
    if not found:
        raise LoadError(f"Locust recorded no response times: {last_words(output.log.parent / 'console.log')}")
    return found


def facts(records: list[ProcessRecord]) -> dict[str, Any]:
    """What the locustfile found out, over all processes: counts are added, and of the rest each says the same."""
    found: dict[str, Any] = {}
    for key, value in (item for record in records for item in record.facts.items()):
        found[key] = found.get(key, 0) + value if key.endswith("_count") else value
    return found


def lost_workers(output: Files) -> list[LostWorker]:
    """The workers that the master missed during the run, and until when each recorded something.

    Raises LoadError where the master's list cannot be read.
    """
    file = output.response_times / "lost-workers.jsonl"
    if not file.exists():
        return []
    try:
        rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        return [LostWorker(r["process"], r["share"], r["of"], _last_seen(output, r["process"])) for r in rows]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise LoadError(f"{file} cannot be read: {error}") from error


def _last_seen(output: Files, process: str) -> int | None:
    """End of the last second with a line in the process' health file; its last line may be torn."""
    health = output.response_times / f"{process}.health.jsonl"
    lines = health.read_text(encoding="utf-8").splitlines(keepends=True) if health.exists() else []
    seconds = [json.loads(line)["second"] for line in lines[-2:] if line.endswith("\n")]
    return max(seconds) + 1 if seconds else None


def budget_lost(lost: list[LostWorker]) -> str:
    """Why a budget that lost workers is no run: its length is the time that exactly so many answers take."""
    workers = ", ".join(f"{worker.process} with {100 * worker.share:.3g} % of the {worker.of}" for worker in lost)
    return f"lost {workers}, which nobody answered: the budget was not reached, and its time is unknown"


def inherited_environment() -> dict[str, str]:
    """The harness's own environment."""
    return dict(os.environ)
