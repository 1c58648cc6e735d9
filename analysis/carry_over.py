"""Do later runs on a server differ from the first one on it? A check of validity.CHECKS.

With order.server = per_block runs share a server, and what one leaves in it (a cache that has come to know the users, a
larger database) is there in the next. Chance says which run is the first, so that the runs of a treatment differ by
more than their noise; and where one side of a comparison was the first more often than the other, they differ by less
or more than they should.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterator, Sequence

import numpy as np

from analysis import compare
from analysis.comparison import Comparison
from analysis.findings import Case, Finding, Severity
from analysis.metrics import ALL_REQUESTS

P = 0.01


@dataclasses.dataclass(frozen=True)
class LaterRuns:
    """The runs on a server after its first one, against the first."""

    shift: float
    """Of the logarithm."""
    error: float
    """Standard error of the shift."""
    freedom: int
    """Degrees of freedom of the error."""

    @functools.cached_property
    def p(self) -> float:
        """Two-sided, by Student's t: how often chance alone makes as much of a shift."""
        if self.error == 0:
            return 0.0 if self.shift else 1.0
        from scipy.stats import t  # slow to import

        return float(2 * t.sf(abs(self.shift) / self.error, self.freedom))


def later_runs(groups: Sequence[tuple[Sequence[float], Sequence[bool]]]) -> LaterRuns | None:
    """From the groups (treatments) of (logarithms, whether the run was a later one) of their runs.

    Least squares with a mean for each group: y and x less their groups' means, shift = sum xy / sum x^2, and Student's
    t with n - groups - 1 degrees of freedom (Frisch & Waugh, Econometrica 1, 1933). None where no group has both kinds
    of run, or no degree of freedom is left.
    """
    mixed = [(np.asarray(ys), np.asarray(later, dtype=float)) for ys, later in groups if 0 < sum(later) < len(later)]
    left = sum(len(ys) for ys, _ in mixed) - len(mixed) - 1
    if not mixed or left < 1:
        return None
    y = np.concatenate([ys - ys.mean() for ys, _ in mixed])
    x = np.concatenate([later - later.mean() for _, later in mixed])
    shift = float((x * y).sum() / (x**2).sum())
    error = math.sqrt(float(((y - shift * x) ** 2).sum()) / left / float((x**2).sum()))
    return LaterRuns(shift, error, left)


def carry_over(case: Case) -> Iterator[Finding]:
    """Later runs on a server that differ from the first by more than the margin; severe where that decides."""
    later = _later(case)
    seen = later_runs([_group(case, later, treatment) for treatment in case.experiment.treatments])
    if seen is None or abs(math.expm1(seen.shift)) <= case.experiment.record.margin or seen.p >= P:
        return
    turned = [c for c in case.comparisons if c.verdict is not None and _turns(case, c, later, seen.shift)]
    yield Finding(
        "carry_over",
        Severity.SEVERE if turned else Severity.NOTE,
        f"Later runs on a server have {math.exp(seen.shift):.3g} times the {case.primary.title} of the first run on "
        "it: what a run leaves behind is in the next one's numbers.",
        (
            f"{sum(later.values())} later runs against {len(later) - sum(later.values())} first ones; p = {seen.p:.2g}",
            *(f"without it another verdict: {case.label(c.keys[1])} against {case.label(c.keys[0])}" for c in turned),
        ),
        f"a difference within ±{case.experiment.record.margin:.3g}, or p ≥ {P:g}",
        "Start a server for each run (order.server: per_run).",
        tuple(dict.fromkeys(key for c in turned for key in c.keys)) if turned else None,
    )


def _later(case: Case) -> dict[int, bool]:
    """Of the complete runs with a value: whether another run came before on the same server."""
    runs = case.experiment.runs
    first = runs.groupby("server_number")["run"].min().to_dict()
    values = _values(case)
    return {
        run: run != first[server]
        for run, server in zip(runs["run"].tolist(), runs["server_number"].tolist(), strict=True)
        if values.get(run, 0) > 0 and not case.experiment.imported
    }


def _values(case: Case) -> dict[int, float]:
    rows = case.by_run
    rows = rows[(rows["metric"] == case.primary.name) & (rows["endpoint"] == ALL_REQUESTS)]
    return dict(zip(rows["run"].tolist(), rows["value"].tolist(), strict=True))


def _group(case: Case, later: dict[int, bool], treatment: str) -> tuple[list[float], list[bool]]:
    values = _values(case)
    runs = [run for run in case.experiment.complete_runs(treatment) if run in later]
    return [math.log(values[run]) for run in runs], [later[run] for run in runs]


def _turns(case: Case, comparison: Comparison, later: dict[int, bool], shift: float) -> bool:
    """Whether the verdict is another one without the part that the sides' unequal shares of later runs have in it."""
    baseline, treatment = (_share(case, later, key) for key in comparison.keys)
    factor = math.exp(-shift * (treatment - baseline))
    seen = comparison.effect
    if seen.ratio is None or seen.low is None or seen.high is None:
        return False
    without = dataclasses.replace(seen, ratio=seen.ratio * factor, low=seen.low * factor, high=seen.high * factor)
    margin = case.experiment.record.margin
    return compare.verdict(without, case.primary.better == "higher", margin) is not comparison.verdict


def _share(case: Case, later: dict[int, bool], treatment: str) -> float:
    runs = [run for run in case.experiment.complete_runs(treatment) if run in later]
    return sum(later[run] for run in runs) / len(runs) if runs else 0.0
