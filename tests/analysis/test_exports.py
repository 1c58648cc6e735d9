"""What other programs read, read by those programs' own rules: JSON Schema, XML Schema, Arrow, HdrHistogram."""

from __future__ import annotations

import dataclasses
import io
import json
import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import jsonschema
import pandas as pd
import pytest
import xmlschema
from hdrh.histogram import HdrHistogram
from hdrh.log import HistogramLogReader

from analysis import decide, exports, load, objectives, pages, report, verdicts
from analysis.exports import Case, Suite
from analysis.objectives import Outcome
from tests.analysis import synthetic
from tests.analysis.synthetic import PROCESSES, USERS
from tests.analysis.test_command_line import call

REPOSITORY = Path(__file__).parents[2]
SCHEMA = json.loads((REPOSITORY / "docs/verdicts.schema.json").read_text("utf-8"))
RULES = ["p95(response_time) < 1ms", "count(response_time > 1us) < 5", "change(throughput) > -5%", "server_cpu < 9"]


@pytest.fixture(scope="module")
def analyses(demo: Path, small: Path) -> list[decide.Analysis]:
    """The demo as it is, with a verdict; and one with objectives, findings and nothing decided."""
    experiment = load.load_experiment(small)
    experiment = dataclasses.replace(experiment, record=dataclasses.replace(experiment.record, objectives=RULES))
    return [decide.analyse(load.load_experiment(demo)), decide.analyse(experiment)]


# verdicts.json


def test_verdicts_json_is_as_published(analyses: list[decide.Analysis]) -> None:
    document = json.loads(json.dumps(verdicts.document(analyses)))
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    jsonschema.validate(document, SCHEMA)
    plain, doubtful = document["experiments"]
    assert plain["verdicts"] and plain["comparisons"]
    assert len(doubtful["objectives"]) == 3 * 4 + 2
    assert doubtful["findings"] and doubtful["verdicts"][0]["interval"] is None


@pytest.mark.parametrize(
    "damage",
    [
        lambda d: d.pop("schema_version"),
        lambda d: d["experiments"][0].update(surprise=1),
        lambda d: d["experiments"][0]["verdicts"][0].update(verdict=None),
        lambda d: d["experiments"][0]["verdicts"][0].update(verdict="better"),
        lambda d: d["experiments"][1]["objectives"][0].update(outcome="ok"),
        lambda d: d["experiments"][1]["objectives"][0].pop("limit"),
        lambda d: d["experiments"][0]["comparisons"][0].update(interval=[1.0]),
    ],
)
def test_the_schema_refuses_what_is_not(analyses: list[decide.Analysis], damage: Any) -> None:
    document = json.loads(json.dumps(verdicts.document(analyses)))
    damage(document)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document, SCHEMA)


# JUnit XML


def test_junit_xml_is_valid(analyses: list[decide.Analysis]) -> None:
    suites = [exports.suite(a, objectives.judge(a), a.severe) for a in analyses]
    text = exports.junit_xml(suites)
    schema = xmlschema.XMLSchema(REPOSITORY / "tests/fixtures/junit.xsd")
    schema.validate(text)
    assert [len(s.cases) for s in suites] == [2, 2 + 3 * 4 + 2]
    assert 'name="throughput: processes = 2, users = 16 against processes = 1, users = 16"' in text
    assert not schema.is_valid(text.replace(' classname="', ' class="', 1))


def test_text_of_a_folder_stays_text() -> None:
    nasty = "a\x00b\ud800 <c> & \ufffe]]> \x1b[31m"
    cases = tuple(Case("objective", f"{nasty} {o}", o, nasty) for o in Outcome)
    text = exports.junit_xml([Suite(nasty, 0.0, cases)])
    xmlschema.XMLSchema(REPOSITORY / "tests/fixtures/junit.xsd").validate(text)
    assert r"a\x00b\ud800 &lt;c&gt; &amp;" in text


# Parquet


def test_parquet_holds_what_csv_holds(demo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "render_html", lambda analyses: "page")
    report.write([decide.analyse(load.load_experiment(demo))], tmp_path / "report")
    for name in ("metrics", "comparison", "timeline"):
        csv = pd.read_csv(tmp_path / "report" / f"{name}.csv")
        if "unit" in csv:
            csv["unit"] = csv["unit"].fillna("")  # CSV does not tell an empty text from a missing one
        parquet = pd.read_parquet(tmp_path / "report" / f"{name}.parquet")
        pd.testing.assert_frame_equal(parquet, csv, check_dtype=False, rtol=1e-5)
    metrics = pd.read_parquet(tmp_path / "report" / "metrics.parquet")
    assert metrics[PROCESSES].dtype == metrics[USERS].dtype == "int64"
    assert metrics["value"].dtype == "float64"


