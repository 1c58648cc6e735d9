"""Figures: one function each, an Analysis in, a Figure (Vega-Lite specification, caption, the table behind it) out.

Here those against the swept factors and the distributions; those over time are in plots_over_time.py.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from analysis import cell_graphs, histograms, intervals, metrics, pairing
from analysis.decide import Analysis
from analysis.figure_parts import (
    CSV_FORMAT,
    FULL,
    WIDTH,
    Data,
    Detail,
    Figure,
    deciding_first,
    further,
    is_numeric,
    level_order,
    marks_of,
    panel_title,
    sides_of,
    specification,
    table_rows,
)
from analysis.histograms import Histogram
from analysis.metrics import ALL_REQUESTS, BY_NAME, Metric
from analysis.plots_over_time import heatmap, timeline


def figures(analysis: Analysis, detail: Detail = FULL) -> list[Figure]:
    """All figures that have something to draw."""
    made: list[Callable[[Analysis, Detail], Figure | None]] = [distribution, timeline, heatmap]
    drawn = [*swept(analysis, detail), *(make(analysis, detail) for make in made)]
    drawn += cell_graphs.figures(analysis, detail)
    return [_with_short_table(figure, detail) for figure in drawn if figure is not None]


def _with_short_table(figure: Figure, detail: Detail) -> Figure:
    left_out = max(0, len(figure.rows) - detail.table_rows)
    return dataclasses.replace(figure, rows=figure.rows[: detail.table_rows], rows_left_out=left_out)


# --- against the swept factors -------------------------------------------------------------------------------------


def swept(analysis: Analysis, detail: Detail = FULL) -> list[Figure]:
    """Throughput and response time against each swept factor: a dot a run, a bar for the interval of each treatment.

    One figure a factor that the baseline does not name, or one for the first factor where it names them all.
    """
    record = analysis.experiment.record
    free = [path for path in record.factors if path not in record.baseline]
    numeric = [path for path in free if is_numeric(record.factors[path])]
    axes = (numeric or free or list(record.factors)[:1])[: max(1, detail.panels // 2)]
    return [figure for axis in axes if (figure := _against(analysis, axis, detail)) is not None]


def _against(analysis: Analysis, axis: str, detail: Detail) -> Figure | None:
    record = analysis.experiment.record
    chosen = _drawn_metrics(analysis)
    others = [path for path in record.factors if path != axis]
    side_paths = [path for path in others if path in record.baseline or not record.baseline]
    row_paths = [path for path in others if path not in side_paths]
    points = _runs(analysis, chosen, axis, side_paths, row_paths)
    if points.empty:
        return None
    rows = deciding_first(analysis, points["row"].unique(), row_paths)[: max(1, detail.panels // 4)]
    left_out = points["row"].nunique() - len(rows)
    points = points[points["row"].isin(rows)]
    data = Data()
    name = analysis.names[axis]
    series = list(dict.fromkeys(points["series"]))
    x = alt.X("level:N", title=name, sort=level_order(analysis, axis), axis=alt.Axis(labelAngle=0, labelLimit=120))
    joined = is_numeric(record.factors[axis])
    charts = [
        _dots_and_intervals(data, points[(points["row"] == row) & (points["metric"] == metric.name)], metric, series, x)
        .properties(title=panel_title(row), width=_width(len(series), points["level"].nunique()), height=240)
        for row in rows
        for metric in chosen
    ]  # fmt: skip
    if joined:
        charts = [alt.layer(_joining_line(data, chart_points, series, x), chart)
                  .properties(title=chart.title, width=chart.width, height=chart.height)
                  for chart, chart_points in zip(charts, _typicals(points, rows, chosen), strict=True)]  # fmt: skip
    titles = " and ".join(metric.title for metric in chosen)
    return Figure(
        f"against-{list(record.factors).index(axis)}",
        f"{titles[:1].upper()}{titles[1:]} against {name}",
        _against_caption(analysis, joined, left_out),
        specification(charts, data, columns=len(chosen) if len(chosen) < 3 else 2),
        ("run", name, "series", *(["at"] if row_paths else []), "metric", "value"),
        table_rows(points, ("run", "level", "series", *(["row"] if row_paths else []), "head", "value")),
    )


def _against_caption(analysis: Analysis, joined: bool, left_out: int) -> str:
    if analysis.experiment.imported and analysis.experiment.record.replicates == 1:
        return "A mark is a run."
    more = further(left_out, "combination of levels", "combinations of levels", "in metrics.csv")
    line = " A thin line joins the means; the levels are evenly spaced, whatever their values." if joined else ""
    return (
        "A filled mark is a run. Beside the runs of a treatment, the tick is their geometric mean and the bar its 95 % "
        "interval (Student's t on the logarithms): where a treatment lies. The verdict rests on the interval of the "
        f"ratio, in the table above.{line}{more}"
    )


def _drawn_metrics(analysis: Analysis) -> list[Metric]:
    """The primary metric, throughput, and the highest of three percentiles that every run carries."""
    rows = analysis.by_run[analysis.by_run["endpoint"] == ALL_REQUESTS]
    present = set(_carried(rows)["metric"])
    whole = rows.groupby("metric")["value"].agg(lambda values: bool(values.notna().all()))
    tail = next((name for name in ("p95", "p90", "p50") if whole.get(name, False)), "p95")
    named = dict.fromkeys([analysis.primary.name, "throughput", tail])
    return [BY_NAME[name] for name in named if name in present]


def _runs(
    analysis: Analysis, chosen: Sequence[Metric], axis: str, side_paths: Sequence[str], row_paths: Sequence[str]
) -> pd.DataFrame:
    """run, level, series, row, metric, head, value: one row a run and metric, in the order of the treatments."""
    rows = _carried(analysis.by_run[analysis.by_run["endpoint"] == ALL_REQUESTS])
    rows = rows[rows["metric"].isin([metric.name for metric in chosen])]
    by_key = analysis.experiment.treatments
    treatments = [by_key[key] for key in rows["treatment"]]
    place = {key: n for n, key in enumerate(by_key)}
    names = analysis.names
    labelled = rows.assign(
        level=[pairing.level_text(t.get(axis)) for t in treatments],
        series=[pairing.label(t, names, side_paths) if side_paths else "all runs" for t in treatments],
        row=[pairing.label(t, names, row_paths) if row_paths else "" for t in treatments],
        head=[_head(BY_NAME[name]) for name in rows["metric"]],
    )
    return labelled.sort_values("treatment", key=lambda keys: keys.map(place), kind="stable")


def _carried(rows: pd.DataFrame) -> pd.DataFrame:
    """Of by_run's rows those of treatments whose runs all carry the metric: the others alone would favour one kind."""
    lacking = rows["value"].isna().groupby([rows["treatment"], rows["metric"]]).transform("any")
    return rows[~lacking.astype(bool)]


