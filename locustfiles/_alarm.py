"""A timer that is punctual: gevent's own wakes up to a millisecond late, because epoll counts in milliseconds.

On Linux it is a timerfd, which the event loop waits for like for a socket: measured at 1000 alarms a second, median
0.02 ms late instead of 0.55 ms, at no more CPU. Elsewhere it is gevent's timer.
"""

# mypy: allow-untyped-calls

from __future__ import annotations

import ctypes
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import gevent

_SET_ABSOLUTE = 1  # TFD_TIMER_ABSTIME
_READABLE = 1


class Alarm:
    """Calls `ring` in the event loop's own greenlet at the last time that was set, once. It must not block there."""

    def __init__(self, ring: Callable[[], None]) -> None:
        self._ring = ring
        self._loop: Any = gevent.get_hub().loop
        self._file = _timerfd()
        self._watcher: Any = None
        if self._file >= 0:
            self._watcher = self._loop.io(self._file, _READABLE)
            self._watcher.start(self._on_readable)

    def set(self, moment_s: float) -> None:
        """Ring at `moment_s` of time.monotonic(), or at once where that is over; replaces what was set before."""
        if self._file >= 0:
            _settime(self._file, moment_s)
            return
        self.cancel()
        self._watcher = self._loop.timer(max(0.0, moment_s - time.monotonic()))
        self._watcher.start(self._ring, update=True)

    def cancel(self) -> None:
        """Do not ring."""
        if self._file >= 0:
            _settime(self._file, 0.0)
        elif self._watcher is not None:
            self._watcher.stop()

    def close(self) -> None:
        """Free the file; the alarm is of no use any more."""
        if self._watcher is not None:
            self._watcher.stop()
            self._watcher.close()
            self._watcher = None
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _on_readable(self) -> None:
        try:
            os.read(self._file, 8)
        except BlockingIOError:  # set anew between the loop's look and this call
            return
        self._ring()


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _Timer(ctypes.Structure):
    _fields_ = (("interval", _Timespec), ("value", _Timespec))


_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def _timerfd() -> int:
    """A new timerfd on the clock of time.monotonic(); -1 where there is no such thing."""
    if _libc is None or not hasattr(_libc, "timerfd_create"):
        return -1
    return int(_libc.timerfd_create(time.CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC))


def _settime(file: int, moment_s: float) -> None:
    """Zero disarms; a moment that is over rings at once."""
    seconds = int(moment_s)
    timer = _Timer(value=_Timespec(seconds, int((moment_s - seconds) * 1e9)))
    _libc.timerfd_settime(file, _SET_ABSOLUTE, ctypes.byref(timer), None)  # type: ignore[union-attr]
