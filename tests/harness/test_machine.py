"""The machine's counters, from texts as the kernel writes them, and from this machine's own."""

from __future__ import annotations

import csv
import resource
import time
from pathlib import Path

import pytest

from analysis.record import MACHINE_COLUMNS
from harness import machine
from harness.machine import Machine, swapped_bytes, throttled
from harness.sampler import Sampler

V2 = "usage_usec 5\nnr_periods 3\nnr_throttled 1\nthrottled_usec 1500000\n"
V1 = "nr_periods 3\nnr_throttled 1\nthrottled_time 2500000000\n"


def test_swapped_bytes() -> None:
    assert swapped_bytes("nr_free_pages 9\npswpin 3\npswpout 4\npswpin_x 9\n") == 7 * resource.getpagesize()
    assert swapped_bytes("nr_free_pages 9\n") is None
    assert swapped_bytes("") is None


@pytest.mark.parametrize(
    ("texts", "seconds"), [([V2], 1.5), ([V1, V2], 4.0), (["usage_usec 5\n"], None), ([""], None), ([], None)]
)
def test_throttled(texts: list[str], seconds: float | None) -> None:
    assert throttled(iter(texts)) == seconds


@pytest.mark.parametrize(
    ("groups", "there", "read"),
    [
        ("0::/a/b\n", ["a/b", "a"], ["a/b", "a"]),
        ("0::/a/b\n", ["a"], ["a"]),
        ("3:cpu,cpuacct:/x\n0::/\n1:memory:/x\n", ["cpu,cpuacct/x", "x"], ["cpu,cpuacct/x"]),
        ("", ["a"], []),
    ],
)
def test_files_of_the_own_group_and_those_above(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, groups: str, there: list[str], read: list[str]
) -> None:
    for folder in there:
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        (tmp_path / folder / "cpu.stat").write_text(V2, encoding="ascii")
    monkeypatch.setattr(machine, "MOUNT", tmp_path)
    assert list(machine._throttling_files(groups)) == [tmp_path / folder / "cpu.stat" for folder in read]


def test_a_busy_process_shows_in_the_machines_counters(tmp_path: Path) -> None:
    usage, file = tmp_path / "usage.csv", tmp_path / "machine.csv"
    with Sampler(usage, file, lambda role: [], period_s=0.05):
        begun_s = time.process_time()
        while time.process_time() < begun_s + 0.5:
            pass
    rows = list(csv.DictReader(file.open()))
    assert tuple(rows[0]) == MACHINE_COLUMNS
    grown = {name: float(rows[-1][name]) - float(rows[0][name]) for name in ("busy_s", "harness_s")}
    assert grown["harness_s"] >= 0.35
    assert grown["busy_s"] + 0.05 >= 0.35  # the kernel counts in hundredths of a second


def test_what_the_system_does_not_tell_is_an_empty_cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "PAGES", tmp_path / "missing")
    monkeypatch.setattr(machine, "GROUPS", tmp_path / "missing")
    counters = Machine().counters()
    assert len(counters) == len(MACHINE_COLUMNS) - 1
    assert counters[-2:] == ["", ""]
