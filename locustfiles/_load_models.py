"""Which load model a test follows: read from the options, agreed between the processes, one object in each of them.

The process that the user started decides at every start of a test, and writes what it decided into the options, which
Locust hands to its workers: they need neither the rate file nor the command line.
"""

# mypy: allow-untyped-calls, allow-untyped-decorators
# (Locust's event hooks are not typed.)

from __future__ import annotations

import argparse
import dataclasses
import logging
import math
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from _arrivals import PROCESSES, Piece, Schedule, read_rate, read_rate_file, read_steps, steady
from _closed_model import Budget, ClosedModel, quota
from _completion import Completion
from _errors import NotReady
from _open_model import OpenModel
from _options import option, seconds, whole_number
from locust import events
from locust.env import Environment
from locust.runners import STATE_RUNNING, STATE_SPAWNING, LocalRunner, MasterRunner, WorkerRunner

MAX_IN_FLIGHT = 500
"""Default of --max-in-flight: the longest stall it bridges is 500 ÷ rate, in seconds."""


STOP_TOLERANCE_S = 0.5
"""A test that is stopped this close to its --run-time is over by time: timers may be early by a turn of the loop."""


class LoadModel(Protocol):
    """What the two models have in common."""

    name: str

    def run(self, user: Any) -> None: ...
    def release(self, user: Any) -> None: ...
    def on_spawned(self) -> None: ...
    def on_time_over(self) -> None: ...
    def on_ending(self) -> None: ...
    def on_stopped(self) -> None: ...
    def second(self, second: int) -> dict[str, int] | None: ...
    def summary(self) -> dict[str, Any]: ...


@dataclasses.dataclass(frozen=True)
class Load:
    """What the options ask for."""

    schedule: Schedule | None
    """None in the closed model."""
    max_in_flight: int
    max_lateness_s: float
    """Infinite where nothing is to be dropped."""
    requests: int | None
    """The budget of the closed model."""

    @property
    def ends_by_itself(self) -> bool:
        """The test is over when its work is done, not only when it is stopped."""
        return self.requests is not None or (self.schedule is not None and self.schedule.length_s < math.inf)

    @property
    def counted_in(self) -> str:
        """What a process' share of the load is a share of."""
        return "requests" if self.requests is not None else "users" if self.schedule is None else "arrivals"


def read_load(environment: Environment) -> Load:
    """Read the options, which the web UI may have changed into text. Raises NotReady where they do not fit together."""
    given = {name: option(environment, name) for name in _OPTIONS}
    given = {name: value for name, value in given.items() if value not in (None, "")}
    try:
        load = Load(
            _schedule(given, option(environment, "seed", 1)),
            whole_number(str(given.get("max_in_flight", MAX_IN_FLIGHT))),
            seconds(str(given["max_lateness"])) if "max_lateness" in given else math.inf,
            whole_number(str(given["requests"])) if "requests" in given else None,
        )
    except (ValueError, argparse.ArgumentTypeError) as error:  # on the command line each is refused earlier
        raise NotReady(f"The options of the load model: {error}.") from None
    _check_together(load, given, environment)
    return load


def read_form(environment: Environment, options: argparse.Namespace) -> None:
    """Would a test with these options, which the web UI asks for, make sense? Raises NotReady where it would not."""
    asked: Any = argparse.Namespace(**vars(environment) | {"parsed_options": options})
    load = read_load(asked)
    runner = environment.runner
    if runner is None:
        return
    if load.schedule is not None:
        _check_enough(load, load.max_in_flight, len(_workers(environment)))
    running = runner.state in (STATE_SPAWNING, STATE_RUNNING)
    if shares_are_fixed(environment) or (running and load.counted_in != "users"):
        raise NotReady("A test is running: stop it first. Only a closed one without a budget can change its users.")


_RATES = ("arrival_rate", "arrival_steps", "arrival_rates")
_OPEN = ("max_in_flight", "max_lateness", "arrival_process")
_OPTIONS = (*_RATES, *_OPEN, "requests")


def _schedule(given: dict[str, Any], seed: int) -> Schedule | None:
    rates = [name for name in _RATES if name in given]
    if len(rates) > 1:
        raise NotReady(f"{_flag(rates[0])} and {_flag(rates[1])} both say when requests arrive: give one of them.")
    if not rates:
        return None
    text = str(given[rates[0]])
    process = given.get("arrival_process", PROCESSES[0])
    if rates[0] == "arrival_rate":
        return Schedule(steady(read_rate(text)), process, seed)
    pieces = read_steps(text) if rates[0] == "arrival_steps" else _read_file(Path(text))
    return Schedule(pieces, process, seed)


def _read_file(path: Path) -> tuple[Piece, ...]:
    try:
        return read_rate_file(path.read_text(encoding="utf-8-sig").splitlines())
    except OSError as error:
        raise NotReady(f"--arrival-rates {path}: cannot be read ({error.strerror}).") from None
    except ValueError as error:
        raise NotReady(f"--arrival-rates {path}: {error}.") from None


