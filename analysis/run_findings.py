"""Checks of what happened within and around single runs. Rows of validity.CHECKS, as those that stand there."""

from __future__ import annotations

from collections.abc import Iterator

from analysis.findings import Case, Finding, Severity


def runs_repeated(case: Case) -> Iterator[Finding]:
    """Attempts that failed and were done again; the run that counts is the first complete one."""
    repeated = case.experiment.repeated
    runs = sorted({attempt.run for attempt in repeated})
    if repeated:
        yield Finding(
            "runs_repeated",
            Severity.NOTE,
            f"{len(runs)} {'run' if len(runs) == 1 else 'runs'} failed and {'was' if len(runs) == 1 else 'were'} "
            "repeated.",
            tuple(f"{case.run_label(a.run)}, {a.folder}: {a.reason}" for a in repeated),
            "none; the first complete attempt counts, and is not measured side by side with its block",
            "Read the reasons: failures of one treatment alone are a result too.",
            case.treatments_of(runs),
        )
