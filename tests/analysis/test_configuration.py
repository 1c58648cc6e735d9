from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from analysis import configuration, load, pairing
from analysis.configuration import ConfigurationDifference
from tests.analysis.synthetic import PROCESSES, USERS

Make = Callable[..., Path]


def difference(folder: Path) -> ConfigurationDifference:
    experiment = load.load_experiment(folder)
    (pair,) = pairing.pairs(experiment.treatments.values(), {PROCESSES: 1}, {})
    found = configuration.difference(experiment, pair)
    assert found is not None
    return found


@pytest.fixture
def pair(make: Make) -> Path:
    """One run of each of two treatments, with configuration files that differ in one line."""
    folder = make(factors={PROCESSES: [1, 2], USERS: [4]}, replicates=1)
    for run in (folder / "runs").iterdir():
        (run / "configuration").mkdir()
        processes = "1" if "processes1" in run.name else "2"
        text = f"[uwsgi]\nmaster = true\nprocesses = {processes}\n"
        (run / "configuration" / "uwsgi.ini").write_text(text, encoding="utf-8")
        (run / "configuration" / "same.conf").write_text("same\n", encoding="utf-8")
    return folder


def test_the_line_that_differs_and_the_setting_behind_it(pair: Path) -> None:
    found = difference(pair)
    assert found.parameters == (("server.parameters.processes", "1", "2"),)
    (file,) = found.files
    assert file.name == "configuration/uwsgi.ini"
    assert file.lines[:2] == ("--- baseline", "+++ treatment")
    assert [line for line in file.lines[2:] if line[0] in "+-"] == ["-processes = 1", "+processes = 2"]
    assert found.files_compared == 2


def test_a_file_that_one_side_lacks(pair: Path) -> None:
    for run in (pair / "runs").iterdir():
        if "processes2" in run.name:
            (run / "configuration" / "uwsgi.ini").unlink()
    (file,) = difference(pair).files
    assert file.lines[1] == "+++ treatment: no such file"
    assert sum(line.startswith("-") for line in file.lines[2:]) == 3


def test_a_long_difference_is_cut_and_says_so(pair: Path) -> None:
    for run in (pair / "runs").iterdir():
        if "processes2" in run.name:
            text = "\n".join(f"line {n}" for n in range(1000))
            (run / "configuration" / "same.conf").write_text(text, encoding="utf-8")
    file = difference(pair).files[0]
    assert len(file.lines) == configuration.MOST_LINES
    assert file.lines_left_out == 1000 + 1 + 3 - configuration.MOST_LINES


def test_no_file_of_another_folder_is_read(pair: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("password", encoding="utf-8")
    for n, run in enumerate(sorted((pair / "runs").iterdir())):
        record = json.loads((run / "run.json").read_text("utf-8"))
        (run / "configuration" / "link").symlink_to(secret)
        names = ["../../../secret.txt", str(secret), "configuration/link"]
        record["files"]["configuration"] = names if n else []
        (run / "run.json").write_text(json.dumps(record), encoding="utf-8")
    assert difference(pair).files_compared == 0


def test_without_recorded_files_the_settings_remain(make: Make) -> None:
    found = difference(make(factors={PROCESSES: [1, 2], USERS: [4]}, replicates=1))
    assert (found.files, found.files_compared) == ((), 0)
    assert found.parameters


def test_a_side_without_a_run_has_no_difference(pair: Path) -> None:
    for run in (pair / "runs").iterdir():
        if "processes2" in run.name:
            (run / "run.json").unlink()
    experiment = load.load_experiment(pair)
    (compared,) = pairing.pairs(experiment.treatments.values(), {PROCESSES: 1}, {})
    assert configuration.difference(experiment, compared) is None
