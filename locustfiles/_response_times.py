"""Response-time histograms for every second, endpoint and outcome, which add up exactly over processes and machines.

Importing this module adds the listeners; `--response-times DIR` switches them on. Each Locust process that runs users
writes three files, `local.*` or `worker-<index>.*`:

    <process>.csv   COLUMNS, integer counts; the rows of a second are appended and flushed as soon as it is over, so a
                    process that is killed loses at most the second it was in
    <process>.health.jsonl  the process itself in each second, and its arrivals in the open model (_health.py)
    <process>.json  what the process knows of itself, rewritten at every event

Several test starts in one process (web UI) append to the same files; the JSON then describes the latest test.
"""

# mypy: allow-untyped-calls, allow-untyped-decorators
# (Locust's event hooks are not typed.)

from __future__ import annotations

import contextlib
import csv
import io
import json
import logging
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gevent
from _errors import NotReady
from _health import Health
from _histograms import RELATIVE_ERROR, Histograms
from _load_models import LoadModel, model_of
from _options import option
from locust import events
from locust.env import Environment
from locust.runners import MasterRunner, WorkerRunner

COLUMNS = ("second", "endpoint", "outcome", "clock", "bucket_us", "count")
SCHEMA_VERSION = 1
EXIT_CODE = 2

log = logging.getLogger(__name__)


class Recorder:
    """One Locust process' recording: its histograms, its two files, and the facts the locustfile found out."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        # Anchored once: should the system's clock be set during a test, seconds still last a second each.
        anchor = time.time() - time.monotonic()
        self.unix_s: Callable[[], float] = lambda: anchor + time.monotonic()
        self.histograms = Histograms(self.unix_s)
        self.facts: dict[str, Any] = {}
        self._times: dict[str, float | None] = dict.fromkeys(("test_start", "spawning_complete", "test_stop"))
        self._folder: Path | None = None
        self._health: Health | None = None
        self._csv = -1
        self._unwritten = b""
        self._last_second = 0

    @property
    def process(self) -> str:
        """Name of this process' files, without their endings."""
        runner = self._environment.runner
        return f"worker-{runner.worker_index}" if isinstance(runner, WorkerRunner) else "local"

    def on_test_start(self, **_: Any) -> None:
        """Open the files at the first start; later starts append."""
        folder = option(self._environment, "response_times")
        if not folder:
            return
        if self._folder is None:
            self._open(Path(folder))
        # A second is written once. A test that starts in the second the last one ended in waits for the next one.
        gevent.sleep(max(0.0, self._last_second + 1 - self.unix_s()) if self._last_second else 0)
        self._times = {"test_start": self.unix_s(), "spawning_complete": None, "test_stop": None}
        if self._health is not None:
            self._health.start(self._environment.host)
        self._describe()

    def on_spawning_complete(self, **_: Any) -> None:
        """Note when all users were there; a shape's later steps do not change it."""
        if self._times["spawning_complete"] is None:
            self._times["spawning_complete"] = self.unix_s()
            self._describe()

    def on_test_stop(self, **_: Any) -> None:
        """All users have ended: write what is left."""
        self._times["test_stop"] = stop_unix_s = self.unix_s()
        self.close()
        if self._health is not None:
            self._write_health(int(stop_unix_s))
            self._health.stop()

    def close(self, **_: Any) -> None:
        """Write everything counted so far. The files stay usable: the web UI may start another test."""
        self._write(self.histograms.take())
        self._describe()

    def fact(self, name: str, value: Any) -> None:
        """Record something the locustfile found out, `token_format` for one."""
        if self.facts.get(name) != value:
            self.facts[name] = value
            self._describe()

    def _open(self, folder: Path) -> None:
        make_folder(folder)
        path = folder / f"{self.process}.csv"
        try:
            self._csv = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_APPEND, 0o644)
            self._health = Health(folder / f"{self.process}.health.jsonl")
        except FileExistsError:
            raise NotReady(_REFUSED.format(path)) from None
        self._folder = folder
        self._write([COLUMNS])
        self._environment.events.request.add_listener(self.histograms.on_request)
        gevent.spawn(self._write_each_second)

    def _write_each_second(self) -> None:
        while True:
            now = self.unix_s()
            gevent.sleep(int(now) + 1 - now)
            self._write(self.histograms.take(before_second=int(self.unix_s())))
            self._write_health(int(self.unix_s()) - 1)

    def _write(self, rows: list[tuple[Any, ...]]) -> None:
        if self._folder is None:
            return
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(rows)
        self._unwritten += text.getvalue().encode()
        with self._failure_reported():
            while self._unwritten:
                # Straight to the kernel, which keeps it when this process is killed. What a full disk does not take is
                # tried again with the next second's rows.
                self._unwritten = self._unwritten[os.write(self._csv, self._unwritten) :]
        self._last_second = max((row[0] for row in rows if isinstance(row[0], int)), default=self._last_second)

    def _write_health(self, second: int) -> None:
        if self._health is None or not self._health.is_running:
            return
        with self._failure_reported():
            self._health.write(second, self._model.second(second))
        self._last_second = max(second, self._last_second)

    @property
    def _model(self) -> LoadModel:
        return model_of(self._environment)

    def _describe(self) -> None:
        if self._folder is None:
            return
        record = {
            "process": self.process,
            "pid": os.getpid(),
            "model": self._model.name,
            "relative_error": RELATIVE_ERROR,
            **{f"{name}_unix_s": moment for name, moment in self._times.items()},
            "facts": self.facts,
            **self._model.summary(),
            "schema_version": SCHEMA_VERSION,
        }
        path = self._folder / f"{self.process}.json"
        temporary = path.with_suffix(".json.tmp")
        with self._failure_reported():
            temporary.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
            temporary.replace(path)

    @contextlib.contextmanager
    def _failure_reported(self) -> Iterator[None]:
        """A disk that fails neither stops the load nor goes unnoticed: it is logged, and Locust ends with 2."""
        try:
            yield
        except OSError as error:
            self._environment.process_exit_code = EXIT_CODE
            log.error("--response-times %s: %s. The recording may be incomplete.", self._folder, error.strerror)


