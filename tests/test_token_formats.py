"""The token formats' experiment, on a real Keystone of 2018: UUID against Fernet, one token, new connections.

Slow, about half a minute. What it asserts is counts, states and texts, never how fast anything was.
"""

import csv
import re
import subprocess
import sys
from pathlib import Path

import pytest

from analysis import record
from harness import install

REPOSITORY = Path(__file__).resolve().parent.parent
EXPERIMENT = REPOSITORY / "configs/experiments/seed-keystone-token-formats.yml"
CHANGES = (
    *("factors.workload=[keystone_validate]", "factors.load.users=[1]", "primary={}", "replicates=1"),
    "options={keystone_validate: {connection: new, token_pool: 1}}",
    *("timing={warm_up: 1s, steady_state: 2s}", "server.parameters.cache=dict"),
)

pytestmark = pytest.mark.skipif(
    install._python("keystone-queens") is None, reason="Keystone of 2018 runs on Python 3.11 only"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("formats") / "result"
    command = [sys.executable, "-m", "harness", "run", str(EXPERIMENT), "-o", str(place)]
    changes = [word for change in CHANGES for word in ("--set", change)]
    done = subprocess.run(
        [*command, *changes], cwd=REPOSITORY, capture_output=True, text=True, timeout=300, check=False
    )
    assert not (done.returncode and "severe" not in done.stderr + done.stdout), done.stderr
    return place


def test_both_formats_are_measured_and_every_request_is_in_the_servers_log(folder: Path) -> None:
    runs = [(path, record.read_run(path)) for path in record.run_folders(folder)]
    assert [(run.status, run.server["version"]) for _, run in runs] == [("complete", "13.0.4")] * 2
    for path, run in runs:
        assert run.locust["facts"]["token_format"] == run.treatment["server.parameters.token_provider"]
        assert run.locust["facts"]["token_pool"] == 1
        rows = [row for file in path.glob("response_times/*.csv") for row in csv.DictReader(file.open())]
        assert {row["outcome"] for row in rows} == {"success"}
        answered = sum(int(row["count"]) for row in rows)
        log = (path / "server/uwsgi.log").read_text()
        assert answered > 10
        assert answered == len(re.findall(r"^request .* status=200 method=GET .*keystone_validate", log, re.MULTILINE))


def test_the_report_has_the_documents_files(folder: Path) -> None:
    written = (folder / "report/_Fernet_results.md").read_text("utf-8")
    (time_ms,) = re.findall(r"## Fernet token validation\n\nTime per request: +([\d.]+) \[ms\] \(mean\)", written)
    (run,) = [path for path in record.run_folders(folder) if "fernet" in path.name]
    window = record.read_run(run).windows["steady_state"]
    rows = [row for file in run.glob("response_times/*.csv") for row in csv.DictReader(file.open())]
    inside = [row for row in rows if window.start_unix_s <= int(row["second"]) < window.end_unix_s]
    assert float(time_ms) == pytest.approx(1000 * window.length_s / sum(int(row["count"]) for row in inside), abs=0.001)
    assert "Requests per second:    not measured" in written  # twenty clients were not asked for
    summary = (folder / "report/_summary.md").read_text("utf-8")
    assert "configuration queens" in summary and "hash_rounds 4" in summary
    page = (folder / "report/index.html").read_text("utf-8")
    assert "400% slower" in page and "database = postgresql: PostgreSQL 18" in page
