"""A real little server, and a scratch folder outside the repository's own."""

import contextlib
import os
import resource
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import pytest

from analysis.record import PlannedRun, RunRecord
from harness import server
from harness.server import Process, Running, Server, Target, free_port
from tests.known_server import Answer, KnownServer, Request

ANSWERING = """
import http.server, os, signal, subprocess, sys
port, children = int(sys.argv[1]), int(sys.argv[2])
if "ignore" in sys.argv: signal.signal(signal.SIGTERM, signal.SIG_IGN)
held = [subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) for _ in range(children)]
print("serving", flush=True)
http.server.HTTPServer(("127.0.0.1", port), http.server.SimpleHTTPRequestHandler).serve_forever()
"""


class Theirs(Protocol):
    """Somebody else's server, as a module of tests describes it by its fixture `theirs`."""

    def answer(self, request: Request) -> Answer: ...


@pytest.fixture(name="server")
def running_server(theirs: Theirs) -> Iterator[KnownServer]:
    """Answers as `theirs` says, on a free port."""
    with KnownServer(theirs.answer) as running:
        yield running


class Quiet:
    """A watcher of the runner's that is told everything and says nothing."""

    def says(self, message: str) -> None:
        pass

    def server_ready(self, up: Running) -> None:
        pass

    def run_starts(self, run: PlannedRun) -> None:
        pass

    def run_ends(self, run: PlannedRun, outcome: RunRecord) -> None:
        pass


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Scratch folders of a test lie in its own temporary folder."""
    monkeypatch.setattr(server, "SCRATCH", tmp_path / "scratch")
    yield tmp_path / "scratch"


@contextlib.contextmanager
def no_room_beyond(size_bytes: int) -> Iterator[None]:
    """Within it, this process cannot write further into any file, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def process(place: Path, *argv: str, name: str = "answering") -> Process:
    return Process(name, [sys.executable, "-c", *argv], dict(os.environ), place / f"{name}.log")


@pytest.fixture
def little_server() -> Callable[..., Server]:
    """make(place, …) → a Server that listens on a free port, with children of its own."""

    def make(place: Path, *flags: str, children: int = 0, port: int | None = None) -> Server:
        chosen = port or free_port()
        argv = (ANSWERING, str(chosen), str(children), *flags)
        return Server(
            target=Target(f"http://127.0.0.1:{chosen}"),
            processes=[process(place, *argv)],
            is_ready=lambda: listens(chosen),
            rendered={"little.conf": "port = <port>\npassword = planted-secret\n"},
            version="1.0",
            secrets=frozenset({"planted-secret"}),
        )

    return make
