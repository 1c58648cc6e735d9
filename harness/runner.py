"""The loop: server → dataset → warm-up → steady state → record, for every run of the plan."""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

from analysis import record
from analysis.record import ExperimentRecord, PlannedRun, RunRecord
from harness import arrivals, configuration, description, events, external, load, reference, windows
from harness.apply import Operator
from harness.configuration import Value
from harness.environment import environment
from harness.events import Events
from harness.experiment import Experiment, ExperimentFile, External
from harness.external import NOTHING, Consent, NotAllowed
from harness.load import LoadAbortedError, LoadError
from harness.plan import plan
from harness.run_folder import files as run_files
from harness.run_folder import make_partial, redact, write
from harness.sampler import Sampler
from harness.server import Running, Server, ServerError, last_words, own, running, scratch_folder, wait_until_idle
from harness.systems import SYSTEMS

TEXT_LIMIT_BYTES = 50_000_000


class Watcher(Protocol):
    """Who wants to know how far it is."""

    def says(self, message: str) -> None:
        """Something is being done that takes a while."""

    def server_ready(self, up: Running) -> None:
        """A server is up."""

    def run_starts(self, run: PlannedRun) -> None:
        """A run begins."""

    def run_ends(self, run: PlannedRun, outcome: RunRecord) -> None:
        """A run is recorded, complete or failed."""


def describe(file: ExperimentFile) -> ExperimentRecord:
    """experiment.json for this file, its plan included."""
    experiment = file.experiment
    values = description.values(file)
    return ExperimentRecord(
        name=file.name,
        question=experiment.question,
        workload=experiment.workload,
        factors=experiment.factors,
        baseline=experiment.baseline,
        primary={"metric": experiment.primary.metric, "at": experiment.primary.at},
        margin=experiment.primary.margin,
        held_constant={
            path: next(iter(v)) for path, v in values.items() if len(v) == 1 and path not in experiment.factors
        },
        notes=[*description.notes(file, values), *arrivals.sentences(file)],
        timing=description.timing(experiment),
        replicates=experiment.replicates,
        order=experiment.order.model_dump(),
        source=experiment.source.model_dump() if experiment.source else None,
        overrides=list(file.overrides),
        plan=plan(experiment),
        created_unix_s=time.time(),
        arrival_rates=file.rate_files,
        objectives=experiment.objectives,
        abort_when=experiment.abort_when,
        events=events.recorded(experiment.events),
        reference=reference.read(experiment.reference) if experiment.reference else None,
    )


def run(file: ExperimentFile, folder: Path, watcher: Watcher, consent: Consent = NOTHING) -> list[RunRecord]:
    """Do every run of the plan that `folder` does not hold yet, and return the records of those done now.

    A run that fails is recorded with its reason, and the next one begins.
    On an external server that is not loopback nothing more is run once it could not bear the load.
    Raises InstallError where a server cannot be installed, and ServerError where this machine's limits are below what
    the load needs: then no run could be done. Raises NotAllowed where the experiment does what `consent` does not
    allow.
    """
    external.check(file, consent)
    missing = record.missing_runs(folder)
    _check_limits(file, missing)
    operator = Operator(load.inherited_environment())
    records: list[RunRecord] = []
    for _, group in itertools.groupby(missing, key=lambda planned: planned.server_number):
        waiting = list(group)
        while waiting:
            outside = file.at(waiting[0].treatment).server.external
            if outside is None:
                done = list(_on_one_server(file, folder, waiting, watcher))
            else:
                done = list(_on_external(_Outside(outside, operator, consent), file, folder, waiting, watcher))
            records += done
            waiting = waiting[len(done) :]
            if outside is not None and operator.must_stop:
                return records
    return records


def _check_limits(file: ExperimentFile, planned: list[PlannedRun]) -> None:
    """Before the first run. Raises ServerError."""
    for run_ in planned:
        experiment = file.at(run_.treatment)
        if experiment.server.external is None:
            chosen = configuration.read(experiment.server.system, experiment.server.configuration)
            parameters = chosen.complete(dict(experiment.server.parameters))
            SYSTEMS[experiment.server.system].check_limits(parameters, experiment.load.slots)


@dataclasses.dataclass
class _Outside:
    """An external server, and who brings it to where it must be."""

    external: External
    operator: Operator
    consent: Consent

    def running(self) -> Running:
        """As a run sees a server that is up: no processes, no configuration, nothing that may have died."""
        variables = load.inherited_environment()
        secrets = external.safe_in_numbers(external.secrets(self.external, variables))
        target = external.target(self.external, variables)
        return Running(Server(target, [], lambda: True, {}, "", secrets), {}, 0.0)

    def keep_notes(self, partial: Path) -> None:
        """Write what the operator's commands did into the run's folder."""
        if text := self.operator.take():
            secrets = external.secrets(self.external, load.inherited_environment())
            write(partial / "server" / "operator.log", text + "\n", secrets)


