"""The order of runs."""

from collections import Counter
from pathlib import Path

import pytest

from harness.plan import assumptions, duration_s, folder_name, plan, server_levels, short_names
from harness.validate import read

GOOD = Path(__file__).resolve().parents[2] / "configs/experiments/keystone-processes.yml"
BUDGET = GOOD.with_name("seed-keystone-apache.yml")


def test_each_block_holds_each_treatment_once() -> None:
    runs = plan(read(GOOD).experiment)
    cells = Counter((run.block, *run.treatment.values()) for run in runs)
    assert cells == {(block, p, u): 1 for block in (1, 2, 3, 4) for p in (1, 2) for u in (4, 16)}
    assert [run.number for run in runs] == list(range(1, 17))
    assert [run.block for run in runs] == sorted(run.block for run in runs)


def test_one_server_for_each_block_and_configuration() -> None:
    runs = plan(read(GOOD, ("order.server=per_block",)).experiment)
    of_server = {run.server_number: (run.block, server_levels(run.treatment)) for run in runs}
    assert len(of_server) == 8
    assert all(of_server[run.server_number] == (run.block, server_levels(run.treatment)) for run in runs)
    assert [run.server_number for run in runs] == sorted(run.server_number for run in runs)


def test_a_server_for_each_run() -> None:
    runs = plan(read(GOOD).experiment)
    assert [run.server_number for run in runs] == list(range(1, 17))


def test_the_seed_decides_the_order_and_nothing_else_does() -> None:
    def order(seed: int) -> list[object]:
        return [run.treatment for run in plan(read(GOOD, (f"order.seed={seed}",)).experiment)]

    assert order(1) == order(1)
    assert len({str(order(seed)) for seed in range(8)}) > 4


def test_every_order_of_servers_and_loads_occurs() -> None:
    first = Counter(
        tuple(plan(read(GOOD, (f"order.seed={seed}", "replicates=1")).experiment)[0].treatment.values())
        for seed in range(60)
    )
    assert set(first) == {(1, 4), (1, 16), (2, 4), (2, 16)}


@pytest.mark.parametrize(
    ("treatment", "name"),
    [
        ({"server.parameters.processes": 1, "load.users": 4}, "007-processes=1-users=4-rep2"),
        ({"server.parameters.x": 1, "options.x": 2}, "007-server.parameters.x=1-options.x=2-rep2"),
        ({"options.workload.path": "/a b/../c"}, "007-path=_a_b_.._c-rep2"),
        ({}, "007-rep2"),
    ],
)
def test_folder_names(treatment: dict[str, object], name: str) -> None:
    assert folder_name(7, treatment, 2) == name  # type: ignore[arg-type]


def test_short_names_stay_apart() -> None:
    assert short_names(["a.users", "b.users", "a.size"]) == ["a.users", "b.users", "size"]


def test_a_budgets_length_is_a_guess_and_is_said_to_be() -> None:
    experiment = read(BUDGET).experiment
    assert duration_s(experiment, plan(experiment)) == 45 * (2 + 160 / 10 + 2 * 4) + 15 * 12
    budget, dataset = assumptions(experiment)
    assert "160 requests are taken to last 16 s, at 10/s. A server that answers 30/s takes 5 s" in budget
    assert "6144 users" in dataset
    longer = read(BUDGET, ("load.requests=10000",)).experiment
    assert duration_s(longer, plan(longer)) == pytest.approx(45 * (2 + 1000 + 2 * 4) + 15 * 12)


def test_duration_counts_runs_and_servers() -> None:
    for server, started in (("per_block", 8), ("per_run", 16)):
        experiment = read(GOOD, (f"order.server={server}",)).experiment
        assert duration_s(experiment, plan(experiment)) == 16 * (2 + 6 + 4) + started * 12
