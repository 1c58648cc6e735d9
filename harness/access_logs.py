"""What a server's own access logs say of a run: answers counted by second, status and who gave them, line by line."""

from __future__ import annotations

import csv
import dataclasses
import time
from collections import Counter
from pathlib import Path

from analysis.record import SERVER_COUNTS_COLUMNS

SETTLE_S = 0.2
"""A line is written just after the answer: logs that have not grown for so long are whole."""
SETTLE_LIMIT_S = 5.0
LONGEST_LINE_BYTES = 65_536


@dataclasses.dataclass(frozen=True)
class AccessLogs:
    """Logs whose lines begin with `time|status|upstream addresses|upstream header times|`, as nginx writes them."""

    paths: dict[str, Path] = dataclasses.field(default_factory=dict)
    """Name of the process to the log that it writes."""
    addresses: dict[str, str] = dataclasses.field(default_factory=dict)
    """"127.0.0.1:8101" to the name of the process that listens there."""

    def sizes(self) -> dict[str, int]:
        """Bytes written so far, by process; what is counted of a run begins there."""
        return {part: path.stat().st_size if path.exists() else 0 for part, path in self.paths.items()}

    def write_counts(self, output: Path, begin: dict[str, int]) -> None:
        """Write SERVER_COUNTS_COLUMNS for what was logged after `begin`, once nothing is added any more."""
        self._settle()
        with output.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(SERVER_COUNTS_COLUMNS)
            for part, path in self.paths.items():
                counts = count(path, begin[part], self.addresses)
                writer.writerows((s, part, upstream, status, n) for (s, upstream, status), n in sorted(counts.items()))

    def _settle(self) -> None:
        deadline = time.monotonic() + SETTLE_LIMIT_S
        before = self.sizes()
        while time.monotonic() < deadline:
            time.sleep(SETTLE_S)
            if (now := self.sizes()) == before:
                return
            before = now


def count(path: Path, begin: int, addresses: dict[str, str]) -> Counter[tuple[int, str, int]]:
    """(Unix second, who answered, status) to how many lines, from byte `begin` on. A torn last line is left out.

    Who answered is the last upstream that sent a header; "" where there is none.
    """
    counts: Counter[tuple[int, str, int]] = Counter()
    if not path.exists():
        return counts
    with path.open("rb") as log:
        log.seek(begin)
        while line := log.readline(LONGEST_LINE_BYTES):
            fields = line.decode("utf-8", errors="replace").split("|", 4)
            if len(fields) < 4 or not (line.endswith(b"\n") or len(line) == LONGEST_LINE_BYTES):
                continue
            second, status, tried, times = fields[:4]
            if status.isdecimal() and (whole := second.partition(".")[0]).isdecimal():
                counts[int(whole), _answered(tried, times.strip(), addresses), int(status)] += 1
    return counts


def _answered(tried: str, times: str, addresses: dict[str, str]) -> str:
    # Of several tries only the last can have answered; "-" is the time of a header that never came.
    last, took = (text.replace(" : ", ", ").rsplit(", ", 1)[-1] for text in (tried, times))
    return "" if took in ("", "-") else addresses.get(last, last)
