"""Checks of the machine that everything ran on. Rows of validity.CHECKS, as those that stand there."""

from __future__ import annotations

from collections.abc import Iterator

from analysis.findings import Case, Finding, Severity, of_runs
from analysis.machine import MachineUse, use

MOST_SWAPPED = 2**20
"""Bytes a second: a server that is read back from swap at this rate waits for the disk in most of its requests."""
MOST_THROTTLED = 0.01
MOST_FOREIGN = 0.1


def swapped(case: Case) -> Iterator[Finding]:
    """The machine swapped within steady state; severe where it was so much that the server must have waited."""
    moved = {run: (u.swapped_bytes, u.window_s) for run, u in _used(case).items() if u.swapped_bytes}
    yield from of_runs(
        case,
        "swapped",
        {run: f"{size / 2**20:,.1f} MiB in {window_s:g} s" for run, (size, window_s) in moved.items()},
        lambda run: _severity(case, run, moved[run][0] > MOST_SWAPPED * moved[run][1]),
        "The machine swapped within steady state in {n}: what waits for memory from a disk is no property of a "
        "configuration.",
        f"any, by the counters of the whole machine; severe above {MOST_SWAPPED / 2**20:.0f} MiB/s",
        "Give the machine more memory, or run less on it.",
    )


def throttled(case: Case) -> Iterator[Finding]:
    """A quota held processes back within steady state, those of the server or of the load generator."""
    held = {run: (u.throttled_s, u.window_s) for run, u in _used(case).items() if u.throttled_s}
    yield from of_runs(
        case,
        "throttled",
        {run: f"held back for {time_s:.2f} s in {window_s:g} s" for run, (time_s, window_s) in held.items()},
        lambda run: _severity(case, run, held[run][0] > MOST_THROTTLED * held[run][1]),
        "A CPU quota (a control group's, as containers have) held processes back in {n}.",
        f"any; severe above {MOST_THROTTLED:.0%} of steady state",
        "Lift the quota, or make it a part of the question.",
    )


def machine_busy(case: Case) -> Iterator[Finding]:
    """Others took processors meanwhile. A note: repeated and in random order, they show as noise, not as an effect."""
    yield from of_runs(
        case,
        "machine_busy",
        {run: text for run, used in _used(case).items() if (text := _foreign(case, run, used))},
        lambda run: Severity.NOTE,
        "Other processes, or a hypervisor's other guests, took a good part of the machine in {n}.",
        f"{MOST_FOREIGN:.0%} of all processors' time within steady state",
        "Stop what else runs there; look whether the noise from run to run is small all the same.",
    )


def _severity(case: Case, run: int, is_much: bool) -> Severity:
    return case.severity(case.treatments_of([run])[0]) if is_much else Severity.NOTE


def _foreign(case: Case, run: int, used: MachineUse) -> str | None:
    """How much others took, where it is too much; None where it is not, or is unknown."""
    seen = case.seen(run)
    processors = case.experiment.records[run].environment.get("cpus")
    if isinstance(processors, bool) or not isinstance(processors, int) or processors < 1:
        return None
    parts = {"by the hypervisor": used.stolen_s}
    if used.busy_s is not None and seen.server and seen.generator:
        rates = sum(role.cpu_s / role.covered_s for role in (seen.server, seen.generator))
        parts["by other processes"] = used.busy_s - rates * used.window_s - (used.harness_s or 0.0)
    shares = {name: (taken or 0.0) / (processors * used.window_s) for name, taken in parts.items()}
    if sum(max(share, 0.0) for share in shares.values()) <= MOST_FOREIGN:
        return None
    return ", ".join(f"{share:.0%} {name}" for name, share in shares.items() if share >= 0.005)


def _used(case: Case) -> dict[int, MachineUse]:
    """By complete run, those whose machine file spans steady state."""
    rows, runs = case.experiment.machine, case.experiment.runs
    complete = runs[runs["run"].isin(case.experiment.complete_runs())]
    columns = (complete[name] for name in ("run", "start_unix_s", "end_unix_s"))
    windows = {int(run): (float(start), float(end)) for run, start, end in zip(*columns, strict=True)}
    parts = {int(str(run)): part for run, part in rows.groupby("run")}
    found = {run: use(part, *windows[run]) for run, part in parts.items() if run in windows}
    return {run: used for run, used in found.items() if used is not None}
