"""The generator benchmark: what it reads from the tools, what it prints, and one turn of each of Locust's users."""

from __future__ import annotations

import pytest

from benchmarks.generator import BenchmarkError, Bounds, Turn, locust_turn, parse_count, table, turns, verdict
from tests.known_server import Answer, KnownServer

AB = "Complete requests:      10000\nFailed requests:        0\nKeep-Alive requests:    9990\n"
HEY = "Status code distribution:\n  [200]\t10000 responses\n"
WRK = "  50301 requests in 1.00s, 58.30MB read\n"

COUNTS = {"ab": (AB, 10000), "hey": (HEY, 10000), "wrk": (WRK, 50301)}


@pytest.mark.parametrize("tool", COUNTS)
def test_counts_of_the_tools(tool: str) -> None:
    output, count = COUNTS[tool]
    assert parse_count(tool, output) == count


@pytest.mark.parametrize(
    ("tool", "output"),
    [
        ("ab", AB.replace("        0", "       12")),
        ("ab", AB + "Non-2xx responses:      7\n"),
        ("ab", "apr_socket_recv: Connection refused (111)\n"),
        ("hey", HEY + "  [404]\t3 responses\n"),
        ("hey", HEY + "Error distribution:\n  [1]\tGet: EOF\n"),
        ("wrk", WRK + "  Socket errors: connect 0, read 1, write 0, timeout 0\n"),
        ("wrk", WRK + "  Non-2xx or 3xx responses: 5\n"),
        ("wrk", "  0 requests in 1.00s\n"),
    ],
)
def test_failed_requests_are_no_measurement(tool: str, output: str) -> None:
    with pytest.raises(BenchmarkError):
        parse_count(tool, output)


def found(generator: str, costs_us: list[float]) -> list[Turn]:
    return [Turn(generator, 20, 1000, cost / 1000, 0.5) for cost in costs_us]


def test_the_table_and_the_verdict() -> None:
    all_found = found("FastHttpUser", [300, 100, 9999.9]) + found("stackswarm", [100, 90, 110]) + found("wrk", [10])
    lines = table(all_found, 20)
    assert max(len(line) for line in lines) <= 100
    assert [line.split()[0] for line in lines[2:]] == ["wrk", "stackswarm", "FastHttpUser"]
    assert lines[3].split() == ["stackswarm", "100.0", "90.0–110.0", "0.33", "10.00", "2000"]
    assert verdict(all_found, 20).endswith("0.33 of FastHttpUser's CPU, met")
    assert verdict(found("FastHttpUser", [299]) + found("stackswarm", [100]), 20).endswith("NOT MET")
    assert verdict(all_found, 100) == "100 users: not measured"


def test_every_round_has_every_turn() -> None:
    order = turns(["a", "b"], [1, 2], rounds=5, seed=1)
    cells = [("a", 1), ("a", 2), ("b", 1), ("b", 2)]
    assert [sorted(order[n : n + 4]) for n in range(0, 20, 4)] == [cells] * 5
    assert len({tuple(order[n : n + 4]) for n in range(0, 20, 4)}) > 1
    assert order == turns(["a", "b"], [1, 2], rounds=5, seed=1)


@pytest.mark.parametrize("generator", ["stackswarm", "FastHttpUser", "HttpUser"])
def test_a_turn(generator: str) -> None:
    bounds = Bounds(seconds=1, requests=50, warm_up_s=0.1)
    with KnownServer(lambda request: Answer(body=b"x")) as server:
        turn = locust_turn(generator, 2, server.url + "/1k", bounds)
        assert {line.path for line in server.log} == {"/1k"}
        assert len(server.log) >= turn.requests > 0
    assert turn.cpu_us > 0


def test_a_turn_with_failed_requests() -> None:
    bounds = Bounds(seconds=1, requests=50, warm_up_s=0.1)
    with KnownServer(lambda request: Answer(503, after_s=0.01)) as server, pytest.raises(BenchmarkError):
        locust_turn("stackswarm", 2, server.url + "/1k", bounds)
