"""Keystone 30 from PyPI: prepared once, copied for each server, ready when every process has answered."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import shutil
import sqlite3
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pydantic

from harness import install
from harness.configuration import Configuration, Value, read
from harness.datasets import keystone as dataset_keystone
from harness.server import Process, Server, ServerError, Target, free_port
from harness.systems.keystone_probe import Probe, users

PREPARED = install.SERVERS / "prepared"
REGION = "RegionOne"
NEEDS_PARAMETERS = ("processes", "cache", "hash_rounds")
NEEDS_TEMPLATES = ("uwsgi.ini.j2",)
KEY_FOLDERS = ("fernet-keys", "credential-keys", "jws-keys/public", "jws-keys/private")

Report = Callable[[str], None]


class Dataset(pydantic.BaseModel):
    """Projects, and users in each of them, loaded before the server starts."""

    model_config = pydantic.ConfigDict(extra="forbid")

    projects: int = pydantic.Field(ge=1, le=10_000, strict=True)
    users_per_project: int = pydantic.Field(ge=1, le=100_000, strict=True)


def prepare(parameters: dict[str, Value], dataset: dict[str, Any], report: Report) -> Path:
    """Install Keystone and build the database and keys for this dataset and hash cost, unless they exist.

    Raises InstallError and ServerError.
    """
    environment = install.environment("keystone", report)
    wanted = {"environment": environment.folder.name, "dataset": dataset, "hash_rounds": parameters["hash_rounds"]}
    folder = PREPARED / f"keystone-{hashlib.sha256(json.dumps(wanted, sort_keys=True).encode()).hexdigest()[:12]}"
    with install.locked(folder):
        if not folder.is_dir():
            total = dataset["projects"] * dataset["users_per_project"]
            report(f"preparing a Keystone database with {dataset['projects']} projects and {total} users")
            building = folder.with_suffix(".building")
            shutil.rmtree(building, ignore_errors=True)
            try:
                _build(building, environment, parameters, dataset)
                building.rename(folder)
            finally:
                shutil.rmtree(building, ignore_errors=True)  # keys and passwords of a preparation that was broken off
    return folder


def _build(
    state: Path, environment: install.Environment, parameters: dict[str, Value], dataset: dict[str, Any]
) -> None:
    state.mkdir(mode=0o700, parents=True)
    for folder in KEY_FOLDERS:
        # Keystone complains at each request about keys that others can read.
        (state / folder).mkdir(mode=0o700, parents=True)
        (state / folder).parent.chmod(0o700)
    admin_password = secrets.token_urlsafe(24)
    (state / "admin-password").touch(mode=0o600)
    (state / "admin-password").write_text(admin_password, encoding="ascii")
    config = state / "keystone.conf"
    template = read("keystone", "uwsgi")
    text = template.render("keystone.conf.j2", state=state) + template.render(
        "overlays/hash_rounds/any.conf.j2", **parameters
    )
    config.write_text(text, encoding="utf-8")
    _manage(environment, state, "db_sync")
    # The owner must be named. An empty name leaves the files to us, who may have no entry in /etc/passwd.
    nobody_else = ("--keystone-user", "", "--keystone-group", "")
    _manage(environment, state, "fernet_setup", *nobody_else)
    _manage(environment, state, "credential_setup", *nobody_else)
    _manage(environment, state, "create_jws_keypair", *nobody_else, cwd=state / "jws-keys")
    for kind in ("public", "private"):
        (state / "jws-keys" / f"{kind}.pem").rename(state / "jws-keys" / kind / f"{kind}.pem")
    # The password travels in the environment: an argument would stand in the process list.
    _manage(environment, state, "bootstrap", "--bootstrap-region-id", REGION, OS_BOOTSTRAP_PASSWORD=admin_password)
    dataset_keystone.load(
        environment, config, state / "users.csv", hash_rounds=int(parameters["hash_rounds"]), **dataset
    )
    config.unlink()


def _manage(
    environment: install.Environment, state: Path, *arguments: str, cwd: Path | None = None, **variables: str
) -> None:
    log = state / "prepare.log"
    with log.open("ab") as output:
        status = subprocess.run(
            [environment.program("keystone-manage"), "--config-file", state / "keystone.conf", *arguments],
            env={**_environment(), **variables}, cwd=cwd or state, stdin=subprocess.DEVNULL,
            stdout=output, stderr=subprocess.STDOUT, check=False,
        ).returncode  # fmt: skip
    if status != 0:
        lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        last = lines[-1] if lines else "it printed nothing"
        raise ServerError(f"keystone-manage {arguments[0]} failed with status {status}: {last} ({log})")


def _environment() -> dict[str, str]:
    """The harness's environment without what would configure Keystone or Python behind our back."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("OS_", "PYTHON", "UWSGI_"))}
    return {**kept, "PYTHONWARNINGS": "ignore"}


