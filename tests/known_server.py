"""An HTTP server whose behaviour is known: what it answers, after how long, and what it logged.

For tests of anything that measures. It runs in threads of the test's own process::

    with KnownServer(lambda request: Answer(after_s=0.05)) as server:
        ...
    assert len(server.log) == 100
"""

from __future__ import annotations

import contextlib
import dataclasses
import http.server
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Literal


@dataclasses.dataclass(frozen=True)
class Request:
    """A request as it arrived. Header names are in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    number: int
    """From 0, in order of arrival."""


@dataclasses.dataclass(frozen=True)
class Answer:
    """What the server does with one request."""

    status: int = 200
    headers: Mapping[str, str] = dataclasses.field(default_factory=dict)
    body: bytes = b""
    after_s: float = 0.0
    """Service time: how long the answer is held back."""
    drop: bool = False
    """Close the connection instead of answering."""
    missing_bytes: int = 0
    """Announce that many bytes more than are sent, then close."""
    script: Sequence[bytes | float] = ()
    """Instead of all the above: bytes as they go over the wire, with pauses in seconds between them."""
    script_end: Literal["keep", "close", "reset"] = "keep"
    """What happens to the connection after a script."""


@dataclasses.dataclass(frozen=True)
class Logged:
    """One line of the request log, written when the answer has been handed to the kernel, or was dropped."""

    time_unix_s: float
    method: str
    path: str
    user_agent: str
    status: int
    """0 where the connection was dropped."""
    connection: int


class KnownServer:
    """Serves on a free port of 127.0.0.1 while the context lasts, a thread for each connection."""

    def __init__(
        self,
        answer: Callable[[Request], Answer],
        idle_timeout_s: float | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """`idle_timeout_s`: connections that are idle for longer are closed by the server."""
        self._tls = tls
        self._answer = answer
        self._idle_timeout_s = idle_timeout_s
        self._lock = threading.Lock()
        self.requests = 0
        self._connections = 0
        self.log: list[Logged] = []

    def __enter__(self) -> KnownServer:
        self._server = _Server(("127.0.0.1", 0), _handler(self, self._idle_timeout_s))
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        if self._tls is not None:
            self._server.socket = self._tls.wrap_socket(self._server.socket, server_side=True)
            self.url = self.url.replace("http:", "https:")
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)

    def logged(self, user_agent: str = "") -> list[Logged]:
        """Lines of the log whose user agent contains `user_agent`."""
        with self._lock:
            return [line for line in self.log if user_agent in line.user_agent]

    def new_connection(self) -> int:
        """Number of a connection that has just been opened."""
        with self._lock:
            self._connections += 1
            return self._connections

    def handle(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Answer:
        """Decide on an answer, and wait for as long as it says."""
        with self._lock:
            number = self.requests
            self.requests += 1
        answer = self._answer(Request(method, path, headers, body, number))
        time.sleep(answer.after_s)
        return answer

    def note(self, line: Logged) -> None:
        """Add a line to the log."""
        with self._lock:
            self.log.append(line)


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 1024

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that goes away is no error of the server's."""


def _handler(known: KnownServer, idle_timeout_s: float | None) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True
        timeout = idle_timeout_s

        def setup(self) -> None:
            super().setup()
            self.number = known.new_connection()

        def respond(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            headers = {name.lower(): value for name, value in self.headers.items()}
            answer = known.handle(self.command, self.path, headers, body)
            if answer.script:
                self.play(answer, headers.get("user-agent", ""))
                return
            status = 0 if answer.drop else answer.status
            if not answer.drop:
                self.wfile.write(_bytes_of(answer))
            agent = headers.get("user-agent", "")
            known.note(Logged(time.time(), self.command, self.path, agent, status, self.number))
            if answer.drop or answer.missing_bytes:
                self.connection.shutdown(socket.SHUT_RDWR)
                self.close_connection = True

        def play(self, answer: Answer, agent: str) -> None:
            known.note(Logged(time.time(), self.command, self.path, agent, answer.status, self.number))
            with contextlib.suppress(OSError):  # the client may have lost its patience
                for step in answer.script:
                    if isinstance(step, bytes):
                        self.wfile.write(step)
                    else:
                        time.sleep(step)
            if answer.script_end != "keep":
                self.close_connection = True
                if answer.script_end == "reset":
                    self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    self.connection.close()
                else:
                    self.connection.shutdown(socket.SHUT_RDWR)

        do_GET = do_POST = do_PUT = do_HEAD = do_DELETE = respond

        def log_message(self, format: str, *args: object) -> None:
            pass

    return Handler


def _bytes_of(answer: Answer) -> bytes:
    length = len(answer.body) + answer.missing_bytes
    lines = [f"HTTP/1.1 {answer.status} Known", f"Content-Length: {length}"]
    lines += [f"{name}: {value}" for name, value in answer.headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + answer.body
