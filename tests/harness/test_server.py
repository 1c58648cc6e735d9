"""Starting, waiting, stopping: with real processes."""

import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from harness import server
from harness.server import Process, Server, ServerError, Target, free_port, running, scratch_folder, signals_held
from tests.harness.conftest import listens, process

Make = Callable[..., Server]


def family(up: server.Running) -> list[psutil.Process]:
    roots = [psutil.Process(pid) for pid in up.pids]
    return [p for root in roots for p in (root, *root.children(recursive=True))]


def alive(processes: list[psutil.Process]) -> list[psutil.Process]:
    return [p for p in processes if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]


def test_a_server_is_up_inside_and_gone_outside(little_server: Make, scratch: Path) -> None:
    with scratch_folder() as folder, running(lambda place: little_server(place, children=2), folder) as up:
        port = int(up.target.url.rsplit(":", 1)[1])
        assert listens(port)
        before = family(up)
        assert len(before) == 3
        assert 0 < up.started_s < 60
    assert not listens(port)
    assert alive(before) == []
    assert list(scratch.iterdir()) == []


def test_it_is_gone_after_an_error_and_after_an_interrupt(little_server: Make, scratch: Path) -> None:
    for kind in (RuntimeError, KeyboardInterrupt):
        seen: list[psutil.Process] = []
        with pytest.raises(kind), scratch_folder() as folder, running(little_server, folder) as up:
            seen = family(up)
            raise kind
        assert seen and alive(seen) == []
        assert list(scratch.iterdir()) == []


def test_one_that_ignores_the_request_to_stop_is_killed(little_server: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "STOP_GRACE_S", 0.5)
    with scratch_folder() as folder, running(lambda place: little_server(place, "ignore", children=1), folder) as up:
        time.sleep(0.2)
        seen = family(up)
    assert len(seen) == 2 and alive(seen) == []


def test_one_that_dies_at_once_says_why() -> None:
    def make(place: Path) -> Server:
        dying = process(place, "import sys; print('no such table: user'); sys.exit(3)", name="dying")
        return Server(Target("http://127.0.0.1:1"), [dying], lambda: False, {}, "1")

    reason = "dying ended with status 3: no such table: user"
    with pytest.raises(ServerError, match=reason), scratch_folder() as folder, running(make, folder):
        pytest.fail("it was never up")


def test_one_that_is_never_ready_is_given_up_and_stopped(little_server: Make) -> None:
    made: list[Server] = []

    def make(place: Path) -> Server:
        made.append(dataclasses.replace(little_server(place), is_ready=lambda: False))
        return made[-1]

    reason = "was not ready after 1 s: serving"
    with pytest.raises(ServerError, match=reason), scratch_folder() as folder, running(make, folder, 1.0):
        pytest.fail("it was never ready")
    assert not listens(int(made[0].target.url.rsplit(":", 1)[1]))


def test_a_port_that_was_taken_meanwhile_is_replaced(little_server: Make) -> None:
    taken, places = free_port(), []
    held = subprocess.Popen(
        [sys.executable, "-m", "http.server", "--bind", "127.0.0.1", str(taken)], stderr=subprocess.DEVNULL
    )
    try:
        while not listens(taken):
            time.sleep(0.05)

        def make(place: Path) -> Server:
            places.append(place)
            first = len(places) == 1
            made = little_server(place, port=taken if first else None)
            return dataclasses.replace(made, is_ready=lambda: False) if first else made

        with scratch_folder() as folder, running(make, folder) as up:
            assert up.target.url != f"http://127.0.0.1:{taken}"
            assert len(set(places)) == 2
    finally:
        held.terminate()
        held.wait()


def test_a_death_in_between_is_noticed(little_server: Make) -> None:
    with scratch_folder() as folder, running(little_server, folder) as up:
        up.check()
        psutil.Process(up.pids[0]).kill()
        up.popens["answering"].wait()
        with pytest.raises(ServerError, match="answering ended with status -9"):
            up.check()


def test_what_a_killed_harness_left_behind_is_removed_by_the_next_one(scratch: Path) -> None:
    program = f"""
import sys; sys.path.insert(0, {str(Path.cwd())!r})
import os, signal
from pathlib import Path
from harness import server
from tests.harness.conftest import process
server.SCRATCH = Path({str(scratch)!r})
def make(place):
    return server.Server(server.Target(""), [process(place, "import time; time.sleep(600)")], lambda: True, {{}}, "1")
with server.scratch_folder() as folder, server.running(make, folder) as up:
    print(up.pids[0], flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""
    killed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    orphan = psutil.Process(int(killed.stdout))
    assert orphan.is_running() and len(list(scratch.iterdir())) == 1
    with scratch_folder() as folder:
        assert list(scratch.iterdir()) == [folder]
        orphan.wait(5)


def test_it_is_waited_for_until_it_does_nothing_more() -> None:
    busy = "import time\nwhile time.process_time() < 0.8: pass\ntime.sleep(600)"  # however long others make it wait

    def make(place: Path) -> Server:
        return Server(Target(""), [process(place, busy)], lambda: True, {}, "1")

    with scratch_folder() as folder, running(make, folder) as up:
        assert not server.wait_until_idle(up, timeout_s=0.5)
        assert server.wait_until_idle(up, timeout_s=30)
        assert sum(psutil.Process(up.pids[0]).cpu_times()[:2]) > 0.5


def test_a_scratch_folder_is_nobody_elses_business(scratch: Path) -> None:
    with scratch_folder() as folder:
        assert folder.stat().st_mode & 0o777 == 0o700
        pid, _ = json.loads((folder / "owner.json").read_text())[0]
        assert pid == os.getpid()
        with scratch_folder():  # the sweep of a second one leaves a living owner's folder alone
            assert folder.is_dir()


def test_free_ports_are_free_and_below_the_ephemeral_range() -> None:
    first = int(re.split(r"\s+", Path("/proc/sys/net/ipv4/ip_local_port_range").read_text())[0])
    ports = [free_port() for _ in range(50)]
    assert all(1024 < port < first for port in ports)
    assert len(set(ports)) > 25
    assert not any(listens(port) for port in ports)


def test_two_processes_stop_in_the_reverse_order(little_server: Make) -> None:
    with scratch_folder() as folder:
        log = folder / "order"
        program = (
            "import signal, sys, time\n"
            "def stop(*_):\n    open(sys.argv[1], 'a').write(sys.argv[2]); sys.exit(0)\n"
            "signal.signal(signal.SIGTERM, stop); print('up', flush=True); time.sleep(600)"
        )

        def make(place: Path) -> Server:
            pair = [process(place, program, str(log), name, name=name) for name in ("a", "b")]
            return Server(Target(""), pair, lambda: all(_up(p) for p in pair), {}, "1")

        with running(make, folder):
            pass
        assert log.read_text() == "ba"


def _up(started: Process) -> bool:
    return started.log.exists() and "up" in started.log.read_text()


def test_an_interrupt_waits_until_a_started_process_has_a_name() -> None:
    done = []
    with pytest.raises(KeyboardInterrupt):
        with signals_held():
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.05)
            done.append("named")
        done.append("went on")
    assert done == ["named"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
