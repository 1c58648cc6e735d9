"""Start a server, wait until it is ready, stop it, keep its logs. Knows no system."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil

from harness.access_logs import AccessLogs
from harness.install import SERVERS

SCRATCH = SERVERS / "scratch"
STOP_GRACE_S = 5.0
KILL_WAIT_S = 2.0
START_ATTEMPTS = 3
READY_TIMEOUT_S = 120.0
POLL_S = 0.1
IDLE_TIMEOUT_S = 60.0
IDLE_SAMPLE_S = 0.3
MAX_SOCKET_BYTES = 107
"""Of the path of a Unix socket on Linux."""
IDLE_SHARE = 0.1
"""A server that uses less of a core than this is idle: timers and health checks, no requests."""


class ServerError(Exception):
    """A server did not start, or died: what, where its log is, what to do."""


@dataclasses.dataclass(frozen=True)
class Process:
    """One process to start. Its standard output and error go to `log`."""

    name: str
    argv: list[str]
    environment: dict[str, str]
    log: Path


@dataclasses.dataclass(frozen=True)
class Target:
    """What the load generator needs to know of a server that is up."""

    url: str
    environment: dict[str, str] = dataclasses.field(default_factory=dict)
    """Variables for Locust's environment: credentials travel this way, never on a command line."""
    options: dict[str, str] = dataclasses.field(default_factory=dict)
    """Options of the locustfile that depend on the server, as "users-csv": "/…"."""


@dataclasses.dataclass(frozen=True)
class Server:
    """A server, ready to be started: everything that is system-specific has been decided."""

    target: Target
    processes: list[Process]
    """In the order of starting; they are stopped in the reverse order."""
    is_ready: Callable[[], bool]
    """Asked again and again until true. Raises ServerError where waiting is of no use."""
    rendered: dict[str, str]
    """Configuration files as started: name to text."""
    version: str
    secrets: frozenset[str] = frozenset()
    """Strings that must not reach a result."""
    access_logs: AccessLogs = dataclasses.field(default_factory=AccessLogs)
    """Logs from which the answers of a run are counted; none where the server keeps no such logs."""


@dataclasses.dataclass
class Running:
    """A server that is up."""

    server: Server
    popens: dict[str, subprocess.Popen[bytes]]
    started_s: float
    """How long it took to be ready, in seconds."""
    gone: set[str] = dataclasses.field(default_factory=set)
    """Names of processes that were killed on purpose."""

    @property
    def target(self) -> Target:
        """Where and how to reach it."""
        return self.server.target

    @property
    def parts(self) -> list[tuple[str, int]]:
        """Name and process id of what was started."""
        return [(name, popen.pid) for name, popen in self.popens.items()]

    @property
    def pids(self) -> list[int]:
        """Process ids of what was started; their children belong to them."""
        return [p.pid for p in self.popens.values()]

    def check(self) -> None:
        """Raise ServerError where a process has died that should not have."""
        for process in self.server.processes:
            status = self.popens[process.name].poll()
            if status is not None and process.name not in self.gone:
                raise ServerError(f"{process.name} ended with status {status}: {last_words(process.log)}")


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    """A folder that only this user can enter, deleted afterwards. What a killed harness left behind goes first."""
    SCRATCH.mkdir(parents=True, exist_ok=True)
    sweep()
    folder = Path(tempfile.mkdtemp(prefix="run-", dir=SCRATCH))
    own(folder, [])
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def running(
    make: Callable[[Path], Server], folder: Path, ready_timeout_s: float = READY_TIMEOUT_S
) -> Iterator[Running]:
    """Start the server that `make` describes for a fresh sub-folder of `folder`; stop it at the end, whatever happens.

    `make` is called again, in another sub-folder, where the ports that it chose were taken in the meantime.
    Raises ServerError where the server does not become ready.
    """
    for attempt in range(1, START_ATTEMPTS + 1):
        place = folder / f"server-{attempt}"
        place.mkdir(mode=0o700)
        up = Running(make(place), {}, 0.0)
        try:
            _start(up, folder, ready_timeout_s)
        except ServerError:
            taken = [process.name for process in up.server.processes if _port_taken(process.log)]
            stop(up)
            if not taken:
                raise
            if attempt == START_ATTEMPTS:
                raise ServerError(
                    f"the port chosen for {taken[0]} was in use by another program, {START_ATTEMPTS} times in a row. "
                    "Stop what takes ports on 127.0.0.1, and try again."
                ) from None
        except BaseException:
            stop(up)
            raise
        else:
            break
    try:
        yield up
    finally:
        stop(up)