def _head(metric: Metric) -> str:
    """Title with the unit of the tidy CSV, which is what a figure draws."""
    return f"{metric.title}, {metric.unit}" if metric.unit else metric.title


def _dots_and_intervals(
    data: Data, points: pd.DataFrame, metric: Metric, series: list[str], x: alt.X
) -> alt.LayerChart | alt.FacetChart:
    """Each series has two places beside each other at every level: one for its interval, one for its runs."""
    typical = _typical_of(points)
    offset = _places(series)
    colour, shape, _ = marks_of(series)
    y = alt.Y("value:Q", title=_head(metric), scale=alt.Scale(zero=True))
    points = points.assign(place=points["series"] + " runs")
    tooltip = [
        alt.Tooltip("run:N", title="run"),
        alt.Tooltip("series:N", title="series"),
        alt.Tooltip("value:Q", title=_head(metric), format=CSV_FORMAT),
    ]
    dots = (
        data.chart(points[["run", "level", "series", "place", "value"]])
        .mark_point(size=40, filled=True, opacity=0.8)
        .encode(x, y, colour, shape, offset, tooltip=tooltip)
    )
    means, whole = data.chart(typical), typical.dropna()
    middle = means.mark_tick(thickness=2, size=14).encode(x, y, colour, offset)
    if whole.empty:  # of single runs; Vega would complain of an infinite extent
        return alt.layer(middle, dots)
    bars = data.chart(whole).mark_rule(strokeWidth=2)
    return alt.layer(bars.encode(x, alt.Y("low:Q", title=""), alt.Y2("high:Q"), colour, offset), middle, dots)


def _joining_line(data: Data, typical: pd.DataFrame, series: list[str], x: alt.X) -> alt.Chart:
    line: alt.Chart = data.chart(typical[["level", "series", "place", "value"]]).mark_line(strokeWidth=1, opacity=0.5)
    return line.encode(x, alt.Y("value:Q", title=""), marks_of(series)[0], _places(series), alt.Detail("series:N"))


