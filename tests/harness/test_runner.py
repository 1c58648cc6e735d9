"""The order in which things happen around a run, and what is left when one goes wrong.

The servers are real, little processes; in place of Locust a function notes that it was called and writes what it would.
"""

import dataclasses
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from analysis import record
from analysis.record import PlannedRun, RunRecord
from harness import runner
from harness.experiment import ExperimentFile
from harness.load import Files, LoadError
from harness.run_folder import redact
from harness.server import Running, Server, ServerError
from harness.systems import keystone
from harness.validate import read

GOOD = Path(__file__).resolve().parents[2] / "configs/experiments/keystone-processes.yml"
Make = Callable[..., Server]


class Journal:
    """Everything that happened, in order; also the runner's Watcher."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def says(self, message: str) -> None:
        pass

    def server_ready(self, up: Running) -> None:
        self.lines.append("server ready")

    def run_starts(self, run: PlannedRun) -> None:
        self.lines.append(f"run {run.number} starts")

    def run_ends(self, run: PlannedRun, outcome: RunRecord) -> None:
        self.lines.append(f"run {run.number} {outcome.status}")


class LittleSystem:
    """A system whose server is a real process that does nothing but listen."""

    Dataset = keystone.Dataset
    NEEDS_PARAMETERS = keystone.NEEDS_PARAMETERS
    NEEDS_TEMPLATES = keystone.NEEDS_TEMPLATES
    FIRST_START_S, FIRST_RATE_RPS = keystone.FIRST_START_S, keystone.FIRST_RATE_RPS
    processes = staticmethod(keystone.processes)
    check_limits = staticmethod(keystone.check_limits)

    def __init__(self, journal: Journal, make: Make) -> None:
        self.journal, self.make = journal, make
        self.fails_to_start: set[Any] = set()

    def prepare(
        self, configuration: Any, parameters: dict[str, Any], dataset: dict[str, Any], report: Callable[[str], None]
    ) -> Path:
        self.journal.lines.append(f"prepare processes={parameters['processes']}")
        return Path()

    def server(self, prepared: Path, place: Path, configuration: Any, parameters: dict[str, Any]) -> Server:
        if parameters["processes"] in self.fails_to_start:
            raise ServerError("it does not want to")
        return self.make(place)


@pytest.fixture
def journal() -> Journal:
    return Journal()


@pytest.fixture
def system(journal: Journal, little_server: Make, monkeypatch: pytest.MonkeyPatch) -> LittleSystem:
    chosen = LittleSystem(journal, little_server)
    monkeypatch.setitem(runner.SYSTEMS, "keystone", chosen)  # type: ignore[misc]
    return chosen


def write_process(output: Files) -> None:
    now = time.time()
    facts = {"token_format": "fernet"}
    process = record.ProcessRecord("local", 1, "closed", 0.004, now - 20, now - 19.5, now, facts)
    (output.response_times / "local.json").write_text(json.dumps(vars(process)))


@pytest.fixture
def locust(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> dict[int, Callable[[Running | None], int]]:
    """What "Locust" does in its n-th call, by n; it succeeds by default."""
    calls: dict[int, Callable[..., int]] = {}
    count = iter(range(1, 100))

    def run(
        argv: list[str], variables: Any, output: Files, expected_s: float, check: Any, started: Any, *_: Any
    ) -> int:
        output.csv_prefix.parent.mkdir(parents=True)
        output.response_times.mkdir(parents=True)
        journal.lines.append(f"load users={argv[argv.index('--users') + 1]}")
        (output.csv_prefix.parent / "console.log").write_text("locust saw planted-secret\n")
        output.log.write_text("All users spawned\n")
        write_process(output)
        return calls.get(next(count), lambda check: 0)(check)

    monkeypatch.setattr(runner.load, "run", run)
    return calls


def begin(tmp_path: Path, *overrides: str) -> tuple[ExperimentFile, Path]:
    file = read(GOOD, ("replicates=1", "order.server=per_block", *overrides))
    folder = tmp_path / "result"
    (folder / "runs").mkdir(parents=True)
    record.write_experiment(folder, runner.describe(file))
    return file, folder


def test_order_of_events(tmp_path: Path, journal: Journal, system: LittleSystem, locust: Any) -> None:
    file, folder = begin(tmp_path)
    plan = record.read_experiment(folder).plan
    runner.run(file, folder, journal)
    expected = []
    for run in plan:
        if expected.count(f"server {run.server_number}") == 0:
            expected += [
                f"server {run.server_number}",
                f"prepare processes={run.treatment['server.parameters.processes']}",
                "server ready",
            ]
        expected += [
            f"run {run.number} starts",
            f"load users={run.treatment['load.users']}",
            f"run {run.number} complete",
        ]
    assert journal.lines == [line for line in expected if not line.startswith("server ") or line == "server ready"]
    assert journal.lines.count("server ready") == 2


def test_a_run_folder_is_whole(tmp_path: Path, journal: Journal, system: LittleSystem, locust: Any) -> None:
    file, folder = begin(tmp_path)
    runner.run(file, folder, journal)
    for found, planned in zip(record.run_folders(folder), record.read_experiment(folder).plan, strict=True):
        assert found.name == planned.folder
        outcome = record.read_run(found)
        assert (outcome.status, outcome.treatment, outcome.number) == ("complete", planned.treatment, planned.number)
        assert outcome.windows["steady_state"].length_s == 6
        assert outcome.locust["facts"] == {"token_format": "fernet"}
        listed = [p for value in outcome.files.values() for p in (value if isinstance(value, list) else [value])]
        assert {"usage.csv", "locust/console.log", "server/answering.log", "configuration/little.conf"} <= set(listed)
        assert all((found / path).is_file() for path in listed)


def test_no_secret_is_left_in_a_run_folder(tmp_path: Path, journal: Journal, system: LittleSystem, locust: Any) -> None:
    file, folder = begin(tmp_path)
    runner.run(file, folder, journal)
    texts = {p: p.read_text() for p in folder.rglob("*") if p.is_file()}
    assert not [p for p, text in texts.items() if "planted-secret" in text]
    assert any("locust saw [redacted]" in text for text in texts.values())
    assert any("password = [redacted]" in text for text in texts.values())


def test_a_failed_load_is_recorded_and_the_next_run_begins(
    tmp_path: Path, journal: Journal, system: LittleSystem, locust: Any
) -> None:
    def fail(check: Any) -> int:
        raise LoadError("Locust lost its way")

    locust[1] = fail
    locust[2] = lambda check: 7
    file, folder = begin(tmp_path)
    outcomes = runner.run(file, folder, journal)
    assert [o.status for o in outcomes] == ["failed", "failed", "complete", "complete"]
    assert outcomes[0].reason == "Locust lost its way"
    assert outcomes[1].reason is not None and outcomes[1].reason.startswith("Locust ended with status 7: ")
    assert [record.read_run(f).status for f in record.run_folders(folder)] == [o.status for o in outcomes]


def lose(output: Files) -> None:
    """What Locust leaves where one of two workers was killed: no end in the record, a line of the master, status 2."""
    row = {"process": "worker-0", "share": 0.5, "of": "users", "noticed_unix_s": 1.0}
    (output.response_times / "lost-workers.jsonl").write_text(json.dumps(row) + "\n")
    known = json.loads((output.response_times / "local.json").read_text())
    (output.response_times / "worker-0.json").write_text(
        json.dumps(known | {"process": "worker-0", "test_stop_unix_s": None})
    )


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ((), None),
        (("load={users: 4, requests: 50}", "factors={}", "baseline={}", "primary={}", "timing={warm_up: 0s}"),
         "lost worker-0 with 50 % of the users, which nobody answered: the budget was not reached, "),
    ],
)  # fmt: skip
def test_a_run_that_lost_a_worker_is_kept_unless_it_has_a_budget(
    tmp_path: Path, journal: Journal, system: LittleSystem, locust: Any, monkeypatch: pytest.MonkeyPatch,
    changes: tuple[str, ...], reason: str | None,
) -> None:  # fmt: skip
    usual = runner.load.run

    def run(argv: list[str], variables: Any, output: Files, *more: Any) -> int:
        done = usual(argv, variables, output, *more)
        lose(output)
        return done

    monkeypatch.setattr(runner.load, "run", run)
    locust[1] = lambda check: 2
    file, folder = begin(tmp_path, *changes)
    runner.run(file, folder, journal)
    outcome = record.read_run(record.run_folders(folder)[0])
    assert outcome.status == ("failed" if reason else "complete")
    assert (outcome.reason or "").startswith(reason or "") and bool(outcome.reason) == bool(reason)
    assert outcome.lost_workers == [record.LostWorker("worker-0", 0.5, "users", None)]


def test_a_run_that_was_aborted_says_why(tmp_path: Path, journal: Journal, system: LittleSystem, locust: Any) -> None:
    def abort(check: Any) -> int:
        (log,) = tmp_path.glob("result/runs/*.partial/locust/locust.log")
        log.write_text(f"{runner.load.ABORTED}abort-when failure_ratio > 50%: 83 % over 5 s.\n")
        return 1

    locust[1] = abort
    file, folder = begin(tmp_path, "abort_when=['failure_ratio > 50%']", "objectives=['failure_ratio < 1%']")
    outcomes = runner.run(file, folder, journal)
    assert [o.status for o in outcomes] == ["failed", "complete", "complete", "complete"]
    assert outcomes[0].reason == "aborted by abort_when: failure_ratio > 50%: 83 % over 5 s."
    kept = record.read_experiment(folder)
    assert (kept.abort_when, kept.objectives) == (["failure_ratio > 50%"], ["failure_ratio < 1%"])


def test_after_a_server_died_the_rest_of_its_runs_get_another_one(
    tmp_path: Path, journal: Journal, system: LittleSystem, locust: Any
) -> None:
    def kill_server(check: Callable[[], None]) -> int:
        up = check.__self__.up  # type: ignore[attr-defined]
        psutil.Process(up.pids[0]).kill()
        up.popens["answering"].wait()
        check()
        return 0

    locust[1] = kill_server
    file, folder = begin(tmp_path)
    outcomes = runner.run(file, folder, journal)
    assert [o.status for o in outcomes] == ["failed", "complete", "complete", "complete"]
    assert outcomes[0].reason is not None and "answering ended with status -9" in outcomes[0].reason
    assert journal.lines.count("server ready") == 3


def test_a_server_that_does_not_start_fails_its_runs_and_no_others(
    tmp_path: Path, journal: Journal, system: LittleSystem, locust: Any
) -> None:
    system.fails_to_start = {2}
    file, folder = begin(tmp_path)
    outcomes = runner.run(file, folder, journal)
    assert len(outcomes) == 4
    for outcome in outcomes:
        failed = outcome.treatment["server.parameters.processes"] == 2
        assert (outcome.status, outcome.reason) == (("failed", "it does not want to") if failed else ("complete", None))


def test_an_interrupt_keeps_what_is_done_and_resume_does_the_rest(
    tmp_path: Path, journal: Journal, system: LittleSystem, locust: Any
) -> None:
    def interrupt(check: Any) -> int:
        raise KeyboardInterrupt

    locust[2] = interrupt
    file, folder = begin(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        runner.run(file, folder, journal)
    done = record.run_folders(folder)
    assert [f.name for f in done] == [record.read_experiment(folder).plan[0].folder]
    assert [f.name for f in (folder / "runs").glob("*.partial")] == [
        record.read_experiment(folder).plan[1].folder + ".partial"
    ]
    kept = (done[0] / "run.json").read_bytes()
    again = runner.run(file, folder, journal)
    assert [o.number for o in again] == [2, 3, 4]
    assert (done[0] / "run.json").read_bytes() == kept
    assert record.missing_runs(folder) == []


def test_resume_repeats_a_failed_run_beside_its_record(
    tmp_path: Path, journal: Journal, system: LittleSystem, locust: Any
) -> None:
    locust[1] = lambda check: 1
    file, folder = begin(tmp_path)
    runner.run(file, folder, journal)
    again = runner.run(file, folder, journal)
    first = record.read_experiment(folder).plan[0]
    assert [o.number for o in again] == [1]
    attempts = [f for f in record.run_folders(folder) if record.planned_name(f) == first.folder]
    assert [record.read_run(f).status for f in attempts] == ["failed", "complete"]
    assert [f.name for f in attempts] == [first.folder, f"{first.folder}+2"]
    assert runner.run(file, folder, journal) == []


def test_the_experiment_says_what_is_held_constant_and_how_it_differs_from_what_is_shipped() -> None:
    described = runner.describe(read(GOOD))
    assert described.held_constant["server.parameters.cache"] == "dict"
    assert described.held_constant["dataset.users_per_project"] == 512
    assert "server.parameters.processes" not in described.held_constant
    assert any("cache = dict, and ships with null" in note for note in described.notes)
    assert any("hash_rounds = 4, and ships with 12" in note for note in described.notes)
    assert not any("token_provider" in note for note in described.notes)


def test_rate_files_are_kept_with_the_result_and_resume_takes_them_from_there(tmp_path: Path) -> None:
    text = "seconds,rate_rps\n2,10\n6,30\n"
    model = "load={model: open, arrival_rates: peak.csv, max_in_flight: 9}"
    changes = ("factors={}", "baseline={}", "primary={}", "timing={warm_up: 2s}", model)
    described = runner.describe(read(GOOD, changes, {"peak.csv": text}))
    assert described.arrival_rates == {"peak.csv": text}
    assert described.timing == {"warm_up_s": 2, "steady_state_s": 6}
    assert any("follow peak.csv from the start of the run: 30 a second on average" in n for n in described.notes)
    record.write_experiment(tmp_path, described)
    known = record.read_experiment(tmp_path).arrival_rates
    again = runner.describe(read(GOOD, changes, known))  # there is no such file
    assert dataclasses.replace(again, created_unix_s=described.created_unix_s) == described


def test_a_server_that_is_still_busy_is_replaced_before_the_next_run(
    tmp_path: Path, journal: Journal, system: LittleSystem, locust: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "wait_until_idle", lambda up: False)
    file, folder = begin(tmp_path)
    assert [o.status for o in runner.run(file, folder, journal)] == ["complete"] * 4
    assert journal.lines.count("server ready") == 4


@pytest.mark.parametrize(
    ("text", "secrets", "expected"),
    [
        ("a b", set(), "a b"),
        ("password=abc", {"abc"}, "password=[redacted]"),
        ("abcdef abc", {"abc", "abcdef"}, "[redacted] [redacted]"),
    ],
)
def test_redaction(text: str, secrets: set[str], expected: str) -> None:
    assert redact(text, frozenset(secrets)) == expected
