"""`python -m analysis report FOLDER…`, `… gate FOLDER`, `… export FOLDER`. The only place that prints or exits."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from analysis.printable import printable
from analysis.progress import Progress
from analysis.record import RecordError
from analysis.rules import RuleError

if TYPE_CHECKING:
    from rich.console import Console

    from analysis.decide import Analysis

USAGE = 2
EXIT_CODES = {"pass": 0, "fail": 1, "inconclusive": 3, "invalid": 4}
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
    Path | None,
    typer.Option("-o", "--output", metavar="DIR", help="Where the files go; a folder in FOLDER by default."),
]


@app.callback()
def main() -> None:
    """Analyse result folders: which configuration is better, by how much, how surely, and can it be trusted."""


@app.command()
def report(folders: Folders, output: Output = None) -> None:
    """Write index.html, report.md, CSV, Parquet, verdicts.json and junit.xml, and print the comparison."""
    from analysis import experiment_names
    from analysis import report as files
    from analysis.pages import ReportError

    try:
        with Progress(sys.stderr) as progress:
            analyses = _analyses(folders, progress)
            progress.says("writing the report")
            page = files.write(analyses, output or _default_output(folders))
    except (RecordError, ReportError, OSError) as error:
        _refuse(error)
    with _standard_output():
        console = _console()
        for name, analysis in zip(experiment_names.distinct(analyses), analyses, strict=True):
            _print(console, analysis, name if len(analyses) > 1 else "")
        console.print(printable(f"Report: {page}"), soft_wrap=True, highlight=False, markup=False)


@app.command()
def gate(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="An experiment folder.")],
    baseline: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="An experiment folder: change(…) is relative to its equal treatments."),
    ] = None,
    rule: Annotated[
        list[str] | None,
        typer.Option(metavar="RULE", help="As the experiment's objectives: 'p95(response_time) < 250ms'. Repeatable."),
    ] = None,
    junit: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the outcome as JUnit XML, too.")] = None,
) -> None:
    """Judge objectives and rules. Exit 0 pass, 1 one failed, 2 usage, 3 one is inconclusive, 4 invalid measurement."""
    from analysis import gate as gates

    try:
        with Progress(sys.stderr) as progress:
            judged = gates.judge(folder, baseline, rule or [], progress.runs_read)
        if junit is not None:
            junit.write_text(gates.junit_xml(judged), encoding="utf-8")
    except (RecordError, RuleError, OSError) as error:
        _refuse(error)
    with _standard_output():
        for line in gates.lines(judged):
            typer.echo(printable(line))
    raise typer.Exit(EXIT_CODES[judged.outcome.value])


@app.command()
def export(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="An experiment folder.")], output: Output = None
) -> None:
    """Write every run's response times as an HdrHistogram log, RUN.hlog: one interval a second, endpoint and clock."""
    from analysis import exports, load

    target = output or folder / "hdrhistogram"
    try:
        experiment = load.load_experiment(folder)
        if experiment.imported:
            raise RecordError(f"{folder}: holds another tool's summaries, which have no histograms to be written.")
        target.mkdir(parents=True, exist_ok=True)
        for run in experiment.complete_runs():
            exports.write_hdr_log(experiment, run, target)
    except (RecordError, OSError) as error:
        _refuse(error)
    with _standard_output():
        typer.echo(printable(f"{len(experiment.complete_runs())} logs in {target}"))


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


def _analyses(paths: list[Path], progress: Progress) -> list[Analysis]:
    """Experiment folders one by one; all Locust CSV prefixes together as one comparison."""
    from analysis import decide, load
    from analysis.importers import locust_csv

    folders = [path for path in paths if path.is_dir()]
    prefixes = [path for path in paths if not path.is_dir()]
    if twice := [folder for n, folder in enumerate(folders) if folder.resolve() in {f.resolve() for f in folders[:n]}]:
        raise RecordError(f"{twice[0]}: the same folder is named twice; give each result once.")
    experiments = [load.load_experiment(folder, progress.runs_read, os.cpu_count() or 1) for folder in folders]
    if prefixes:
        experiments.append(locust_csv.load_prefixes(prefixes))
    progress.says("comparing")
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


def _print(console: Console, analysis: Analysis, name: str) -> None:
    """`name` tells the experiment from others; "" where there are none."""
    from rich.text import Text

    from analysis import answer, method, objective_table, objectives, reference, tables

    record = analysis.experiment.record
    console.print(Text(printable(record.question or record.name), style="bold"))
    if name and record.question:
        console.print(Text(printable(name), style="dim"))
    for verdict, sentence in answer.answers(analysis):
        console.print(Text.assemble((f"{verdict.value}: " if verdict else "", "bold"), printable(sentence)))
    for note in [*record.notes, *method.notes(analysis)]:
        console.print(Text(printable(note), style="dim"))
    console.print()
    if judged := objectives.judge(analysis):
        console.print(tables.to_terminal(objective_table.block(judged, analysis.names)))
        for note in objective_table.notes(judged):
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
    for block in reference.blocks(analysis):
        console.print(tables.to_terminal(block))
    for note in reference.notes(analysis):
        console.print(Text(printable(note), style="dim"))


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