def _check_together(load: Load, given: dict[str, Any], environment: Environment) -> None:
    if load.schedule is None:
        lonely = [name for name in _OPEN if given.get(name, PROCESSES[0]) != PROCESSES[0]]
        if lonely:
            raise NotReady(f"{_flag(lonely[0])} belongs to the open model: give a rate too, --arrival-rate for one.")
    elif load.requests is not None:
        raise NotReady("--requests belongs to the closed model. An open one takes --run-time or --arrival-steps.")
    elif option(environment, "think_time", 0.0) > 0:
        raise NotReady("--think-time belongs to the closed model: in the open one the arrival rate says when.")
    elif environment.shape_class is not None:
        raise NotReady("A LoadTestShape changes the number of users; the open model's rate needs --arrival-steps.")
    elif len(environment.user_classes) > 1:  # which of them an arrival is for would be up to who happens to be free
        names = ", ".join(user_class.__name__ for user_class in environment.user_classes)
        raise NotReady(f"The open model takes one workload at a time. Name one of {names} at the command's end.")


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def check_load(environment: Environment) -> None:
    """When the command starts: do the options make sense together? Raises NotReady where they do not."""
    load = read_load(environment)
    users = option(environment, "num_users")
    if load.schedule is not None and users not in (None, load.max_in_flight):
        raise NotReady(
            f"-u {users}: in the open model users are the places for requests in flight. Give --max-in-flight instead."
        )
    if load.schedule is not None:  # only so that Locust shows it: _use_slots() is what counts
        vars(environment.parsed_options).update(num_users=load.max_in_flight, spawn_rate=load.max_in_flight)
    shaped = environment.shape_class is not None  # how many users it asks for is known at the start
    if isinstance(environment.runner, MasterRunner) and option(environment, "headless") and not shaped:
        _check_enough(load, option(environment, "num_users") or 1, option(environment, "expect_workers", 1))


@dataclasses.dataclass
class _State:
    """What this module keeps for an environment."""

    completion: Completion
    model: LoadModel = dataclasses.field(default_factory=ClosedModel)
    started_s: float = math.inf
    """When the process that has Locust's timer was told to start the test; on time.monotonic()."""


_ATTRIBUTE = "stackswarm_load"
_TIME_OVER = "stackswarm_time_over"
_NO_PLAN = {"counted_in": "users"}

log = logging.getLogger(__name__)
locust_log = logging.getLogger("locust.runners")
_PLAN = "stackswarm_plan"


def model_of(environment: Environment) -> LoadModel:
    """The load model of the test that runs in this process."""
    state: _State = getattr(environment, _ATTRIBUTE)
    return state.model


def place_of(environment: Environment) -> tuple[int, int]:
    """This process' number k among the n that run users; k = n for one that came after the start of the test."""
    workers = _plan(environment)["workers"]
    name = _name(environment)
    return (workers.index(name) if name in workers else len(workers)), len(workers)


def begin_load(environment: Environment, unix_s: Any) -> LoadModel:
    """A test starts: agree on the load, and make this process' model. Raises NotReady where the options do not fit."""
    state: _State = getattr(environment, _ATTRIBUTE)
    if not isinstance(environment.runner, WorkerRunner):
        vars(environment.parsed_options)[_PLAN] = _make_plan(environment)
    plan = _plan(environment)
    state.completion.begin(plan["test"], plan["workers"], plan["ends_by_itself"], plan["counted_in"])
    if isinstance(environment.runner, MasterRunner):
        _keep_places(environment.runner, plan)
    else:
        state.model = _make_model(plan, *place_of(environment), state.completion, unix_s)
        if isinstance(state.model, OpenModel):
            state.model.attach(environment.events.request)
    return state.model


def _make_plan(environment: Environment) -> dict[str, Any]:
    """Of plain values only: it travels as msgpack."""
    load = read_load(environment)
    workers = _workers(environment)
    _check_enough(load, environment.runner.target_user_count if environment.runner else 1, len(workers))
    run_time_s = option(environment, "run_time")
    shaped = environment.shape_class is not None and not environment.shape_class.use_common_options
    return {
        "test": uuid.uuid4().hex,
        "workers": workers,
        "run_time_s": math.inf if shaped or not run_time_s else float(run_time_s),
        "ends_by_itself": load.ends_by_itself,
        "counted_in": load.counted_in,
        "requests": load.requests,
        "max_lateness_s": load.max_lateness_s,
        "schedule": load.schedule and dataclasses.asdict(load.schedule),
    }


def _check_enough(load: Load, users: int, processes: int) -> None:
    """A process without a user would never do its part of the load."""
    if users < processes and (load.schedule is not None or load.requests is not None):
        raise NotReady(f"{processes} processes share the load, and {users} users are too few: each needs one.")


