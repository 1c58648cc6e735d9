"""What becomes of events that are due, and of those that cannot be done."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from analysis.record import ProcessRecord
from harness.events import EventError, Events
from harness.experiment import Experiment
from harness.server import Running, Server, running
from harness.validate import read

Make = Callable[[Path], Server]
EXPERIMENT = Path(__file__).resolve().parents[2] / "configs/experiments/nginx-replica-loss.yml"


def experiment(*events: tuple[float, str]) -> Experiment:
    given = ", ".join(f"{{at: {at}s, action: {action}, process: backend-1}}" for at, action in events)
    file = read(EXPERIMENT, [f"events=[{given}]", "timing={warm_up: 0s, steady_state: 60s}"])
    return file.at({"server.parameters.next_upstream": True})


@pytest.fixture
def began(tmp_path: Path) -> Path:
    """Where Locust's one process says that all its users were there two seconds ago."""
    now = time.time() - 2
    about = ProcessRecord("local", 1, "closed", 0.005, now, now, None, {})
    (tmp_path / "times").mkdir()
    (tmp_path / "times/local.json").write_text(json.dumps(dataclasses.asdict(about)), encoding="utf-8")
    return tmp_path / "times"


def named(up: Running) -> Running:
    """The little server under the name that the events have."""
    (process,) = up.server.processes
    renamed = dataclasses.replace(up.server, processes=[dataclasses.replace(process, name="backend-1")])
    return dataclasses.replace(up, server=renamed, popens={"backend-1": up.popens["answering"]})


def test_what_is_due_is_done_once(tmp_path: Path, little_server: Make, began: Path) -> None:
    with running(little_server, tmp_path) as started:
        up = named(started)
        events = Events(experiment((0.5, "kill")), up, began)
        events.check()
        events.check()  # the dead process is expected
        (done,) = events.done
        assert (done["action"], done["error"], up.popens["backend-1"].poll()) == ("kill", None, -9)
        events.close()


def test_nothing_is_done_before_the_load_has_begun(tmp_path: Path, little_server: Make) -> None:
    with running(little_server, tmp_path) as started:
        events = Events(experiment((0, "kill")), named(started), tmp_path / "nowhere")
        events.check()
        assert events.done == []
        with pytest.raises(EventError, match=r"kill backend-1 at 0 s .*: the load ended before it was due"):
            events.close()
        assert events.done[0]["unix_s"] is None
        assert events.done[0]["error"] == "the load ended before it was due"


def test_a_process_that_had_ended_by_itself_fails_the_run(tmp_path: Path, little_server: Make, began: Path) -> None:
    with running(little_server, tmp_path) as started:
        up = named(started)
        up.popens["backend-1"].kill()
        up.popens["backend-1"].wait(5)
        events = Events(experiment((0.5, "kill")), up, began)
        with pytest.raises(EventError, match="it had ended with status -9 before"):
            events.check()
        assert events.done[0]["unix_s"] is None
