"""What figures are made of: how much may be drawn, colours and marks, data by name, the specification.

Colours are those of Okabe and Ito that stand out on white and on black alike; shape or dash says the same once more.
Names from experiments and servers enter a specification as data and as titles only, never as the name of a field or of
a data set, and never in an expression.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

import altair as alt
import pandas as pd

from analysis import pairing
from analysis.decide import Analysis
from analysis.record import Treatment

PALETTE = ("#1F83C4", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8A8A8A")
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down")
DASHES = ([1, 0], [6, 3], [2, 2], [8, 2, 2, 2], [4, 4])
HEAT = ("#7B4FB5", "#C2478F", "#EE7B51", "#FDC527")
"""Lighter where there is more, and no stop too near to white or to black."""
GREY = "#8A8A8A"
WIDTH = 380
"""Of a panel, pixels; two stand beside each other."""


@dataclasses.dataclass(frozen=True)
class Detail:
    """How much a figure may draw; a page that would be too large is made again with less."""

    points: int = 6_000
    """Marks of one figure."""
    panels: int = 8
    """Treatments (or combinations of levels) with a panel of their own."""
    table_rows: int = 400
    """Rows of the table behind a figure."""
    lines: int = 8
    """Replicates of a treatment drawn one by one; of more, their median and range."""

    def halved(self) -> Detail:
        """Half of everything that grows with the experiment."""
        return Detail(self.points // 2, max(1, self.panels // 2), self.table_rows // 2, self.lines)


FULL = Detail()


@dataclasses.dataclass(frozen=True)
class Figure:
    """A figure and the numbers it draws."""

    name: str
    title: str
    caption: str
    spec: dict[str, Any]
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    source: str = "metrics.csv"
    """The file of the report that holds the numbers, or those that they were made of."""
    rows_left_out: int = 0
    collapsed: bool = False
    """Closed until it is asked for: one of many."""


def further(count: int, one: str, several: str, where: str) -> str:
    """A sentence on what a figure leaves out, with a blank before it; "" for nothing."""
    if count < 1:
        return ""
    return f" 1 further {one} is {where}." if count == 1 else f" {count} further {several} are {where}."


# --- parts of figures ----------------------------------------------------------------------------------------------

CSV_FORMAT = ".6~g"
"""As many digits as the CSV files have."""


class Data:
    """The data of one specification: charts refer to it, so that Altair does not copy each row many times."""

    def __init__(self) -> None:
        self.sets: dict[str, list[dict[str, Any]]] = {}

    def chart(self, frame: pd.DataFrame) -> alt.Chart:
        """A chart of `frame`; its encodings must name their types."""
        name = f"data{len(self.sets)}"
        columns = [[plain(value) for value in frame[column]] for column in frame.columns]
        self.sets[name] = [dict(zip(frame.columns, row, strict=True)) for row in zip(*columns, strict=True)]
        return alt.Chart(alt.NamedData(name=name))


def plain(value: Any) -> Any:
    """A value for JSON: numbers to six digits, a missing one as null."""
    if isinstance(value, str):
        return value
    if value is None or pd.isna(value):
        return None
    return int(value) if float(value).is_integer() else float(f"{float(value):.6g}")


def panel_title(text: str) -> alt.TitleParams | str:
    """Title of a panel; "" for none."""
    return alt.TitleParams(text, anchor="start", fontSize=12, limit=WIDTH) if text else ""


def labels_of(analysis: Analysis) -> dict[str, str]:
    """Label by the treatment's key."""
    return {key: analysis.label(key) for key in analysis.experiment.treatments}


def panel_treatments(analysis: Analysis, detail: Detail) -> list[str]:
    """Keys of the treatments with a panel: those of the comparisons that decide first, then the others."""
    deciding = [key for c in analysis.deciding for key in c.keys]
    chosen = set(list(dict.fromkeys([*deciding, *analysis.experiment.treatments]))[: detail.panels])
    return [key for key in analysis.experiment.treatments if key in chosen]


