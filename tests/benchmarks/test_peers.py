"""The benchmark against ab and Rally: what it reads from ab, what an authentication costs, what it prints."""

import pytest

from benchmarks.generator import BenchmarkError
from benchmarks.peers import Round, Turn, seconds_of_ab, table, verdicts

AB = "Time taken for tests:   4.500 seconds\nComplete requests:      100\nFailed requests:        7\n   (Connect: 0, Receive: 0, Length: 7, Exceptions: 0)\n"  # fmt: skip  # noqa: E501


def test_ab_calls_answers_of_another_length_failed_and_others_must_not_be() -> None:
    assert seconds_of_ab(AB, 100) == 4.5
    for output in (AB + "Non-2xx responses:      1\n", AB.replace("Receive: 0", "Receive: 1"), AB[40:]):
        with pytest.raises(BenchmarkError):
            seconds_of_ab(output, 100)
    with pytest.raises(BenchmarkError):
        seconds_of_ab(AB, 101)


def tools(ab_seconds: float, rally_cpu_s: float) -> dict[str, list[Round]]:
    return {
        "Stackswarm": [Round(Turn("Stackswarm", 100, 10.0, 0.09, 90), None)],
        "ab": [Round(Turn("ab", 100, ab_seconds, 0.034, 100), Turn("ab", 4, 1.0, 0.01, 4))],
        "Rally": [Round(Turn("Rally", 100, 10.5, rally_cpu_s, 100), Turn("Rally", 4, 1.0, 5.0, 4))],
    }


def test_the_start_of_a_tool_is_no_part_of_what_an_authentication_costs() -> None:
    found = tools(10.2, 5.0 + 96 * 0.025)
    assert [its[0].cpu_ms for its in found.values()] == pytest.approx([1.0, 0.25, 25.0])
    assert all(len(line) <= 100 for line in table(found))
    assert [line.rpartition(", ")[2] for line in verdicts(found)] == ["met", "met", "met"]


def test_what_is_not_met_is_said() -> None:
    found = tools(10.6, 5.0 + 96 * 0.019)
    assert [line.rpartition(", ")[2] for line in verdicts(found)] == ["NOT MET", "met", "NOT MET"]
