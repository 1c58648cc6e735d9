"""Do later runs on a server differ from the first? Against numpy's least squares, and on invented runs."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from analysis import carry_over, decide
from analysis.compare import Verdict
from analysis.findings import Severity
from tests.analysis import synthetic
from tests.analysis.test_validity import analyse

Make = Callable[..., Path]


def test_it_is_a_regression_with_a_mean_for_each_treatment() -> None:
    groups = [
        ([1.0, 1.4, 1.1, 1.6], [False, True, False, True]),
        ([2.0, 2.3, 2.2, 2.6], [False, True, True, True]),
    ]
    seen = carry_over.later_runs(groups)
    # The same with a column for each treatment, by numpy: shift 0.4142857, t = 3.619349 with 5 degrees of freedom.
    columns = np.array([[0, 1, 0, 1, 0, 1, 1, 1], [1] * 4 + [0] * 4, [0] * 4 + [1] * 4], dtype=float).T
    values = np.array([value for ys, _ in groups for value in ys])
    found, rest, _, _ = np.linalg.lstsq(columns, values)
    t = found[0] / math.sqrt(rest[0] / 5 * np.linalg.inv(columns.T @ columns)[0, 0])
    assert seen is not None
    assert seen.shift == pytest.approx(found[0]) == pytest.approx(0.4142857)
    assert t == pytest.approx(3.619349) and seen.p == pytest.approx(0.0152299, rel=1e-4)


@pytest.mark.parametrize(
    "groups",
    [
        [],
        [([1.0, 2.0], [False, False]), ([1.0, 2.0], [True, True])],
        [([1.0, 2.0], [False, True])],
    ],
)
def test_without_both_kinds_of_run_in_a_treatment_nothing_is_known(
    groups: list[tuple[list[float], list[bool]]],
) -> None:
    assert carry_over.later_runs(groups) is None


def double(run: Path) -> None:
    """Twice the responses."""
    total = 0
    for file in (run / "response_times").glob("*.csv"):
        rows = pd.read_csv(file)
        rows["count"] *= 2
        rows.to_csv(file, index=False)
        total += int(rows["count"].sum())
    (run / "locust" / "load_stats.csv").unlink()
    (run / "locust").rmdir()
    synthetic.write_locust_csv(run, total)


def analysed(make: Make, first: Callable[[int, int], bool], rate: float, carried: bool = True) -> decide.Analysis:
    """Runs of 1 and of 2 processes, eight of each. `first`: whether (processes, block) has the first run on a server.

    `rate`: how much more two processes answer. `carried`: later runs answer twice as much.
    """
    folder = make(
        factors={synthetic.PROCESSES: [1, 2]},
        primary={"metric": "throughput"},
        replicates=8,
        rate=lambda treatment: 60 * (rate if treatment[synthetic.PROCESSES] == 2 else 1),
    )
    file = folder / "experiment.json"
    record = json.loads(file.read_text("utf-8"))
    for row in record["plan"]:
        is_first = first(row["treatment"][synthetic.PROCESSES], row["block"])
        row["server_number"] = 100 + row["number"] if is_first else 0
        if carried and not is_first:
            double(folder / "runs" / row["folder"])
    # One run that comes before all of the later ones on their server.
    record["plan"][0]["server_number"] = 0
    file.write_text(json.dumps(record), encoding="utf-8")
    return analyse(folder)


def findings(analysis: decide.Analysis) -> list[Severity]:
    return [finding.severity for finding in analysis.findings if finding.name == "carry_over"]


def test_a_cache_that_the_first_run_fills_is_a_note_where_both_sides_have_it_alike(make: Make) -> None:
    analysis = analysed(make, lambda processes, block: block % 2 == 0, rate=4.0)
    assert findings(analysis) == [Severity.NOTE]
    assert [c.verdict for c in analysis.deciding] == [Verdict.FASTER]


def test_it_forbids_the_verdict_where_one_side_had_more_of_it(make: Make) -> None:
    analysis = analysed(make, lambda processes, block: (block > 1) == (processes == 1), rate=1.0)
    assert findings(analysis) == [Severity.SEVERE]
    assert [c.verdict for c in analysis.deciding] == [Verdict.INVALID]


def test_servers_that_remember_nothing_are_no_finding(make: Make) -> None:
    assert findings(analysed(make, lambda processes, block: block % 2 == 0, rate=2.0, carried=False)) == []


def test_a_server_for_each_run_is_no_finding(make: Make) -> None:
    analysis = analysed(make, lambda processes, block: True, rate=2.0)
    assert findings(analysis) == []
