"""Warm-up and steady state of a run in Unix time, from what the processes of its load generator recorded. Pure."""

from __future__ import annotations

from collections.abc import Collection

from analysis.record import ProcessRecord, Window
from harness.load import LoadError


def steady_state_start(records: list[ProcessRecord], warm_up_s: float) -> int | None:
    """Unix second in which windows() lets the steady state begin; None while a process has not all its users yet."""
    spawned = [r.spawning_complete_unix_s for r in records if r.spawning_complete_unix_s is not None]
    return _ceil(max(spawned) + warm_up_s) if spawned and len(spawned) == len(records) else None


def budget_start(records: list[ProcessRecord]) -> float | None:
    """Unix time at which budget_windows() lets the steady state begin; None while a process lacks users."""
    begun = [r.spawning_complete_unix_s for r in records if r.spawning_complete_unix_s is not None]
    return min(begun) if begun and len(begun) == len(records) else None


def windows(
    records: list[ProcessRecord], warm_up_s: float, steady_state_s: float, lost: Collection[str] = ()
) -> dict[str, Window]:
    """Warm-up and steady state of a run in whole Unix seconds, from what its processes recorded.

    The steady state begins with the first whole second that is warm_up_s after the last process had all its users.
    It is whole where the processes that were not `lost` went on until its end.
    Raises LoadError where the load ended before the steady state did.
    """
    begun = [r.test_start_unix_s for r in records if r.test_start_unix_s is not None]
    start = steady_state_start(records, warm_up_s)
    if start is None or len(begun) < len(records):
        raise LoadError("a Locust process never had all its users running")
    end = start + int(steady_state_s)
    left = [r for r in records if r.process not in lost]
    stopped = [r.test_stop_unix_s for r in left if r.test_stop_unix_s is not None]
    if not left or len(stopped) < len(left):
        raise LoadError(f"{'a' if left else 'every'} Locust process was lost before the end of the run")
    if min(stopped) < end:
        raise LoadError(
            f"the load ended {end - min(stopped):.1f} s before the steady state did: starting the users took too long"
        )
    return {"warm_up": Window(int(min(begun)), start), "steady_state": Window(start, end)}


def budget_windows(records: list[ProcessRecord]) -> dict[str, Window]:
    """Steady state of a run with a budget: from when all users were there, and the load began, to the last one's end.

    Raises LoadError where a process was lost.
    """
    start = budget_start(records)
    stopped = [r.test_stop_unix_s for r in records if r.test_stop_unix_s is not None]
    if start is None or len(stopped) < len(records):
        raise LoadError("a Locust process was lost before the end of the run")
    end = max(stopped)
    return {"steady_state": Window(int(start), _ceil(end), round(end - start, 3), round(start, 3))}


def _ceil(value: float) -> int:
    return int(value) + (value > int(value))
