"""Reads one HTTP/1.1 response from bytes as they arrive. No socket, no clock.

The responses that nearly every server sends, a plain head with one Content-Length, are read here. Everything else
(chunked, closed at the end, interim, without a body, or with anything odd in its head) is left to h11, which also
decides what is no valid response.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import h11

_TOKEN = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]++"
_TEXT = rb"[\t -~\x80-\xff]*+"
_PLAIN_HEAD = re.compile(
    rb"HTTP/1\.1 ([2-9]\d\d)(?: " + _TEXT + rb")?+(\r\n(?:" + _TOKEN + rb":" + _TEXT + rb"\r\n)*+)\r\n"
)
"""A complete head without anything odd: the status, and the headers from the line end before the first one."""

_FRAMING = re.compile(rb"\r\n(content-length|transfer-encoding|connection):[\t ]*+([^\r]*+)")
_BLANK_LINE = re.compile(rb"\n\r?\n")
_BEGINNING = b"HTTP/"
_BODILESS = (204, 304)
_MAX_HEAD_BYTES = 262144
_MAX_LENGTH_DIGITS = 15


class BadResponse(Exception):
    """What the server sends is not a valid response, or ends too early. Carries nothing of what was sent."""


class ShortBody(BadResponse):
    """The connection was closed before the end of the body."""


class NoResponse(Exception):
    """The connection was closed before the first byte of a response."""


class Headers(Mapping[str, str]):
    """A response's headers, looked up in the bytes when asked for. Names in any case; repeated ones joined by ", "."""

    __slots__ = ("_block", "_lower")

    def __init__(self, block: bytes) -> None:
        """`block` has a line end before and after each header."""
        self._block = block
        self._lower = block.lower()

    def __getitem__(self, name: str) -> str:
        sought = b"\r\n" + name.lower().encode("latin-1", "replace") + b":"
        values = []
        found = self._lower.find(sought)
        while found >= 0:
            start = found + len(sought)
            end = self._block.index(b"\r\n", start)
            values.append(self._block[start:end].strip(b" \t").decode("latin-1"))
            found = self._lower.find(sought, end)
        if not values:
            raise KeyError(name)
        return ", ".join(values)

    def __iter__(self) -> Iterator[str]:
        lines = self._block.split(b"\r\n")
        return iter({line.partition(b":")[0].lower().decode("latin-1"): None for line in lines if line})

    def __len__(self) -> int:
        return sum(1 for _ in self)


