"""The same GETs by Stackswarm, ab, wrk and hey through one nginx: do they measure the same?

    .venv/bin/python -m benchmarks.peers_nginx        # about two minutes; --quick: a smoke test

The ingress of configs/servers/nginx with one slow replica, which sleeps 5 ms for a request: about 195 a second, whoever
asks. All tools keep 20 connections busy with one Host. Where there are two CPUs the servers have one, the tool the
other. Each round each tool has a turn, in an order drawn anew; wrk knows no number of requests, and its turn takes as
many seconds. A tool that needs most of a CPU measures itself: that is said, and then no target is met.
"""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import json
import random
import re
import statistics
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from analysis.record import read_process
from benchmarks import generator
from benchmarks.generator import BenchmarkError, on_cpu, placement
from benchmarks.peers import parser, run_to_end
from harness import configuration, install
from harness.server import ServerError, running
from harness.systems import nginx
from harness.systems.nginx import HOST

REPOSITORY = Path(__file__).resolve().parent.parent
USERS = 20
QUICK = 200
SERVICE_MS = 5
BACKEND_RATE = 1000 / SERVICE_MS
"""Requests a second that the backend can answer at most."""
APART = 0.05
"""How far from ours another tool's throughput may be, and its percentiles, as far as that is more than LEAST_MS."""
LEAST_MS = 2.0
PERCENTILES = (50, 95)
BUSY = 0.7
"""Of its CPU: a tool beyond it is itself the limit, as the finding generator_busy has it."""

_WRK_REPORT = """\
done = function(summary, latency)
  io.write(string.format("P50 %d P95 %d\\n", latency:percentile(50), latency:percentile(95)))
end
"""


@dataclasses.dataclass(frozen=True)
class Turn:
    """What one tool measured in one turn."""

    tool: str
    rate: float
    """Responses a second."""
    times_ms: tuple[float, ...]
    """Of PERCENTILES."""
    busy: float
    """CPU time of the tool by the length of the load, its start included where that cannot be told apart."""


Take = Callable[[str, Path, int], Turn]


def stackswarm(url: str, folder: Path, requests: int) -> Turn:
    """locustfiles/nginx_ingress.py, headless, as its users run it. Raises BenchmarkError."""
    with tempfile.TemporaryDirectory(dir=folder) as name:
        recorded = Path(name) / "recorded"
        start = (sys.executable, "-m", "locust", "-f", str(REPOSITORY / "locustfiles/nginx_ingress.py"), "--headless")
        load = ("-u", str(USERS), "-r", str(USERS), "--requests", str(requests), "--request-host", HOST, "-H", url)
        _, output = run_to_end([*start, *load, "--response-times", str(recorded), "--only-summary"], Path(name), {})
        record = read_process(recorded / "local.json")
        begun, stopped = record.test_start_unix_s, record.test_stop_unix_s
        with (recorded / "local.csv").open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        counts = Counter[float]()
        for row in rows:
            counts[int(row["bucket_us"]) / 1000] += int(row["count"])
        if counts.total() != requests or {row["outcome"] for row in rows} != {"success"} or not begun or not stopped:
            raise BenchmarkError(f"Stackswarm: {output.strip()[-500:]}")
        health = [json.loads(line) for line in (recorded / "local.health.jsonl").read_text("utf-8").splitlines()]
    first, last = health[0], health[-1]
    busy = (last["cpu_us"] - first["cpu_us"]) / 1e6 / max(1, last["second"] - first["second"])
    return Turn("Stackswarm", requests / (stopped - begun), percentiles(list(counts.elements())), busy)


