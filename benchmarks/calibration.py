"""Does the verdict keep its promises? False alarms, coverage and power by simulation, and one real A/A series.

    .venv/bin/python -m benchmarks.calibration          # about ten minutes; --quick: a smoke test of a minute

Simulated runs have a lognormal noise from run to run and no other fault. The A/A series is real: 48 short runs of
Locust with this project's client on nginx, the fastest server there is here, a fresh one for each run, nothing changed
in between. Neighbouring runs make a block of two; in each block chance says which is the baseline, ten thousand times,
and the verdict is asked for every time. Whatever it calls faster or slower is a false alarm.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from analysis import compare, steady_state
from analysis.compare import Verdict
from benchmarks.generator import BenchmarkError, Bounds, find_nginx, locust_turn, nginx, on_cpu, placement
from benchmarks.runs import Row, table

MARGIN = 0.05
REPLICATES = (4, 6, 10, 20)
NOISES = (0.02, 0.03, 0.05, 0.1)
MEMORIES = (0.0, 0.3, 0.5, 0.7)
"""Of the noise from second to second: the correlation of neighbours, of a first-order autoregression."""
USERS = 8
FALSE_ALARM = frozenset({Verdict.FASTER, Verdict.SLOWER})


@dataclasses.dataclass(frozen=True)
class Effort:
    """How much of everything is done."""

    simulations: int
    runs: int
    run_s: int
    relabellings: int


FULL = Effort(simulations=5_000, runs=48, run_s=4, relabellings=10_000)
QUICK = Effort(simulations=200, runs=8, run_s=1, relabellings=500)


class Progress:
    """Tells on stderr how far a part is and how long it will take."""

    def __init__(self, part: str, total: int) -> None:
        self._part, self._total, self._done = part, total, 0
        self._began = self._told = time.monotonic()

    def step(self) -> None:
        """One more is done; said at most every two seconds."""
        self._done += 1
        now = time.monotonic()
        if now - self._told < 2 and self._done < self._total:
            return
        self._told = now
        left_s = (now - self._began) / self._done * (self._total - self._done)
        print(f"  {self._part}: {self._done}/{self._total}, about {left_s:.0f} s left", file=sys.stderr, flush=True)


# --- simulated runs ------------------------------------------------------------------------------------------------


def simulate(noise: float, ratio: float, replicates: int, draw: random.Random) -> compare.Effect:
    """One experiment of two treatments whose true ratio is known."""
    baseline = [draw.lognormvariate(0, noise) for _ in range(replicates)]
    treatment = [draw.lognormvariate(math.log(ratio), noise) for _ in range(replicates)]
    return compare.effect(baseline, treatment)


def share(times: int, holds: Callable[[random.Random], bool], seed: int = 1) -> float:
    """How often something holds, each time with the next random numbers."""
    draw = random.Random(seed)
    return sum(holds(draw) for _ in range(times)) / times


def decides(noise: float, ratio: float, replicates: int, wanted: frozenset[Verdict]) -> Callable[[random.Random], bool]:
    """Whether a simulated experiment gets one of the verdicts."""
    return lambda draw: compare.verdict(simulate(noise, ratio, replicates, draw), True, MARGIN) in wanted


def covers(noise: float, ratio: float, replicates: int) -> Callable[[random.Random], bool]:
    """Whether the interval of a simulated experiment holds the true ratio."""

    def holds(draw: random.Random) -> bool:
        measured = simulate(noise, ratio, replicates, draw)
        return measured.low is not None and measured.high is not None and measured.low <= ratio <= measured.high

    return holds


def verdict_rows(effort: Effort) -> Iterator[Row]:
    """False alarms, coverage, power, and how often sameness can be proved."""
    progress = Progress("simulated experiments", (1 + len(NOISES) * 2 + 1) * len(REPLICATES))

    def cells(holds: Callable[[int], Callable[[random.Random], bool]]) -> tuple[str, ...]:
        found = []
        for replicates in REPLICATES:
            found.append(f"{share(effort.simulations, holds(replicates)):.1%}")
            progress.step()
        return tuple(found)

    yield Row("replicates a side", tuple(map(str, REPLICATES)), "aim")
    for noise in NOISES:
        row = cells(lambda n, noise=noise: decides(noise, 1.0, n, FALSE_ALARM))  # type: ignore[misc]
        yield Row(f"no difference, noise {noise:.0%}: faster or slower", row, "≤ 5%")
    yield Row("interval holds the true ratio (any noise)", cells(lambda n: covers(0.03, 1.1, n)), "≥ 95%")
    found = cells(lambda n: decides(0.03, 1.1, n, frozenset({Verdict.FASTER})))
    yield Row("10 % faster, noise 3%: called faster", found, "6: ≥ 90%")
    for noise in NOISES:
        row = cells(lambda n, noise=noise: decides(noise, 1.0, n, frozenset({Verdict.SAME})))  # type: ignore[misc]
        yield Row(f"no difference, noise {noise:.0%}: called same (±{MARGIN:.0%})", row, "")


# --- drift ---------------------------------------------------------------------------------------------------------


def seconds_with_memory(seconds: int, memory: float, noise: float, draw: np.random.Generator) -> steady_state.Series:
    """A steady series around 1: first-order autoregressive noise of this size and memory."""
    values = draw.standard_normal(seconds)
    values[1:] *= math.sqrt(1 - memory**2)
    for i in range(1, seconds):
        values[i] += memory * values[i - 1]
    return np.asarray(1 + noise * values)


def drift_rows(effort: Effort) -> Iterator[Row]:
    """False alarms of the trend test by itself, and of the whole rule, on noise with memory."""
    times, draw = effort.simulations // 2, np.random.default_rng(1)
    progress = Progress("simulated seconds", 2 * len(MEMORIES))
    yield Row("correlation of neighbouring seconds", tuple(f"{memory:g}" for memory in MEMORIES), "")
    for seconds in (60, 120):
        alone, whole = [], []
        for memory in MEMORIES:
            found = [
                steady_state.assess(seconds_with_memory(seconds, memory, 0.1, draw), steady_state.LEVEL)
                for _ in range(times)
            ]
            alone.append(f"{sum((a.p or 0) < steady_state.LEVEL for a in found) / times:.2%}")
            whole.append(f"{sum(a.state is not steady_state.State.STEADY for a in found) / times:.2%}")
            progress.step()
        yield Row(f"steady {seconds} s: trend with p < {steady_state.LEVEL:g}", tuple(alone), "≤ 1%")
        yield Row("  called drifting or no steady state, noise 10%", tuple(whole), "≤ 1%")


# --- the A/A series ------------------------------------------------------------------------------------------------


def measure(effort: Effort) -> list[float]:
    """Throughput of each run, in order. Raises BenchmarkError."""
    program, (generator_cpu, server_cpu) = find_nginx(), placement()
    progress, found = Progress("runs on nginx", effort.runs), []
    bounds = Bounds(seconds=effort.run_s, requests=10**9, warm_up_s=1.0)
    for _ in range(effort.runs):
        with nginx(program, server_cpu) as url, on_cpu(generator_cpu):
            turn = locust_turn("stackswarm", USERS, url, bounds)
        found.append(turn.requests / turn.seconds)
        progress.step()
    return found


def relabelled(runs: Sequence[float], replicates: int, times: int, draw: random.Random) -> list[Verdict]:
    """Verdicts of experiments of `replicates` neighbouring blocks of two runs, labelled anew within each block."""
    blocks = [runs[i : i + 2] for i in range(0, len(runs) - 1, 2)]
    found = []
    for _ in range(times):
        start = draw.randrange(len(blocks) - replicates + 1)
        pairs = [draw.sample(block, 2) for block in blocks[start : start + replicates]]
        baseline, treatment = zip(*pairs, strict=True)
        found.append(compare.verdict(compare.effect(baseline, treatment), True, MARGIN))
    return found


def series_rows(runs: Sequence[float], times: int) -> Iterator[Row]:
    """What the verdict says of a series in which nothing differs."""
    sizes = [n for n in (4, 6, 10, 24) if n <= len(runs) // 2]
    draw, progress = random.Random(1), Progress("relabelled series", len(sizes))
    verdicts = []
    for replicates in sizes:
        verdicts.append(relabelled(runs, replicates, times, draw))
        progress.step()
    noise = statistics.stdev(map(math.log, runs))
    about = (f"{statistics.fmean(runs):,.0f}/s", f"{min(runs):,.0f}", f"{max(runs):,.0f}", f"{noise:.1%}")
    yield Row(f"{len(runs)} runs on nginx: mean, least, most, noise", about, "")
    yield Row(f"  replicates a side, {times} relabellings", tuple(map(str, sizes)), "")
    for name, wanted, aim in (("faster or slower", FALSE_ALARM, "≤ 5%"), ("same", {Verdict.SAME}, "")):
        shares = [sum(verdict in wanted for verdict in found) / len(found) for found in verdicts]
        yield Row(f"  called {name}", tuple(f"{value:.1%}" for value in shares), aim)


# --- the command ---------------------------------------------------------------------------------------------------


def main() -> int:
    """Simulate, measure and print; 1 where nginx or Locust failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a smoke test, with numbers that mean little")
    parser.add_argument("--series", type=Path, metavar="FILE", help="keep the throughput of the A/A runs there")
    arguments = parser.parse_args()
    effort = QUICK if arguments.quick else FULL
    print(table([*verdict_rows(effort), *drift_rows(effort)]), flush=True)
    try:
        runs = measure(effort)
    except BenchmarkError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if arguments.series:
        arguments.series.write_text("".join(f"{run:.2f}\n" for run in runs), encoding="utf-8")
    print(table(series_rows(runs, effort.relabellings)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
