"""nginx as an ingress, really started: whom it answers, what its logs are counted as, and what a dead replica does."""

from __future__ import annotations

import contextlib
import csv
import http.client
import os
import signal
import socket
import ssl
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness import configuration, install, server
from harness.server import Running, ServerError, running
from harness.systems import nginx

INGRESS = configuration.read("nginx", "ingress")
Parameters = dict[str, configuration.Value]


@contextlib.contextmanager
def started(folder: Path, **given: configuration.Value) -> Iterator[Running]:
    parameters = INGRESS.complete(given)
    prepared = nginx.prepare(INGRESS, parameters, {}, install._print_line)
    with running(lambda place: nginx.server(prepared, place, INGRESS, parameters), folder) as up:
        yield up


def connection(up: Running) -> http.client.HTTPConnection:
    scheme, address = up.target.url.split("://")
    if scheme == "http":
        return http.client.HTTPConnection(address, timeout=10)
    context = ssl.create_default_context(cafile=up.target.options["ca-file"])
    context.check_hostname = False  # http.client would compare the address
    return http.client.HTTPSConnection(address, timeout=10, context=context)


def ask(client: http.client.HTTPConnection, host: str = nginx.HOST) -> tuple[int, int]:
    """(status, bytes of body)."""
    client.request("GET", "/some/path", headers={"Host": host})
    answer = client.getresponse()
    return answer.status, len(answer.read())


def counted(up: Running, folder: Path) -> Counter[tuple[str, str, str]]:
    """(part, upstream, status) to answers."""
    assert up.server.access_logs is not None
    up.server.access_logs.write_counts(folder / "counts.csv", dict.fromkeys(up.server.access_logs.paths, 0))
    counts: Counter[tuple[str, str, str]] = Counter()
    with (folder / "counts.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            counts[row["part"], row["upstream"], row["status"]] += int(row["count"])
    return counts


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"replicas": 2, "upstream_keepalive": 0},
        {"replicas": 4, "backend": "slow", "service_time_ms": 1, "upstream_keepalive": 320, "workers": 2, "tls": True,
         "controller_like": True, "next_upstream": False},
    ],
)  # fmt: skip
def test_it_answers_for_its_host_and_every_answer_is_counted(tmp_path: Path, parameters: Parameters) -> None:
    replicas = int(parameters.get("replicas", 1))
    with started(tmp_path, **parameters) as up:
        client = connection(up)
        assert {ask(client) for _ in range(40)} == {(200, len(nginx.BODY))}
        assert ask(client, "other.example.com")[0] == 404
        found = counted(up, tmp_path)
    balancer = {key: count for key, count in found.items() if key[0] == "balancer"}
    backends = [f"backend-{n}" for n in range(1, replicas + 1)]
    assert balancer.pop(("balancer", "", "404")) == 1
    assert sum(balancer.values()) == 40
    assert {upstream for _, upstream, _ in balancer} == set(backends)
    assert {name: found[name, "", "200"] for name in backends} == {
        name: balancer["balancer", name, "200"] for name in backends
    }


def test_a_connection_is_not_closed_for_its_number_of_requests(tmp_path: Path) -> None:
    with started(tmp_path) as up:
        client = connection(up)
        client.connect()
        own = client.sock.getsockname()
        for _ in range(1100):
            ask(client)
        assert client.sock.getsockname() == own


@pytest.mark.parametrize(("next_upstream", "statuses"), [(True, {200}), (False, {200, 502})])
def test_what_a_dead_replica_does(tmp_path: Path, next_upstream: bool, statuses: set[int]) -> None:
    with started(tmp_path, replicas=2, next_upstream=next_upstream, upstream_keepalive=0) as up:
        client = connection(up)
        os.killpg(up.popens["backend-1"].pid, signal.SIGKILL)
        up.popens["backend-1"].wait(5)
        with pytest.raises(ServerError, match="backend-1 ended with status"):
            up.check()
        up.gone.add("backend-1")
        up.check()
        assert {ask(client)[0] for _ in range(20)} == statuses
        found = counted(up, tmp_path)
    assert found["balancer", "backend-2", "200"] == (20 if next_upstream else 10)
    assert found["balancer", "", "502"] == (0 if next_upstream else 10)


def test_ports_in_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        monkeypatch.setattr(server, "START_ATTEMPTS", 1)  # nginx itself tries for seconds
        monkeypatch.setattr(nginx, "_ports", lambda count: [taken.getsockname()[1] + n for n in range(count)])
        with (
            pytest.raises(ServerError, match="port chosen for backend-1 was in use by another program"),
            started(tmp_path),
        ):
            pass


def test_more_requests_at_a_time_than_files_or_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    parameters = INGRESS.complete({})
    monkeypatch.setattr(nginx, "_hard_limit", lambda: 1024)
    nginx.check_limits(parameters, 400)
    with pytest.raises(ServerError, match=r"1000 requests at a time take up to 2096 open files .* is 1024\. Raise it"):
        nginx.check_limits(parameters, 1000)
    monkeypatch.setattr(nginx, "_hard_limit", lambda: 10**6)
    with pytest.raises(ServerError, match="worker_connections is 8192"):
        nginx.check_limits(parameters, 4096)
