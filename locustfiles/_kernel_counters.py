"""What the kernel knows of this process and of the network: read from /proc, None where that does not say.

Counters are cumulative since the process or the system started, so that any window is a difference.
"""

from __future__ import annotations

import os
import resource
import socket
import sys
from collections.abc import Iterable
from pathlib import Path

PROC = Path("/proc")

Address = tuple[str, int]
"""IP address in text, port."""


def run_queue_delay_us(proc: Path = PROC) -> int | None:
    """How long the main thread, which runs the event loop, was ready to run and had no CPU."""
    fields = _text(proc / "self/schedstat").split()
    return int(fields[1]) // 1000 if len(fields) > 1 else None


def open_files(proc: Path = PROC) -> int | None:
    """Open file descriptors of this process."""
    try:
        return len(os.listdir(proc / "self/fd"))  # noqa: PTH208 (counts only, a few times faster)
    except OSError:
        return None


def open_files_limit() -> int:
    """How many the process may have."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def tcp_retransmits(proc: Path = PROC) -> int | None:
    """TCP segments sent again, by all processes of this network namespace."""
    return _counter(proc / "net/snmp", "Tcp:", "RetransSegs")


def listen_overflows(proc: Path = PROC) -> int | None:
    """Connections that found a listener's queue full, of all listeners of this network namespace."""
    return _counter(proc / "net/netstat", "TcpExt:", "ListenOverflows")


def ephemeral_ports(proc: Path = PROC) -> int | None:
    """How many local ports outgoing connections to one address and port can have."""
    bounds = _text(proc / "sys/net/ipv4/ip_local_port_range").split()
    return int(bounds[1]) - int(bounds[0]) + 1 if len(bounds) == 2 else None


def ports_in_use(targets: Iterable[Address], proc: Path = PROC) -> int | None:
    """Local ports taken by connections to `targets`, by all processes here, those still closing (TIME_WAIT) too."""
    tables = [_text(proc / "net" / table) for table in ("tcp", "tcp6")]
    wanted = [name for address in targets for name in _names(address)]
    if not wanted or not any(tables):
        return None
    # A row begins "  0: LOCAL REMOTE 01 …". Counting is much faster than splitting each of what may be 30000 rows.
    return sum(table.count(f" {name} ") - table.count(f": {name} ") for table in tables for name in wanted)


def addresses_of(host: str, port: int) -> list[Address]:
    """Where connections to a host and port can go; empty where its name is not known."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError:
        return []
    return sorted({(str(entry[4][0]), port) for entry in found})


def _names(address: Address) -> list[str]:
    """The address as /proc/net/tcp and tcp6 write it: 32-bit words in the machine's byte order, in hexadecimal."""
    text, port = address
    family = socket.AF_INET6 if ":" in text else socket.AF_INET
    packed = socket.inet_pton(family, text)
    words = [packed[i : i + 4] for i in range(0, len(packed), 4)]
    own = "".join((word[::-1] if sys.byteorder == "little" else word).hex().upper() for word in words)
    mapped = "0000000000000000" + ("FFFF0000" if sys.byteorder == "little" else "0000FFFF") + own
    return [f"{own}:{port:04X}"] + ([f"{mapped}:{port:04X}"] if family == socket.AF_INET else [])


def _counter(path: Path, group: str, name: str) -> int | None:
    """A file of pairs of lines, names above values, each beginning with the group."""
    lines = [line.split() for line in _text(path).splitlines() if line.startswith(group)]
    if len(lines) < 2 or name not in lines[0]:
        return None
    return int(lines[1][lines[0].index(name)])


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError):
        return ""
