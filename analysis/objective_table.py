"""Judged objectives for people: one table for terminal, Markdown and HTML, and sentences. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from analysis import answer, pairing
from analysis.objectives import Judgement, Outcome
from analysis.tables import Block, Row

COLUMNS = ("treatment", "value", "interval", "outcome")


def block(judgements: Iterable[Judgement], names: Mapping[str, str]) -> Block:
    """The table: a row for each objective and treatment. `names`: dotted path of a factor to its short name."""
    rows = [
        Row(
            j.rule.text,
            (pairing.label(j.treatment, names), value_text(j, j.value), interval_text(j), j.outcome.value),
            j.outcome is not Outcome.PASS,
        )
        for j in judgements
    ]
    return Block("Objectives", COLUMNS, tuple(rows))


def notes(judgements: Sequence[Judgement]) -> list[str]:
    """What stands under the table: how it was judged, and why what is open is open."""
    if not judgements:
        return []
    levels = sorted({answer.level_text(j.level) for j in judgements if j.level is not None})
    kinds = [
        f"Value: the median run, with its {' or '.join(levels)} interval; of a change, the ratio less 1. An objective "
        "passes where the whole interval is within its limit, and fails where none of it is.",
        "A count is that of the worst run, and decides only what was counted.",
    ]
    kinds = kinds[not levels : 1 + _has_count(judgements)]
    reasons = dict.fromkeys(
        f"{j.outcome.value.capitalize()}: {j.rule.text}: {j.reason}." for j in judgements if j.reason
    )
    return [*kinds, *reasons]


def _has_count(judgements: Iterable[Judgement]) -> bool:
    return any(j.level is None for j in judgements)


def line(judgement: Judgement, names: Mapping[str, str]) -> str:
    """One judgement on one line: "fail: p95(response_time) < 250ms: users = 16: 301 ms [290 ms, 312 ms]"."""
    treatment = pairing.label(judgement.treatment, names)
    return f"{judgement.outcome.value}: {judgement.rule.text}: {treatment}: {seen_text(judgement)}"


def seen_text(judgement: Judgement) -> str:
    """What was seen, and why that does not decide: "301 ms [290 ms, 312 ms] (the limit lies within the interval)"."""
    seen = [text for text in (value_text(judgement, judgement.value), interval_text(judgement)) if text != "–"]
    return " ".join([*seen, *([f"({judgement.reason})"] if judgement.reason else [])])


def interval_text(judgement: Judgement) -> str:
    """The interval, or a dash where there is none."""
    if judgement.low is None or judgement.high is None:
        return "–"
    return f"[{value_text(judgement, judgement.low)}, {value_text(judgement, judgement.high)}]"


def value_text(judgement: Judgement, value: float | None) -> str:
    """A value with its unit, three digits; a dash where there is none."""
    if value is None:
        return "–"
    if judgement.rule.is_change:
        return f"{100 * value:+.3g} %"
    return _WRITE[judgement.rule.measure.unit](value)


def _time(value_us: float) -> str:
    return f"{_digits(value_us / 1e6)} s" if value_us >= 1e6 else f"{_digits(value_us / 1e3)} ms"


def _digits(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


_WRITE: dict[str, Callable[[float], str]] = {
    "us": _time,
    "ratio": lambda value: f"{100 * value:.3g} %",
    "/s": lambda value: f"{_digits(value)}/s",
    "cores": lambda value: f"{_digits(value)} cores",
    "bytes": lambda value: f"{_digits(value / 2**20)} MiB",
    "responses": lambda value: f"{value:,.0f}",
}
