"""May this be written there? What is not this machine's own loopback belongs to somebody, who has to be asked."""

from __future__ import annotations

from harness.datasets.errors import DatasetError
from harness.hosts import host_of, is_loopback


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
