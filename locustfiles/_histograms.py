"""Response-time histograms: counts for each second, endpoint, outcome, clock and bucket. No file, no clock of its own.

Counts of several processes add up exactly, which percentiles do not.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

SUB_BUCKETS = 128
"""Buckets in each octave. Their middle is within 1/256 of every value they hold."""
RELATIVE_ERROR = 1 / (2 * SUB_BUCKETS)

MAX_ENDPOINTS = 1000
MAX_OUTCOMES = 200
OTHER_ENDPOINTS = "other endpoints"
OTHER_FAILURES = "other failures"
MAX_TEXT = 200

Key = tuple[int, str, str, str, int]


def bucket_us(value_us: int) -> int:
    """Representative of the bucket that holds `value_us` microseconds: exact below 256, else within 1/256."""
    if value_us < 2 * SUB_BUCKETS:
        return value_us
    shift = value_us.bit_length() - 8
    return ((value_us >> shift) << shift) + (1 << (shift - 1))


def outcome_of(exception: Exception | None) -> str:
    """The outcome in words, on one line: "success", what the locustfile said, or the exception's name and message."""
    if exception is None:
        return "success"
    text = str(exception)
    if type(exception).__name__ != "CatchResponseError":  # Locust's wrapper around the locustfile's own words
        text = f"{type(exception).__name__}: {text}" if text else type(exception).__name__
    # an address in memory would make every failure one of its own
    text = re.sub(r"0x[0-9a-fA-F]{6,}", "0x…", text)
    return re.sub(r"\s+", " ", text).strip()[:MAX_TEXT] or "failure without a message"


class Histograms:
    """Counts of the seconds that have not been written yet. No clock, no file: `clock` gives Unix seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._counts: dict[Key, int] = {}
        self._endpoints: dict[tuple[str, str], str] = {}
        self._outcomes: dict[str, str] = {}

    def on_request(
        self,
        request_type: str,
        name: str,
        response_time: float | None,
        exception: Exception | None = None,
        service_time: float | None = None,
        **_: Any,
    ) -> None:
        """Locust's `request` event: one response, times in ms. Runs for every request: keep it lean.

        `service_time` is there in the open model only.
        """
        if response_time is None:  # Locust allows events that are not a measurement
            return
        endpoint = self._endpoints.get((request_type, name)) or self._new_endpoint(request_type, name)
        outcome = "success" if exception is None else self._failure(exception)
        second = int(self._clock())
        response_us = bucket_us(int(response_time * 1000 + 0.5))
        if service_time is None:  # the closed model: a request starts when it is meant to, and the two are one number
            self._count((second, endpoint, outcome, "both", response_us))
            return
        self._count((second, endpoint, outcome, "response", response_us))
        self._count((second, endpoint, outcome, "service", bucket_us(int(service_time * 1000 + 0.5))))

    def add(self, endpoint: str, outcome: str, clock: str, value_us: int) -> None:
        """Count one response that is complete now; `clock` is "response", "service", or "both" where they coincide."""
        self._count((int(self._clock()), endpoint, outcome, clock, bucket_us(value_us)))

    def _count(self, key: Key) -> None:
        self._counts[key] = self._counts.get(key, 0) + 1

    def take(self, before_second: int | None = None) -> list[tuple[Any, ...]]:
        """Remove and return the rows (COLUMNS) of all seconds before `before_second`; of all, where that is None."""
        done = [key for key in self._counts if before_second is None or key[0] < before_second]
        return [(*key, self._counts.pop(key)) for key in done]

    def _new_endpoint(self, request_type: str, name: str) -> str:
        if len(self._endpoints) >= MAX_ENDPOINTS:  # names made from a server's data must not fill the memory
            return OTHER_ENDPOINTS
        text = re.sub(r"\s+", " ", f"{request_type} {name}").strip()[:MAX_TEXT]
        return self._endpoints.setdefault((request_type, name), text)

    def _failure(self, exception: Exception) -> str:
        outcome = outcome_of(exception)
        if outcome in self._outcomes or len(self._outcomes) < MAX_OUTCOMES:
            return self._outcomes.setdefault(outcome, outcome)
        return OTHER_FAILURES
