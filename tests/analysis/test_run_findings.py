"""Checks of run_findings.py: each is provoked, and stays silent where nothing is wrong."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from analysis import decide, load
from analysis.compare import Verdict
from analysis.findings import Severity
from tests.analysis import synthetic
from tests.analysis.synthetic import PROCESSES, USERS
from tests.analysis.test_validity import analyse, found, run_folder

Make = Callable[..., Path]


def names(analysis: decide.Analysis) -> set[str]:
    return {finding.name for finding in analysis.findings}


def change(run: Path, **changes: object) -> None:
    path = run / "run.json"
    path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | changes), encoding="utf-8")


def repeat(run: Path, attempt: int) -> Path:
    return Path(shutil.copytree(run, run.with_name(f"{run.name}+{attempt}")))


def test_a_repaired_experiment_is_valid_and_says_what_was_repeated(demo_copy: Path) -> None:
    run = run_folder(demo_copy, processes=1, users=16)
    repeat(run, 2)
    change(run, status="failed", reason="the server died")
    analysis = analyse(demo_copy)
    assert len(analysis.experiment.complete_runs()) == 16
    assert analysis.experiment.oddities == ()
    assert [c.verdict for c in analysis.deciding] == [Verdict.FASTER]
    finding = found(analysis, "runs_repeated")
    assert finding.severity is Severity.NOTE
    assert finding.message == "1 run failed and was repeated."
    assert "the server died" in finding.evidence[0]


def test_the_first_complete_of_many_attempts_counts(small_copy: Path) -> None:
    run = run_folder(small_copy, processes=1, users=16)
    for attempt in (2, 9, 10, 11):
        repeat(run, attempt)
    change(run, status="failed", reason="first")
    change(run.with_name(run.name + "+2"), status="failed", reason="second")
    (run.with_name(run.name + "+9") / "run.json").write_text("{", encoding="utf-8")
    experiment = load.load_experiment(small_copy)
    assert run.name + "+10" in set(experiment.runs["folder"])
    assert [r.reason for r in experiment.repeated][:2] == ["first", "second"]
    assert len(experiment.repeated) == 3
    assert [oddity.file for oddity in experiment.oddities] == [run.name + "+11"]


def test_where_all_attempts_failed_the_last_ones_reason_is_told(small_copy: Path) -> None:
    run = run_folder(small_copy, processes=1, users=16)
    change(repeat(run, 2), status="failed", reason="second")
    change(run, status="failed", reason="first")
    experiment = load.load_experiment(small_copy)
    assert "second" in set(experiment.runs["reason"])
    assert [r.reason for r in experiment.repeated] == ["first"]


@pytest.mark.parametrize(
    ("response_s", "think_s", "lost", "severity"),
    [
        (0.05, 0.0, 0, None),
        (0.5, 0.0, 0, None),
        (0.1, 0.4, 0, None),
        (1.0, 0.0, 0, None),  # a third of the window
        (0.05, 0.0, 3, Severity.SEVERE),  # three of sixteen users hang for the whole run
        (2.0, 0.0, 0, Severity.SEVERE),
        (7.0, 0.0, 0, Severity.SEVERE),  # longer than steady state, so only a part of the users is ever heard of
    ],
)
def test_littles_law(make: Make, response_s: float, think_s: float, lost: int, severity: Severity | None) -> None:
    folder = make(factors={PROCESSES: [1, 2], USERS: [16]}, replicates=1)
    for run in (folder / "runs").iterdir():
        synthetic.write_closed_loop(run, 16, response_s, think_s, lost)
    analysis = analyse(folder)
    severities = [f.severity for f in analysis.findings if f.name == "littles_law"]
    assert severities == ([severity] if severity else [])
    if severity:
        finding = found(analysis, "littles_law")
        assert "16 users against X × R = " in finding.evidence[0]
        assert ("the window of 6 s holds" in finding.evidence[0]) is (not lost)
        assert len(finding.evidence) == 2
        assert ("timing.steady_state" in finding.next_action) is (not lost)


def test_littles_law_is_a_note_where_no_verdict_rests_on_it(demo_copy: Path) -> None:
    synthetic.write_closed_loop(run_folder(demo_copy, processes=1, users=4), 4, 2.0)
    assert found(analyse(demo_copy), "littles_law").severity is Severity.NOTE


def test_littles_law_leaves_locusts_own_time_between_fast_responses_a_note(make: Make) -> None:
    folder = make(factors={PROCESSES: [1, 2], USERS: [2]}, replicates=1)
    for run in (folder / "runs").iterdir():
        synthetic.write_closed_loop(run, 2, 0.005, 0.0015)
        data = json.loads((run / "run.json").read_text("utf-8"))
        change(run, load=data["load"] | {"think_time": 0.0})
    assert found(analyse(folder), "littles_law").severity is Severity.NOTE


def test_littles_law_counts_failures_too(make: Make) -> None:
    folder = make(factors={PROCESSES: [1, 2], USERS: [16]}, replicates=1)
    for run in (folder / "runs").iterdir():
        synthetic.write_closed_loop(run, 16, 0.05)
        path = run / "response_times" / "worker-0.csv"
        path.write_text(path.read_text("utf-8").replace("success", "503 Service Unavailable"), encoding="utf-8")
    assert "littles_law" not in names(analyse(folder))


@pytest.mark.parametrize(
    "load", [{"users": "many"}, {"users": True}, {"users": -1}, {"think_time": None}, {"model": 3}]
)
def test_littles_law_says_nothing_of_a_load_it_cannot_read(small_copy: Path, load: dict[str, object]) -> None:
    for run in (small_copy / "runs").iterdir():
        data = json.loads((run / "run.json").read_text("utf-8"))
        change(run, load=data["load"] | {"users": 4000} | load)
    assert "littles_law" not in names(analyse(small_copy))


def window(run: Path) -> tuple[int, int]:
    steady = json.loads((run / "run.json").read_text("utf-8"))["windows"]["steady_state"]
    return steady["start_unix_s"], steady["end_unix_s"]


def lengthen(run: Path, by_s: int) -> None:
    start, end = window(run)
    windows = json.loads((run / "run.json").read_text("utf-8"))["windows"]
    change(run, windows=windows | {"steady_state": {"start_unix_s": start, "end_unix_s": end + by_s}})


def test_a_window_of_another_length_than_planned(small_copy: Path) -> None:
    lengthen(run_folder(small_copy, processes=1, users=16), 594)
    analysis = analyse(small_copy)
    finding = found(analysis, "window_differs")
    assert finding.severity is Severity.SEVERE
    assert "600 s instead of 6 s" in finding.evidence[0]
    assert [c.verdict for c in analysis.deciding] == [Verdict.INVALID]


@pytest.mark.parametrize(
    ("planned", "by_s", "differs"), [({}, 1, True), ({}, 0, False), ({"steady_state_s": 5.5}, 0, False)]
)
def test_windows_of_different_lengths(small_copy: Path, planned: dict[str, float], by_s: int, differs: bool) -> None:
    path = small_copy / "experiment.json"
    path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | {"timing": planned}), encoding="utf-8")
    lengthen(run_folder(small_copy, processes=1, users=16), by_s)
    analysis = analyse(small_copy)
    assert ("window_differs" in names(analysis)) is differs
    if differs:
        assert len(found(analysis, "window_differs").evidence) == 1


def edit_usage(run: Path, keep: Callable[[float, int, str], bool], pid: Callable[[float, int], int]) -> None:
    """`keep` by seconds into steady state, pid and role; `pid` renames a server's."""
    start, _ = window(run)
    header, *lines = (run / "usage.csv").read_text("utf-8").splitlines()
    rows = []
    for line in lines:
        time, role, number, rest = line.split(",", 3)
        at = float(time) - start
        if keep(at, int(number), role):
            rows.append(f"{time},{role},{pid(at, int(number)) if role == 'server' else number},{rest}")
    (run / "usage.csv").write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")


