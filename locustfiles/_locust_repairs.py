"""Repairs of Locust 2.47 itself, where it loses or distorts measurements. Importing this module applies them.

Each repair is one function with the defect in its docstring; those of a master and its workers, 5 and 10 to 12, stand
in _locust_workers.py. All go through Locust's events, or replace one function that Locust looks up at run time; nothing
of Locust is copied or subclassed.
"""

# mypy: allow-untyped-calls, allow-untyped-decorators
# (Locust's event hooks are not typed.)

from __future__ import annotations

import csv
import functools
import signal
import time
from collections.abc import Callable
from typing import Any

import gevent
import locust.runners
import locust.stats
from _histograms import bucket_us
from _locust_workers import LastReports, end_with_parent, own_port, tell_when_done, wait_for_init
from locust import User, events
from locust.argument_parser import LocustArgumentParser
from locust.env import Environment
from locust.runners import WorkerRunner
from locust.stats import RequestStats, StatsCSV, StatsCSVFileWriter, StatsEntry
from locust.user.task import LOCUST_STATE_STOPPING, LOCUST_STATE_WAITING

STOP_TIMEOUT_S = 65
"""How long the end of a test waits for answers: a little longer than a request may take before it counts as failed."""


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
