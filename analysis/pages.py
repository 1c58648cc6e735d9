"""A page's view, rendered: index.html, one file that needs no network, and report.md for a pull request. Pure."""

from __future__ import annotations

import base64
import dataclasses
import functools
import hashlib
import math
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jinja2

from analysis import tables, view
from analysis.decide import Analysis
from analysis.view import View

if TYPE_CHECKING:
    from analysis.figure_parts import Detail

TEMPLATES = Path(__file__).parent / "templates"
LARGEST_PAGE_BYTES = 3_000_000
MOST_DIFFERENCES = 12
MOST_WITH_FIGURES = 24
"""Experiments on one page; more would be drawn with too few points to be of use."""


class ReportError(Exception):
    """The report cannot be written where it was asked for, or is too large for one page."""


def render_html(analyses: Sequence[Analysis]) -> str:
    """index.html: one file that needs no network, and never more than LARGEST_PAGE_BYTES.

    Where it would be larger it is made again with less detail, and says so. Raises ReportError where even the text is
    too much for one page.
    """
    from analysis.figure_parts import FULL

    views = view.of_all(analyses)
    detail, last = FULL, math.inf
    while len(analyses) <= MOST_WITH_FIGURES:
        page = _page([_with_figures(v, a, detail) for v, a in zip(views, analyses, strict=True)])
        if _size(page) <= LARGEST_PAGE_BYTES:
            return page
        # What is left is not in the figures' points: drawing them with still fewer would not help.
        if _size(page) > 0.9 * last:
            break
        detail, last = detail.halved(), _size(page)
    for shorten in (_without_figures, _answer_only):
        page = _page([shorten(v) for v in views])
        if _size(page) <= LARGEST_PAGE_BYTES:
            return page
    raise ReportError(
        f"index.html of {len(analyses)} experiments would be larger than {LARGEST_PAGE_BYTES / 1e6:g} MB. "
        "Report fewer at a time."
    )


def _size(page: str) -> int:
    return len(page.encode("utf-8", errors="backslashreplace"))


def _with_figures(of: View, analysis: Analysis, detail: Detail) -> View:
    from analysis import plots
    from analysis.figure_parts import FULL

    most = 5 * detail.table_rows
    return dataclasses.replace(
        of,
        figures=plots.figures(analysis, detail),
        differences=of.differences[:MOST_DIFFERENCES],
        differences_left_out=max(0, len(of.differences) - MOST_DIFFERENCES),
        run_rows=of.run_rows[:most],
        runs_left_out=max(0, len(of.run_rows) - most),
        shortened="" if detail == FULL else "Figures are drawn with fewer points, to keep the page small.",
    )


def _without_figures(of: View) -> View:
    return dataclasses.replace(
        of, endpoint_blocks=[], differences=[], outcome_rows=of.outcome_rows[:20], run_rows=of.run_rows[:100],
        runs_left_out=max(0, len(of.run_rows) - 100), most_evidence=10,
        shortened="Without figures and details, which would not fit. Report fewer experiments at a time to see them.",
    )  # fmt: skip


def _answer_only(of: View) -> View:
    bare = _without_figures(of)
    return dataclasses.replace(
        bare, blocks=[], outcome_rows=[], body_rows=[], run_rows=[], runs_left_out=len(of.run_rows), most_evidence=3,
        shortened="Without tables, which would not fit; they are in comparison.csv and metrics.csv.",
    )  # fmt: skip


def _page(views: Sequence[View]) -> str:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        trim_blocks=True,
        undefined=jinja2.StrictUndefined,
        finalize=_keep_percent,
    )
    environment.filters["own"] = _own_html
    css, drawing = ((TEMPLATES / name).read_text(encoding="utf-8") for name in ("report.css", "report.js"))
    javascript = _javascript() if any(v.figures for v in views) else ""
    return environment.get_template("report.html.j2").render(
        reports=views,
        css=_trusted(css),
        javascript=_trusted(javascript),
        drawing=_trusted(drawing),
        policy=_policy([javascript, drawing] if javascript else []),
        packed=_packed,
    )


def _policy(scripts: Iterable[str]) -> str:
    """What the page allows itself: nothing from anywhere, and no script but these, whatever a name may contain."""
    hashes = (base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in scripts)
    allowed = " ".join(f"'sha256-{digest}'" for digest in hashes) or "'none'"
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; "
        "form-action 'none'"
    )


def _packed(spec: dict[str, Any]) -> dict[str, Any]:
    """The specification with its data as columns and rows, which take a third of the room; report.js unpacks them."""
    packed = {
        name: {"columns": list(rows[0]) if rows else [], "rows": [list(row.values()) for row in rows]}
        for name, rows in spec["datasets"].items()
    }
    return spec | {"datasets": packed}


@functools.cache
def _javascript() -> str:
    """Vega, Vega-Lite and Vega-Embed: about 0.9 MB, and seconds to put together."""
    import vl_convert

    bundle: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    # A closing tag within a string of it would end the element.
    return bundle.replace("</script", "<\\/script")


def render_markdown(analyses: Sequence[Analysis]) -> str:
    """report.md: the first page and the method, for a pull request."""
    environment = jinja2.Environment(  # noqa: S701 - Markdown: every text passes escape_markdown instead
        loader=jinja2.FileSystemLoader(TEMPLATES),
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters["md"] = lambda text: tables.escape_markdown(str(text))
    environment.filters["own"] = lambda text: tables.markdown_of_own(str(text))
    environment.filters["markdown_table"] = tables.to_markdown
    views = view.of_all(analyses)
    text = environment.get_template("report.md.j2").render(reports=views)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def _keep_percent(value: Any) -> Any:
    """A number and its percent sign on one line; text that is trusted is code, and is left alone."""
    return value.replace(" %", "\u00a0%") if type(value) is str else value


def _own_html(text: str) -> Any:
    """A text of ours, in which `a command` is code; whatever else is in it is escaped."""
    from markupsafe import escape

    return _trusted(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(_keep_percent(text)))))


def _trusted(text: str) -> Any:
    """Text of our own files and dependencies, which autoescape must leave alone."""
    from markupsafe import Markup

    return Markup(text)  # noqa: S704
