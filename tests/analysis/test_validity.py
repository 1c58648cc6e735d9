"""Each check of the closed list is provoked once, and stays silent on a sound experiment."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from analysis import decide, load, validity
from analysis.compare import Verdict
from analysis.findings import Finding, Severity
from tests.analysis.synthetic import PROCESSES, USERS

Make = Callable[..., Path]
ONE_SWEEP = {PROCESSES: [1, 2], USERS: [16]}


def analyse(folder: Path) -> decide.Analysis:
    return decide.analyse(load.load_experiment(folder))


def found(analysis: decide.Analysis, name: str) -> Finding:
    (finding,) = [f for f in analysis.findings if f.name == name]
    return finding


def run_folder(folder: Path, **levels: int) -> Path:
    """The first run with these levels."""
    wanted = {PROCESSES: levels["processes"], USERS: levels["users"]}
    for path in sorted((folder / "runs").iterdir()):
        if json.loads((path / "run.json").read_text("utf-8"))["treatment"] == wanted:
            return path
    raise AssertionError(f"no run with {levels}")


def edit(run: Path, section: str, **changes: Any) -> None:
    path = run / "run.json"
    data = json.loads(path.read_text("utf-8"))
    data[section] |= changes
    path.write_text(json.dumps(data), encoding="utf-8")


def test_a_sound_experiment_has_no_finding(demo_analysis: decide.Analysis) -> None:
    assert demo_analysis.findings == []


def test_every_check_gives_its_findings_its_own_name() -> None:
    names = [check.__name__ for check in validity.CHECKS]
    assert len(set(names)) == len(names)


def test_a_missing_run_of_a_deciding_treatment_is_severe(demo_copy: Path) -> None:
    shutil.rmtree(run_folder(demo_copy, processes=1, users=16))
    analysis = analyse(demo_copy)
    assert found(analysis, "runs_incomplete").severity is Severity.SEVERE
    assert [c.verdict for c in analysis.deciding] == [Verdict.INVALID]


def test_a_missing_run_elsewhere_is_a_note(demo_copy: Path) -> None:
    shutil.rmtree(run_folder(demo_copy, processes=1, users=4))
    analysis = analyse(demo_copy)
    assert found(analysis, "runs_incomplete").severity is Severity.NOTE
    assert [c.verdict for c in analysis.deciding] == [Verdict.FASTER]


@pytest.mark.parametrize(("ratio", "expected"), [(0.0, False), (0.004, False), (0.03, True)])
def test_failures_above_one_percent(make: Make, ratio: float, expected: bool) -> None:
    analysis = analyse(make(failure_ratio=lambda t: ratio if t[PROCESSES] == 2 else 0.0, replicates=2))
    names = [f.name for f in analysis.findings]
    assert ("failures" in names) is expected
    if expected:
        finding = next(f for f in analysis.findings if f.name == "failures")
        assert "95 % interval" in finding.evidence[0]
        assert any("503 Service Unavailable" in line for line in finding.evidence)


def test_failures_of_a_rare_endpoint_do_not_hide_among_the_others(small_copy: Path) -> None:
    run = run_folder(small_copy, processes=2, users=16)
    start = json.loads((run / "run.json").read_text("utf-8"))["windows"]["steady_state"]["start_unix_s"]
    with (run / "response_times" / "worker-0.csv").open("a", encoding="utf-8") as stream:
        stream.write(f"{start},GET /rare,500 Internal Server Error,both,1000,5\n")
    analysis = analyse(small_copy)
    assert found(analysis, "failures").evidence[0].startswith("GET /rare: 5 of 5 = 100 %")


def test_no_successes(make: Make) -> None:
    analysis = analyse(make(failure_ratio=lambda t: 1.0 if t == {PROCESSES: 2, USERS: 16} else 0.0, replicates=1))
    assert found(analysis, "no_successes").severity is Severity.SEVERE
    assert [c.verdict for c in analysis.deciding] == [Verdict.INVALID]


@pytest.mark.parametrize(
    ("busy", "severity", "verdict"),
    [
        ({1: 0.3, 2: 0.6}, None, Verdict.FASTER),
        ({1: 0.3, 2: 0.9}, Severity.NOTE, Verdict.FASTER),  # the faster side was held back, and is faster all the same
        ({1: 0.9, 2: 0.3}, Severity.SEVERE, Verdict.INVALID),
        ({1: 0.9, 2: 0.9}, Severity.SEVERE, Verdict.INVALID),
    ],
)
def test_a_busy_generator_is_severe_only_where_it_could_change_the_verdict(
    make: Make, busy: dict[int, float], severity: Severity | None, verdict: Verdict
) -> None:
    analysis = analyse(make(factors=ONE_SWEEP, generator_share=lambda t: busy[t[PROCESSES]]))
    assert [f.severity for f in analysis.findings if f.name == "generator_busy"] == ([severity] if severity else [])
    assert [c.verdict for c in analysis.deciding] == [verdict]


def test_a_busy_generator_is_severe_where_no_difference_was_seen(make: Make) -> None:
    analysis = analyse(
        make(
            rate=lambda t: 60.0,
            generator_share=lambda t: 0.9 if t[PROCESSES] == 2 else 0.2,
            factors=ONE_SWEEP,
        )
    )
    assert found(analysis, "generator_busy").severity is Severity.SEVERE


def test_usage_missing(small_copy: Path) -> None:
    (run_folder(small_copy, processes=1, users=16) / "usage.csv").unlink()
    finding = found(analyse(small_copy), "usage_missing")
    assert finding.severity is Severity.NOTE
    assert "In 1 of 4 runs" in finding.message


@pytest.mark.parametrize(
    ("factor", "severity"),
    [
        (1.5, Severity.SEVERE),
        (1.03, Severity.SEVERE),
        (1.005, None),
        (1.0, None),
        (0.97, Severity.NOTE),  # Locust's CSV ends a second early
        (0.8, Severity.SEVERE),
        (0.0, Severity.SEVERE),
    ],
)
def test_totals_disagree(small_copy: Path, factor: float, severity: Severity | None) -> None:
    path = run_folder(small_copy, processes=1, users=16) / "locust" / "load_stats.csv"
    header, row = path.read_text("utf-8").splitlines()
    count = round(int(row.split(",")[2]) * factor)
    path.write_text(f"{header}\n,Aggregated,{count},0\n", encoding="utf-8")
    severities = [f.severity for f in analyse(small_copy).findings if f.name == "totals_disagree"]
    assert severities == ([severity] if severity else [])


@pytest.mark.parametrize(("line", "severity"), [("17000", Severity.NOTE), ("x,y,z\n", Severity.SEVERE)])
def test_files_damaged(small_copy: Path, line: str, severity: Severity) -> None:
    with (run_folder(small_copy, processes=1, users=16) / "usage.csv").open("a", encoding="utf-8") as stream:
        stream.write(line)
    assert found(analyse(small_copy), "files_damaged").severity is severity


@pytest.mark.parametrize(
    ("changes", "severity"),
    [
        ({"kernel": "6.2.0"}, Severity.SEVERE),
        ({"host": "another"}, Severity.SEVERE),
        ({"packages": {"locust": "2.0"}}, Severity.SEVERE),
        ({"git_commit": "abc"}, Severity.NOTE),
        ({"load_average_1min": 9.5}, None),
        ({"swap_used_bytes": 123}, None),
    ],
)
def test_environment_differs(small_copy: Path, changes: dict[str, Any], severity: Severity | None) -> None:
    edit(run_folder(small_copy, processes=1, users=4), "environment", **changes)
    severities = [f.severity for f in analyse(small_copy).findings if f.name == "environment_differs"]
    assert severities == ([severity] if severity else [])


@pytest.mark.parametrize(
    ("section", "changes", "differs"),
    [
        ("server", {"version": "31.0.0"}, True),
        ("server", {"parameters": {"processes": 1, "cache": "off"}}, True),
        ("server", {"configuration_sha256": "f" * 64}, True),
        ("server", {"started_s": 3.5}, False),
        ("load", {"processes": 8}, True),
    ],
)
def test_configuration_differs(small_copy: Path, section: str, changes: dict[str, Any], differs: bool) -> None:
    edit(run_folder(small_copy, processes=1, users=4), section, **changes)
    severities = [f.severity for f in analyse(small_copy).findings if f.name == "configuration_differs"]
    assert severities == ([Severity.SEVERE] if differs else [])


@pytest.mark.parametrize(("replicates", "few"), [(1, True), (3, True), (4, False)])
def test_few_replicates(make: Make, replicates: int, few: bool) -> None:
    analysis = analyse(make(factors=ONE_SWEEP, replicates=replicates))
    assert ("few_replicates" in [f.name for f in analysis.findings]) is few
    assert [c.verdict for c in analysis.deciding] == [Verdict.INCONCLUSIVE if few else Verdict.FASTER]


def test_few_samples_names_the_percentiles(make: Make) -> None:
    analysis = analyse(make(replicates=1, rate=lambda t: 10.0))
    finding = found(analysis, "few_samples")
    assert finding.severity is Severity.NOTE
    assert "p95 needs 72, p99 needs 368" in finding.evidence[0]


def test_a_severe_finding_touches_only_its_own_comparisons(make: Make) -> None:
    analysis = analyse(
        make(
            factors={PROCESSES: [1, 2, 4], USERS: [16]},
            primary={"metric": "throughput", "at": {}},
            replicates=5,
            failure_ratio=lambda t: 0.1 if t[PROCESSES] == 4 else 0.0,
        )
    )
    assert {c.pair.treatment[PROCESSES]: c.verdict for c in analysis.deciding} == {
        2: Verdict.FASTER,
        4: Verdict.INVALID,
    }


def test_severe_findings_come_first(make: Make) -> None:
    analysis = analyse(make(replicates=2, rate=lambda t: 10.0, failure_ratio=lambda t: 0.2))
    severities = [f.severity for f in analysis.findings]
    assert severities == sorted(severities, key=lambda s: s is not Severity.SEVERE)
    assert {Severity.SEVERE, Severity.NOTE} == set(severities)


HEALTH_CASES: list[tuple[str, str, dict[str, Any], Severity]] = [
    ("generator_lagging", "closed", {"loop_lag_us": [60_000] * 20}, Severity.SEVERE),
    ("generator_starved", "closed", {"run_queue_delay_us": 80_000}, Severity.NOTE),
    ("rate_missed", "open", {"arrivals": {"started": 20}}, Severity.SEVERE),
    ("arrivals_late", "open", {"arrivals": {"late": 5}}, Severity.SEVERE),
    ("arrivals_waited", "open", {"arrivals": {"late": 5, "late_all_busy": 5}}, Severity.NOTE),
    ("arrivals_dropped", "open", {"arrivals": {"dropped": 9}}, Severity.SEVERE),
    ("generator_at_a_limit", "closed", {"open_files": 1000}, Severity.SEVERE),
    ("network_losses", "closed", {"tcp_retransmits": 1}, Severity.NOTE),
]


@pytest.mark.parametrize(("name", "model", "changes", "severity"), HEALTH_CASES)
def test_what_the_generator_saw_of_itself_is_found(
    make: Make, name: str, model: str, changes: dict[str, Any], severity: Severity
) -> None:
    analysis = analyse(make(model=model, factors=ONE_SWEEP, health=lambda t: changes if t[PROCESSES] == 1 else {}))
    finding = found(analysis, name)
    assert finding.severity is severity
    assert len(finding.evidence) == 4 and all("processes = 1" in line for line in finding.evidence)
    invalid = [c.verdict for c in analysis.deciding] == [Verdict.INVALID]
    assert invalid is (severity is Severity.SEVERE)


@pytest.mark.parametrize(
    ("model", "changes"),
    [
        ("closed", {"loop_lag_us": [4_900] * 20}),
        ("closed", {"loop_lag_us": [7_000] * 20}),  # 5 % of a median of about 160 ms is more
        ("closed", {"run_queue_delay_us": 40_000}),
        ("closed", {"open_files": 900}),
        ("open", {"arrivals": {"offered": 100, "started": 99}}),
        ("open", {"arrivals": {"late": 0, "late_all_busy": 0}}),
    ],
)
def test_a_generator_that_fares_well_is_no_finding(make: Make, model: str, changes: dict[str, Any]) -> None:
    analysis = analyse(make(model=model, factors=ONE_SWEEP, health=lambda t: changes))
    assert analysis.findings == []


def test_a_budget_takes_as_long_as_it_takes(demo_copy: Path) -> None:
    for number, path in enumerate(sorted((demo_copy / "runs").iterdir())):
        edit(path, "load", requests=100)
        edit(
            path, "windows", steady_state={"start_unix_s": 1_700_000_000, "end_unix_s": 1_700_000_000 + 6 + number % 3}
        )
    assert not [f for f in analyse(demo_copy).findings if f.name == "window_differs"]


def test_a_torn_last_line_of_a_health_file_is_left_out(demo_copy: Path) -> None:
    for file in demo_copy.glob("runs/*/response_times/*.health.jsonl"):
        file.write_text(file.read_text("utf-8") + '{"second": 17000')
    assert analyse(demo_copy).findings == []


def test_failures_of_many_treatments_are_one_finding(make: Make) -> None:
    analysis = analyse(make(factors={PROCESSES: [1, 2, 4], USERS: [16]}, replicates=1, failure_ratio=lambda t: 0.1))
    finding = found(analysis, "failures")
    assert finding.message.startswith("With 3 treatments, more than 1 %")
    assert finding.evidence[0].startswith("processes = 1, users = 16: all requests: ")


def test_long_evidence_is_shortened() -> None:
    finding = Finding("name", Severity.NOTE, "", tuple(f"run {n}" for n in range(40)), "", "")
    assert finding.shown(4) == ("run 0", "run 1", "run 2", "and 37 more")
    assert finding.shown(40) == finding.evidence
    assert finding.shown(39)[-1] == "and 2 more"


def test_a_difference_with_a_value_for_each_run_names_the_first(make: Make) -> None:
    folder = make(factors=ONE_SWEEP, replicates=4)
    for number, run in enumerate(sorted((folder / "runs").iterdir())):
        edit(run, "environment", git_commit=str(number))
    (line,) = found(analyse(folder), "environment_differs").evidence
    assert line.endswith("and 4 more values")
    assert line.count(" in run ") == 4


@pytest.mark.parametrize(
    "line", ["", "3", "[1]", '{"second": "x"}', '{"second": 1e3}', "}{", '{"second": 99999999999999999999}']
)
def test_a_damaged_line_of_a_health_file_is_left_out(demo_copy: Path, line: str) -> None:
    for file in demo_copy.glob("runs/*/response_times/*.health.jsonl"):
        first, rest = file.read_text("utf-8").split("\n", 1)
        file.write_text(f"{first}\n{line}\n{rest}", encoding="utf-8")
    assert analyse(demo_copy).findings == []


def test_a_number_of_a_health_file_that_is_none_is_unknown(demo_copy: Path) -> None:
    for file in demo_copy.glob("runs/*/response_times/*.health.jsonl"):
        file.write_text(file.read_text("utf-8").replace('"tcp_retransmits": 7', '"tcp_retransmits": "many"'), "utf-8")
    assert analyse(demo_copy).findings == []


def test_the_docs_list_every_finding_there_is() -> None:
    text = (Path(__file__).parents[2] / "docs/findings.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `(\w+)`", text, re.MULTILINE) == [check.__name__ for check in validity.CHECKS]
