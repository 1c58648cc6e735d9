"""One TCP or TLS connection for one greenlet at a time, on gevent's loop, as cheap as it gets in Python.

gevent's own sockets ask the kernel before they wait, and make a waiter, a timer and a watcher's start for each wait.
Here one watcher listens for as long as the connection is open, and one timer looks after the time limits of all its
requests; a request costs one look, one send, one turn of the loop and one recv. Knows no protocol but TLS.

Bytes are timed by the kernel, at the moment when they reach this machine: how soon Python gets round to reading them,
on a busy processor milliseconds later, is no part of the server's time.
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import os
import platform
import select
import socket
import ssl
import struct
import sys
from collections.abc import Callable
from time import perf_counter, time
from typing import Any, TypeVar

import gevent
import gevent.socket
from gevent import monkey

Result = TypeVar("Result")

_READ, _WRITE = 1, 2
_FIRST_BYTES = 16384
_MORE_BYTES = 262144
_OVERTIME_S = 0.01
_ANCILLARY_BYTES = 64
_SO_TIMESTAMPNS = 35  # Linux, not in Python's socket module; another number on the machines that are not listed
_HAS_TIMESTAMPS = sys.platform == "linux" and platform.machine() in ("x86_64", "aarch64", "riscv64", "ppc64le", "s390x")
_unpack_timespec = struct.Struct("@ll").unpack  # seconds and nanoseconds of the Unix clock
_plain_socket = monkey.get_original("socket", "socket")  # without gevent's layer, which waits in its own way
_poll = monkey.get_original("select", "poll")


class Wire:
    """An open connection. Not to be used by two greenlets at a time, nor from another thread."""

    def __init__(self, host: str, port: int, connect_timeout_s: float) -> None:
        """Connect to a host's name or address. Raises OSError; TimeoutError after `connect_timeout_s`."""
        self._hub = gevent.get_hub()
        self._waiting: Any = None
        self._since_s = 0.0
        self._deadline = 0.0
        self._sock: Any = None
        self._readable: Any = None
        self._timer: Any = None
        self._overtime = False
        self._asleep = False
        """The watcher is: it found something to read while nobody waited for an answer."""
        self.received_s = 0.0
        """perf_counter() when the latest bytes came in; where the kernel does not tell, when they were read."""
        try:
            with gevent.Timeout(connect_timeout_s, TimeoutError("timed out while connecting")):
                self._connect(host, port)
                self._begin()
        except BaseException:
            self.close()
            raise

    def _connect(self, host: str, port: int) -> None:
        failure: OSError | None = None
        for family, kind, protocol, _, address in _addresses(host, port):
            try:
                return self._connect_to(family, kind, protocol, address)
            except OSError as error:
                failure = error
                self.close()
        raise failure or OSError("no address")

    def _connect_to(self, family: int, kind: int, protocol: int, address: Any) -> None:
        self._sock = _plain_socket(family, kind, protocol)
        self._sock.setblocking(False)
        # A request is written in one piece, or its pieces must not wait for each other's acknowledgement.
        self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if _HAS_TIMESTAMPS:
            self._sock.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        code = self._sock.connect_ex(address)
        if code == errno.EINPROGRESS:
            self._wait_writable()
            code = self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            raise OSError(code, os.strerror(code))

    def _begin(self) -> None:
        """What comes between connecting and the first request."""
        self._look = _poll()
        self._look.register(self._sock.fileno(), select.POLLIN)
        self._readable = self._hub.loop.io(self._sock.fileno(), _READ)
        self._readable.start(self._on_readable)

    def close(self) -> None:
        """Close at once; may be called again."""
        if self._readable is not None:
            self._readable.close()
            self._readable = None
        self._stop_timer()
        if self._sock is not None:
            self._sock.close()
            self._sock = None

    def limit(self, timeout_s: float) -> None:
        """What is sent and received from now on may take `timeout_s` altogether; then TimeoutError is raised.

        The timer is not set anew for each request: when it fires it looks how long it has to go on for the latest one.
        Later limits must not be shorter than earlier ones.
        """
        self._since_s = self.received_s = perf_counter()
        self._deadline = self._since_s + timeout_s
        self._overtime = False
        if self._timer is None:
            self._start_timer(timeout_s)

    def send(self, data: bytes) -> None:
        """Send all of it. Raises OSError."""
        rest: bytes | memoryview = data
        while True:
            try:
                sent = self._sock.send(rest)
            except BlockingIOError:
                sent = 0
            if sent == len(rest):
                return
            rest = memoryview(rest)[sent:]
            self._wait_writable()

    def receive(self) -> bytes:
        """Wait for bytes; b"" is the end of the connection. Raises OSError."""
        self._pause()  # before asking: right after a request there is nothing yet
        return self._receive_now(_FIRST_BYTES)

    def receive_more(self) -> bytes:
        """As receive(), where more is expected to be there already."""
        return self._receive_now(_MORE_BYTES)

    def _receive_now(self, size: int) -> bytes:
        while True:
            try:
                data: bytes
                data, ancillary, _, _ = self._sock.recvmsg(size, _ANCILLARY_BYTES)
            except BlockingIOError:
                self._pause()
            else:
                self.received_s = self._moment(ancillary)
                return data

    def _moment(self, ancillary: list[tuple[int, int, bytes]]) -> float:
        """perf_counter() when the bytes just read came in; now, where the kernel does not say, or cannot be right.

        Its stamp is Unix time, so what counts is how long ago that was; a clock that was set meanwhile would make it a
        moment that is yet to come, or one before anything was asked.
        """
        now_s = perf_counter()
        if not ancillary:
            return now_s
        seconds, nanoseconds = _unpack_timespec(ancillary[0][2])
        moment_s = now_s - (time() - seconds - nanoseconds * 1e-9)
        return moment_s if self._since_s <= moment_s <= now_s else now_s

    def is_usable(self) -> bool:
        """Whether the connection can take a request, as far as can be told without sending anything."""
        if self._look.poll(0):
            return False  # closed by the server, or an answer to nothing
        self._wake_watcher()
        return True

    def _wake_watcher(self) -> None:
        if self._asleep:
            self._asleep = False
            self._readable.start(self._on_readable)

    def _wait_writable(self) -> None:
        if self._readable is not None:
            self._readable.stop()  # bytes that come too early must not wake the sender again and again
        watcher = self._hub.loop.io(self._sock.fileno(), _WRITE)
        watcher.start(self._wake)
        try:
            self._pause()
        finally:
            watcher.close()
            if self._readable is not None:
                self._readable.start(self._on_readable)

    def _pause(self) -> None:
        """Let others run until the loop has news for this connection."""
        self._waiting = gevent.getcurrent()
        try:
            self._hub.switch()
        finally:
            self._waiting = None

    def _start_timer(self, after_s: float) -> None:
        self._timer = self._hub.loop.timer(after_s, ref=False)
        self._timer.start(self._on_timer)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.close()
            self._timer = None

    # Called by the loop, in the hub: must not wait, nor raise.

    def _wake(self) -> None:
        if self._waiting is not None:
            self._waiting.switch()

    def _on_readable(self) -> None:
        if self._waiting is not None:
            self._waiting.switch()
        else:
            self._asleep = True
            self._readable.stop()  # or the loop would come back here at every turn

    def _on_timer(self) -> None:
        self._stop_timer()
        if self._waiting is None:
            return  # idle: the next request starts it again
        left_s = self._deadline - perf_counter()
        if left_s > 0:
            self._start_timer(left_s)
        elif not self._overtime and self._look.poll(0):
            # In time, perhaps: it was this process that did not run. Once, or a server that drips would never be late.
            self._overtime = True
            self._start_timer(_OVERTIME_S)
            self._waiting.switch()
        else:
            self._waiting.throw(TimeoutError("timed out"))


