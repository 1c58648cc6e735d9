"""Repairs of Locust 2.47 itself, where it loses or distorts measurements. Importing this module applies them.

Each repair is one function with the defect in its docstring. All go through Locust's events, or replace one function
that Locust looks up at run time; nothing of Locust is copied or subclassed.
"""

# mypy: allow-untyped-calls, allow-untyped-decorators
# (Locust's event hooks are not typed.)

from __future__ import annotations

import argparse
import csv
import errno
import functools
import logging
import os
import random
import signal
import socket
import time
from collections.abc import Callable
from typing import Any

import gevent
import locust.runners
import locust.stats
import psutil
from _histograms import bucket_us
from gevent.event import Event
from locust import User, events
from locust.argument_parser import LocustArgumentParser
from locust.env import Environment
from locust.runners import STATE_MISSING, STATE_RUNNING, STATE_SPAWNING, MasterRunner, WorkerRunner
from locust.stats import RequestStats, StatsCSV, StatsCSVFileWriter, StatsEntry
from locust.user.task import LOCUST_STATE_STOPPING, LOCUST_STATE_WAITING

log = logging.getLogger(__name__)

STOP_TIMEOUT_S = 65
"""How long the end of a test waits for answers: a little longer than a request may take before it counts as failed."""

REPORT_MARGIN_S = 10
"""How much longer than that a master waits for its workers' last reports."""

MISSING_GRACE_S = 6
"""How long it waits at the end for a worker that has been silent: it may have been frozen, and still be back."""


# 1. The last second is missing in the CSV files.


def complete_csv_files(original: Callable[[StatsCSVFileWriter], None]) -> Callable[[StatsCSVFileWriter], None]:
    """Locust rewrites its CSV files once a second and closes them at the end without a last rewrite.

    A run of 10000 requests was seen to end with 6970 in the file.
    """

    @functools.wraps(original)
    def close_files(self: StatsCSVFileWriter) -> None:
        tables = (
            (self.requests_csv_filehandle, self.requests_csv),
            (self.failures_csv_filehandle, self.failures_csv),
            (self.exceptions_csv_filehandle, self.exceptions_csv),
        )
        for file, write in tables:
            file.seek(0)
            file.truncate()
            write(csv.writer(file))
        self._stats_history_data_rows(self.stats_history_csv_writer, time.time())
        original(self)

    return close_files


def quiet_when_closed(original: Callable[[StatsCSVFileWriter], None]) -> Callable[[StatsCSVFileWriter], None]:
    """Locust's writer is not ended with its files: its next turn, in the last 0.1 s of --processes, was a traceback."""

    @functools.wraps(original)
    def stats_writer(self: StatsCSVFileWriter) -> None:
        try:
            original(self)
        except ValueError:
            if not self.requests_csv_filehandle.closed:
                raise

    return stats_writer


# 2. Percentiles are cut to whole milliseconds, and from 100 ms on to two digits.


def fine_bucket_ms(response_time: float) -> float:
    """Replaces Locust's rounding, as its documentation allows: within 0.4 %, exact below 256 µs.

    With the original a median of 0.45 ms is 0, and one of 105 ms is 100 or 110.
    """
    return bucket_us(int(response_time * 1000 + 0.5)) / 1000


def percentile_fields(self: StatsCSV, stats_entry: StatsEntry, use_current: bool = False) -> list[Any]:
    """The CSV's percentiles in ms with three decimals; the original cuts them with int()."""
    if not stats_entry.num_requests:
        return self.percentiles_na
    current = use_current and stats_entry.use_response_times_cache
    read = stats_entry.get_current_response_time_percentile if current else stats_entry.get_response_time_percentile
    return [round(float(read(share) or 0), 3) for share in self.percentiles_to_report]


# 3. --run-time is shortened by the time that start-up took.


def refresh_loop_clock() -> None:
    """gevent's timers count from the loop's last turn, which was before imports and preparation: 6 s became 1.9 s.

    To be called after anything long that happens before a test starts.
    """
    gevent.get_hub().loop.update_now()


# 4. Requests in flight at the end are killed, and they are the slowest ones.


def wait_for_answers(parser: LocustArgumentParser) -> None:
    """Locust's default is to kill them, so that a server that hangs looks better than it is.

    --stop-timeout still decides, where it is given."""
    parser.set_defaults(stop_timeout=str(STOP_TIMEOUT_S))


