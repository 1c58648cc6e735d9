from __future__ import annotations

import csv
import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from analysis import decide, load
from analysis.findings import Finding, Severity
from analysis.fingerprints import fingerprint
from analysis.record import RESPONSE_TIME_COLUMNS, run_folders
from tests.analysis.synthetic import ENDPOINT, PROCESSES, USERS

Make = Callable[..., Path]
NEW = {"runs_copied", "runs_overlap", "traffic_differs"}


def analyse(folder: Path) -> list[Finding]:
    return decide.analyse(load.load_experiment(folder)).findings


def found(folder: Path, name: str) -> Finding:
    (finding,) = [finding for finding in analyse(folder) if finding.name == name]
    return finding


def shift(file: Path, by_s: int, seed: int | None = None) -> None:
    """Histogram rows at another time and, with a seed, in another order."""
    with file.open(newline="", encoding="utf-8") as stream:
        header, *rows = list(csv.reader(stream))
    rows = [[str(int(second) + by_s), *rest] for second, *rest in rows]
    if seed is not None:
        random.Random(seed).shuffle(rows)
    with file.open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows([header, *rows])


def copy_times(folder: Path, source: int, target: int, names: tuple[str, ...], seed: int | None = None) -> None:
    """Response times of one run as another's, at that one's time."""
    one, other = (run_folders(folder)[number - 1] for number in (source, target))
    begins = [json.loads((run / "run.json").read_text("utf-8"))["windows"]["warm_up"]["start_unix_s"]
              for run in (one, other)]  # fmt: skip
    for name in names:
        shutil.copy(one / "response_times" / name, other / "response_times" / name)
        shift(other / "response_times" / name, begins[1] - begins[0], seed)


def edit(run: Path, change: Callable[[dict[str, Any]], object]) -> None:
    data = json.loads((run / "run.json").read_text("utf-8"))
    change(data)
    (run / "run.json").write_text(json.dumps(data), encoding="utf-8")


def test_an_honest_experiment_has_none_of_them(demo: Path) -> None:
    assert not NEW & {finding.name for finding in analyse(demo)}


@pytest.mark.parametrize(
    ("names", "seed", "what"),
    [
        (("worker-0.csv",), None, "the same worker-0.csv"),
        (("worker-0.csv",), 1, "the same worker-0.csv"),
        (("worker-0.csv", "worker-1.csv"), 2, "the same worker-0.csv, worker-1.csv and steady state"),
    ],
)
def test_response_times_of_another_run_at_another_time(
    small_copy: Path, names: tuple[str, ...], seed: int | None, what: str
) -> None:
    copy_times(small_copy, 1, 3, names, seed)
    finding = found(small_copy, "runs_copied")
    (line,) = finding.evidence
    assert line.startswith("run 1 (") and "and run 3 (" in line and line.endswith(what)


def test_copies_are_severe_where_the_verdict_rests_on_them(demo_copy: Path) -> None:
    runs = load.load_experiment(demo_copy).runs
    for users in (4, 16):
        of_users = runs.loc[runs["treatment"].str.contains(f'"{USERS}": {users},'), "run"].tolist()
        copy_times(demo_copy, of_users[0], of_users[1], ("worker-0.csv",))
    note, severe = sorted((f for f in analyse(demo_copy) if f.name == "runs_copied"), key=lambda f: f.severity)
    assert (note.severity, severe.severity) == (Severity.NOTE, Severity.SEVERE)
    assert "users = 4" in note.evidence[0] and "users = 16" in severe.evidence[0]


def test_a_process_that_is_the_copy_of_another(small_copy: Path) -> None:
    folder = run_folders(small_copy)[0] / "response_times"
    shutil.copy(folder / "worker-0.csv", folder / "worker-1.csv")
    assert found(small_copy, "runs_copied").evidence[0].endswith("the same worker-0.csv and worker-1.csv")


def write(run: Path, rows: list[tuple[Any, ...]]) -> None:
    for name, part in (("worker-0.csv", rows), ("worker-1.csv", [])):
        with (run / "response_times" / name).open("w", newline="", encoding="utf-8") as stream:
            csv.writer(stream).writerows([RESPONSE_TIME_COLUMNS, *part])


@pytest.mark.parametrize("rare", [0, 120, 140])
def test_runs_that_look_the_same_by_chance(small_copy: Path, rare: int) -> None:
    """Ten a second and all in one bucket, as of a server that always takes as long, is no copy."""
    for run in run_folders(small_copy):
        start = json.loads((run / "run.json").read_text("utf-8"))["windows"]["warm_up"]["start_unix_s"]
        rows = [(start + second, ENDPOINT, "success", "both", 5000, 100) for second in range(8)]
        write(run, [*rows, *((start + n % 8, ENDPOINT, "success", "both", 6000 + 100 * n, 1) for n in range(rare))])
    assert ("runs_copied" in {f.name for f in analyse(small_copy)}) is (rare == 140)