def _addresses(host: str, port: int) -> Any:
    """What getaddrinfo says. Not asked for an address in digits: gevent does that in another thread."""
    with contextlib.suppress(ValueError):
        family = socket.AF_INET6 if ipaddress.ip_address(host).version == 6 else socket.AF_INET
        return [(family, socket.SOCK_STREAM, 0, "", (host, port))]
    return gevent.socket.getaddrinfo(host, port, 0, socket.SOCK_STREAM)


class TlsWire(Wire):
    """The same with TLS in between: OpenSSL turns bytes into other bytes, and the wire below carries those."""

    def __init__(self, host: str, port: int, connect_timeout_s: float, context: ssl.SSLContext, name: str) -> None:
        """Connect and shake hands. `name`, or an address, is whose certificate is asked for, and must be shown.

        Raises OSError; ssl.SSLError, which is one, where `context` does not accept it.
        """
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        # Python sends the name along (SNI) only where it is one, and compares it or the address to the certificate.
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=name)
        super().__init__(host, port, connect_timeout_s)

    def _begin(self) -> None:
        super()._begin()
        self._do(self._tls.do_handshake)

    def send(self, data: bytes) -> None:
        """Send all of it. Raises OSError."""
        self._do(lambda: self._tls.write(data))  # into memory, which takes all of it at once

    def receive(self) -> bytes:
        """Wait for bytes; b"" is the end of the connection. Raises OSError."""
        return self._read(_FIRST_BYTES)

    def receive_more(self) -> bytes:
        """As receive()."""
        return self._read(_MORE_BYTES)

    def _read(self, size: int) -> bytes:
        try:
            return self._do(lambda: self._tls.read(size))
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            return b""  # with or without a farewell, which many servers leave out

    def _do(self, step: Callable[[], Result]) -> Result:
        """Take a step of OpenSSL's, carrying bytes to and fro until it has what it needs."""
        while True:
            try:
                result = step()
            except ssl.SSLWantReadError:
                self._flush()  # the server waits for it, and this for the server
                self._feed(self._receive_now(_MORE_BYTES))
            except ssl.SSLError:
                with contextlib.suppress(OSError):
                    self._flush()  # tell the server why
                raise
            else:
                self._flush()
                return result

    def _feed(self, data: bytes) -> None:
        if data:
            self._incoming.write(data)
        else:
            self._incoming.write_eof()

    def _flush(self) -> None:
        if self._outgoing.pending:
            super().send(self._outgoing.read())

    def is_usable(self) -> bool:
        """As Wire's. What the server's TLS has to say while idle, tickets for resuming for one, is taken in."""
        try:
            if self._look.poll(0):
                self._feed(self._sock.recv(_MORE_BYTES))
            elif not self._incoming.pending and not self._tls.pending():
                self._wake_watcher()
                return True
            self._tls.read(1)
        except ssl.SSLWantReadError:
            # All of it was TLS' own; should there be yet more, the connection is not worth the trouble.
            return super().is_usable()
        except OSError:
            pass
        return False  # closed by the server, or an answer to nothing
