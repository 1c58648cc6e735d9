"""Faults during a run: processes of the server are killed, stopped or continued in time, and that is recorded."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from analysis.record import RecordError, read_process
from harness.experiment import Event, Experiment
from harness.load import LoadError
from harness.server import Running
from harness.windows import budget_start, steady_state_start

SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP, "continue": signal.SIGCONT}


class EventError(LoadError):
    """An event that could not be done, so that the run is not the one that was planned."""


@dataclasses.dataclass
class Events:
    """The events of one run: which are due, and what became of each."""

    experiment: Experiment
    up: Running
    response_times: Path
    """Where Locust's processes write when their load began."""
    start_unix_s: float | None = None
    """Of the steady state, once that is known."""
    done: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    """RunRecord.events, as far as they have been tried."""

    @property
    def waiting(self) -> list[Event]:
        """What has not been tried yet, in the order of time."""
        return sorted(self.experiment.events, key=lambda event: event.at)[len(self.done) :]

    def check(self) -> None:
        """Do what is due by now. Raises EventError where that cannot be done, and ServerError as Running.check does."""
        if self.waiting:
            self._look()
        self.up.check()

    def _look(self) -> None:
        if self.start_unix_s is None:
            self.start_unix_s = _start(self.experiment, self.response_times)
        while self.start_unix_s is not None and self.waiting and time.time() >= self.start_unix_s + self.waiting[0].at:
            self._do(self.waiting[0])

    def close(self) -> None:
        """The load is over. Raises EventError where an event was not due before that."""
        missed = self.waiting
        for event in missed:
            self.done.append(_entry(event, None, "the load ended before it was due"))
        if missed:
            raise EventError(f"{_words(missed[0])}: the load ended before it was due")

    def _do(self, event: Event) -> None:
        error = _send(self.up, event)
        self.done.append(_entry(event, None if error else time.time(), error))
        if error:
            raise EventError(f"{_words(event)}: {error}")


def _entry(event: Event, unix_s: float | None, error: str | None) -> dict[str, Any]:
    moment = None if unix_s is None else round(unix_s, 3)
    return {"at_s": event.at, "action": event.action, "process": event.process, "unix_s": moment, "error": error}


def _words(event: Event) -> str:
    return f"event {event.action} {event.process} at {event.at:g} s of the steady state"


def _send(up: Running, event: Event) -> str | None:
    """Signal a process and those it started, which are its process group; why that failed, or None."""
    popen: subprocess.Popen[bytes] | None = up.popens.get(event.process)
    if popen is None:
        return f"the server has no such process; it has {', '.join(up.popens)}"
    if (status := popen.poll()) is not None:
        return f"it had ended with status {status} before"
    try:
        if event.action == "kill":
            up.gone.add(event.process)
        os.killpg(popen.pid, SIGNALS[event.action])
        if event.action == "kill":
            popen.wait(1.0)
    except OSError as error:
        up.gone.discard(event.process)
        return str(error.strerror)
    except subprocess.TimeoutExpired:
        return "it was still there a second after it was killed"
    return None


def _start(experiment: Experiment, response_times: Path) -> float | None:
    """When the steady state begins, once every process has told; None before that."""
    paths = sorted(response_times.glob("*.json"))
    if len(paths) < experiment.load.processes:
        return None
    with contextlib.suppress(RecordError, OSError):
        records = [read_process(path) for path in paths]
        if experiment.load.requests is not None:
            return budget_start(records)
        return steady_state_start(records, experiment.timing.warm_up)
    return None


def recorded(events: Iterable[Event]) -> list[dict[str, Any]]:
    """Planned events as the experiment's record has them."""
    return [{"at_s": event.at, "action": event.action, "process": event.process} for event in events]