def server(prepared: Path, scratch: Path, configuration: Configuration, parameters: dict[str, Value]) -> Server:
    """A Keystone with its own copy of the prepared state, on ports of its own."""
    environment = install.environment("keystone")
    state = scratch / "state"
    shutil.copytree(prepared, state)
    _seen_today(state / "keystone.db")
    port, memcached_port = free_port(), free_port()
    files = _render(configuration, parameters, str(state), str(port), str(memcached_port))
    for name, text in files.items():
        (scratch / name).write_text(text, encoding="utf-8")
    log = scratch / "logs" / "uwsgi.log"
    uwsgi = Process(
        "uwsgi",
        [str(environment.program("uwsgi")), "--ini", str(scratch / "uwsgi.ini")],
        {
            **_environment(),
            "OS_KEYSTONE_CONFIG_DIR": str(scratch),
            "OS_KEYSTONE_CONFIG_FILES": ";".join(name for name in files if name.endswith(".conf")),
        },
        log,
    )
    before = [_memcached(scratch, memcached_port)] if parameters["cache"] == "memcached" else []
    some_users = users(state / "users.csv", limit=16)
    admin_password = (state / "admin-password").read_text(encoding="ascii")
    probe = Probe(port, log, int(parameters["processes"]), some_users)
    return Server(
        target=Target(
            f"http://127.0.0.1:{port}", _credentials(port, admin_password), {"users-csv": str(state / "users.csv")}
        ),
        processes=[*before, uwsgi],
        is_ready=probe,
        # Without this start's folder and ports, so that equal configurations are equal texts.
        rendered=_render(configuration, parameters, "<scratch>/state", "<port>", "<memcached-port>"),
        version=environment.version("keystone"),
        secrets=frozenset({admin_password, some_users[0].password}),
    )


def _seen_today(database: Path) -> None:
    """Let every user have logged in today already.

    Keystone writes the date at a user's first login of a day. SQLite does not allow two processes to write at once,
    and Keystone answers 500 then; besides, the first login is not what an authentication costs the rest of the day.
    """
    with contextlib.closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("UPDATE user SET last_active_at = date('now')")


def _render(
    configuration: Configuration, parameters: dict[str, Value], state: str, port: str, memcached_port: str
) -> dict[str, str]:
    variables = {**parameters, "state": state, "port": port, "memcached_port": memcached_port}
    rendered = {"keystone.conf": configuration.render("keystone.conf.j2", **variables)}
    for overlay in configuration.overlays(parameters):
        name = overlay.removeprefix("overlays/").removesuffix(".j2").replace("/", "-")
        rendered[name] = configuration.render(overlay, **variables)
    rendered["uwsgi.ini"] = configuration.render("uwsgi.ini.j2", **variables)
    return rendered


def _memcached(scratch: Path, port: int) -> Process:
    root = install.debian_packages("memcached", ["memcached", "libevent-2.1-7"])
    user = ["-u", "root"] if os.geteuid() == 0 else []
    return Process(
        "memcached",
        [str(root / "usr/bin/memcached"), "-l", "127.0.0.1", "-p", str(port), "-U", "0", "-m", "64", *user],
        {**_environment(), "LD_LIBRARY_PATH": install.library_path(root)},
        scratch / "logs" / "memcached.log",
    )


def _credentials(port: int, admin_password: str) -> dict[str, str]:
    return {
        "OS_AUTH_URL": f"http://127.0.0.1:{port}/v3",
        "OS_USERNAME": "admin",
        "OS_PASSWORD": admin_password,
        "OS_PROJECT_NAME": "admin",
        "OS_USER_DOMAIN_ID": "default",
        "OS_PROJECT_DOMAIN_ID": "default",
        "OS_IDENTITY_API_VERSION": "3",
    }
