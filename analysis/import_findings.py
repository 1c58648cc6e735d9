"""Checks of summaries that another tool wrote. Rows of validity.CHECKS, as those that stand there."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from analysis.findings import SUBJECTS, Case, Finding, Severity
from analysis.load import GENERATOR, IN_THE_LOCUSTFILE, LOCUSTFILE
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


def failures_at_least(case: Case, most: float) -> Iterator[Finding]:
    """The finding `failures` of summaries that do not say whether their requests hold the failures.

    Before Locust 0.12 they do not, so of requests + failures at least this share failed. `most`: what is no finding.
    """
    over = {treatment: _least_failed(case, treatment, most) for treatment in case.experiment.treatments}
    for severity in Severity:
        touched = [key for key, lines in over.items() if lines and case.severity(key) is severity]
        if touched:
            yield Finding(
                "failures",
                severity,
                f"With {' and with '.join(case.label(key) for key in touched[:3])}"
                f"{f' and {len(touched) - 3} more' if len(touched) > 3 else ''}, more than {100 * most:.3g} % of the "
                "responses are failures.",
                tuple(f"{case.label(key)}: {line}" for key in touched for line in over[key]),
                f"{100 * most:.3g} % failures, whether the summary's requests hold them or not",
                "Find their cause first: response times of those that succeed tell little when others fail.",
                tuple(touched),
                SUBJECTS - {"success_ratio"},
            )


def _least_failed(case: Case, treatment: str, most: float) -> list[str]:
    if not case.experiment.imported:
        return []
    rows = case.by_treatment[case.by_treatment["treatment"] == treatment]
    found = {(r["endpoint"], r["metric"]): r for r in rows.to_dict("records")}
    failed = case.experiment.failed
    failed = failed[
        failed["run"].isin(case.experiment.complete_runs(treatment)) & (failed["endpoint"] != IN_THE_LOCUSTFILE)
    ]
    lines = []
    for endpoint in sorted(dict.fromkeys(rows["endpoint"]), key=lambda name: name != ALL_REQUESTS):
        count, mean = found.get((endpoint, "count")), found.get((endpoint, "mean"))
        if count is None or mean is None or not pd.isna(count["value"]) or pd.isna(mean["value"]):
            continue
        own = failed if endpoint == ALL_REQUESTS else failed[failed["endpoint"] == endpoint]
        failures, requests = int(own["count"].sum()), int(mean["samples"])
        if failures > most * (requests + failures):
            share = 100 * failures / (requests + failures)
            lines.append(f"{endpoint}: {failures:,} failures beside {requests:,} requests, at least {share:.3g} %")
    return lines


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
