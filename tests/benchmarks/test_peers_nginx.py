"""The benchmark against ab, wrk and hey: what it reads from hey, and when its targets are met."""

import pytest

from benchmarks.generator import BenchmarkError
from benchmarks.peers_nginx import Turn, parse_hey, percentiles, table, verdicts

HEAD = "response-time,DNS+dialup,DNS,Request-write,Response-delay,Response-read,status-code,offset\n"
ROW = "0.1000,0.0004,0.0000,0.0001,0.0010,0.0002,200,{offset}\n"
HEY = HEAD + "".join(ROW.format(offset=n / 10) for n in range(10))


def test_what_hey_lists() -> None:
    turn = parse_hey(HEY, 10, cpu_s=0.25)
    assert (turn.rate, turn.times_ms, turn.busy) == (pytest.approx(10.0), (100.0, 100.0), pytest.approx(0.25))
    for output in (
        HEY + ROW.format(offset=1),
        HEY.replace(",200,0.1", ",502,0.1"),
        HEAD,
        "",
        HEY.replace("0.1000", "x"),
    ):
        with pytest.raises(BenchmarkError):
            parse_hey(output, 10, 0.25)


def test_percentiles_are_times_that_were_seen() -> None:
    assert percentiles([float(n) for n in range(100, 0, -1)]) == (50.0, 95.0)
    assert percentiles([7.0]) == (7.0, 7.0)


def tools(rate: float = 100.0, p50: float = 20.0, p95: float = 100.0, busy: float = 0.1) -> dict[str, list[Turn]]:
    ours = Turn("Stackswarm", 100.0, (20.0, 100.0), 0.1)
    return {"Stackswarm": [ours], "wrk": [Turn("wrk", rate, (p50, p95), busy)]}


@pytest.mark.parametrize(
    ("found", "met"),
    [
        (tools(104.9, 21.9, 104.9), ["met", "met", "met"]),
        (tools(94.9), ["NOT MET", "met", "met"]),
        (tools(p50=22.1), ["met", "NOT MET", "met"]),
        (tools(p95=94.9), ["met", "met", "NOT MET"]),
    ],
)
def test_targets(found: dict[str, list[Turn]], met: list[str]) -> None:
    assert [line.rpartition(", ")[2] for line in verdicts(found)] == met
    assert all(len(line) <= 100 for line in table(found))


def test_a_tool_that_is_the_limit_itself_meets_nothing() -> None:
    said, *rest = verdicts(tools(busy=0.8))
    assert said.startswith("wrk used up to 80% of a CPU: it measured itself")
    assert [line.rpartition(", ")[2] for line in rest] == ["NOT MET"] * 3