def ab(url: str, folder: Path, requests: int) -> Turn:
    """Stock ab with kept connections. Raises BenchmarkError."""
    table = folder / "ab.csv"
    options = ("-k", "-q", "-n", str(requests), "-c", str(USERS), "-e", str(table), "-H", f"Host: {HOST}")
    cpu_s, output = _tool("ab", "apache2-utils", [*options, f"{url}/"], folder)
    took = re.search(r"Time taken for tests:\s+([\d.]+) seconds", output)
    if generator.parse_count("ab", output) != requests or took is None:
        raise BenchmarkError(f"ab: {output.strip()[-500:]}")
    with table.open(encoding="utf-8", newline="") as file:
        times = {row[0]: row[1] for row in csv.reader(file)}
    seconds = float(took[1])
    return Turn("ab", requests / seconds, tuple(float(times[str(p)]) for p in PERCENTILES), cpu_s / seconds)


def wrk(url: str, folder: Path, requests: int) -> Turn:
    """Stock wrk for as long as so many requests take. Its own script says the percentiles. Raises BenchmarkError."""
    script, seconds = folder / "report.lua", max(1, round(requests / BACKEND_RATE))
    script.write_text(_WRK_REPORT, encoding="utf-8")
    options = ["-t", "1", "-c", str(USERS), "-d", f"{seconds}s", "-s", str(script), "-H", f"Host: {HOST}", f"{url}/"]
    cpu_s, output = _tool("wrk", "wrk", options, folder)
    generator.parse_count("wrk", output)
    said = re.search(r"P50 (\d+) P95 (\d+)", output)
    rate = re.search(r"Requests/sec:\s+([\d.]+)", output)
    if said is None or rate is None:
        raise BenchmarkError(f"wrk: {output.strip()[-500:]}")
    return Turn("wrk", float(rate[1]), (int(said[1]) / 1000, int(said[2]) / 1000), cpu_s / seconds)


def hey(url: str, folder: Path, requests: int) -> Turn:
    """Stock hey, which lists each request, in 0.1 ms. Raises BenchmarkError."""
    options = ["-n", str(requests), "-c", str(USERS), "-host", HOST, "-o", "csv", f"{url}/"]
    cpu_s, output = _tool("hey", "hey", options, folder)
    return parse_hey(output, requests, cpu_s)


def parse_hey(output: str, requests: int, cpu_s: float) -> Turn:
    """What hey's list says. Raises BenchmarkError where it is not of so many answers with 200."""
    rows = list(csv.DictReader(output.splitlines()))
    try:
        if len(rows) != requests or {row["status-code"] for row in rows} != {"200"}:
            raise BenchmarkError(f"hey: {len(rows)} answers of {requests}, or not all 200: {output.strip()[-300:]}")
        times = [float(row["response-time"]) for row in rows]
        seconds = max(float(row["offset"]) + time for row, time in zip(rows, times, strict=True))
    except (KeyError, ValueError, TypeError) as error:
        raise BenchmarkError(f"hey: no list of answers: {output.strip()[-300:]}") from error
    return Turn("hey", requests / seconds, percentiles([time * 1000 for time in times]), cpu_s / seconds)


TOOLS: dict[str, Take] = {"Stackswarm": stackswarm, "ab": ab, "wrk": wrk, "hey": hey}


