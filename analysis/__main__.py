"""`python -m analysis report FOLDER…` and `… gate FOLDER`. The only place here that prints or exits."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from analysis.printable import printable
from analysis.record import RecordError

if TYPE_CHECKING:
    from rich.console import Console

    from analysis.decide import Analysis

PASS, USAGE, INVALID = 0, 2, 4
WIDTH = 100

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)

Folders = Annotated[
    list[Path],
    typer.Argument(
        metavar="FOLDER…",
        help="Experiment folders, or prefixes of `locust --csv` (or their files); "
        "LABEL=PREFIX where a side has several runs.",
    ),
]
Output = Annotated[
    Path | None, typer.Option("-o", "--output", metavar="DIR", help="Where the report goes; FOLDER/report by default.")
]


@app.callback()
def main() -> None:
    """Analyse result folders: which configuration is better, by how much, how surely, and can it be trusted."""


@app.command()
def report(folders: Folders, output: Output = None) -> None:
    """Write index.html, report.md, CSV and verdicts.json, and print the comparison."""
    from analysis import report as files

    try:
        analyses = _analyses(folders)
        page = files.write(analyses, output or _default_output(folders))
    except (RecordError, files.ReportError, OSError) as error:
        _refuse(error)
    with _standard_output():
        console = _console()
        for analysis in analyses:
            _print(console, analysis)
        console.print(printable(f"Report: {page}"), soft_wrap=True, highlight=False, markup=False)


@app.command()
def gate(folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="An experiment folder.")]) -> None:
    """Exit 0 when all planned runs are complete and no severe finding stands, else 4; 2 for no result folder."""
    try:
        (analysis,) = _analyses([folder])
    except (RecordError, OSError) as error:
        _refuse(error)
    runs = analysis.experiment.runs
    complete = analysis.experiment.complete_runs()
    passed = bool(complete) and len(complete) == len(runs) and not analysis.severe
    with _standard_output():
        for finding in analysis.severe:
            typer.echo(printable(f"severe: {finding.message} Next: {finding.next_action}"))
        typer.echo(f"{'pass' if passed else 'invalid'}: {len(complete)} of {len(runs)} planned runs complete")
    raise typer.Exit(PASS if passed else INVALID)


@app.command("import")
def import_(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE…", help="Prefixes of `locust --csv` or their files; LABEL=PREFIX names a side."),
    ],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="FOLDER", help="An experiment folder, to be made.")],
) -> None:
    """Write other tools' files as an experiment folder, which `report` and `gate` read as any other."""
    from analysis.importers import imported_folder, locust_csv

    try:
        experiment = locust_csv.load_prefixes(files)
        imported_folder.write(experiment, output)
    except (RecordError, OSError) as error:
        _refuse(error)
    with _standard_output():
        runs, odd = len(experiment.runs), len(experiment.oddities)
        typer.echo(printable(f"Imported: {output} ({runs} {'run' if runs == 1 else 'runs'})"))
        for oddity in experiment.oddities:
            typer.echo(printable(f"  run {oddity.run}, {oddity.file}: {oddity.what}"))
        if odd:
            typer.echo(f"{odd} {'oddity' if odd == 1 else 'oddities'}; nothing was repaired, and the report says them.")


def _analyses(paths: list[Path]) -> list[Analysis]:
    """Experiment folders one by one; all Locust CSV prefixes together as one comparison."""
    from analysis import decide, load
    from analysis.importers import locust_csv

    folders = [path for path in paths if path.is_dir()]
    prefixes = [path for path in paths if not path.is_dir()]
    experiments = [load.load_experiment(folder) for folder in folders]
    if prefixes:
        experiments.append(locust_csv.load_prefixes(prefixes))
    return [decide.analyse(experiment) for experiment in experiments]


def _default_output(paths: list[Path]) -> Path:
    """report/ in the one folder given; beside the one prefix, or in the working folder for several."""
    if len(paths) > 1:
        return Path("report")
    (path,) = paths
    if path.is_dir():
        return path / "report"
    from analysis.importers import locust_csv

    prefix = locust_csv.prefix_of(path)
    return prefix.with_name(prefix.name + "_report")


def _console() -> Console:
    """As wide as the terminal, and never wider than 100 columns; 100 where there is no terminal."""
    from rich.console import Console

    class PipeConsole(Console):
        def on_broken_pipe(self) -> None:
            """Leave it to _standard_output; rich itself would exit 1."""
            raise BrokenPipeError

    console = PipeConsole(highlight=False)
    console.width = min(console.width, WIDTH) if console.is_terminal else WIDTH
    return console


def _print(console: Console, analysis: Analysis) -> None:
    from rich.text import Text

    from analysis import answer, method, tables

    record = analysis.experiment.record
    console.print(Text(printable(record.question or record.name), style="bold"))
    for verdict, sentence in answer.answers(analysis):
        console.print(Text.assemble((f"{verdict.value}: " if verdict else "", "bold"), printable(sentence)))
    for note in [*record.notes, *method.load_model_notes(analysis)]:
        console.print(Text(printable(note), style="dim"))
    console.print()
    for finding in analysis.findings:
        console.print(
            Text.assemble(
                (f"{finding.severity.value}: ", "bold"), printable(f"{finding.message} Next: {finding.next_action}")
            )
        )
        for line in finding.evidence[:4]:
            console.print(Text(f"  {printable(line)}"))
        if len(finding.evidence) > 4:
            console.print(f"  and {len(finding.evidence) - 4} more")
    if analysis.findings:
        console.print()
    for block in tables.blocks(analysis, comparisons_a_block=1):
        console.print(tables.to_terminal(block))
    console.print(Text(printable(method.table_note(analysis)), style="dim"))


@contextlib.contextmanager
def _standard_output() -> Iterator[None]:
    """Whoever reads may stop at any line (`| head -1`): no error, and no other exit code. A full disk is one."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        _discard_output()
    except OSError as error:
        _discard_output()
        _refuse(OSError(error.errno, error.strerror, "standard output"))


def _discard_output() -> None:
    """What is still in the buffer would raise again when Python ends."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _refuse(error: Exception) -> NoReturn:
    text = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) and error.filename else str(error)
    typer.echo(printable(text), err=True)
    raise typer.Exit(USAGE)


if __name__ == "__main__":
    app()
