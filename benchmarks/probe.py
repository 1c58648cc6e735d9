"""A locustfile that measures nothing but itself: requests of known length, without a network, with raw timestamps.

For benchmarks/accuracy.py, which hands over in the environment: PROBE_FILE to write to, PROBE_TIMES_MS, the medians of
the times that requests take in turn (empty: none at all), and PROBE_BARE_S, for how long a bare timer loop runs
afterwards.
"""

# mypy: allow-untyped-calls, allow-untyped-decorators

from __future__ import annotations

import itertools
import json
import math
import os
import random
import time
from pathlib import Path
from typing import Any

import _preparation  # noqa: F401 (registers what every workload has)
import gevent
from _load_models import model_of
from _load_user import LoadUser
from locust import events
from locust.env import Environment

TIMES_MS = [float(text) for text in os.environ.get("PROBE_TIMES_MS", "").split(",") if text]
BARE_RATE = 1000
SPIN_S = 0.0015
"""gevent's timer is up to 1 ms late; the rest of a request's time is spent looking at the clock."""

raw: list[list[Any]] = []
"""Of each request, in the order they were started: name, start and end in seconds of time.monotonic()."""
turns = itertools.cycle(TIMES_MS or [0.0])
draw = random.Random(1)


class Probe(LoadUser):
    """Waits as long as a lognormal draw around the next median says."""

    def make_request(self) -> None:
        """One request."""
        median_ms = next(turns)
        start_unix_s, start_s = time.time(), time.monotonic()
        row: list[Any] = [f"{median_ms:g}", start_s, start_s]
        raw.append(row)
        if median_ms:
            wait_until(start_s + draw.lognormvariate(math.log(median_ms / 1000), 0.2))
        row[2] = time.monotonic()
        self.environment.events.request.fire(
            request_type="PROBE",
            name=row[0],
            response_time=(row[2] - start_s) * 1000,
            response_length=0,
            exception=None,
            context={},
            start_time=start_unix_s,
        )


def wait_until(moment_s: float) -> None:
    """Exactly, and without keeping others from running for longer than SPIN_S."""
    left_s = moment_s - time.monotonic() - SPIN_S
    if left_s > 0:
        gevent.sleep(left_s)
    while time.monotonic() < moment_s:
        pass


def bare_loop(seconds: float) -> list[float]:
    """How late gevent's timer is in a loop that does nothing else, in seconds."""
    late, begin_s = [], time.monotonic() + 0.1
    for number in range(int(seconds * BARE_RATE)):
        due_s = begin_s + number / BARE_RATE
        gevent.sleep(max(0.0, due_s - time.monotonic()))
        late.append(time.monotonic() - due_s)
    return late


@events.init.add_listener
def _attach(environment: Environment, **_: Any) -> None:
    environment.events.test_stop.add_listener(lambda **_: dump(environment))


def dump(environment: Environment) -> None:
    """Write what was seen."""
    origin_s = getattr(model_of(environment), "_origin_s", None)  # the benchmark's own look behind the curtain
    bare = bare_loop(float(os.environ.get("PROBE_BARE_S", "0")))
    Path(os.environ["PROBE_FILE"]).write_text(json.dumps({"origin_s": origin_s, "raw": raw, "bare": bare}))