_REFUSED = "{} is there already: --response-times never overwrites or mixes recordings. Give it another folder."


def make_folder(folder: Path) -> None:
    """Create the folder of --response-times. Raises NotReady where that is not possible."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(0, "no permission to write")
    except OSError as error:
        raise NotReady(f"--response-times {folder}: cannot write there ({error.strerror}).") from None


def check_folder(environment: Environment) -> None:
    """Before any load: the folder can be written and holds no recording. Raises NotReady otherwise."""
    given = option(environment, "response_times")
    if not given:
        return
    make_folder(Path(given))
    recordings = sorted(Path(given).glob("local.*")) + sorted(Path(given).glob("worker-*.*"))
    if recordings:
        raise NotReady(_REFUSED.format(recordings[0]))


def record_fact(environment: Environment, name: str, value: Any) -> None:
    """Add a fact to this process' record; harmless where nothing is recorded."""
    recorder = getattr(environment, _ATTRIBUTE, None)
    if recorder is not None:
        recorder.fact(name, value)


def clock_of(environment: Environment) -> Callable[[], float]:
    """The recorder's clock, in Unix seconds, which nobody sets during a test."""
    recorder = getattr(environment, _ATTRIBUTE, None)
    return time.time if recorder is None else recorder.unix_s


_ATTRIBUTE = "stackswarm_recorder"


@events.init.add_listener
def _attach(environment: Environment, **_: Any) -> None:
    if isinstance(environment.runner, MasterRunner):
        return  # runs no users
    recorder = Recorder(environment)
    setattr(environment, _ATTRIBUTE, recorder)
    environment.events.spawning_complete.add_listener(recorder.on_spawning_complete)
    environment.events.test_stop.add_listener(recorder.on_test_stop)
    environment.events.quit.add_listener(recorder.close)


def start_recording(environment: Environment) -> None:
    """Begin a test's recording: called when everything is prepared, before the first user. Raises NotReady."""
    recorder = getattr(environment, _ATTRIBUTE, None)
    if recorder is not None:
        recorder.on_test_start()
