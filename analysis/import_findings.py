"""Checks of summaries that another tool wrote. Rows of validity.CHECKS, as those that stand there."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from analysis.findings import Case, Finding, Severity
from analysis.load import GENERATOR, LOCUSTFILE
from analysis.metrics import ALL_REQUESTS

MOST_OWN_FAILURES = 0.01


def imported_with_oddities(case: Case) -> Iterator[Finding]:
    """What in the imported files is not as their tool writes it; nothing of it was repaired."""
    for loses_data in (True, False):
        odd = [o for o in case.experiment.oddities if o.loses_data is loses_data and case.experiment.imported]
        touched = case.treatments_of([o.run for o in odd if o.run is not None])
        if odd:
            counted = "1 oddity" if len(odd) == 1 else f"{len(odd)} oddities"
            yield Finding(
                "imported_with_oddities",
                case.worst(touched) if loses_data else Severity.NOTE,
                f"The imported files hold {counted}{' that numbers are lost or doubtful by' if loses_data else ''}.",
                tuple(f"{case.run_label(o.run)}, {o.file}: {o.what}" for o in odd if o.run is not None),
                "every line whole, a total that its rows add up to, no number that contradicts another",
                "Import the files that Locust wrote, unchanged, or repeat the run." if loses_data
                else "Read them: what they name is left out or shown as said, and nothing was repaired.",
                touched,
            )  # fmt: skip


def generator_failures(case: Case) -> Iterator[Finding]:
    """Failures that the load generator's machine made by itself; the server never saw those requests."""
    yield from _of_kind(
        case,
        "generator_failures",
        GENERATOR,
        "failures of the load generator's own: out of files, ports, memory or threads, or users that were killed",
        "Raise the limit (ulimit -n, net.ipv4.ip_local_port_range), use fewer users a process, or more machines.",
    )


def locustfile_failures(case: Case) -> Iterator[Finding]:
    """Failures that the locustfile declared, and exceptions in it."""
    yield from _of_kind(
        case,
        "locustfile_failures",
        LOCUSTFILE,
        "failures that the locustfile declared, or exceptions in it",
        "Judge by the locustfile whether the server answered wrongly, or the locustfile is wrong.",
    )


def _of_kind(case: Case, name: str, kind: str, what: str, next_action: str) -> Iterator[Finding]:
    rows = case.experiment.failed
    rows = rows[(rows["kind"] == kind) & rows["run"].isin(case.experiment.complete_runs())]
    if rows.empty:
        return
    touched = case.treatments_of(rows["run"])
    severe = kind == GENERATOR and any(_is_much(case, treatment, rows) for treatment in touched)
    counts = rows.groupby(["run", "outcome"], sort=False)["count"].sum().reset_index()
    yield Finding(
        name,
        case.worst(touched) if severe else Severity.NOTE,
        f"{int(rows['count'].sum()):,} {what}.",
        tuple(f"{case.run_label(r['run'])}: {r['outcome']}: {r['count']:,}" for r in counts.to_dict("records")),
        f"{100 * MOST_OWN_FAILURES:g} % of the responses" if kind == GENERATOR else "none; they are told apart",
        next_action,
        touched,
    )


def _is_much(case: Case, treatment: str, rows: pd.DataFrame) -> bool:
    """Whether more of a treatment's responses than MOST_OWN_FAILURES are such; also where it is unknown how many."""
    own = rows[rows["run"].isin(case.experiment.complete_runs(treatment))]["count"].sum()
    seen = case.by_treatment
    seen = seen[(seen["treatment"] == treatment) & (seen["metric"] == "count") & (seen["endpoint"] == ALL_REQUESTS)]
    responses = float(seen["value"].iloc[0]) if len(seen) else float("nan")
    return not own <= MOST_OWN_FAILURES * responses
