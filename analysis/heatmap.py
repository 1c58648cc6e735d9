"""Where the response times of a treatment lay, second by second: the cells of a heatmap.

The frames of an Experiment hold either the seconds or the buckets; both together are only in the runs' own files, which
are read here once more, for the treatments that are drawn.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import pandas as pd

from analysis.csv_tables import read_table
from analysis.load import STEADY_STATE, Experiment
from analysis.record import RESPONSE_TIME_COLUMNS
from analysis.run_files import files_of

MOST_COLUMNS, MOST_ROWS = 200, 40
MOST_REPLICATES = 20
"""Of a treatment; reading them once more takes its time, and so many show what there is to see."""

CELL_COLUMNS = ("treatment", "from_s", "to_s", "from_ms", "to_ms", "count", "share")


def cells(experiment: Experiment, treatments: Iterable[str], columns: int = MOST_COLUMNS) -> pd.DataFrame:
    """CELL_COLUMNS, one row a cell with at least one response, of each treatment's complete runs together.

    Of MOST_REPLICATES at most.

    Seconds count from the start of steady state. count: successful responses; share: of those in the same column. The
    rows are equally high on a logarithmic axis and the same for all treatments; a column is a whole number of seconds.
    """
    found = {treatment: _counts(experiment, treatment) for treatment in treatments}
    counted = pd.concat([f.assign(treatment=t) for t, f in found.items()], ignore_index=True) if found else None
    if counted is None or counted.empty:
        return pd.DataFrame(columns=list(CELL_COLUMNS))
    first, last = int(counted["offset_s"].min()), int(counted["offset_s"].max())
    width_s = math.ceil((last - first + 1) / columns)
    a_second = counted.groupby(["treatment", "offset_s"])["count"].sum().median()
    edges_us = _edges_us(counted["bucket_us"], width_s * float(a_second))
    row = np.searchsorted(edges_us, counted["bucket_us"].to_numpy(), side="right") - 1
    placed = counted.assign(row=np.clip(row, 0, len(edges_us) - 2), from_s=counted["offset_s"] // width_s * width_s)
    summed = placed.groupby(["treatment", "from_s", "row"], as_index=False, sort=True)[["count"]].sum()
    rows = summed["row"].to_numpy()
    return pd.DataFrame(
        {
            "treatment": summed["treatment"],
            "from_s": summed["from_s"],
            "to_s": summed["from_s"] + width_s,
            "from_ms": edges_us[rows] / 1000,
            "to_ms": edges_us[rows + 1] / 1000,
            "count": summed["count"],
            "share": summed["count"] / summed.groupby(["treatment", "from_s"])["count"].transform("sum"),
        }
    )


def _edges_us(buckets_us: pd.Series[int], a_column: float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Edges of the rows, microseconds; with a hair beyond the ends, so that both lie inside.

    `a_column`: responses in a column; few of them over many rows would be stripes.
    """
    low, high = max(float(buckets_us.min()), 1.0) * 0.995, float(buckets_us.max()) * 1.005
    # Buckets are 0.4 to 0.8 % wide: rows of less than 2 % would be empty every now and then for no other reason.
    distinct = int(math.log(high / low) / math.log(1.02))
    rows = max(1, min(MOST_ROWS, distinct, max(10, int(2 * math.sqrt(a_column)))))
    return np.geomspace(low, high, rows + 1)


def _counts(experiment: Experiment, treatment: str) -> pd.DataFrame:
    """offset_s, bucket_us, count of the successful responses of a treatment, warm-up included."""
    parts = []
    for run in experiment.complete_runs(treatment)[:MOST_REPLICATES]:
        if run not in experiment.records:
            continue
        windows = experiment.records[run].windows
        start = windows[STEADY_STATE].start_unix_s
        first, end = min(window.start_unix_s for window in windows.values()), windows[STEADY_STATE].end_unix_s
        for file in files_of(experiment, run, "response_times", "response_times/*.csv"):
            # What is damaged in it is a finding already.
            read = read_table(file, RESPONSE_TIME_COLUMNS, run, experiment.folder, [])
            wanted = (read["outcome"] == "success") & (read["clock"] != "service")
            inside = read[wanted & (read["second"] >= first) & (read["second"] < end)]
            parts.append(inside.assign(offset_s=inside["second"] - start))
    columns = ["offset_s", "bucket_us", "count"]
    if not parts:
        return pd.DataFrame(columns=columns)
    return pd.concat(parts)[columns].groupby(["offset_s", "bucket_us"], as_index=False)[["count"]].sum()
