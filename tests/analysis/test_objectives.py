"""Objectives: the number of a run, the interval of the median run, and the word that comes out."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from analysis import decide, intervals, load, objective_table, objectives, pages
from analysis.objectives import Judgement, Outcome
from analysis.record import RecordError
from tests.analysis import synthetic
from tests.analysis.synthetic import PROCESSES, USERS

Make = Callable[..., Path]
ONE_FACTOR: dict[str, Any] = {
    "factors": {PROCESSES: [1, 2]}, "primary": {"metric": "throughput"}, "steady_s": 4, "rate": lambda t: 40.0,
}  # fmt: skip
ALONE: dict[str, Any] = {**ONE_FACTOR, "factors": {PROCESSES: [1]}, "baseline": {}}


@pytest.fixture(scope="module")
def six(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One treatment, six replicates, for reading only."""
    folder = tmp_path_factory.mktemp("six") / "experiment"
    synthetic.make(folder, synthetic.Plan(**ALONE, replicates=6))
    return folder


def analysis_of(folder: Path, *rules: str) -> decide.Analysis:
    experiment = load.load_experiment(folder)
    return decide.analyse(
        dataclasses.replace(experiment, record=dataclasses.replace(experiment.record, objectives=list(rules)))
    )


def judged(folder: Path, *rules: str, baseline: Path | None = None) -> list[Judgement]:
    other = analysis_of(baseline, *rules) if baseline else None
    return objectives.judge(analysis_of(folder, *rules), other)


# The interval of the median run. Ranks from tables of the sign test, as in R's BSDA::SIGN.test or Hollander & Wolfe.


@pytest.mark.parametrize(
    ("runs", "level", "ranks"),
    [
        (5, 0.95, None),
        (6, 0.95, (1, 6)),
        (8, 0.95, (1, 8)),
        (9, 0.95, (2, 8)),
        (12, 0.95, (3, 10)),
        (20, 0.95, (6, 15)),
        (30, 0.95, (10, 21)),
        (7, 0.9875, None),
        (8, 0.9875, (1, 8)),
        (7, 1 - 2 / 2**7, (1, 7)),
        (0, 0.95, None),
    ],
)
def test_the_interval_of_the_median_has_the_ranks_of_the_sign_test(
    runs: int, level: float, ranks: tuple[int, int] | None
) -> None:
    values = [float(value) for value in range(runs, 0, -1)]
    assert intervals.median_interval(values, level) == (ranks and tuple(map(float, ranks)))


def test_the_interval_covers_the_median_as_often_as_it_says() -> None:
    """Exactly, by counting: each run lies above the median with probability 1/2."""
    for runs in (6, 9, 15):
        found = intervals.median_interval([float(n) for n in range(1, runs + 1)])
        assert found is not None
        below = int(found[0]) - 1
        outside = 2 * sum(math.comb(runs, k) for k in range(below + 1)) / 2**runs
        assert outside <= 0.05 < outside + 2 * math.comb(runs, below + 1) / 2**runs


@pytest.mark.parametrize(("level", "fewest"), [(0.95, 6), (0.975, 7), (0.9875, 8), (1 - 0.05 / 12, 9)])
def test_the_fewest_runs_for_it(level: float, fewest: int) -> None:
    assert intervals.fewest_runs_for_median(level) == fewest
    values = [1.0] * fewest
    assert intervals.median_interval(values, level) == (1.0, 1.0)
    assert intervals.median_interval(values[1:], level) is None


# The word.


def test_pass_fail_and_inconclusive(six: Path) -> None:
    runs = sorted(objectives.run_values(analysis_of(six), _measure("mean(response_time) < 1s"), {PROCESSES: 1}))
    middle = f"{(runs[2] + runs[3]) / 2:.0f}us"
    found = judged(six, "mean(response_time) < 10s", "mean(response_time) > 10s", f"mean(response_time) < {middle}")
    assert [j.outcome for j in found] == [Outcome.PASS, Outcome.FAIL, Outcome.INCONCLUSIVE]
    assert (found[2].low, found[2].high, found[2].level, found[2].runs) == (runs[0], runs[-1], 0.95, 6)
    assert found[2].value == pytest.approx((runs[2] + runs[3]) / 2)
    assert found[2].reason == "the limit lies within the interval"
    assert objectives.worst(found) is Outcome.FAIL
    assert objectives.worst(found[::2]) is Outcome.INCONCLUSIVE
    assert objectives.worst([]) is Outcome.PASS


