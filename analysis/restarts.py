"""Processes of the server that end or begin within steady state, as the usage samples show them. Pure."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from analysis.record import RunRecord, Window

PASSES_MISSED = 2.5
"""Passes of sampling that may miss a process before it is taken for gone."""
CPU_FALL_S = 0.05
"""A cumulative CPU time that falls by more is another process's, and one that never reaches it is no server's."""


def killed(run: RunRecord) -> dict[str, float]:
    """Name of the started process to the Unix time at which an event of the experiment killed it."""
    done = [event for event in run.events if event.get("action") == "kill" and event.get("unix_s") is not None]
    return {str(event["process"]): float(event["unix_s"]) for event in done}


def of_run(usage: pd.DataFrame, window: Window, killed: Mapping[str, float]) -> list[str]:
    """A line for each, in the order of time; `usage`: record.USAGE_COLUMNS of one run, all roles.

    Left out are processes of a part from when it was `killed` on purpose, and those that one pass of sampling saw and
    that took no CPU time to speak of: jobs beside the service, such as PostgreSQL's autovacuum workers. They replaced
    nobody, for the end of a process that was there before is seen by itself.
    """
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
        name, part = (usage[column].iloc[order[own[0]]] for column in ("name", "part"))
        began, ended = float(times[own[0]]), float(times[own[-1]])
        if len(own) == 1 and cpu_s[own[0]] < CPU_FALL_S and first_look + patience < began < last_look - patience:
            continue
        if began > first_look + patience and start <= began < end:
            found.append((began, f"{name}, process {pid}, first seen {began - start:.1f} s into steady state"))
        planned = part in killed and ended >= killed[part] - patience
        if ended < min(last_look, end) - patience and start <= ended and not planned:
            found.append((ended, f"{name}, process {pid}, last seen {ended - start:.1f} s into steady state"))
        after = times[own[1:]]
        fell = after[(np.diff(cpu_s[own]) < -CPU_FALL_S) & (after >= start) & (after < end)]
        found += [(t, f"{name}, process {pid}, is another one from {t - start:.1f} s into steady state") for t in fell]
    return [line for _, line in sorted(found)]
