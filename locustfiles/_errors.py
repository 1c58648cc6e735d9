"""The one error that the user, not the programmer, has to put right."""

from __future__ import annotations


class NotReady(Exception):
    """Load cannot begin. The message says what is wrong, where, and what to do; Locust then ends with exit code 2."""


class HostUnknown(NotReady):
    """Nothing says where the server is. With the web UI that is no fault yet: its form asks for the host."""