def _measure(rule: str) -> Any:
    from analysis import rules

    return rules.parse(rule).measure


def test_the_level_is_shared_among_the_treatments(make: Make) -> None:
    found = judged(make(**ONE_FACTOR, replicates=7), "failure_ratio < 1%")
    assert [(j.level, j.outcome) for j in found] == [(0.975, Outcome.PASS)] * 2
    assert [(j.value, j.low, j.high) for j in found] == [(0, 0, 0)] * 2


def test_too_few_replicates_are_inconclusive_and_say_how_many_it_takes(make: Make) -> None:
    (found,) = judged(make(**ALONE, replicates=5), "failure_ratio < 1%")
    assert (found.outcome, found.value, found.low) == (Outcome.INCONCLUSIVE, 0, None)
    assert found.reason == "no 95 % interval of 5 runs exists; it takes 6 replicates"


def test_a_count_decides_what_it_counted_and_in_every_run(six: Path) -> None:
    counts = objectives.run_values(analysis_of(six), _measure("count(response_time > 70ms) < 1"), {PROCESSES: 1})
    low, high = min(counts), max(counts)
    assert 0 < low < high
    rules = (f"count(response_time > 70ms) <= {high:.0f}", f"count(response_time > 70ms) < {high:.0f}")
    found = judged(six, *rules, f"count(response_time > 70ms) >= {low:.0f}")
    assert [(j.outcome, j.value, j.level) for j in found] == [
        (Outcome.PASS, high, None), (Outcome.FAIL, high, None), (Outcome.PASS, low, None),
    ]  # fmt: skip


def test_what_a_run_does_not_carry_is_no_pass(six: Path) -> None:
    found = judged(six, "p99(response_time) < 1min", "server_cpu < 99")
    assert [j.outcome for j in found] == [Outcome.INCONCLUSIVE, Outcome.PASS]
    assert found[0].reason == "6 of 6 runs do not carry it: it takes 368 successful responses a run"


def test_no_data_is_never_a_pass(make: Make) -> None:
    folder = make(**ALONE, replicates=1)
    for run in (folder / "runs").iterdir():
        (run / "run.json").unlink()
    found = judged(folder, "failure_ratio < 1%", "count(response_time > 1s) < 5")
    assert {j.outcome for j in found} == {Outcome.INVALID}  # because of the severe finding, too
    assert all(j.value is None for j in found)


def test_a_severe_finding_forbids_it(make: Make) -> None:
    folder = make(**{**ONE_FACTOR, "replicates": 7, "generator_share": lambda t: 0.95 if t[PROCESSES] == 2 else 0.1})
    found = judged(folder, "failure_ratio < 1%")
    assert [j.outcome for j in found] == [Outcome.PASS, Outcome.INVALID]
    assert found[1].reason.startswith("severe finding: generator")


def test_an_objective_makes_every_treatment_one_that_decides(make: Make) -> None:
    """Users = 4 is not what the verdict is about, so what is wrong there is a note; an objective holds there too."""
    folder = make(replicates=1, failure_ratio=lambda t: 0.3 if t[USERS] == 4 else 0.0)
    assert not analysis_of(folder).severe
    assert analysis_of(folder, "failure_ratio < 1%").severe


# Changes.


def test_a_change_against_the_own_baseline(demo: Path) -> None:
    faster, slower, unsure = "change(throughput) > 20%", "change(throughput) < 20%", "change(throughput) > 60%"
    found = judged(demo, faster, slower, unsure)
    assert len(found) == 6  # two treatments have a baseline
    assert {j.level for j in found} == {0.975}
    assert {j.outcome for j in found} == {Outcome.INCONCLUSIVE}  # 4 replicates carry one comparison, not two
    assert all(j.value is not None and 0.4 < j.value < 0.7 for j in found)
    assert found[0].baseline == {PROCESSES: 1, USERS: 4}


