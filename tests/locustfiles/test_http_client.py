"""The client against a server whose behaviour, and whose log, is known. Times are compared with each other only."""

from __future__ import annotations

import contextlib
import os
import resource
import socket
import time

import _wire
import gevent
import pytest
from _http_client import HttpClient, Site, describe

from tests.known_server import Answer
from tests.known_server import Request as Received

from .http_pair import OK, PATIENT_S, pair

HEAD = b"HTTP/1.1 200 OK\r\n"
SCRIPTS: dict[str, tuple[str, list[bytes | float], str, tuple[int, bytes]]] = {
    "plain": ("GET", [HEAD + b"Content-Length: 2\r\n\r\nab"], "keep", (200, b"ab")),
    "plain, in pieces": (
        "GET",
        [HEAD, 0.05, b"Content-Length: 2\r\n\r", 0.05, b"\na", 0.05, b"b"],
        "keep",
        (200, b"ab"),
    ),
    "chunked": (
        "GET",
        [HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n", 0.05, b"0\r\n\r\n"],
        "keep",
        (200, b"ab"),
    ),
    "HEAD": ("HEAD", [HEAD + b"Content-Length: 2\r\n\r\n"], "keep", (200, b"")),
    "204": ("DELETE", [b"HTTP/1.1 204 No Content\r\n\r\n"], "keep", (204, b"")),
    "304": ("GET", [b"HTTP/1.1 304 Not Modified\r\nContent-Length: 2\r\n\r\n"], "keep", (304, b"")),
    "100": ("PUT", [b"HTTP/1.1 100 Continue\r\n\r\n", 0.05, HEAD + b"Content-Length: 0\r\n\r\n"], "keep", (200, b"")),
    "103": (
        "GET",
        [b"HTTP/1.1 103 Early\r\nLink: x\r\n\r\n" + HEAD + b"Content-Length: 1\r\n\r\na"],
        "keep",
        (200, b"a"),
    ),
    "closed at the end": ("GET", [HEAD + b"\r\na", 0.05, b"b"], "close", (200, b"ab")),
    "large": ("GET", [HEAD + b"Content-Length: 3000000\r\n\r\n" + b"x" * 3000000], "keep", (200, b"x" * 3000000)),
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_way_of_framing(name: str) -> None:
    method, script, end, (status, body) = SCRIPTS[name]
    with pair(Answer(script=script, script_end=end)) as p:  # type: ignore[arg-type]
        for _ in range(3):
            assert p.ask(method) == (status, body, None)
        assert len(set(p.connections)) == (1 if end == "keep" else 3)
        assert len(p.connections) == 3


FAILURES: dict[str, tuple[Answer, str]] = {
    "no byte": (Answer(drop=True), "connection closed without a response"),
    "reset before the first byte": (Answer(script=[b""], script_end="reset"), "connection reset"),
    "reset within the body": (
        Answer(script=[HEAD + b"Content-Length: 9\r\n\r\na", 0.1], script_end="reset"),
        "200, then connection reset",
    ),
    "closed within the head": (Answer(script=[HEAD], script_end="close"), "not a valid HTTP response"),
    "a length too long": (Answer(201, missing_bytes=1), "201, then short body"),
    "a chunk that does not come": (
        Answer(script=[HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\nab"], script_end="close"),
        "200, then short body",
    ),
    "another protocol": (Answer(script=[b"220 smtp ready\r\n"]), "not a valid HTTP response"),
}


@pytest.mark.parametrize("name", FAILURES)
def test_a_failure_after_sending_is_a_failure_and_nothing_is_sent_twice(name: str) -> None:
    """Also on a connection that has worked before, which is where other clients try again."""
    answer, words = FAILURES[name]
    with pair(lambda request: answer if request.number % 2 else OK) as p:
        for _ in range(3):
            assert p.ask()[2] is None
            assert p.ask()[2] == words
        assert len(p.connections) == 6
        assert len(set(p.connections)) == 3


def test_a_length_too_short_does_not_reach_into_the_next_answer() -> None:
    with pair(Answer(script=[HEAD + b"Content-Length: 2\r\n\r\nabHTTP/1.1 500 Made Up\r\n\r\n"])) as p:
        for _ in range(3):
            assert p.ask() == (200, b"ab", None)
        assert len(set(p.connections)) == 3


TIMEOUTS = {
    "no answer": ([2.0, HEAD], "timed out"),
    "no end": ([HEAD + b"Content-Length: 9\r\n\r\na", 2.0], "200, then timed out"),
    "a byte now and then": ([b"HTTP/1.1 200 OK\r\nX: ", *[b"a", 0.05] * 40], "timed out"),
    "a drip of chunks": (
        [HEAD + b"Transfer-Encoding: chunked\r\n\r\n", *[b"1\r\na\r\n", 0.05] * 40],
        "200, then timed out",
    ),
}


@pytest.mark.parametrize("name", TIMEOUTS)
def test_the_time_limit_holds_for_the_whole_answer(name: str) -> None:
    script, words = TIMEOUTS[name]
    with pair(lambda request: Answer(script=script) if request.number else OK, read_timeout_s=0.4) as p:
        assert p.ask()[2] is None
        gevent.sleep(0.3)  # most of the limit: what was idle time must not count
        response = p.client.exchange(p.request())
        assert response.failure == words
        assert response.last_byte_s is not None
        assert 0.39 < response.last_byte_s < 1.9
        assert p.ask()[2] == words  # on a new connection: what comes late there is not taken for this answer
        assert len(set(p.connections)) == 2


def test_a_slow_first_byte_is_told_from_a_slow_last_one() -> None:
    with pair(Answer(script=[0.3, HEAD + b"Content-Length: 2\r\n\r\na", 0.2, b"b"])) as p:
        for first in (True, False):
            response = p.client.exchange(p.request())
            assert response.failure is None
            assert (response.connect_s > 0) == first
            assert response.first_byte_s is not None and response.last_byte_s is not None
            assert 0.29 < response.first_byte_s < response.last_byte_s - 0.15
            assert abs(time.perf_counter() - response.started - response.last_byte_s) < 0.5


BUSY_S = 0.4


def test_a_busy_client_is_no_slow_server() -> None:
    """The kernel stamps what comes in; that this process had no time to read it is not the server's time."""
    with pair(Answer(body=b"x" * 30_000)) as p:
        p.ask()
        gevent.spawn(time.sleep, BUSY_S)  # gevent's own sleep would let others run
        begin_s = time.perf_counter()
        response = p.client.exchange(p.request())
        assert time.perf_counter() - begin_s > BUSY_S
        assert response.first_byte_s is not None and response.last_byte_s is not None
        assert 0 < response.first_byte_s <= response.last_byte_s < BUSY_S / 2


def test_a_clock_that_is_set_while_an_answer_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then the kernel's stamp tells nothing, and the time of reading counts."""
    for step_s in (3600.0, -3600.0):
        monkeypatch.setattr(_wire, "time", lambda step_s=step_s: time.time() + step_s)
        with pair() as p:
            begin_s = time.perf_counter()
            response = p.client.exchange(p.request())
            assert response.last_byte_s is not None
            assert 0 < response.last_byte_s <= time.perf_counter() - begin_s


def test_an_answer_that_came_while_this_process_stood_still_is_not_too_late() -> None:
    with pair(Answer(body=b"x", after_s=0.1), read_timeout_s=0.3) as p:
        p.ask()
        gevent.spawn(time.sleep, 0.6)
        response = p.client.exchange(p.request())
        assert response.failure is None
        assert response.last_byte_s is not None and 0.1 <= response.last_byte_s < 0.3


def test_bytes_that_nobody_asked_for_are_no_answer_to_the_next_request() -> None:
    answer, another = (b"HTTP/1.1 %s\r\nContent-Length: 1\r\n\r\n" % status for status in (b"200 OK", b"500 No"))
    with pair(lambda request: Answer(script=[answer + b"a", 0.1, another + b"Z"]) if request.number == 0 else OK) as p:
        assert p.ask()[:2] == (200, b"a")
        time.sleep(0.4)  # not gevent's: the loop has had no turn
        assert p.ask() == (200, b"ok", None)
        assert p.connections == [1, 2]


def test_a_server_that_closes_without_saying_so_fails_nothing() -> None:
    with pair(Answer(script=[b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na"], script_end="close")) as p:
        for _ in range(20):
            assert p.ask() == (200, b"a", None)
            time.sleep(0.05)  # as before; a close that is under way while the next request is sent is another matter
        assert len(set(p.connections)) == 20


def test_connecting_has_its_own_time_limit() -> None:
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        with contextlib.ExitStack() as waiting:
            for _ in range(8):  # nobody accepts: from some number on, nothing is answered any more
                other = waiting.enter_context(socket.socket())
                other.setblocking(False)
                other.connect_ex(full.getsockname())
            client = HttpClient(Site.of(f"http://127.0.0.1:{full.getsockname()[1]}"), connect_timeout_s=0.3)
            response = client.exchange(client.site.request("GET", "/", {}))
    assert response.failure == "timed out"
    assert response.first_byte_s is None
    assert response.last_byte_s is not None and response.last_byte_s > 0.29


def test_a_connection_may_be_opened_before_the_first_request() -> None:
    with pair() as p:
        p.client.open()
        response = p.client.exchange(p.request())
        assert (response.failure, response.connect_s) == (None, 0)
        assert p.connections == [1]
    client = HttpClient(Site.of("http://127.0.0.1:1"), PATIENT_S, PATIENT_S)
    with pytest.raises(ConnectionRefusedError):
        client.open()


def test_nobody_listens_and_no_such_host() -> None:
    for url, words in [("http://127.0.0.1:1", "connection refused"), ("http://no.such.invalid", "host name not found")]:
        client = HttpClient(Site.of(url), PATIENT_S, PATIENT_S)
        assert client.exchange(client.site.request("GET", "/", {})).failure == words


@pytest.mark.parametrize("idle_s", [0.4, 1.3])
def test_a_connection_closed_while_idle_is_replaced_before_anything_is_sent(idle_s: float) -> None:
    with pair(idle_timeout_s=0.1) as p:
        for _ in range(3):
            assert p.ask(method="POST", body=b"x")[2] is None
            gevent.sleep(idle_s)
        assert len(set(p.connections)) == len(p.connections) == 3


def test_a_close_is_found_even_when_the_loop_had_no_turn() -> None:
    with pair(idle_timeout_s=0.1) as p:
        assert p.ask()[2] is None
        time.sleep(1.2)  # not gevent's: nothing could be noticed meanwhile
        assert p.ask()[2] is None
        assert len(set(p.connections)) == 2


def test_an_idle_connection_that_is_still_open_is_kept() -> None:
    with pair() as p:
        for _ in range(2):
            assert p.ask()[2] is None
            gevent.sleep(1.2)
        assert p.ask()[2] is None
        assert len(set(p.connections)) == 1


def test_close_is_honoured_in_both_directions() -> None:
    close = Answer(headers={"Connection": "close"}, body=b"ok")
    with pair(lambda request: close if request.path == "/x" else OK) as p:
        assert [p.ask()[2] for _ in range(2)] == [None, None]
        assert len(set(p.connections)) == 2
    with pair() as p:
        assert [p.ask(Connection="close")[2] for _ in range(2)] == [None, None]
        assert len(set(p.connections)) == 2


def test_a_new_connection_for_each_request() -> None:
    sent: list[str] = []

    def remember(request: Received) -> Answer:
        sent.append(request.headers.get("connection", ""))
        return OK

    with pair(remember, keep_alive=False) as p:
        responses = [p.client.exchange(p.request()) for _ in range(3)]
        assert [r.failure for r in responses] == [None] * 3
        assert all(r.connect_s > 0 for r in responses)
        assert len(set(p.connections)) == 3
    assert sent == ["close"] * 3


def test_redirects_and_cookies_are_left_alone() -> None:
    answers = Answer(302, {"Location": "/elsewhere", "Set-Cookie": "a=b"})
    seen: list[Received] = []

    def remember(request: Received) -> Answer:
        seen.append(request)
        return answers

    with pair(remember) as p:
        assert [p.ask()[:2] for _ in range(2)] == [(302, b"")] * 2
    assert [(r.path, "cookie" in r.headers) for r in seen] == [("/x", False)] * 2


def test_bodies_change_and_the_rest_stays() -> None:
    seen: list[Received] = []

    def remember(request: Received) -> Answer:
        seen.append(request)
        return OK

    with pair(remember) as p:
        request = p.client.site.request("POST", "/x", {"X-A": "1"})
        for body in (b"one", b"", b"y" * 2000000):
            assert p.client.exchange(request.with_body(body)).failure is None
        assert len(set(p.connections)) == 1
    assert [len(r.body) for r in seen] == [3, 0, 2000000]
    assert {r.headers["x-a"] for r in seen} == {"1"}


def test_users_do_not_wait_for_each_other() -> None:
    with pair(lambda request: Answer(after_s=0.3)) as p:
        clients = [HttpClient(p.client.site, PATIENT_S, PATIENT_S) for _ in range(20)]
        started = time.perf_counter()
        jobs = [gevent.spawn(client.exchange, p.request()) for client in clients]
        gevent.joinall(jobs, timeout=PATIENT_S)
        assert [job.value.failure for job in jobs] == [None] * 20
        assert time.perf_counter() - started < 20 * 0.3
        for client in clients:
            client.close()


def test_two_users_of_one_client_are_told_apart_from_one() -> None:
    with pair(Answer(after_s=0.3, body=b"ok")) as p:
        job = gevent.spawn(p.ask)
        gevent.sleep(0.1)
        with pytest.raises(RuntimeError, match="one exchange at a time"):
            p.ask()
        assert job.get(timeout=PATIENT_S) == (200, b"ok", None)
        assert len(p.connections) == 1


def test_a_killed_user_leaves_no_half_read_answer() -> None:
    with pair(lambda request: Answer(after_s=0.3, body=b"%d" % request.number)) as p:
        job = gevent.spawn(p.ask)
        gevent.sleep(0.1)
        job.kill()
        assert p.ask()[1:] == (b"1", None)
        assert len(set(p.connections)) == 2


def test_more_than_1024_open_files() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    opened = []
    try:
        with pair(idle_timeout_s=2.0) as p:
            opened = [os.dup(0) for _ in range(1100)]
            assert p.ask()[2] is None
            gevent.sleep(1.1)
            assert p.ask()[2] is None
            gevent.sleep(2.5)
            assert p.ask()[2] is None
            assert len(set(p.connections)) == 2
    finally:
        for number in opened:
            os.close(number)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_no_file_left_to_open() -> None:
    assert describe(OSError(24, "x")) == "too many open files"
    assert describe(OSError(99, "x")) == "no local port left"
    assert describe(OSError(5, "secret")) == "no response: OSError"


def test_no_secret_in_what_a_request_says_of_itself() -> None:
    request = Site.of("http://h").request("POST", "/", {"X-Auth-Token": "secret"}, b"secret")
    assert "secret" not in repr(request)


def test_an_ipv6_server() -> None:
    with socket.socket(socket.AF_INET6) as listener:
        try:
            listener.bind(("::1", 0))
        except OSError:
            pytest.skip("this machine has no IPv6")
        listener.listen()
        client = HttpClient(Site.of(f"http://[::1]:{listener.getsockname()[1]}"), PATIENT_S, 0.2)
        assert client.exchange(client.site.request("GET", "/", {})).failure == "timed out"
        connection, _ = listener.accept()
        with connection:
            assert b"\r\nHost: [::1]:" in connection.recv(1000)
