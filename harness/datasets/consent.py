"""May this be written there? What is not this machine's own loopback belongs to somebody, who has to be asked."""

from __future__ import annotations

import ipaddress
import socket
import urllib.parse

from harness.datasets.errors import DatasetError


def check_may_write(url: str, may_load: str | None, what: str) -> None:
    """Raise DatasetError unless the host of `url` is loopback, or is the one named by --i-may-load.

    `what`: what would be done, for the message.
    """
    host = host_of(url)
    if is_loopback(host) or (may_load is not None and may_load.lower().strip("[]") == host):
        return
    instead = f", not {may_load}" if may_load is not None else ""
    raise DatasetError(
        f"{what}. That is not this machine's loopback address: if it is yours to write to, say so with "
        f"--i-may-load {host}{instead}"
    )


def host_of(url: str) -> str:
    """The host in a URL, in lower case, without brackets."""
    return urllib.parse.urlsplit(url).hostname or ""


def is_loopback(host: str) -> bool:
    """Whether every address of the host is a loopback one. A name without an address is none."""
    try:
        found = {str(info[4][0]).partition("%")[0] for info in socket.getaddrinfo(host, None)}
    except (OSError, UnicodeError):
        return False
    return bool(found) and all(ipaddress.ip_address(address).is_loopback for address in found)
