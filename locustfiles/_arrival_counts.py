"""What became of the arrivals: counts for each second and in all. No clock, no file."""

from __future__ import annotations

from collections import Counter, defaultdict

FIELDS = ("offered", "started", "late", "late_all_busy", "dropped", "unstarted", "unanswered")
"""What is counted.

offered        intended to start
started        requests made for them
late           of the started: later than LATE_S after the intended start
late_all_busy  of the late: all users were busy until it started. The rest is the generator's own lateness
dropped        later than --max-lateness and so never started
unstarted      neither started nor dropped when the test was over
unanswered     of the started: given up at the end, after --stop-timeout; they are in no table, and were the slowest

For the whole test offered = started + dropped + unstarted, and started = answered + unanswered, failures among the
answered. A second's count is of what happened in it: an arrival that
is offered in one second may be started in another.
"""

LATE_S = 0.005
"""An arrival that starts later than this after its intended start is late.

Far above what a healthy generator takes to wake up (0.02 ms in the median, under 1 ms in 99 of 100), and far below the
waits that a stall or too few users cause. Every lateness, late or not, is part of the response time.
"""


class ArrivalCounts:
    """Counts of one process and test."""

    def __init__(self) -> None:
        self.totals: Counter[str] = Counter()
        self.answered = 0
        self.in_flight = 0
        self.in_flight_max = 0
        self._seconds: defaultdict[int, Counter[str]] = defaultdict(Counter)
        self._in_flight_max = 0

    def add(self, second: int, field: str, count: int = 1) -> None:
        """Count something that happened in this Unix second."""
        self.totals[field] += count
        self._seconds[second][field] += count

    def start(self, second: int, lateness_s: float, all_busy: bool) -> None:
        """A request starts."""
        self.add(second, "started")
        if lateness_s > LATE_S:
            self.add(second, "late")
            if all_busy:
                self.add(second, "late_all_busy")
        self.in_flight += 1
        self._in_flight_max = max(self._in_flight_max, self.in_flight)
        self.in_flight_max = max(self.in_flight_max, self.in_flight)

    def end(self, second: int, answered: bool) -> None:
        """A request has ended, by an answer or a failure, or because its user was killed."""
        self.in_flight -= 1
        self.answered += answered
        if not answered:
            self.add(second, "unanswered")

    @property
    def waiting(self) -> int:
        """Arrivals that have been offered and neither started nor dropped yet."""
        return self.totals["offered"] - self.totals["started"] - self.totals["dropped"]

    def take(self, second: int) -> dict[str, int]:
        """The counts of everything up to this second that has not been taken yet, and the most in flight since."""
        counts: Counter[str] = Counter()
        for key in [key for key in self._seconds if key <= second]:
            counts.update(self._seconds.pop(key))
        peak, self._in_flight_max = self._in_flight_max, self.in_flight
        return {**{field: counts[field] for field in FIELDS}, "in_flight_max": peak}

    def summary(self) -> dict[str, int]:
        """The whole test."""
        totals = {field: self.totals[field] for field in FIELDS}
        return {**totals, "answered": self.answered, "in_flight_max": self.in_flight_max}
