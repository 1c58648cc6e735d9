"""The summary of one run: PREFIX_stats.csv, or PREFIX_requests.csv and PREFIX_distribution.csv before Locust 0.13.

The columns are those that the versions in tests/fixtures/locust_csv wrote. A number that the file itself contradicts (a
percentile above the maximum, zero where the minimum is more) is left missing, and said.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from analysis.endpoints import ALL_REQUESTS, told_apart
from analysis.importers.csv_rows import Row, Table, read_table
from analysis.importers.harmless import harmless
from analysis.importers.oddities import Oddities
from analysis.record import RecordError

STATS, REQUESTS, DISTRIBUTION = "_stats.csv", "_requests.csv", "_distribution.csv"

REQUEST_COUNT = ("Request Count", "# requests")
FAILURE_COUNT = ("Failure Count", "# failures")
RATE = ("Requests/s",)
FAILURE_RATE = ("Failures/s", "Requests Failed/s")
MEAN = ("Average Response Time", "Average response time")
MIN = ("Min Response Time", "Min response time")
MAX = ("Max Response Time", "Max response time")
TYPE = ("Type", "Method")
NEEDED = (("Name",), TYPE, REQUEST_COUNT, FAILURE_COUNT, RATE, MEAN, MIN, MAX)
PERCENTILES = {"p50": "50%", "p90": "90%", "p95": "95%", "p99": "99%"}
_PERCENTILE_COLUMN = re.compile(r"([0-9]{1,3}(?:\.[0-9]+)?)%?")


@dataclasses.dataclass(frozen=True)
class Summary:
    """One row: an endpoint or all requests. None where the file does not say, or contradicts itself."""

    line: int
    endpoint: str
    requests: int | None
    """As the file counts them; the times are of these."""
    responses: int | None
    failures: int | None
    throughput: float | None
    """Successful responses a second, from the run's first request to its last."""
    times_ms: dict[str, float | None]
    """min, mean, max and percentiles, by the names of metrics.METRICS."""

    @property
    def success_ratio(self) -> float | None:
        """None without a response."""
        if not self.responses or self.failures is None:
            return None
        return (self.responses - self.failures) / self.responses

    def values(self) -> Iterator[tuple[str, float | None, int]]:
        """(metric, value, samples) for each metric that the file may hold."""
        yield "throughput", self.throughput, self.responses or 0
        yield from ((name, value, self.requests or 0) for name, value in self.times_ms.items())
        yield "success_ratio", self.success_ratio, self.responses or 0
        yield "count", self.responses, self.responses or 0


def read_summaries(file: Path, oddities: Oddities) -> list[Summary]:
    """The rows of a summary, all requests under ALL_REQUESTS. Raises RecordError where it is none of Locust's."""
    table = read_table(file, oddities)
    missing = [names[0] for names in NEEDED if not set(names) & set(table.columns)]
    if missing:
        raise RecordError(f"{file}: not a summary of `locust --csv`; it lacks {', '.join(missing)}.")
    if not table.rows:
        raise RecordError(f"{file}: holds no whole row. Was Locust stopped before its first response?")
    distribution = _distribution(file, oddities) if file.name.endswith(REQUESTS) else {}
    failures_are_in = _failures_are_in(table, file, distribution)
    summaries = []
    for row in table.rows:
        percentiles = distribution.get(_key(row), row if not distribution else None)
        summaries.append(_summary(table, row, percentiles, failures_are_in, oddities))
    kept = _told_apart(summaries, table.file, oddities)
    _check_total(kept, table.file, oddities)
    return kept


def is_total(row: Row) -> bool:
    """Whether a row stands for all requests: it has no type, and the name that no version gives to a request."""
    return row.text("Name") in ("Aggregated", "Total") and row.text(*TYPE) in ("", "None")


def endpoint_of(row: Row, file: str, oddities: Oddities) -> str:
    """Endpoint of a row as it may be shown."""
    name = harmless(f"{row.text(*TYPE)} {row.text('Name')}".strip(), file, row.line, oddities)
    if told_apart(name) != name:
        oddities.note(file, f"an endpoint is called as all of them together; shown as {told_apart(name)!r}", row.line)
    return told_apart(name)


# --- before 0.13 -----------------------------------------------------------------------------------------------------