class Response:
    """The answer to one request, or why there is none; until feed() has said True only a part of it.

    Times are seconds from `started`, and None for what has not happened; the client fills them in.
    """

    __slots__ = (
        "_block", "_head_request", "_headers", "_library", "_missing", "_pending", "_pieces",
        "body", "connect_s", "failure", "first_byte_s", "last_byte_s", "reusable", "started", "status",
    )  # fmt: skip

    def __init__(self, head_request: bool = False, started: float = 0.0) -> None:
        """`head_request`: the answer to a HEAD has no body, whatever it says."""
        self.status = 0
        """0 while there is none."""
        self.body = b""
        self.failure: str | None = None
        """Why there is no whole response, or why it is not what the workload wants; None where all is well."""
        self.reusable = False
        """Whether the connection can take another request when this response is whole."""
        self.started = started
        """When the exchange began, by time.perf_counter()."""
        self.connect_s = 0.0
        """How long opening a connection took; 0 where one was open."""
        self.first_byte_s: float | None = None
        self.last_byte_s: float | None = None
        """For a failure: when that was known."""
        self._head_request = head_request
        self._block = b"\r\n"
        self._headers: Headers | None = None
        self._pending = b""
        self._missing = 0
        self._pieces: list[bytes] = []
        self._library: h11.Connection | None = None

    @property
    def headers(self) -> Headers:
        """The headers; none before the head is complete."""
        if self._headers is None:
            self._headers = Headers(self._block)
        return self._headers

    def feed(self, data: bytes) -> bool:
        """Take the next bytes, b"" for the end of the connection; True when the response is whole.

        Raises BadResponse or NoResponse. Not to be called again after it said True.
        """
        if self._library is not None:
            return self._feed_library(data)
        if self._missing:
            return self._feed_body(data)
        if self._pending and data:
            data = self._pending + data
        match = None if self._head_request else _PLAIN_HEAD.match(data)
        if match is None:
            return self._feed_other(data)
        block = match[2]
        length = self._plain_length(int(match[1]), block)
        if length < 0:
            return self._ask_library(data)
        self.status = int(match[1])
        self._block = block
        end = match.end()
        missing = length - len(data) + end
        if missing > 0:
            self._missing = missing
            self._pieces.append(data[end:])
            return False
        if missing:
            self.reusable = False  # more bytes than announced: whatever they are, the next answer is not among them
            data = data[: end + length]
        self.body = data[end:]
        return True

    def _plain_length(self, status: int, block: bytes) -> int:
        """Length of the body, where one Content-Length gives it and nothing else has a say; else -1."""
        length = -1
        reusable = True
        for name, value in _FRAMING.findall(block.lower()):
            if name == b"connection" and value in (b"keep-alive", b"close"):
                reusable = reusable and value == b"keep-alive"
            elif name == b"content-length" and length < 0 and value.isdigit() and len(value) <= _MAX_LENGTH_DIGITS:
                length = int(value)
            else:
                return -1
        self.reusable = reusable
        return -1 if status in _BODILESS else length

    def _feed_body(self, data: bytes) -> bool:
        if not data:
            raise ShortBody
        self._missing -= len(data)
        if self._missing > 0:
            self._pieces.append(data)
            return False
        if self._missing:
            data = data[: self._missing]
            self._missing = 0
            self.reusable = False
        self._pieces.append(data)
        self.body = b"".join(self._pieces)
        return True

    def _feed_other(self, data: bytes) -> bool:
        """A head that is not complete, or not plain."""
        if not data:
            raise BadResponse("the connection was closed within the head") if self._pending else NoResponse
        if data[: len(_BEGINNING)] != _BEGINNING[: len(data)]:
            raise BadResponse("not HTTP")
        if self._head_request or len(data) > _MAX_HEAD_BYTES or _BLANK_LINE.search(data):
            return self._ask_library(data)
        self._pending = data
        return False

    def _ask_library(self, data: bytes) -> bool:
        library = h11.Connection(h11.CLIENT, max_incomplete_event_size=_MAX_HEAD_BYTES)
        method = "HEAD" if self._head_request else "GET"
        library.send(h11.Request(method=method, target="/", headers=[("Host", "x")]))
        library.send(h11.EndOfMessage())
        self._library = library
        self.reusable = False
        return self._feed_library(data)

    def _feed_library(self, data: bytes) -> bool:
        try:
            return self._read_events(data)
        except h11.RemoteProtocolError:
            # its message may hold what the server sent, and that may be a token
            is_short = self.status and not data
            raise (ShortBody if is_short else BadResponse)("not valid HTTP") from None

    def _read_events(self, data: bytes) -> bool:
        assert self._library is not None
        self._library.receive_data(data)
        while True:
            event = self._library.next_event()
            if isinstance(event, h11.Response):
                if not event.http_version.startswith(b"1."):
                    raise BadResponse("another version of HTTP")
                self.status = event.status_code
                lines = [name + b":" + value for name, value in event.headers.raw_items()]
                self._block = b"".join([b"\r\n", *(line + b"\r\n" for line in lines)])
            elif isinstance(event, h11.Data):
                self._pieces.append(bytes(event.data))
            elif isinstance(event, h11.EndOfMessage):
                return self._library_is_done()
            elif not isinstance(event, h11.InformationalResponse):
                if event is h11.NEED_DATA:
                    return False
                raise BadResponse("not a response")

    def _library_is_done(self) -> bool:
        assert self._library is not None
        self.body = b"".join(self._pieces)
        states = (self._library.our_state, self._library.their_state)
        # neither more bytes than asked for, nor an end of the connection
        self.reusable = states == (h11.DONE, h11.DONE) and self._library.trailing_data == (b"", False)
        return True
