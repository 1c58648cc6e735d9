"""Checks of whether the runs are what they should be: measurements of their own, of the same traffic on both sides.

Rows of validity.CHECKS, as those that stand there.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import pandas as pd

from analysis import pairing
from analysis.comparison import Comparison
from analysis.findings import Case, Finding, Severity
from analysis.fingerprints import Fingerprint
from analysis.metrics import ALL_REQUESTS
from analysis.record import STEADY_STATE, RunRecord
from analysis.server_counts import BALANCER, Answers

LEAST_VARIED = 100
"""Responses beside the commonest kind: from here on two runs do not look the same by chance."""
LEAST_CUT = 1_000
"""Requests of a summary whose times are whole milliseconds, as Locust wrote them up to 1.0: the same for these."""
MOST_COMBINATIONS = 10_000
"""Of levels, that are looked for in the plan one by one."""
MOST_MIX_APART = 0.05
STANDARD_ERRORS = 4
LEAST_EXPECTED = 10
"""Requests that the other side's share lets expect, where an endpoint has none."""
MOST_NAMED = 6
TRAFFIC = ("options.", "dataset.", "load.")
"""Factors that may change by design which requests are made."""

Part = tuple[int, Fingerprint]


def runs_copied(case: Case) -> Iterator[Finding]:
    """Response times that are there twice: the replicates are not independent of each other."""
    by_digest: dict[int, list[Part]] = {}
    for run in case.experiment.complete_runs():
        for found in case.experiment.fingerprints.get(run, _of_summary(case, run)):
            if found.responses:
                by_digest.setdefault(found.digest, []).append((run, found))
    copies: dict[tuple[int, ...], list[str]] = {}
    for parts in by_digest.values():
        same = [part for part in parts if any(_is_copy(part, other) for other in parts if other is not part)]
        if same:
            runs = tuple(sorted({run for run, _ in same}))
            copies.setdefault(runs, []).extend(found.part.replace(STEADY_STATE, "steady state") for _, found in same)
    imported = case.experiment.imported
    for severity in Severity:
        chosen = {runs: parts for runs, parts in copies.items() if case.worst(case.treatments_of(runs)) is severity}
        if chosen:
            every = sorted({run for runs in chosen for run in runs})
            yield Finding(
                "runs_copied",
                severity,
                f"The {'numbers' if imported else 'response times'} of {len(every)} "
                f"{'run' if len(every) == 1 else 'runs'} are copies: they are no measurements of their own.",
                tuple(f"{_and(case.run_label(run) for run in runs)}: the same {_and(dict.fromkeys(parts))}"
                      for runs, parts in chosen.items()),
                f"no two alike in every number; of whole milliseconds, from {LEAST_CUT:,} requests on"
                if imported
                else f"no two alike, where {LEAST_VARIED} responses or more are not of the commonest kind",
                "Import the files that each run wrote itself, and each run once."
                if imported
                else "Repeat these runs: remove their folders and `python -m harness run --resume FOLDER`.",
                case.treatments_of(every),
            )  # fmt: skip


def _of_summary(case: Case, run: int) -> tuple[Fingerprint, ...]:
    """Of all numbers that another tool reported of a run.

    A mean in full precision is hardly ever the same twice. Whole milliseconds of a steady server may well be.
    """
    rows = case.experiment.reported[case.experiment.reported["run"] == run].drop(columns="run")
    if rows.empty:
        return ()
    text = rows.sort_values(["endpoint", "metric"]).to_csv(index=False)
    samples = int(rows["samples"].max())
    times = rows.loc[rows["metric"].isin(["min", "mean", "max"]), "value"].dropna()
    is_cut = bool((times.round() == times).all())
    varied = LEAST_VARIED if not is_cut or samples >= LEAST_CUT else 0
    digest = hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).digest()
    return (Fingerprint("summary", int.from_bytes(digest), run, samples, varied),)


def _is_copy(part: Part, other: Part) -> bool:
    """Equal digests that are not equal by chance. Of other runs the seconds, too, tell: they never share one."""
    (run, found), (other_run, other_found) = part, other
    at_one_time = run != other_run and found.start_unix_s == other_found.start_unix_s
    return at_one_time or min(found.varied, other_found.varied) >= LEAST_VARIED