def _key(row: Row) -> str:
    return "Total" if is_total(row) else f"{row.text(*TYPE)} {row.text('Name')}"


def _distribution(file: Path, oddities: Oddities) -> dict[str, Row]:
    other = file.with_name(file.name.removesuffix(REQUESTS) + DISTRIBUTION)
    if not other.is_file():
        oddities.note(file.name, f"no {other.name} beside it: percentiles are unknown")
        return {}
    rows: dict[str, Row] = {}
    for row in read_table(other, oddities).rows:
        name = row.text("Name")
        rows["Total" if name == "None Total" else name] = row
    return rows


def _failures_are_in(table: Table, file: Path, distribution: dict[str, Row]) -> bool | None:
    """Whether "# requests" counts failures: from 0.12 on it does. None where the files of both look alike."""
    if not file.name.endswith(REQUESTS):
        return True
    counts = [(row.count(*REQUEST_COUNT), row.count(*FAILURE_COUNT)) for row in table.rows]
    known = [(requests, failures) for requests, failures in counts if requests is not None and failures is not None]
    if len(known) == len(counts) and not any(failures for _, failures in known):
        return True
    if any(failures > requests for requests, failures in known):
        return False
    # 0.8 alone calls the total "None Total".
    return False if any(row.text("Name") == "None Total" for row in distribution.values()) else None


# --- one row ---------------------------------------------------------------------------------------------------------


def _summary(
    table: Table, row: Row, percentiles: Row | None, failures_are_in: bool | None, oddities: Oddities
) -> Summary:
    file = table.file
    endpoint = ALL_REQUESTS if is_total(row) else endpoint_of(row, file, oddities)
    requests, failures = row.count(*REQUEST_COUNT), row.count(*FAILURE_COUNT)
    rate, failing = _rate(table, row, oddities), row.number(*FAILURE_RATE)
    _note_unreadable(row, oddities, file, endpoint)
    if failures_are_in is None:
        oddities.note(file, "versions before 0.12 leave failures out of the requests, 0.12 does not, and the file does "
                      "not say which it is: responses, throughput and success are unknown", row.line)  # fmt: skip
        responses, throughput = None, None
    elif failures_are_in:
        responses, throughput = requests, _success_rate(rate, failing, requests, failures)
        if requests is not None and failures is not None and failures > requests:
            oddities.note(file, "more failures than requests", row.line, loses_data=True)
            failures, throughput = None, None
    else:
        responses = None if requests is None or failures is None else requests + failures
        throughput = rate
    times = (
        _times(row, percentiles, oddities, file) if requests else dict.fromkeys(("min", "mean", "max", *PERCENTILES))
    )
    return Summary(row.line, endpoint, requests, responses, failures, throughput, times)


def _rate(table: Table, row: Row, oddities: Oddities) -> float | None:
    """Requests a second. It is the last field before 0.13, whose last line may be cut without a sign."""
    cut = table.columns[-1] in RATE and not re.fullmatch(r"[0-9]+\.[0-9]{2}", row.text(*RATE))
    if cut and table.joined_by_hand:
        oddities.note(table.file, "the rate may be cut off; left out", row.line, loses_data=True)
        return None
    return row.number(*RATE)


def _success_rate(
    rate: float | None, failing: float | None, requests: int | None, failures: int | None
) -> float | None:
    if rate is None or failures is None:
        return None
    if failing is not None:
        return rate - failing if rate >= failing else None
    # Without a rate of failures (0.12): both are over the same seconds.
    return rate * (requests - failures) / requests if requests and failures <= requests else None


def _note_unreadable(row: Row, oddities: Oddities, file: str, endpoint: str) -> None:
    columns = [REQUEST_COUNT, FAILURE_COUNT, RATE, MEAN, MIN, MAX]
    unreadable = [names[0] for names in columns if row.number(*names) is None]
    if unreadable:
        what = f"{endpoint}: no number in {', '.join(unreadable)}"
        oddities.note(file, what, row.line, loses_data=endpoint == ALL_REQUESTS)


# --- times -----------------------------------------------------------------------------------------------------------


