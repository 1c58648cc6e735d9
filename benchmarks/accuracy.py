"""How wrong is the instrument? The recorder against raw timestamps, pacing, client against server, and what it costs.

    .venv/bin/python -m benchmarks.accuracy [--quick]

Everything runs on this machine, for a minute and a half (--quick: a smoke test of 40 s, with numbers that mean little).
On a busy machine trust differences and ratios, which were taken at the same time, not absolute times.
"""

from __future__ import annotations

import argparse
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.parse
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmarks.runs import LOCUSTFILES, PROBE, Row, Run, locust, quantile, recorded, table
from benchmarks.stalls import stall_rows

sys.path.insert(0, str(LOCUSTFILES))

from _arrivals import Schedule, steady  # found by the line above
from _histograms import Histograms

from tests.timed_server import timed_server

MEDIANS_MS = (0.3, 1.5, 15.0, 105.0)
PROBE_RATE = 40
PACING_RATE = 1000
SHARES = (0.5, 0.9, 0.99)
AT_ONCE = ("--service", "fixed:0")
BUSY = ("--service", "fixed:0.005")
AUTH = LOCUSTFILES / "keystone_auth.py"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a smoke test")
    quick = parser.parse_args().quick
    seconds = 2 if quick else 8
    header = Row("requests that take about", tuple(f"{median:g} ms" for median in MEDIANS_MS), "limit")
    rows = [*recorder_rows(seconds), *pacing_rows(seconds), *client_rows(seconds), *cost_rows(seconds)]
    print(table([header, *rows, *stall_rows(4 if quick else 20)]))


# The recorder against raw timestamps.


def recorder_rows(seconds: int) -> Iterable[Row]:
    """Largest error of a quantile in SHARES, relative to the same quantile of raw timestamps, for each median."""
    for model in ("closed", "open"):
        load = ["-u", "2", "-r", "2"] if model == "closed" else ["--arrival-rate", str(PROBE_RATE)]
        run = locust(PROBE, seconds, load, PROBE_TIMES_MS=",".join(map(str, MEDIANS_MS)))
        for clock, truth in raw_times(run, model).items():
            errors = [worst_error(recorded(run, clock, f"{m:g}"), sorted(truth[f"{m:g}"])) for m in MEDIANS_MS]
            time_name = "" if model == "closed" else f", {clock} time"
            yield Row(f"recorder against raw, {model}{time_name}", tuple(f"{e:.2%}" for e in errors), "0.50%")


def raw_times(run: Run, model: str) -> dict[str, dict[str, list[float]]]:
    """Clock to median to µs, from the probe's timestamps alone."""
    service: dict[str, list[float]] = defaultdict(list)
    response: dict[str, list[float]] = defaultdict(list)
    starts = Schedule(steady(PROBE_RATE)).starts()
    for name, start_s, end_s in run.probe["raw"]:
        service[name].append((end_s - start_s) * 1e6)
        if model == "open":
            response[name].append((end_s - run.probe["origin_s"] - next(starts)) * 1e6)
    return {"both": service} if model == "closed" else {"response": response, "service": service}


def worst_error(seen: Sequence[float], truth: Sequence[float]) -> float:
    """Relative; infinite where the recorder has counted another number of requests."""
    if len(seen) != len(truth):
        return float("inf")
    return max(abs(quantile(seen, share) / quantile(truth, share) - 1) for share in SHARES)


# Pacing.


def pacing_rows(seconds: int) -> Iterable[Row]:
    """How late requests start at 1000 a second, and how late a bare timer loop in the same process is."""
    load = ["--arrival-rate", str(PACING_RATE), "--max-in-flight", "20"]
    run = locust(PROBE, seconds, load, PROBE_BARE_S=str(seconds))
    starts = Schedule(steady(PACING_RATE)).starts()
    late = sorted(start_s - run.probe["origin_s"] - next(starts) for _, start_s, _ in run.probe["raw"])
    yield Row(f"start after intended start, {PACING_RATE}/s", tuple(f"p{share * 100:g}" for share in SHARES), "")
    yield Row("  open model", in_ms(late), "1.5 × bare")
    yield Row("  bare gevent timer loop, same process", in_ms(sorted(run.probe["bare"])), "")


def in_ms(times_s: Sequence[float]) -> tuple[str, ...]:
    """The quantiles of SHARES."""
    return tuple(f"{quantile(times_s, share) * 1000:.3f} ms" for share in SHARES)


# Client against server.


def client_rows(seconds: int) -> Iterable[Row]:
    """What the client adds to what the server knows: sending, waking up, reading. The server answers at once."""
    run = locust(AUTH, seconds, ["-u", "1"], AT_ONCE)
    ours_ms = quantile(recorded(run, "both"), 0.5) / 1000 - server_p50_ms(run)
    yield Row("client minus server, p50, one user", (f"{ours_ms:.3f} ms",), "1.5 × wrk")
    yield Row("  bare blocking socket, a moment later", (f"{bare_minus_server_ms(seconds):.3f} ms",), "")
    if shutil.which("wrk"):
        yield Row("  wrk, one connection, a moment later", (f"{wrk_minus_server_ms(seconds):.3f} ms",), "")


