"""The parser against Python's own http.client: the same bytes must mean the same."""

from __future__ import annotations

import dataclasses
import http.client
import io
import re
from typing import Any

import pytest
from _http_parser import BadResponse, NoResponse, Response
from hypothesis import given, settings
from hypothesis import strategies as st


class OneByOne(io.RawIOBase):
    """A connection on which every byte arrives alone."""

    def __init__(self, data: bytes) -> None:
        self._rest = memoryview(data)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        size = min(1, len(self._rest), len(buffer))
        buffer[:size] = self._rest[:size]
        self._rest = self._rest[size:]
        return size

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(self, 1)


Meaning = tuple[int, list[tuple[str, str]], bytes]


def peer(data: bytes, method: str) -> Meaning:
    """What http.client understands."""
    response = http.client.HTTPResponse(OneByOne(data), method=method)  # type: ignore[arg-type]
    response.begin()
    body = response.read()
    return response.status, meaning_of(response.headers), body


def meaning_of(headers: Any) -> list[tuple[str, str]]:
    names = sorted({name.lower() for name in headers})
    get_all = getattr(headers, "get_all", None)
    return [(name, joined(name, get_all(name) if get_all else [headers[name]])) for name in names]


def joined(name: str, values: list[str]) -> str:
    # http.client keeps a folded value's line end and white space at a value's end; h11 replaces and removes them. And
    # h11 makes one of several equal lengths.
    text = ", ".join(re.sub(r"[\r\n\t ]+", " ", value).strip(" ") for value in values).strip(" ")
    return text.partition(",")[0] if name == "content-length" else text


def fed(data: bytes, method: str, splits: list[int]) -> Response:
    """Our response, from the pieces between `splits` and an end of the connection where it is asked for."""
    response = Response(method == "HEAD")
    ends = sorted({min(split, len(data)) for split in splits} | {len(data)} - {0})
    start = 0
    for end in ends:
        if end > start and response.feed(data[start:end]):
            return response
        start = end
    assert response.feed(b""), "a response that never ends"
    return response


def ours(data: bytes, method: str, splits: list[int]) -> Meaning:
    response = fed(data, method, splits)
    return response.status, meaning_of(response.headers), response.body


@dataclasses.dataclass
class Generated:
    data: bytes
    method: str
    ends_itself: bool


names = st.from_regex(r"X-[A-Za-z0-9!#$%&'*+.^_`|~-]{1,12}", fullmatch=True)
values = st.text(st.sampled_from("abcXYZ019 ,;=\"'()/\t:é\xa0ÿ"), max_size=20)
folded = st.builds(lambda a, b: f"{a}z\r\n {b}y", values, values)
header_lists = st.lists(st.tuples(names, st.one_of(values, values, values, folded)), max_size=5)


