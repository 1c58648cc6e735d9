"""Runs of a real Locust by the runner, against a server that answers in a known time: a ramp, and a lost worker."""

import dataclasses
import json
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from analysis import record
from analysis.record import LostWorker, PlannedRun, RunRecord
from harness import arrivals, runner
from harness.server import Running, Server, Target
from harness.systems import keystone
from harness.validate import read
from tests.timed_server import timed_server

GOOD = Path(__file__).resolve().parents[2] / "configs/experiments/keystone-processes.yml"
RAMP, FLAT = "20:1s,20..80:3s", "40:4s"
CHANGES = (
    f"factors={{load.arrival_steps: ['{RAMP}', '{FLAT}']}}",
    "load={model: open, max_in_flight: 20, processes: 2}",
    *("timing={warm_up: 1s}", "baseline={}", "primary={}", "replicates=1"),
)
CREDENTIALS = {
    **{"OS_USERNAME": "admin", "OS_PASSWORD": "planted", "OS_PROJECT_NAME": "admin"},
    **{"OS_USER_DOMAIN_ID": "default", "OS_PROJECT_DOMAIN_ID": "default"},
}
Make = Callable[..., Server]


class Elsewhere:
    """A system whose server is a little process, while the load goes to the timed server."""

    Dataset = keystone.Dataset
    NEEDS_PARAMETERS = keystone.NEEDS_PARAMETERS
    NEEDS_TEMPLATES = keystone.NEEDS_TEMPLATES
    FIRST_START_S, FIRST_RATE_RPS = keystone.FIRST_START_S, keystone.FIRST_RATE_RPS
    processes = staticmethod(keystone.processes)
    check_limits = staticmethod(keystone.check_limits)

    def __init__(self, make: Make, url: str) -> None:
        self.make, self.url = make, url

    def prepare(self, *_: object) -> Path:
        return Path()

    def server(self, prepared: Path, place: Path, *_: object) -> Server:
        return dataclasses.replace(self.make(place), target=Target(self.url, CREDENTIALS))


class KillsAWorker:
    """The runner's Watcher: in the run of FLAT it kills a worker, two and a half seconds after all users were there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.killed_unix_s = 0.0

    def says(self, message: str) -> None:
        pass

    def server_ready(self, up: Running) -> None:
        pass

    def run_starts(self, run: PlannedRun) -> None:
        if run.treatment["load.arrival_steps"] == FLAT:
            file = self.folder / "runs" / f"{run.folder}.partial" / "response_times/worker-1.json"
            threading.Thread(target=self._kill, args=(file,), daemon=True).start()

    def run_ends(self, run: PlannedRun, outcome: RunRecord) -> None:
        pass

    def _kill(self, file: Path) -> None:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline and not self.killed_unix_s:
            time.sleep(0.05)
            known = json.loads(file.read_text()) if file.exists() else {}
            if known.get("spawning_complete_unix_s"):
                time.sleep(max(0.0, known["spawning_complete_unix_s"] + 2.5 - time.time()))
                psutil.Process(known["pid"]).kill()
                self.killed_unix_s = time.time()


def offered(run: Path, outcome: RunRecord) -> int:
    """Arrivals in steady state, as all processes counted them."""
    window = outcome.windows["steady_state"]
    rows = [json.loads(line) for path in run.glob("response_times/*.health.jsonl") for line in path.open()]
    inside = [row for row in rows if window.start_unix_s <= row["second"] < window.end_unix_s]
    return sum(row["arrivals"]["offered"] for row in inside)


def test_a_ramp_and_a_lost_worker(tmp_path: Path, little_server: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "result"
    (folder / "runs").mkdir(parents=True)
    watcher = KillsAWorker(folder)
    with timed_server(tmp_path, "--service", "fixed:0.01") as server:
        monkeypatch.setitem(runner.SYSTEMS, "keystone", Elsewhere(little_server, server.url))  # type: ignore[misc]
        file = read(GOOD, CHANGES)
        record.write_experiment(folder, runner.describe(file))
        runner.run(file, folder, watcher)
    read_back = [(path, record.read_run(path)) for path in record.run_folders(folder)]
    assert [(run.status, run.reason) for _, run in read_back] == [("complete", None)] * 2
    assert [run.windows["steady_state"].length_s for _, run in read_back] == [3, 3]
    runs = {str(run.treatment["load.arrival_steps"]): (path, run) for path, run in read_back}

    path, ramp = runs[RAMP]
    process = record.read_process(path / "response_times/worker-0.json")
    assert ramp.lost_workers == [] and process.spawning_complete_unix_s is not None
    begun_s = ramp.windows["steady_state"].start_unix_s - process.spawning_complete_unix_s - 0.1
    _, mean_rps, _ = arrivals.read("arrival_steps", f"{RAMP},80:3s").rates_rps(begun_s, begun_s + 3)
    assert offered(path, ramp) == pytest.approx(3 * mean_rps, abs=5)
    notes = record.read_experiment(folder).notes
    assert any(f"Arrivals follow {RAMP} from the start of the run: 50 a second on average" in note for note in notes)

    path, flat = runs[FLAT]
    (lost,) = flat.lost_workers
    assert lost.last_seen_unix_s is not None
    assert lost == LostWorker("worker-1", 0.5, "arrivals", lost.last_seen_unix_s)
    assert watcher.killed_unix_s - 2 < lost.last_seen_unix_s <= watcher.killed_unix_s + 0.1
    assert offered(path, flat) < 110  # of 120
    assert flat.locust["exit_code"] == 2