def server_p50_ms(run: Run) -> float:
    """By the server's own clock."""
    return statistics.median(line.service_time_s for line in run.server_log) * 1000


def bare_minus_server_ms(seconds: int) -> float:
    """The same for the least that Python can do: send, receive, look at the clock."""
    with tempfile.TemporaryDirectory() as folder:
        with timed_server(Path(folder), *AT_ONCE) as server:
            median_s = statistics.median(bare_times_s(urllib.parse.urlsplit(server.url), seconds))
        server_s = statistics.median(line.service_time_s for line in server.log())
    return (median_s - server_s) * 1000


def bare_times_s(url: urllib.parse.SplitResult, seconds: int) -> list[float]:
    """Service times of requests on one connection."""
    request = b"GET /v3/auth/tokens HTTP/1.1\r\nHost: server\r\n\r\n"
    times_s = []
    end_s = time.perf_counter() + seconds
    with socket.create_connection((url.hostname, url.port), 5) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while (start_s := time.perf_counter()) < end_s:
            connection.sendall(request)
            connection.recv(65536)  # an answer of a few hundred bytes comes in one piece
            times_s.append(time.perf_counter() - start_s)
    return times_s


def wrk_minus_server_ms(seconds: int) -> float:
    """The same for wrk, against the same server."""
    with tempfile.TemporaryDirectory() as folder:
        with timed_server(Path(folder), *AT_ONCE) as server:
            command = ["wrk", "-t1", "-c1", f"-d{seconds}s", "--latency", server.url + "/v3/auth/tokens"]
            output = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 20, check=True).stdout
        median_s = statistics.median(line.service_time_s for line in server.log())
    found = re.search(r"50%\s+([\d.]+)(us|ms|s)", output)
    assert found, output
    return float(found[1]) * {"us": 0.001, "ms": 1.0, "s": 1000.0}[found[2]] - median_s * 1000


# What it costs.


def cost_rows(seconds: int) -> Iterable[Row]:
    """CPU of a request, and how much of it the recorder and the health samples are."""
    run = locust(AUTH, seconds + 2, ["-u", "20", "-r", "20"], BUSY)
    cpu_us, rate = cost_of_a_request(run)
    health_us = health_cost_us()
    yield Row("CPU of a request, everything", (f"{cpu_us:.0f} µs", f"{rate:.0f}/s"), "")
    for model in ("closed", "open"):
        cost_us = recorder_cost_us(model)
        share = (cost_us + health_us / rate) / cpu_us
        yield Row(f"  of it recorder and health, {model} model", (f"{cost_us:.1f} µs", f"{share:.1%}"), "5%")
    yield Row("  health by itself, of one core", (f"{health_us / 1e6:.2%}",), "1%")


def cost_of_a_request(run: Run) -> tuple[float, float]:
    """CPU µs of the generator for each request, and requests a second, over the run's whole seconds."""
    first, last = run.health[1], run.health[-2]
    count = sum(int(row["count"]) for row in run.rows if first["second"] < int(row["second"]) <= last["second"])
    return (last["cpu_us"] - first["cpu_us"]) / count, count / (last["second"] - first["second"])


def recorder_cost_us(model: str) -> float:
    """CPU of one event in the recorder; the best of five rounds."""
    histograms = Histograms(time.time)
    service_time = 12.3 if model == "open" else None
    best = float("inf")
    for _ in range(5):
        begin_s = time.process_time()
        for number in range(20_000):
            histograms.on_request("POST", "/v3/auth/tokens", 10 + number % 1000 / 100, None, service_time)
        best = min(best, time.process_time() - begin_s)
        histograms.take()
    return best / 20_000 * 1e6


HEALTH = """
import gevent, sys, time
from pathlib import Path
from _health import PORTS_EVERY_S, PROBE_S, Health

health = Health(Path(sys.argv[1]))
health.start("http://127.0.0.1:5000")
begin_s = time.process_time()
for second in range(PORTS_EVERY_S):
    for _ in range(round(1 / PROBE_S)):
        gevent.sleep(0)
        health._look()
    health.write(second, None)
print((time.process_time() - begin_s) / PORTS_EVERY_S * 1e6)
"""


def health_cost_us() -> float:
    """CPU µs that a process spends each second on watching itself.

    In one go, since waking up an idle processor is not a cost in a load generator, which is awake.
    """
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", HEALTH, f"{folder}/health.jsonl"]
        return float(subprocess.run(command, cwd=LOCUSTFILES, capture_output=True, timeout=30, check=True).stdout)


if __name__ == "__main__":
    main()
