"""The users of a dataset with their passwords, as `--users-csv` of the locustfiles takes them: mode 0600."""

from __future__ import annotations

import csv
import io
import os
import threading
from collections.abc import Iterable
from pathlib import Path

from harness.datasets.errors import DatasetError
from harness.datasets.manifest import append

NAME = "users.csv"
COLUMNS = ("username", "password", "user_domain_id", "project_name", "project_domain_id", "created_by")
MARK = "stackswarm"
"""Also what every object on the cloud says of who made it."""


class UsersFile:
    """Grows by a line for each user that is whole. May be used from several threads."""

    def __init__(self, path: Path, names: Iterable[str] = ()) -> None:
        """Open it; of what it holds, keep the users `names`. The others are made again, with another password.

        Raises DatasetError where one of these is missing.
        """
        kept = {row[0]: row for row in _rows(path)}
        missing = [name for name in names if name not in kept]
        if missing:
            raise DatasetError(
                f"{path}: {len(missing)} users of the dataset are not in it, {missing[0]} among them, and nobody else "
                "knows their passwords. Put the file back, or remove the dataset and make another one"
            )
        _replace(path, _lines([COLUMNS, *(kept[name] for name in names)]))
        self._path, self._file, self._lock = path, path.open("ab", buffering=0), threading.Lock()

    def add(self, name: str, password: str, project: str, domain_id: str) -> None:
        """A user that is there, whole; on the disk when this returns."""
        with self._lock:
            append(self._file, _lines([(name, password, domain_id, project, domain_id, MARK)]), self._path)

    def close(self) -> None:
        """No more lines."""
        with self._lock:
            self._file.close()


def _rows(path: Path) -> list[list[str]]:
    """Whole lines, without the header; none where there is no file."""
    if not path.exists():
        return []
    text = path.read_text(encoding="utf-8")
    rows = csv.reader(io.StringIO(text[: text.rfind("\n") + 1]))
    return [row for row in rows if len(row) == len(COLUMNS)][1:]


def _lines(rows: Iterable[Iterable[str]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode()


def _replace(path: Path, text: bytes) -> None:
    """Never half a file under this name, whatever happens."""
    new = path.with_name(path.name + ".new")
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb", buffering=0) as file:
        append(file, text, new)
    new.replace(path)