def percentiles(times: Sequence[float]) -> tuple[float, ...]:
    """PERCENTILES of times in any order: the smallest time that so many percent are not above."""
    ordered = sorted(times)
    return tuple(ordered[-(-len(ordered) * p // 100) - 1] for p in PERCENTILES)


def _tool(name: str, package: str, options: Sequence[str], folder: Path) -> tuple[float, str]:
    root = install.debian_packages(name, [package], with_libraries=True)
    command = [str(root / "usr/bin" / name), *options]
    return run_to_end(command, folder, {"LD_LIBRARY_PATH": install.library_path(root)})


# --- the servers ---------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def servers(cpu: int | None) -> Iterator[str]:
    """URL of the ingress with one slow backend. Raises InstallError and ServerError."""
    chosen = configuration.read("nginx", "ingress")
    parameters = chosen.complete({"backend": "slow", "service_time_ms": SERVICE_MS})
    prepared = nginx.prepare(chosen, parameters, {}, lambda message: print(message, file=sys.stderr))
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        with on_cpu(cpu):
            up = stack.enter_context(
                running(lambda place: nginx.server(prepared, place, chosen, parameters), Path(folder))
            )
        yield up.target.url


# --- all turns, and the tables -------------------------------------------------------------------------------------


def measure(url: str, requests: int, rounds: int, seed: int) -> dict[str, list[Turn]]:
    """All turns, by tool. Raises BenchmarkError."""
    found: dict[str, list[Turn]] = {name: [] for name in TOOLS}
    order = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        for number in range(rounds):
            for name in order.sample(list(TOOLS), len(TOOLS)):
                turn = TOOLS[name](url, Path(folder), requests)
                found[name].append(turn)
                print(f"  round {number + 1} of {rounds}, {name}: {turn.rate:.1f}/s", file=sys.stderr, flush=True)
    return found


def table(found: dict[str, list[Turn]]) -> list[str]:
    """Medians of the rounds with their extremes: lines of at most 100 characters."""
    heads = "".join(f"{f'p{p}, ms':>24}" for p in PERCENTILES)
    lines = [f"{'tool':<12}{'requests/s':>24}{heads}{'of a CPU':>10}"]
    for name, its in found.items():
        times = "".join(f"{_spread([t.times_ms[i] for t in its]):>24}" for i in range(len(PERCENTILES)))
        busy = statistics.median(t.busy for t in its)
        lines.append(f"{name:<12}{_spread([t.rate for t in its]):>24}{times}{busy:>9.0%}")
    return lines


def verdicts(found: dict[str, list[Turn]]) -> list[str]:
    """Whether each target is met; none is where a tool was busy with itself, which is said."""
    lines = [
        f"{name} used up to {busy:.0%} of a CPU: it measured itself, not the server; no target is met"
        for name, its in found.items()
        if (busy := max(t.busy for t in its)) > BUSY
    ]
    possible = not lines
    ours = found["Stackswarm"]
    for name in [name for name in found if name != "Stackswarm"]:
        rate, own = (statistics.median(t.rate for t in its) for its in (found[name], ours))
        lines.append(f"{name}'s throughput within {APART:.0%} of ours: {rate / own:.3f}, "
                     f"{_met(possible and abs(rate / own - 1) <= APART)}")  # fmt: skip
        for i, percent in enumerate(PERCENTILES):
            theirs, own = (statistics.median(t.times_ms[i] for t in its) for its in (found[name], ours))
            limit = max(APART * own, LEAST_MS)
            lines.append(f"{name}'s p{percent} within {limit:.1f} ms of ours: {theirs - own:+.1f} ms, "
                         f"{_met(possible and abs(theirs - own) <= limit)}")  # fmt: skip
    return lines


def _met(met: bool) -> str:
    return "met" if met else "NOT MET"


def _spread(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.1f} ({min(values):.1f}–{max(values):.1f})"


# --- the command ---------------------------------------------------------------------------------------------------


def main() -> int:
    """Measure and print; 1 where something failed."""
    command = parser("benchmarks.peers_nginx", __doc__ or "", 1000, f"of a turn, a multiple of {USERS}", QUICK)
    arguments = command.parse_args()
    if arguments.quick:
        arguments.requests, arguments.rounds = QUICK, 1
    if arguments.requests < USERS or arguments.requests % USERS or arguments.rounds < 1:
        command.error(f"--requests must be a multiple of {USERS}, for hey asks no other number; --rounds at least 1")
    tool_cpu, server_cpu = placement()
    where = "tool and servers share one CPU" if server_cpu is None else "tool and servers each on a CPU"
    print(f"{arguments.rounds} rounds of {arguments.requests} requests by {USERS} clients; {where}")
    try:
        with servers(server_cpu) as url, on_cpu(tool_cpu):
            found = measure(url, arguments.requests, arguments.rounds, arguments.seed)
    except (BenchmarkError, install.InstallError, ServerError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print("\n".join(["", *table(found), "", *verdicts(found)]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
