"""The calibration: what it simulates, how it relabels, what it prints. The real series is the benchmark's own."""

from __future__ import annotations

import random

import numpy as np
import pytest

from analysis.compare import Verdict
from benchmarks import calibration
from benchmarks.calibration import Effort
from benchmarks.runs import table

SMALL = Effort(simulations=20, runs=8, run_s=1, relabellings=50)


def test_tables_fit_into_100_columns() -> None:
    rows = [*calibration.verdict_rows(SMALL), *calibration.drift_rows(SMALL)]
    rows += calibration.series_rows([100.0 + n % 3 for n in range(48)], 10)
    assert max(map(len, table(rows).splitlines())) <= 100


def test_noise_with_memory_is_what_it_says() -> None:
    values = calibration.seconds_with_memory(20_000, 0.7, 0.1, np.random.default_rng(1))
    assert (values.mean(), values.std()) == (pytest.approx(1, abs=0.01), pytest.approx(0.1, rel=0.05))
    assert np.corrcoef(values[1:], values[:-1])[0, 1] == pytest.approx(0.7, abs=0.03)


def test_a_series_without_noise_is_the_same_however_it_is_labelled() -> None:
    assert set(calibration.relabelled([5.0] * 48, 6, 20, random.Random(1))) == {Verdict.SAME}


def test_labels_change_within_blocks_only() -> None:
    # Ten times as fast in every second block: were runs to leave their blocks, some labelling would see a difference.
    runs = [1.0, 1.0, 10.0, 10.0] * 2
    assert set(calibration.relabelled(runs, 4, 200, random.Random(1))) == {Verdict.INCONCLUSIVE}
    # One run of each block is faster: two labellings of sixteen put all of them on one side.
    found = calibration.relabelled([1.0, 2.0] * 4, 4, 2000, random.Random(1))
    decided = [verdict for verdict in found if verdict is not Verdict.INCONCLUSIVE]
    assert set(decided) == {Verdict.FASTER, Verdict.SLOWER}
    assert len(decided) / 2000 == pytest.approx(2 / 16, abs=0.03)


def test_the_simulation_knows_a_difference() -> None:
    faster = calibration.decides(0.01, 1.5, 4, frozenset({Verdict.FASTER}))
    assert calibration.share(20, faster) == 1.0
    assert calibration.share(200, calibration.covers(0.05, 1.5, 6)) > 0.9