def runs_overlap(case: Case) -> Iterator[Finding]:
    """Runs at the same time: the harness does them one after another."""
    spans = sorted((*_span(record), record.number) for record in case.complete_records if record.windows)
    pairs = []
    latest = spans[:1]
    for span in spans[1:]:
        if span[0] < latest[0][1]:
            pairs.append((latest[0], span))
        latest = [max(latest[0], span, key=lambda s: s[1])]
    for severity in Severity:
        chosen = [(a, b) for a, b in pairs if case.worst(case.treatments_of([a[2], b[2]])) is severity]
        if chosen:
            runs = sorted({span[2] for pair in chosen for span in pair})
            yield Finding(
                "runs_overlap",
                severity,
                f"{len(runs)} runs are said to have happened at the same time, and so to have disturbed each other, "
                "or their times are not true.",
                tuple(f"{case.run_label(a[2])} and {case.run_label(b[2])}: {min(a[1], b[1]) - b[0]:g} s in common"
                      for a, b in chosen),
                "one run after another, each from the beginning of its warm-up to the end of its steady state",
                "Repeat these runs; look for a clock that was set, or for files that were copied or edited.",
                case.treatments_of(runs),
            )  # fmt: skip


def _span(record: RunRecord) -> tuple[float, float]:
    """From the first window's start to the last one's end; a budget began and ended within a second."""
    windows = record.windows.values()
    start, end = min(w.start_unix_s for w in windows), max(w.end_unix_s for w in windows)
    inside = STEADY_STATE in record.windows and record.windows[STEADY_STATE].measured_s is not None
    return (start + 1, end - 1) if inside else (start, end)


def plan_edited(case: Case) -> Iterator[Finding]:
    """A plan that is not every combination of the levels as often as there are replicates.

    So the harness writes it. Whoever takes runs out, folder and row, leaves no other trace of them.
    """
    record = case.experiment.record
    if case.experiment.imported:
        return
    planned = Counter(pairing.key(run.treatment) for run in record.plan)
    known = {pairing.key(run.treatment): run.treatment for run in record.plan}
    combinations = math.prod(len(levels) for levels in record.factors.values())
    declared = set(known)
    if combinations <= MOST_COMBINATIONS:
        products = itertools.product(*record.factors.values())
        every = (dict(zip(record.factors, levels, strict=True)) for levels in products)
        by_key = {pairing.key(treatment): treatment for treatment in every}
        declared, known = set(by_key), {**by_key, **known}
    wrong = {
        key: f"{planned[key]} {'run' if planned[key] == 1 else 'runs'} in the plan, "
        + (f"and {record.replicates} declared" if key in declared else "and no level of the factors")
        for key in known
        if planned[key] != record.replicates or key not in declared
    }
    evidence = [f"{pairing.label(known[key], pairing.short_names(record.factors))}: {wrong[key]}" for key in wrong]
    if len(known) < combinations:
        evidence.append(f"{len(known):,} of {combinations:,} combinations of levels are in the plan")
    if evidence:
        touched = tuple(key for key in wrong if planned[key])
        yield Finding(
            "plan_edited",
            case.worst(touched),
            "The plan does not hold what its factors and replicates declare: runs were taken out of it, or put in.",
            tuple(evidence),
            "every combination of the factors' levels, `replicates` times",
            "Report the result as the harness wrote it: which runs count is not to be chosen afterwards.",
            touched,
        )


def server_counts_differ(case: Case) -> Iterator[Finding]:
    """Runs whose answers are not as many by the server's own log as by the load generator, status by status."""
    lossy = {record.number for record in case.complete_records if record.lost_workers}
    known = {run: found for run, found in case.experiment.answers.items() if run not in lossy}
    apart = {run: found for run, found in known.items() if found.disagree}
    if apart:
        touched = case.treatments_of(apart)
        yield Finding(
            "server_counts_differ",
            case.worst(touched),
            f"In {len(apart)} of {len(known)} runs the {BALANCER}'s own log and the load generator count different "
            "answers.",
            tuple(f"{case.run_label(run)}: {_counts(found)}" for run, found in apart.items()),
            "equal for each status over the whole run; an answer that is in the log alone is explained by a request of "
            "which the generator saw none",
            "Look for other clients of this server, a full disk, or files of another run in the run's folder.",
            touched,
        )


def _counts(found: Answers) -> str:
    counts = [f"{status}: {generator:,} seen, {server:,} logged" for status, (generator, server) in found.apart.items()]
    return f"{'; '.join(counts)}; {found.unanswered:,} without an answer"


