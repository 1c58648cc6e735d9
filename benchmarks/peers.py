"""The same authentications by Stackswarm, ab and Rally: do they measure the same, and what does each cost the client?

    .venv/bin/python -m benchmarks.peers            # about fifteen minutes; --quick: a smoke test

One Keystone of ours (uWSGI with two processes, PostgreSQL, memcached, bcrypt with 12 rounds) serves all three. Where
there are two CPUs it has one, the generator the other. Each round each tool has a turn of `--requests` authentications
by four clients, in an order drawn anew. Of Stackswarm the CPU time is taken within the process, from the end of the
first second on; of the others it is that of the whole process and its children, less that of a turn of four
authentications in the same round, which is what the tool takes to start.

Rally does more for one authentication than the others: for each it asks the server's root three times and opens two
connections, all within the one time that it reports. Its users exist before it starts, as ours do.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import dataclasses
import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from analysis.record import read_process
from benchmarks.generator import BenchmarkError, on_cpu, placement
from harness import configuration, install
from harness.server import ServerError, Target, running, scratch_folder
from harness.systems import keystone

REPOSITORY = Path(__file__).resolve().parent.parent
USERS = 4
QUICK = 20
PARAMETERS = {"processes": 2, "database": "postgresql", "cache": "memcached", "hash_rounds": 12}
DATASET = {"projects": 2, "users_per_project": 4}
APART = {"ab": 0.05, "Rally": 0.1}
"""How far from our throughput theirs may be."""
LEAST_RALLY_CPU = 20
"""Times our CPU time for each authentication."""
DEADLINE_S = 600


@dataclasses.dataclass(frozen=True)
class Turn:
    """What one tool did in one turn."""

    tool: str
    requests: int
    seconds: float
    """Of the load alone."""
    cpu_s: float
    cpu_requests: int
    """Authentications on which the CPU time was spent."""

    @property
    def rate(self) -> float:
        """Authentications a second."""
        return self.requests / self.seconds


@dataclasses.dataclass(frozen=True)
class Place:
    """Where the tools work."""

    target: Target
    folder: Path
    """Theirs alone; it is deleted at the end, passwords and all."""


Take = Callable[[Place, int], Turn]

# --- a turn of each tool -------------------------------------------------------------------------------------------


def stackswarm(place: Place, requests: int) -> Turn:
    """locustfiles/keystone_auth.py, headless, as its users run it. Raises BenchmarkError."""
    recorded = place.folder / "stackswarm"
    _, output = run_to_end(
        [
            *(sys.executable, "-m", "locust", "-f", str(REPOSITORY / "locustfiles/keystone_auth.py"), "--headless"),
            *("-H", place.target.url, "-u", str(USERS), "-r", str(USERS), "--requests", str(requests)),
            *("--users-csv", place.target.options["users-csv"], "--response-times", str(recorded), "--only-summary"),
        ],
        place.folder,
        place.target.environment,
    )
    records = [read_process(path) for path in sorted(recorded.glob("*.json"))]
    if len(records) != 1 or (records[0].budget or {}).get("answered") != requests or " 0(0.00%)" not in output:
        raise BenchmarkError(f"Stackswarm: {output.strip()[-500:]}")
    begun, stopped = records[0].test_start_unix_s, records[0].test_stop_unix_s
    if begun is None or stopped is None:
        raise BenchmarkError("Stackswarm: its record does not say when the load began and ended")
    cpu_s, cpu_requests = _cpu(recorded)
    for file in recorded.iterdir():
        file.unlink()
    return Turn("Stackswarm", requests, stopped - begun, cpu_s, cpu_requests)


def _cpu(recorded: Path) -> tuple[float, int]:
    """CPU time in s from the end of the first second to that of the last, and the responses meanwhile."""
    (health,), (times,) = recorded.glob("*.health.jsonl"), recorded.glob("*.csv")
    seconds = [json.loads(line) for line in health.read_text(encoding="utf-8").splitlines()]
    first, last = seconds[0], seconds[-1]
    with times.open(encoding="utf-8", newline="") as file:
        rows = [(int(row["second"]), int(row["count"])) for row in csv.DictReader(file)]
    answered = sum(count for second, count in rows if first["second"] < second <= last["second"])
    return (last["cpu_us"] - first["cpu_us"]) / 1e6, answered


def ab(place: Place, requests: int) -> Turn:
    """Stock ab with kept connections and one user, which is all it knows. Raises BenchmarkError."""
    root = install.debian_packages("ab", ["apache2-utils"], with_libraries=True)
    body = place.folder / "body.json"
    command = [str(root / "usr/bin/ab"), "-k", "-q", "-n", str(requests), "-c", str(USERS), "-p", str(body)]
    cpu_s, output = run_to_end(
        [*command, "-T", "application/json", f"{place.target.url}/v3/auth/tokens"],
        place.folder,
        {"LD_LIBRARY_PATH": install.library_path(root)},
    )
    return Turn("ab", requests, seconds_of_ab(output, requests), cpu_s, requests)


def seconds_of_ab(output: str, requests: int) -> float:
    """How long ab says it took. Raises BenchmarkError where not all were answered as they should be."""
    took = re.search(r"Time taken for tests:\s+([\d.]+) seconds", output)
    complete = re.search(r"Complete requests:\s+(\d+)", output)
    # It calls an answer of another length than the first failed, too; that is no failure here.
    failed = re.search(r"Non-2xx|Connect: [1-9]|Receive: [1-9]|Exceptions: [1-9]", output)
    if took is None or complete is None or int(complete[1]) != requests or failed:
        raise BenchmarkError(f"ab: {output.strip()[-500:]}")
    return float(took[1])


def rally(place: Place, requests: int) -> Turn:
    """Stock Rally, scenario Authenticate.keystone with a constant runner. Raises BenchmarkError."""
    task, report = place.folder / "task.json", place.folder / "report.json"
    runner = {"constant": {"times": requests, "concurrency": USERS}}
    subtask = {"title": "authenticate", "scenario": {"Authenticate.keystone": {}}, "runner": runner}
    task.write_text(json.dumps({"version": 2, "title": "peers", "subtasks": [subtask]}), encoding="utf-8")
    cpu_s, output = _rally(place, "task", "start", str(task))
    report.unlink(missing_ok=True)
    _rally(place, "task", "report", "--json", "--out", str(report))
    try:
        (subtask,) = json.loads(report.read_text(encoding="utf-8"))["tasks"][0]["subtasks"]
        (workload,) = subtask["workloads"]
        if workload["failed_iteration_count"] or workload["total_iteration_count"] != requests:
            raise BenchmarkError(f"Rally: {workload['failed_iteration_count']} of {requests} failed")
        return Turn("Rally", requests, float(workload["load_duration"]), cpu_s, requests)
    except (OSError, KeyError, ValueError) as error:
        raise BenchmarkError(f"Rally: no result ({error}): {output.strip()[-500:]}") from error


def _rally(place: Place, *arguments: str) -> tuple[float, str]:
    environment = install.environment("rally")
    command = [str(environment.program("rally")), "--config-file", str(place.folder / "rally.conf"), *arguments]
    return run_to_end(command, place.folder, {"HOME": str(place.folder)})


TOOLS: dict[str, Take] = {"Stackswarm": stackswarm, "ab": ab, "Rally": rally}
WHOLE = ("ab", "Rally")
"""Tools whose CPU time includes what they take to start."""


def run_to_end(command: list[str], folder: Path, variables: dict[str, str]) -> tuple[float, str]:
    """Run to the end; CPU time in s of the process and its children, and what it printed. Raises BenchmarkError."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("LOCUST_", "STACKSWARM_", "OS_"))}
    with (folder / "output.txt").open("w+b") as output:
        process = subprocess.Popen(
            command, cwd=folder, env=inherited | variables, stdin=subprocess.DEVNULL, stdout=output,
            stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        deadline = time.monotonic() + DEADLINE_S
        try:
            while time.monotonic() < deadline:
                pid, status, usage = os.wait4(process.pid, os.WNOHANG)
                if pid:
                    process.returncode = os.waitstatus_to_exitcode(status)
                    output.seek(0)
                    said = output.read().decode(errors="replace")
                    if process.returncode:
                        raise BenchmarkError(f"{Path(command[0]).name}: status {process.returncode}: {said[-500:]}")
                    return usage.ru_utime + usage.ru_stime, said
                time.sleep(0.05)
        finally:
            if process.returncode is None:
                process.kill()
                process.wait()
    raise BenchmarkError(f"{Path(command[0]).name} did not end within {DEADLINE_S} s")


# --- the server, and what the tools want to know of it -------------------------------------------------------------


@contextlib.contextmanager
def keystone_for_all(cpu: int | None) -> Iterator[Place]:
    """A running Keystone, its users known to each tool. Raises InstallError and ServerError."""
    chosen = configuration.read("keystone", "uwsgi")
    parameters = chosen.complete(dict(PARAMETERS))
    prepared = keystone.prepare(chosen, parameters, dict(DATASET), _say)
    install.environment("rally", _say)
    with scratch_folder() as scratch, tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        with on_cpu(cpu):
            up = stack.enter_context(
                running(lambda place: keystone.server(prepared, place, chosen, parameters), scratch)
            )
        place = Place(up.target, Path(folder))
        _tell_ab(place)
        _tell_rally(place)
        yield place


def _tell_ab(place: Place) -> None:
    _write(place.folder / "body.json", _password_body(_users(place)[0]))


def _tell_rally(place: Place) -> None:
    own, names = place.target.environment, ("user_domain_id", "project_domain_id")
    admin = {
        "username": own["OS_USERNAME"],
        "password": own["OS_PASSWORD"],
        "project_name": own["OS_PROJECT_NAME"],
        **dict.fromkeys([n.replace("_id", "_name") for n in names], "Default"),
    }
    users = [
        {"username": u["username"], "password": u["password"], "project_name": u["project_name"],
         "user_domain_name": "Default", "project_domain_name": "Default"}
        for u in _users(place)
    ]  # fmt: skip
    spec = {"existing@openstack": {"auth_url": own["OS_AUTH_URL"], "region_name": keystone.REGION, "admin": admin,
                                   "users": users}}  # fmt: skip
    _write(place.folder / "env.json", spec)
    (place.folder / "rally.conf").write_text(
        f"[database]\nconnection = sqlite:///{place.folder}/rally.sqlite\n", encoding="utf-8"
    )
    _rally(place, "db", "create")
    _rally(place, "env", "create", "--name", "peers", "--spec", str(place.folder / "env.json"))


def _write(path: Path, secret: object) -> None:
    path.touch(mode=0o600)
    path.write_text(json.dumps(secret), encoding="utf-8")


def _say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


def _users(place: Place) -> list[dict[str, str]]:
    with Path(place.target.options["users-csv"]).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _password_body(user: dict[str, str]) -> dict[str, object]:
    domain = {"id": "default"}
    identity = {"name": user["username"], "domain": domain, "password": user["password"]}
    return {
        "auth": {
            "identity": {"methods": ["password"], "password": {"user": identity}},
            "scope": {"project": {"name": user["project_name"], "domain": domain}},
        }
    }


# --- all turns, and the tables -------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Round:
    """One tool in one round."""

    load: Turn
    start: Turn | None
    """Of WHOLE: a turn of as few authentications as there are clients."""

    @property
    def cpu_ms(self) -> float:
        """CPU time of one authentication, without what the tool takes to start."""
        cpu_s, requests = (self.start.cpu_s, self.start.cpu_requests) if self.start else (0.0, 0)
        return 1000 * (self.load.cpu_s - cpu_s) / (self.load.cpu_requests - requests)


def measure(place: Place, requests: int, rounds: int, seed: int) -> dict[str, list[Round]]:
    """All turns, by tool. Raises BenchmarkError."""
    found: dict[str, list[Round]] = {name: [] for name in TOOLS}
    order = random.Random(seed)
    began, total = time.monotonic(), rounds * len(TOOLS)
    for number in range(rounds):
        for name in order.sample(list(TOOLS), len(TOOLS)):
            start = TOOLS[name](place, USERS) if name in WHOLE else None
            found[name].append(Round(TOOLS[name](place, requests), start))
            done = sum(map(len, found.values()))
            left_s = (time.monotonic() - began) / done * (total - done)
            last = found[name][-1]
            _say(f"  round {number + 1}, {name}: {last.load.rate:.2f}/s, {last.cpu_ms:.2f} ms; {left_s:.0f} s left")
    return found


def table(found: dict[str, list[Round]]) -> list[str]:
    """Medians of the rounds with their extremes, and ratios to ours: each the median of the rounds' own ratios."""
    ours = found["Stackswarm"]
    lines = [f"{'tool':<12}{'authentications/s':>24}{'× ours':>9}{'client CPU ms each':>24}{'× ours':>9}"]
    for name, its in found.items():
        rates, costs = [r.load.rate for r in its], [r.cpu_ms for r in its]
        lines.append(
            f"{name:<12}{_spread(rates):>24}{_times(rates, [r.load.rate for r in ours]):>9.3f}"
            f"{_spread(costs):>24}{_times(costs, [r.cpu_ms for r in ours]):>9.2f}"
        )
    return lines


def verdicts(found: dict[str, list[Round]]) -> list[str]:
    """Whether each target is met."""
    ours = found["Stackswarm"]
    lines = []
    for name, apart in APART.items():
        ratio = _times([r.load.rate for r in found[name]], [r.load.rate for r in ours])
        met = "met" if abs(ratio - 1) <= apart else "NOT MET"
        lines.append(f"{name}'s throughput within {apart:.0%} of ours: {ratio:.3f}, {met}")
    ratio = _times([r.cpu_ms for r in found["Rally"]], [r.cpu_ms for r in ours])
    met = "met" if ratio >= LEAST_RALLY_CPU else "NOT MET"
    return [*lines, f"Rally's client CPU at least {LEAST_RALLY_CPU} times ours: {ratio:.1f}, {met}"]


def _spread(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f}–{max(values):.2f})"