def test_a_tiny_run_with_the_very_seconds_of_another(small_copy: Path) -> None:
    one, other = run_folders(small_copy)[:2]
    start = json.loads((one / "run.json").read_text("utf-8"))["windows"]["warm_up"]["start_unix_s"]
    for run in (one, other):
        write(run, [(start + second, ENDPOINT, "success", "both", 5000, 1) for second in range(8)])
    assert found(small_copy, "runs_copied").evidence[0].endswith("the same worker-0.csv")


def test_a_fingerprint_knows_no_order_and_no_codes() -> None:
    rows = pd.DataFrame({"second": [7, 8, 9], "endpoint": pd.Categorical(["a", "b", "a"]), "count": [1, 2, 3]})
    later = rows.assign(second=rows["second"] + 5)
    wider = rows.assign(endpoint=rows["endpoint"].cat.set_categories(["0", "a", "b"]))
    first = fingerprint("x", rows, 7, 0).digest
    assert first == fingerprint("x", rows.iloc[::-1], 7, 0).digest
    assert first == fingerprint("x", later, 12, 0).digest == fingerprint("x", wider, 7, 0).digest
    others = [
        rows.assign(count=[1, 3, 2]),
        rows.assign(second=[8, 7, 9]),
        rows.assign(endpoint=pd.Categorical(list("abb"))),
    ]
    assert len({first, fingerprint("x", later, 7, 0).digest, *(fingerprint("x", o, 7, 0).digest for o in others)}) == 5


@pytest.mark.parametrize(("by_s", "overlaps"), [(-12, False), (-13, True)])
def test_runs_at_the_same_time(small_copy: Path, by_s: int, overlaps: bool) -> None:
    """Runs here begin 20 s after each other and take 8 s."""

    def move(data: dict[str, Any]) -> None:
        for window in data["windows"].values():
            window["start_unix_s"] += by_s
            window["end_unix_s"] += by_s

    edit(run_folders(small_copy)[1], move)
    findings = [f for f in analyse(small_copy) if f.name == "runs_overlap"]
    assert bool(findings) is overlaps
    if overlaps:
        assert findings[0].severity is Severity.SEVERE
        assert findings[0].evidence[0].endswith("1 s in common")


def rename(folder: Path, processes: int, new: Callable[[int], str]) -> None:
    """Other endpoints for one side's rows, by their number."""
    for run in run_folders(folder):
        if json.loads((run / "run.json").read_text("utf-8"))["treatment"].get(PROCESSES) == processes:
            for file in (run / "response_times").glob("*.csv"):
                header, *lines = file.read_text("utf-8").splitlines()
                lines = [line.replace(ENDPOINT, new(number)) for number, line in enumerate(lines)]
                file.write_text("\n".join([header, *lines]) + "\n", encoding="utf-8")


def test_sides_with_other_endpoints(small_copy: Path) -> None:
    rename(small_copy, 2, lambda number: "GET /v3")
    finding = found(small_copy, "traffic_differs")
    assert finding.severity is Severity.SEVERE
    assert finding.evidence[0].startswith("GET /v3: 0 % with processes = 1, users = 16 and 100 % with processes = 2")


@pytest.mark.parametrize(("every", "differs"), [(2, True), (5, True), (20, True), (1000, False)])
def test_an_endpoint_that_one_side_has_alone(small_copy: Path, every: int, differs: bool) -> None:
    rename(small_copy, 2, lambda number: "GET /v3" if number % every == 1 else ENDPOINT)
    assert ("traffic_differs" in {f.name for f in analyse(small_copy)}) is differs


@pytest.mark.parametrize(("every", "differs"), [(2, True), (3, False)])
def test_sides_with_another_mix(small_copy: Path, every: int, differs: bool) -> None:
    for processes, share in ((1, 3), (2, every)):
        rename(small_copy, processes, lambda number, share=share: "GET /v3" if number % share == 0 else ENDPOINT)  # type: ignore[misc]
    assert ("traffic_differs" in {f.name for f in analyse(small_copy)}) is differs


def test_a_mix_that_the_factor_is_about_is_a_note(make: Make) -> None:
    path = "options.keystone_auth.auth_method"
    folder = make(factors={path: ["token", "password"]}, baseline={path: "token"}, primary={"metric": "throughput"},
                  replicates=1)  # fmt: skip
    for run in run_folders(folder):
        if "password" in run.name:
            for file in (run / "response_times").glob("*.csv"):
                file.write_text(file.read_text("utf-8").replace(ENDPOINT, "POST (password)"), encoding="utf-8")
    assert found(folder, "traffic_differs").severity is Severity.NOTE


COMMAND = ["/a/python", "-m", "locust", "-f", "/a/locustfiles/keystone_auth.py", "--host", "http://127.0.0.1:1/v3"]


def command(*more: str) -> Callable[[dict[str, Any]], object]:
    return lambda data: data["locust"].update(command=[*COMMAND, *more])


