"""The page as a browser shows it: a headless Chromium, unpacked without root, opens the file and is asked about it."""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, sync_playwright

from analysis import decide, load, pages, plots, report
from analysis.metrics import ALL_REQUESTS
from harness import install
from tests.analysis import synthetic
from tests.analysis.synthetic import USERS

HOSTILE = "GET /\"'</script><script>document.title='taken'</script><img src=http://hostile.example/x>${1+1}{{7*7}}"
HOSTILE_LEVEL = "x'\"];alert(1);<img src=x onerror=alert(2)>"
CACHE = "server.parameters.cache"
DRAWN = "document.querySelectorAll('[data-spec]').length === document.querySelectorAll('[data-drawn]').length"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    program, variables = install.chromium()
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(
            executable_path=str(program), env={**os.environ, **variables}, args=["--disable-gpu"]
        )
        yield chromium
        chromium.close()


class Visit:
    """A page that is open, with all that it asked for and complained about."""

    def __init__(self, page: Page, file: Path, must_draw: bool = True) -> None:
        self.page = page
        self.complaints: list[str] = []
        self.requests: list[str] = []
        page.on("console", lambda message: self.complaints.append(message.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("dialog", lambda dialog: self.complaints.append(f"dialog: {dialog.message}"))
        page.on("request", lambda request: self.requests.append(request.url))
        page.goto(file.as_uri())
        if must_draw:
            page.wait_for_function(DRAWN, timeout=60_000)

    def charts(self) -> list[dict[str, Any]]:
        """Width, height, marks (paths, lines and rectangles of a size) and text of each chart."""
        found: list[dict[str, Any]] = self.page.eval_on_selector_all(
            "[data-spec]",
            """charts => charts.map(chart => {
                const box = chart.querySelector("svg")?.getBoundingClientRect() ?? {width: 0, height: 0};
                const marks = [...chart.querySelectorAll("svg [class*=mark-] path, svg [class*=mark-] line")]
                    .filter(mark => !mark.closest("[class*=role-axis], [class*=role-legend]"))
                    .filter(mark => { const b = mark.getBoundingClientRect(); return b.width > 0 || b.height > 0; });
                return {width: box.width, height: box.height, marks: marks.length, text: chart.textContent};
            })""",
        )
        return found

    def violations(self, *rules: str) -> list[str]:
        """What axe-core finds by all rules or these, with everything unfolded; of long tables, in their first rows."""
        self.page.eval_on_selector_all("details", "all => all.forEach(one => one.open = true)")
        alike = {"exclude": [["details.data tbody tr:nth-child(n+4)"]]}
        options = {"resultTypes": ["violations"], **({"runOnly": list(rules)} if rules else {})}
        found = Axe().run(self.page, context=alike, options=options).response["violations"]
        return [f"{one['id']}: {node['html'][:150]}" for one in found for node in one["nodes"]]


@pytest.fixture(scope="module")
def written(demo_analysis: decide.Analysis, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All files of the demo's report."""
    return report.write([demo_analysis], tmp_path_factory.mktemp("browser") / "report")


@pytest.fixture(scope="module", params=["light", "dark"])
def visit(request: pytest.FixtureRequest, browser: Browser, written: Path) -> Iterator[Visit]:
    context = browser.new_context(color_scheme=request.param, viewport={"width": 1200, "height": 900})
    yield Visit(context.new_page(), written)
    context.close()


def test_the_page_asks_for_nothing_and_complains_of_nothing(visit: Visit, written: Path) -> None:
    assert visit.complaints == []
    assert visit.requests == [written.as_uri()]


def test_each_chart_is_drawn(visit: Visit, demo_analysis: decide.Analysis) -> None:
    charts = visit.charts()
    assert len(charts) == len(plots.figures(demo_analysis))
    for chart in charts:
        assert chart["width"] > 300
        assert chart["height"] > 200
        assert chart["marks"] > 16, chart
        assert "could not be drawn" not in chart["text"]


def test_axe_finds_no_violation(visit: Visit) -> None:
    assert visit.violations() == []


def test_text_in_charts_stands_out_from_the_paper(visit: Visit) -> None:
    """axe does not look into drawings."""
    paper = _luminance(visit.page.evaluate("getComputedStyle(document.body).backgroundColor"))
    fills = visit.page.eval_on_selector_all(
        "svg text", "texts => [...new Set(texts.map(text => getComputedStyle(text).fill))]"
    )
    assert fills
    for fill in fills:
        low, high = sorted([paper, _luminance(fill)])
        assert (high + 0.05) / (low + 0.05) > 4.5, fill


def _luminance(colour: str) -> float:
    """Relative luminance of an rgb() colour (WCAG 2.2)."""
    parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_hovering_shows_the_value_of_the_tidy_csv(visit: Visit, written: Path) -> None:
    with (written.parent / "metrics.csv").open(encoding="utf-8", newline="") as stream:
        values = {
            row["run"]: row["value"]
            for row in csv.DictReader(stream)
            if row["metric"] == "throughput" and row["endpoint"] == ALL_REQUESTS
        }
    marks = visit.page.locator('[data-spec$="against-1-spec"] svg .mark-symbol.role-mark path')
    shown = {}
    for place in range(16):
        marks.nth(place).hover(force=True)
        rows = visit.page.locator("#vg-tooltip-element.visible tr")
        rows.first.wait_for()
        cells = dict([cell.strip() for cell in text.split("\t")] for text in rows.all_inner_texts())
        shown[cells["run"]] = cells["throughput, responses/s"]
    assert len(shown) > 4  # marks lie upon each other, and the uppermost speaks
    assert {run: float(value) for run, value in shown.items()} == {run: float(values[run]) for run in shown}


def test_keys_alone_reach_the_numbers_behind_a_figure(visit: Visit) -> None:
    page = visit.page
    page.eval_on_selector_all("details", "all => all.forEach(one => one.open = false)")
    page.evaluate("document.activeElement.blur()")
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.matches('details.data > summary')"):
            break
    page.keyboard.press("Enter")
    assert page.locator("details.data[open] td").first.is_visible()


def test_print_is_on_white_paper_with_figures_and_evidence(visit: Visit) -> None:
    page = visit.page
    page.emulate_media(media="print")
    try:
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        assert set(page.eval_on_selector_all("svg text", "all => all.map(t => getComputedStyle(t).fill)")) == {
            "rgb(0, 0, 0)"
        }
        page.set_viewport_size({"width": 720, "height": 900})
        wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        charts = page.eval_on_selector_all("[data-spec] svg", "all => all.map(s => s.getBoundingClientRect().width)")
        assert wide <= 0
        assert max(charts) <= 720
        assert visit.violations("color-contrast") == []
        assert page.pdf().startswith(b"%PDF")
    finally:
        page.emulate_media(media="screen")
        page.set_viewport_size({"width": 1200, "height": 900})


def test_a_narrow_window_scrolls_charts_and_tables_and_not_the_page(browser: Browser, written: Path) -> None:
    page = browser.new_page(viewport={"width": 390, "height": 800})
    visit = Visit(page, written)
    assert page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") == 0
    assert visit.violations("scrollable-region-focusable") == []
    page.close()


def test_single_runs_of_long_names_complain_of_nothing_and_fit(browser: Browser, tmp_path: Path) -> None:
    long = "v" * 110
    plan = synthetic.Plan(
        factors={CACHE: ["dict", long], USERS: [4]},
        baseline={CACHE: "dict"},
        replicates=1,
        primary={"metric": "throughput", "at": {}},
        notes=(long,),
    )
    synthetic.make(tmp_path / "experiment", plan)
    file = tmp_path / "index.html"
    file.write_text(pages.render_html([decide.analyse(load.load_experiment(tmp_path / "experiment"))]), "utf-8")
    page = browser.new_page(viewport={"width": 400, "height": 800})
    visit = Visit(page, file)
    assert visit.complaints == []
    assert page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") == 0
    assert "share of a column's responses" in page.locator("svg .role-legend-title").all_text_contents()
    widths = page.eval_on_selector_all(
        "svg .role-legend-symbol path", "all => all.map(p => p.getAttribute('stroke-width'))"
    )
    assert set(widths) == {"0"}, "a dashed outline around the shape"
    page.close()


@pytest.fixture(scope="module")
def two(browser: Browser, demo_analysis: decide.Analysis, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Visit]:
    """A page of two experiments; in the second, names of endpoints and levels are attacks."""
    folder = tmp_path_factory.mktemp("two")
    factors = {CACHE: ["dict", HOSTILE_LEVEL], USERS: [HOSTILE_LEVEL]}
    plan = synthetic.Plan(
        factors=factors,
        baseline={CACHE: "dict"},
        replicates=2,
        endpoints=(HOSTILE, "GET /b"),
        failure_ratio=lambda t: 0.1,
        primary={"metric": "throughput", "at": {}},
        response_ms=lambda t: 50.0,
    )
    synthetic.make(folder / "experiment", plan)
    hostile = decide.analyse(load.load_experiment(folder / "experiment"))
    file = folder / "index.html"
    file.write_text(pages.render_html([demo_analysis, hostile]), encoding="utf-8")
    page = browser.new_page()
    yield Visit(page, file)
    page.close()


def test_hostile_names_are_only_text(two: Visit) -> None:
    page = two.page
    page.locator('[data-spec="experiment-2-distribution-spec"] svg .mark-symbol.role-mark path').first.hover(force=True)
    page.locator("#vg-tooltip-element.visible tr").first.wait_for()
    assert HOSTILE_LEVEL in page.locator("#vg-tooltip-element").inner_text()
    assert HOSTILE in page.locator("body").inner_text()
    assert len(two.requests) == 1
    assert two.complaints == []
    assert "taken" not in page.title()
    assert page.locator("img").count() == 0


def test_several_experiments_have_a_table_of_contents(two: Visit) -> None:
    entries = two.page.locator("nav.contents li")
    assert entries.count() == 2
    assert "Faster. With processes = 2" in entries.first.inner_text()
    entries.nth(1).locator("a").click()
    assert two.page.evaluate("location.hash") == "#experiment-2"
    assert two.violations() == []


def test_a_script_that_gets_into_the_page_does_not_run(browser: Browser, written: Path, tmp_path: Path) -> None:
    """The policy is the second lock: it holds even where escaping were forgotten."""
    text = written.read_text("utf-8")
    file = tmp_path / "index.html"
    file.write_text(text.replace("</main>", "<script>document.title = 'taken'</script></main>"), encoding="utf-8")
    page = browser.new_page()
    visit = Visit(page, file)
    assert "taken" not in page.title()
    assert any("Content Security Policy" in complaint for complaint in visit.complaints)
    page.close()
