"""What every HTTP workload shares: how connections behave, and how their failures are named."""

from __future__ import annotations

from typing import Any

import gevent.ssl
from _options import think_time
from locust import FastHttpUser
from locust.contrib.fasthttp import ResponseContextManager

TIMEOUT_S = 60.0
"""A request that is not answered by then is a failure."""


class HttpLoadUser(FastHttpUser):
    """A user with one keep-alive connection, no cookies and no redirects: what the server answers is what is judged."""

    abstract = True
    wait_time = think_time
    connection_timeout = TIMEOUT_S
    network_timeout = TIMEOUT_S
    insecure = False

    def on_start(self) -> None:
        """Let every status through to the workload's own judgement."""
        agent: Any = self.client.client
        # Otherwise Locust's client raises for a failure status, and the exception carries a transcript of the request,
        # password and all.
        agent.valid_response_codes = frozenset(range(100, 600))
        agent.redirect_response_codes = frozenset()
        agent.cookiejar = None


class TlsContext:
    """One TLS context for all users of a process: reading the certificates for each of them takes seconds."""

    def __init__(self, verify: bool | str) -> None:
        """`verify`: True for the system's authorities, a file's name for another one, False for no check at all."""
        self._context = gevent.ssl.create_default_context(cafile=verify if isinstance(verify, str) else None)
        if verify is False:
            self._context.check_hostname = False
            self._context.verify_mode = gevent.ssl.CERT_NONE

    def __call__(self, cafile: str | None = None) -> gevent.ssl.SSLContext:
        """The signature geventhttpclient wants; its own choice of `cafile` is left out."""
        return self._context


def connection_failure(response: ResponseContextManager) -> str | None:
    """Why there is no whole response, in words that are the same every time; None where there is one."""
    error = response.request_meta["exception"]
    if error is None:
        return None
    words = describe(error)
    # A server that fails in the middle of an answer has said its status first, and that tells more.
    return f"{response.status_code}, then {words}" if response.status_code else words


def describe(error: BaseException) -> str:
    """A connection's failure in a few fixed words."""
    text = f"{type(error).__name__} {error}".lower()
    for sign, words in _SIGNS:
        if sign in text:
            return words
    return f"no response: {type(error).__name__}"


_SIGNS = (
    ("timeout", "timed out"),
    ("timed out", "timed out"),
    ("refused", "connection refused"),
    ("reset", "connection reset"),
    ("broken pipe", "connection reset"),
    ("httpconnectionclosed", "connection closed without a response"),
    ("connection closed", "connection closed without a response"),
    ("certificate", "TLS certificate not accepted"),
    ("ssl", "TLS failed"),
    ("parse", "not a valid HTTP response"),
    ("name or service not known", "host name not found"),
    ("unreachable", "network unreachable"),
)