@contextlib.contextmanager
def signals_held() -> Iterator[None]:
    """Keep back what would end the program until the block is left, and the process started in it has a name.

    Enter it within the `try` that ends the process: an interrupt that was kept back is raised where it is left.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # signals reach the main thread only
        return
    held: list[int] = []
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    ours = {number: handler for number, handler in handlers.items() if callable(handler)}
    for number in ours:
        signal.signal(number, lambda number, _: held.append(number))
    try:
        yield
    finally:
        for number, handler in ours.items():
            signal.signal(number, handler)
        if held:
            signal.raise_signal(held[0])


def _start(up: Running, folder: Path, ready_timeout_s: float) -> None:
    began = time.monotonic()
    for process in up.server.processes:
        process.log.parent.mkdir(parents=True, exist_ok=True)
        with process.log.open("ab") as log, signals_held():
            # A session of its own: an interrupt at the terminal reaches the harness only, which stops all in order.
            up.popens[process.name] = subprocess.Popen(
                process.argv, env=process.environment, cwd=process.log.parent,
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        own(folder, up.pids)
    while not up.server.is_ready():
        up.check()
        if time.monotonic() - began > ready_timeout_s:
            process = up.server.processes[-1]
            raise ServerError(f"{process.name} was not ready after {ready_timeout_s:.0f} s: {last_words(process.log)}")
        time.sleep(POLL_S)
    up.check()
    up.started_s = time.monotonic() - began


def wait_until_idle(up: Running, timeout_s: float = IDLE_TIMEOUT_S) -> bool:
    """Wait until the server does nothing more for requests of the past. False where it does not come to rest in time.

    What it still works on when the next run begins would be measured there.
    """
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        before = _wanted_s(up)
        time.sleep(IDLE_SAMPLE_S)
        if _wanted_s(up) - before < IDLE_SHARE * IDLE_SAMPLE_S:
            return True
    return False


def _wanted_s(up: Running) -> float:
    """Processor time that the server had, or was ready for and did not get: one that is starved is not idle."""
    wanted = 0.0
    for pid in up.pids:
        with contextlib.suppress(psutil.Error):
            root = psutil.Process(pid)
            for process in (root, *root.children(recursive=True)):
                with contextlib.suppress(psutil.Error, OSError):
                    wanted += sum(process.cpu_times()[:2]) + _waited_s(process.pid)
    return wanted


def _waited_s(pid: int) -> float:
    """How long the threads of a process have waited for a processor; 0 where the kernel does not count that."""
    return sum(int(file.read_text().split()[1]) / 1e9 for file in Path(f"/proc/{pid}/task").glob("*/schedstat"))


def stop(up: Running) -> None:
    """End every process of a server and of its process groups: asked first, killed after a grace period."""
    for process in reversed(up.server.processes):
        if popen := up.popens.get(process.name):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(popen.pid, signal.SIGCONT)  # one that an event has stopped would not end when asked
            end_group(popen)


def end_group(popen: subprocess.Popen[bytes], grace_s: float | None = None) -> None:
    """End a process that leads its own process group, and whatever is left of the group; STOP_GRACE_S by default."""
    with contextlib.suppress(ProcessLookupError):
        popen.terminate()
    try:
        popen.wait(STOP_GRACE_S if grace_s is None else grace_s)
    except subprocess.TimeoutExpired:
        pass
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(popen.pid, signal.SIGKILL)
        popen.wait()
        deadline = time.monotonic() + KILL_WAIT_S
        while _has_living_member(popen.pid) and time.monotonic() < deadline:
            time.sleep(0.02)


def _has_living_member(group: int) -> bool:
    """Whether a process of this group still runs. One that has ended may wait for its parent to notice for good."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, ProcessLookupError):
            if os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE:
                return True
    return False


def free_port() -> int:
    """A TCP port of 127.0.0.1 that is free now, below the range from which the kernel takes ports for clients."""
    first_ephemeral = _first_ephemeral_port()
    for _ in range(200):
        port = random.randrange(min(15_000, first_ephemeral - 1000), first_ephemeral)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
                continue
            return port
    raise ServerError("found no free port on 127.0.0.1. Stop some servers and try again.")


def _first_ephemeral_port() -> int:
    try:
        return int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii").split()[0])
    except (OSError, ValueError):
        return 32_768


def check_socket_path(path: Path, whose: str) -> None:
    """Raise ServerError where a Unix socket cannot have this path."""
    if len(os.fsencode(path)) > MAX_SOCKET_BYTES:
        raise ServerError(
            f"{whose}'s Unix socket would have a path of more than {MAX_SOCKET_BYTES} bytes, below {path.parent}. "
            "Move the repository to a shorter path, or choose a configuration without it."
        )


def last_words(log: Path) -> str:
    """The last line of a log, and where to read the rest."""
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    except OSError:
        lines = []
    return lines[-1][-300:] if lines else "it printed nothing"


def _port_taken(log: Path) -> bool:
    try:
        # glibc says "Address already in use", musl "Address in use".
        return (
            re.search(r"address (already )?in use", log.read_text(encoding="utf-8", errors="replace").lower())
            is not None
        )
    except OSError:
        return False


def own(folder: Path, pids: list[int]) -> None:
    """Note in a scratch folder that it and these processes are this harness's: sweep() ends what outlives it."""
    alive = [[pid, psutil.Process(pid).create_time()] for pid in (os.getpid(), *pids) if psutil.pid_exists(pid)]
    (folder / "owner.json").write_text(json.dumps(alive), encoding="utf-8")


def sweep() -> None:
    """Remove scratch folders, and end servers, of harnesses that were killed before they could do it."""
    for folder in SCRATCH.glob("run-*"):
        try:
            owner, *servers = json.loads((folder / "owner.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue  # being made by another harness at this moment
        if _is_alive(owner):
            continue
        for server in filter(_is_alive, servers):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(server[0], signal.SIGKILL)
        shutil.rmtree(folder, ignore_errors=True)


def _is_alive(process: Any) -> bool:
    pid, create_time = process
    try:
        return bool(abs(psutil.Process(pid).create_time() - create_time) < 1)
    except psutil.NoSuchProcess:
        return False
