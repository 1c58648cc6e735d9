"""Keystone from PyPI: prepared once, copied for each server, ready when every process has answered."""

from __future__ import annotations

import concurrent.futures
import contextlib
import hashlib
import json
import os
import secrets
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pydantic

from harness import install
from harness.configuration import Configuration, Value
from harness.datasets import keystone as dataset_keystone
from harness.server import Process, Server, ServerError, Target, free_port
from harness.systems import keystone_database, keystone_front_end
from harness.systems.keystone_probe import Probe, users

PREPARED = install.SERVERS / "prepared"
REGION = "RegionOne"
FIRST_START_S, FIRST_RATE_RPS = 12.0, 10.0
NEEDS_PARAMETERS = ("processes", "cache", "hash_rounds", "token_provider")
NEEDS_TEMPLATES = (" or ".join(keystone_front_end.TEMPLATES),)
KEY_FOLDERS = ("fernet-keys", "credential-keys", "jws-keys/public", "jws-keys/private")

Report = Callable[[str], None]


class Dataset(pydantic.BaseModel):
    """Projects, and users in each of them, loaded before the server starts."""

    model_config = pydantic.ConfigDict(extra="forbid")

    projects: int = pydantic.Field(ge=1, le=10_000, strict=True)
    users_per_project: int = pydantic.Field(ge=1, le=100_000, strict=True)


def processes(configuration: Configuration, parameters: dict[str, Value]) -> list[str]:
    """Names of the processes, in the order of starting."""
    database = ["postgresql"] if keystone_database.is_postgresql(parameters) else []
    cache = ["memcached"] if parameters["cache"] == "memcached" else []
    return [*database, *cache, keystone_front_end.name(configuration)]


def check_limits(parameters: dict[str, Value], slots: int) -> None:
    """Nothing: its front ends queue what they cannot take."""


def prepare(
    configuration: Configuration, parameters: dict[str, Value], dataset: dict[str, Any], report: Report
) -> Path:
    """Install Keystone and build the database and keys for this dataset and hash cost, unless they exist.

    Raises InstallError and ServerError.
    """
    environment = install.environment(_environment_of(configuration), report)
    keystone_front_end.install_it(configuration, report)
    wanted = {"environment": environment.folder.name, "dataset": dataset, "hash_rounds": parameters["hash_rounds"]}
    if keystone_database.is_postgresql(parameters):
        wanted["database"] = install.environment("postgresql", report).folder.name
    wanted["program"] = hashlib.sha256(dataset_keystone.PROGRAM.read_bytes()).hexdigest()
    folder = PREPARED / f"keystone-{hashlib.sha256(json.dumps(wanted, sort_keys=True).encode()).hexdigest()[:12]}"
    with install.locked(folder):
        if not folder.is_dir():
            total = dataset["projects"] * dataset["users_per_project"]
            report(f"preparing a Keystone database with {dataset['projects']} projects and {total} users")
            building = folder.with_suffix(".building")
            shutil.rmtree(building, ignore_errors=True)
            try:
                _build(building, environment, configuration, parameters, dataset)
                building.rename(folder)
            finally:
                shutil.rmtree(building, ignore_errors=True)  # keys and passwords of a preparation that was broken off
    return folder


def _environment_of(configuration: Configuration) -> str:
    """The configuration's own release, or the one that the others share."""
    own = f"keystone-{configuration.name}"
    return own if own in install.REQUIREMENTS else "keystone"