@pytest.mark.parametrize(
    ("keep", "pid", "evidence"),
    [
        (lambda at, n, role: n != 501 or at < 3, lambda at, n: n, ["last seen 2.5 s"]),
        (lambda at, n, role: role != "server" or at < 3, lambda at, n: n, ["process 500", "process 501"]),
        (lambda at, n, role: True, lambda at, n: 777 if n == 501 and at > 3 else n, ["501, last seen", "777, first"]),
        (lambda at, n, role: n != 501 or at > 3, lambda at, n: n, ["501, first seen"]),
        (lambda at, n, role: n != 501 or not 2 < at < 3, lambda at, n: n, []),  # a pass or two of sampling missed
        (lambda at, n, role: n != 501 or at < 6.2, lambda at, n: n, []),  # stopped after steady state
        (lambda at, n, role: at > -1, lambda at, n: n, []),  # nobody looked earlier
        (lambda at, n, role: True, lambda at, n: 777 if n == 501 and at < -1 else n, []),  # restarted in warm-up
        (lambda at, n, role: role != "server", lambda at, n: n, []),
    ],
)
def test_a_server_process_that_ends_or_begins_within_steady_state(
    small_copy: Path,
    keep: Callable[[float, int, str], bool],
    pid: Callable[[float, int], int],
    evidence: list[str],
) -> None:
    edit_usage(run_folder(small_copy, processes=2, users=16), keep, pid)
    analysis = analyse(small_copy)
    assert ("server_restarted" in names(analysis)) is bool(evidence)
    if evidence:
        finding = found(analysis, "server_restarted")
        assert finding.severity is Severity.SEVERE
        assert len(finding.evidence) == len(evidence)
        assert all(part in line for part, line in zip(evidence, finding.evidence, strict=True))
        assert [c.verdict for c in analysis.deciding] == [Verdict.INVALID]