@pytest.mark.parametrize(
    ("more", "differing"),
    [
        (["--seed", "7", "--csv", "/b/c/locust", "--master-port", "5"], None),
        (["--users-csv", "elsewhere/users.csv"], None),
        (["--host", "http://127.0.0.1:2/v3"], None),
        (["--host", "http://127.0.0.2:1/v3"], "--host"),
        (["--users", "16"], None),
        (["--think-time", "1"], "--think-time"),
        (["--scope", "domain"], "--scope"),
        (["--catalog"], "--catalog"),
    ],
)
def test_what_locust_was_told(small_copy: Path, more: list[str], differing: str | None) -> None:
    usual = ["--seed", "3", "--csv", "/a/locust", "--master-port", "4", "--users-csv", "/a/users.csv"]
    for run in run_folders(small_copy):
        users = json.loads((run / "run.json").read_text("utf-8"))["treatment"][USERS]
        edit(run, command(*usual, "--users", str(users)))
    odd = next(run for run in run_folders(small_copy) if "users16" in run.name)
    words = dict(zip([*COMMAND[5::2], *usual[::2], "--users"], [*COMMAND[6::2], *usual[1::2], "16"], strict=True))
    words |= dict(zip(more[::2], more[1::2], strict=False)) if len(more) > 1 else {}
    flags = [word for option in words.items() for word in option] + (more if len(more) == 1 else [])
    edit(odd, lambda data: data["locust"].update(command=[*COMMAND[:5], *flags]))
    findings = [f for f in analyse(small_copy) if f.name == "configuration_differs"]
    if differing is None:
        assert not findings
    else:
        assert findings[0].severity is Severity.SEVERE
        assert f"locust.command.{differing}:" in findings[0].evidence[0]


@pytest.mark.parametrize(
    ("facts", "severity"),
    [
        ({"token_format": "jws"}, Severity.SEVERE),
        ({"token_format": "fernet", "expired_tokens_count": 3}, None),
        ({"token_format": "fernet", "token_pool": 3}, Severity.NOTE),
    ],
)
def test_what_the_locustfile_found_out(small_copy: Path, facts: dict[str, Any], severity: Severity | None) -> None:
    for run in run_folders(small_copy):
        edit(run, lambda data: data["locust"].update(facts={"token_format": "fernet", "token_pool": 2}))
    edit(run_folders(small_copy)[0], lambda data: data["locust"].update(facts={"token_pool": 2} | facts))
    severities = [f.severity for f in analyse(small_copy) if f.name == "configuration_differs"]
    assert severities == ([] if severity is None else [severity])


def test_a_fact_that_a_factor_is_about(make: Make) -> None:
    path = "server.parameters.token_provider"
    folder = make(factors={path: ["fernet", "jws"]}, baseline={path: "fernet"}, primary={}, replicates=1)
    for run in run_folders(folder):
        edit(run, lambda data: data["locust"].update(facts={"token_format": data["treatment"][path]}))
        edit(run, lambda data: data["server"]["parameters"].update(token_provider=data["treatment"][path]))
    assert "configuration_differs" not in {f.name for f in analyse(folder)}


# --- the plan ---


def edited(folder: Path, change: Callable[[dict[str, Any]], object]) -> decide.Analysis:
    file = folder / "experiment.json"
    record = json.loads(file.read_text("utf-8"))
    change(record)
    file.write_text(json.dumps(record), encoding="utf-8")
    return decide.analyse(load.load_experiment(folder))


@pytest.mark.parametrize(("users", "severity"), [(16, Severity.SEVERE), (4, Severity.NOTE)])
def test_runs_taken_out_of_the_plan(demo_copy: Path, users: int, severity: Severity) -> None:
    """Folder and row: nothing is missing of what the plan still says."""

    def take_out(record: dict[str, Any]) -> None:
        run = next(run for run in record["plan"] if run["treatment"] == {PROCESSES: 1, USERS: users})
        record["plan"].remove(run)
        shutil.rmtree(demo_copy / "runs" / run["folder"])

    analysis = edited(demo_copy, take_out)
    assert {finding.name for finding in analysis.findings} - {"few_replicates"} == {"plan_edited"}
    finding = next(f for f in analysis.findings if f.name == "plan_edited")
    assert finding.severity is severity
    assert finding.evidence == (f"processes = 1, users = {users}: 3 runs in the plan, and 4 declared",)


def test_a_treatment_taken_out_of_the_plan_and_one_put_in(small_copy: Path) -> None:
    def cut(record: dict[str, Any]) -> None:
        record["factors"][PROCESSES] = [1, 3]

    finding = next(f for f in edited(small_copy, cut).findings if f.name == "plan_edited")
    assert len(finding.evidence) == 4
    assert "processes = 2, users = 4: 1 run in the plan, and no level of the factors" in finding.evidence
    assert "processes = 3, users = 16: 0 runs in the plan, and 1 declared" in finding.evidence


def test_a_plan_of_very_many_combinations_is_counted_alone(small_copy: Path) -> None:
    def widen(record: dict[str, Any]) -> None:
        record["factors"] |= {f"load.x{n}": list(range(100)) for n in range(9)}

    finding = next(f for f in edited(small_copy, widen).findings if f.name == "plan_edited")
    assert finding.evidence == ("4 of 4,000,000,000,000,000,000 combinations of levels are in the plan",)
