"""What Locust, and whoever listens to it, gets to know of a request."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.known_server import Answer, KnownServer, Request

from .conftest import Locust, Run

SECRET = "planted-s3cret-91c0"

PROBE = f"""
import json
import _preparation
from _http import HttpLoadUser
from locust import events, task

class Probe(HttpLoadUser):
    read_timeout_s = 0.5
    number = 0

    def context(self):
        return {{"user": "probe"}}

    @task
    def ask_one(self):
        if self.number < 6:
            self.number += 1
            headers = {{"X-Auth-Token": "{SECRET}"}}
            request = self.client.site.request("POST", f"/{{self.number}}", headers, b"{SECRET}")
            judged = []
            try:
                self.ask(request, "/name", lambda r: judged.append(r) or judge(r), {{"intended_start": self.number}})
            finally:
                open("judged", "a").write(f"{{len(judged)}}\\n")

def judge(response):
    if response.body == b"broken":
        raise KeyError("{SECRET}")
    return None if response.status == 200 else f"{{response.status}} not wanted"

@events.request.add_listener
def _(**event):
    event["exception"] = event["exception"] and [type(event["exception"]).__name__, str(event["exception"])]
    open("events", "a").write(json.dumps(event) + "\\n")
"""

ANSWERS = {
    "/base/1": Answer(body=b"12345"),
    "/base/2": Answer(503, {"Retry-After": "1"}),
    "/base/3": Answer(drop=True),
    "/base/4": Answer(after_s=1.0),
    "/base/5": Answer(body=b"broken"),
    "/base/6": Answer(script=[b"HTTP/1.1 200 " + SECRET.encode() + b"\r\nX\r\n\r\n"]),
}
OUTCOMES = [
    None,
    "503 not wanted",
    "connection closed without a response",
    "timed out",
    "could not be judged: KeyError",
    "not a valid HTTP response",
]


def run_probe(locust: Locust, url: str) -> Run:
    path = locust.folder / "probe.py"
    path.write_text(PROBE)
    return locust.run(path, "-u", "1", "-t", "3s", "-H", url)


def answer(request: Request) -> Answer:
    return ANSWERS[request.path]


def test_one_event_for_each_request(locust: Locust) -> None:
    with KnownServer(answer) as server:
        run = run_probe(locust, server.url + "/base/")
        paths = [line.path for line in server.log]
    events: list[dict[str, Any]] = [json.loads(line) for line in (locust.folder / "events").read_text().splitlines()]
    assert sorted(paths) == list(ANSWERS)  # the late one is logged late
    assert [event["url"] for event in events] == [server.url + path for path in ANSWERS]
    assert [event["exception"] for event in events] == [o and ["CatchResponseError", o] for o in OUTCOMES]
    assert [event["context"] for event in events] == [{"user": "probe", "intended_start": n} for n in range(1, 7)]
    assert [event["response_length"] for event in events] == [5, 0, 0, 0, 6, 0]
    assert {(event["request_type"], event["name"]) for event in events} == {("POST", "/name")}
    assert events[3]["response_time"] == pytest.approx(500, abs=400)
    assert all(event["response_time"] > 0 and event["start_time"] > 1e9 for event in events)
    assert (locust.folder / "judged").read_text().split() == ["1", "1", "0", "0", "1", "0"]
    assert run.csv_counts == (6, 5)
    assert {outcome: n for (_, outcome), n in run.recorded.items()} == dict.fromkeys(["success", *OUTCOMES[1:]], 1)


def test_no_secret_reaches_an_event_or_a_file(locust: Locust) -> None:
    with KnownServer(answer) as server:
        run_probe(locust, server.url + "/base")
    for name in ("events", "locust_stats.csv", "locust_failures.csv", "response_times/local.csv"):
        assert SECRET not in (locust.folder / name).read_text()