def _times(row: Row, percentiles: Row | None, oddities: Oddities, file: str) -> dict[str, float | None]:
    low, mean, high = row.number(*MIN), row.number(*MEAN), row.number(*MAX)
    if low is not None and high is not None and low > high:
        oddities.note(file, "a minimum above the maximum; both are left out", row.line)
        low = high = None
    # Up to 1.0 all three are cut to whole milliseconds.
    if mean is not None and ((low is not None and mean < low - 1) or (high is not None and mean > high + 1)):
        oddities.note(file, "a mean outside minimum and maximum; left out", row.line)
        mean = None
    times = {"min": low, "mean": mean, "max": high}
    if percentiles is None:
        return times
    wrong = _contradicted(percentiles, low, high, oddities, file)
    present = {name: column for name, column in PERCENTILES.items() if column in percentiles.fields}
    return times | {n: None if c in wrong else percentiles.number(c) for n, c in present.items()}


def _contradicted(percentiles: Row, low: float | None, high: float | None, oddities: Oddities, file: str) -> set[str]:
    """Columns of percentiles that cannot be, each kind of contradiction noted."""
    wrong: set[str] = set()
    last: tuple[str, float] | None = None
    for column in _in_order(percentiles.fields):
        value = percentiles.number(column)
        problem = None
        if value is None:
            problem = "without a number"
        elif value == 0 and low is not None and low >= 1:
            problem = "of zero, and the minimum is more"
        elif high is not None and value > high + rounding_ms(high):
            problem = "above the maximum"
        elif low is not None and value < low - rounding_ms(low):
            problem = "below the minimum"
        elif last is not None and value < last[1]:
            problem = f"below the {last[0]} percentile"
            wrong.add(last[0])
        if problem:
            wrong.add(column)
            oddities.note(file, f"a percentile {problem}: {column}; left out", percentiles.line)
        elif value is not None:
            last = column, value
    return wrong


def rounding_ms(value_ms: float) -> float:
    """How far Locust's rounding may move a response time of this size, in ms.

    bucket_response_time() rounds to 1 ms below 100 ms, then to 10, 100 and 1000 ms; the CSV cuts to whole ms.
    """
    return 1.0 if value_ms < 100 else 5.0 if value_ms < 1000 else 50.0 if value_ms < 10_000 else 500.0


def _in_order(columns: Iterable[str]) -> list[str]:
    found = {name: float(m[1]) for name in columns if (m := _PERCENTILE_COLUMN.fullmatch(name)) and float(m[1]) <= 100}
    return sorted(found, key=lambda name: found[name])


# --- the file as a whole ---------------------------------------------------------------------------------------------


def _told_apart(summaries: list[Summary], file: str, oddities: Oddities) -> list[Summary]:
    """Each endpoint once: a repeated one gets a number, and two totals are none."""
    totals = [s for s in summaries if s.endpoint == ALL_REQUESTS]
    if len(totals) > 1:
        oddities.note(file, f"{len(totals)} rows for all requests; none of them is taken", totals[1].line, True)
    if not totals:
        oddities.note(file, "no Aggregated or Total row: it has no numbers for all requests", None, True)
    taken: dict[str, int] = {}
    kept = []
    for summary in summaries:
        if summary.endpoint == ALL_REQUESTS:
            kept += [summary] if len(totals) == 1 else []
            continue
        times = taken[summary.endpoint] = taken.get(summary.endpoint, 0) + 1
        if times > 1:
            oddities.note(file, "an endpoint's name again; it is shown with a number", summary.line)
            summary = dataclasses.replace(summary, endpoint=f"{summary.endpoint} ({times})")  # noqa: PLW2901
        kept.append(summary)
    return kept


def _check_total(summaries: list[Summary], file: str, oddities: Oddities) -> None:
    total = next((s for s in summaries if s.endpoint == ALL_REQUESTS), None)
    parts = [s for s in summaries if s.endpoint != ALL_REQUESTS]
    if total is None or not parts:
        return
    for name in ("responses", "failures"):
        counts = [getattr(part, name) for part in parts]
        whole = getattr(total, name)
        if whole is not None and None not in counts and sum(counts) != whole:
            what = f"the total counts {whole:,} {name}, its rows {sum(counts):,}"
            oddities.note(file, what, total.line, loses_data=abs(sum(counts) - whole) > 0.01 * whole)
