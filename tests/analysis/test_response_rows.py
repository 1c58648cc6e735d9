"""Clocks of response times: what is no clock, and what has lost one of its two."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from analysis import decide, load, pairing
from analysis.findings import Severity
from analysis.metrics import ALL_REQUESTS
from tests.analysis.synthetic import PROCESSES, USERS

Make = Callable[..., Path]


def first_file(folder: Path) -> Path:
    return min((folder / "runs").iterdir()) / "response_times" / "worker-0.csv"


def damages(analysis: decide.Analysis) -> list[str]:
    return [o.what for o in analysis.experiment.oddities if o.loses_data]


def open_folder(make: Make) -> Path:
    return make(model="open", factors={PROCESSES: [1, 2], USERS: [16]}, replicates=1)


@pytest.mark.parametrize("model", ["closed", "open"])
def test_sound_files_have_nothing_odd(make: Make, model: str) -> None:
    folder = make(model=model, factors={PROCESSES: [1, 2]}, replicates=1, failure_ratio=lambda t: 0.2)
    assert load.load_experiment(folder).oddities == ()


def test_both_clocks_beside_both_in_one_is_what_a_later_request_of_an_arrival_has(make: Make) -> None:
    folder = open_folder(make)
    path = first_file(folder)
    second = path.read_text("utf-8").splitlines()[1].split(",")[0]
    with path.open("a", encoding="utf-8") as stream:
        stream.write(f"{second},GET /later,success,both,1000,3\n")
    assert load.load_experiment(folder).oddities == ()


def test_an_unknown_clock_is_no_response_time(make: Make) -> None:
    folder = make(factors={PROCESSES: [1, 2], USERS: [16]}, replicates=1)
    before = decide.analyse(load.load_experiment(folder))
    path = first_file(folder)
    second = path.read_text("utf-8").splitlines()[1].split(",")[0]
    with path.open("a", encoding="utf-8") as stream:
        stream.write(f"{second},POST /v3/auth/tokens,success,wall,1000,77\n")
    analysis = decide.analyse(load.load_experiment(folder))
    (damage,) = damages(analysis)
    assert damage.startswith("1 of ") and "'wall'" in damage
    counts = [
        a.by_run[(a.by_run["metric"] == "count") & (a.by_run["endpoint"] == ALL_REQUESTS)] for a in (before, analysis)
    ]
    assert counts[0]["value"].tolist() == counts[1]["value"].tolist()
    assert [f.severity for f in analysis.findings if f.name == "files_damaged"] == [Severity.SEVERE]


@pytest.mark.parametrize("clock", ["response", "service"])
def test_a_clock_without_the_other_is_damage(make: Make, clock: str) -> None:
    folder = open_folder(make)
    path = first_file(folder)
    lines = path.read_text("utf-8").splitlines(keepends=True)
    place = next(n for n, line in enumerate(lines) if f",{clock}," in line)
    lost = int(lines.pop(place).rsplit(",", 1)[1])
    path.write_text("".join(lines), encoding="utf-8")
    analysis = decide.analyse(load.load_experiment(folder))
    (damage,) = damages(analysis)
    assert damage.startswith(f"{lost} responses have a response time or a service time, and not the other")
    (finding,) = [f for f in analysis.findings if f.name == "files_damaged"]
    assert finding.severity is Severity.SEVERE
    touched = analysis.experiment.treatment_of[1]
    assert finding.treatments == (touched,) and touched in {pairing.key({PROCESSES: n, USERS: 16}) for n in (1, 2)}


def test_a_torn_last_line_is_said_once(make: Make) -> None:
    folder = open_folder(make)
    path = first_file(folder)
    last = [line for line in path.read_text("utf-8").splitlines(keepends=True) if ",response," in line]
    second = max(line.split(",")[0] for line in last)
    with path.open("a", encoding="utf-8") as stream:
        stream.write(f"{second},GET /a,success,response,1000,1\n{second},GET /a,succ")
    oddities = load.load_experiment(folder).oddities
    assert [(o.what, o.loses_data) for o in oddities] == [("the last line is torn; it was left out", False)]
