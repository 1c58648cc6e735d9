"""Answers as the server's own access log counts them, held against those that the load generator saw.

Both count the whole run, its warm-up among it. The log is that of the part which the generator talks to: BALANCER.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pandas as pd

from analysis.csv_tables import Oddity, read_table
from analysis.record import RESPONSE_TIME_COLUMNS, SERVER_COUNTS_COLUMNS, RunRecord

BALANCER = "balancer"
SERVER_COUNTS = ("server_counts", "server_counts.csv")
"""Role and pattern of the files."""
WARM_UP_RESPONSE_TIMES = ("warm_up_response_times", "warm_up/response_times/*.csv")
"""Of the pass before a budget: it is in the logs, too."""
CLIENT_LEFT = "499"
"""nginx's word for a request whose client did not wait for the answer."""
USUAL_STATUS = "200"


@dataclasses.dataclass(frozen=True)
class Answers:
    """Answers of one run by HTTP status, as text."""

    generator: dict[str, int]
    server: dict[str, int]
    unanswered: int
    """Requests of which the generator saw no answer: the server may have logged one all the same."""

    @property
    def apart(self) -> dict[str, tuple[int, int]]:
        """Statuses that were counted differently: (generator, server)."""
        statuses = sorted({*self.generator, *self.server} - {CLIENT_LEFT})
        counts = {status: (self.generator.get(status, 0), self.server.get(status, 0)) for status in statuses}
        return {status: pair for status, pair in counts.items() if pair[0] != pair[1]}

    @property
    def disagree(self) -> bool:
        """Whether more is apart than requests without an answer explain, or the generator saw what nobody sent."""
        counts = self.apart.values()
        logged_only = sum(max(server - generator, 0) for generator, server in counts)
        return logged_only > self.unanswered or any(generator > server for generator, server in counts)


def read(
    path: Path, run: RunRecord, rows: pd.DataFrame, warm_up: Iterable[Path], files: Iterable[Path],
    oddities: list[Oddity],
) -> Answers | None:  # fmt: skip
    """`rows`: RESPONSE_TIME_COLUMNS of the run. None where the server kept no log that was counted."""
    logged: Counter[str] = Counter()
    tables = [read_table(file, SERVER_COUNTS_COLUMNS, run.number, path, oddities) for file in files]
    if not tables:
        return None
    for table in tables:
        own = table[(table["part"].astype("str") == BALANCER).to_numpy()]
        logged.update(_summed(own, "status"))
    before = [read_table(file, RESPONSE_TIME_COLUMNS, run.number, path, oddities) for file in warm_up]
    seen: Counter[str] = Counter()
    for table in (rows, *before):
        once = table[(table["clock"].astype("str") != "service").to_numpy()]
        seen.update(_summed(once, "outcome"))
    expected, answers, unanswered = _expected_status(run), Counter[str](), 0
    for outcome, count in seen.items():
        status = _status(outcome, expected)
        if status is None:
            unanswered += count
        else:
            answers[status] += count
    return Answers(dict(answers), dict(logged), unanswered)


def _summed(table: pd.DataFrame, column: str) -> dict[str, int]:
    sums = table.groupby(table[column].astype("str"))["count"].sum()
    return {str(name): int(count) for name, count in sums.items()}


def _status(outcome: str, expected: str) -> str | None:
    """Of an outcome in the locustfile's words; None where no status was seen."""
    if outcome in ("success", "unexpected size"):
        return expected
    found = re.match(r"([1-5][0-9][0-9])\b", outcome)
    return found and found[1]


def _expected_status(run: RunRecord) -> str:
    command = run.locust.get("command")
    words = [str(word) for word in command] if isinstance(command, list) else []
    return next((value for word, value in itertools.pairwise(words) if word == "--expected-status"), USUAL_STATUS)
