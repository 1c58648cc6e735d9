"""Whose machine a URL leads to."""

from __future__ import annotations

import ipaddress
import socket
import urllib.parse


def host_of(url: str) -> str:
    """The host in a URL, in lower case, without brackets; empty where it has none."""
    return urllib.parse.urlsplit(url).hostname or ""


def is_loopback(host: str) -> bool:
    """Whether every address of the host is a loopback one. A name without an address is none."""
    try:
        found = {str(info[4][0]).partition("%")[0] for info in socket.getaddrinfo(host, None)}
    except (OSError, UnicodeError):
        return False
    return bool(found) and all(ipaddress.ip_address(address).is_loopback for address in found)
