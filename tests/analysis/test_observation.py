"""CPU time of a budget's load, which begins and ends within seconds."""

from __future__ import annotations

import pandas as pd
import pytest

from analysis import observation
from analysis.record import USAGE_COLUMNS, Window

START = 1_000


def usage() -> pd.DataFrame:
    """Each process works at 0.5 of a core; the generator at a whole one until 1000.5, while it starts."""
    times = [START - 2 + n / 2 for n in range(24)]
    rows = [(t, "server", 1, "nginx", 0.5 * (t - START + 2), 1e6, "balancer") for t in times]
    rows += [
        (t, "generator", 2, "locust", 0.5 * (t - START + 2) + 0.5 * min(t - START + 2, 2.5), 1e6, "locust")
        for t in times
    ]
    return pd.DataFrame(rows, columns=USAGE_COLUMNS)


@pytest.mark.parametrize(
    ("measured_s", "begin_s", "generator_cpu_s"),
    [(1.5, 0.5, None), (3.0, 0.5, 1.5), (3.2, 0.2, 1.75), (3.0, None, 2.25)],  # the last as recorded before
)
def test_the_generators_time_is_that_of_the_load(
    measured_s: float, begin_s: float | None, generator_cpu_s: float | None
) -> None:
    window = Window(START, START + 4, measured_s, None if begin_s is None else START + begin_s)
    nothing = pd.DataFrame({column: [] for column in ("phase", "endpoint", "outcome", "clock", "bucket_us", "count")})
    seen = observation.of_run(nothing, usage(), window, None, False)[observation.ALL_REQUESTS]
    assert (seen.generator and seen.generator.cpu_s) == (generator_cpu_s and pytest.approx(generator_cpu_s))
    assert seen.server is not None
    assert seen.server.cpu_s == pytest.approx(2.0)  # of whole seconds: it is idle in the rest
