"""Ends a test that knows when it is over: all requests of a budget answered, or a finite schedule of arrivals done.

Each process reports its part. The test ends when all parts are done; headless the command too. A budget that loses a
worker can never be answered, so the test ends there; any other load goes on with the workers that are left. Both are
said, and headless the exit code is not 0: _lost_workers.py.
"""

# mypy: allow-untyped-calls, allow-untyped-decorators

from __future__ import annotations

import logging
from typing import Any

import gevent
from _lost_workers import LostWorkers
from _options import option
from locust.env import Environment
from locust.runners import STATE_RUNNING, STATE_SPAWNING, MasterRunner, WorkerRunner

log = logging.getLogger(__name__)


class Completion:
    """One in each Locust process."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._test = ""
        self._open_parts: set[str] = set()
        self._of = ""
        self._lost_workers = LostWorkers(environment, self._on_lost)
        if isinstance(environment.runner, MasterRunner):
            environment.runner.register_message(_PART_DONE, self._on_part_done)

    def begin(self, test: str, workers: list[str], ends_by_itself: bool, of: str) -> None:
        """A test starts, under a name that no other has. `of`: what its load is counted in (_lost_workers.FIELDS)."""
        self._test = test
        self._of = of
        self._open_parts = set(workers) if ends_by_itself else set()
        self._lost_workers.begin(workers, of)

    @property
    def test(self) -> str:
        """The test that runs; empty where none does."""
        return self._test

    def part_done(self) -> None:
        """This process has nothing left to do."""
        runner = self._environment.runner
        if isinstance(runner, WorkerRunner):
            runner.send_message(_PART_DONE, {"test": self._test})
        else:
            self._end()

    def _on_part_done(self, msg: Any, **_: Any) -> None:
        if msg.data["test"] == self._test:  # not the last word of a test that was stopped
            self._lost_workers.part_done(msg.node_id)
            self._close_part(msg.node_id)

    def _on_lost(self, worker: str) -> str:
        """Do what has to be done, and say it."""
        if self._of == "requests":
            self._end()
            return "the budget can no longer be answered, and the test ends"
        if self._lost_workers.all_lost:
            self._end(although_stopped=True)
            return "no worker is left, and the test ends"
        self._close_part(worker)
        return "the test goes on without it" if self._test else "it was noticed at the end of the test"

    def _close_part(self, worker: str) -> None:
        if worker in self._open_parts:
            self._open_parts.discard(worker)
            if not self._open_parts:
                self._end()

    def end(self) -> None:
        """The test is over, for whatever reason."""
        self._test = ""

    def _end(self, although_stopped: bool = False) -> None:
        end_test(self._environment, although_stopped)


def end_test(environment: Environment, although_stopped: bool = False) -> None:
    """End the test that runs, if one does; headless the command, too.

    `although_stopped`: Locust itself stops a test without workers, and then waits for ever, if headless.
    """
    runner = environment.runner
    if runner is None or not (although_stopped or runner.state in (STATE_SPAWNING, STATE_RUNNING)):
        return
    if not option(environment, "headless"):
        gevent.spawn(runner.stop)
    elif runner.shape_greenlet is not None:
        runner.shape_greenlet.kill(block=False)  # Locust's main greenlet waits for that, and then quits
    else:
        gevent.spawn(runner.quit)


_PART_DONE = "stackswarm_part_done"
