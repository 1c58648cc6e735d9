"""What the responses of each treatment were: outcomes with their counts, and bytes a second as far as Locust counts."""

from __future__ import annotations

import dataclasses

from analysis import metrics
from analysis.decide import Analysis
from analysis.metrics import ALL_REQUESTS

MOST_ROWS = 200


@dataclasses.dataclass(frozen=True)
class Body:
    """Response bodies of a treatment."""

    mean_bytes: float
    """Of all responses of the whole runs, warm-up and failures included, by Locust's own CSV."""
    bytes_per_s: float
    """mean_bytes times the responses a second of steady state: exact where all responses are of one size."""


def outcomes(analysis: Analysis) -> list[tuple[str, ...]]:
    """Rows of text: treatment, endpoint, outcome, responses, share in percent; the most frequent failure first.

    Of a summary its failures alone, without their share.
    """
    if analysis.experiment.imported:
        failed = analysis.experiment.failures()
        labelled = failed.assign(treatment=[analysis.label(analysis.experiment.treatment_of[r]) for r in failed["run"]])
        rows = labelled.groupby(["treatment", "endpoint", "outcome"], as_index=False)[["count"]].sum()
        rows = rows.sort_values("count", ascending=False, kind="stable")
        return [(r["treatment"], r["endpoint"], r["outcome"], f"{r['count']:,}", "–") for r in rows.to_dict("records")]
    rows = analysis.experiment.outcomes
    treatment_of = dict(zip(analysis.experiment.runs["run"], analysis.experiment.runs["treatment"], strict=True))
    rows = rows.assign(treatment=rows["run"].map(treatment_of), failed=rows["outcome"] != "success")
    counts = rows.groupby(["treatment", "endpoint", "failed", "outcome"], as_index=False)[["count"]].sum()
    counts["share"] = counts["count"] / counts.groupby(["treatment", "endpoint"])["count"].transform("sum")
    place = {treatment: n for n, treatment in enumerate(analysis.experiment.treatments)}
    counts["place"] = counts["treatment"].map(place)
    counts = counts.sort_values(["place", "endpoint", "failed", "count"], ascending=[True, True, True, False])
    labels = {treatment: analysis.label(treatment) for treatment in place}
    return [
        (labels[r["treatment"]], r["endpoint"], r["outcome"], f"{r['count']:,}", _share(r["share"]))
        for r in counts.to_dict("records")
    ]


def bodies(analysis: Analysis) -> dict[str, Body]:
    """By the treatment's key; a treatment of which any complete run lacks the size has none."""
    found, reduced = {}, analysis.experiment.reduced
    for treatment in analysis.experiment.treatments:
        runs = analysis.experiment.complete_runs(treatment)
        sizes = [reduced[run].body if run in reduced else None for run in runs]
        seen = metrics.merge(analysis.observations[run, ALL_REQUESTS] for run in runs if _observed(analysis, run))
        known = [size for size in sizes if size is not None]
        total = sum(count for _, count in known)
        if not sizes or len(known) < len(sizes) or not total or seen.window_s <= 0:
            continue
        mean = sum(size * count for size, count in known) / total
        found[treatment] = Body(mean, mean * seen.responses / seen.window_s)
    return found


def body_rows(analysis: Analysis) -> list[tuple[str, ...]]:
    """Rows of text: treatment, mean body in bytes, kilobytes (1000 bytes) a second."""
    return [
        (analysis.label(treatment), f"{body.mean_bytes:,.0f}", f"{body.bytes_per_s / 1000:,.1f}")
        for treatment, body in bodies(analysis).items()
    ]


def _observed(analysis: Analysis, run: int) -> bool:
    return (run, ALL_REQUESTS) in analysis.observations


def _share(share: float) -> str:
    return "100" if share == 1 else f"{100 * share:.3g}" if share < 0.999 else "> 99.9"
