"""The files of one run of an experiment, for what the frames of an Experiment do not hold."""

from __future__ import annotations

from pathlib import Path

from analysis.load import Experiment, role_files
from analysis.record import RUNS_FOLDER


def folder_of(experiment: Experiment, run: int) -> Path:
    """Folder of a run, resolved."""
    name = experiment.runs.loc[experiment.runs["run"] == run, "folder"].iloc[0]
    return (experiment.folder / RUNS_FOLDER / Path(str(name)).name).resolve()


def files_of(experiment: Experiment, run: int, role: str, pattern: str) -> list[Path]:
    """Files of one role of a run, resolved; none without a record.

    Only those within its folder: a record from elsewhere may name any file of this machine.
    """
    record = experiment.records.get(run)
    if record is None:
        return []
    folder = folder_of(experiment, run)
    found = [file.resolve() for file in role_files(folder, record, role, pattern)]
    return [file for file in found if file.is_relative_to(folder)]
