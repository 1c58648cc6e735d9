"""Bytes of a CSV file of Locust to rows with their line numbers. No bytes are an error; what is odd is said.

Locust since 1.3 writes with Python's csv module. Before, lines were joined by hand: texts in quotes, the quotes within
them not doubled, and no end of the last line. Such a file is known by a header that begins with a quote, and its lines
are taken apart from both ends, as their middle may hold anything.
"""

from __future__ import annotations

import codecs
import csv
import dataclasses
import io
import re
from collections.abc import Iterator
from pathlib import Path

from analysis.importers.oddities import Oddities
from analysis.load import LARGEST_NUMBER
from analysis.record import RecordError

TEXT_COLUMNS = frozenset({"Type", "Method", "Name", "Error", "Message", "Traceback", "Nodes"})
MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
NUMBER = re.compile(r"[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]{1,2})?")


@dataclasses.dataclass(frozen=True)
class Row:
    """One row: its first line in the file, and its fields by column; None for a field that may be cut off."""

    line: int
    fields: dict[str, str | None]

    def text(self, *columns: str) -> str:
        """The field of the first of `columns` that is there; empty without one."""
        return next((self.fields[name] or "" for name in columns if name in self.fields), "")

    def number(self, *columns: str) -> float | None:
        """The number in the first of `columns` that is there; None for anything that is no plain number from 0 on."""
        text = self.text(*columns)
        value = float(text) if NUMBER.fullmatch(text) and len(text) < 40 else None
        return value if value is not None and value <= LARGEST_NUMBER else None

    def count(self, *columns: str) -> int | None:
        """As number(), for whole numbers."""
        value = self.number(*columns)
        return int(value) if value is not None and value.is_integer() else None


@dataclasses.dataclass(frozen=True)
class Table:
    """A file's columns and its whole rows."""

    file: str
    columns: tuple[str, ...]
    rows: list[Row]
    joined_by_hand: bool


def read_table(path: Path, oddities: Oddities) -> Table:
    """Read a CSV file of Locust. Raises RecordError where it cannot be read at all."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise RecordError(f"{path}: cannot be read ({error.strerror or error}).") from error
    text = _decoded(data, path.name, oddities)
    by_hand = text.lstrip().startswith('"')
    lines = _joined_by_hand(text) if by_hand else _written_by_csv(text)
    header = next((fields for _, fields in lines if fields), None) or []
    columns = tuple(name.strip() for name in header)
    rows = list(_whole_rows(lines, columns, path.name, oddities))
    if rows and not by_hand and not text.endswith(("\n", "\r")):
        # Locust ends every line: of one without its end the last field may be cut, and a cut number is another number.
        oddities.note(path.name, "the last line has no end; its last field is left out", rows[-1].line)
        rows[-1] = Row(rows[-1].line, rows[-1].fields | {columns[-1]: None})
    return Table(path.name, columns, rows, by_hand)


# --- bytes to text ---------------------------------------------------------------------------------------------------


def _decoded(data: bytes, file: str, oddities: Oddities) -> str:
    for mark, encoding in MARKS:
        if data.startswith(mark):
            oddities.note(file, f"begins with a byte order mark; read as {encoding.upper()}")
            return _line_ends(_as(data[len(mark) :], encoding, file, oddities), file, oddities)
    start = data[:64]
    if len(start) > 1 and b"\0" in start:
        encoding = "utf-16-be" if start[0] == 0 else "utf-16-le" if start[1] == 0 else "utf-8"
        if encoding != "utf-8":
            oddities.note(file, f"has no byte order mark, and looks like {encoding.upper()}; read as such")
            return _line_ends(_as(data, encoding, file, oddities), file, oddities)
    return _line_ends(_as(data, "utf-8", file, oddities), file, oddities)


def _as(data: bytes, encoding: str, file: str, oddities: Oddities) -> str:
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        if error.reason in ("unexpected end of data", "truncated data"):
            oddities.note(file, "ends within a character")
            return data[: error.start].decode(encoding)
    if encoding == "utf-8":
        oddities.note(file, "is not UTF-8; read as Latin-1")
        return data.decode("latin-1")
    oddities.note(file, f"holds bytes that are no {encoding.upper()}; they are shown as \ufffd")
    return data.decode(encoding, errors="replace")


def _line_ends(text: str, file: str, oddities: Oddities) -> str:
    if re.search(r"\r(?!\n)", text):
        oddities.note(file, "has carriage returns that are no end of a line of Locust's")
    return text


# --- text to rows ----------------------------------------------------------------------------------------------------

Lines = Iterator[tuple[int, list[str] | None]]
"""Line number and fields; None where the line cannot be taken apart."""


def _written_by_csv(text: str) -> Lines:
    reader = csv.reader(io.StringIO(text, newline=""))
    while True:
        line = reader.line_num + 1
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error:
            yield line, None
        else:
            yield line, fields


def _joined_by_hand(text: str) -> Lines:
    lines = enumerate(re.split(r"\r\n|\r|\n", re.sub(r"(\r\n|\r|\n)\Z", "", text)), start=1)
    columns: list[str] = []
    for number, line in lines:
        if not columns and line.strip():
            columns = [name.strip().strip('"') for name in line.split(",")]
            yield number, columns
        else:
            yield number, _apart(line, columns) if line else []


def _apart(line: str, columns: list[str]) -> list[str] | None:
    """Fields of one line: numbers before and after the texts, and the texts between by `","`."""
    texts = [n for n, name in enumerate(columns) if name in TEXT_COLUMNS]
    if not texts:
        return None
    before, after = texts[0], len(columns) - 1 - texts[-1]
    head = line.split(",", before)
    tail = head[-1].rsplit(",", after)
    if len(head) <= before or len(tail) <= after or not re.fullmatch('".*"', tail[0], re.DOTALL) or tail[0] == '"':
        return None
    inner = tail[0][1:-1].split('","')
    if len(inner) > len(texts) and columns[texts[0]] in ("Type", "Method") and len(texts) == 2:
        inner = [inner[0], '","'.join(inner[1:])]
    return [part.strip('"') for part in head[:-1]] + inner + [part.strip('"') for part in tail[1:]]


def _whole_rows(lines: Lines, columns: tuple[str, ...], file: str, oddities: Oddities) -> Iterator[Row]:
    for line, fields in lines:
        if fields == []:
            oddities.note(file, "an empty line", line) if line > 1 else None
        elif fields is None or len(fields) != len(columns):
            oddities.note(file, "a line that is not whole; left out", line, loses_data=True)
        else:
            yield Row(line, dict(zip(columns, fields, strict=True)))
