"""What is odd in the files of one imported run, collected: equal oddities of a file are one, with their lines."""

from __future__ import annotations

from analysis.importers.redaction import redact
from analysis.load import Oddity
from analysis.printable import printable

MOST_LINES = 6
"""Line numbers that an oddity names; the others are counted."""


class Oddities:
    """Of one run. A file with a million bad lines is one oddity, and not a million."""

    def __init__(self, run: int) -> None:
        self._run = run
        self._lines: dict[tuple[str, str, bool], list[int]] = {}

    def note(self, file: str, what: str, line: int | None = None, loses_data: bool = False) -> None:
        """Keep an oddity of `file`. `loses_data`: a number that a verdict may rest on is lost or doubtful by it."""
        self._lines.setdefault((file, what, loses_data), []).extend([] if line is None else [line])

    def found(self) -> tuple[Oddity, ...]:
        """All oddities, in the order in which they were met; the file as NAME:LINE where a line is known."""
        return tuple(
            Oddity(self._run, _place(file, lines), what + _further(lines), loses_data)
            for (file, what, loses_data), lines in self._lines.items()
        )


def _place(file: str, lines: list[int]) -> str:
    """A file's own name is text of somebody else's, too."""
    name = printable(redact(file))
    return f"{name}:{lines[0]}" if lines else name


def _further(lines: list[int]) -> str:
    if len(lines) < 2:
        return ""
    shown = ", ".join(str(line) for line in lines[1:MOST_LINES])
    more = f" and {len(lines) - MOST_LINES} more" if len(lines) > MOST_LINES else ""
    return f" ({len(lines)} times: also in line {shown}{more})"
