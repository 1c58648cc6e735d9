"""What a published document links to for each line of its tables: durations over time, load profile, histogram.

One Figure a treatment, of three panels; `files` draws the same as pages of their own, which hold no script.
"""

from __future__ import annotations

import html
import math

import altair as alt
import numpy as np
import pandas as pd

from analysis import reference
from analysis.decide import Analysis
from analysis.figure_parts import (
    CSV_FORMAT,
    FULL,
    GREY,
    PALETTE,
    WIDTH,
    Data,
    Detail,
    Figure,
    panel_title,
    specification,
    table_rows,
)
from analysis.load import STEADY_STATE, read_seconds
from analysis.reference import Graph

SOURCE = "the runs' response_times/"
DURATIONS, PROFILE, HISTOGRAM = "durations over time", "load profile", "histogram of durations"
COLUMNS = ("graph", "run", "from, s", "to, s", "value", "lowest", "highest")
SHORT_FIELDS = ("graph", "run", "from_s", "to_s", "value", "low", "high")
MOST_BINS = 40
STEPS = 10
"""Places within a second at which a response may have ended."""


def figures(analysis: Analysis, detail: Detail = FULL) -> list[Figure]:
    """The figures of all lines; none where the experiment's published results have no graphs."""
    graphs = reference.graphs(analysis)
    points = detail.points // max(1, 2 * len(graphs))
    drawn = (figure(analysis, graph, number, points, detail.lines) for number, graph in enumerate(graphs, 1))
    return [one for one in drawn if one is not None]


def figure(analysis: Analysis, graph: Graph, number: int, points: int, most_runs: int) -> Figure | None:
    """The three graphs of one treatment, of at most `points` marks a panel; None where it has no complete run."""
    durations, profile, bins = cell(analysis, graph.treatment, points, most_runs)
    if bins.empty:
        return None
    width_s = int((durations["to_s"] - durations["from_s"]).iloc[0])
    users = _users(analysis, graph.treatment)
    data = Data()
    panels: list[alt.TopLevelMixin] = [
        _durations(data, durations),
        _profile(data, profile, users),
        _histogram(data, bins),
    ]
    named = pd.concat([t.assign(graph=g) for g, t in ((DURATIONS, durations), (PROFILE, profile), (HISTOGRAM, bins))])
    return Figure(
        f"cell-{number}",
        graph.title,
        _caption(analysis, graph.treatment, width_s, most_runs, math.isfinite(users)),
        specification(panels, data),
        COLUMNS,
        table_rows(named.reindex(columns=list(SHORT_FIELDS)), SHORT_FIELDS),
        source=SOURCE,
        collapsed=True,
    )


def _caption(analysis: Analysis, treatment: str, width_s: int, most_runs: int, with_users: bool) -> str:
    runs = len(analysis.experiment.complete_runs(treatment))
    which = f"the first {most_runs} of {runs} runs" if runs > most_runs else "a run each"
    slot = "second" if width_s == 1 else f"{width_s} s"
    dashed = " The dashed line is the number of users." if with_users else ""
    return (
        f"Durations: lines are {which}, the mean of the responses that ended in each {slot}; the band reaches from the "
        "shortest to the longest of all these runs. Load profile: requests in flight, the mean of each "
        f"{slot}, reckoned from the second in which each response ended and how long it took.{dashed} Histogram: all "
        "runs together. Successful responses of steady state."
    )


