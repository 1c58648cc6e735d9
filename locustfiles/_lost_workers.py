"""A worker that goes missing during a test takes its part of the load with it: said at once, and kept for the record.

Locust notes it in one line, goes on with less load, and ends with 0. Here it is an error in the log, with the share
that is missing, and headless the command ends with EXIT_CODE. With --response-times, `lost-workers.jsonl` beside the
histograms names each: FIELDS, one JSON object a line, written at the end of the test.
"""

# mypy: allow-untyped-calls, allow-untyped-decorators

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gevent
from _options import option
from locust.env import Environment
from locust.runners import STATE_MISSING, MasterRunner

FIELDS = ("process", "share", "of", "noticed_unix_s")
"""process: as its files are called. share: of the load that was asked for, the part that it had, counted in `of`, which
is "users", "arrivals" or "requests". noticed_unix_s: when the master knew; the worker was silent for seconds then."""

FILE = "lost-workers.jsonl"
EXIT_CODE = 2
WATCH_S = 0.5

log = logging.getLogger(__name__)


class LostWorkers:
    """The master's eye on its workers; nothing in any other process. `on_lost` is told each worker's id, and says what
    that comes to."""

    def __init__(self, environment: Environment, on_lost: Callable[[str], str]) -> None:
        self._environment = environment
        self._on_lost = on_lost
        self._workers: dict[str, float] = {}
        self._of = ""
        self._lost: dict[str, dict[str, Any]] = {}
        self._watching: Any = None
        self._ended: tuple[dict[str, float], dict[str, dict[str, Any]]] = {}, {}
        self._listens = False

    def begin(self, workers: list[str], of: str) -> None:
        """A test starts on these workers, who share the load evenly. `of`: what it is counted in, as in FIELDS."""
        if isinstance(self._environment.runner, MasterRunner):
            self._listen(self._environment.runner)
            self._workers = dict.fromkeys(workers, 1 / max(len(workers), 1))
            self._of, self._lost = of, {}
            self._watching = gevent.spawn(self._watch, self._environment.runner)

    def part_done(self, worker: str) -> None:
        """This worker has nothing left to do: what becomes of it takes nothing from the load."""
        self._workers.pop(worker, None)

    @property
    def all_lost(self) -> bool:
        """Nobody is left who has something to do."""
        return len(self._lost) == len(self._workers)

    def _watch(self, runner: MasterRunner) -> None:
        while self._watching is not None:
            gevent.sleep(WATCH_S)
            clients = {client.id: client for client in runner.clients.all if client.state != STATE_MISSING}
            for worker in list(self._workers):
                client = clients.get(worker)
                if client is None and worker not in self._lost:
                    self._lose(runner, worker)
                elif client is not None:
                    self._find(worker)
                    if self._of == "users" and client.user_count and runner.target_user_count:
                        self._workers[worker] = client.user_count / runner.target_user_count

    def _lose(self, runner: MasterRunner, worker: str) -> None:
        process, share = f"worker-{runner.get_worker_index(worker)}", round(self._workers[worker], 4)
        self._lost[worker] = dict(zip(FIELDS, (process, share, self._of, time.time()), strict=True))
        self._environment.process_exit_code = EXIT_CODE
        log.error(_LOST, process, worker, 100 * share, self._of, self._on_lost(worker))

    def _find(self, worker: str) -> None:
        """It was only silent: too busy, or frozen. It went on with its part."""
        if self._of != "requests" and self._lost.pop(worker, None) is not None:
            log.warning("Worker %s is back.", worker)
            if not self._lost:
                self._environment.process_exit_code = None

    def _listen(self, runner: MasterRunner) -> None:
        """Only now, at the first start of a test: behind the listener that waits for the workers' last reports."""
        if not self._listens:
            self._listens = True
            self._environment.events.test_stopping.add_listener(lambda **_: self._on_test_stopping())
            self._environment.events.test_stop.add_listener(lambda **_: self._on_test_stop(runner))

    def _on_test_stopping(self) -> None:
        if self._watching is not None and self._watching is not gevent.getcurrent():
            self._watching.kill(block=False)
        self._watching = None
        self._ended = self._workers, self._lost

    def _on_test_stop(self, runner: MasterRunner) -> None:
        """The master has waited for all reports: who died in the last seconds is known now, and who is back."""
        workers, lost = self._ended
        if workers is self._workers:  # else the web UI has started the next test meanwhile
            for client in [client for client in runner.clients.all if client.id in workers]:
                if client.state != STATE_MISSING:
                    self._find(client.id)
                elif client.id not in lost:
                    self._lose(runner, client.id)
        folder = option(self._environment, "response_times")
        if lost and folder:
            with (Path(folder) / FILE).open("a", encoding="utf-8") as file:
                file.writelines(json.dumps(row) + "\n" for row in lost.values())


_LOST = "Worker %s (%s) was lost, and with it %.3g %% of the %s: %s. The load is not what was asked for."