def no_request_before_the_end(original: Callable[..., bool]) -> Callable[..., bool]:
    """A user that waits is killed, but the kill comes a turn later: one that woke in between was killed in a request.

    The server had answered then, and nobody had counted it.
    """

    @functools.wraps(original)
    def stop(self: User, force: bool = False) -> bool:
        if not force and self._state == LOCUST_STATE_WAITING:
            self._state = LOCUST_STATE_STOPPING  # should it wake before the kill, it ends by itself
            return original(self, force=True)
        if not force and self._state == LOCUST_STATE_STOPPING:
            return False  # told twice, as by Ctrl-C, which reaches the worker and the master, who tells it again
        return original(self, force)

    return stop


def ready_at_once(environment: Environment) -> None:
    """A worker told to stop sleeps for the stop timeout once more after its users have ended: no test can start then.

    The next start brings the timeout along.
    """
    environment.stop_timeout = 0.0


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


# 6. --json and --json-file set all counts to zero.


def without_reset(original: Callable[..., None]) -> Callable[..., None]:
    """Locust writes its JSON with the function that workers report with, and that empties the statistics."""

    @functools.wraps(original)
    def save(stats: RequestStats, *arguments: Any) -> None:
        copy = RequestStats(use_response_times_cache=False)
        for key, entry in stats.entries.items():
            copy.entries[key].extend(entry)
        original(copy, *arguments)

    return save


# 7. Ctrl-C is swallowed, or breaks a request.


def interrupt_main_greenlet() -> None:
    """Python raises KeyboardInterrupt in whichever greenlet runs: a user's request broke, or the master never noticed.

    With this it is raised in the main one, where Locust shuts down. To be called from there.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not where a parent process wants it ignored
        gevent.signal_handler(signal.SIGINT, gevent.kill, gevent.getcurrent(), KeyboardInterrupt)


# 9. The end of a test makes the last requests slow.


class CheapInspect:
    """Runner.stop() reads the source of its callers for a line of debugging: 35 ms in which no answer is looked at.

    Locust does without where that raises, and uses the module for nothing else.
    """

    def stack(self) -> Any:
        """What Locust calls."""
        raise RuntimeError("not looked up")


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


LOCUST_PORT = 5557
_ACTIVE = (STATE_RUNNING, STATE_SPAWNING)
_FINISH = "stackswarm_finish"
_FINISHED = "stackswarm_finished"


def _apply() -> None:
    stats: Any = locust.stats
    _replace(StatsCSVFileWriter, "close_files", complete_csv_files(StatsCSVFileWriter.close_files))
    _replace(StatsCSVFileWriter, "stats_writer", quiet_when_closed(StatsCSVFileWriter.stats_writer))
    _replace(stats, "bucket_response_time", fine_bucket_ms)
    _replace(StatsCSV, "_percentile_fields", percentile_fields)
    _replace(User, "stop", no_request_before_the_end(User.stop))
    for name in ("save_stats_json", "print_stats_json"):
        _replace(stats, name, without_reset(getattr(stats, name)))
    _replace(locust.runners, "inspect", CheapInspect())
    _replace(WorkerRunner, "handle_message", wait_for_init(WorkerRunner.handle_message))
    _replace(events.init, "fire", tell_when_done(events.init.fire))


def _replace(owner: Any, name: str, value: Any) -> None:
    getattr(owner, name)  # another version of Locust, without that name: say so now, not by distorted numbers
    setattr(owner, name, value)


@events.init_command_line_parser.add_listener
def _on_parser(parser: LocustArgumentParser, **_: Any) -> None:
    wait_for_answers(parser)
    setattr(parser, "parse_args", own_port(parser.parse_args, parser))  # noqa: B010 (a method replaced on one object)


@events.init.add_listener
def _on_init(environment: Environment, **_: Any) -> None:
    LastReports(environment).attach()
    if isinstance(environment.runner, WorkerRunner):
        environment.events.test_stop.add_listener(lambda **_: ready_at_once(environment))
        if getattr(environment.parsed_options, "processes", None):
            end_with_parent(environment.runner)
    interrupt_main_greenlet()
    refresh_loop_clock()


_apply()
