"""What a dataset on a cloud consists of: a file of JSON Lines that is written before and after each object is made.

The first line describes the dataset. Then, for each project and user, a line `intent` is on the disk before Keystone is
asked for it, `done` after all of it is there, `removing` before it is asked to go, and
`removed` after it has gone. So whatever kills the program, an object
that exists has a line here. The file holds no password.
"""

from __future__ import annotations

import dataclasses
import enum
import fcntl
import json
import os
import re
import threading
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from harness.datasets.errors import DatasetError

VERSION = 1
NAME = "manifest.jsonl"
KINDS = ("project", "user")
_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""An id goes into a URL: one that is empty, or holds a slash, would be another request."""


class AlsoOn(enum.StrEnum):
    """On what else than its project a user may get the role."""

    DOMAIN = "domain"
    SYSTEM = "system"


@dataclasses.dataclass(frozen=True)
class Description:
    """What the dataset is, and on which cloud."""

    dataset: str
    """Its id, which every object carries."""
    auth_url: str
    domain_id: str
    role: str
    role_id: str
    projects: int
    users_per_project: int
    password_from_file: bool
    created_unix_s: int
    also_on: list[str] = dataclasses.field(default_factory=list)
    """Values of AlsoOn."""


@dataclasses.dataclass
class Entry:
    """A project or user."""

    kind: str
    name: str
    id: str | None = None
    """None: it was asked for, and whether it was made is not known."""
    removed: bool = False
    removing: bool = False
    """Keystone was asked to remove it, and whether it did is not known."""


class Manifest:
    """An open manifest, which no other process can open at the same time. May be used from several threads."""

    def __init__(self, path: Path, file: IO[bytes], description: Description, entries: list[Entry]) -> None:
        self.path, self.description = path, description
        self._file, self._lock = file, threading.Lock()
        self._entries = {(entry.kind, entry.name): entry for entry in entries}

    @property
    def entries(self) -> list[Entry]:
        """All of it, in the order of asking."""
        return list(self._entries.values())

    def __enter__(self) -> Self:
        """Nothing to do: it is open."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it; a thread that still wants to write gets an error instead of half a line."""
        with self._lock:
            self._file.close()

    def entry(self, kind: str, name: str) -> Entry | None:
        """What is known of it."""
        return self._entries.get((kind, name))

    def intend(self, kind: str, name: str) -> None:
        """It is going to be asked for."""
        if (kind, name) not in self._entries:
            self._write(Entry(kind, name), "intent")

    def done(self, kind: str, name: str, id_: str) -> None:
        """It is there, whole."""
        self._write(Entry(kind, name, id_), "done")

    def removing(self, entry: Entry) -> None:
        """Keystone is going to be asked to remove it: from now on nobody knows whether it is there."""
        self._write(dataclasses.replace(entry, removing=True), "removing")

    def removed(self, entry: Entry) -> None:
        """It has gone."""
        self._write(dataclasses.replace(entry, removed=True), "removed")

    def _write(self, entry: Entry, event: str) -> None:
        line = {event: entry.kind, "name": entry.name, **({"id": entry.id} if entry.id else {})}
        with self._lock:
            append(self._file, json.dumps(line).encode() + b"\n", self.path)
            self._entries[entry.kind, entry.name] = entry


def append(file: IO[bytes], text: bytes, path: Path) -> None:
    """Write to a file without a buffer, at its end, and return when all of it is on the disk.

    Raises OSError, which names the file, and leaves none of it there: a full disk may be emptied while others write on.
    """
    end = file.seek(0, os.SEEK_END)
    try:
        rest = memoryview(text)
        while rest:
            rest = rest[file.write(rest) :]
        os.fsync(file.fileno())
    except OSError as error:
        error.filename = str(path)
        file.truncate(end)
        raise


