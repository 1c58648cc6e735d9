"""The generator's own health: read rightly, written every second, and cheap."""

from __future__ import annotations

import contextlib
import itertools
import json
import socket
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from _arrival_counts import LATE_S, ArrivalCounts
from _kernel_counters import (
    addresses_of,
    ephemeral_ports,
    listen_overflows,
    open_files,
    ports_in_use,
    run_queue_delay_us,
    tcp_retransmits,
)

from analysis.record import ARRIVAL_FIELDS, HEALTH_FIELDS, read_process
from tests.timed_server import timed_server

from .conftest import LOCUSTFILES, OS_VARIABLES, Locust

SNMP = "Ip: Forwarding\nIp: 1\nTcp: ActiveOpens RetransSegs InErrs\nTcp: 5 17 2\n"
NETSTAT = "TcpExt: SyncookiesSent ListenOverflows\nTcpExt: 1 23\nIpExt: InNoRoutes\nIpExt: 0\n"


def test_counters_of_a_made_up_system(tmp_path: Path) -> None:
    for name, text in {
        "self/schedstat": "123456789 55000999 42\n",
        "net/snmp": SNMP,
        "net/netstat": NETSTAT,
        "sys/net/ipv4/ip_local_port_range": "32768\t60999\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert run_queue_delay_us(tmp_path) == 55000
    assert tcp_retransmits(tmp_path) == 17
    assert listen_overflows(tmp_path) == 23
    assert ephemeral_ports(tmp_path) == 28232


def test_what_is_not_there_is_not_zero(tmp_path: Path) -> None:
    for read in (run_queue_delay_us, tcp_retransmits, listen_overflows, ephemeral_ports, open_files):
        assert read(tmp_path) is None
    assert ports_in_use([("127.0.0.1", 80)], tmp_path) is None


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "::ffff:127.0.0.1"])
def test_ports_are_counted_by_their_target(host: str) -> None:
    family = socket.AF_INET if "." in host and ":" not in host else socket.AF_INET6
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket(family))
        try:
            listener.bind((host, 0))
        except OSError:
            pytest.skip("no IPv6 here")
        listener.listen()
        port = listener.getsockname()[1]
        targets = addresses_of(host.removeprefix("::ffff:"), port)
        assert ports_in_use(targets) == 0
        for _ in range(3):
            client = stack.enter_context(socket.socket(family))
            client.connect((host, port))
            stack.enter_context(listener.accept()[0])
        assert ports_in_use(targets) == 3
    assert addresses_of("no-such-host.invalid", 80) == []


def test_arrival_counts() -> None:
    counts = ArrivalCounts()
    counts.add(5, "offered", 3)
    counts.start(5, LATE_S / 2, all_busy=True)
    counts.start(6, LATE_S * 2, all_busy=True)
    counts.end(6, answered=True)
    counts.start(7, LATE_S * 2, all_busy=False)
    assert counts.take(6) == {
        "offered": 3, "started": 2, "late": 1, "late_all_busy": 1, "dropped": 0, "unstarted": 0, "unanswered": 0,
        "in_flight_max": 2,
    }  # fmt: skip
    counts.end(7, answered=False)
    counts.end(7, answered=True)
    seventh = counts.take(7)
    assert (seventh["late"], seventh["unanswered"]) == (1, 1)
    assert counts.take(8)["in_flight_max"] == 0
    assert counts.summary()["answered"] == 2
    assert counts.summary()["late_all_busy"] == 1


@pytest.mark.parametrize("model", ["open", "closed"])
def test_every_second_has_a_line(locust: Locust, tmp_path: Path, model: str) -> None:
    load = ("--arrival-rate", "60", "--max-in-flight", "9") if model == "open" else ("-u", "3", "-r", "3")
    with timed_server(tmp_path, "--service", "fixed:0.02") as server:
        run = locust.run("keystone_auth.py", *load, "-t", "4s", "-H", server.url, **OS_VARIABLES)
    assert run.exit_code == 0, run.output
    (lines,) = run.health
    record = read_process(run.folder / "response_times" / "local.json")
    assert record.test_start_unix_s is not None
    assert record.test_stop_unix_s is not None
    seconds = [line["second"] for line in lines]
    assert seconds[0] == int(record.test_start_unix_s)
    assert seconds[-1] == int(record.test_stop_unix_s)
    assert seconds == sorted(set(seconds))
    assert len(seconds) >= 4
    for line in lines:
        assert tuple(line) == HEALTH_FIELDS
        assert 0 < line["open_files"] < line["open_files_limit"]
    for before, after in itertools.pairwise(lines):
        assert 0 < after["cpu_us"] - before["cpu_us"] < 3_000_000
        assert after["run_queue_delay_us"] >= before["run_queue_delay_us"]
    samples = list(itertools.chain(*(line["loop_lag_us"] for line in lines)))
    assert 20 < len(samples) <= 20 * 4 + 5
    assert min(samples) >= 0
    assert any(line["ports_in_use"] is not None for line in lines)
    assert_arrivals_add_up(lines, record.arrivals, model)


def assert_arrivals_add_up(lines: list[dict[str, object]], totals: dict[str, int] | None, model: str) -> None:
    if model == "closed":
        assert totals is None
        assert {line["arrivals"] for line in lines} == {None}
        return
    assert totals is not None
    sums: Counter[str] = Counter()
    for line in lines:
        counts = line["arrivals"]
        assert isinstance(counts, dict)
        assert tuple(counts) == (*ARRIVAL_FIELDS, "in_flight_max")
        sums.update(counts)
    assert {name: sums[name] for name in ARRIVAL_FIELDS} == {name: totals[name] for name in ARRIVAL_FIELDS}
    assert totals["offered"] == totals["started"] == 240


COST = """
import json, socket, sys, time
import gevent
from pathlib import Path
from _health import Health

listener = socket.create_server(("127.0.0.1", 0), backlog=500)
pairs = [(socket.create_connection(listener.getsockname()), listener.accept()) for _ in range(200)]
health = Health(Path(sys.argv[1]))
health.start("http://127.0.0.1:%d" % listener.getsockname()[1])
gevent.sleep(0.1)
began_s, cpu_s = time.monotonic(), time.process_time()
for second in range(3):
    gevent.sleep(1)
    health.write(second, None)
health.stop()
print(json.dumps({"cpu": (time.process_time() - cpu_s) / (time.monotonic() - began_s)}))
"""


def test_it_costs_under_one_percent_of_a_core(tmp_path: Path) -> None:
    """With 200 connections. CPU times of a busy machine are inflated, so the best of three counts."""

    def share() -> float:
        command = [sys.executable, "-c", COST, str(tmp_path / "health.jsonl")]
        output = subprocess.run(command, cwd=LOCUSTFILES, capture_output=True, text=True, timeout=30, check=True).stdout
        (tmp_path / "health.jsonl").unlink()
        return float(json.loads(output)["cpu"])

    assert any(share() < 0.01 for _ in range(3))