def _times(values: Sequence[float], ours: Sequence[float]) -> float:
    return statistics.median(value / own for value, own in zip(values, ours, strict=True))


# --- the command ---------------------------------------------------------------------------------------------------


def parser(name: str, about: str, requests: int, of_a_turn: str, quick: int) -> argparse.ArgumentParser:
    """The command line of a comparison with peers; `quick`: requests of the smoke test's one round."""
    made = argparse.ArgumentParser(prog=f"python -m {name}", description=about.split("\n", maxsplit=1)[0])
    made.add_argument("--requests", type=int, default=requests, help=f"{of_a_turn}; default {requests}")
    made.add_argument("--rounds", type=int, default=5)
    made.add_argument("--seed", type=int, default=1, help="of the order of the turns; default 1")
    made.add_argument("--quick", action="store_true", help=f"a smoke test: one round of {quick}")
    return made


def main() -> int:
    """Measure and print; 1 where something failed."""
    command = parser("benchmarks.peers", __doc__ or "", 100, "authentications of a turn", QUICK)
    arguments = command.parse_args()
    if arguments.quick:
        arguments.requests, arguments.rounds = QUICK, 1
    if arguments.requests <= USERS or arguments.rounds < 1:
        command.error(f"--requests must be more than {USERS}, --rounds at least 1")
    generator_cpu, server_cpu = placement()
    where = "generator and server share one CPU" if server_cpu is None else "generator and server each on a CPU"
    print(f"{arguments.rounds} rounds of {arguments.requests} authentications by {USERS} clients; {where}")
    try:
        with keystone_for_all(server_cpu) as place, on_cpu(generator_cpu):
            found = measure(place, arguments.requests, arguments.rounds, arguments.seed)
    except (BenchmarkError, install.InstallError, ServerError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print("\n".join(["", *table(found), "", *verdicts(found)]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