def test_a_change_against_another_folder(make: Make) -> None:
    before, after = make(**ALONE, replicates=4), make(**{**ALONE, "rate": lambda t: 60.0, "seed": 2}, replicates=4)
    rules = ("change(throughput) > 20%", "change(throughput) < 20%", "change(throughput) > 50%")
    found = judged(after, *rules, baseline=before)
    assert [j.outcome for j in found] == [Outcome.PASS, Outcome.FAIL, Outcome.INCONCLUSIVE]
    assert found[0].value == pytest.approx(0.5, abs=0.1)
    assert found[0].treatment == found[0].baseline == {PROCESSES: 1}


def test_a_treatment_that_the_baseline_lacks_is_inconclusive(six: Path, make: Make) -> None:
    found = judged(make(**ONE_FACTOR, replicates=1), "change(throughput) > -50%", baseline=six)
    assert [(j.outcome, j.reason.split(":")[0]) for j in found][1] == (Outcome.INCONCLUSIVE, "the baseline")


def test_a_change_of_nothing_has_no_ratio(make: Make) -> None:
    (found,) = judged(make(**ONE_FACTOR, replicates=1), "change(failure_ratio) < 10%")
    assert (found.outcome, found.value) == (Outcome.INCONCLUSIVE, None)
    assert found.reason == "a ratio takes a value above zero of every run on both sides"


def test_a_change_without_a_baseline_is_refused(six: Path, make: Make) -> None:
    with pytest.raises(RecordError, match="a change needs a baseline: --baseline FOLDER"):
        judged(six, "change(throughput) > 1%")
    other = make(**{**ALONE, "factors": {PROCESSES: [4]}, "replicates": 1})
    with pytest.raises(RecordError, match="no treatment in common"):
        judged(six, "change(throughput) > 1%", baseline=other)


# For people.


def test_the_table_and_the_line(six: Path) -> None:
    rules = ("p50(response_time) < 1s", "count(response_time > 5s) < 2", "server_peak_memory < 1GiB")
    found = judged(six, *rules)
    names = {PROCESSES: "processes"}
    block = objective_table.block(found, names)
    assert [row.head for row in block.rows] == list(rules)
    assert block.rows[1].cells == ("processes = 1", "0", "[0, 0]", "pass")
    assert block.rows[2].cells == ("processes = 1", "80 MiB", "[80 MiB, 80 MiB]", "pass")
    assert block.rows[0].cells[1].endswith(" ms")
    assert objective_table.line(found[1], names) == "pass: count(response_time > 5s) < 2: processes = 1: 0 [0, 0]"
    assert any(note.startswith("A count is that of the worst run") for note in objective_table.notes(found))
    assert objective_table.notes([]) == []


def test_markdown_and_page_show_them_in_words(six: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    analysis = analysis_of(six, "failure_ratio < 1%", "mean(response_time) > 1s")
    monkeypatch.setattr("analysis.plots.figures", lambda analysis, detail: [])  # which take seconds
    page = re.sub(r"<[^>]+>|\s+", " ", pages.render_html([analysis]))
    assert re.search(r"failure_ratio &lt; 1% +processes = 1 +0 % +\[0 %, 0 %\] +pass ", page)
    assert re.search(r"mean\(response_time\) &gt; 1s +processes = 1 .* fail ", page)
    text = pages.render_markdown([analysis])
    assert "| failure\\_ratio &lt; 1% | processes = 1 | 0 % | \\[0 %, 0 %\\] | pass |" in text
    assert "Value: the median run, with its 95 % interval" in text
    assert "Objectives" not in pages.render_markdown([analysis_of(six)])


def test_a_damaged_objective_is_one_error(make: Make) -> None:
    folder = make(**ALONE, replicates=1)
    data = json.loads((folder / "experiment.json").read_text("utf-8"))
    (folder / "experiment.json").write_text(json.dumps(data | {"objectives": ["p95 < 1s"]}), encoding="utf-8")
    with pytest.raises(RecordError, match="objectives: 'p95 < 1s': p95 of what"):
        objectives.judge(decide.analyse(load.load_experiment(folder)))
