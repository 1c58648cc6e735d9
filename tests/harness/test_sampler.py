"""CPU and memory of process trees, held against processes that know what they use."""

import csv
import subprocess
import sys
import time
from pathlib import Path

from analysis.record import USAGE_COLUMNS
from harness.sampler import Sampler

BURN = """
import subprocess, sys, time
if len(sys.argv) > 1: child = subprocess.Popen([sys.executable, "-c", sys.stdin.read()])
block = bytearray(60_000_000)
while time.process_time() < 0.6: pass
print(time.process_time(), flush=True)
time.sleep(30)
"""


def test_cpu_of_a_tree_is_what_its_processes_say(tmp_path: Path) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", BURN, "child"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert parent.stdin and parent.stdout
    parent.stdin.write(BURN)
    parent.stdin.close()
    try:
        with Sampler(
            tmp_path / "usage.csv",
            tmp_path / "machine.csv",
            {"server": [("uwsgi", parent.pid)], "generator": []}.__getitem__,
            period_s=0.05,
        ):
            said = [float(parent.stdout.readline()) for _ in range(2)]
            time.sleep(0.3)
    finally:
        subprocess.run(["pkill", "-P", str(parent.pid)], check=False)
        parent.kill()
        parent.wait()
    rows = list(csv.DictReader((tmp_path / "usage.csv").open()))
    assert tuple(rows[0]) == USAGE_COLUMNS
    last = {row["pid"]: row for row in rows}
    assert len(last) == 2 and {row["role"] for row in rows} == {"server"}
    assert {row["part"] for row in rows} == {"uwsgi"}  # the child's, too
    used = sum(float(row["cpu_s"]) for row in last.values())
    assert sum(said) <= used + 0.03  # the kernel counts in hundredths of a second
    assert used < sum(said) + 0.3
    assert all(int(row["rss_bytes"]) > 60_000_000 for row in last.values())


def test_a_process_that_ends_is_sampled_until_then_and_does_no_harm(tmp_path: Path) -> None:
    brief = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(0.3)"])
    with Sampler(
        tmp_path / "usage.csv",
        tmp_path / "machine.csv",
        {"server": [], "generator": [("locust", brief.pid)]}.__getitem__,
        period_s=0.05,
    ):
        brief.wait()
        time.sleep(0.2)
    rows = list(csv.DictReader((tmp_path / "usage.csv").open()))
    assert {row["role"] for row in rows} == {"generator"}
    assert len(rows) >= 2
    times = [float(row["time_unix_s"]) for row in rows]
    assert times == sorted(times)
