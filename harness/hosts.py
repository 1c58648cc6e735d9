"""Whose machine a URL leads to."""

from __future__ import annotations

import ipaddress
import socket
import urllib.parse


def checked_url(url: str, name: str) -> str:
    """The URL, where every reader of URLs finds the same host in it. Raises ValueError, which shows no password.

    `name`: the option or variable it is from.
    """
    try:
        parts = urllib.parse.urlsplit(url)
        port_is_possible = parts.port != 0
    except ValueError:  # brackets, or a port that is none
        port_is_possible = False
    odd = any(sign in "\\@" or sign.isspace() or not sign.isprintable() for sign in url)
    if odd or not port_is_possible or parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(
            f"{name} is no URL that can be used: write http://host:port/path or https://, without user, password, "
            "backslash or blanks, with a port from 1 to 65535, and an IPv6 address in brackets"
        )
    return url


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
