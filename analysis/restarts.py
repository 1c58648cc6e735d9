"""Processes of the server that end or begin within steady state, as the usage samples show them. Pure."""

from __future__ import annotations

import numpy as np
import pandas as pd

from analysis.record import Window

PASSES_MISSED = 2.5
"""Passes of sampling that may miss a process before it is taken for gone."""
CPU_FALL_S = 0.05
"""A cumulative CPU time that falls by more is another process's."""


def of_run(usage: pd.DataFrame, window: Window) -> list[str]:
    """A line for each, in the order of time; `usage`: record.USAGE_COLUMNS of one run, all roles."""
    if usage.empty:
        return []
    order = np.lexsort((usage["time_unix_s"], usage["pid"]))
    pids, times, cpu_s = (usage[column].to_numpy()[order] for column in ("pid", "time_unix_s", "cpu_s"))
    is_server = (usage["role"] == "server").to_numpy()[order]
    if not is_server.any():
        return []
    start, end = float(window.start_unix_s), float(window.end_unix_s)
    # All roles are sampled together, so these passes show when somebody looked, even where no server was left.
    first_look, last_look = float(times.min()), float(times.max())
    gaps = np.diff(times)[np.diff(pids) == 0]
    patience = PASSES_MISSED * (float(np.median(gaps)) if len(gaps) else 1.0)
    found: list[tuple[float, str]] = []
    for pid in np.unique(pids[is_server]):
        own = np.flatnonzero(is_server & (pids == pid))
        name = usage["name"].iloc[order[own[0]]]
        began, ended = float(times[own[0]]), float(times[own[-1]])
        if began > first_look + patience and start <= began < end:
            found.append((began, f"{name}, process {pid}, first seen {began - start:.1f} s into steady state"))
        if ended < min(last_look, end) - patience and start <= ended:
            found.append((ended, f"{name}, process {pid}, last seen {ended - start:.1f} s into steady state"))
        after = times[own[1:]]
        fell = after[(np.diff(cpu_s[own]) < -CPU_FALL_S) & (after >= start) & (after < end)]
        found += [(t, f"{name}, process {pid}, is another one from {t - start:.1f} s into steady state") for t in fell]
    return [line for _, line in sorted(found)]
