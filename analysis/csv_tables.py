"""CSV files to frames: what is whole is read, what is damaged is left out and told. Knows no runs and no folders.

Text is held as categories: a histogram repeats a handful of names a hundred thousand times.
"""

from __future__ import annotations

import csv
import dataclasses
import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv

from analysis.record import LARGEST_NUMBER

_NUMBERS = {
    "run": "int64", "second": "int64", "offset_s": "int64", "bucket_us": "int64", "count": "int64", "samples": "int64",
    "value": "float64", "recorded": "int64", "locust": "float64", "time_unix_s": "float64", "pid": "int64",
    "cpu_s": "float64", "rss_bytes": "float64", "response_us": "float64",
    "users": "float64", "throughput": "float64", "failures": "float64",
}  # fmt: skip
"""Types of the columns that are numbers; the others are text."""

_ARROW_TYPES = {"int64": pa.int64(), "float64": pa.float64(), "str": pa.dictionary(pa.int32(), pa.string())}
WHOLE_NUMBER = r"\s*-?[0-9]+\s*"
_LARGEST_BLOCK = 2**30
"""Bytes that are parsed at once: a whole file, unless it is larger than Arrow's offsets reach."""


@dataclasses.dataclass(frozen=True)
class Oddity:
    """Something in the files that is not as the format says; never repaired in silence."""

    run: int | None
    file: str
    what: str
    loses_data: bool
    """False for what an interrupted writer leaves, a last line without its end."""


def read_table(path: Path, columns: tuple[str, ...], run: int, folder: Path, oddities: list[Oddity]) -> pd.DataFrame:
    """A CSV file with exactly `columns`; lines that are not whole are left out and become an Oddity."""
    name = str(path.relative_to(folder)) if path.is_relative_to(folder) else path.name
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        oddities.append(Oddity(run, name, f"cannot be read ({error.strerror})", True))
        return empty_frame(columns)
    if text and not text.endswith("\n"):
        text = text[: text.rfind("\n") + 1]
        oddities.append(Oddity(run, name, "the last line is torn; it was left out", False))
    try:
        rows = _read_whole(text.encode(), columns)
    except (pa.ArrowException, ValueError, KeyError) as error:
        rows, lost = _read_damaged(text, columns)
        oddities.append(Oddity(run, name, f"{lost} ({_first_line(error)})", True))
    if "count" in rows and rows["count"].astype(float).sum() > LARGEST_NUMBER:
        oddities.append(Oddity(run, name, "counts that add up to more than 2^53; left out as a whole", True))
        return empty_frame(columns)
    return rows


def _read_whole(data: bytes, columns: tuple[str, ...]) -> pd.DataFrame:
    """Raises ArrowException, KeyError or ValueError for the first value or line that is not as the format says."""
    table = pyarrow.csv.read_csv(
        io.BytesIO(data),
        pyarrow.csv.ReadOptions(use_threads=False, block_size=min(len(data) + 1, _LARGEST_BLOCK)),
        pyarrow.csv.ParseOptions(newlines_in_values=True),
        pyarrow.csv.ConvertOptions(
            column_types={column: _ARROW_TYPES[_NUMBERS.get(column, "str")] for column in columns},
            include_columns=list(columns),
            null_values=[""],
        ),
    )
    if any(column.null_count for column in table.columns):
        raise ValueError("a number is missing")
    found = {column: table[column].unify_dictionaries().combine_chunks() for column in columns}
    # Copies, since Arrow's memory is read-only.
    numbers = {c: found[c].to_numpy(zero_copy_only=False, writable=True) for c in columns if c in _NUMBERS}
    if len(table) and not all(values.min() >= 0 and values.max() <= LARGEST_NUMBER for values in numbers.values()):
        raise ValueError("a number below zero or beyond 2^53")
    return pd.DataFrame({c: numbers[c] if c in numbers else _categories(found[c]) for c in columns}, copy=False)


def _categories(texts: Any) -> pd.Categorical[str]:
    """Of an Arrow dictionary array; in alphabetical order, so that what is sorted by them is in the order of text."""
    names = texts.dictionary.to_pylist()
    order = sorted(range(len(names)), key=names.__getitem__)
    place = np.empty(len(names), dtype=np.int32)
    place[order] = np.arange(len(names), dtype=np.int32)
    codes = place[texts.indices.to_numpy()] if names else np.empty(0, dtype=np.int32)
    return pd.Categorical.from_codes(pd.Series(codes), pd.Index([names[n] for n in order], dtype="str"))


def _read_damaged(text: str, columns: tuple[str, ...]) -> tuple[pd.DataFrame, str]:
    """Line by line: the whole ones, and how many are not."""
    numbers = {column: kind for column, kind in _NUMBERS.items() if column in columns}
    try:
        reader = csv.DictReader(io.StringIO(text.replace("\0", "")), restkey="surplus")
        if not set(columns) <= set(reader.fieldnames or ()):
            raise ValueError("no header")
        raw = pd.DataFrame(list(reader), columns=[*columns, "surplus"])
    except (csv.Error, ValueError):
        return empty_frame(columns), f"not a table of {', '.join(columns)}; left out as a whole"
    converted = {column: raw[column].map(parsed).astype(float) for column in numbers}
    for column, kind in numbers.items():
        if kind == "int64":  # 9e15 is one only where somebody else wrote it
            converted[column] = converted[column].where(raw[column].astype("str").str.fullmatch(WHOLE_NUMBER))
    whole = pd.DataFrame(converted).notna().all(axis=1) & raw[list(columns)].notna().all(axis=1) & raw["surplus"].isna()
    whole &= pd.DataFrame(converted).apply(lambda values: values.between(0, LARGEST_NUMBER)).all(axis=1)
    rows = raw.assign(**converted)[list(columns)][whole].astype(dict(numbers))
    for column in rows.columns.difference(list(numbers)):
        rows[column] = rows[column].astype("str").astype("category")
    lost = int((~whole).sum())
    if not lost:  # as with null characters between them
        return rows, f"damaged, though each of the {len(raw)} lines can be read"
    return rows, f"{lost} of {len(raw)} lines are damaged and were left out"


def parsed(text: object) -> float:
    """The number that a cell says; NaN for one that says none."""
    try:
        return float(str(text))
    except ValueError:
        return float("nan")


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def empty_frame(columns: Iterable[str]) -> pd.DataFrame:
    """A frame without rows whose columns have the types that files give them."""
    return pd.DataFrame({column: pd.Series(dtype=_NUMBERS.get(column, "str")) for column in columns})


def concat(frames: Sequence[pd.DataFrame], columns: Iterable[str]) -> pd.DataFrame:
    """Frames below each other, categories joined; an empty frame of `columns` where all are empty."""
    filled = [frame for frame in frames if len(frame)]
    if not filled:
        return empty_frame(columns)
    # Column by column and without a copy: these are the largest things in memory.
    return pd.DataFrame({name: _joined([frame[name] for frame in filled]) for name in columns}, copy=False)


def _joined(parts: list[pd.Series[Any]]) -> Any:
    if all(isinstance(part.dtype, pd.CategoricalDtype) for part in parts):
        return pd.api.types.union_categoricals(parts, sort_categories=True)
    return np.concatenate([part.to_numpy() for part in parts])
