"""Figures: one function each, an Analysis in, a Figure (Vega-Lite specification, caption, the table behind it) out.

Colours are those of Okabe and Ito that stand out on white and on black alike; shape or dash says the same once more.
Names from experiments and servers enter a specification as data and as titles only, never as the name of a field or of
a data set, and never in an expression.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from analysis import heatmap as heat
from analysis import histograms, intervals, pairing
from analysis import usage as usage_of
from analysis.decide import Analysis
from analysis.histograms import Histogram
from analysis.load import STEADY_STATE, WARM_UP, rows_of
from analysis.metrics import ALL_REQUESTS, BY_NAME, Metric
from analysis.record import Treatment, Window

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


def figures(analysis: Analysis, detail: Detail = FULL) -> list[Figure]:
    """All figures that have something to draw."""
    made: list[Callable[[Analysis, Detail], Figure | None]] = [distribution, timeline, heatmap]
    drawn = [*swept(analysis, detail), *(make(analysis, detail) for make in made)]
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
    numeric = [path for path in free if _is_numeric(record.factors[path])]
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
    rows = _deciding_first(analysis, points["row"].unique(), row_paths)[: max(1, detail.panels // 4)]
    left_out = points["row"].nunique() - len(rows)
    points = points[points["row"].isin(rows)]
    data = _Data()
    name = analysis.names[axis]
    series = list(dict.fromkeys(points["series"]))
    x = alt.X("level:N", title=name, sort=_level_order(analysis, axis), axis=alt.Axis(labelAngle=0, labelLimit=120))
    joined = _is_numeric(record.factors[axis])
    charts = [
        _dots_and_intervals(data, points[(points["row"] == row) & (points["metric"] == metric.name)], metric, series, x)
        .properties(title=_panel_title(row), width=_width(len(series), points["level"].nunique()), height=240)
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
        _spec(charts, data, columns=len(chosen) if len(chosen) < 3 else 2),
        ("run", name, "series", *(["at"] if row_paths else []), "metric", "value"),
        _rows(points, ("run", "level", "series", *(["row"] if row_paths else []), "head", "value")),
    )


def _against_caption(analysis: Analysis, joined: bool, left_out: int) -> str:
    if analysis.experiment.imported and analysis.experiment.record.replicates == 1:
        return "A mark is a run."
    more = f" {left_out} further combinations of levels are in metrics.csv." if left_out else ""
    line = " A thin line joins the means; the levels are evenly spaced, whatever their values." if joined else ""
    return (
        "A filled mark is a run. Beside the runs of a treatment, the tick is their geometric mean and the bar its 95 % "
        "interval (Student's t on the logarithms): where a treatment lies. The verdict rests on the interval of the "
        f"ratio, in the table above.{line}{more}"
    )


def _drawn_metrics(analysis: Analysis) -> list[Metric]:
    """The primary metric, throughput, and the highest of three percentiles that every run carries."""
    rows = analysis.by_run[analysis.by_run["endpoint"] == ALL_REQUESTS]
    whole = rows.groupby("metric")["value"].agg(lambda values: bool(values.notna().all()))
    tail = next((name for name in ("p95", "p90", "p50") if whole.get(name, False)), "p95")
    named = dict.fromkeys([analysis.primary.name, "throughput", tail])
    present = set(rows.dropna(subset=["value"])["metric"])
    return [BY_NAME[name] for name in named if name in present]


def _runs(
    analysis: Analysis, chosen: Sequence[Metric], axis: str, side_paths: Sequence[str], row_paths: Sequence[str]
) -> pd.DataFrame:
    """run, level, series, row, metric, head, value: one row a run and metric, in the order of the treatments."""
    rows = analysis.by_run[analysis.by_run["endpoint"] == ALL_REQUESTS]
    rows = rows[rows["metric"].isin([metric.name for metric in chosen])].dropna(subset=["value"])
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


def _head(metric: Metric) -> str:
    """Title with the unit of the tidy CSV, which is what a figure draws."""
    return f"{metric.title}, {metric.unit}" if metric.unit else metric.title


def _dots_and_intervals(
    data: _Data, points: pd.DataFrame, metric: Metric, series: list[str], x: alt.X
) -> alt.LayerChart | alt.FacetChart:
    """Each series has two places beside each other at every level: one for its interval, one for its runs."""
    typical = _typical_of(points)
    offset = _places(series)
    colour, shape, _ = _marks(series)
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
    means, spans = data.chart(typical), data.chart(typical.dropna())
    bars = spans.mark_rule(strokeWidth=2).encode(x, alt.Y("low:Q", title=""), alt.Y2("high:Q"), colour, offset)
    middle = means.mark_tick(thickness=2, size=14).encode(x, y, colour, offset)
    return alt.layer(bars, middle, dots)


def _joining_line(data: _Data, typical: pd.DataFrame, series: list[str], x: alt.X) -> alt.Chart:
    line: alt.Chart = data.chart(typical[["level", "series", "place", "value"]]).mark_line(strokeWidth=1, opacity=0.5)
    return line.encode(x, alt.Y("value:Q", title=""), _marks(series)[0], _places(series), alt.Detail("series:N"))


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
    data = _Data()
    highest = float(points["tail"].max())
    ends = [float(points[["value", "low"]].min().min()) / 1.1, float(points[["value", "high"]].max().max()) * 1.1]
    charts = [
        _tail_panel(data, points[points["panel"] == panel], series, highest, ends).properties(
            title=_panel_title(panel), width=WIDTH, height=240
        )
        for panel in panels
    ]
    more = f" {left_out} further combinations of levels are in metrics.csv." if left_out else ""
    return Figure(
        "distribution",
        "Response-time distribution",
        "As the summaries report them." if analysis.experiment.imported else
        "Read at 99 %: 99 of 100 successful responses took at most so long. Each step to the right looks ten times "
        "further into the tail. A line is a treatment, the histograms of its replicates added, and ends where too few "
        "responses carry the percentile; the band reaches from the lowest to the highest replicate, as far as all do."
        + more,
        _spec(charts, data),
        ("treatment", "percentile", "ms", "lowest replicate, ms", "highest replicate, ms", "responses"),
        _rows(points, ("treatment", "percentile", "value", "low", "high", "samples")),
    )  # fmt: skip


def _tail_panel(
    data: _Data, points: pd.DataFrame, series: list[str], highest: float, ends: list[float]
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
    colour, shape, dash = _marks(series)
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
    return alt.layer(band, line, dots)


def _tail_points(analysis: Analysis) -> pd.DataFrame:
    """panel, series, treatment, tail, percentile, value, low, high (ms), samples; of response and of service times."""
    rows = []
    sides = _sides(analysis)
    for key in analysis.experiment.treatments:
        runs = analysis.experiment.complete_runs(key)
        seen = [
            analysis.observations[run, ALL_REQUESTS] for run in runs if (run, ALL_REQUESTS) in analysis.observations
        ]
        both = [("", [o.response_times for o in seen])]
        if any(o.service_times.total for o in seen):
            both = [("response time", both[0][1]), ("service time", [o.service_times for o in seen])]
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
    sides, fractions = _sides(analysis), rows["metric"].map(shown)
    return rows.assign(
        panel=[sides[t][0] for t in rows["treatment"]],
        series=[sides[t][1] for t in rows["treatment"]],
        treatment=[analysis.label(t) for t in rows["treatment"]],
        tail=1 / (1 - fractions),
        percentile=[f"{100 * p:.6g} %" for p in fractions],
        low=np.nan,
        high=np.nan,
    )


# --- over time -----------------------------------------------------------------------------------------------------

OVER_TIME = ("throughput", "server_cpu", "server_rss_bytes")
OVER_TIME_TITLES = {
    "throughput": "responses/s",
    "server_cpu": "server CPU, %",
    "server_rss_bytes": "server memory, bytes",
}


def timeline(analysis: Analysis, detail: Detail = FULL) -> Figure | None:
    """Throughput a second, server CPU and memory beneath, warm-up shaded; a panel for each treatment."""
    if analysis.experiment.imported:
        return _history(analysis, detail)
    chosen = _panel_treatments(analysis, detail)
    rows = by_second(analysis, chosen)
    if rows.empty:
        return None
    rows, width_s, one_by_one = _drawn_together(rows, detail)
    chosen = [treatment for treatment in chosen if treatment in set(rows["treatment"])]
    rows = rows.assign(label=rows["treatment"].map(_labels(analysis)))
    drawn = [column for column in OVER_TIME if rows[column].notna().any()]
    highest = {column: float(rows[[column, f"{column}_high"]].max().max()) * 1.05 for column in drawn}
    sides = {key: side for key, (_, side) in _sides(analysis).items()}
    order = list(dict.fromkeys(sides.values()))
    colours = {key: PALETTE[order.index(side) % len(PALETTE)] for key, side in sides.items()}
    data = _Data()
    panels = [_panel(data, rows[rows["treatment"] == key], highest, colours[key]) for key in chosen]
    return Figure(
        "timeline",
        "Every run, second by second" if one_by_one else "Second by second",
        _timeline_caption(one_by_one, width_s, len(analysis.experiment.treatments) - len(chosen)),
        _spec(panels, data),
        ("treatment", "run", "second", "phase", *(OVER_TIME_TITLES[column] for column in drawn)),
        _rows(rows, ("label", "run", "offset_s", "phase", *drawn)),
        source="timeline.csv",
    )


def _timeline_caption(one_by_one: bool, width_s: int, left_out: int) -> str:
    what = "A line is a run" if one_by_one else "The line is the median of the replicates, the band their whole range"
    together = f" Each point is the mean of {width_s} s." if width_s > 1 else ""
    more = f" {left_out} further treatments are in timeline.csv." if left_out else ""
    return (
        f"{what}; second 0 is the start of steady state. The warm-up is shaded: it is drawn, but in no number of this "
        "report. Server CPU and memory are the sums of its processes; 100 % of CPU = one core, and memory that "
        f"processes share counts once for each.{together}{more}"
    )


def by_second(analysis: Analysis, treatments: Iterable[str] | None = None) -> pd.DataFrame:
    """Each second of warm-up and steady state of each complete run, of all treatments or of these (by key).

    Columns: run, treatment, offset_s, phase, throughput (successful responses), failures, server_cpu (percent of a
    core), server_rss_bytes (at the second's end). A second without a response counts zero; usage is missing where no
    sample reaches.
    """
    rows = _all_seconds(analysis)
    return rows if treatments is None else rows[rows["treatment"].isin(list(treatments))]


@functools.lru_cache(maxsize=4)  # timeline.csv and the figure show the same
def _all_seconds(analysis: Analysis) -> pd.DataFrame:
    experiment = analysis.experiment
    if experiment.imported:
        return _history_by_second(analysis)
    server = experiment.usage[experiment.usage["role"] == "server"]
    parts = [
        _seconds_of(experiment.records[run].windows, rows_of(experiment.timeline, run), rows_of(server, run)).assign(
            run=run, treatment=experiment.treatment_of[run]
        )
        for run in experiment.complete_runs()
        if run in experiment.records
    ]
    columns = ["run", "treatment", "offset_s", "phase", "throughput", "failures", "server_cpu", "server_rss_bytes"]
    return pd.concat(parts, ignore_index=True)[columns] if parts else pd.DataFrame(columns=columns)


def _seconds_of(windows: Mapping[str, Window], rows: pd.DataFrame, samples: pd.DataFrame) -> pd.DataFrame:
    """by_second of one run, of its rows of the timeline and its server's samples."""
    steady = windows[STEADY_STATE]
    start = min(steady.start_unix_s, windows[WARM_UP].start_unix_s if WARM_UP in windows else steady.start_unix_s)
    seconds = pd.RangeIndex(start, steady.end_unix_s)
    success = rows["outcome"] == "success"
    return pd.DataFrame(
        {
            "offset_s": seconds - steady.start_unix_s,
            "phase": [STEADY_STATE if second >= steady.start_unix_s else WARM_UP for second in seconds],
            "throughput": rows[success].groupby("second")["count"].sum().reindex(seconds, fill_value=0).to_numpy(),
            "failures": rows[~success].groupby("second")["count"].sum().reindex(seconds, fill_value=0).to_numpy(),
            "server_cpu": 100 * usage_of.cpu_by_second(samples, start, steady.end_unix_s),
            "server_rss_bytes": usage_of.rss_by_second(samples, start, steady.end_unix_s),
        }
    )


def _drawn_together(rows: pd.DataFrame, detail: Detail) -> tuple[pd.DataFrame, int, bool]:
    """Rows to draw, seconds that each stands for, and whether each line is a run.

    Where runs are many or long: means of neighbouring seconds of one phase, then the median of the replicates with
    their range. Columns besides by_second's: X_low and X_high for each of OVER_TIME, missing where a line is a run.
    """
    replicates = rows.groupby("treatment")["run"].nunique().max()
    columns = list(OVER_TIME)
    one_by_one = bool(replicates <= detail.lines and len(rows) <= detail.points)
    if one_by_one:
        named = rows.assign(run=[f"run {run}" for run in rows["run"]])
        return named.assign(**{f"{c}_{end}": np.nan for c in columns for end in ("low", "high")}), 1, True
    lengths = rows.groupby("treatment")["offset_s"].nunique()
    width_s = max(1, math.ceil(int(lengths.sum()) / detail.points))
    slots = rows.assign(offset_s=(rows["offset_s"] // width_s) * width_s)
    means = slots.groupby(["treatment", "run", "offset_s", "phase"], as_index=False, sort=False)[columns].mean()
    grouped = means.groupby(["treatment", "offset_s", "phase"], as_index=False, sort=False)
    middle, low, high = (getattr(grouped[columns], name)() for name in ("median", "min", "max"))
    ends = {f"{c}_{end}": frame[c] for c in columns for end, frame in (("low", low), ("high", high))}
    return middle.assign(run="median", **ends), width_s, False


def _panel(data: _Data, rows: pd.DataFrame, highest: Mapping[str, float], colour: str) -> alt.VConcatChart:
    """Throughput of one treatment and, as far as `highest` names them, the server's CPU and memory beneath."""
    chart = data.chart(rows[["run", "offset_s", "phase", *(f"{c}{end}" for c in highest for end in ("", *ENDS))]])
    warm_up = rows.loc[rows["phase"] == WARM_UP, "offset_s"]
    shade = data.chart(pd.DataFrame([{"from": warm_up.min(), "to": 0}])) if len(warm_up) else None
    is_band = rows[[f"{column}_low" for column in highest]].notna().any(axis=None)
    parts = [
        _lines(chart, shade, (column, highest[column]), colour, bool(is_band), column == list(highest)[-1])
        for column in highest
    ]
    title = _panel_title(str(rows["label"].iloc[0]))
    parts[0] = parts[0].properties(title=title, height=110)
    return alt.vconcat(*parts, spacing=6)


ENDS = ("_low", "_high")


def _lines(
    chart: alt.Chart, shade: alt.Chart | None, drawn: tuple[str, float], colour: str, is_band: bool, is_last: bool
) -> alt.LayerChart | alt.FacetChart:
    """One line a run, or one for all with a band, in one colour. `drawn`: the column, and the top of its axis."""
    column, top = drawn
    axis = alt.Axis(tickMinStep=1, format="d", grid=False, labels=is_last, title=X_TITLE if is_last else None)
    x = alt.X("offset_s:Q", axis=axis, scale=alt.Scale(nice=False))
    in_bytes = column.endswith("_bytes")
    mebibytes = "format(datum.value / 1048576, 'd')" if in_bytes else alt.Undefined
    title = "memory, MiB" if in_bytes else OVER_TIME_TITLES[column]
    y_axis = alt.Axis(labelExpr=mebibytes, values=_byte_ticks(top)) if in_bytes else alt.Axis(tickCount=3)
    scale = alt.Scale(domain=[0, max(top, 1e-6)], nice=False)
    y = alt.Y(f"{column}:Q", title=title.replace("server ", ""), scale=scale, axis=y_axis)
    value = alt.Tooltip(f"{column}:Q", title=OVER_TIME_TITLES[column], format="d" if in_bytes else CSV_FORMAT)
    tooltip = ["run:N", alt.Tooltip("offset_s:Q", title="second"), alt.Tooltip("phase:N"), value]
    point = alt.OverlayMarkDef(size=14, color=colour)
    lines = chart.mark_line(strokeWidth=1.3, opacity=0.75, color=colour, point=point)
    layers: list[alt.Chart] = [lines.encode(x, y, alt.Detail("run:N"), tooltip=tooltip)]
    if is_band:
        band = chart.mark_area(opacity=0.2, color=colour)
        layers.insert(0, band.encode(x, alt.Y(f"{column}_low:Q", scale=scale), alt.Y2(f"{column}_high:Q")))
    if shade is not None:
        layers.insert(0, shade.mark_rect(color=GREY, opacity=0.22).encode(alt.X("from:Q"), alt.X2("to:Q")))
    return alt.layer(*layers).properties(width=WIDTH, height=55)


X_TITLE = "seconds since the start of steady state"


def _byte_ticks(top: float) -> list[float]:
    """Round numbers of MiB up to `top` bytes."""
    mebi = max(top / 2**20, 1)
    step = 10 ** math.floor(math.log10(mebi))
    step = next(s for s in (step / 5, step / 2, step, 2 * step, 5 * step) if mebi / s <= 4)
    step = max(step, 1)
    return [n * step * 2**20 for n in range(int(mebi // step) + 1)]


# --- a summary's history ---------------------------------------------------------------------------------------------

HISTORY = {"throughput": "responses/s", "failures": "failures/s", "users": "users"}


def _history(analysis: Analysis, detail: Detail) -> Figure | None:
    """Rates and users over time as a summary's own history has them; a panel for each treatment."""
    rows = by_second(analysis)
    chosen = [key for key in analysis.experiment.treatments if key in set(rows["treatment"])][: detail.panels]
    rows = rows[rows["treatment"].isin(chosen)]
    drawn = {column: title for column, title in HISTORY.items() if rows[column].notna().any()}
    if rows.empty or not drawn:
        return None
    width_s = math.ceil(len(rows) / detail.points)
    if width_s > 1:
        slots = rows.assign(offset_s=rows["offset_s"] // width_s * width_s)
        rows = slots.groupby(["run", "treatment", "offset_s"], as_index=False, sort=False)[list(HISTORY)].mean()
    rows = rows.assign(label=rows["treatment"].map(_labels(analysis)), run=[f"run {run}" for run in rows["run"]])
    sides = {key: side for key, (_, side) in _sides(analysis).items()}
    order = list(dict.fromkeys(sides.values()))
    data = _Data()
    panels = []
    for key in chosen:
        part = rows[rows["treatment"] == key]
        chart = data.chart(part[["run", "offset_s", *drawn]])
        colour = PALETTE[order.index(sides[key]) % len(PALETTE)]
        lines = [_history_lines(chart, column, title, rows[column].max(), colour) for column, title in drawn.items()]
        lines[0] = lines[0].properties(title=_panel_title(str(part["label"].iloc[0])))
        panels.append(alt.vconcat(*lines, spacing=6))
    together = f" Each point is the mean of {width_s} s." if width_s > 1 else ""
    return Figure(
        "timeline",
        "Every run over time",
        "A line is a run; second 0 is the first line of its history. Each rate is the mean that Locust gives for about "
        f"ten seconds before, so a stall looks shorter and shallower than it was.{together}",
        _spec(panels, data),
        ("treatment", "run", "second", *drawn.values()),
        _rows(rows, ("label", "run", "offset_s", *drawn)),
        source="timeline.csv",
    )


def _history_lines(chart: alt.Chart, column: str, title: str, top: float, colour: str) -> alt.Chart:
    scale = alt.Scale(domain=[0, max(1.05 * float(top), 1e-6)], nice=False)
    axis = alt.Axis(tickMinStep=1, format="d", grid=False)
    lines: alt.Chart = chart.mark_line(strokeWidth=1.3, opacity=0.7, color=colour).encode(
        alt.X("offset_s:Q", title="seconds since the history began", axis=axis),
        alt.Y(f"{column}:Q", title=title, scale=scale, axis=alt.Axis(tickCount=4)),
        alt.Detail("run:N"),
        tooltip=["run:N", "offset_s:Q", alt.Tooltip(f"{column}:Q", title=title, format=".4~g")],
    )
    return lines.properties(width=WIDTH, height=120 if column == "throughput" else 60)


def _history_by_second(analysis: Analysis) -> pd.DataFrame:
    """by_second() of a summary: its own rates, and users. Its windows are unknown, and so is the phase."""
    rows = analysis.experiment.history
    rows = rows[rows["run"].isin(analysis.experiment.complete_runs())]
    return pd.DataFrame(
        {
            "run": rows["run"],
            "treatment": rows["run"].map(analysis.experiment.treatment_of),
            "offset_s": rows["second"] - rows.groupby("run")["second"].transform("min"),
            "phase": "unknown",
            "throughput": rows["throughput"],
            "failures": rows["failures"],
            "server_cpu": math.nan,
            "server_rss_bytes": math.nan,
            "users": rows["users"],
        }
    ).reset_index(drop=True)


# --- the heatmap -----------------------------------------------------------------------------------------------------


def _replicates(analysis: Analysis) -> str:
    many = any(len(analysis.experiment.complete_runs(t)) > heat.MOST_REPLICATES for t in analysis.experiment.treatments)
    return f"the first {heat.MOST_REPLICATES} replicates" if many else "all replicates"


def heatmap(analysis: Analysis, detail: Detail = FULL) -> Figure | None:
    """Where the response times lay in each second, a panel for each treatment."""
    if analysis.experiment.imported:
        return None
    chosen = _panel_treatments(analysis, detail)
    columns = max(4, min(heat.MOST_COLUMNS, 2 * detail.points // (heat.MOST_ROWS * max(len(chosen), 1))))
    cells = heat.cells(analysis.experiment, chosen, columns)
    if cells.empty:
        return None
    chosen = [key for key in chosen if key in set(cells["treatment"])]
    cells = cells.assign(label=cells["treatment"].map(_labels(analysis)))
    ends = (float(cells["from_ms"].min()), float(cells["to_ms"].max()))
    data = _Data()
    panels = [_heat_panel(data, cells[cells["treatment"] == key], ends) for key in chosen]
    width_s = int((cells["to_s"] - cells["from_s"]).iloc[0])
    more = len(analysis.experiment.treatments) - len(chosen)
    return Figure(
        "heatmap",
        "Response times, second by second",
        f"Each column is {'a second' if width_s == 1 else f'{width_s} s'} of {_replicates(analysis)} together; "
        "the lighter a cell, the larger the share of that column's successful responses in it. Two bands are two kinds "
        "of response; a band that climbs is a server that falls behind. The line marks the start of steady state."
        + (f" {more} further treatments are not drawn." if more else ""),
        _spec(panels, data),
        ("treatment", "from, s", "to, s", "from, ms", "to, ms", "responses", "share"),
        _rows(cells, ("label", "from_s", "to_s", "from_ms", "to_ms", "count", "share")),
        source="the runs' response_times/",
    )


def _heat_panel(data: _Data, cells: pd.DataFrame, ends: tuple[float, float]) -> alt.LayerChart | alt.FacetChart:
    chart = data.chart(cells[["from_s", "to_s", "from_ms", "to_ms", "count", "share"]])
    x = alt.X("from_s:Q", title=X_TITLE, axis=alt.Axis(tickMinStep=1, format="d", grid=False),
              scale=alt.Scale(nice=False))  # fmt: skip
    y = alt.Y("from_ms:Q", title="response time, ms (log scale)", axis=alt.Axis(grid=False),
              scale=alt.Scale(type="log", domain=list(ends), nice=False))  # fmt: skip
    colour = alt.Color(
        "share:Q",
        scale=alt.Scale(type="sqrt", range=list(HEAT), domain=[0, 1], nice=False),
        legend=alt.Legend(title="share of a column's responses", format="%", gradientLength=160, tickCount=4),
    )
    tooltip = [
        alt.Tooltip("from_s:Q", title="from, s"),
        alt.Tooltip("to_s:Q", title="to, s"),
        alt.Tooltip("from_ms:Q", title="from, ms", format=CSV_FORMAT),
        alt.Tooltip("to_ms:Q", title="to, ms", format=CSV_FORMAT),
        alt.Tooltip("count:Q", title="responses"),
        alt.Tooltip("share:Q", format=".3~%"),
    ]
    rects = chart.mark_rect().encode(x, alt.X2("to_s:Q"), y, alt.Y2("to_ms:Q"), colour, tooltip=tooltip)
    start = data.chart(pd.DataFrame([{"at": 0}])).mark_rule(color=GREY, strokeWidth=1.5).encode(alt.X("at:Q"))
    layers = [rects, start] if cells["from_s"].min() < 0 else [rects]
    title = _panel_title(str(cells["label"].iloc[0]))
    return alt.layer(*layers).properties(title=title, width=WIDTH, height=150)


# --- parts of figures ----------------------------------------------------------------------------------------------

CSV_FORMAT = ".6~g"
"""As many digits as the CSV files have."""


class _Data:
    """The data of one specification: charts refer to it, so that Altair does not copy each row many times."""

    def __init__(self) -> None:
        self.sets: dict[str, list[dict[str, Any]]] = {}

    def chart(self, frame: pd.DataFrame) -> alt.Chart:
        """A chart of `frame`; its encodings must name their types."""
        name = f"data{len(self.sets)}"
        columns = [[_plain(value) for value in frame[column]] for column in frame.columns]
        self.sets[name] = [dict(zip(frame.columns, row, strict=True)) for row in zip(*columns, strict=True)]
        return alt.Chart(alt.NamedData(name=name))


def _plain(value: Any) -> Any:
    """A value for JSON: numbers to six digits, a missing one as null."""
    if isinstance(value, str):
        return value
    if value is None or pd.isna(value):
        return None
    return int(value) if float(value).is_integer() else float(f"{float(value):.6g}")


def _panel_title(text: str) -> alt.TitleParams | str:
    return alt.TitleParams(text, anchor="start", fontSize=12, limit=WIDTH) if text else ""


def _labels(analysis: Analysis) -> dict[str, str]:
    return {key: analysis.label(key) for key in analysis.experiment.treatments}


def _panel_treatments(analysis: Analysis, detail: Detail) -> list[str]:
    """Keys of the treatments with a panel: those of the comparisons that decide first, then the others."""
    deciding = [key for c in analysis.deciding for key in c.keys]
    chosen = set(list(dict.fromkeys([*deciding, *analysis.experiment.treatments]))[: detail.panels])
    return [key for key in analysis.experiment.treatments if key in chosen]


def _deciding_first(analysis: Analysis, labels: Iterable[str], paths: Sequence[str]) -> list[str]:
    """Labels of levels, those that a deciding comparison has first."""
    first = [pairing.label(c.pair.treatment, analysis.names, paths) for c in analysis.deciding if paths]
    known = list(labels)
    return [label for label in dict.fromkeys([*first, *known]) if label in known]


def _sides(analysis: Analysis) -> dict[str, tuple[str, str]]:
    """By treatment: what is compared within (the factors the baseline does not name), and which side it is."""
    return {key: _side(analysis, treatment) for key, treatment in analysis.experiment.treatments.items()}


def _side(analysis: Analysis, treatment: Treatment) -> tuple[str, str]:
    baseline, names = analysis.experiment.record.baseline, analysis.names
    context = {path: level for path, level in treatment.items() if baseline and path not in baseline}
    side = {path: level for path, level in treatment.items() if path not in context}
    return pairing.label(context, names) if context else "", pairing.label(side, names)


def _is_numeric(levels: Iterable[object]) -> bool:
    return all(isinstance(level, int | float) and not isinstance(level, bool) for level in levels)


def _level_order(analysis: Analysis, path: str) -> list[str]:
    return [pairing.level_text(level) for level in analysis.experiment.record.factors[path]]


def _marks(series: Iterable[str]) -> tuple[alt.Color, alt.Shape, alt.StrokeDash]:
    """Colour, shape and dash of the series, with one legend for the three."""
    names = list(series)
    scales: dict[str, list[Any]] = {"colour": list(PALETTE), "shape": list(SHAPES), "dash": list(DASHES)}
    ranges = {kind: [values[n % len(values)] for n in range(len(names))] for kind, values in scales.items()}
    legend = alt.Legend(title=None, columns=2, symbolOpacity=1)
    return (
        alt.Color("series:N", legend=legend, scale=alt.Scale(domain=names, range=ranges["colour"])),
        alt.Shape("series:N", legend=legend, scale=alt.Scale(domain=names, range=ranges["shape"])),
        alt.StrokeDash("series:N", legend=legend, scale=alt.Scale(domain=names, range=ranges["dash"])),
    )


def _rows(frame: pd.DataFrame, columns: Sequence[str]) -> tuple[tuple[str, ...], ...]:
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


def _spec(panels: Sequence[alt.TopLevelMixin], data: _Data, columns: int = 2) -> dict[str, Any]:
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
