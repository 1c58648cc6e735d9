"""The whole way on Keystone in Apache's mod_wsgi, with PostgreSQL and memcached; a harness that is killed on the way.

One slow test, for it is one slow server: about 40 seconds.
"""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import psutil

from analysis import record
from tests.test_end_to_end import REPOSITORY, harness, locust_total, recorded, secrets

EXPERIMENT = """
question: Does the whole way work with what others than uWSGI and SQLite bring along?
workload: keystone_auth
server:
  system: keystone
  configuration: apache
  parameters: {processes: 2, cache: memcached, database: postgresql, hash_rounds: 4}
dataset: {projects: 2, users_per_project: 20}
load: {users: 4}
timing: {warm_up: 1s, steady_state: 3s}
"""


def begin(place: Path) -> tuple[subprocess.Popen[str], Path]:
    """A `harness run` whose load has begun."""
    (place / "whole-way.yml").write_text(EXPERIMENT)
    command = harness("run", place / "whole-way.yml", "-o", place / "result", "--no-report")
    process = subprocess.Popen(command, cwd=REPOSITORY, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while not any(place.glob("result/runs/*.partial/response_times/*.csv")):
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return process, place / "result"


def alive(processes: list[psutil.Process]) -> list[psutil.Process]:
    return [p for p in processes if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]


def test_apache_postgresql_and_memcached_the_whole_way(tmp_path: Path) -> None:
    process, folder = begin(tmp_path)
    family = psutil.Process(process.pid).children(recursive=True)
    names = [p.name() for p in family]
    assert names.count("apache2") == 4 and "memcached" in names and names.count("postgres") > 4
    servers = [p for p in family if p.name() in ("apache2", "memcached", "postgres")]
    if os.geteuid() == 0:
        assert {p.uids().effective for p in servers if p.name() != "memcached"} == {65_534}
    assert {c.laddr.ip for p in servers for c in p.net_connections("tcp") if c.status == "LISTEN"} == {"127.0.0.1"}
    process.kill()
    process.communicate()

    again = subprocess.run(
        harness("run", "--resume", folder, "--no-report"),
        cwd=REPOSITORY, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert again.returncode == 0, again.stderr
    assert alive(family) == []
    scratch = re.search(
        r"\S+/\.servers/scratch/run-\w+", next(folder.glob("runs/*rep1*/server/apache.log")).read_text()
    )
    assert scratch and not Path(scratch[0]).exists()
    assert not [p for p in psutil.process_iter(["cmdline"]) if scratch[0] in " ".join(p.info["cmdline"] or ())]
    check(folder)


def check(folder: Path) -> None:
    """The record of the run that was done to its end."""
    (run,) = record.run_folders(folder)
    assert record.read_run(run).status == "complete"
    log = (run / "server/apache.log").read_text()
    count = recorded(run)
    assert count > 10
    assert count == len(re.findall(r'^request status=201 .* agent="stackswarm-keystone_auth"$', log, re.MULTILINE))
    assert locust_total(run) == (count, 0)
    python = sys.version.split()[0]
    assert len(re.findall(rf"^mod_wsgi process \d+ runs Python {re.escape(python)} of ", log, re.MULTILINE)) == 2
    usage = (run / "usage.csv").read_text()
    assert "memcached" in usage and "postgres" in usage and "apache2" in usage
    texts = {str(p): p.read_text(errors="replace") for p in folder.rglob("*") if p.is_file()}
    assert {name for name, text in texts.items() if any(secret in text for secret in secrets())} == set()
    notes = " ".join(record.read_experiment(folder).notes)
    assert "cache = memcached: one cache for all processes" in notes and "database = postgresql: " in notes
