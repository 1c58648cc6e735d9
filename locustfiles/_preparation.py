"""What happens before load: check the inputs, prepare what users need, begin the recording; refuse with one message.

A workload hands before_load() two functions. `check` runs once a test, on the process the user started: is the server
there, are the credentials right? `prepare` runs in each process that runs users: make tokens, read files. Both raise
NotReady. With a headless start they are over before --run-time begins to count. What a preparation has made and must
not stay is removed after the load, by a function that it hands clear_later().
"""

# mypy: allow-untyped-calls, allow-untyped-decorators
# (Locust's event hooks are not typed.)

from __future__ import annotations

import dataclasses
import logging
import math
import sys
from collections.abc import Callable
from typing import Any, NoReturn

import _web_form  # noqa: F401 (its form starts the load)
import gevent
from _errors import HostUnknown, NotReady
from _load_models import begin_load, check_load
from _locust_repairs import refresh_loop_clock
from _locust_workers import wait_for_child_processes
from _options import option
from _response_times import check_folder, clock_of, start_recording
from locust import User, events
from locust.env import Environment
from locust.runners import MasterRunner, Runner, WorkerRunner

EXIT_CODE = 2
INTERRUPTED = 130
WORKERS_TIMEOUT_S = 120.0
"""Longest time a headless master waits for its workers' preparation."""

Step = Callable[[Environment], None]

log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Preparation:
    """What one workload needs before load."""

    user_class: str
    check: Step
    prepare: Step
    options: tuple[str, ...]
    """Options that change what is prepared: another value, as the web UI may give, means to prepare anew."""


_preparations: list[Preparation] = []


def before_load(user_class: type[User], check: Step, prepare: Step, options: tuple[str, ...] = ()) -> None:
    """Register a workload's steps; they run where `user_class` is among the users of the test."""
    _preparations.append(Preparation(user_class.__name__, check, prepare, options))


def clear_later(environment: Environment, step: Callable[[], None]) -> None:
    """Called by a preparation: `step` runs after the load, or as soon as there will be none. It raises nothing."""
    gate: Gate = getattr(environment, _ATTRIBUTE)
    gate.to_clear.append(step)


