"""Projects and users for a Keystone that we prepare ourselves."""

from __future__ import annotations

import os
import secrets
import subprocess
from pathlib import Path

from harness.install import Environment
from harness.server import ServerError

PROGRAM = Path(__file__).with_name("keystone_sql.py")


def load(
    environment: Environment, config: Path, users_csv: Path, *, projects: int, users_per_project: int, hash_rounds: int
) -> None:
    """Load projects and users into the database of `config`, and write their credentials to `users_csv` (mode 0600).

    Raises ServerError.
    """
    command = [environment.program("python"), PROGRAM, config, users_csv, projects, users_per_project, hash_rounds]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        list(map(str, command)), env={**kept, "DATASET_PASSWORD": secrets.token_urlsafe(16)},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines()
        raise ServerError(f"loading the dataset failed: {(lines or ['no message'])[-1]}")
