"""Plain `locust --csv PREFIX` files of any Locust since 0.8 to an Experiment.

What they do not hold stays missing: windows, warm-up, histograms, failures by second, the server. Locust's numbers are
over the whole run; its percentiles are cut to whole milliseconds and, from 100 ms up, rounded to two digits.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import pandas as pd

from analysis import load, pairing
from analysis.importers import locust_failures, locust_history, locust_stats
from analysis.importers.harmless import harmless
from analysis.importers.locust_stats import REQUESTS, STATS, Summary
from analysis.importers.oddities import Oddities
from analysis.load import Experiment, Oddity
from analysis.record import ExperimentRecord, PlannedRun, RecordError

FACTOR = "csv"
FRAMES = {"reported": load.REPORTED_COLUMNS, "failed": load.FAILED_COLUMNS, "history": load.HISTORY_COLUMNS}
SIDECARS = (locust_stats.DISTRIBUTION, locust_failures.FAILURES, locust_failures.EXCEPTIONS, locust_history.HISTORY)
"""Files beside a summary. Where a shell's pattern names them, too, they stand for their prefix."""


@dataclasses.dataclass(frozen=True)
class Source:
    """One run: its summary, and the label that it was given, if any."""

    file: Path
    label: str | None

    @property
    def prefix(self) -> Path:
        """What `locust --csv` was given."""
        suffix = STATS if self.file.name.endswith(STATS) else REQUESTS
        return self.file.with_name(self.file.name.removesuffix(suffix))


def load_prefixes(paths: Sequence[Path]) -> Experiment:
    """Each prefix (or path of its files) is a run, LABEL=PREFIX a replicate of LABEL; the first side is the baseline.

    Raises RecordError where a file is missing or is no summary of Locust's.
    """
    sources = _sources(paths)
    sides = _sides(sources)
    plan = _plan(sides)
    parts = [_read(planned.number, source) for planned, source in zip(plan, sources, strict=True)]
    return experiment(
        sources[0].file.parent,
        _record(list(dict.fromkeys(sides)), plan, history=any(len(frames["history"]) for frames, _ in parts)),
        runs_frame(plan),
        {role: [frames[role] for frames, _ in parts] for role in FRAMES},
        [oddity for _, oddities in parts for oddity in oddities.found()],
    )


def experiment(
    folder: Path,
    record: ExperimentRecord,
    runs: pd.DataFrame,
    frames: Mapping[str, Sequence[pd.DataFrame]],
    oddities: Iterable[Oddity],
) -> Experiment:
    """An Experiment of summaries: `frames` holds those of the runs by role of FRAMES; nothing else was measured."""
    filled = {role: [frame for frame in frames[role] if len(frame)] for role in FRAMES}
    joined = {
        role: pd.concat(parts, ignore_index=True) if parts else load.empty_frame(FRAMES[role])
        for role, parts in filled.items()
    }
    return Experiment(
        folder=folder,
        record=record,
        records={},
        runs=runs,
        health={},
        totals=load.empty_frame(load.TOTALS_COLUMNS),
        reported=joined["reported"],
        failed=joined["failed"],
        history=joined["history"],
        oddities=tuple(oddities),
        imported=True,
    )


def runs_frame(plan: Iterable[PlannedRun]) -> pd.DataFrame:
    """load.RUN_COLUMNS of complete runs without windows."""
    rows = [
        {"run": p.number, "block": p.block, "replicate": p.replicate, "treatment": pairing.key(p.treatment),
         "status": load.COMPLETE, "folder": p.folder, "server_number": p.server_number}
        for p in plan
    ]  # fmt: skip
    return pd.DataFrame(rows, columns=list(load.RUN_COLUMNS)).astype({"reason": "object"})


# --- which files -----------------------------------------------------------------------------------------------------


def is_labelled(path: Path) -> bool:
    """Whether an argument is LABEL=PREFIX, and not a file or prefix whose own name holds the sign."""
    label, sign, prefix = str(path).partition("=")
    return bool(sign and label and prefix) and not path.exists() and _summary_of(path) is None


def prefix_of(path: Path) -> Path:
    """The prefix that an argument of load_prefixes() means. Raises RecordError where there are no files of it."""
    return _sources([path])[0].prefix


def _sources(paths: Sequence[Path]) -> list[Source]:
    found: dict[Path, Source] = {}
    named: set[Path] = set()
    for path in paths:
        label, _, prefix = str(path).partition("=") if is_labelled(path) else (None, "", str(path))
        source = Source(summary_file(Path(prefix)), label)
        known = found.setdefault(source.file.resolve(), source)
        if prefix.endswith(SIDECARS):
            continue
        if source.file.resolve() in named or known.label != label:
            raise RecordError(f"{prefix}: the same Locust CSV is named twice; give each run once.")
        named.add(source.file.resolve())
    return list(found.values())


