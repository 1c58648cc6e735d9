"""Figures over time: rates and usage second by second, a summary's own history, and the heatmap of response times."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping, Sequence

import altair as alt
import numpy as np
import pandas as pd

from analysis import heatmap as heat
from analysis.decide import Analysis
from analysis.figure_parts import (
    CSV_FORMAT,
    FULL,
    GREY,
    HEAT,
    PALETTE,
    WIDTH,
    Data,
    Detail,
    Figure,
    further,
    labels_of,
    panel_title,
    panel_treatments,
    sides_of,
    specification,
    table_rows,
)
from analysis.load import STEADY_STATE, WARM_UP
from analysis.metrics import ALL_REQUESTS

# --- over time -----------------------------------------------------------------------------------------------------

OVER_TIME = ("throughput", "server_cpu", "server_rss_bytes")
OVER_TIME_TITLES = {
    "throughput": "responses/s",
    "server_cpu": "server CPU, cores",
    "server_rss_bytes": "server memory, bytes",
}


def timeline(analysis: Analysis, detail: Detail = FULL) -> Figure | None:
    """Throughput a second, server CPU and memory beneath, warm-up shaded; a panel for each treatment."""
    if analysis.experiment.imported:
        return _history(analysis, detail)
    chosen = panel_treatments(analysis, detail)
    rows = by_second(analysis, chosen)
    if rows.empty:
        return None
    rows, width_s, one_by_one = _drawn_together(rows, detail)
    chosen = [treatment for treatment in chosen if treatment in set(rows["treatment"])]
    rows = rows.assign(label=rows["treatment"].map(labels_of(analysis)))
    drawn = [column for column in OVER_TIME if rows[column].notna().any()]
    highest = {column: float(rows[[column, f"{column}_high"]].max().max()) * 1.05 for column in drawn}
    sides = {key: side for key, (_, side) in sides_of(analysis).items()}
    order = list(dict.fromkeys(sides.values()))
    colours = {key: PALETTE[order.index(side) % len(PALETTE)] for key, side in sides.items()}
    data = Data()
    panels = [_panel(data, rows[rows["treatment"] == key], highest, colours[key]) for key in chosen]
    return Figure(
        "timeline",
        "Every run, second by second" if one_by_one else "Second by second",
        _timeline_caption(one_by_one, width_s, len(analysis.experiment.treatments) - len(chosen)),
        specification(panels, data),
        ("treatment", "run", "second", "phase", *(OVER_TIME_TITLES[column] for column in drawn)),
        table_rows(rows, ("label", "run", "offset_s", "phase", *drawn)),
        source="timeline.csv",
    )


def _timeline_caption(one_by_one: bool, width_s: int, left_out: int) -> str:
    what = "A line is a run" if one_by_one else "The line is the median of the replicates, the band their whole range"
    together = f" Each point is the mean of {width_s} s." if width_s > 1 else ""
    more = further(left_out, "treatment", "treatments", "in timeline.csv")
    return (
        f"{what}; second 0 is the start of steady state. The warm-up is shaded: it is drawn, but in no number of this "
        "report. Server CPU and memory are the sums of its processes; memory that processes share counts once for "
        f"each.{together}{more}"
    )


def by_second(analysis: Analysis, treatments: Iterable[str] | None = None) -> pd.DataFrame:
    """Each second of warm-up and steady state of each complete run, of all treatments or of these (by key).

    Columns: run, treatment, offset_s, phase, throughput (successful responses), failures, server_cpu (cores, as
    in metrics.csv), server_rss_bytes (at the second's end). A second without a response counts zero; usage is missing
    where no sample reaches.
    """
    rows = _all_seconds(analysis)
    return rows if treatments is None else rows[rows["treatment"].isin(list(treatments))]


@functools.lru_cache(maxsize=4)  # timeline.csv and the figure show the same
def _all_seconds(analysis: Analysis) -> pd.DataFrame:
    experiment = analysis.experiment
    if experiment.imported:
        return _history_by_second(analysis)
    runs = [run for run in experiment.complete_runs() if run in experiment.reduced]
    parts = [experiment.reduced[run].seconds for run in runs]
    columns = ["run", "treatment", "offset_s", "phase", "throughput", "failures", "server_cpu", "server_rss_bytes"]
    if not parts:
        return pd.DataFrame(columns=columns)
    lengths = [len(part["offset_s"]) for part in parts]
    joined = {name: np.concatenate([part[name] for part in parts]) for name in columns if name in parts[0]}
    treatments = np.array([experiment.treatment_of[run] for run in runs], dtype=object)
    joined |= {"run": np.repeat(runs, lengths), "treatment": np.repeat(treatments, lengths)}
    joined["phase"] = np.where(joined["offset_s"] >= 0, STEADY_STATE, WARM_UP)
    return pd.DataFrame(joined)[columns]


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


def _panel(data: Data, rows: pd.DataFrame, highest: Mapping[str, float], colour: str) -> alt.VConcatChart:
    """Throughput of one treatment and, as far as `highest` names them, the server's CPU and memory beneath."""
    chart = data.chart(rows[["run", "offset_s", "phase", *(f"{c}{end}" for c in highest for end in ("", *ENDS))]])
    warm_up = rows.loc[rows["phase"] == WARM_UP, "offset_s"]
    shade = data.chart(pd.DataFrame([{"from": warm_up.min(), "to": 0}])) if len(warm_up) else None
    is_band = rows[[f"{column}_low" for column in highest]].notna().any(axis=None)
    parts = [
        _lines(chart, shade, (column, highest[column]), colour, bool(is_band), column == list(highest)[-1])
        for column in highest
    ]
    title = panel_title(str(rows["label"].iloc[0]))
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
    rows = rows.assign(label=rows["treatment"].map(labels_of(analysis)), run=[f"run {run}" for run in rows["run"]])
    sides = {key: side for key, (_, side) in sides_of(analysis).items()}
    order = list(dict.fromkeys(sides.values()))
    data = Data()
    panels = []
    for key in chosen:
        part = rows[rows["treatment"] == key]
        chart = data.chart(part[["run", "offset_s", *drawn]])
        colour = PALETTE[order.index(sides[key]) % len(PALETTE)]
        lines = [_history_lines(chart, column, title, rows[column].max(), colour) for column, title in drawn.items()]
        lines[0] = lines[0].properties(title=panel_title(str(part["label"].iloc[0])))
        panels.append(alt.vconcat(*lines, spacing=6))
    together = f" Each point is the mean of {width_s} s." if width_s > 1 else ""
    return Figure(
        "timeline",
        "Every run over time",
        "A line is a run; second 0 is the first line of its history. Each rate is the mean that Locust gives for about "
        f"ten seconds before, so a stall looks shorter and shallower than it was.{together}",
        specification(panels, data),
        ("treatment", "run", "second", *drawn.values()),
        table_rows(rows, ("label", "run", "offset_s", *drawn)),
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


LOWER_BOUNDS = "lower bounds"


def _is_censored(analysis: Analysis, treatment: str) -> bool:
    """Whether the slowest responses of any of its runs are missing, so that it has no response time elsewhere."""
    runs = analysis.experiment.complete_runs(treatment)
    seen = [analysis.observations[run, ALL_REQUESTS] for run in runs if (run, ALL_REQUESTS) in analysis.observations]
    return any("response" in one.censored for one in seen)


def _overloaded_text(analysis: Analysis, treatments: Sequence[str]) -> str:
    if not treatments:
        return ""
    return (
        f" {' and '.join(analysis.label(key) for key in treatments)}: the backlog grew, and who waited at its end "
        "has no response time. What is drawn of it are lower bounds, which are in no number of this report."
    )


def heatmap(analysis: Analysis, detail: Detail = FULL) -> Figure | None:
    """Where the response times lay in each second, a panel for each treatment."""
    if analysis.experiment.imported:
        return None
    chosen = panel_treatments(analysis, detail)
    columns = max(4, min(heat.MOST_COLUMNS, 2 * detail.points // (heat.MOST_ROWS * max(len(chosen), 1))))
    cells = heat.cells(analysis.experiment, chosen, columns)
    if cells.empty:
        return None
    chosen = [key for key in chosen if key in set(cells["treatment"])]
    overloaded = [key for key in chosen if _is_censored(analysis, key)]
    labels = labels_of(analysis) | {key: f"{analysis.label(key)}: {LOWER_BOUNDS}" for key in overloaded}
    cells = cells.assign(label=cells["treatment"].map(labels))
    ends = (float(cells["from_ms"].min()), float(cells["to_ms"].max()))
    data = Data()
    panels = [_heat_panel(data, cells[cells["treatment"] == key], ends) for key in chosen]
    width_s = int((cells["to_s"] - cells["from_s"]).iloc[0])
    more = len(analysis.experiment.treatments) - len(chosen)
    return Figure(
        "heatmap",
        "Response times, second by second",
        f"Each column is {'a second' if width_s == 1 else f'{width_s} s'} of {_replicates(analysis)} together; "
        "the lighter a cell, the larger the share of that column's successful responses in it. Two bands are two kinds "
        "of response; a band that climbs is a server that falls behind. The line marks the start of steady state."
        + _overloaded_text(analysis, overloaded)
        + further(more, "treatment", "treatments", "not drawn"),
        specification(panels, data),
        ("treatment", "from, s", "to, s", "from, ms", "to, ms", "responses", "share"),
        table_rows(cells, ("label", "from_s", "to_s", "from_ms", "to_ms", "count", "share")),
        source="the runs' response_times/",
    )


def _heat_panel(data: Data, cells: pd.DataFrame, ends: tuple[float, float]) -> alt.LayerChart | alt.FacetChart:
    chart = data.chart(cells[["from_s", "to_s", "from_ms", "to_ms", "count", "share"]])
    x = alt.X("from_s:Q", title=X_TITLE, axis=alt.Axis(tickMinStep=1, format="d", grid=False),
              scale=alt.Scale(nice=False))  # fmt: skip
    y = alt.Y("from_ms:Q", title="response time, ms (log scale)", axis=alt.Axis(grid=False),
              scale=alt.Scale(type="log", domain=list(ends), nice=False))  # fmt: skip
    colour = alt.Color(
        "share:Q",
        scale=alt.Scale(type="sqrt", range=list(HEAT), domain=[0, 1], nice=False),
        legend=alt.Legend(
            title="share of a column's responses", titleLimit=WIDTH, format="%", gradientLength=200, tickCount=4
        ),
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
    title = panel_title(str(cells["label"].iloc[0]))
    return alt.layer(*layers).properties(title=title, width=WIDTH, height=150)
