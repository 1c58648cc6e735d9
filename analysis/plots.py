"""Figures: one function each, an Analysis in, a Figure (Vega-Lite specification, caption, the table behind it) out.

Colours are those of Okabe and Ito that stand out on white and on black alike; shape or dash says the same once more.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import altair as alt
import pandas as pd

from analysis import intervals, pairing
from analysis import usage as usage_of
from analysis.decide import Analysis
from analysis.load import STEADY_STATE, WARM_UP
from analysis.metrics import ALL_REQUESTS
from analysis.record import Window

PALETTE = ("#1F83C4", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8A8A8A")
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "stroke")
DASHES = ([1, 0], [6, 3], [2, 2], [8, 2, 2, 2], [4, 4], [10, 4], [1, 3])
MOST_POINTS = 5_000
"""Points in a timeline; above it, seconds are drawn together."""
MOST_PANELS = 12


@dataclasses.dataclass(frozen=True)
class Figure:
    """A figure and the numbers it draws."""

    name: str
    title: str
    caption: str
    spec: dict[str, Any]
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def figures(analysis: Analysis) -> list[Figure]:
    """All figures that have something to draw."""
    made: list[Callable[[Analysis], Figure | None]] = [throughput, percentiles, timeline]
    return [figure for make in made if (figure := make(analysis)) is not None]


def throughput(analysis: Analysis) -> Figure | None:
    """Throughput against the swept factor: a dot a run, a bar for the interval of each treatment."""
    rows = analysis.by_run[(analysis.by_run["metric"] == "throughput") & (analysis.by_run["endpoint"] == ALL_REQUESTS)]
    rows = rows.dropna(subset=["value"])
    if rows.empty or not analysis.experiment.record.factors:
        return None
    swept, others = _axes(analysis)
    points = _with_levels(analysis, rows[["run", "treatment", "value"]], swept, others)
    typical = pd.DataFrame([_typical(part) for _, part in points.groupby("treatment", sort=False)])
    axis = analysis.names[swept]
    series = list(dict.fromkeys(points["series"]))
    data = _Data()
    x = alt.X("level:N", title=axis, sort=_level_order(analysis, swept), axis=alt.Axis(labelAngle=0))
    chart = _dots_and_intervals(data, points, typical, series, x)
    return Figure(
        "throughput",
        f"Throughput against {axis}",
        "A mark is a run."
        if analysis.experiment.imported and analysis.experiment.record.replicates == 1
        else "A filled mark is a run. Beside the runs of a treatment, the tick is their geometric mean and the bar its "
        "95 % interval (Student's t on the logarithms): where a treatment lies. The verdict rests on the interval of "
        "the ratio, in the table above.",
        _spec(chart, data),
        ("run", axis, "series", "responses/s"),
        _rows(points, ("run", "level", "series", "value")),
    )


def percentiles(analysis: Analysis) -> Figure | None:
    """Response-time percentiles of each treatment, of its merged replicates."""
    shown = ["p50", "p90", "p95", "p99"]
    rows = analysis.by_treatment
    rows = rows[rows["metric"].isin(shown) & (rows["endpoint"] == ALL_REQUESTS)].dropna(subset=["value"])
    if rows.empty:
        return None
    sides = _sides(analysis)
    series = list(dict.fromkeys(name for _, name in sides.values()))
    points = rows.assign(
        panel=[sides[t][0] for t in rows["treatment"]],
        series=[sides[t][1] for t in rows["treatment"]],
        treatment=[analysis.label(t) for t in rows["treatment"]],
    )
    data = _Data()
    lines = _percentile_lines(data.chart("percentiles", points.drop(columns="endpoint")), series)
    chart: alt.TopLevelMixin = lines
    if points["panel"].any():
        chart = lines.facet(alt.Facet("panel:N", title=None, sort=list(dict.fromkeys(points["panel"]))), columns=2)
    return Figure(
        "percentiles",
        "Response-time percentiles",
        "As the summaries report them."
        if analysis.experiment.imported
        else "Of the successful responses of all replicates of a treatment, their histograms added. A percentile is "
        "left out where too few responses carry it.",
        _spec(chart, data),
        ("treatment", "percentile", "ms", "responses"),
        _rows(points, ("treatment", "metric", "value", "samples")),
    )


def timeline(analysis: Analysis) -> Figure | None:
    """Throughput a second of every run with the warm-up shaded, server CPU beneath; a panel for each treatment."""
    if analysis.experiment.imported:
        return _history(analysis)
    chosen = list(analysis.experiment.treatments)[:MOST_PANELS]
    rows = by_second(analysis)
    rows = rows[rows["treatment"].isin(chosen)]
    if rows.empty:
        return None
    rows, width_s = _drawn_together(rows)
    chosen = [treatment for treatment in chosen if treatment in set(rows["treatment"])]
    rows = rows.assign(label=[analysis.label(t) for t in rows["treatment"]], run=[f"run {run}" for run in rows["run"]])
    drawn = [column for column in ("throughput", "server_cpu") if rows[column].notna().any()]
    tops = {column: float(rows[column].max()) * 1.05 for column in drawn}
    sides = {key: side for key, (_, side) in _sides(analysis).items()}
    order = list(dict.fromkeys(sides.values()))
    colours = {key: PALETTE[order.index(side) % len(PALETTE)] for key, side in sides.items()}
    data = _Data()
    panels = [_panel(data, rows[rows["treatment"] == key], tops, colours[key]) for key in chosen]
    chart = alt.concat(*panels, columns=2).resolve_scale(color="independent")
    together = f" Each point is the mean of {width_s} s." if width_s > 1 else ""
    left_out = len(analysis.experiment.treatments) - len(chosen)
    return Figure(
        "timeline",
        "Every run, second by second",
        "A line is a run; second 0 is the start of steady state. The warm-up is shaded: it is drawn, but in no number "
        f"of this report. Server CPU is the sum of its processes, 100 % = one core.{together}"
        + (f" {left_out} further treatments are in timeline.csv." if left_out else ""),
        _spec(chart, data),
        ("treatment", "run", "second", "phase", "responses/s", "server CPU, %"),
        _rows(rows, ("label", "run", "offset_s", "phase", "throughput", "server_cpu")),
    )


def by_second(analysis: Analysis) -> pd.DataFrame:
    """Each second of warm-up and steady state of each complete run.

    Columns: run, treatment, offset_s, phase, throughput (successful responses), failures, server_cpu (percent of a
    core). A second without a response counts zero; server_cpu is missing where no sample reaches.
    """
    experiment = analysis.experiment
    if experiment.imported:
        return _history_by_second(analysis)
    parts = []
    for run in experiment.complete_runs():
        if run in experiment.records:
            windows = experiment.records[run].windows
            parts.append(_run_by_second(analysis, run, windows))
    columns = ["run", "treatment", "offset_s", "phase", "throughput", "failures", "server_cpu"]
    return pd.concat(parts, ignore_index=True)[columns] if parts else pd.DataFrame(columns=columns)


def _run_by_second(analysis: Analysis, run: int, windows: Mapping[str, Window]) -> pd.DataFrame:
    experiment = analysis.experiment
    steady = windows[STEADY_STATE]
    start = min(steady.start_unix_s, windows[WARM_UP].start_unix_s if WARM_UP in windows else steady.start_unix_s)
    seconds = pd.RangeIndex(start, steady.end_unix_s)
    rows = experiment.timeline[experiment.timeline["run"] == run]
    success = rows["outcome"] == "success"
    samples = experiment.usage[(experiment.usage["run"] == run) & (experiment.usage["role"] == "server")]
    cpu = usage_of.cpu_by_second(samples, start, steady.end_unix_s)
    return pd.DataFrame(
        {
            "run": run,
            "treatment": experiment.runs.loc[experiment.runs["run"] == run, "treatment"].iloc[0],
            "offset_s": seconds - steady.start_unix_s,
            "phase": [STEADY_STATE if second >= steady.start_unix_s else WARM_UP for second in seconds],
            "throughput": rows[success].groupby("second")["count"].sum().reindex(seconds, fill_value=0).to_numpy(),
            "failures": rows[~success].groupby("second")["count"].sum().reindex(seconds, fill_value=0).to_numpy(),
            "server_cpu": 100 * cpu,
        }
    )


# --- parts of figures ----------------------------------------------------------------------------------------------


class _Data:
    """The data of one specification, by name: charts refer to it, so that Altair does not copy each row many times."""

    def __init__(self) -> None:
        self.sets: dict[str, list[dict[str, Any]]] = {}

    def chart(self, name: str, frame: pd.DataFrame) -> alt.Chart:
        """A chart of `frame`; its encodings must name their types."""
        self.sets[name] = json.loads(frame.to_json(orient="records", double_precision=4))
        return alt.Chart(alt.NamedData(name=name))


def _dots_and_intervals(
    data: _Data, points: pd.DataFrame, typical: pd.DataFrame, series: list[str], x: alt.X
) -> alt.LayerChart | alt.FacetChart:
    """Each series has two places beside each other at every level: one for its interval, one for its runs."""
    places = [f"{name} {part}" for name in series for part in ("interval", "runs")]
    offset = alt.XOffset("place:N", scale=alt.Scale(domain=places, paddingOuter=0.4))
    colour, shape, _ = _marks(series)
    y = alt.Y("value:Q", title="throughput, responses/s", scale=alt.Scale(zero=True))
    typical = typical.assign(place=typical["series"] + " interval")
    points = points.assign(place=points["series"] + " runs").drop(columns="treatment")
    tooltip = [alt.Tooltip("run:N", title="run"), alt.Tooltip("value:Q", title="responses/s", format=".4~g")]
    dots = (
        data.chart("runs", points)
        .mark_point(size=40, filled=True, opacity=0.8)
        .encode(x, y, colour, shape, offset, tooltip=tooltip)
    )
    bars = data.chart("intervals", typical.dropna())
    bars = bars.mark_rule(strokeWidth=2).encode(x, alt.Y("low:Q", title=""), alt.Y2("high:Q"), colour, offset)
    middle = data.chart("means", typical).mark_tick(thickness=2, size=14).encode(x, y, colour, offset)
    width = max(280, min(680, 50 * len(places) * max(points["level"].nunique(), 1)))
    return alt.layer(bars, middle, dots).properties(width=width, height=280)


def _percentile_lines(chart: alt.Chart, series: list[str]) -> alt.Chart:
    y = alt.Y("value:Q", title="response time, ms (log scale)", scale=alt.Scale(type="log", nice=True, padding=12))
    x = alt.X("metric:N", title="percentile", axis=alt.Axis(labelAngle=0), sort=["p50", "p90", "p95", "p99"])
    tooltip = [
        alt.Tooltip("treatment:N"),
        alt.Tooltip("metric:N", title="percentile"),
        alt.Tooltip("value:Q", title="ms"),
        alt.Tooltip("samples:Q", title="responses"),
    ]
    line: alt.Chart = chart.mark_line(point=alt.OverlayMarkDef(size=60), strokeWidth=1.5)
    line = line.encode(x, y, *_marks(series), tooltip=tooltip)
    return line.properties(width=380, height=240)


def _panel(data: _Data, rows: pd.DataFrame, tops: Mapping[str, float], colour: str) -> alt.VConcatChart:
    """Throughput of one treatment's runs and, where `tops` names it, the server's CPU beneath; the warm-up shaded."""
    label = str(rows["label"].iloc[0])
    columns = ["run", "offset_s", "phase", *tops]
    chart = data.chart(label, rows[columns])
    warm_up = rows.loc[rows["phase"] == WARM_UP, "offset_s"]
    shade = data.chart(f"{label}, warm-up", pd.DataFrame([{"from": warm_up.min(), "to": 0}])) if len(warm_up) else None
    upper = _lines(chart, shade, ("throughput", "responses/s", tops["throughput"]), colour)
    parts = [upper.properties(title=alt.TitleParams(label, anchor="start", fontSize=12), height=120)]
    if "server_cpu" in tops:
        parts.append(_lines(chart, shade, ("server_cpu", "server CPU, %", tops["server_cpu"]), colour))
    return alt.vconcat(*parts, spacing=6)


def _lines(
    chart: alt.Chart, shade: alt.Chart | None, drawn: tuple[str, str, float], colour: str
) -> alt.LayerChart | alt.FacetChart:
    """One line a run, all in one colour. `drawn`: the column, its title, the top of its axis."""
    column, title, top = drawn
    axis = alt.Axis(tickMinStep=1, format="d", grid=False)
    x = alt.X("offset_s:Q", title="seconds since the start of steady state", axis=axis)
    scale = alt.Scale(domain=[0, max(top, 1e-6)], nice=False)
    lines = chart.mark_line(
        strokeWidth=1.3, opacity=0.7, color=colour, point=alt.OverlayMarkDef(size=14, color=colour)
    ).encode(
        x,
        alt.Y(f"{column}:Q", title=title, scale=scale, axis=alt.Axis(tickCount=4)),
        alt.Detail("run:N"),
        tooltip=["run:N", "offset_s:Q", "phase:N", alt.Tooltip(f"{column}:Q", title=title, format=".4~g")],
    )
    layers: list[alt.Chart] = [lines]
    if shade is not None:
        layers.insert(0, shade.mark_rect(color="#8A8A8A", opacity=0.22).encode(alt.X("from:Q"), alt.X2("to:Q")))
    return alt.layer(*layers).properties(width=380, height=60)


def _drawn_together(rows: pd.DataFrame) -> tuple[pd.DataFrame, int]:
    """Means of neighbouring seconds of one phase, to leave at most MOST_POINTS rows; and how many seconds each."""
    width_s = math.ceil(len(rows) / MOST_POINTS)
    if width_s <= 1:
        return rows, 1
    slots = rows.assign(offset_s=(rows["offset_s"] // width_s) * width_s)
    keys = ["run", "treatment", "offset_s", "phase"]
    return slots.groupby(keys, as_index=False, sort=False)[["throughput", "failures", "server_cpu"]].mean(), width_s


def _sides(analysis: Analysis) -> dict[str, tuple[str, str]]:
    """By treatment: what is compared within (the factors the baseline does not name), and which side it is."""
    baseline, names = analysis.experiment.record.baseline, analysis.names
    found = {}
    for key, treatment in analysis.experiment.treatments.items():
        context = {path: level for path, level in treatment.items() if baseline and path not in baseline}
        side = {path: level for path, level in treatment.items() if path not in context}
        found[key] = (pairing.label(context, names) if context else "", pairing.label(side, names))
    return found


def _axes(analysis: Analysis) -> tuple[str, list[str]]:
    """Path of the swept factor (a numeric one that the baseline does not name, if any), and the paths of the others."""
    record = analysis.experiment.record
    free = [path for path in record.factors if path not in record.baseline]
    numeric = [path for path in free if all(isinstance(level, int | float) for level in record.factors[path])]
    swept = (numeric or free or list(record.factors))[0]
    return swept, [path for path in record.factors if path != swept]


def _with_levels(analysis: Analysis, rows: pd.DataFrame, swept: str, others: Sequence[str]) -> pd.DataFrame:
    treatments = [analysis.experiment.treatments[key] for key in rows["treatment"]]
    place = {key: n for n, key in enumerate(analysis.experiment.treatments)}
    series = [pairing.label(t, analysis.names, others) if others else "all runs" for t in treatments]
    labelled = rows.assign(level=[pairing.level_text(t.get(swept)) for t in treatments], series=series)
    return labelled.sort_values("treatment", key=lambda keys: keys.map(place), kind="stable")


def _level_order(analysis: Analysis, path: str) -> list[str]:
    return [pairing.level_text(level) for level in analysis.experiment.record.factors[path]]


def _typical(part: pd.DataFrame) -> dict[str, Any]:
    first = part.iloc[0]
    values = [float(value) for value in part["value"] if value > 0]
    middle, low, high = intervals.geometric_mean(values) if values else (math.nan, None, None)
    return {"level": first["level"], "series": first["series"], "value": middle, "low": low, "high": high}


def _marks(series: Iterable[str]) -> tuple[alt.Color, alt.Shape, alt.StrokeDash]:
    """Colour, shape and dash of the series, with one legend for the three."""
    names = list(series)
    scales: dict[str, list[Any]] = {"colour": list(PALETTE), "shape": list(SHAPES), "dash": list(DASHES)}
    ranges = {kind: [values[n % len(values)] for n in range(len(names))] for kind, values in scales.items()}
    legend = alt.Legend(title=None, columns=2)
    return (
        alt.Color("series:N", legend=legend, scale=alt.Scale(domain=names, range=ranges["colour"])),
        alt.Shape("series:N", legend=legend, scale=alt.Scale(domain=names, range=ranges["shape"])),
        alt.StrokeDash("series:N", legend=legend, scale=alt.Scale(domain=names, range=ranges["dash"])),
    )


def _rows(frame: pd.DataFrame, columns: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """The columns as text: numbers to four digits, a missing one as a dash."""
    return tuple(tuple(_text(value) for value in row) for row in frame[list(columns)].itertuples(index=False))


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "–" if pd.isna(value) else str(value) if isinstance(value, int) else f"{value:.4g}"


def _spec(chart: alt.TopLevelMixin, data: _Data) -> dict[str, Any]:
    configured = (
        chart.configure(background="transparent", font="system-ui, sans-serif")
        .configure_axis(labelFontSize=11, titleFontSize=12, titleFontWeight="normal", gridOpacity=0.5)
        .configure_legend(orient="top", labelFontSize=12, labelLimit=400, symbolStrokeWidth=2)
        .configure_view(stroke=None)
    )
    spec: dict[str, Any] = configured.to_dict()
    # The page says itself which library draws it; an address in it would only look like a request.
    spec.pop("$schema", None)
    return spec | {"datasets": data.sets}


# --- a summary's history ---------------------------------------------------------------------------------------------

HISTORY = {"throughput": "responses/s", "failures": "failures/s", "users": "users"}
MOST_HISTORIES, MOST_HISTORY_POINTS = 12, 5_000


def _history(analysis: Analysis) -> Figure | None:
    """Rates and users over time as a summary's own history has them; a panel for each treatment."""
    rows = _history_by_second(analysis)
    chosen = [key for key in analysis.experiment.treatments if key in set(rows["treatment"])][:MOST_HISTORIES]
    rows = rows[rows["treatment"].isin(chosen)]
    drawn = {column: title for column, title in HISTORY.items() if rows[column].notna().any()}
    if rows.empty or not drawn:
        return None
    width_s = math.ceil(len(rows) / MOST_HISTORY_POINTS)
    if width_s > 1:
        slots = rows.assign(offset_s=rows["offset_s"] // width_s * width_s)
        rows = slots.groupby(["run", "treatment", "offset_s"], as_index=False, sort=False)[list(HISTORY)].mean()
    rows = rows.assign(label=[analysis.label(t) for t in rows["treatment"]], run=[f"run {run}" for run in rows["run"]])
    order = list(dict.fromkeys(side for _, side in _sides(analysis).values()))
    data = _Data()
    panels: list[alt.VConcatChart] = []
    for key in chosen:
        colour = PALETTE[order.index(_sides(analysis)[key][1]) % len(PALETTE)]
        part = rows[rows["treatment"] == key]
        name = f"history {len(panels) + 1}"
        data.sets[name] = json.loads(part[["run", "offset_s", *drawn]].to_json(orient="records"))
        lines = [_history_lines(name, column, title, rows[column].max(), colour) for column, title in drawn.items()]
        lines[0] = lines[0].properties(title=alt.TitleParams(part["label"].iloc[0], anchor="start", fontSize=12))
        panels.append(alt.vconcat(*lines, spacing=6))
    together = f" Each point is the mean of {width_s} s." if width_s > 1 else ""
    return Figure(
        "timeline",
        "Every run over time",
        "A line is a run; second 0 is the first line of its history. Each rate is the mean that Locust gives for about "
        f"ten seconds before, so a stall looks shorter and shallower than it was.{together}",
        _spec(alt.concat(*panels, columns=2), data),
        ("treatment", "run", "second", *drawn.values()),
        _rows(rows, ("label", "run", "offset_s", *drawn)),
    )


def _history_lines(name: str, column: str, title: str, top: float, colour: str) -> alt.Chart:
    scale = alt.Scale(domain=[0, max(1.05 * float(top), 1e-6)], nice=False)
    axis = alt.Axis(tickMinStep=1, format="d", grid=False)
    chart: alt.Chart = alt.Chart(alt.NamedData(name=name)).mark_line(strokeWidth=1.3, opacity=0.7, color=colour)
    chart = chart.encode(
        alt.X("offset_s:Q", title="seconds since the history began", axis=axis),
        alt.Y(f"{column}:Q", title=title, scale=scale, axis=alt.Axis(tickCount=4)),
        alt.Detail("run:N"),
        tooltip=["run:N", "offset_s:Q", alt.Tooltip(f"{column}:Q", title=title, format=".4~g")],
    )
    return chart.properties(width=380, height=120 if column == "throughput" else 60)


def _history_by_second(analysis: Analysis) -> pd.DataFrame:
    """by_second() of a summary: its own rates, and users. Its windows are unknown, and so is the phase."""
    rows = analysis.experiment.history
    rows = rows[rows["run"].isin(analysis.experiment.complete_runs())]
    treatment_of = dict(zip(analysis.experiment.runs["run"], analysis.experiment.runs["treatment"], strict=True))
    return pd.DataFrame(
        {
            "run": rows["run"],
            "treatment": [treatment_of[run] for run in rows["run"]],
            "offset_s": rows["second"] - rows.groupby("run")["second"].transform("min"),
            "phase": "unknown",
            "throughput": rows["throughput"],
            "failures": rows["failures"],
            "server_cpu": math.nan,
            "users": rows["users"],
        }
    ).reset_index(drop=True)