def _typicals(points: pd.DataFrame, rows: Sequence[str], chosen: Sequence[Metric]) -> list[pd.DataFrame]:
    return [
        _typical_of(points[(points["row"] == row) & (points["metric"] == metric.name)])
        for row in rows
        for metric in chosen
    ]


def _typical_of(points: pd.DataFrame) -> pd.DataFrame:
    """level, series, place, value, low, high: the geometric mean of each treatment's runs with its interval."""
    columns = ["level", "series", "place", "value", "low", "high"]
    return pd.DataFrame([_typical(part) for _, part in points.groupby("treatment", sort=False)], columns=columns)


def _typical(part: pd.DataFrame) -> dict[str, Any]:
    first = part.iloc[0]
    values = [float(value) for value in part["value"] if value > 0]
    middle, low, high = intervals.geometric_mean(values) if values else (math.nan, None, None)
    place = f"{first['series']} interval"
    return {
        "level": first["level"],
        "series": first["series"],
        "place": place,
        "value": middle,
        "low": low,
        "high": high,
    }


def _places(series: Sequence[str]) -> alt.XOffset:
    places = [f"{name} {part}" for name in series for part in ("interval", "runs")]
    return alt.XOffset("place:N", scale=alt.Scale(domain=places, paddingOuter=0.4))


def _width(series: int, levels: int) -> int:
    return max(WIDTH - 60, min(2 * WIDTH, 24 * series * max(levels, 1)))


# --- distributions -------------------------------------------------------------------------------------------------

LANDMARKS = (0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 0.9999, 0.99999)
STEPS_A_DECADE = 10


def distribution(analysis: Analysis, detail: Detail = FULL) -> Figure | None:
    """Response-time percentiles of each treatment on a log tail axis, 1 / (1 - p), with the range of its replicates."""
    points = _reported_points(analysis) if analysis.experiment.imported else _tail_points(analysis)
    if points.empty:
        return None
    panels = list(dict.fromkeys(points["panel"]))[: detail.panels]
    left_out = points["panel"].nunique() - len(panels)
    points = points[points["panel"].isin(panels)].iloc[: detail.points]
    series = list(dict.fromkeys(points["series"]))
    data = Data()
    highest = float(points["tail"].max())
    ends = [float(points[["value", "low"]].min().min()) / 1.1, float(points[["value", "high"]].max().max()) * 1.1]
    charts = [
        _tail_panel(data, points[points["panel"] == panel], series, highest, ends).properties(
            title=panel_title(panel), width=WIDTH, height=240
        )
        for panel in panels
    ]
    more = further(left_out, "combination of levels", "combinations of levels", "in metrics.csv")
    return Figure(
        "distribution",
        "Response-time distribution",
        "As the summaries report them." if analysis.experiment.imported else
        "Read at 99 %: 99 of 100 successful responses took at most so long. Each step to the right looks ten times "
        "further into the tail. A line is a treatment, the histograms of its replicates added, and ends where too few "
        "responses carry the percentile; the band reaches from the lowest to the highest replicate, as far as all do."
        + more,
        specification(charts, data),
        ("treatment", "percentile", "ms", "lowest replicate, ms", "highest replicate, ms", "responses"),
        table_rows(points, ("treatment", "percentile", "value", "low", "high", "samples")),
    )  # fmt: skip


