"""The gate: one experiment's objectives and the command line's rules, to one outcome. Reads folders, writes nothing."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from analysis import comparability, decide, evidence_findings, exports, load, objective_table, objectives, rules
from analysis.decide import Analysis
from analysis.findings import Finding, Severity
from analysis.objectives import Judgement, Outcome
from analysis.record import RecordError


@dataclasses.dataclass(frozen=True, eq=False)
class Gate:
    """What the gate looked at, and what came out."""

    analysis: Analysis
    baseline: Analysis | None
    judgements: list[Judgement]
    doubts: list[Finding]
    """Severe findings of either experiment, and of the two beside each other."""
    remarks: list[str]
    """How the two folders differ beyond what makes a comparison impossible."""

    @property
    def weighty(self) -> list[Finding]:
        """The doubts that leave nothing to judge; one about some metrics makes but the rules about these invalid."""
        return [finding for finding in self.doubts if finding.metrics is None or not self.judgements]

    @property
    def outcome(self) -> Outcome:
        """Invalid before fail, that before inconclusive, that before pass."""
        sides = [self.analysis, *([self.baseline] if self.baseline else [])]
        if self.weighty or not all(objectives.all_complete(side) for side in sides):
            return Outcome.INVALID
        return objectives.worst(self.judgements)


def _unheard(done: int, of: int) -> None:
    pass


def judge(folder: Path, baseline: Path | None, texts: Sequence[str], runs_read: load.Progress = _unheard) -> Gate:
    """Judge a folder's own objectives and the rules in `texts`; `runs_read` is told of each run that is read.

    Raises RecordError for a folder that is no result, RuleError for a text that is no rule.
    """
    for text in texts:
        rules.parse(text)  # before anything is read, which takes longer
    if baseline is not None and baseline.resolve() == folder.resolve():
        raise RecordError(f"{baseline}: the baseline is the folder itself; name an earlier result.")
    analysis = _analyse(folder, texts, runs_read)
    other = None if baseline is None else _analyse(baseline, texts, runs_read)
    apart = [] if other is None else _differences(analysis, other)
    return Gate(
        analysis,
        other,
        objectives.judge(analysis, other),
        [*analysis.severe, *(other.severe if other else []), *_impossible(apart)],
        [
            *_of_imported(side for side in (analysis, other) if side is not None),
            *(f"the two folders differ in {difference}" for difference, forbids in apart if not forbids),
        ],
    )


def junit_xml(gate: Gate) -> str:
    """The outcome as JUnit XML."""
    return exports.junit_xml([exports.suite(gate.analysis, gate.judgements, gate.weighty)])


def lines(gate: Gate) -> Iterator[str]:
    """What the command prints; the outcome stands last."""
    for finding in gate.doubts:
        yield f"severe: {finding.message} Next: {finding.next_action}"
    for remark in gate.remarks:
        yield f"note: {remark}"
    for judgement in gate.judgements:
        yield objective_table.line(judgement, gate.analysis.names)
    complete, planned = len(gate.analysis.experiment.complete_runs()), len(gate.analysis.experiment.runs)
    yield f"{gate.outcome.value}: {complete} of {planned} planned runs complete{_counts(gate.judgements)}"


def _counts(judgements: Sequence[Judgement]) -> str:
    if not judgements:
        return ""
    held = [objectives.worst(j for j in judgements if j.rule == rule) for rule in {j.rule for j in judgements}]
    words = [f"{held.count(outcome)} {outcome.value}" for outcome in Outcome if outcome in held]
    return f"; of {len(held)} objective{'s' * (len(held) > 1)} {', '.join(words)}"


def _analyse(folder: Path, texts: Sequence[str], runs_read: load.Progress) -> Analysis:
    """With the rules as further objectives, because a finding weighs as much as what is decided with it."""
    if not folder.is_dir():
        raise RecordError(f"{folder}: no such folder. The gate judges result folders of `python -m harness run`.")
    experiment = load.load_experiment(folder, runs_read, os.cpu_count() or 1)
    named = list(dict.fromkeys([*experiment.record.objectives, *(rules.parse(text).text for text in texts)]))
    return decide.analyse(
        dataclasses.replace(experiment, record=dataclasses.replace(experiment.record, objectives=named))
    )


def _of_imported(sides: Iterable[Analysis]) -> list[str]:
    if not any(side.experiment.imported for side in sides):
        return []
    return [
        "imported runs are judged by the numbers that their tool reported: of the whole run, warm-up included; Locust "
        "rounds its percentiles"
    ]


# --- two folders ---------------------------------------------------------------------------------------------------

MACHINE = frozenset({"machine", "cpu_model", "cpus", "usable_cpus", "cpu"})
"""Of the environment: another one is another machine. Its name is not, as runners of CI have a new one each time."""
LOAD = ("workload", "load", "options", "dataset")
"""Held constant: another one is another question."""


def _differences(one: Analysis, other: Analysis) -> list[tuple[str, bool]]:
    """(what differs between the experiments, whether that forbids to compare them)."""
    here, there = _facts(one), _facts(other)
    responses, others = (evidence_findings.responses_by_endpoint(side.by_run) for side in (one, other))
    traffic = [
        (line, True)
        for key in responses
        if key in others
        for line in evidence_findings.mix_differences(responses[key], others[key], ("the folder", "--baseline"))
    ]
    return traffic + [
        (f"{path}: {here.get(path)} against {there.get(path)}", _forbids(path))
        for path in dict.fromkeys([*here, *there])
        if here.get(path) != there.get(path)
    ]


def _facts(analysis: Analysis) -> dict[str, object]:
    """The environment of the first complete run, passing states apart, and what the experiment holds constant."""
    records = [analysis.experiment.records.get(run) for run in analysis.experiment.complete_runs()[:1]]
    environment = {
        path: value
        for record in records
        if record is not None
        for path, value in comparability.flatten(record.environment, "environment").items()
        if not comparability.passes_by_itself(path)
    }
    record = analysis.experiment.record
    timing = {f"timing.{name}": value for name, value in record.timing.items()}
    return environment | record.held_constant | timing | {"replicates": record.replicates}


def _forbids(path: str) -> bool:
    parts = path.split(".")
    return parts[0] in LOAD or (parts[0] == "environment" and len(parts) > 1 and parts[1] in MACHINE)


def _impossible(differences: Sequence[tuple[str, bool]]) -> list[Finding]:
    found = tuple(text for text, forbids in differences if forbids)
    if not found:
        return []
    return [
        Finding(
            "baseline_differs",
            Severity.SEVERE,
            "The folder of --baseline was measured on another machine, or with another load or mix of requests: "
            f"{'; '.join(found[:3])}"
            f"{' and more' if len(found) > 3 else ''}.",
            found,
            "equal machine, workload, load, options, dataset and mix of requests",
            "Measure the baseline anew, here, with the same experiment file.",
        )
    ]
