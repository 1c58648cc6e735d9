"""The three kinds of Locust user that generator.py compares, and how a process measures itself.

Measured inside the process, after all users have started and warmed up: imports and connecting are not what a request
costs. `STACKSWARM_BENCHMARK` is a JSON object: the file to write, warm_up_s, seconds, requests.
"""

# mypy: allow-untyped-calls, allow-untyped-decorators
# (Locust's event hooks are not typed.)

from __future__ import annotations

import json
import os
import resource
import time
from pathlib import Path
from typing import Any

import gevent
from _http import HttpLoadUser
from _http_client import Request
from _http_parser import Response
from locust import FastHttpUser, HttpUser, constant, events, task
from locust.env import Environment

PATH = "/1k"
_TURN_S = 0.05


class Lean(HttpLoadUser):
    """Stackswarm's own client, as the workloads use it: with think time from the options, and a judge."""

    request: Request

    def on_start(self) -> None:
        """Make the request."""
        self.request = self.client.site.request("GET", PATH, {"User-Agent": "stackswarm-benchmark"})

    @task
    def get(self) -> None:
        """One request."""
        self.ask(self.request, PATH, judge)


def judge(response: Response) -> str | None:
    """What a workload does at the least."""
    return None if response.status == 200 else f"status {response.status}"


class Fast(FastHttpUser):
    """Locust's faster client, as its documentation shows it."""

    wait_time = constant(0)

    @task
    def get(self) -> None:
        """One request."""
        self.client.get(PATH)


class Plain(HttpUser):
    """Locust's own client on requests, as its documentation shows it."""

    wait_time = constant(0)

    @task
    def get(self) -> None:
        """One request."""
        self.client.get(PATH)


def cpu_s() -> float:
    """CPU time that this process has taken, user and system."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def measure(environment: Environment, wanted: dict[str, Any]) -> None:
    """Wait for the warm-up, measure for some seconds or requests, write it, and end Locust."""
    gevent.sleep(wanted["warm_up_s"])
    total = environment.stats.total
    cpu, count, failures, began = cpu_s(), total.num_requests, total.num_failures, time.perf_counter()
    while time.perf_counter() - began < wanted["seconds"] and total.num_requests - count < wanted["requests"]:
        gevent.sleep(_TURN_S)
    found = {
        "cpu_s": cpu_s() - cpu,
        "requests": total.num_requests - count,
        "failures": total.num_failures - failures,
        "seconds": time.perf_counter() - began,
    }
    Path(wanted["file"]).write_text(json.dumps(found), encoding="utf-8")
    assert environment.runner is not None
    environment.runner.quit()


@events.spawning_complete.add_listener
def _begin(**_: Any) -> None:
    gevent.spawn(measure, _environments[-1], json.loads(os.environ["STACKSWARM_BENCHMARK"]))


@events.init.add_listener
def _remember(environment: Environment, **_: Any) -> None:
    _environments.append(environment)


_environments: list[Environment] = []