def _on_external(
    outside: _Outside, file: ExperimentFile, folder: Path, group: list[PlannedRun], watcher: Watcher
) -> Iterator[RunRecord]:
    """Runs on a server that stays as it is between them. At least one record comes out.

    Where the server cannot be brought to where it must be, none of them is measured.
    """
    watcher.says(f"looking at {outside.external.host}")
    with scratch_folder() as scratch:
        try:
            external.check_may_load(outside.external, outside.consent)  # a name may have got another address
            outside.operator.bring(outside.external, scratch)
        except (ServerError, NotAllowed) as error:
            for planned in group:
                yield _never_started(file, planned, folder, {}, str(error), watcher, outside)
            return
        up = outside.running()
        watcher.server_ready(up)
        for planned in group:
            one = _Run(file, file.at(planned.treatment), planned, folder, up, {}, first=True, outside=outside)
            yield one.go(watcher, scratch)
            if outside.operator.must_stop or not outside.operator.is_applied(outside.external):
                return


def _on_one_server(
    file: ExperimentFile, folder: Path, group: list[PlannedRun], watcher: Watcher
) -> Iterator[RunRecord]:
    """Runs that share a server, up to the one during which it died. At least one record comes out."""
    experiment = file.at(group[0].treatment)
    chosen = configuration.read(experiment.server.system, experiment.server.configuration)
    parameters = chosen.complete(dict(experiment.server.parameters))
    system = SYSTEMS[experiment.server.system]
    came_up = False
    watcher.says(f"starting {experiment.server.system} ({_words(group[0], experiment, parameters)})")
    try:
        prepared = system.prepare(chosen, parameters, dict(experiment.dataset), watcher.says)
        with (
            scratch_folder() as scratch,
            running(lambda place: system.server(prepared, place, chosen, parameters), scratch) as up,
        ):
            came_up = True
            watcher.server_ready(up)
            for i, planned in enumerate(group):
                one = _Run(file, file.at(planned.treatment), planned, folder, up, parameters, first=i == 0)
                yield one.go(watcher, scratch)
                up.check()
                if i + 1 < len(group) and not wait_until_idle(up):
                    return  # the rest of the group gets a fresh server
    except ServerError as error:
        if not came_up:  # then none of these runs can be done
            for planned in group:
                yield _never_started(file, planned, folder, parameters, str(error), watcher)


def _words(planned: PlannedRun, experiment: Experiment, parameters: dict[str, Value]) -> str:
    varied = [
        path.removeprefix("server.parameters.") for path in planned.treatment if path.startswith("server.parameters.")
    ]
    return ", ".join([experiment.server.configuration, *(f"{name} {parameters[name]}" for name in varied)])


def _never_started(
    file: ExperimentFile, planned: PlannedRun, folder: Path, parameters: dict[str, Value], reason: str,
    watcher: Watcher, outside: _Outside | None = None,
) -> RunRecord:  # fmt: skip
    watcher.run_starts(planned)
    experiment = file.at(planned.treatment)
    partial = make_partial(folder, planned)
    if outside is not None:
        outside.keep_notes(partial)
        reason = redact(reason, external.secrets(outside.external, load.inherited_environment()))
    facts = _server_facts(experiment, parameters, None)
    outcome = _record(file, experiment, planned, facts, reason, files=run_files(partial))
    record.write_run(partial, outcome)
    record.finish_run(partial)
    watcher.run_ends(planned, outcome)
    return outcome


def _record(
    file: ExperimentFile,
    experiment: Experiment,
    planned: PlannedRun,
    server: dict[str, Any],
    reason: str | None,
    **measured: Any,
) -> RunRecord:
    nothing: dict[str, Any] = {"windows": {}, "locust": {}, "files": {}}
    return RunRecord(
        experiment=file.name,
        number=planned.number,
        block=planned.block,
        replicate=planned.replicate,
        treatment=planned.treatment,
        workload=experiment.workload,
        status="complete" if reason is None else "failed",
        reason=reason,
        load=experiment.load.model_dump(exclude_none=True),
        server=server,
        environment=environment(),
        **{**nothing, **measured},
    )


def _server_facts(experiment: Experiment, parameters: dict[str, Value], up: Running | None) -> dict[str, Any]:
    if experiment.server.external is not None:
        return external.facts(experiment.server.external)
    facts: dict[str, Any] = {
        "system": experiment.server.system,
        "configuration": experiment.server.configuration,
        "parameters": parameters,
    }
    if up is not None:
        digest = configuration.digest(up.server.rendered)
        facts |= {"version": up.server.version, "configuration_sha256": digest, "started_s": round(up.started_s, 2)}
    return facts


