"""When a Keystone is ready: once every process of it has given a token."""

from __future__ import annotations

import concurrent.futures
import csv
import dataclasses
import http.client
import json
import re
from pathlib import Path
from typing import Any

from harness.server import ServerError

READY_AGENT = "stackswarm-ready"
PROBE_TIMEOUT_S = 5.0


@dataclasses.dataclass(frozen=True)
class User:
    """Credentials of one user of the dataset."""

    username: str
    password: str
    project: str


def users(path: Path, limit: int) -> list[User]:
    """The first users of a dataset's users.csv."""
    with path.open(newline="", encoding="utf-8") as file:
        rows = [row for row, _ in zip(csv.DictReader(file), range(limit), strict=False)]
    return [User(row["username"], row["password"], row["project_name"]) for row in rows]


class Probe:
    """Asks for tokens, as many at a time as there are processes, until each process has given one.

    Which process answered is read from the request log. A process answers its first authentication much later than the
    rest, because Keystone builds parts of itself on first use.
    """

    def __init__(self, port: int, log: Path, processes: int, users: list[User]) -> None:
        self.port, self.log, self.processes, self.users = port, log, processes, users

    def __call__(self) -> bool:
        """Whether each process has given a token by now. Raises ServerError where Keystone refuses one."""
        with concurrent.futures.ThreadPoolExecutor(self.processes) as pool:
            statuses = list(pool.map(self._authenticate, range(self.processes)))
        refused = [status for status in statuses if status not in (None, 201, 502, 503, 504)]
        if refused:
            raise ServerError(f"Keystone answered {refused[0]} to a user of its own dataset. Its log is {self.log}.")
        return len(self._answered()) == self.processes

    def _authenticate(self, number: int) -> int | None:
        """HTTP status, or None where nobody answers yet."""
        user = self.users[number % len(self.users)]
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PROBE_TIMEOUT_S)
        try:
            headers = {"Content-Type": "application/json", "User-Agent": READY_AGENT}
            connection.request("POST", "/v3/auth/tokens", json.dumps(_password_request(user)), headers)
            return connection.getresponse().status
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()

    def _answered(self) -> set[str]:
        pattern = rf'^request worker=(\d+) status=201 .* agent="{READY_AGENT}"$'
        return set(re.findall(pattern, self.log.read_text(encoding="utf-8", errors="replace"), re.MULTILINE))


def _password_request(user: User) -> dict[str, Any]:
    domain = {"id": "default"}
    return {
        "auth": {
            "identity": {
                "methods": ["password"],
                "password": {"user": {"name": user.username, "domain": domain, "password": user.password}},
            },
            "scope": {"project": {"name": user.project, "domain": domain}},
        }
    }