def test_levels_of_several_types_are_text() -> None:
    frame = pd.DataFrame(
        {"cache": pd.Series(["dict", None, 3, True], dtype="object"), "text": ["a\ud800", "b", "", "c"]}
    )
    read = pd.read_parquet(io.BytesIO(exports.parquet(frame)))
    assert read["cache"].tolist()[::2] == ["dict", "3"]
    assert read["cache"].tolist()[3] == "true"
    assert read["cache"].isna().tolist() == [False, True, False, False]
    assert read["text"].tolist() == [r"a\ud800", "b", "", "c"]


# HdrHistogram


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Open model, so with two clocks; some failures; two endpoints, one with blanks and a comma in its name."""
    folder = tmp_path_factory.mktemp("opened") / "experiment"
    synthetic.make(
        folder,
        synthetic.Plan(
            factors={PROCESSES: [1]}, baseline={}, primary={"metric": "throughput"}, replicates=2, steady_s=3,
            model="open", failure_ratio=lambda t: 0.1, endpoints=("GET /a", "POST /b, c"),
        ),
    )  # fmt: skip
    return folder


def test_an_hdr_log_is_read_again_with_equal_counts(opened: Path, tmp_path: Path) -> None:
    result = call("export", opened, "-o", tmp_path / "logs")
    assert result.exit_code == 0
    assert result.stdout == f"2 logs in {tmp_path / 'logs'}\n"
    experiment = load.load_experiment(opened)
    for run in experiment.complete_runs():
        rows = load.read_seconds(experiment, run)
        expected = {
            (second, _tag(endpoint, clock, outcome)): Counter(dict(zip(part["bucket_us"], part["count"], strict=True)))
            for (second, endpoint, clock, outcome), part in _merged(rows).groupby(
                ["second", "endpoint", "clock", "outcome"]
            )
        }
        (name,) = experiment.runs.loc[experiment.runs["run"] == run, "folder"]
        _assert_equal(tmp_path / "logs" / f"{name}.hlog", expected)


def _merged(rows: pd.DataFrame) -> pd.DataFrame:
    """Both processes' counts added."""
    return rows.groupby([c for c in rows.columns if c != "count"])["count"].sum().reset_index()


def _tag(endpoint: str, clock: str, outcome: str) -> str:
    return re.sub(r"[\s,]+", "_", f"{endpoint}/{clock}") + ("" if outcome == "success" else "/failed")


def _assert_equal(path: Path, expected: dict[tuple[int, str], Counter[int]]) -> None:
    reader = HistogramLogReader(str(path), HdrHistogram(1, exports.LARGEST_US, exports.DIGITS))
    found, starts = {}, []
    while (histogram := reader.get_next_interval_histogram()) is not None:
        second = histogram.get_start_time_stamp() / 1000
        starts.append(second)
        assert histogram.get_end_time_stamp() / 1000 - second == 1
        found[int(second), histogram.get_tag()] = histogram
    assert starts == sorted(starts)
    assert found.keys() == expected.keys()
    assert {tag for _, tag in found} == {
        f"{endpoint}/{clock}{failed}"
        for endpoint in ("GET_/a", "POST_/b_c") for clock in ("response", "service") for failed in ("", "/failed")
    }  # fmt: skip
    for place, counts in expected.items():
        histogram = found[place]
        assert histogram.get_total_count() == counts.total()
        for bucket_us, count in counts.items():
            low, high = (
                histogram.get_lowest_equivalent_value(bucket_us),
                histogram.get_highest_equivalent_value(bucket_us),
            )
            assert high - low <= bucket_us / 1000 + 1
            assert histogram.get_count_at_value(bucket_us) == count


def test_an_export_never_overwrites(opened: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(opened, tmp_path / "experiment"))
    assert call("export", folder).exit_code == 0
    assert len(list((folder / "hdrhistogram").glob("*.hlog"))) == 2
    again = call("export", folder)
    assert (again.exit_code, len(again.stderr.splitlines())) == (2, 1)
    assert "File exists" in again.stderr
    assert call("export", tmp_path / "nowhere").exit_code == 2