@dataclasses.dataclass
class _Run:
    """One run on a server that is up."""

    file: ExperimentFile
    experiment: Experiment
    planned: PlannedRun
    folder: Path
    up: Running
    parameters: dict[str, Value]
    first: bool
    """Whether the server has just been started for this run: its log then begins with the start."""
    outside: _Outside | None = None
    """Where the server is an external one."""

    def go(self, watcher: Watcher, scratch: Path) -> RunRecord:
        watcher.run_starts(self.planned)
        partial = make_partial(self.folder, self.planned)
        offsets = {p.name: 0 if self.first else p.log.stat().st_size for p in self.up.server.processes}
        counted_from = self.up.server.access_logs.sizes()
        measured: dict[str, Any] = {}
        reason = None
        try:
            self._look(scratch)
            self._load(partial, scratch, measured)
            self._look(scratch)
        except (LoadError, ServerError) as error:
            reason = redact(str(error), self.up.server.secrets)
            if self.outside is not None and isinstance(error, LoadAbortedError):
                self.outside.operator.must_stop = not external.is_loopback(self.outside.external)
        finally:
            # An interrupted run leaves what it has, too, and never a secret.
            self._keep_logs(partial, offsets)
            if counted_from:
                self.up.server.access_logs.write_counts(partial / "server_counts.csv", counted_from)
        server = _server_facts(self.experiment, self.parameters, self.up)
        outcome = _record(
            self.file, self.experiment, self.planned, server, reason, files=run_files(partial), **measured
        )
        record.write_run(partial, outcome)
        record.finish_run(partial)
        watcher.run_ends(self.planned, outcome)
        return outcome

    def _look(self, scratch: Path) -> None:
        """An external server may be changed by others: what was measured counts where it was the same at both ends."""
        if self.outside is not None:
            self.outside.operator.look(self.outside.external, scratch)

    def _load(self, partial: Path, scratch: Path, measured: dict[str, Any]) -> None:
        experiment = self.experiment
        parts: dict[str, list[tuple[str, int]]] = {"server": self.up.parts, "generator": []}

        def started(pid: int) -> None:
            parts["generator"].append(("locust", pid))
            own(scratch, [*self.up.pids, pid])

        with Sampler(partial / "usage.csv", partial / "machine.csv", parts.__getitem__):
            if experiment.load.requests is not None and experiment.timing.warm_up > 0:
                warm_up = load.warm_up_pass(experiment)
                self._locust(warm_up, load.files(partial / "warm_up"), scratch, started, {})
            records = self._locust(experiment, load.files(partial), scratch, started, measured)
        measured["locust"]["facts"] = load.facts(records)
        if experiment.timing.steady_state is None:
            measured["windows"] = windows.budget_windows(records)
        else:
            lost = [worker.process for worker in measured["lost_workers"]]
            measured["windows"] = windows.windows(
                records, experiment.timing.warm_up, experiment.timing.steady_state, lost
            )

    def _locust(
        self,
        experiment: Experiment,
        output: load.Files,
        scratch: Path,
        started: Callable[[int], None],
        measured: dict[str, Any],
    ) -> list[record.ProcessRecord]:
        """Run Locust once; `measured` gets its command, exit status and lost workers, whatever happens."""
        seed = experiment.order.seed * 1000 + self.planned.block
        argv = load.command(experiment, self.up.target, output, seed, load.declared_options(experiment.workload))
        if experiment.load.arrival_rates is not None:
            load.write_rates(output, self.file.rate_files[experiment.load.arrival_rates], experiment.load)
        measured["locust"] = {"command": argv, "exit_code": None, "facts": {}}
        home = scratch / "home"
        home.mkdir(exist_ok=True)
        variables = load.environment(self.up.target, load.inherited_environment(), home)
        stays = () if self.outside is None else (load.REMOVAL_S,)
        happens = Events(experiment, self.up, output.response_times)
        measured["events"] = happens.done
        status = load.run(argv, variables, output, load.expected_s(experiment), happens.check, started, *stays)
        measured["locust"]["exit_code"] = status
        measured["lost_workers"] = lost = load.lost_workers(output)
        if reason := load.abortion(output):
            raise LoadAbortedError(reason)
        if self.outside is not None:
            load.check_failures(output)
        if lost and self.experiment.load.requests is not None:
            raise LoadError(load.budget_lost(lost))
        if status != (load.LOST_WORKERS_STATUS if lost else 0):
            raise LoadError(f"Locust ended with status {status}: {last_words(output.log.parent / 'console.log')}")
        load.check_answered(output)
        happens.close()
        return load.processes(output)

    def _keep_logs(self, partial: Path, offsets: dict[str, int]) -> None:
        if self.outside is not None:
            self.outside.keep_notes(partial)
        for name, text in self.up.server.rendered.items():
            write(partial / "configuration" / name, text, self.up.server.secrets)
        for process in self.up.server.processes:
            with process.log.open("rb") as log:
                log.seek(offsets[process.name])
                text = log.read(TEXT_LIMIT_BYTES).decode("utf-8", errors="replace")
            write(partial / "server" / process.log.name, text, self.up.server.secrets)
        # An operator's password may be a word that stands in a request's name: Locust's tables, which hold names and
        # numbers only, stay as they are.
        kinds = "*" if self.outside is None else "*.log"
        for path in [*partial.glob(f"locust/{kinds}"), *partial.glob(f"warm_up/locust/{kinds}")]:
            write(path, path.read_text(encoding="utf-8", errors="replace"), self.up.server.secrets)
