"""Whose machine a URL leads to."""

from __future__ import annotations

import ipaddress
import re
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


def checked_url(text: str) -> str:
    """An http or https URL of scheme, name, port and path alone, which every program reads in the same way.

    Raises ValueError for anything else, without the credentials that may be in it.
    """
    try:
        parts = urllib.parse.urlsplit(text)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    shown = "this" if "@" in text else repr(text)
    # Of a backslash some make a slash: then what is checked is not where the request goes.
    if not usable or re.search(r"[\s\x00-\x1f\\]", text):
        raise ValueError(f"{shown} is not the URL of a server; write it as in http://127.0.0.1:5000")
    if parts.username is not None or parts.query or parts.fragment:
        raise ValueError("the URL of a server is scheme, name, port and path alone, without credentials and query")
    return text
