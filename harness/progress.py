"""What a person sees while an experiment runs: what is done, what is next, and the time left."""

from __future__ import annotations

import statistics
import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn
from rich.text import Text

from analysis.record import PlannedRun, RunRecord
from harness.experiment import Experiment
from harness.plan import run_s, start_s
from harness.server import Running


class TimeLeft:
    """Estimates what is left from what has been seen, and from first guesses before that."""

    def __init__(self, experiment: Experiment, planned: list[PlannedRun]) -> None:
        guesses = [run_s(experiment, run.treatment) for run in planned]
        self._run_guess_s = statistics.mean(guesses or [0.0])
        self._start_guess_s = start_s(experiment)
        self._runs = {run.number: run.server_number for run in planned}
        self._seen_runs: list[float] = []
        self._seen_starts: list[float] = []

    def started(self, seconds: float) -> None:
        """A server took this long to come up."""
        self._seen_starts.append(seconds)

    def ended(self, number: int, seconds: float) -> None:
        """A run took this long."""
        self._runs.pop(number, None)
        self._seen_runs.append(seconds)

    def seconds(self, server_up: int | None) -> float:
        """Seconds left, given the number of the server that is up."""
        a_run = statistics.median(self._seen_runs or [self._run_guess_s])
        a_start = statistics.median(self._seen_starts or [self._start_guess_s])
        starts = len(set(self._runs.values()) - {server_up})
        return a_run * len(self._runs) + a_start * starts


class _Left(ProgressColumn):
    """ "3:20 left", counting down between the events that correct it."""

    def render(self, task: Task) -> Text:
        due = task.fields.get("due")
        if due is None or task.finished:
            return Text("")
        left = max(0, round(due - time.monotonic()))
        return Text(f"about {left // 60}:{left % 60:02d} left")


class Display:
    """The harness's Watcher: a bar on a terminal, one line an event elsewhere."""

    def __init__(self, experiment: Experiment, planned: list[PlannedRun], total: int, console: Console) -> None:
        self._console = console
        self._left = TimeLeft(experiment, planned)
        self._total, self._done = total, total - len(planned)
        self._server: int | None = None
        self._began = time.monotonic()
        columns = (TextColumn("{task.description}"), BarColumn(bar_width=20), MofNCompleteColumn(), _Left())
        self._bar = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._task = self._bar.add_task("", total=total, completed=self._done)

    def __enter__(self) -> Self:
        """Show the bar."""
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Take the bar away."""
        self._bar.stop()

    def says(self, message: str) -> None:
        """Watcher.says."""
        self._server = None
        if not self._bar.disable:
            self._bar.update(self._task, description=message[:60])
        else:
            self._print(message)
        self._update()

    def server_ready(self, up: Running) -> None:
        """Watcher.server_ready."""
        self._left.started(up.started_s)

    def run_starts(self, run: PlannedRun) -> None:
        """Watcher.run_starts."""
        self._server = run.server_number
        self._began = time.monotonic()
        self._bar.update(self._task, description=run.folder[:60])
        self._update()

    def run_ends(self, run: PlannedRun, outcome: RunRecord) -> None:
        """Watcher.run_ends."""
        self._left.ended(run.number, time.monotonic() - self._began)
        self._done += 1
        self._bar.update(self._task, completed=self._done)
        if outcome.reason is not None:
            self._print(f"FAILED {run.folder}: {outcome.reason}", style="bold red")
        elif self._bar.disable:
            left = round(self._left.seconds(self._server))
            self._print(f"{self._done}/{self._total} {run.folder} done, about {left // 60}:{left % 60:02d} left")
        self._update()

    def _print(self, message: str, style: str | None = None) -> None:
        self._console.print(message, style=style, markup=False, highlight=False, soft_wrap=True)

    def _update(self) -> None:
        self._bar.update(self._task, due=time.monotonic() + self._left.seconds(self._server))
