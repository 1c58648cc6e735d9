from __future__ import annotations

import io

from analysis.progress import PIPE_PERIOD_S, QUIET_S, Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Gone(io.StringIO):
    def write(self, text: str) -> int:
        raise BrokenPipeError


def read(stream: io.StringIO, seconds_a_run: float, runs: int = 100) -> str:
    """What is said while `runs` runs are read, then compared."""
    now_s = 0.0

    def clock() -> float:
        return now_s

    with Progress(stream, clock) as progress:
        for done in range(1, runs + 1):
            now_s += seconds_a_run
            progress.runs_read(done, runs)
        progress.says("comparing")
    return stream.getvalue()


def test_what_is_over_in_a_moment_needs_no_progress() -> None:
    assert read(io.StringIO(), 0.9 * QUIET_S / 100) == ""


def test_in_a_pipe_a_line_now_and_then() -> None:
    *lines, last = read(io.StringIO(), 1.0).splitlines()
    assert lines[0] == f"read {QUIET_S:.0f} of 100 runs, about 95 s left to read"
    assert len(lines) == 1 + (100 - QUIET_S) // PIPE_PERIOD_S
    assert last == "comparing"


def test_on_a_terminal_one_line_which_is_empty_at_the_end() -> None:
    text = read(Terminal(), 1.0)
    assert "\n" not in text
    assert "\r\x1b[Kread 50 of 100 runs, about 50 s left to read\r" in text
    assert text.endswith("\r\x1b[Kcomparing\r\x1b[K")


def test_nobody_has_to_read_it() -> None:
    read(Gone(), 1.0)
