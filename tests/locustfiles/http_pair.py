"""A server whose behaviour is known, and the load's client of it."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator

from _http_client import HttpClient, Request, Site

from tests.known_server import Answer, KnownServer
from tests.known_server import Request as Received

PATIENT_S = 20.0
OK = Answer(body=b"ok")


@dataclasses.dataclass
class Pair:
    """A server, and a client of its."""

    server: KnownServer
    client: HttpClient

    def ask(self, method: str = "GET", body: bytes | None = None, **headers: str) -> tuple[int, bytes, str | None]:
        response = self.client.exchange(self.request(method, body, **headers))
        return response.status, response.body, response.failure

    def request(self, method: str = "GET", body: bytes | None = None, **headers: str) -> Request:
        return self.client.site.request(method, "/x", headers, body)

    @property
    def connections(self) -> list[int]:
        """One number for each request that reached the server, also where the client has given it up."""
        deadline = time.monotonic() + PATIENT_S
        while len(self.server.logged()) < self.server.requests and time.monotonic() < deadline:
            time.sleep(0.01)
        return [line.connection for line in self.server.logged()]


@contextlib.contextmanager
def pair(
    answer: Callable[[Received], Answer] | Answer = OK,
    connect_timeout_s: float = PATIENT_S,
    read_timeout_s: float = PATIENT_S,
    idle_timeout_s: float | None = None,
    keep_alive: bool = True,
) -> Iterator[Pair]:
    decide = (lambda _: answer) if isinstance(answer, Answer) else answer
    with KnownServer(decide, idle_timeout_s) as server:
        client = HttpClient(Site.of(server.url, keep_alive=keep_alive), connect_timeout_s, read_timeout_s)
        try:
            yield Pair(server, client)
        finally:
            client.close()
