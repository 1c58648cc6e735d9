"""Ends a test that knows when it is over: all requests of a budget answered, or all arrivals of a finite schedule.

Each process reports its part. The test ends when all parts are done; headless the command too. A worker that is lost
before its part is done ends the test as well, with a message and exit code 2: what it owed will never be answered.
"""

# mypy: allow-untyped-calls, allow-untyped-decorators

from __future__ import annotations

import logging
from typing import Any

import gevent
from _options import option
from locust.env import Environment
from locust.runners import STATE_MISSING, STATE_RUNNING, STATE_SPAWNING, MasterRunner, WorkerRunner

EXIT_CODE = 2
WATCH_S = 0.5

log = logging.getLogger(__name__)


class Completion:
    """One in each Locust process."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._test = ""
        self._open_parts: set[str] = set()
        if isinstance(environment.runner, MasterRunner):
            environment.runner.register_message(_PART_DONE, self._on_part_done)

    def begin(self, test: str, workers: list[str], watch: bool) -> None:
        """A test starts, under a name that no other has. `watch`: on the master, look after the workers."""
        self._test = test
        self._open_parts = set(workers)
        if watch and isinstance(self._environment.runner, MasterRunner):
            gevent.spawn(self._watch, self._environment.runner, test)

    def part_done(self) -> None:
        """This process has nothing left to do."""
        runner = self._environment.runner
        if isinstance(runner, WorkerRunner):
            runner.send_message(_PART_DONE, {"test": self._test})
        else:
            self._end()

    def _on_part_done(self, msg: Any, **_: Any) -> None:
        if msg.data["test"] != self._test:  # the last word of a test that was stopped
            return
        self._open_parts.discard(msg.node_id)
        if not self._open_parts:
            self._end()

    def end(self) -> None:
        """The test is over, for whatever reason."""
        self._test = ""

    def _watch(self, runner: MasterRunner, test: str) -> None:
        while self._test == test and self._open_parts:
            gevent.sleep(WATCH_S)
            present = {client.id for client in runner.clients.all if client.state != STATE_MISSING}
            lost = self._open_parts - present
            if lost and self._test == test:
                log.error(_LOST, ", ".join(sorted(lost)))
                self._environment.process_exit_code = EXIT_CODE
                self._end()
                return

    def _end(self) -> None:
        runner = self._environment.runner
        if runner is None or runner.state not in (STATE_SPAWNING, STATE_RUNNING):
            return
        if not option(self._environment, "headless"):
            gevent.spawn(runner.stop)
        elif runner.shape_greenlet is not None:
            runner.shape_greenlet.kill(block=False)  # Locust's main greenlet waits for that, and then quits
        else:
            gevent.spawn(runner.quit)


_PART_DONE = "stackswarm_part_done"
_LOST = "Worker %s was lost before its part of the load was done: the test ends, and is not what was asked for."
