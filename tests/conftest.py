"""What holds for all tests."""

from __future__ import annotations

import signal

# Started in the background, by some shells and by pytest-xdist, this process ignores Ctrl-C, and so would every Locust.
signal.signal(signal.SIGINT, signal.default_int_handler)