def test_a_pid_that_another_process_took_over(small_copy: Path) -> None:
    run = run_folder(small_copy, processes=2, users=4)
    start, _ = window(run)
    header, *lines = (run / "usage.csv").read_text("utf-8").splitlines()
    rows = [line.split(",") for line in lines]
    for row in rows:
        if row[2] == "501" and float(row[0]) > start + 3:
            row[4] = str(float(row[4]) - 3)
    (run / "usage.csv").write_text("\n".join([header, *(",".join(row) for row in rows)]) + "\n", encoding="utf-8")
    finding = found(analyse(small_copy), "server_restarted")
    assert finding.severity is Severity.NOTE
    assert "is another one from 3.0 s" in finding.evidence[0]


@pytest.mark.parametrize(("noise", "noisy"), [(0.0, False), (0.4, True)])
def test_replicates_that_differ_by_more_than_the_margin(make: Make, noise: float, noisy: bool) -> None:
    analysis = analyse(make(noise=noise, replicates=5, rate=lambda t: 400.0))
    assert ("noise_above_margin" in names(analysis)) is noisy
    if noisy:
        finding = found(analysis, "noise_above_margin")
        assert finding.severity is Severity.NOTE
        assert len(finding.evidence) == 4
        assert " over 5 runs (" in finding.evidence[0]


# --- workers_lost ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("users", "silent_from_s", "severity", "words"),
    [
        (16, -1, Severity.SEVERE, "silent from 1 s before steady state on"),
        (16, 2, Severity.SEVERE, "silent from 2 s into steady state on"),
        (16, None, Severity.SEVERE, "it recorded nothing"),
        (16, 6, Severity.NOTE, "silent after steady state only"),  # which is 6 s long
        (4, 2, Severity.NOTE, "silent from 2 s into steady state on"),  # the verdict is about 16 users
    ],
)
def test_workers_lost(small_copy: Path, users: int, silent_from_s: int | None, severity: Severity, words: str) -> None:
    run = run_folder(small_copy, processes=2, users=users)
    start = json.loads((run / "run.json").read_text("utf-8"))["windows"]["steady_state"]["start_unix_s"]
    seen = None if silent_from_s is None else start + silent_from_s
    lost = {"process": "worker-1", "share": 0.375, "of": "users", "last_seen_unix_s": seen}
    change(run, lost_workers=[lost])
    analysis = analyse(small_copy)
    finding = found(analysis, "workers_lost")
    assert finding.severity is severity
    assert finding.evidence[0].endswith(f": worker-1 with 37.5 % of the users, {words}")
    assert (Verdict.INVALID in {c.verdict for c in analysis.deciding}) is (severity is Severity.SEVERE)