def cell(
    analysis: Analysis, treatment: str, points: int, most_runs: int
) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Durations over time, load profile and histogram of a treatment; the first two of `most_runs` of its runs.

    Columns run, from_s, to_s (seconds since the start of steady state; in the histogram seconds of duration), value;
    low and high besides for durations, in seconds. value: mean duration in seconds, requests in flight, responses.
    """
    rows = {run: _successful(analysis, run) for run in analysis.experiment.complete_runs(treatment)}
    rows = {run: part for run, part in rows.items() if len(part)}
    if not rows:
        empty = pd.DataFrame(columns=["run", "from_s", "to_s", "value", "low", "high"])
        return empty, empty, empty
    drawn = dict(list(rows.items())[:most_runs])
    longest_s = 1 + max(int(part["offset_s"].max()) for part in drawn.values())
    width_s = max(1, math.ceil(longest_s * len(drawn) / max(points, 1)))
    durations = pd.concat([_means(part, width_s).assign(run=f"run {run}") for run, part in drawn.items()])
    ends = durations.groupby("from_s").agg(low=("low", "min"), high=("high", "max"))
    durations = durations.drop(columns=["low", "high"]).join(ends, on="from_s")
    users = _users(analysis, treatment)
    profile = pd.concat([in_flight(part, width_s, users).assign(run=f"run {run}") for run, part in drawn.items()])
    return durations, profile, histogram(pd.concat(rows.values()))


def _users(analysis: Analysis, treatment: str) -> float:
    """How many requests there can be in flight; infinite where there are no users who wait for their answers."""
    users = reference.levels_of(analysis, treatment).get("load.users")
    return users if isinstance(users, int) else math.inf


def _successful(analysis: Analysis, run: int) -> pd.DataFrame:
    """offset_s (from the start of steady state), duration_s, count of a run's successes in steady state."""
    window = analysis.experiment.records[run].windows[STEADY_STATE]
    rows = read_seconds(analysis.experiment, run)
    inside = (rows["second"] >= window.start_unix_s) & (rows["second"] < window.end_unix_s)
    wanted = rows[inside & (rows["outcome"] == "success") & (rows["clock"] != "service")]
    offsets = wanted["second"] - window.start_unix_s
    return pd.DataFrame({"offset_s": offsets, "duration_s": wanted["bucket_us"] / 1e6, "count": wanted["count"]})