def traffic_differs(case: Case) -> Iterator[Finding]:
    """Sides whose requests are of another kind or mix, so that "all requests" are not the same on both."""
    by_treatment = responses_by_endpoint(case.by_run)
    found: dict[Severity, list[tuple[tuple[str, str], list[str]]]] = {}
    for comparison in case.comparisons:
        sides = [by_treatment.get(key) for key in comparison.keys]
        if comparison.verdict is None or sides[0] is None or sides[1] is None:
            continue
        labels = [case.label(key) for key in comparison.keys]
        if lines := list(mix_differences(sides[0], sides[1], labels)):
            found.setdefault(_severity(comparison), []).append((comparison.keys, lines))
    for severity, compared in sorted(found.items(), key=lambda item: item[0] is not Severity.SEVERE):
        yield Finding(
            "traffic_differs",
            severity,
            "The two sides were not asked the same: the endpoints, or their shares of the requests, differ.",
            tuple(line for _, lines in compared for line in lines),
            f"the same endpoints, shares within {100 * MOST_MIX_APART:g} points or {STANDARD_ERRORS} standard errors",
            "Compare endpoint by endpoint: numbers of all requests together are of another mix on each side.",
            tuple(dict.fromkeys(key for keys, _ in compared for key in keys)),
        )


def responses_by_endpoint(by_run: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Responses by the treatment's key, from metrics.by_run(): a row a run, a column an endpoint."""
    counts = by_run[(by_run["metric"] == "count") & (by_run["endpoint"] != ALL_REQUESTS)]
    return {
        str(treatment): rows.pivot_table(index="run", columns="endpoint", values="value", aggfunc="sum", fill_value=0.0)
        for treatment, rows in counts.groupby("treatment", sort=False)
    }


def mix_differences(one: pd.DataFrame, other: pd.DataFrame, labels: Sequence[str]) -> Iterator[str]:
    """A line for each endpoint whose share differs between two of responses_by_endpoint(), called by `labels`."""
    totals = [float(side.to_numpy().sum()) for side in (one, other)]
    if not all(totals):
        return
    for endpoint in sorted({*one.columns, *other.columns}):
        shares = [float(side[endpoint].sum()) / n if endpoint in side else 0.0
                  for side, n in zip((one, other), totals, strict=True)]  # fmt: skip
        absent = min(shares) == 0 and max(shares) * totals[shares.index(0.0)] >= LEAST_EXPECTED
        apart = abs(shares[0] - shares[1])
        if absent or apart > max(MOST_MIX_APART, STANDARD_ERRORS * _standard_error(endpoint, one, other)):
            texts = [f"{100 * share:.3g} % with {label}" for share, label in zip(shares, labels, strict=True)]
            yield f"{endpoint}: {' and '.join(texts)} of the requests"


def _standard_error(endpoint: str, one: pd.DataFrame, other: pd.DataFrame) -> float:
    """Of the difference of two shares: as of independent requests, or as the runs show it, whichever is larger."""
    totals = [float(side.to_numpy().sum()) for side in (one, other)]
    columns = [side[endpoint] if endpoint in side else side.iloc[:, 0] * 0 for side in (one, other)]
    share = sum(float(column.sum()) for column in columns) / sum(totals)
    of_requests = math.sqrt(share * (1 - share) * sum(1 / n for n in totals))
    by_run = [column / side.sum(axis=1) for column, side in zip(columns, (one, other), strict=True)]
    of_runs = math.sqrt(sum(float(shares.var()) / len(shares) for shares in by_run if len(shares) > 1))
    return max(of_requests, of_runs if math.isfinite(of_runs) else 0.0)


def _severity(comparison: Comparison) -> Severity:
    """What a factor changes by design is told all the same, as it is the answer's other half."""
    baseline, treatment = comparison.pair.baseline, comparison.pair.treatment
    differing = [path for path, level in treatment.items() if baseline.get(path) != level]
    by_design = any(path.startswith(TRAFFIC) or path == "workload" for path in differing)
    return Severity.NOTE if by_design else Severity.SEVERE


def _and(texts: Iterable[str]) -> str:
    """a, b and c; of many the first six."""
    listed = list(texts)
    listed = listed if len(listed) <= MOST_NAMED else [*listed[:MOST_NAMED], f"{len(listed) - MOST_NAMED} more"]
    return " and ".join(filter(None, (", ".join(listed[:-1]), listed[-1])))