@st.composite
def responses(draw: st.DrawFn) -> Generated:
    method = draw(st.sampled_from(["GET", "GET", "GET", "POST", "HEAD"]))
    status = draw(st.sampled_from([200, 200, 201, 204, 301, 304, 401, 404, 429, 500, 503, 599]))
    reason = draw(st.sampled_from([" OK", " ", "", " Überall gut", " two  words"]))
    version = draw(st.sampled_from(["1.1", "1.1", "1.1", "1.0"]))
    body = draw(st.binary(max_size=300))
    framing = draw(st.sampled_from(["length", "length", "length", "twice", "chunked", "close"]))
    if framing == "chunked" and (version == "1.0" or status in (204, 304)):
        framing = "close"  # http.client would look for chunks there, and h11 rightly does not
    headers = draw(header_lists)
    headers += draw(st.sampled_from([[], [], [("Connection", "keep-alive")], [("coNNection", "Close, x")]]))
    length = (draw(st.sampled_from(["Content-Length", "content-length", "CONTENT-LENGTH"])), str(len(body)))
    headers += {"length": [length], "twice": [length, length], "chunked": [("Transfer-Encoding", "chunked")]}.get(
        framing, []
    )
    headers = draw(st.permutations(headers))
    space = draw(st.sampled_from([" ", "", "  ", "\t"]))
    lines = [f"HTTP/{version} {status}{reason}", *(f"{name}:{space}{value}" for name, value in headers)]
    interim = draw(st.sampled_from(["", "", "HTTP/1.1 100 Continue\r\n\r\n", "HTTP/1.1 100 C\r\nX-A: 1\r\n\r\n"]))
    head = (interim + "\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
    bodiless = method == "HEAD" or status in (204, 304)
    sent = b"" if bodiless else chunked(draw, body) if framing == "chunked" else body
    return Generated(head + sent, method, bodiless or framing != "close")


def chunked(draw: st.DrawFn, body: bytes) -> bytes:
    size = draw(st.integers(1, 100))
    extension = draw(st.sampled_from([b"", b";a=b", b'; a="b"']))
    pieces = [body[i : i + size] for i in range(0, len(body), size)]
    trailer = draw(st.sampled_from([b"", b"X-Sum: 1\r\n"]))
    return b"".join(b"%x%b\r\n%b\r\n" % (len(p), extension, p) for p in pieces) + b"0\r\n" + trailer + b"\r\n"


@settings(max_examples=250, deadline=None)
@given(responses(), st.lists(st.integers(1, 600), max_size=6))
def test_the_same_bytes_mean_the_same(generated: Generated, splits: list[int]) -> None:
    expected = peer(generated.data, generated.method)
    for cut in ([], splits, list(range(len(generated.data)))):
        assert ours(generated.data, generated.method, cut) == expected


@settings(max_examples=100, deadline=None)
@given(responses(), st.data())
def test_a_response_cut_short_is_never_taken_for_whole(generated: Generated, data: st.DataObject) -> None:
    if not generated.ends_itself:
        return
    cut = data.draw(st.integers(0, len(generated.data) - 1))
    with pytest.raises((BadResponse, NoResponse)) as failure:
        ours(generated.data[:cut], generated.method, [])
    assert isinstance(failure.value, NoResponse) == (cut == 0)


@settings(max_examples=100, deadline=None)
@given(responses())
def test_a_response_that_ends_itself_needs_no_end_of_the_connection(generated: Generated) -> None:
    response = Response(generated.method == "HEAD")
    assert response.feed(generated.data) == generated.ends_itself
    assert response.reusable <= generated.ends_itself


@settings(max_examples=300, deadline=None)
@given(st.one_of(st.binary(max_size=60), st.binary(max_size=60).map(lambda b: b"HTTP/1.1 200 OK\r\n" + b)))
def test_any_bytes_end_in_a_response_or_in_one_of_two_errors(data: bytes) -> None:
    for splits in ([], list(range(len(data)))):
        try:
            fed(data, "GET", splits)
        except (BadResponse, NoResponse) as error:
            assert len(str(error)) < 80


INVALID = {
    "another protocol": b"SSH-2.0-OpenSSH_9.2\r\n",
    "a status of two digits": b"HTTP/1.1 20 OK\r\n\r\n",
    "lengths in conflict": b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
    "lengths in conflict, in one line": b"HTTP/1.1 200 OK\r\nContent-Length: 1, 2\r\n\r\nab",
    "a negative length": b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
    "a length with a sign": b"HTTP/1.1 200 OK\r\nContent-Length: +1\r\n\r\na",
    "a space before the colon": b"HTTP/1.1 200 OK\r\nContent-Length : 1\r\n\r\na",
    "another transfer encoding": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "a chunk's size that is none": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    "a NUL in a header": b"HTTP/1.1 200 OK\r\nX: a\0b\r\nContent-Length: 0\r\n\r\n",
    "an upgrade nobody asked for": b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
    "a head without end": b"HTTP/1.1 200 OK\r\n" + b"X-Long: 0123456789\r\n" * 20000,
}


@pytest.mark.parametrize("name", INVALID)
def test_invalid(name: str) -> None:
    steps = 1 if len(INVALID[name]) < 1000 else 16000
    for splits in ([], list(range(0, len(INVALID[name]), steps))):
        with pytest.raises(BadResponse) as failure:
            fed(INVALID[name], "GET", splits)
        assert failure.value.__cause__ is None


OK = b"HTTP/1.1 200 OK\r\n"
PLAIN = [
    (OK + b"Content-Length: 2\r\n\r\nab", True),
    (OK + b"Content-Length: 0\r\nConnection: keep-alive\r\n\r\n", True),
    (OK + b"content-length:2\r\nCONNECTION: close\r\n\r\nab", False),
    (OK + b"Content-Length: 1\r\n\r\nab", False),
    (b"HTTP/1.1 404 Not Found\r\nX-Content-Length: 9\r\nContent-Length: 2\r\n\r\nab", True),
]
ODD = [
    (OK + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", True),
    (OK + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\nsurplus", False),
    (OK + b"Content-Length: 0\r\nConnection: x, close\r\n\r\n", False),
    (OK + b"Content-Length: 2, 2\r\n\r\nab", True),
    (b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nab", False),
    (b"HTTP/1.1 204 No Content\r\n\r\n", True),
    (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 10\r\n\r\n", True),
    (b"HTTP/1.1 103 Early Hints\r\n\r\n" + OK + b"Content-Length: 2\r\n\r\nab", True),
]


@pytest.mark.parametrize(("data", "reusable", "odd"), [(*p, False) for p in PLAIN] + [(*o, True) for o in ODD])
def test_what_may_be_sent_on_the_connection_next(data: bytes, reusable: bool, odd: bool) -> None:
    response = Response()
    assert response.feed(data)
    assert response.reusable == reusable
    assert (response._library is not None) == odd


def test_headers_are_found_in_any_case_and_none_is_made_up() -> None:
    response = Response()
    assert len(response.headers) == 0
    response = Response()
    response.feed(OK + b"X-Subject-Token:  gAAAA \r\nVary: a\r\nEmpty:\r\nvary: b\r\nContent-Length: 0\r\n\r\n")
    headers = response.headers
    assert headers["x-subject-TOKEN"] == "gAAAA"
    assert headers["Vary"] == "a, b"
    assert headers["empty"] == ""
    assert headers.get("Subject-Token") is None
    assert "gAAAA" not in headers
    assert list(headers) == ["x-subject-token", "vary", "empty", "content-length"]
