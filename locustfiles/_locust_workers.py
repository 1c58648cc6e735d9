"""Repairs of Locust 2.47 where a master and its workers lose each other. _locust_repairs.py applies them.

Numbered as there; each has the defect in its docstring.
"""

# mypy: allow-untyped-calls, allow-untyped-decorators
# (Locust's event hooks are not typed.)

from __future__ import annotations

import argparse
import errno
import functools
import logging
import os
import random
import socket
import time
from collections.abc import Callable
from typing import Any

import gevent
import psutil
from gevent.event import Event
from locust.argument_parser import LocustArgumentParser
from locust.env import Environment
from locust.runners import STATE_MISSING, STATE_RUNNING, STATE_SPAWNING, MasterRunner, WorkerRunner

log = logging.getLogger(__name__)

REPORT_MARGIN_S = 10
"""How much longer than that a master waits for its workers' last reports."""

MISSING_GRACE_S = 6
"""How long it waits at the end for a worker that has been silent: it may have been frozen, and still be back."""

LOCUST_PORT = 5557
_ACTIVE = (STATE_RUNNING, STATE_SPAWNING)
_FINISH = "stackswarm_finish"
_FINISHED = "stackswarm_finished"


# 5. A worker's last report is lost.


class LastReports:
    """The master gives its workers half a second for their last report, while they may still wait for answers.

    Here the master asks them to finish and waits until each has said that it did; its report is sent before that.
    """

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._finished: set[str] = set()

    def attach(self) -> None:
        """Add the listeners that this process' runner needs."""
        runner = self._environment.runner
        if isinstance(runner, MasterRunner):
            runner.register_message(_FINISHED, self._on_finished)
            self._environment.events.test_start.add_listener(lambda **_: self._finished.clear())
            self._environment.events.test_stop.add_listener(lambda **_: self._collect(runner))
            self._environment.events.quit.add_listener(lambda **_: wait_for_child_processes())
        elif isinstance(runner, WorkerRunner):
            runner.register_message(_FINISH, lambda **_: self._finish(runner))
            # Before the worker takes its leave, after which the master no longer waits for it (Ctrl-C reaches both).
            self._environment.events.quitting.add_listener(lambda **_: self._finish(runner))
            self._environment.events.test_stop.add_listener(lambda **_: runner._send_stats())

    def _on_finished(self, msg: Any, **_: Any) -> None:
        self._finished.add(msg.node_id)

    def _collect(self, runner: MasterRunner) -> None:
        if gevent.getcurrent() in runner.greenlet:
            return  # called by the very greenlet that receives: every worker has left already
        begun_s = time.monotonic()
        for client in self._unfinished(runner, (*_ACTIVE, STATE_MISSING)):
            runner.send_message(_FINISH, client_id=client)
        with gevent.Timeout(self._environment.stop_timeout + REPORT_MARGIN_S, False):
            while self._unfinished(runner, _ACTIVE) or (
                time.monotonic() < begun_s + MISSING_GRACE_S and self._unfinished(runner, (STATE_MISSING,))
            ):
                gevent.sleep(0.02)

    def _unfinished(self, runner: MasterRunner, states: tuple[str, ...]) -> list[str]:
        return [c.id for c in runner.clients.all if c.state in states and c.id not in self._finished]

    def _finish(self, runner: WorkerRunner) -> None:
        runner.stop()  # waits for the answers, then fires test_stop, which sends the report
        runner.send_message(_FINISHED)


def wait_for_child_processes(timeout_s: float = 10.0) -> None:
    """Locust means to wait for its --processes children, but forgets each of them at the first look: they outlived it.

    Those that do not end by themselves are terminated, or killed: one that is frozen hears of nothing else, and Locust
    would wait for it for ever.
    """
    _wait_until_gone(timeout_s)
    for end in (psutil.Process.terminate, psutil.Process.kill):
        for child in psutil.Process().children():
            end(child)
        _wait_until_gone(2.0)


def _wait_until_gone(timeout_s: float) -> None:
    with gevent.Timeout(timeout_s, False):
        while any(child.status() != psutil.STATUS_ZOMBIE for child in psutil.Process().children()):
            gevent.sleep(0.02)


# 10. A worker that joins a running test may be told to start before it has heard of anything.


def wait_for_init(original: Callable[[WorkerRunner, Any], None]) -> Callable[[WorkerRunner, Any], None]:
    """The start of the test comes together with the master's welcome, before Locust fires `init`.

    Nobody listens to test_start then: nothing was prepared, and nothing of what the worker did was recorded.
    """

    @functools.wraps(original)
    def handle_message(self: WorkerRunner, msg: Any) -> None:
        if msg.type == "spawn":
            _initialised(self).wait()
        original(self, msg)

    return handle_message


def tell_when_done(original: Callable[..., None]) -> Callable[..., None]:
    """The `init` event's fire()."""

    @functools.wraps(original)
    def fire(*, runner: Any = None, **event: Any) -> None:
        original(runner=runner, **event)
        if isinstance(runner, WorkerRunner):
            _initialised(runner).set()

    return fire


def _initialised(runner: WorkerRunner) -> Event:
    event: Event = vars(runner).setdefault("stackswarm_initialised", Event())
    return event


# 11. Workers of --processes outlive the command that started them.


def end_with_parent(runner: WorkerRunner) -> None:
    """Killed, the command leaves them behind: they go on with the load for up to a minute, seen by nobody.

    They notice within a second, and do not wait for answers. What they recorded is whole.
    """
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            gevent.sleep(0.5)
        log.error("The command that started this worker is gone: it ends.")
        runner.environment.process_exit_code = 2
        runner.environment.stop_timeout = 0.0
        runner.quit()

    gevent.spawn(watch)


# 12. Two runs with --processes on one machine become one.


def own_port(
    original: Callable[..., argparse.Namespace], parser: LocustArgumentParser
) -> Callable[..., argparse.Namespace]:
    """Both masters want port 5557: the second fails, and its workers join the first one's test.

    With --processes the port is a free one on 127.0.0.1, unless one is given; one that is taken is refused before there
    are workers.
    """

    def parse_args(*arguments: Any, **named: Any) -> argparse.Namespace:
        options = original(*arguments, **named)
        given = options.master_bind_port
        if options.processes and not options.worker:
            options.master_bind_host = options.master_bind_host or "127.0.0.1"
            try:
                options.master_bind_port = master_port(options.master_bind_host, given)
            except ValueError as error:
                parser.error(str(error))
            options.master_port = options.master_port or options.master_bind_port
        options.master_bind_host = options.master_bind_host or "*"
        options.master_bind_port = options.master_bind_port or LOCUST_PORT
        options.master_port = options.master_port or LOCUST_PORT
        return options

    parser.set_defaults(master_bind_host=None, master_bind_port=None, master_port=None)
    return parse_args


@functools.cache  # the web UI reads the command line once more, when the port is this command's own
def master_port(host: str, given: int | None) -> int:
    """The given port, or a free one below those that outgoing connections take. Raises ValueError where it is taken."""
    if given and not _is_free(host, given):
        raise ValueError(f"port {given} is taken, by another Locust for one; leave --master-bind-port out")
    ports = random.SystemRandom().sample(range(20000, 32000), 100)
    return given or next(port for port in ports if _is_free(host, port))


def _is_free(host: str, port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("" if host == "*" else host, port))
        except OSError as error:
            return error.errno != errno.EADDRINUSE
    return True
