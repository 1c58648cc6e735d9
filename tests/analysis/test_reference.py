"""Published results beside ours: two documents' shapes, one's own words, and what becomes of what is missing."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from analysis import decide, load, pages, record, reference, report, tables, token_formats
from analysis.decide import Analysis
from analysis.record import RecordError
from analysis.reference import Line
from harness import reference as reference_files
from tests.analysis import synthetic

SCHEMA = json.loads((Path(__file__).resolve().parents[2] / "docs/verdicts.schema.json").read_text("utf-8"))
PUBLISHED = reference_files.read("keystone-token-formats-2015")
PROVIDER, USERS = "server.parameters.token_provider", "load.users"
SUMMARY = """## Response time

Fernet token creation response time is 13% faster than UUID.

Fernet token validation response time is 400% slower than UUID.

## Requests per second

(default devstack configuration)

Fernet token creation requests per second is 30% faster than UUID.

Fernet token validation requests per second is 81% slower than UUID.
"""
"""The document's _summary.md."""
FERNET_RESULTS = """## Fernet token creation

Time per request:       62.748 [ms] (mean)

Requests per second:    74.76 [#/sec] (mean)

## Fernet token validation

Time per request:       93.782 [ms] (mean)

Requests per second:    48.26 [#/sec] (mean)
"""
RALLY = {
    "title": "Authenticate users with keystone to get tokens",
    "url": "https://example.org/authenticate.rst",
    "hardware": "Dell PowerEdge R610",
    "software": "Keystone of 2014",
    "columns": [
        {"head": "min (sec)", "quantity": "min_s"},
        {"head": "avg (sec)", "quantity": "mean_s"},
        {"head": "max (sec)", "quantity": "max_s"},
        {"head": "90 percentile", "quantity": "p90_s"},
        {"head": "95 percentile", "quantity": "p95_s"},
        {"head": "success", "quantity": "success_ratio"},
        {"head": "count", "quantity": "count"},
        {"head": "apache enabled keystone"},
    ],
    "tables": [
        {
            "title": "concurrency = 4",
            "context": "{'runner': {'concurrency': 4, 'times': 10000, 'type': 'constant'}}",
            "at": {"load.users": 4},
            "rows": [
                {"head": "total", "at": {synthetic.PROCESSES: 1},
                 "published": [0.537, 0.998, 4.553, 1.233, 1.391, 1.0, 10000, "N"]},
                {"head": "total", "at": {synthetic.PROCESSES: 2},
                 "published": [0.208, 0.299, 3.228, 0.437, 0.485, 1.0, 10000, "Y"]},
            ],
        }
    ],
}  # fmt: skip
"""The other seed's shape, with another factor in place of Apache."""


def analysed(folder: Path, published: dict[str, Any] | None, **changes: Any) -> Analysis:
    known = record.read_experiment(folder)
    record.write_experiment(folder, dataclasses.replace(known, reference=published, **changes))
    return decide.analyse(load.load_experiment(folder))


def as_if_measured_here() -> list[Line]:
    rows = [(t["title"], r["head"], tuple(r["published"])) for t in PUBLISHED["tables"] for r in t["rows"]]
    return [Line(table, head, values, values) for table, head, values in rows]


@pytest.fixture(scope="module")
def formats(tmp_path_factory: pytest.TempPathFactory) -> tuple[Analysis, dict[int, list[synthetic.Sample]]]:
    """The token formats' eight treatments, two runs each, with the raw samples by run."""
    folder = tmp_path_factory.mktemp("formats") / "experiment"
    factors = {PROVIDER: ["uuid", "fernet"], "workload": ["keystone_auth", "keystone_validate"], USERS: [1, 20]}
    plan = synthetic.Plan(factors=factors, baseline={PROVIDER: "uuid"}, primary={}, replicates=2)
    samples = synthetic.make(folder, plan)
    return analysed(folder, PUBLISHED, held_constant={"server.parameters.cache": "null"}), samples


def test_the_published_numbers_give_the_published_words() -> None:
    files = token_formats.files(as_if_measured_here(), "default devstack configuration", [])
    assert files["_summary.md"] == f"{SUMMARY}\n{token_formats.NO_INTERVAL}\n"
    assert files["_Fernet_results.md"] == FERNET_RESULTS
    assert "Time per request:       18.774 [ms] (mean)" in files["_UUID_results.md"]
    cells = [row.cells for row in token_formats.block(as_if_measured_here()).rows]
    assert cells == [(words, words) for words in ("13% faster", "400% slower", "30% faster", "81% slower")]


@pytest.mark.parametrize(
    ("fernet", "uuid", "more_is_faster", "words"),
    [
        (5.0, 10.0, False, "50% faster"),
        (20.0, 10.0, False, "100% slower"),
        (20.0, 10.0, True, "100% faster"),
        (5.0, 10.0, True, "50% slower"),
        (None, 10.0, True, None),
        (5.0, 0.0, True, None),
    ],
)
def test_a_percentage_is_of_uuids_value(fernet: Any, uuid: Any, more_is_faster: bool, words: str | None) -> None:
    assert token_formats.percentage(fernet, uuid, more_is_faster) == words


