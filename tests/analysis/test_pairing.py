from __future__ import annotations

import itertools

import pytest

from analysis import pairing
from analysis.record import Level, Treatment

P, U, C = "server.parameters.processes", "load.users", "server.parameters.cache"


def product(**factors: list[Level]) -> list[Treatment]:
    paths = {"p": P, "u": U, "c": C}
    return [
        dict(zip([paths[f] for f in factors], levels, strict=True)) for levels in itertools.product(*factors.values())
    ]


def test_each_other_level_is_compared_with_the_baseline_at_the_same_other_levels() -> None:
    found = pairing.pairs(product(p=[1, 2, 4], u=[4, 16]), {P: 1}, {U: 16})
    assert [(pair.treatment[P], pair.baseline[P], pair.context, pair.decides) for pair in found] == [
        (2, 1, {U: 4}, False),
        (2, 1, {U: 16}, True),
        (4, 1, {U: 4}, False),
        (4, 1, {U: 16}, True),
    ]


@pytest.mark.parametrize(
    ("baseline", "at", "deciding", "comparisons"),
    [
        ({P: 1}, {}, 4, 4),
        ({P: 1}, {U: 16}, 2, 4),
        ({P: 1}, {U: 16, P: 4}, 1, 4),
        ({P: 1}, {U: 99}, 0, 4),
        ({P: 1, U: 4}, {}, 5, 5),
        ({P: 3}, {}, 0, 0),
        ({}, {}, 0, 0),
    ],
)
def test_which_pairs_decide(baseline: Treatment, at: Treatment, deciding: int, comparisons: int) -> None:
    found = pairing.pairs(product(p=[1, 2, 4], u=[4, 16]), baseline, at)
    assert (sum(pair.decides for pair in found), len(found)) == (deciding, comparisons)


def test_levels_of_different_types_stay_apart() -> None:
    assert len({pairing.key({"a": level}) for level in (1, "1", True, None, "null", 1.5)}) == 6
    found = pairing.pairs([{"a": 1}, {"a": True}, {"a": "1"}], {"a": 1}, {})
    assert [pair.treatment["a"] for pair in found] == [True, "1"]


def test_the_order_of_factors_does_not_matter() -> None:
    assert pairing.key({P: 1, U: 4}) == pairing.key({U: 4, P: 1})


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        ([P, U], {P: "processes", U: "users"}),
        ([P, "load.processes"], {P: "parameters.processes", "load.processes": "load.processes"}),
        (["workload"], {"workload": "workload"}),
        (["users", "load.users"], {"users": "users", "load.users": "load.users"}),
    ],
)
def test_short_names(paths: list[str], expected: dict[str, str]) -> None:
    assert pairing.short_names(paths) == expected


def test_label() -> None:
    names = pairing.short_names([P, C])
    assert pairing.label({P: 2, C: None}, names) == "processes = 2, cache = null"
    assert pairing.label({P: 2, C: None}, names, [C]) == "cache = null"
    assert pairing.label({}, names) == "all"


@pytest.mark.parametrize(
    ("level", "text"), [("x", "x"), ("x ", '"x "'), ("\tx", '"\\tx"'), ("", '""'), ("null", "null")]
)
def test_blanks_that_would_not_be_seen_are_quoted(level: str, text: str) -> None:
    assert pairing.label({"a": level}, {}) == f"a = {text}"