class Gate:
    """Keeps load back until everything is ready; one for each Locust process."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._prepared_for: object = None
        self._checked_for: object = None
        self._answers: set[str] = set()
        self.to_clear: list[Callable[[], None]] = []
        """What removes what was prepared, latest last."""
        self._refused = False

    # At the start of the process: in headless mode everything is done here, because --run-time counts from then on.

    def on_init(self) -> None:
        """Check and prepare, as far as the options are known yet."""
        runner = self._environment.runner
        try:
            if isinstance(runner, WorkerRunner):
                self._init_worker(runner)
            else:
                self._init_first_process(runner)
        except KeyboardInterrupt:
            self._exit("interrupted before the load began", INTERRUPTED)
        refresh_loop_clock()

    def _init_first_process(self, runner: Runner | None) -> None:
        if isinstance(runner, MasterRunner):
            runner.register_message(_PREPARED, self._on_prepared)
            runner.register_message(_NOT_READY, self._on_worker_refusal)
        try:
            check_load(self._environment)
            check_folder(self._environment)
            self._ready()
        except HostUnknown as error:
            if self._starts_by_itself():
                self._exit(str(error))
        except NotReady as error:
            self._exit(str(error))
        if isinstance(runner, MasterRunner) and self._starts_by_itself():
            self._wait_for_workers(runner)

    def _wait_for_workers(self, runner: MasterRunner) -> None:
        """Locust itself would wait for ever, for one that has died too."""
        expected = option(self._environment, "expect_workers", 1)
        limit_s = option(self._environment, "expect_workers_max_wait") or WORKERS_TIMEOUT_S
        vars(self._environment.parsed_options)["expect_workers_max_wait"] = math.ceil(limit_s)

        def prepared() -> int:
            return len({client.id for client in runner.clients.ready} & self._answers)

        self._wait(lambda: prepared() >= expected or self._refused, limit_s)
        if prepared() < expected and not self._refused:
            self._exit(_TOO_FEW.format(prepared(), expected, limit_s))

    def _starts_by_itself(self) -> bool:
        return bool(option(self._environment, "headless") or option(self._environment, "autostart"))

    def _init_worker(self, runner: WorkerRunner) -> None:
        try:
            self._ready()
        except NotReady as error:
            # No fault yet: a worker learns the options of the test with its start. It is tried again then.
            log.debug("Not prepared before the start: %s", error)
        runner.send_message(_PREPARED, {"worker": runner.client_id})

    def _on_prepared(self, msg: Any, **_: Any) -> None:
        self._answers.add(msg.node_id)

    def _on_worker_refusal(self, msg: Any, **_: Any) -> None:
        gevent.spawn(self._stop, msg.data["message"])

    # At each start of a test.

    def on_test_start(self) -> None:
        """Do what could not be done at the start of the process, then begin the load and its recording."""
        try:
            self._ready()
            begin_load(self._environment, clock_of(self._environment))
            start_recording(self._environment)
        except NotReady as error:
            self._stop(str(error))
            # Ends this start quietly in each of Locust's runners, which log an exception as a bug of the locustfile.
            raise gevent.GreenletExit from None

    def on_test_stop(self) -> None:
        """Tokens grow old and options may change: the next test is prepared anew."""
        self._prepared_for = self._checked_for = None
        self.clear()

    def clear(self) -> None:
        """Remove what was prepared; harmless where nothing is left."""
        while self.to_clear:
            self.to_clear.pop()()

    def _ready(self) -> None:
        wanted = [p for p in _preparations if p.user_class in self._environment.user_classes_by_name]
        runner = self._environment.runner
        if not isinstance(runner, WorkerRunner) and self._checked_for != self._state(wanted):
            for preparation in wanted:
                preparation.check(self._environment)
            self._checked_for = self._state(wanted)  # only now: a step may have found the host
        if not isinstance(runner, MasterRunner) and self._prepared_for != self._state(wanted):
            self._prepare(wanted)
            self._prepared_for = self._state(wanted)

    def _prepare(self, wanted: list[Preparation]) -> None:
        self.clear()
        try:
            for preparation in wanted:
                preparation.prepare(self._environment)
        except BaseException:
            self.clear()
            raise

    def _state(self, wanted: list[Preparation]) -> object:
        names = sorted({name for preparation in wanted for name in preparation.options})
        return self._environment.host, [option(self._environment, name) for name in names]

    # Refusing.

    def _exit(self, message: str, code: int = EXIT_CODE) -> NoReturn:
        """End the process before anything has begun."""
        sys.stderr.write(f"locust: error: {message}\n")
        runner = self._environment.runner
        if isinstance(runner, MasterRunner):
            # Locust leaves its --processes children alive here; they listen only once they have found their master.
            expected = option(self._environment, "processes", 0) or 0
            self._wait(lambda: len(runner.clients) >= expected, 15.0)
            runner.quit()
            wait_for_child_processes()
        raise SystemExit(code)

    def _stop(self, message: str) -> None:
        """End the test that is just beginning: headless the process too, with the web UI the test alone."""
        runner = self._environment.runner
        if self._refused or runner is None:
            return
        if isinstance(runner, WorkerRunner):
            self._refused = True
            runner.send_message(_NOT_READY, {"message": message})
            self._environment.process_exit_code = EXIT_CODE
            gevent.spawn(self._leave)
            return
        log.error(message)
        if option(self._environment, "headless"):
            self._refused = True
            self._environment.process_exit_code = EXIT_CODE
            gevent.spawn(runner.quit)
        else:
            gevent.spawn(runner.stop)

    def _leave(self) -> None:
        gevent.sleep(0.5)
        if self._environment.runner is not None:
            self._environment.runner.quit()

    def _wait(self, condition: Callable[[], bool], timeout_s: float) -> None:
        with gevent.Timeout(timeout_s, False):
            while not condition():
                gevent.sleep(0.05)


_TOO_FEW = "{} of {} workers were there and prepared after {:g} s. --expect-workers-max-wait says how long to wait."
_ATTRIBUTE = "stackswarm_gate"
_PREPARED = "stackswarm_prepared"
_NOT_READY = "stackswarm_not_ready"


@events.init.add_listener
def _attach(environment: Environment, **_: Any) -> None:
    gate = Gate(environment)
    setattr(environment, _ATTRIBUTE, gate)
    environment.events.test_start.add_listener(lambda **_: gate.on_test_start())
    environment.events.test_stop.add_listener(lambda **_: gate.on_test_stop())
    environment.events.quitting.add_listener(lambda **_: gate.clear())  # no test may have begun
    gate.on_init()