@pytest.mark.parametrize("locust", [100, 100_000])
def test_what_a_lost_worker_had_not_reported_or_not_recorded_is_no_other_finding(small_copy: Path, locust: int) -> None:
    run = run_folder(small_copy, processes=1, users=16)
    text = f"Type,Name,Request Count,Failure Count\n,Aggregated,{locust},0\n"
    (run / "locust/load_stats.csv").write_text(text, encoding="utf-8")
    assert "totals_disagree" in names(analyse(small_copy))
    lost = {"process": "worker-1", "share": 0.5, "of": "users", "last_seen_unix_s": None}
    change(run, lost_workers=[lost])
    found_now = names(analyse(small_copy))
    assert "workers_lost" in found_now and "totals_disagree" not in found_now


def write_exceptions(run: Path, count: int) -> None:
    text = (
        f'Count,Message,Traceback,Nodes\n{count},"KeyError: \'token\'","Traceback,\nof two lines",local\n1,odd,,local\n'
    )
    (run / "locust" / "load_exceptions.csv").write_text(text, encoding="utf-8")
    files = json.loads((run / "run.json").read_text("utf-8"))["files"]
    change(run, files=files | {"locust": ["locust/load_stats.csv", "locust/load_exceptions.csv"]})


@pytest.mark.parametrize(("count", "severity"), [(2, Severity.NOTE), (200, Severity.SEVERE)])
def test_exceptions_of_the_locustfile(small_copy: Path, count: int, severity: Severity) -> None:
    write_exceptions(run_folder(small_copy, processes=1, users=16), count)
    analysis = analyse(small_copy)
    finding = found(analysis, "script_exceptions")
    assert finding.severity is severity
    assert len(finding.evidence) == 1
    assert finding.evidence[0].endswith(f"(processes = 1, users = 16): {count + 1} exceptions, KeyError: 'token'")
    assert [c.verdict for c in analysis.deciding] == [
        Verdict.INVALID if severity is Severity.SEVERE else Verdict.INCONCLUSIVE
    ]


@pytest.mark.parametrize("text", ["Count,Message,Traceback,Nodes\n", "", "Count,Message\nmany,x\n-1,y\n\0"])
def test_a_file_of_exceptions_without_any(small_copy: Path, text: str) -> None:
    run = run_folder(small_copy, processes=1, users=16)
    write_exceptions(run, 1)
    (run / "locust" / "load_exceptions.csv").write_text(text, encoding="utf-8")
    assert "script_exceptions" not in names(analyse(small_copy))


@pytest.mark.parametrize(("extreme_us", "above"), [(60_000_000, True), (200_000, False)])
def test_a_mean_that_a_few_extreme_responses_make(small_copy: Path, extreme_us: int, above: bool) -> None:
    run = run_folder(small_copy, processes=2, users=16)
    start, _ = window(run)
    with (run / "response_times" / "worker-0.csv").open("a", encoding="utf-8") as stream:
        stream.write(f"{start + 1},{synthetic.ENDPOINT},success,both,{extreme_us},5\n")
    analysis = analyse(small_copy)
    assert ("mean_above_p90" in names(analysis)) is above
    if above:
        finding = found(analysis, "mean_above_p90")
        assert finding.severity is Severity.NOTE
        assert finding.evidence[0].startswith("processes = 2, users = 16, all requests: mean ")
        assert "max 6" in finding.evidence[0]
