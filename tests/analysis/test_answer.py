from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from analysis import answer, compare, decide, load, method
from analysis.compare import Verdict
from tests.analysis.synthetic import PROCESSES, USERS

Make = Callable[..., Path]
ONE_SWEEP = {PROCESSES: [1, 2], USERS: [16]}


def answers(folder: Path) -> list[tuple[Verdict | None, str]]:
    return answer.answers(decide.analyse(load.load_experiment(folder)))


def test_faster_names_levels_ratio_values_and_interval(demo_analysis: decide.Analysis) -> None:
    assert answer.answers(demo_analysis) == [
        (
            Verdict.FASTER,
            "With processes = 2, throughput at users = 16 was 1.574 times that with processes = 1 (medians of "
            "4 against 4 runs of 6 s: 97.2 against 62.0 "
            "responses/s; 95 % interval of the ratio 1.548 to 1.625): the whole interval lies above 1.",
        )
    ]


def test_a_response_time_that_falls_is_faster(make: Make) -> None:
    ((verdict, sentence),) = answers(make(factors=ONE_SWEEP, primary={"metric": "p95", "at": {}}))
    assert verdict is Verdict.FASTER
    assert "the whole interval lies below 1" in sentence


def test_a_throughput_that_falls_is_slower(make: Make) -> None:
    ((verdict, _),) = answers(make(factors=ONE_SWEEP, rate=lambda t: 100.0 / t[PROCESSES]))
    assert verdict is Verdict.SLOWER


def test_same_prints_the_difference_all_the_same(make: Make) -> None:
    ((verdict, sentence),) = answers(
        make(factors=ONE_SWEEP, rate=lambda t: 60.0, noise=0.002, replicates=6, steady_s=30)
    )
    assert verdict is Verdict.SAME
    assert "times that with processes = 1" in sentence
    assert sentence.endswith("the whole interval lies within the margin of ±5 %.")


def test_inconclusive_says_what_would_decide(make: Make) -> None:
    ((verdict, sentence),) = answers(make(factors=ONE_SWEEP, rate=lambda t: 60.0 + t[PROCESSES], noise=0.08, seed=3))
    assert verdict is Verdict.INCONCLUSIVE
    assert "The interval includes 1 and reaches beyond the margin of ±5 %. At the noise seen (" in sentence
    assert "replicates a side would show a difference of this size, and " in sentence


@pytest.mark.parametrize(
    ("levels", "replicates", "expected"),
    [
        ([1, 2], 3, "With 3 against 3 runs no interval exists: for one comparison it takes 4 replicates a side."),
        ([1, 2, 4], 4, "With 4 against 4 runs no interval exists: for 2 comparisons it takes 5 replicates a side."),
        ([1, 2], 1, "With 1 against 1 runs no interval exists: for one comparison it takes 4 replicates a side."),
    ],
)
def test_too_few_replicates_say_how_many_it_takes(
    make: Make, levels: list[int], replicates: int, expected: str
) -> None:
    found = answers(make(factors={PROCESSES: levels, USERS: [16]}, replicates=replicates))
    assert {verdict for verdict, _ in found} == {Verdict.INCONCLUSIVE}
    assert all(expected in sentence for _, sentence in found)


def test_one_replicate_has_no_noise_to_project_from(make: Make) -> None:
    ((_, sentence),) = answers(make(factors=ONE_SWEEP, replicates=1))
    assert "At the noise seen" not in sentence


def test_invalid_names_the_reason_and_still_prints_the_numbers(make: Make) -> None:
    ((verdict, sentence),) = answers(make(factors=ONE_SWEEP, failure_ratio=lambda t: 0.1))
    assert verdict is Verdict.INVALID
    assert sentence.startswith("This measurement cannot decide: with processes = 1")
    assert "Measured all the same: with processes = 2, throughput" in sentence


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"factors": {}, "baseline": {}, "primary": {}}, "one treatment, nothing to compare it with"),
        ({"baseline": {}}, "no treatment has a baseline"),
        ({"primary": {"metric": "throughput", "at": {USERS: 99}}}, "primary.at selects none"),
    ],
)
def test_no_verdict_says_why(make: Make, changes: dict[str, object], expected: str) -> None:
    ((verdict, sentence),) = answers(make(replicates=1, **changes))
    assert verdict is None
    assert expected in sentence


def test_a_ratio_that_does_not_exist_is_not_invented(make: Make) -> None:
    analysis = decide.analyse(load.load_experiment(make(factors=ONE_SWEEP, rate=lambda t: 5.0)))
    (p99,) = [c for c in analysis.comparisons if c.metric.name == "p99" and c.endpoint == "all requests"]
    assert answer.ratio_text(p99) == "–"


def test_the_sentence_shows_the_numbers_that_the_ratio_is_made_of(demo_analysis: decide.Analysis) -> None:
    (comparison,) = demo_analysis.deciding
    rows = demo_analysis.by_run[demo_analysis.by_run["metric"] == "throughput"]
    medians = [
        statistics.median(rows.loc[(rows["treatment"] == key) & (rows["endpoint"] == "all requests"), "value"])
        for key in comparison.keys
    ]
    ((_, sentence),) = answer.answers(demo_analysis)
    assert f"(medians of 4 against 4 runs of 6 s: {medians[1]:.1f} against {medians[0]:.1f} responses/s; " in sentence


def test_medians_that_lie_the_other_way_round_are_explained(demo_analysis: decide.Analysis) -> None:
    """Baseline 90, 100, 103; treatment 99, 99.5, 120: of the nine ratios the fifth, 1.1 or so, against 0.995."""
    (comparison,) = demo_analysis.deciding
    base, other = [90.0, 100.0, 103.0], [99.0, 99.5, 120.0]
    effect = compare.effect(base, other)
    assert effect.ratio is not None and effect.ratio > 1 > statistics.median(other) / statistics.median(base)
    rows = pd.DataFrame(
        [
            {"run": 1, "treatment": key, "endpoint": "all requests", "metric": "throughput", "value": value}
            for key, values in zip(comparison.keys, (base, other), strict=True)
            for value in values
        ]
    )
    changed = dataclasses.replace(comparison, effect=effect)
    analysis = dataclasses.replace(demo_analysis, by_run=rows, comparisons=[changed])
    ((_, sentence),) = answer.answers(analysis)
    assert "99.5 against 100 responses/s" in sentence
    assert "; the ratio is the middle one of all pairs of runs, not that of the medians)" in sentence
    assert "middle one" not in answer.answers(demo_analysis)[0][1]


def test_service_time_in_the_closed_model_is_explained(make: Make) -> None:
    ((verdict, sentence),) = answers(make(factors=ONE_SWEEP, replicates=1, primary={"metric": "service_p95"}))
    assert verdict is None
    assert sentence.endswith("the closed model has one clock. Use p95.")


def test_what_was_not_assessed_and_the_whole_range_are_said(demo_analysis: decide.Analysis, make: Make) -> None:
    assert [note for note in method.notes(demo_analysis) if "not assessed: it takes 60 s" in note]
    assert any("With 4 against 4 runs" in s and "97.14 % in truth" in s for s in method.sentences(demo_analysis))
    more = decide.analyse(load.load_experiment(make(factors=ONE_SWEEP, replicates=6)))
    assert not any("whole range" in sentence for sentence in method.sentences(more))
