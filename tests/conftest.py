"""What holds for all tests."""

from __future__ import annotations

import signal
import sys

import pytest

# Started in the background, by some shells and by pytest-xdist, this process ignores Ctrl-C, and so would every Locust.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """No test may import Locust: it replaces the sockets and threads of the whole process by gevent's."""
    if "locust.env" in sys.modules:
        raise pytest.UsageError("a test imports Locust, or a locustfile that does; run it as a process of its own.")
