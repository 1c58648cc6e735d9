"""Files that real Locusts wrote: tests/fixtures/locust_csv/README.md says how."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from analysis import decide, report, traffic
from analysis.importers import locust_csv
from analysis.importers.locust_failures import UNNAMED
from analysis.load import GENERATOR, LOCUSTFILE, Experiment
from analysis.metrics import ALL_REQUESTS

FILES = Path(__file__).parents[1] / "fixtures" / "locust_csv"
VERSIONS = ("0.8.1", "0.9.0", "0.12.1", "0.13.5", "0.14.6", "1.0.3", "1.3.0", "1.6.0", "2.0.0", "2.15.1", "2.32.0",
            "2.47.0")  # fmt: skip
UNKNOWN = None


def imported(version: str) -> Experiment:
    return locust_csv.load_prefixes([FILES / version / "run"])


def values(experiment: Experiment, endpoint: str = ALL_REQUESTS) -> dict[str, float | None]:
    rows = experiment.reported[experiment.reported["endpoint"] == endpoint]
    return {m: None if pd.isna(v) else v for m, v in zip(rows["metric"], rows["value"], strict=True)}


@pytest.mark.parametrize(
    ("version", "count", "throughput", "success", "mean", "p95", "most"),
    [
        ("0.8.1", 254 + 49, 73.90, 254 / 303, 20, 34, 65),
        ("0.9.0", UNKNOWN, UNKNOWN, UNKNOWN, 20, 37, 136),
        ("0.12.1", UNKNOWN, UNKNOWN, UNKNOWN, 18, 35, 81),
        ("0.13.5", 690, 76.65 - 11.89, 583 / 690, 18, 33, 66),
        ("0.14.6", 989, 76.20 - 11.71, 837 / 989, 19, 37, 97),
        ("1.0.3", 414, 64.89 - 9.72, 352 / 414, 23, 49, 255),
        ("1.3.0", 849, 77.21585269747904 - 11.914342404867202, 718 / 849, 18.870757910446393, 36, 68.59944600000745),
        ("2.15.1", 973, 81.13791303478914 - 12.675192992073946, 821 / 973, 18.0715364049273, 35, 64.94982799995341),
        ("2.47.0", 826, 68.25083633249018 - 10.493772656448247, 699 / 826, 23.67937019974, 49, 102.44212500037975),
    ],
)
def test_the_totals_are_those_of_the_files(
    version: str, count: float, throughput: float, success: float, mean: float, p95: float, most: float
) -> None:
    seen = values(imported(version))
    expected = {"count": count, "throughput": throughput, "success_ratio": success, "mean": mean, "p95": p95,
                "max": most}  # fmt: skip
    assert {name: seen[name] for name in expected} == pytest.approx(expected)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_endpoints_keep_their_names_whatever_the_quoting(version: str) -> None:
    assert set(imported(version).reported["endpoint"]) == {"GET /read", 'POST /write, "quoted"', ALL_REQUESTS}


@pytest.mark.parametrize("version", VERSIONS)
def test_what_a_locust_wrote_by_itself_loses_nothing(version: str) -> None:
    odd = imported(version).oddities
    assert not [o for o in odd if o.loses_data]
    said = ("percentiles of zero in spite of responses", "versions before 0.12 leave failures out")
    assert not [o for o in odd if not o.what.startswith(said)]


@pytest.mark.parametrize("version", ["0.9.0", "0.12.1"])
def test_whether_requests_count_failures_is_not_guessed(version: str) -> None:
    (oddity,) = imported(version).oddities
    assert oddity.file == "run_requests.csv:2"
    assert "leave failures out of the requests" in oddity.what


@pytest.mark.parametrize(
    ("version", "evidence"),
    [("0.9.0", "87 failures beside 477 requests, at least 15.4 %"),
     ("0.12.1", "87 failures beside 571 requests, at least 13.2 %")],
)  # fmt: skip
def test_failures_are_found_all_the_same(version: str, evidence: str) -> None:
    analysis = decide.analyse(imported(version))
    (finding,) = [f for f in analysis.findings if f.name == "failures"]
    assert finding.severity.value == "severe"
    assert finding.evidence[0] == f"csv = run: all requests: {evidence}"
    assert len(finding.evidence) == 3  # and both endpoints
    rows = [(endpoint, count) for _, endpoint, outcome, count, _ in traffic.outcomes(analysis) if outcome == UNNAMED]
    assert sum(int(count) for _, count in rows) == 87
    assert {endpoint for endpoint, _ in rows} == {"GET /read", 'POST /write, "quoted"'}


def test_few_failures_beside_many_requests_are_none(tmp_path: Path) -> None:
    text = (FILES / "0.12.1" / "run_requests.csv").read_text("utf-8")
    for failures, total, few in ((49, 442, 3), (38, 129, 1), (87, 571, 4)):
        text = text.replace(f",{total},{failures},", f",{total},{few},")
    (tmp_path / "old_requests.csv").write_text(text, encoding="utf-8")
    assert "failures" not in {f.name for f in decide.analyse(locust_csv.load_prefixes([tmp_path / "old"])).findings}


@pytest.mark.parametrize("version", ["0.8.1", "0.13.5"])
def test_failures_that_no_file_names_are_counted(version: str) -> None:
    experiment = imported(version)
    assert set(experiment.failed["outcome"]) == {UNNAMED}
    finding = next(f for f in decide.analyse(experiment).findings if f.name == "failures")
    assert f"{UNNAMED}: {experiment.failed['count'].sum()}" in finding.evidence


def test_without_failures_it_does_not_matter_whether_they_count(tmp_path: Path) -> None:
    text = (FILES / "0.12.1" / "run_requests.csv").read_text("utf-8")
    for failures, total in ((49, 442), (38, 129), (87, 571)):
        text = text.replace(f",{total},{failures},", f",{total},0,")
    (tmp_path / "old_requests.csv").write_text(text, encoding="utf-8")
    experiment = locust_csv.load_prefixes([tmp_path / "old"])
    assert values(experiment)["throughput"] == pytest.approx(75.93)
    assert [o.what for o in experiment.oddities] == ["no old_distribution.csv beside it: percentiles are unknown"]


@pytest.mark.parametrize(
    ("version", "lines", "users", "last", "failing"),
    [("0.13.5", 5, None, 72.86 - 11.57, 11.57), ("1.3.0", 11, 4, 75.0 - 11.625, 11.625), ("2.47.0", 13, 4, 53.9, 10.0)],
)
def test_the_history_has_locusts_own_rates(
    version: str, lines: int, users: float | None, last: float, failing: float
) -> None:
    history = imported(version).history
    assert len(history) == lines
    final = history.iloc[-1]
    assert final["throughput"] == pytest.approx(last)
    assert final["failures"] == pytest.approx(failing)
    assert final["users"] == users or (users is None and pd.isna(final["users"]))


def test_a_rate_before_its_window_is_missing_and_not_zero() -> None:
    history = imported("2.47.0").history
    assert history["throughput"].iloc[0] == 0  # nothing was asked yet
    assert history["throughput"].iloc[1:3].isna().all()


def test_failures_and_exceptions_are_told_apart_by_whose_they_are() -> None:
    failed = imported("2.47.0").failed
    assert failed.groupby("kind")["count"].sum().to_dict() == {"response": 89, LOCUSTFILE: 38 + 32}
    rows = traffic.outcomes(decide.analyse(imported("2.47.0")))
    assert ("csv = run", "GET /read", "HTTPError('500 Server Error: Known for url: /read')", "69", "–") in rows
    assert ("csv = run", "exception in the locustfile", "'from the script'", "32", "–") in rows


def test_a_generator_out_of_files_is_no_slow_server() -> None:
    experiment = imported("starved")
    assert experiment.failed.groupby("kind")["count"].sum().to_dict() == {"response": 99, GENERATOR: 592}
    findings = {f.name: f for f in decide.analyse(experiment).findings}
    found = findings["generator_failures"]
    assert found.severity.value == "severe"
    assert found.evidence == ("run 1 (csv = run): OSError(24, 'Too many open files'): 592",)


def test_hostile_names_and_secrets_reach_no_file_of_the_report(tmp_path: Path) -> None:
    analysis = decide.analyse(imported("hostile"))
    report.write([analysis], tmp_path)
    for file in tmp_path.iterdir():
        # Parquet is compressed, and its texts are those of the CSV beside it.
        text = pd.read_parquet(file).to_csv() if file.suffix == ".parquet" else file.read_text("utf-8")
        assert not [
            s for s in ("planted-secret", "PlantedSecret", "eyJhbGci", "\x1b", "\u202e", "x" * 300) if s in text
        ]
        assert "<script>alert" not in text or file.suffix in (".csv", ".json", ".parquet")
    endpoints = set(analysis.by_run["endpoint"])
    assert {"GET /v3/auth?token=[redacted]&page=2", "GET /v3/auth?token=[redacted]&page=2 (2)",
            "GET http://[redacted]@host/v3", "GET Aggregated", "GET /tokens/[redacted]"} <= endpoints  # fmt: skip
    (finding,) = [f for f in analysis.findings if f.name == "imported_with_oddities"]
    assert any("run_stats.csv:3: a text with what looks like a secret" in line and "(5 times" in line
               for line in finding.evidence)  # fmt: skip
