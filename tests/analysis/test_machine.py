"""The machine's counters: growth over a window, and the checks that rest on it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from analysis import decide
from analysis.findings import Severity
from analysis.machine import read_machine, use
from analysis.record import MACHINE_COLUMNS
from tests.analysis.test_validity import analyse, found, run_folder


def write_machine(run: Path, **rates: float | None) -> None:
    """Counters that grow by these rates a second, over more than the run; None is a counter that is not there."""
    data = json.loads((run / "run.json").read_text("utf-8"))
    start, end = data["windows"]["warm_up"]["start_unix_s"], data["windows"]["steady_state"]["end_unix_s"]
    lines = [",".join(MACHINE_COLUMNS)]
    for tick in range(-2, 2 * (end - start) + 3):
        cells = [rates.get(name, 0.0) for name in MACHINE_COLUMNS[1:]]
        grown = ["" if rate is None else f"{1000 + rate * tick / 2:.3f}" for rate in cells]
        lines.append(",".join([f"{start + tick / 2:.3f}", *grown]))
    (run / "machine.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    data["environment"]["cpus"] = 4
    (run / "run.json").write_text(json.dumps(data), encoding="utf-8")


def names(analysis: decide.Analysis) -> set[str]:
    return {finding.name for finding in analysis.findings} & {"swapped", "throttled", "machine_busy"}


def test_growth_is_read_off_between_the_samples(tmp_path: Path) -> None:
    file = tmp_path / "machine.csv"
    file.write_text(",".join(MACHINE_COLUMNS) + "\n10,5,1,,0,7\n12,9,1,,0,6\n14,11,2,,0,8\n1", encoding="utf-8")
    used = use(read_machine([file], 1), 11, 13)
    assert used is not None
    assert (used.busy_s, used.harness_s, used.swapped_bytes) == (3.0, 0.5, 0.0)
    assert used.stolen_s is None and used.throttled_s is None  # not there, and reset meanwhile
    assert use(read_machine([file], 1), 9, 13) is None
    assert use(read_machine([file], 1), 11, 15) is None


@pytest.mark.parametrize("text", ["", "a,b\n1,2\n", "\0\n", ",".join(MACHINE_COLUMNS) + "\nx,1,2,3,4,5\n1,2\n"])
def test_a_damaged_file_tells_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / "machine.csv").write_text(text, encoding="utf-8")
    assert use(read_machine([tmp_path / "machine.csv"], 1), 0, 1) is None


Case = tuple[dict[str, float | None], str, Severity, str]
PROVOKED: list[Case] = [
    ({"swapped_bytes": 4096.0}, "swapped", Severity.NOTE, "0.0 MiB in 6 s"),
    ({"swapped_bytes": 3.0 * 2**20}, "swapped", Severity.SEVERE, "18.0 MiB in 6 s"),
    ({"throttled_s": 0.005}, "throttled", Severity.NOTE, "held back for 0.03 s in 6 s"),
    ({"throttled_s": 0.2}, "throttled", Severity.SEVERE, "held back for 1.20 s in 6 s"),
    ({"busy_s": 2.0}, "machine_busy", Severity.NOTE, "by other processes"),
    ({"stolen_s": 1.0}, "machine_busy", Severity.NOTE, "25% by the hypervisor"),
    ({"stolen_s": 1.0, "busy_s": None}, "machine_busy", Severity.NOTE, "25% by the hypervisor"),
]


@pytest.mark.parametrize(("rates", "name", "severity", "evidence"), PROVOKED)
def test_what_the_machine_did_is_found(
    small_copy: Path, rates: dict[str, float | None], name: str, severity: Severity, evidence: str
) -> None:
    for run in (small_copy / "runs").iterdir():
        write_machine(run, busy_s=1.0)
    write_machine(run_folder(small_copy, processes=1, users=16), **{"busy_s": 1.0, **rates})
    analysis = analyse(small_copy)
    assert names(analysis) == {name}
    finding = found(analysis, name)
    assert finding.severity is severity
    assert "1 of 4 runs" in finding.message
    assert evidence in finding.evidence[0]


def nothing_known(run: Path) -> None:
    write_machine(run, **dict.fromkeys(MACHINE_COLUMNS[1:]))


@pytest.mark.parametrize(
    "write", [nothing_known, lambda run: write_machine(run, busy_s=1.0, harness_s=0.1), lambda run: None]
)
def test_a_quiet_machine_and_one_that_does_not_tell_are_no_finding(
    small_copy: Path, write: Callable[[Path], None]
) -> None:
    for run in (small_copy / "runs").iterdir():
        write(run)
    assert names(analyse(small_copy)) == set()