def _tail_panel(
    data: Data, points: pd.DataFrame, series: list[str], highest: float, ends: list[float]
) -> alt.LayerChart | alt.FacetChart:
    # 10 to the power of a whole number, and 2: an expression of ours alone.
    label = "datum.value < 1.5 ? '' : format(100 * (1 - 1 / datum.value), '~r') + ' %'"
    ticks = [2.0, *(10.0**n for n in range(1, 6) if 10.0**n <= highest * 1.01)]
    x = alt.X(
        "tail:Q",
        title="percentile, tail drawn out: 1 / (1 − p)",
        scale=alt.Scale(type="log", domain=[1, max(highest, 20) * 1.05], nice=False),
        axis=alt.Axis(values=ticks, labelExpr=label, grid=True),
    )
    y = alt.Y("value:Q", title="response time, ms (log scale)", scale=alt.Scale(type="log", domain=ends, nice=False))
    colour, shape, dash = marks_of(series)
    chart = data.chart(points[["treatment", "series", "tail", "percentile", "value", "low", "high", "samples"]])
    tooltip = [
        alt.Tooltip("treatment:N"),
        alt.Tooltip("percentile:N"),
        alt.Tooltip("value:Q", title="ms", format=CSV_FORMAT),
        alt.Tooltip("low:Q", title="lowest replicate, ms", format=CSV_FORMAT),
        alt.Tooltip("high:Q", title="highest replicate, ms", format=CSV_FORMAT),
        alt.Tooltip("samples:Q", title="responses"),
    ]
    band = chart.transform_filter("isValid(datum.low)").mark_area(opacity=0.18)
    band = band.encode(x, alt.Y("low:Q", title=""), alt.Y2("high:Q"), colour)
    line = chart.mark_line(strokeWidth=1.7).encode(x, y, colour, dash)
    dots = chart.mark_point(size=16, filled=True).encode(x, y, colour, shape, tooltip=tooltip)
    return alt.layer(*([band] if points["low"].notna().any() else []), line, dots)


def _tail_points(analysis: Analysis) -> pd.DataFrame:
    """panel, series, treatment, tail, percentile, value, low, high (ms), samples; of response and of service times."""
    rows = []
    sides = sides_of(analysis)
    for key in analysis.experiment.treatments:
        runs = analysis.experiment.complete_runs(key)
        seen = [
            analysis.observations[run, ALL_REQUESTS] for run in runs if (run, ALL_REQUESTS) in analysis.observations
        ]
        # Where one run's slowest are missing, the treatment's tail is unknown.
        censored = metrics.merge(seen).censored
        both = [("", [] if "response" in censored else [o.response_times for o in seen])]
        if any(o.service_times.total for o in seen):
            service = [] if "service" in censored else [o.service_times for o in seen]
            both = [("response time", both[0][1]), ("service time", service)]
        for clock, parts in both:
            panel = " · ".join(part for part in (sides[key][0], clock) if part)
            about = {"panel": panel, "series": sides[key][1], "treatment": analysis.label(key)}
            rows += [about | point for point in _tail_of(parts)]
    columns = ["panel", "series", "treatment", "tail", "percentile", "value", "low", "high", "samples"]
    return pd.DataFrame(rows, columns=columns)


def _tail_of(parts: Sequence[Histogram]) -> list[dict[str, Any]]:
    """Points of one treatment: percentiles of the merged histogram, and the extremes of those of its replicates."""
    merged = histograms.add(parts)
    carried = [p for p in _fractions() if merged.total >= histograms.smallest_sample_for(p)]
    points = []
    for p in carried:
        each = [part.percentile_us(p) for part in parts if part.total >= histograms.smallest_sample_for(p)]
        known = [value / 1000 for value in each if value is not None]
        whole = len(known) == len(parts) > 1
        value_us = merged.percentile_us(p) or 0.0
        points.append({
            "tail": 1 / (1 - p), "percentile": f"{100 * p:.6g} %", "value": value_us / 1000,
            "low": min(known) if whole else None, "high": max(known) if whole else None, "samples": merged.total,
        })  # fmt: skip
    return points


@functools.cache
def _fractions() -> tuple[float, ...]:
    """Percentiles that are drawn: evenly spaced on the tail axis, and those that people name."""
    even = (1 - 10 ** (-k / STEPS_A_DECADE) for k in range(1, 5 * STEPS_A_DECADE + 1))
    return tuple(sorted({*LANDMARKS, *(round(p, 6) for p in even)}))


def _reported_points(analysis: Analysis) -> pd.DataFrame:
    """The same of another tool's summary, which has a few percentiles only."""
    rows = analysis.by_treatment
    shown = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
    rows = rows[rows["metric"].isin(shown) & (rows["endpoint"] == ALL_REQUESTS)].dropna(subset=["value"])
    sides, fractions = sides_of(analysis), rows["metric"].map(shown)
    return rows.assign(
        panel=[sides[t][0] for t in rows["treatment"]],
        series=[sides[t][1] for t in rows["treatment"]],
        treatment=[analysis.label(t) for t in rows["treatment"]],
        tail=1 / (1 - fractions),
        percentile=[f"{100 * p:.6g} %" for p in fractions],
        low=np.nan,
        high=np.nan,
    )