def create(path: Path, description: Description) -> Manifest:
    """A new manifest, mode 0600. Raises DatasetError where there is one, OSError where none can be written."""
    try:
        file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600), "r+b", buffering=0)
    except FileExistsError:
        raise DatasetError(f"{path} exists already: use --resume {path}, or another --output") from None
    _lock(file, path)
    try:
        append(file, json.dumps({"manifest": VERSION, **dataclasses.asdict(description)}).encode() + b"\n", path)
    except OSError:
        path.unlink()  # nothing was made yet, and the folder may be named again
        raise
    return Manifest(path, file, description, [])


def resume(path: Path) -> Manifest:
    """Open a manifest to go on with it; half a line at its end, of a program that was killed, is cut off.

    Raises DatasetError where it is no manifest, is damaged, or another process has it open.
    """
    path = located(path)
    try:
        file = path.open("r+b", buffering=0)
    except OSError as error:
        raise DatasetError(f"{path}: cannot be opened ({error.strerror})") from error
    _lock(file, path)
    text = file.read()
    whole = text.rpartition(b"\n")[0] + b"\n" if b"\n" in text else b""
    description, entries = parse(whole, path)
    file.truncate(len(whole))
    file.seek(len(whole))
    return Manifest(path, file, description, entries)


def read(path: Path) -> tuple[Description, list[Entry]]:
    """A manifest's content, whoever has it open. Raises DatasetError."""
    path = located(path)
    try:
        text = path.read_bytes()
    except OSError as error:
        raise DatasetError(f"{path}: cannot be read ({error.strerror})") from error
    return parse(text[: text.rfind(b"\n") + 1], path)


def located(path: Path) -> Path:
    """The manifest itself, where its folder is named."""
    return path / NAME if path.is_dir() else path


def parse(text: bytes, path: Path) -> tuple[Description, list[Entry]]:
    """Whole lines of a manifest. Raises DatasetError, naming file and line."""
    entries: dict[tuple[str, str], Entry] = {}
    description = None
    for number, line in enumerate(text.splitlines(), start=1):
        try:
            values = json.loads(line)
            if number == 1:
                description = _description(values)
            else:
                entry = _entry(values)
                entries[entry.kind, entry.name] = entry
        except (ValueError, TypeError, AttributeError, KeyError) as error:
            raise DatasetError(f"{path} line {number}: not a line of a dataset's manifest ({error})") from None
    if description is None:
        raise DatasetError(f"{path}: holds no dataset. Name the {NAME} that `dataset keystone create` wrote")
    return description, list(entries.values())


def _description(values: dict[str, Any]) -> Description:
    if values.pop("manifest", None) != VERSION:
        raise ValueError(f'it has to begin with "manifest": {VERSION}')
    fields = {field.name: str(field.type) for field in dataclasses.fields(Description)}
    values = {"also_on": [], **values}  # datasets made before there was a choice
    for name, type_ in fields.items():
        if type(values[name]).__name__ != type_.partition("[")[0]:
            raise ValueError(f"{name} is no {type_}")
    if unknown := [one for one in values["also_on"] if one not in list(AlsoOn)]:
        raise ValueError(f"also_on: {unknown[0]!r} is none of {', '.join(AlsoOn)}")
    return Description(**{name: values[name] for name in fields})


def _entry(values: dict[str, Any]) -> Entry:
    event = next(iter(values), "nothing")
    kind, name, id_ = values[event], values["name"], values.get("id")
    if event not in ("intent", "done", "removing", "removed") or kind not in KINDS or not isinstance(name, str):
        raise ValueError(f"{event!r} is none of intent, done, removing, removed, of a project or user with a name")
    if (id_ is not None or event == "done") and not (isinstance(id_, str) and _ID.fullmatch(id_)):
        raise ValueError("not an id")
    return Entry(kind, name, id_, removed=event == "removed", removing=event == "removing")


def _lock(file: IO[bytes], path: Path) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise DatasetError(
            f"{path}: another process is making or removing this dataset; wait until it has ended"
        ) from None
