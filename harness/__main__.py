"""python -m harness: validate, plan and run experiments. The only place that prints or exits."""

from __future__ import annotations

import dataclasses
import datetime
import itertools
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Annotated, NoReturn

import typer
from rich.console import Console
from rich.table import Table

from analysis import record
from analysis.record import ExperimentRecord, PlannedRun, RecordError, RunRecord
from harness import arrivals, dataset_command, external, runner
from harness.configuration import ConfigurationError
from harness.datasets.errors import CloudError, DatasetError
from harness.decidability import remarks
from harness.experiment import ExperimentFile
from harness.external import Consent, NotAllowed
from harness.install import REPOSITORY, InstallError
from harness.load import LoadError
from harness.parsed_file import ExperimentError
from harness.plan import assumptions, duration_s, plan, short_names
from harness.progress import Display
from harness.server import ServerError
from harness.validate import read

USAGE, INVALID, BROKEN_PIPE = 2, 4, 128 + signal.SIGPIPE
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""All end the program in order: a closed terminal (SIGHUP) must not leave servers running either."""
OUTPUT_HELP = "result folder; by default results/NAME/STAMP"

app = typer.Typer(
    help="Run experiments: real servers, started fresh, driven by Locust, recorded run by run.",
    no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None,
)  # fmt: skip
app.add_typer(dataset_command.app, name="dataset")
out = Console(highlight=False)
err = Console(stderr=True, highlight=False)

File = Annotated[Path, typer.Argument(help="an experiment: configs/experiments/NAME.yml", show_default=False)]
Set = Annotated[list[str] | None, typer.Option("--set", metavar="PATH=VALUE", help="change a value; may be repeated")]


class UsageError(Exception):
    """The command line asks for something that makes no sense."""


class Interrupted(BaseException):
    """One of SIGNALS. Not an Exception, so that nothing but the end of the program takes it for one."""

    def __init__(self, signal_number: int) -> None:
        self.signal_number = signal_number


@app.command()
def validate(file: File, changes: Set = None) -> None:
    """Print everything that is wrong with a file."""
    experiment = read(file, tuple(changes or ()))
    out.print(
        f"{file}: valid, {len(experiment.treatments())} treatments x {experiment.experiment.replicates} replicates",
        markup=False,
    )
    for remark in remarks(experiment.experiment):
        out.print(f"note: {remark}", markup=False)


@app.command("plan")
def show_plan(file: File, changes: Set = None) -> None:
    """Print the runs in order, and the time they take."""
    experiment = read(file, tuple(changes or ()))
    runs = plan(experiment.experiment)
    out.print(_plan_table(experiment, runs))
    servers = len({run.server_number for run in runs})
    length = _minutes(duration_s(experiment.experiment, runs))
    on_servers = "" if experiment.experiment.server.external else f" on {servers} servers"
    out.print(f"{len(runs)} runs{on_servers}, about {length}")
    told = (external.plan_lines(experiment), assumptions(experiment.experiment), arrivals.sentences(experiment))
    for sentence in itertools.chain.from_iterable(told):
        out.print(sentence, markup=False, soft_wrap=True)
    for remark in remarks(experiment.experiment):
        out.print(f"note: {remark}", markup=False)


@app.command()
def run(
    file: Annotated[
        Path | None, typer.Argument(help="an experiment: configs/experiments/NAME.yml", show_default=False)
    ] = None,
    changes: Set = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help=OUTPUT_HELP, show_default=False),
    ] = None,
    resume: Annotated[
        Path | None, typer.Option(help="do what is missing in this result folder", show_default=False)
    ] = None,
    report: Annotated[
        bool, typer.Option("--report/--no-report", help="print and write the comparison at the end")
    ] = True,
    may_load: Annotated[
        list[str] | None,
        typer.Option("--i-may-load", metavar="HOST", help="a server.external that is not loopback; may be repeated"),
    ] = None,
    allow_apply: Annotated[
        bool, typer.Option("--allow-apply", help="run the commands of server.external, which `plan` shows")
    ] = False,
) -> None:
    """Do the runs, then report. The exit status is that of `python -m analysis gate`."""
    consent = Consent.of(may_load, allow_apply)
    if resume:
        experiment, folder = _resumed(file, changes, output, resume)
        external.check(experiment, consent)
    else:
        experiment, folder = _fresh(file, changes, output, consent)
    planned = record.read_experiment(folder).plan
    missing = record.missing_runs(folder)
    length = _minutes(duration_s(experiment.experiment, missing))
    err.print(f"{_runs(len(missing))}, about {length}; results in {_short(folder)}", markup=False)
    for line in external.plan_lines(experiment):
        err.print(line, markup=False, soft_wrap=True)
    for remark in remarks(experiment.experiment):
        err.print(f"note: {remark}", markup=False)
    with Display(experiment.experiment, missing, len(planned), err) as display:
        outcomes = runner.run(experiment, folder, display, consent)
    err.print(_summary(outcomes), markup=False)
    if left := len(missing) - len(outcomes):
        err.print(f"{left} runs were not begun: an external server that is not loopback could not bear the load")
    if report:
        _analysis("report", folder)
    sys.exit(_analysis("gate", folder))


def _fresh(
    file: Path | None, changes: list[str] | None, output: Path | None, consent: Consent
) -> tuple[ExperimentFile, Path]:
    if file is None:
        raise UsageError("name an experiment file, or a folder with --resume")
    experiment = read(file, tuple(changes or ()))
    external.check(experiment, consent)
    stamp = datetime.datetime.now().strftime("%Y-%m-%dT%H%M%S")
    # Locust runs in a folder of its own, where a relative path would be another one.
    folder = (output or REPOSITORY / "results" / experiment.name / stamp).resolve()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(
            f"{folder} exists already; nothing is overwritten. Name another --output, or use --resume {folder}"
        )
    try:
        (folder / record.RUNS_FOLDER).mkdir(parents=True)
    except OSError as error:
        raise UsageError(f"--output {folder}: cannot be made ({error.strerror})") from error
    (folder / "experiment.yml").write_text(experiment.text, encoding="utf-8")
    record.write_experiment(folder, runner.describe(experiment))
    return experiment, folder


def _resumed(
    file: Path | None, changes: list[str] | None, output: Path | None, folder: Path
) -> tuple[ExperimentFile, Path]:
    if file is not None or changes or output is not None:
        raise UsageError("--resume goes on with what its folder says: leave out the file, --set and --output")
    folder = folder.resolve()
    known = record.read_experiment(folder)
    text = folder / "experiment.yml"
    experiment = dataclasses.replace(read(text, tuple(known.overrides), known.arrival_rates), name=known.name)
    if changed := _differences(known, runner.describe(experiment)):
        raise UsageError(
            f"{text} is not what {folder}/experiment.json was made from (other: {', '.join(changed)}). "
            "It, a server configuration or the program was changed after the runs began; start a new result folder"
        )
    return experiment, folder


def _differences(known: ExperimentRecord, now: ExperimentRecord) -> list[str]:
    """Fields in which two records of an experiment differ, the time of making apart; as JSON has them."""
    one, other = (json.loads(json.dumps(dataclasses.asdict(r))) for r in (known, now))
    return [name for name in one if name != "created_unix_s" and one[name] != other[name]]


def _analysis(verb: str, folder: Path) -> int:
    return subprocess.run([sys.executable, "-m", "analysis", verb, str(folder)], cwd=REPOSITORY, check=False).returncode


def _plan_table(experiment: ExperimentFile, runs: list[PlannedRun]) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    for heading in ("run", "block", "server", *short_names(experiment.experiment.factors)):
        table.add_column(heading, justify="right")
    for planned in runs:
        cells = (planned.number, planned.block, planned.server_number, *planned.treatment.values())
        table.add_row(*map(str, cells))
    return table


def _summary(outcomes: list[RunRecord]) -> str:
    counts = Counter(outcome.status for outcome in outcomes)
    return f"{_runs(counts['complete'])} complete, {counts['failed']} failed"


def _runs(count: int) -> str:
    return f"{count} run" if count == 1 else f"{count} runs"


def _minutes(seconds: float) -> str:
    return f"{round(seconds)} s" if seconds < 90 else f"{seconds / 60:.0f} min"


def _short(folder: Path) -> Path:
    return folder.relative_to(Path.cwd()) if folder.is_relative_to(Path.cwd()) else folder


def _on_signal(number: int, frame: FrameType | None) -> NoReturn:
    # One is enough: a second one must not break off the stopping of servers.
    for ignored in SIGNALS:
        signal.signal(ignored, signal.SIG_IGN)
    raise Interrupted(number)


def main() -> int:
    """Run the command line; return the exit status."""
    for number in SIGNALS:
        signal.signal(number, _on_signal)
    try:
        app()
    except (ConfigurationError, ExperimentError, UsageError, RecordError, NotAllowed, DatasetError) as error:
        err.print(f"error: {error}", markup=False, soft_wrap=True)
        return USAGE
    except (InstallError, ServerError, LoadError, CloudError) as error:
        err.print(f"error: {error}", markup=False, soft_wrap=True)
        return INVALID
    except BrokenPipeError:
        # Whoever read our output has gone; do not let Python complain about it once more when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except OSError as error:
        err.print(
            f"error: {error.filename or 'a file'}: {error.strerror}. Check the disk and the permissions.", markup=False
        )
        return INVALID
    except Interrupted as interrupted:
        kept = ["finished runs are kept, and `run --resume FOLDER` does the rest"]
        notes = getattr(interrupted, "__notes__", kept)
        err.print(f"interrupted; {'; '.join(notes)}", markup=False, soft_wrap=True)
        return 128 + interrupted.signal_number
    return 0


if __name__ == "__main__":
    sys.exit(main())
