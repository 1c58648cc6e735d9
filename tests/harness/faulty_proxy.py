"""A proxy in front of a real Keystone, which answers some requests itself, wrongly, or loses the answer."""

import collections
import http.client
import http.server
import threading
from typing import Any


class Faults(http.server.BaseHTTPRequestHandler):
    """Passes requests on to Keystone, but answers as `plan` says for "METHOD collection"; each list item once."""

    protocol_version = "HTTP/1.1"
    keystone: str
    plan: dict[str, list[Any]]
    counts: collections.Counter[str]
    lock = threading.Lock()

    def handle_any(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        key = f"{self.command} {self.path.split('?')[0].removeprefix('/v3/').split('/')[0]}"
        with self.lock:
            type(self).counts[key] += 1
            planned = self.plan.get(key, [])
            fault = None if not planned else planned[0] if planned[-1] == "always" else planned.pop(0)
        status, answer = 0, b""
        if fault is None or fault == "lost":
            connection = http.client.HTTPConnection(self.keystone.removeprefix("http://"), timeout=30)
            headers = {k: v for k, v in self.headers.items() if k.lower() not in ("host", "connection")}
            connection.request(self.command, self.path, body or None, headers)
            response = connection.getresponse()
            status, answer = response.status, response.read()
            token = response.headers.get("X-Subject-Token")
            connection.close()
        if fault == "lost":  # Keystone did it, and nobody will hear
            self.close_connection = True
            return
        self.send_response(fault or status)
        if fault is None and token:
            self.send_header("X-Subject-Token", token)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = handle_any

    def log_message(self, format: str, *args: object) -> None:
        pass
