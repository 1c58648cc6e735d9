"""What a long analysis is at, and how long it will still read. Says nothing about one that is over in a moment."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Self, TextIO

QUIET_S = 5.0
"""So long it says nothing at all."""
PIPE_PERIOD_S = 15.0
TERMINAL_PERIOD_S = 0.5
_CLEAR = "\r\x1b[K"


class Progress:
    """One line that is written over and over on a terminal; elsewhere a line every now and then."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream, self._clock = stream, clock
        self._is_terminal = stream.isatty()
        self._began_s = self._reading_since_s = clock()
        self._next_s = self._began_s + QUIET_S
        self._is_dirty = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the terminal's line empty, for what comes next."""
        if self._is_dirty:
            self._write(_CLEAR)

    def runs_read(self, done: int, of: int) -> None:
        """`done` of a folder's runs are read."""
        now_s = self._clock()
        if done <= 1:
            self._reading_since_s = now_s
        elif now_s >= self._next_s:
            left_s = (now_s - self._reading_since_s) / (done - 1) * (of - done)
            self._show(f"read {done} of {of} runs, about {left_s:.0f} s left to read", now_s)

    def says(self, what: str) -> None:
        """The next thing begins."""
        now_s = self._clock()
        if now_s >= self._began_s + QUIET_S:
            self._show(what, now_s)

    def _show(self, text: str, now_s: float) -> None:
        self._next_s = now_s + (TERMINAL_PERIOD_S if self._is_terminal else PIPE_PERIOD_S)
        self._is_dirty = self._is_terminal
        self._write(_CLEAR + text if self._is_terminal else text + "\n")

    def _write(self, text: str) -> None:
        """Whoever does not read it misses nothing."""
        try:
            self._stream.write(text)
            self._stream.flush()
        except OSError:
            self._next_s = float("inf")
