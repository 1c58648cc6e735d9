"""The experiment of Rally's page, tiny, on real servers: every request is in Locust's, the recorder's and the server's
count.

Slow, about half a minute: three servers. What it asserts is counts, states and texts, never how fast anything was.
"""

import csv
import re
import subprocess
from pathlib import Path

import pytest

from analysis import record
from tests.test_end_to_end import REPOSITORY, harness, locust_total, recorded

EXPERIMENT = REPOSITORY / "configs/experiments/seed-keystone-apache.yml"
REQUESTS = 100
CHANGES = (
    *("factors.load.users=[4]", f"load.requests={REQUESTS}", "replicates=1", "timing.warm_up=0s"),
    "dataset={projects: 2, users_per_project: 20}",
)
LOGGED = r'^request .*status=201 .*agent="stackswarm-keystone_auth"$'


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("apache") / "result"
    changes = [word for change in CHANGES for word in ("--set", change)]
    done = subprocess.run(
        harness("run", EXPERIMENT, "-o", place, *changes),
        cwd=REPOSITORY, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert not (done.returncode and "severe" not in done.stderr + done.stdout), done.stderr
    return place


def test_exactly_the_budget_is_counted_three_times_over(folder: Path) -> None:
    runs = [(path, record.read_run(path)) for path in record.run_folders(folder)]
    assert {run.treatment["server"] for _, run in runs} == {"uWSGI 1", "Apache 1", "Apache 2"}
    for path, run in runs:
        assert (run.status, recorded(path), locust_total(path)) == ("complete", REQUESTS, (REQUESTS, 0))
        rows = [row for file in path.glob("response_times/*.csv") for row in csv.DictReader(file.open())]
        assert {row["outcome"] for row in rows} == {"success"}
        name = "apache.log" if str(run.treatment["server"]).startswith("Apache") else "uwsgi.log"
        assert len(re.findall(LOGGED, (path / "server" / name).read_text(), re.MULTILINE)) == REQUESTS


def test_the_report_has_the_pages_table_and_graphs(folder: Path) -> None:
    text = (folder / "report/authenticate.rst").read_text("utf-8")
    rows = re.findall(r"^\| total +\|.*\| 100\.0% +\| 100 +\| (N|Y|Y \(1 process\)) +\|$", text, re.MULTILINE)
    assert rows == ["N", "Y (1 process)", "Y"]
    assert f"'runner': {{'concurrency': 4, 'times': {REQUESTS}, 'type': 'constant'}}" in text
    for name in re.findall(r"^- \./(\S+)$", text, re.MULTILINE):
        assert (folder / "report" / name).is_file()
    assert len(list((folder / "report/authenticate").iterdir())) == 3