def _build(
    state: Path,
    environment: install.Environment,
    configuration: Configuration,
    parameters: dict[str, Value],
    dataset: dict[str, Any],
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
    places = {"state": state, "database_socket": state, "environment": environment.folder}
    overlays = configuration.overlays({k: parameters[k] for k in ("hash_rounds", "database") if k in parameters})
    texts = [configuration.render(name, **parameters, **places) for name in ("keystone.conf.j2", *overlays)]
    config.write_text("".join(texts), encoding="utf-8")
    with contextlib.ExitStack() as stack:
        if keystone_database.is_postgresql(parameters):
            text = configuration.render("postgresql.conf.j2", **places)
            stack.enter_context(keystone_database.being_prepared(state, text))
        _fill(state, environment, configuration, admin_password)
        dataset_keystone.load(
            environment, config, state / "users.csv", hash_rounds=int(parameters["hash_rounds"]), **dataset
        )
    config.unlink()


def _fill(state: Path, environment: install.Environment, configuration: Configuration, admin_password: str) -> None:
    """Tables, keys and the administrator, by Keystone's own program."""
    with concurrent.futures.ThreadPoolExecutor() as pool:
        tables = pool.submit(_manage, environment, state, "db_sync")
        keys = pool.submit(_make_keys, state, environment, configuration)
        for done in (tables, keys):
            done.result()
    # The password travels in the environment: an argument would stand in the process list.
    _manage(environment, state, "bootstrap", "--bootstrap-region-id", REGION, OS_BOOTSTRAP_PASSWORD=admin_password)


def _make_keys(state: Path, environment: install.Environment, configuration: Configuration) -> None:
    # The owner must be named. An empty name leaves the files to us, who may have no entry in /etc/passwd.
    nobody_else = ("--keystone-user", "", "--keystone-group", "")
    _manage(environment, state, "fernet_setup", *nobody_else)
    _manage(environment, state, "credential_setup", *nobody_else)
    if configuration.declaration.parameters["token_provider"].error("", "jws") is None:
        _manage(environment, state, "create_jws_keypair", *nobody_else, cwd=state / "jws-keys")
        for kind in ("public", "private"):
            (state / "jws-keys" / f"{kind}.pem").rename(state / "jws-keys" / kind / f"{kind}.pem")


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
    environment = install.environment(_environment_of(configuration))
    state, logs = scratch / "state", scratch / "logs"
    shutil.copytree(prepared, state)
    keystone_database.let_all_have_logged_in(state, parameters)
    port, memcached_port = free_port(), free_port()
    places = {
        **{"folder": scratch, "state": state, "database_socket": scratch, "environment": environment.folder},
        **{"modules": keystone_front_end.modules(configuration), "port": port, "memcached_port": memcached_port},
    }
    files = _render(configuration, parameters, places)
    for name, text in files.items():
        (scratch / name).write_text(text, encoding="utf-8")
    overlays = ";".join(name for name in files if name.startswith("keystone-") or name == "keystone.conf")
    variables = {**_environment(), "OS_KEYSTONE_CONFIG_DIR": str(scratch), "OS_KEYSTONE_CONFIG_FILES": overlays}
    log = logs / f"{keystone_front_end.name(configuration)}.log"
    front_end = keystone_front_end.process(configuration, environment, scratch, log, variables)
    some_users = users(state / "users.csv", limit=16)
    admin_password = (state / "admin-password").read_text(encoding="ascii")
    probe = Probe(port, log, int(parameters["processes"]), some_users)
    return Server(
        target=Target(
            f"http://127.0.0.1:{port}", _credentials(port, admin_password), {"users-csv": str(state / "users.csv")}
        ),
        processes=[*_services(scratch, parameters, memcached_port), front_end],
        is_ready=lambda: _database_is_ready(scratch, parameters) and probe(),
        # Without this start's folder and ports, so that equal configurations are equal texts.
        rendered=_render(configuration, parameters, PLACEHOLDERS),
        version=environment.version("keystone"),
        secrets=frozenset({admin_password, some_users[0].password}),
    )


def _services(scratch: Path, parameters: dict[str, Value], memcached_port: int) -> list[Process]:
    """What Keystone needs besides itself, in the order of starting."""
    services = []
    if keystone_database.is_postgresql(parameters):
        cluster, config = scratch / "state" / keystone_database.CLUSTER, scratch / "postgresql.conf"
        services.append(keystone_database.process(cluster, config, scratch / "logs" / "postgresql.log"))
    if parameters["cache"] == "memcached":
        services.append(_memcached(scratch, memcached_port))
    return services


def _database_is_ready(scratch: Path, parameters: dict[str, Value]) -> bool:
    # Keystone answers 500 as long as it is not, and a 500 ends the waiting.
    return not keystone_database.is_postgresql(parameters) or keystone_database.is_ready(scratch)


PLACEHOLDERS = {
    **{"folder": "<scratch>", "state": "<scratch>/state", "database_socket": "<scratch>"},
    **{"environment": "<environment>", "modules": "<modules>", "port": "<port>", "memcached_port": "<memcached-port>"},
}


def _render(configuration: Configuration, parameters: dict[str, Value], places: Mapping[str, object]) -> dict[str, str]:
    """Name to text of the files that the servers read, Keystone's first."""
    variables = {**parameters, **places}
    rendered = {"keystone.conf": configuration.render("keystone.conf.j2", **variables)}
    for overlay in configuration.overlays(parameters):
        name = "keystone-" + overlay.removeprefix("overlays/").removesuffix(".j2").replace("/", "-")
        rendered[name] = configuration.render(overlay, **variables)
    variables["config_files"] = [f"{places['folder']}/{name}" for name in rendered]
    templates = [t for t in ("uwsgi.ini.j2", "httpd.conf.j2", "keystone.wsgi.j2") if configuration.has(t)]
    if keystone_database.is_postgresql(parameters):
        templates.append("postgresql.conf.j2")
    return rendered | {t.removesuffix(".j2"): configuration.render(t, **variables) for t in templates}


def _memcached(scratch: Path, port: int) -> Process:
    root = install.memcached()
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