def deciding_first(analysis: Analysis, labels: Iterable[str], paths: Sequence[str]) -> list[str]:
    """Labels of levels, those that a deciding comparison has first."""
    first = [pairing.label(c.pair.treatment, analysis.names, paths) for c in analysis.deciding if paths]
    known = list(labels)
    return [label for label in dict.fromkeys([*first, *known]) if label in known]


def sides_of(analysis: Analysis) -> dict[str, tuple[str, str]]:
    """By treatment: what is compared within (the factors the baseline does not name), and which side it is."""
    return {key: _side(analysis, treatment) for key, treatment in analysis.experiment.treatments.items()}


def _side(analysis: Analysis, treatment: Treatment) -> tuple[str, str]:
    baseline, names = analysis.experiment.record.baseline, analysis.names
    context = {path: level for path, level in treatment.items() if baseline and path not in baseline}
    side = {path: level for path, level in treatment.items() if path not in context}
    return pairing.label(context, names) if context else "", pairing.label(side, names)


def is_numeric(levels: Iterable[object]) -> bool:
    """Whether all levels are numbers, so that a line between them means something."""
    return all(isinstance(level, int | float) and not isinstance(level, bool) for level in levels)


def level_order(analysis: Analysis, path: str) -> list[str]:
    """Texts of a factor's levels, in the order in which the experiment names them."""
    return [pairing.level_text(level) for level in analysis.experiment.record.factors[path]]


def marks_of(series: Iterable[str]) -> tuple[alt.Color, alt.Shape, alt.StrokeDash]:
    """Colour, shape and dash of the series, with one legend for the three."""
    names = list(series)
    scales: dict[str, list[Any]] = {"colour": list(PALETTE), "shape": list(SHAPES), "dash": list(DASHES)}
    ranges = {kind: [values[n % len(values)] for n in range(len(names))] for kind, values in scales.items()}
    # Without a stroke: its dash would be a second, broken outline around the shape.
    legend = alt.Legend(title=None, columns=2, symbolOpacity=1, symbolStrokeWidth=0)
    return (
        alt.Color("series:N", legend=legend, scale=alt.Scale(domain=names, range=ranges["colour"])),
        alt.Shape("series:N", legend=legend, scale=alt.Scale(domain=names, range=ranges["shape"])),
        alt.StrokeDash("series:N", legend=legend, scale=alt.Scale(domain=names, range=ranges["dash"])),
    )


def table_rows(frame: pd.DataFrame, columns: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """The columns as text: numbers as the CSV files have them, a missing one as a dash."""
    texts = [[_text(value) for value in frame[column]] for column in columns]
    return tuple(zip(*texts, strict=True))


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "–" if value is None or pd.isna(value) else str(value) if isinstance(value, int) else f"{value:.6g}"


CONFIG: dict[str, Any] = {
    "background": "transparent",
    "font": "system-ui, sans-serif",
    "axis": {"labelFontSize": 11, "titleFontSize": 12, "titleFontWeight": "normal", "gridOpacity": 0.5},
    "legend": {"orient": "top", "labelFontSize": 12, "labelLimit": 400, "symbolStrokeWidth": 2},
    "view": {"stroke": None},
}


def specification(panels: Sequence[alt.TopLevelMixin], data: Data, columns: int = 2) -> dict[str, Any]:
    """One specification of all panels. Altair checks each by itself: joining them there would copy each many times."""
    return {
        "config": CONFIG,
        "concat": [_bare(panel) for panel in panels],
        "columns": columns,
        "datasets": data.sets,
    }


def _bare(panel: alt.TopLevelMixin) -> dict[str, Any]:
    """Without the address of the schema, which would only look like a request, and without Altair's own theme."""
    spec: dict[str, Any] = panel.to_dict()
    return {key: value for key, value in spec.items() if key not in ("$schema", "config")}
