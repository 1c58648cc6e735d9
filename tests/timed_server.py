"""An HTTP server in a process of its own, whose service times are known, and which logs what it did when.

It answers every request alike, in the way of a Keystone that issues a token or validates one, so that any locustfile
may be pointed at it. One thread: gevent carries about 3000 requests a second on one core.

    with timed_server(tmp_path, "--service", "fixed:0.01", "--stall", "3:2") as server:
        ...
    assert len(server.log()) == 1000
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import dataclasses
import math
import random
import signal
import socket as stdlib_socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

COLUMNS = ("arrived_unix_s", "answered_unix_s", "connection", "status", "setup")
TOKEN = "gAAAAABplantedtoken-of-nobody"
USER_ID = "id-of-nobody"
SO_TIMESTAMPNS = 35


@dataclasses.dataclass(frozen=True)
class Logged:
    """One request: when it had reached this machine, when its answer was handed over to leave, and how it was answered.

    The kernel itself stamps the arrival, so how soon Python gets round to it is a part of the service time.
    """

    arrived_unix_s: float
    answered_unix_s: float
    connection: int
    status: int
    """0 where the connection was closed without an answer."""

    @property
    def service_time_s(self) -> float:
        return self.answered_unix_s - self.arrived_unix_s


@dataclasses.dataclass
class TimedServer:
    """A running server, as the test sees it."""

    url: str
    pid: int
    _log: Path

    def log(self) -> list[Logged]:
        """Requests of the load so far, those before it (a login) left out. Call it when the server has ended."""
        with self._log.open(newline="") as file:
            rows = [row for row in csv.DictReader(file) if row["setup"] == "0"]
        return [
            Logged(float(r[COLUMNS[0]]), float(r[COLUMNS[1]]), int(r[COLUMNS[2]]), int(r[COLUMNS[3]])) for r in rows
        ]


@contextlib.contextmanager
def timed_server(folder: Path, *arguments: str) -> Iterator[TimedServer]:
    """Run the server with the arguments of this module's command line; its log lies in `folder`."""
    log = folder / "timed_server.csv"
    command = [sys.executable, "-m", "tests.timed_server", "--log", str(log), *arguments]
    repository = Path(__file__).resolve().parent.parent
    with subprocess.Popen(command, cwd=repository, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield TimedServer(process.stdout.readline().strip(), process.pid, log)
        finally:
            process.send_signal(signal.SIGCONT)
            process.terminate()
            process.wait(10)


def service_times(text: str, seed: int = 1) -> Iterator[float]:
    """Endless seconds: fixed:S, lognormal:MEDIAN_S:SIGMA, or bimodal:FAST_S:SLOW_S:SHARE_OF_SLOW."""
    kind, *words = text.split(":")
    numbers = [float(word) for word in words]
    draw = random.Random(seed)
    while True:
        if kind == "fixed":
            yield numbers[0]
        elif kind == "lognormal":
            yield draw.lognormvariate(math.log(numbers[0]), numbers[1])
        elif kind == "bimodal":
            yield numbers[1] if draw.random() < numbers[2] else numbers[0]
        else:
            raise ValueError(f"{text!r} is none of fixed, lognormal, bimodal")


class Answers:
    """When and how each request is answered. Times are in seconds of time.monotonic()."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._times = service_times(options.service, options.seed)
        self._stall = tuple(float(part) for part in options.stall.split(":")) if options.stall else (math.inf, 0.0)
        self._first_s: float | None = None
        self._number = 0

    def due(self, arrived_s: float, setup: bool) -> tuple[float, int, bool]:
        """When to answer, with which status (0: not at all), and whether to close the connection then."""
        if setup:
            return arrived_s, 201, False
        if self._first_s is None:
            self._first_s = arrived_s
        self._number += 1
        due_s = arrived_s + next(self._times)
        begin_s = self._first_s + self._stall[0]
        if begin_s <= due_s < begin_s + self._stall[1]:
            due_s = begin_s + self._stall[1]
        status = 201
        if self._is(self._options.fail_every):
            status = 500
        if self._is(self._options.drop_every):
            status = 0
        return due_s, status, status == 0 or self._is(self._options.close_every)

    def _is(self, every: int) -> bool:
        return bool(every) and self._number % every == 0


def answer_bytes(method: str, status: int, close: bool) -> bytes:
    """201 for a token issued, 200 for one validated, with all that a locustfile looks at."""
    body = f'{{"token":{{"user":{{"id":"{USER_ID}","name":"nobody"}}}}}}'.encode() if status == 201 else b"{}"
    line = f"HTTP/1.1 {200 if method == 'GET' and status == 201 else status} Known"
    lines = [line, f"Content-Length: {len(body)}", f"X-Subject-Token: {TOKEN}", *(["Connection: close"] * close)]
    return "\r\n".join([*lines, "", ""]).encode() + body


def serve(options: argparse.Namespace) -> None:
    """Serve until SIGTERM, and write the log then."""
    import gevent
    from gevent.event import Event
    from gevent.server import StreamServer

    answers = Answers(options)
    anchor = time.time() - time.monotonic()
    rows: list[tuple[float, float, int, int, int]] = []
    connections = iter(range(1, sys.maxsize))

    def handle(socket: object, _address: object) -> None:
        number = next(connections)
        with contextlib.suppress(OSError):
            converse(socket, number)

    def converse(socket, number: int) -> None:  # type: ignore[no-untyped-def]
        socket.setsockopt(stdlib_socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        received, arrived_s = b"", 0.0
        while True:
            while b"\r\n\r\n" not in received:
                more, arrived_s = _receive(socket)
                if not more:
                    return
                received += more
            head, _, rest = received.partition(b"\r\n\r\n")
            length = int(_header(head, b"content-length") or 0)
            while len(rest) < length:
                more, arrived_s = _receive(socket)
                rest += more
            received = rest[length:]
            setup = b"stackswarm-setup" in head
            due_s, status, close = answers.due(arrived_s, setup)
            _sleep_until(due_s, options.precise, gevent.sleep)
            answer = answer_bytes(head[: head.index(b" ")].decode(), status, close)
            rows.append((anchor + arrived_s, anchor + time.monotonic(), number, status, int(setup)))
            if status:
                socket.sendall(answer)
            if close:
                socket.close()
                return

    server = StreamServer(("127.0.0.1", 0), handle, backlog=1024)
    server.start()
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    over = Event()
    gevent.signal_handler(signal.SIGTERM, over.set)
    over.wait()
    with Path(options.log).open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        writer.writerows(rows)


def _receive(socket) -> tuple[bytes, float]:  # type: ignore[no-untyped-def]
    """Bytes, and time.monotonic() at their arrival."""
    data, ancillary, _, _ = socket.recvmsg(65536, 64)
    now_s = time.monotonic()
    if not ancillary:
        return data, now_s
    seconds, nanoseconds = struct.unpack("@ll", ancillary[0][2])
    return data, now_s - (time.time() - seconds - nanoseconds * 1e-9)


def _header(head: bytes, name: bytes) -> bytes | None:
    for line in head.split(b"\r\n")[1:]:
        key, _, value = line.partition(b":")
        if key.lower() == name:
            return value.strip()
    return None


def _sleep_until(due_s: float, precise: bool, sleep: Callable[[float], None]) -> None:
    """The event loop's timer is up to 1 ms late; where that matters the rest is spent looking at the clock."""
    early_s = 0.0015 if precise else 0.0
    left_s = due_s - time.monotonic()
    if left_s > early_s:
        sleep(left_s - early_s)
    while precise and time.monotonic() < due_s:
        sleep(0)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--service", default="fixed:0.005", help=service_times.__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--stall", metavar="T:S", help="hold all answers due T s after the first request for S s")
    for name in ("fail", "drop", "close"):
        parser.add_argument(f"--{name}-every", type=int, default=0, metavar="N")
    parser.add_argument("--precise", action="store_true", help="within 0.05 ms, at the cost of CPU")
    parser.add_argument("--log", required=True)
    return parser.parse_args()


if __name__ == "__main__":
    serve(_options())