def summary_file(path: Path) -> Path:
    """The summary of a prefix or of one of its files. Raises RecordError where there is none."""
    if path.is_dir():
        raise RecordError(f"{path}: a folder cannot have a label; give prefixes of `locust --csv`.")
    file = _summary_of(path)
    if file is None:
        raise RecordError(
            f"{path}: neither a result folder of `python -m harness run` nor a prefix of `locust --csv` "
            f"(no file {path.name + STATS}, and no {path.name + REQUESTS})."
        )
    return file


def _summary_of(path: Path) -> Path | None:
    if path.name.endswith((STATS, REQUESTS)) and path.is_file():
        return path
    sidecar = next((suffix for suffix in SIDECARS if path.name.endswith(suffix)), "")
    prefix = path.name.removesuffix(sidecar)
    if not prefix:
        return None
    candidates = (path.with_name(prefix + suffix) for suffix in (STATS, REQUESTS))
    return next((file for file in candidates if file.is_file()), None)


def _sides(sources: Sequence[Source]) -> list[str]:
    """The side of each run: its label, or its prefix with as much of its folders as tells it from the others."""
    prefixes = [source.prefix for source in sources if source.label is None]
    whole = [p.resolve().as_posix().replace(".", "\0").replace("/", ".") for p in prefixes]
    short = {n: name.replace(".", "/").replace("\0", ".") for n, name in pairing.short_names(whole).items()}
    names = iter(short[name] for name in whole)
    sides = [next(names) if source.label is None else source.label for source in sources]
    labels = {source.label for source in sources}
    taken = next((name for name in short.values() if name in labels), None)
    if taken is not None:
        raise RecordError(f"{taken}: both a label and the name of a run without one; give that run a label, too.")
    return [harmless(side, "", None, Oddities(0)) for side in sides]


# --- runs and their plan ---------------------------------------------------------------------------------------------


def _plan(sides: Sequence[str]) -> list[PlannedRun]:
    plan = []
    for number, side in enumerate(sides, start=1):
        replicate = sides[:number].count(side)
        folder = f"{number:03d}-{re.sub('[^A-Za-z0-9._-]+', '-', side)[:60]}-rep{replicate}"
        plan.append(PlannedRun(number, replicate, replicate, {FACTOR: side}, folder, number))
    return plan


def _read(run: int, source: Source) -> tuple[dict[str, pd.DataFrame], Oddities]:
    oddities = Oddities(run)
    other = source.prefix.with_name(source.prefix.name + REQUESTS)
    if source.file.name.endswith(STATS) and other.is_file():
        oddities.note(other.name, "lies beside a later summary of the same name, and is not read")
    summaries = locust_stats.read_summaries(source.file, oddities)
    frames = {
        "reported": _reported(run, summaries),
        "failed": locust_failures.read_failures(run, source.prefix, summaries, oddities),
        "history": locust_history.read_history(run, source.prefix, summaries, oddities),
    }
    return frames, oddities


def _reported(run: int, summaries: Iterable[Summary]) -> pd.DataFrame:
    rows = [
        {"run": run, "endpoint": s.endpoint, "metric": metric, "value": value, "samples": samples}
        for s in summaries
        for metric, value, samples in s.values()
    ]
    return pd.DataFrame(rows, columns=list(load.REPORTED_COLUMNS)).astype({"value": "float64"})


def _record(sides: list[str], plan: list[PlannedRun], history: bool) -> ExperimentRecord:
    notes = [
        "Read from Locust's own summary: whole runs, with their warm-up; what is not in it stays missing. With one "
        "process Locust's CSV may lack the last second or more of a run."
    ]
    if history:
        notes.append(
            "The timeline is Locust's history: each rate is the mean of about ten seconds before it. The percentiles "
            "in a history are over such a window or since the start, which it does not say, and are not used."
        )
    return ExperimentRecord(
        name="locust csv: " + " against ".join(reversed(sides)),
        question="",
        workload="plain Locust CSV",
        factors={FACTOR: list(sides)},
        baseline={FACTOR: sides[0]},
        primary={"metric": "throughput", "at": {}},
        margin=0.05,
        held_constant={},
        notes=notes,
        timing={},
        replicates=max(planned.replicate for planned in plan),
        order={},
        source=None,
        overrides=[],
        plan=plan,
        created_unix_s=0.0,
        imported=True,
    )
