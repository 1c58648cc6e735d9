"""What every HTTP workload shares: a user with one connection, and Locust's `request` event for each request."""

# mypy: allow-untyped-calls
# (Locust's event hooks are not typed.)

from __future__ import annotations

import http
import time
from collections.abc import Callable, Mapping
from typing import Any

from _http_client import TIMEOUT_S, HttpClient, Request, Site
from _http_parser import Response
from _options import think_time
from locust import User
from locust.env import Environment
from locust.exception import CatchResponseError

Judge = Callable[[Response], str | None]
"""None for a success, else the failure in words that are the same every time."""


def status_words(status: int) -> str:
    """A status as a failure's name: "502 Bad Gateway"."""
    try:
        return f"{status} {http.HTTPStatus(status).phrase}"
    except ValueError:
        return f"{status} unknown status"


class HttpLoadUser(User):
    """A user with one keep-alive connection, no cookies and no redirects: what the server answers is what is judged."""

    abstract = True
    wait_time = think_time
    connect_timeout_s = TIMEOUT_S
    read_timeout_s = TIMEOUT_S
    site: Site | None = None
    """Where the server is; without it: --host."""

    def __init__(self, environment: Environment) -> None:
        """Opens nothing yet."""
        super().__init__(environment)
        site = self.site or Site.of(self.host or "")
        self.client = HttpClient(site, self.connect_timeout_s, self.read_timeout_s)

    def on_stop(self) -> None:
        """Close the connection. A workload with an on_stop of its own calls this one, too."""
        self.client.close()

    def ask(self, request: Request, name: str, judge: Judge, context: Mapping[str, Any] | None = None) -> Response:
        """Send a request, judge the answer, and fire Locust's `request` event, once. The verdict is `failure`.

        The event's context is that of context(), Locust's hook for it, with `context` added. Response time runs from
        before a connection is opened, where one must be, to the last byte; judging does not count.
        """
        start_time = time.time()
        response = self.client.exchange(request)
        try:
            if response.failure is None:
                response.failure = judge(response)
        except Exception as error:
            response.failure = f"could not be judged: {type(error).__name__}"
            raise
        finally:
            self._fire(request, name, response, start_time, context)
        return response

    def _fire(
        self, request: Request, name: str, response: Response, start_time: float, context: Mapping[str, Any] | None
    ) -> None:
        own = self.context()
        # Without the response, which Locust's own clients add: it may hold a token, and listeners may be anyone's.
        self.environment.events.request.fire(
            request_type=request.method,
            name=name,
            response_time=(response.last_byte_s or 0.0) * 1000,
            response_length=len(response.body),
            exception=None if response.failure is None else CatchResponseError(response.failure),
            context={**own, **context} if context else own,
            start_time=start_time,
            url=request.url,
        )
