"""Run a program as another user than root, where it refuses root. An ordinary user runs it as it is."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from harness.server import ServerError

NOBODY = 65_534


def is_needed() -> bool:
    """Whether we are root, and a server that refuses root has to become somebody else."""
    return os.geteuid() == 0


def command(argv: Sequence[str]) -> list[str]:
    """The command line that runs `argv` as nobody where we are root; else `argv`.

    It keeps the right to open files and folders whoever owns them: on the way to the server's files may lie folders
    that only root can enter. Nothing else of root is kept. Raises ServerError.
    """
    if not is_needed():
        return list(argv)
    if shutil.which("setpriv") is None:
        raise ServerError(
            f"{argv[0]} refuses to run as root, and there is no setpriv to become another user: install util-linux, or "
            "run this as an ordinary user."
        )
    keep = ["--inh-caps=+dac_override", "--ambient-caps=+dac_override"]
    # Without this, access(2) would deny what open(2) allows.
    asked_too = "--securebits=+no_setuid_fixup"
    who = [f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    return ["setpriv", asked_too, *who, *keep, "--", *argv]


def give(folder: Path) -> None:
    """Let that user own a folder and all below it, where a server insists on owning its files."""
    if is_needed():
        for path in (folder, *folder.rglob("*")):
            os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
