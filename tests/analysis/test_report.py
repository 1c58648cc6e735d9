from __future__ import annotations

import base64
import csv
import hashlib
import html
import html.parser
import io
import json
import re
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from analysis import decide, load, pages, plots, report, validity, view
from analysis.record import METRICS
from tests.analysis import synthetic
from tests.analysis.synthetic import PROCESSES, USERS

Make = Callable[..., Path]
HOSTILE = "GET </script><script>alert(1)</script>"


@pytest.fixture(scope="module")
def figures(demo_analysis: decide.Analysis) -> list[plots.Figure]:
    return plots.figures(demo_analysis)


@pytest.fixture(scope="module")
def page(demo_analysis: decide.Analysis) -> str:
    return pages.render_html([demo_analysis])


class Elements(html.parser.HTMLParser):
    """Start tags with attributes, and the text outside scripts and styles."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self._skipping = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._skipping = tag in ("script", "style")

    def handle_endtag(self, tag: str) -> None:
        self._skipping = False

    def handle_data(self, data: str) -> None:
        if not self._skipping and data.strip():
            self.text.append(" ".join(data.split()))


def test_the_page_loads_nothing_from_anywhere(page: str) -> None:
    loads = [
        (tag, value)
        for tag, attributes in Elements(page).tags
        for name, value in attributes.items()
        if name in ("src", "href", "action", "data", "poster", "srcset")
    ]
    assert loads == [("link", "data:,")]
    assert "@import" not in page
    assert "url(http" not in page.replace(" ", "")


def test_the_page_is_one_file_below_three_megabytes(page: str) -> None:
    assert len(page.encode()) < 3_000_000


def test_a_page_that_would_be_too_large_is_made_with_less(
    demo_analysis: decide.Analysis, page: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = len(page.encode())
    for limit, said in (
        (full - 20_000, "drawn with fewer points"),
        (200_000, "Without figures and details"),
        (13_000, "Without tables"),
    ):
        monkeypatch.setattr(pages, "LARGEST_PAGE_BYTES", limit)
        smaller = pages.render_html([demo_analysis])
        assert len(smaller.encode()) <= limit
        assert said in smaller
        assert "With processes = 2, throughput" in smaller
        assert ("vegaEmbed" in smaller) == (limit > 200_000)
    monkeypatch.setattr(pages, "LARGEST_PAGE_BYTES", 5_000)
    with pytest.raises(pages.ReportError, match="fewer at a time"):
        pages.render_html([demo_analysis])


def test_many_experiments_stay_on_one_page_of_three_megabytes(demo_analysis: decide.Analysis) -> None:
    page = pages.render_html([demo_analysis] * 25)
    assert len(page.encode()) <= 3_000_000
    assert "Without figures and details" in page
    assert page.count("<strong>faster.</strong>") == 25


def test_only_the_scripts_of_the_page_are_allowed(page: str) -> None:
    scripts = re.findall(r'<script type="module">(.*?)</script>', page, re.DOTALL)
    assert len(scripts) == 2
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="(.*?)"', page)
    digests = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    allowed = html.unescape(policy).partition("script-src ")[2].partition(";")[0]
    assert allowed.split() == [f"'sha256-{digest}'" for digest in digests]
    assert "default-src 'none'" in html.unescape(policy)


def test_packed_data_are_the_same_data(figures: list[plots.Figure]) -> None:
    for figure in figures:
        packed = pages._packed(figure.spec)["datasets"]
        for name, rows in figure.spec["datasets"].items():
            assert [dict(zip(packed[name]["columns"], row, strict=True)) for row in packed[name]["rows"]] == rows


def test_what_differs_stands_beside_what_it_did(make: Make) -> None:
    folder = make(factors={PROCESSES: [1, 2], USERS: [4, 16]}, replicates=1)
    for run in (folder / "runs").iterdir():
        (run / "configuration").mkdir()
        text = f"<b>processes = {'1' if 'processes1' in run.name else '2'}</b>\n"
        (run / "configuration" / "uwsgi.ini").write_text(text, encoding="utf-8")
    analysis = decide.analyse(load.load_experiment(folder))
    (difference,) = view.of(analysis).differences
    assert difference.title == "processes = 1 → processes = 2"
    assert [line.split(":")[0] for line in difference.effects] == [
        "throughput at users = 4",
        "throughput at users = 16",
    ]
    page = pages.render_html([analysis])
    assert '<span class="added">+&lt;b&gt;processes = 2&lt;/b&gt;</span>' in page
    assert "server.parameters.processes 1 → 2" in pages.render_markdown([analysis]).replace("\\", "")


def test_the_page_reads_in_the_promised_order(page: str) -> None:
    headings = re.findall(r"<h2>(.*?)</h2>", page.partition('<script type="module">')[0])
    assert headings == [
        "Findings", "Comparison", "What differs between the sides", "Figures", "Outcomes and bytes", "Method",
        "Held constant", "Environment", "Appendix: every run, in the order of the plan",
    ]  # fmt: skip
    text = Elements(page).text
    answer = next(n for n, line in enumerate(text) if line.startswith("With processes = 2"))
    note = next(n for n, line in enumerate(text) if line.startswith("The server caches in a dict"))
    closed = next(n for n, line in enumerate(text) if "response time and service time coincide" in line)
    assert answer < note < closed < text.index("Findings")


def test_each_figure_has_its_numbers_behind_it(page: str, figures: list[plots.Figure]) -> None:
    assert [figure.name for figure in figures] == ["against-1", "distribution", "timeline", "heatmap"]
    assert page.count("The numbers behind this figure") == 4
    assert [len(figure.rows) for figure in figures][::2] == [2 * 16, 16 * 8]
    for figure in figures:
        assert f'<h3 id="experiment-1-{figure.name}-title">' in page
        assert "$schema" not in figure.spec


def test_figures_are_valid_and_draw(figures: list[plots.Figure]) -> None:
    import vl_convert

    marks = {f.name: vl_convert.vegalite_to_svg(f.spec).count("<path") for f in figures}
    assert all(count > 20 for count in marks.values()), marks


@pytest.fixture(scope="module")
def doubtful(tmp_path_factory: pytest.TempPathFactory) -> decide.Analysis:
    """Failures, too few replicates, and an endpoint whose name is an attack."""
    folder = tmp_path_factory.mktemp("doubtful") / "experiment"
    plan = synthetic.Plan(endpoints=(HOSTILE, "GET /b"), replicates=2, failure_ratio=lambda t: 0.1)
    synthetic.make(folder, plan)
    return decide.analyse(load.load_experiment(folder))


@pytest.fixture(scope="module")
def doubtful_page(doubtful: decide.Analysis) -> str:
    """The same experiment twice on one page."""
    return pages.render_html([doubtful, doubtful])


def test_a_hostile_endpoint_name_is_only_text(doubtful: decide.Analysis, doubtful_page: str) -> None:
    assert "<script>alert" not in doubtful_page
    elements = Elements(doubtful_page)
    scripts = [attributes for tag, attributes in elements.tags if tag == "script"]
    assert len(scripts) == 2 * 4 + 2  # four specifications for each experiment, the bundle, the call
    assert any(HOSTILE in line for line in elements.text)
    assert "<script>" not in pages.render_markdown([doubtful])


def test_the_markdown_holds_answer_findings_table_and_method(demo_analysis: decide.Analysis) -> None:
    text = pages.render_markdown([demo_analysis])
    assert text.startswith("# Does Keystone answer more authentications")
    assert "**Faster.** With processes = 2" in text
    assert f"None: all {len(validity.CHECKS)} checks passed." in text
    assert "| **verdict** |  |  | **faster** |" in text
    assert "## Method" in text
    assert "\n\n\n" not in text


def test_findings_appear_with_evidence_threshold_and_next_action(doubtful: decide.Analysis, doubtful_page: str) -> None:
    text = " ".join(Elements(doubtful_page).text).replace(" .", ".")
    assert {f.name for f in doubtful.findings} == {"failures", "few_replicates"}
    for finding in doubtful.findings:
        for shown in (finding.message, finding.threshold, finding.next_action, *finding.evidence):
            assert shown in text
    assert "503 Service Unavailable" in pages.render_markdown([doubtful])


def test_several_experiments_share_one_page(doubtful_page: str) -> None:
    ids = [attributes["id"] for _, attributes in Elements(doubtful_page).tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert doubtful_page.count("<h1>") == 2
    assert doubtful_page.count("window.vegaEmbed") == 1


@pytest.fixture(scope="module")
def written(demo_analysis: decide.Analysis, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return report.write([demo_analysis], tmp_path_factory.mktemp("report") / "new" / "report").parent


def test_all_files_are_written(written: Path) -> None:
    assert sorted(path.name for path in written.iterdir()) == [
        "comparison.csv", "comparison.parquet", "index.html", "junit.xml", "metrics.csv", "metrics.parquet",
        "report.md", "timeline.csv", "timeline.parquet", "verdicts.json",
    ]  # fmt: skip


def test_metrics_csv_is_tidy(written: Path) -> None:
    rows = pd.read_csv(written / "metrics.csv")
    assert list(rows.columns) == [
        "experiment",
        "run",
        PROCESSES,
        USERS,
        "endpoint",
        "metric",
        "unit",
        "value",
        "samples",
    ]
    assert not rows.duplicated(["run", "endpoint", "metric"]).any()
    assert set(METRICS) <= set(rows["metric"])
    throughput = rows[(rows["metric"] == "throughput") & (rows["endpoint"] == "all requests")]
    assert len(throughput) == 16
    assert throughput.groupby(PROCESSES)["value"].mean().to_dict() == pytest.approx({1: 61.5, 2: 96.8}, abs=0.1)


def test_a_missing_value_is_empty_and_not_zero(written: Path) -> None:
    with (written / "metrics.csv").open(encoding="utf-8", newline="") as stream:
        values = {
            row["value"] for row in csv.DictReader(stream) if row["metric"] == "p99" and int(row["samples"]) < 368
        }
    assert values == {""}


def test_timeline_csv_keeps_and_labels_the_warm_up(written: Path) -> None:
    rows = pd.read_csv(written / "timeline.csv")
    assert rows.groupby("phase")["offset_s"].agg(["min", "max"]).to_dict("index") == {
        "warm_up": {"min": -2, "max": -1},
        "steady_state": {"min": 0, "max": 5},
    }


def test_verdicts_json_says_what_the_page_says(written: Path, demo_analysis: decide.Analysis) -> None:
    (experiment,) = json.loads((written / "verdicts.json").read_text("utf-8"))["experiments"]
    (verdict,) = experiment["verdicts"]
    assert verdict["verdict"] == "faster"
    assert verdict["treatment"] == {PROCESSES: 2, USERS: 16}
    assert verdict["ratio"] == pytest.approx(demo_analysis.deciding[0].effect.ratio, rel=1e-5)
    assert experiment["runs"] == {"planned": 16, "complete": 16}
    assert experiment["findings"] == []
    assert all(c["verdict"] is None for c in experiment["comparisons"])


def test_comparison_csv_has_one_row_a_comparison(written: Path, demo_analysis: decide.Analysis) -> None:
    rows = pd.read_csv(io.StringIO((written / "comparison.csv").read_text("utf-8")))
    assert len(rows) == len(demo_analysis.comparisons)
    assert rows["verdict"].dropna().tolist() == ["faster"]


def test_a_report_replaces_its_own_files_and_no_others(
    demo_analysis: decide.Analysis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "render_html", lambda analyses: "page")
    report.write([demo_analysis], tmp_path / "report")
    (tmp_path / "report" / "mine.txt").write_text("mine", encoding="utf-8")
    (tmp_path / "report" / "report.md").write_text("old", encoding="utf-8")
    report.write([demo_analysis], tmp_path / "report")
    assert (tmp_path / "report" / "report.md").read_text("utf-8") != "old"
    assert (tmp_path / "report" / "mine.txt").read_text("utf-8") == "mine"


def test_a_folder_of_other_files_is_refused(demo_analysis: decide.Analysis, tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text("mine", encoding="utf-8")
    with pytest.raises(pages.ReportError, match="nothing is overwritten"):
        report.write([demo_analysis], tmp_path)
    assert (tmp_path / "index.html").read_text("utf-8") == "mine"


def test_a_file_in_the_way_is_refused(demo_analysis: decide.Analysis, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine", encoding="utf-8")
    with pytest.raises(pages.ReportError, match="Choose another"):
        report.write([demo_analysis], tmp_path / "file")


def test_an_experiment_without_any_run_makes_a_page(demo: Path, tmp_path: Path) -> None:
    (tmp_path / "experiment.json").write_bytes((demo / "experiment.json").read_bytes())
    empty = decide.analyse(load.load_experiment(tmp_path))
    page = pages.render_html([empty])
    assert "none of 16 planned runs was completed" in page
    assert "vegaEmbed" not in page
