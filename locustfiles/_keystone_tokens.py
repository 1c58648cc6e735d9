"""Tokens that stay valid through a load that outlasts them: each is replaced shortly before it expires.

That is done beside the load, by requests with the set-up user agent, so that no measured request waits for it. How
often it happened is recorded, as the fact `expired_tokens_count`.
"""

# mypy: allow-untyped-calls
# (gevent is not typed.)

from __future__ import annotations

import logging
import time
from collections.abc import Callable

import gevent
from _errors import NotReady
from _keystone import Token
from _keystone_setup import MAKERS
from _response_times import record_fact
from gevent.pool import Pool
from locust.env import Environment

EARLY_S = 30.0
"""So long before its end a token is replaced, or after three quarters of a short life."""
AGAIN_S = 5.0
"""Time between two attempts to replace a token that Keystone refuses to."""

log = logging.getLogger(__name__)


class KeptToken:
    """A token, and how another one takes its place."""

    def __init__(self, token: Token, issue: Callable[[], Token], use: Callable[[Token], None]) -> None:
        """`token` was issued just now. `use` puts a token into requests; it is called at once, too."""
        self._issue, self._use = issue, use
        self._take(token)

    @property
    def is_expired(self) -> bool:
        """Its lifetime is over, by our clock."""
        return time.monotonic() >= self.expires_s

    def replace(self) -> None:
        """Have another token issued. Raises NotReady where Keystone refuses."""
        self._take(self._issue())

    def put_off(self) -> None:
        """Try again a little later."""
        self.due_s = time.monotonic() + AGAIN_S

    def _take(self, token: Token) -> None:
        now = time.monotonic()
        self.expires_s = now + token.lifetime_s
        self.due_s = self.expires_s - min(EARLY_S, token.lifetime_s / 4)
        self._use(token)


class TokenKeeper:
    """Replaces the tokens of one process while it runs."""

    def __init__(self, environment: Environment, tokens: list[KeptToken]) -> None:
        """Begins at once."""
        self._environment = environment
        self._tokens = tokens
        self._replaced = 0
        self._greenlet = gevent.spawn(self._keep)

    def stop(self) -> None:
        """Replace no more."""
        self._greenlet.kill()

    def _keep(self) -> None:
        while self._tokens:
            wait_s = min(token.due_s for token in self._tokens) - time.monotonic()
            # No longer than that at once: the sleep of a machine that was suspended would be too long.
            gevent.sleep(min(max(wait_s, 0.0), EARLY_S / 2))
            now = time.monotonic()
            Pool(MAKERS).map(self._replace, [token for token in self._tokens if token.due_s <= now])

    def _replace(self, token: KeptToken) -> None:
        try:
            token.replace()
        except NotReady as error:
            log.warning("A token expires and is not replaced: %s", error)
            token.put_off()
            return
        self._replaced += 1
        record_fact(self._environment, "expired_tokens_count", self._replaced)