def _make_model(plan: dict[str, Any], k: int, n: int, completion: Completion, unix_s: Any) -> LoadModel:
    if plan["requests"] is not None:
        return Budget(quota(plan["requests"], k, n), completion.part_done)
    if plan["schedule"] is None:
        return ClosedModel()
    pieces = tuple(Piece(**piece) for piece in plan["schedule"]["pieces"])
    schedule = dataclasses.replace(Schedule(**plan["schedule"]), pieces=pieces)

    def starts() -> Iterator[float]:
        return schedule.starts(k, n, plan["run_time_s"]) if k < n else iter(())

    done = completion.part_done if plan["ends_by_itself"] else None
    return OpenModel(starts, plan["max_lateness_s"], plan["run_time_s"], done, unix_s, schedule.length_s)


def _plan(environment: Environment) -> dict[str, Any]:
    plan: dict[str, Any] = option(environment, _PLAN)
    return plan


def _name(environment: Environment) -> str:
    return environment.runner.client_id if isinstance(environment.runner, WorkerRunner) else "local"


def _workers(environment: Environment) -> list[str]:
    """The processes that will run users, as Locust chooses them."""
    runner = environment.runner
    if not isinstance(runner, MasterRunner):
        return ["local"]
    clients = (*runner.clients.ready, *runner.clients.running, *runner.clients.spawning)
    return sorted((client.id for client in clients), key=runner.get_worker_index)


def shares_are_fixed(environment: Environment) -> bool:
    """A test runs whose work was divided among its processes when it began: arrivals, or a budget."""
    runner = environment.runner
    running = runner is not None and runner.state in (STATE_SPAWNING, STATE_RUNNING)
    return running and option(environment, _PLAN, _NO_PLAN)["counted_in"] != "users"


def _keep_places(runner: MasterRunner, plan: dict[str, Any]) -> None:
    """Locust gives users to a worker that comes later, and takes them from the others: whoever has no share of the work
    would hold places that the others then lack. The same after a worker was silent for a while."""
    if plan["counted_in"] != "users":
        dispatcher: Any = runner._users_dispatcher
        dispatcher.add_worker = dispatcher.remove_worker = lambda *_, **__: None


def _on_worker_connect(environment: Environment, client_id: str) -> None:
    if shares_are_fixed(environment) and client_id not in _plan(environment)["workers"]:
        log.warning("Worker %s came after the test had begun: it has no share of it, and does nothing.", client_id)


def _use_slots(environment: Environment, runner: LocalRunner | MasterRunner) -> None:
    """In the open model a test starts with all users at once, as many as may be in flight, whatever a form says.

    Their number does not change as long as it runs. Locust's warning of a high spawn rate is for those who chose one.
    """
    original = runner.start
    state: _State = getattr(environment, _ATTRIBUTE)

    def start(user_count: int, spawn_rate: float, *arguments: Any, **named: Any) -> None:
        if shares_are_fixed(environment) and (_plan(environment)["schedule"] or user_count == runner.target_user_count):
            return
        if runner.state not in (STATE_SPAWNING, STATE_RUNNING):
            state.started_s = time.monotonic()
        try:
            load = read_load(environment)
        except NotReady:  # refused at the start of the test, in words
            load = None
        if load is None or load.schedule is None:
            original(user_count, spawn_rate, *arguments, **named)
            return
        locust_log.addFilter(_other_than_spawn_rate)
        try:
            original(load.max_in_flight, load.max_in_flight, *arguments, **named)
        finally:
            locust_log.removeFilter(_other_than_spawn_rate)

    setattr(runner, "start", start)  # noqa: B010 (a method replaced on one object)


def _other_than_spawn_rate(record: logging.LogRecord) -> bool:
    return "spawn rate is very high" not in str(record.msg)


def _on_test_stopping(environment: Environment, state: _State) -> None:
    """Only the process with Locust's timer knows whether that has stopped the test. Workers are told before they are
    stopped: where their start was late they are still in the middle of the schedule."""
    runner, run_time_s = environment.runner, option(environment, "run_time")
    if run_time_s and time.monotonic() - state.started_s > float(run_time_s) - STOP_TOLERANCE_S:
        state.model.on_time_over()
        if isinstance(runner, MasterRunner):
            runner.send_message(_TIME_OVER)
    state.model.on_ending()


@events.init.add_listener
def _attach(environment: Environment, **_: Any) -> None:
    state = _State(Completion(environment))
    setattr(environment, _ATTRIBUTE, state)
    if isinstance(environment.runner, (LocalRunner, MasterRunner)):
        _use_slots(environment, environment.runner)
    environment.events.worker_connect.add_listener(lambda client_id, **_: _on_worker_connect(environment, client_id))
    environment.events.spawning_complete.add_listener(lambda **_: state.model.on_spawned())
    if isinstance(environment.runner, WorkerRunner):
        environment.runner.register_message(_TIME_OVER, lambda **_: state.model.on_time_over())
    environment.events.test_stopping.add_listener(lambda **_: _on_test_stopping(environment, state))
    environment.events.test_stop.add_listener(lambda **_: state.model.on_stopped())
    environment.events.test_stop.add_listener(lambda **_: state.completion.end())
