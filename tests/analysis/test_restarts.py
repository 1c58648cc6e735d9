"""Which processes of a server that come or go within steady state are a finding, and which belong to it."""

from __future__ import annotations

import pandas as pd
import pytest

from analysis import restarts
from analysis.record import USAGE_COLUMNS, Window

START = 1_000
PASSES = [START - 2 + n / 2 for n in range(28)]
"""Every 0.5 s, from 2 s before the steady state to 2 s after its end."""
WINDOW = Window(START, START + 10)


def usage(*processes: tuple[int, str, float, float, float]) -> pd.DataFrame:
    """(pid, part, first seen, last seen, CPU time) in seconds of the steady state; balancer and generator live on."""
    lasting = [("generator", 1, "locust", -9.0, 99.0, 1.0), ("server", 2, "balancer", -9.0, 99.0, 1.0)]
    rows = [
        (at, role, pid, "nginx", cpu_s, 1e6, part)
        for at in PASSES
        for role, pid, part, first, last, cpu_s in (*lasting, *(("server", *process) for process in processes))
        if first <= at - START <= last
    ]
    return pd.DataFrame(rows, columns=USAGE_COLUMNS)


@pytest.mark.parametrize(
    ("process", "killed", "lines"),
    [
        ((7, "postgresql", 3.0, 3.0, 0.0), {}, 0),  # a job beside the service
        ((7, "postgresql", 3.0, 3.5, 0.0), {}, 2),
        ((7, "uwsgi", 3.0, 3.0, 0.4), {}, 2),  # a worker that died as soon as it was there
        ((7, "uwsgi", -9.0, 3.0, 0.0), {}, 1),
        ((7, "uwsgi", 3.0, 99.0, 0.0), {}, 1),
        ((7, "backend-1", -9.0, 4.0, 1.0), {"backend-1": START + 4.2}, 0),
        ((7, "backend-1", -9.0, 4.0, 1.0), {"backend-2": START + 4.2}, 1),
        ((7, "backend-1", -9.0, 1.0, 1.0), {"backend-1": START + 6.0}, 1),  # gone before it was killed
    ],
)
def test_what_ends_or_begins(
    process: tuple[int, str, float, float, float], killed: dict[str, float], lines: int
) -> None:
    found = restarts.of_run(usage(process), WINDOW, killed)
    assert len(found) == lines
    assert all(", process 7, " in line for line in found)