def test_ours_is_time_over_requests_at_one_client_and_requests_a_second_at_twenty(
    formats: tuple[Analysis, dict[int, list[synthetic.Sample]]],
) -> None:
    analysis, samples = formats
    for line in reference.lines(analysis):
        workload = "keystone_auth" if line.table == "token creation" else "keystone_validate"
        done: dict[int, int] = {}
        for run in analysis.experiment.record.plan:
            if (run.treatment[PROVIDER], run.treatment["workload"]) == (line.head.lower(), workload):
                window = analysis.experiment.records[run.number].windows["steady_state"]
                inside = [s for s in samples[run.number] if window.start_unix_s <= int(s[0]) < window.end_unix_s]
                users = int(str(run.treatment[USERS]))
                done[users] = done.get(users, 0) + len(inside)
        assert line.here == pytest.approx((1000 * 12 / done[1], done[20] / 12))  # two runs of six seconds


def test_the_report_has_both_and_says_that_it_is_another_machine(
    formats: tuple[Analysis, dict[int, list[synthetic.Sample]]], tmp_path: Path
) -> None:
    analysis, _ = formats
    folder = report.write([analysis], tmp_path / "report").parent
    page, markdown = (folder / "index.html").read_text("utf-8"), (folder / "report.md").read_text("utf-8")
    for text in (page, markdown):
        for wanted in ("Published results beside ours", "93.782", "400% slower", "another machine and another release"):
            assert wanted in text
        assert "gist.github.com/dolph" in text
    (line,) = [x for x in reference.lines(analysis) if (x.head, x.table) == ("Fernet", "token validation")]
    written = (folder / "_Fernet_results.md").read_text("utf-8")
    assert f"Time per request:       {line.here[0]:.3f} [ms] (mean)" in written
    assert "(cache null)" in (folder / "_summary.md").read_text("utf-8")
    document = json.loads((folder / "verdicts.json").read_text("utf-8"))
    jsonschema.validate(document, SCHEMA)
    assert document["experiments"][0]["reference"]["rows"][0]["published"] == [72.454, 57.6]
    both = [name for name in report._published_files([analysis, analysis], reference.files) if "_summary" in name]
    name = f"keystone-processes-{analysis.experiment.folder.name}"
    assert both == [f"{name}_summary.md", f"{name}-2_summary.md"]


def test_rallys_table_is_printed_twice_a_row(small_copy: Path) -> None:
    published = reference_files.Reference.model_validate(RALLY).model_dump()
    analysis = analysed(small_copy, published)
    (block,) = reference.blocks(analysis)
    assert block.title == "Concurrency = 4 · {'runner': {'concurrency': 4, 'times': 10000, 'type': 'constant'}}"
    rows = list(tables.plain_rows(block))
    assert rows[1] == ("total, published", "0.537", "0.998", "4.553", "1.233", "1.391", "100.0%", "10000", "N")
    assert [row[0] for row in rows[1:]] == ["total, published", "total, here"] * 2
    values = analysis.by_treatment
    for row, processes in ((rows[2], 1), (rows[4], 2)):
        (treatment,) = [
            key
            for key, levels in analysis.experiment.treatments.items()
            if levels == {synthetic.PROCESSES: processes, USERS: 4}
        ]
        ours = values[(values["treatment"] == treatment) & (values["endpoint"] == "all requests")]
        of = dict(zip(ours["metric"], ours["value"], strict=True))
        assert row[1:6] == tuple(f"{of[name] / 1000:.3f}" for name in ("min", "mean", "max", "p90", "p95"))
        assert row[6:] == ("100.0%", f"{of['count']:.0f}", "NY"[processes - 1])
    assert reference.files(analysis) == {}


def test_what_was_not_measured_or_in_several_treatments_is_a_dash(small_copy: Path) -> None:
    """The small experiment varies processes, which the token formats know nothing of, and has no token provider."""
    analysis = analysed(small_copy, PUBLISHED)
    assert all(line.here == (None, None) for line in reference.lines(analysis))
    assert reference.blocks(analysis)[0].rows[1].cells == ("–", "–")
    assert reference.blocks(analysis)[-1].rows[0].cells == ("13% faster", "–")
    assert "not measured" in reference.files(analysis)["_UUID_results.md"]
    anywhere = [{**t, "at": {}, "rows": [{**r, "at": {}} for r in t["rows"]]} for t in PUBLISHED["tables"]]
    columns = [{**c, "at": {USERS: 4}} for c in PUBLISHED["columns"]]
    several = analysed(small_copy, {**PUBLISHED, "tables": anywhere, "columns": columns})
    assert all(line.here == (None, None) for line in reference.lines(several))


def test_doubts_go_with_every_file() -> None:
    for text in token_formats.files(as_if_measured_here(), "", ["The server died."]).values():
        assert text.startswith("**These numbers cannot be trusted.** The server died.\n\n## ")


def test_an_experiment_without_a_reference_says_nothing_of_one(demo_analysis: Analysis, tmp_path: Path) -> None:
    assert (reference.blocks(demo_analysis), reference.notes(demo_analysis), reference.files(demo_analysis)) == (
        [],
        [],
        {},
    )
    assert reference.json_of(demo_analysis) is None
    assert "Published results" not in pages.render_markdown([demo_analysis])


def test_a_damaged_reference_is_one_clear_error(small_copy: Path) -> None:
    with pytest.raises(RecordError, match="is not what configs/reference/ holds"):
        reference.blocks(analysed(small_copy, {**PUBLISHED, "tables": [{"title": "x"}]}))


def test_the_names_that_a_file_may_use_are_those_that_are_known_here() -> None:
    assert tuple(reference.QUANTITIES) == record.REFERENCE_QUANTITIES
    assert tuple(reference.SUMMARIES) == record.REFERENCE_SUMMARIES
