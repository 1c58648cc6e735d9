"""What the machine did beside the measurement: swap, quotas, and who else was busy. Pure but for the reading."""

from __future__ import annotations

import csv
import dataclasses
import math
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from analysis.record import MACHINE_COLUMNS

MACHINE_FRAME = ("run", *MACHINE_COLUMNS)


@dataclasses.dataclass(frozen=True)
class MachineUse:
    """Growth of the machine's counters over one window; None where nobody could tell."""

    window_s: float
    busy_s: float | None
    harness_s: float | None
    stolen_s: float | None
    swapped_bytes: float | None
    throttled_s: float | None


def read_machine(files: Iterable[Path], run: int) -> pd.DataFrame:
    """Rows of a run's machine files, MACHINE_FRAME, empty cells as NaN; a line that is not whole is left out."""
    rows = [{"run": run, **row} for file in files for row in _rows(file)]
    return pd.DataFrame(rows, columns=list(MACHINE_FRAME)).astype(dict.fromkeys(MACHINE_COLUMNS, "float64"))


def _rows(file: Path) -> Iterator[dict[str, float]]:
    text = file.read_text(encoding="utf-8", errors="replace").replace("\0", "")
    for row in csv.DictReader(text.splitlines()[: text.count("\n")]):
        try:
            values = {name: float(row[name] or "nan") for name in MACHINE_COLUMNS}
        except (KeyError, ValueError, TypeError):
            continue
        if math.isfinite(values["time_unix_s"]):
            yield values


def use(rows: pd.DataFrame, start_unix_s: float, end_unix_s: float) -> MachineUse | None:
    """Growth of one run's counters over [start, end), read off between the samples; None where they do not span it.

    A counter that falls was reset, and what it grew by is unknown.
    """
    ordered = rows.sort_values("time_unix_s")
    times = ordered["time_unix_s"].to_numpy(dtype=float)
    if len(times) < 2 or times[0] > start_unix_s or times[-1] < end_unix_s:
        return None
    grown: dict[str, float | None] = {}
    for name in MACHINE_COLUMNS[1:]:
        values = ordered[name].to_numpy(dtype=float)
        low, high = (float(v) for v in np.interp([start_unix_s, end_unix_s], times, values))
        grown[name] = high - low if np.isfinite(values).all() and (np.diff(values) >= 0).all() else None
    return MachineUse(end_unix_s - start_unix_s, **grown)