def _means(rows: pd.DataFrame, width_s: int) -> pd.DataFrame:
    slots = rows.assign(from_s=rows["offset_s"] // width_s * width_s, spent_s=rows["duration_s"] * rows["count"])
    grouped = slots.groupby("from_s").agg(
        spent_s=("spent_s", "sum"), count=("count", "sum"), low=("duration_s", "min"), high=("duration_s", "max")
    )
    means = grouped.assign(value=grouped["spent_s"] / grouped["count"]).reset_index()
    return means.assign(to_s=means["from_s"] + width_s)[["from_s", "to_s", "value", "low", "high"]]


def in_flight(rows: pd.DataFrame, width_s: int = 1, most: float = math.inf) -> pd.DataFrame:
    """from_s, to_s, value: mean number of requests in flight in each slot of `width_s` seconds.

    Of a response's end only the second is known: it is taken to be anywhere in it. `most` is how many there can be, and
    so no estimate is above it. What was in flight before second 0 is left out; all slots together hold the time of all
    responses otherwise.
    """
    within = (np.arange(STEPS) + 0.5) / STEPS
    end = (rows["offset_s"].to_numpy()[:, None] + within).ravel()
    begin = np.maximum(end - rows["duration_s"].to_numpy().repeat(STEPS), 0.0)
    count = rows["count"].to_numpy().repeat(STEPS) / STEPS
    slots = np.arange(0, int(rows["offset_s"].max()) + 1, width_s)
    busy_s = [float((np.clip(np.minimum(end, s + width_s) - np.maximum(begin, s), 0, None) * count).sum())
              for s in slots]  # fmt: skip
    value = np.minimum(np.array(busy_s) / width_s, most)
    return pd.DataFrame({"from_s": slots, "to_s": slots + width_s, "value": value})


def histogram(rows: pd.DataFrame) -> pd.DataFrame:
    """from_s, to_s, value: responses by duration, in equally wide bins, as many as the square root of the responses."""
    count = int(rows["count"].sum())
    bins = max(1, min(MOST_BINS, math.ceil(math.sqrt(count))))
    counts, edges = np.histogram(rows["duration_s"], bins=bins, weights=rows["count"])
    return pd.DataFrame({"run": "all", "from_s": edges[:-1], "to_s": edges[1:], "value": counts.astype(int)})


def _time_axis() -> alt.X:
    axis = alt.Axis(tickMinStep=1, format="d", grid=False)
    return alt.X("from_s:Q", title="seconds since the load began", axis=axis, scale=alt.Scale(nice=False))


def _over_time(data: Data, rows: pd.DataFrame, title: str) -> tuple[alt.Chart, alt.Chart]:
    """The data's chart, and a line a run."""
    chart = data.chart(rows[["run", "from_s", "value", *(c for c in ("low", "high") if c in rows)]])
    y = alt.Y("value:Q", title=title, scale=alt.Scale(zero=True))
    tooltip = [
        "run:N",
        alt.Tooltip("from_s:Q", title="from, s"),
        alt.Tooltip("value:Q", title=title, format=CSV_FORMAT),
    ]
    line = chart.mark_line(strokeWidth=1.3, opacity=0.75, color=PALETTE[0], point=alt.OverlayMarkDef(size=12))
    return chart, line.encode(_time_axis(), y, alt.Detail("run:N"), tooltip=tooltip)


def _durations(data: Data, rows: pd.DataFrame) -> alt.LayerChart | alt.FacetChart:
    _, lines = _over_time(data, rows, "duration, s")
    band = data.chart(rows[["from_s", "low", "high"]].drop_duplicates()).mark_area(opacity=0.18, color=PALETTE[0])
    layers = alt.layer(band.encode(_time_axis(), alt.Y("low:Q", title="duration, s"), alt.Y2("high:Q")), lines)
    return layers.properties(title=panel_title(DURATIONS.capitalize()), width=WIDTH, height=150)


def _profile(data: Data, rows: pd.DataFrame, users: float) -> alt.LayerChart | alt.FacetChart:
    _, lines = _over_time(data, rows, "requests in flight")
    layers = [lines]
    if math.isfinite(users):
        rule = data.chart(pd.DataFrame([{"users": users}])).mark_rule(color=GREY, strokeDash=[5, 4])
        layers.append(rule.encode(alt.Y("users:Q", title="requests in flight")))
    return alt.layer(*layers).properties(title=panel_title(PROFILE.capitalize()), width=WIDTH, height=150)


def _histogram(data: Data, rows: pd.DataFrame) -> alt.Chart:
    x = alt.X("from_s:Q", title="duration, s", bin="binned", axis=alt.Axis(grid=False))
    tooltip = [alt.Tooltip(f"{end}_s:Q", title=f"{end}, s", format=CSV_FORMAT) for end in ("from", "to")]
    bars = data.chart(rows[["from_s", "to_s", "value"]]).mark_bar(color=PALETTE[0])
    chart: alt.Chart = bars.encode(
        x, alt.X2("to_s:Q"), alt.Y("value:Q", title="responses"), tooltip=[*tooltip, alt.Tooltip("value:Q")]
    )
    return chart.properties(title=panel_title(HISTOGRAM.capitalize()), width=WIDTH, height=150)


PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<style>body {{ font-family: system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem }}
svg {{ max-width: 100%; height: auto }}</style></head>
<body><h1>{title}</h1>
{svg}
<p>{caption}</p>
</body></html>
"""


def files(analysis: Analysis) -> dict[str, str]:
    """One page a line, by the name that the document's page links to: drawn already, without any script."""
    graphs = reference.graphs(analysis)
    return {graph.file: page for number, graph in enumerate(graphs, 1) if (page := _page(analysis, graph, number))}


def _page(analysis: Analysis, graph: Graph, number: int) -> str | None:
    import vl_convert

    drawn = figure(analysis, graph, number, FULL.points // 10, FULL.lines)
    if drawn is None:
        return None
    svg: str = vl_convert.vegalite_to_svg(drawn.spec)
    return PAGE.format(title=html.escape(drawn.title), svg=svg, caption=html.escape(drawn.caption))
