"""What tells a copy of a measurement from another measurement, whatever its rows' order and the time it gives. Pure."""

from __future__ import annotations

import dataclasses
import zlib
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

_FACTOR = 0x9E3779B97F4A7C15
"""2^64 by the golden ratio, as in Knuth's multiplicative hashing: it carries every bit of a number upwards."""
_ALL_BITS = 2**64 - 1


@dataclasses.dataclass(frozen=True)
class Fingerprint:
    """Of one table of counts by the second."""

    part: str
    """Which table of the run: "steady_state", or a file's name."""
    digest: int
    """64 bits of all rows; seconds count from `start_unix_s`."""
    start_unix_s: int
    responses: int
    """Counts in it, each clock by itself."""
    varied: int
    """Responses in the run's steady state that are not of the commonest endpoint, outcome and bucket: with few of them,
    another run may well look the same."""


def fingerprint(part: str, rows: pd.DataFrame, start_unix_s: int, varied: int) -> Fingerprint:
    """Of rows with `second` and `count`, and other columns that are numbers or categories.

    Equal tables have equal digests in any order of rows; two others have, by chance, with a probability of 2^-64.
    """
    mixed = np.zeros(len(rows), dtype=np.uint64)
    weight = 1
    for name in rows.columns:
        weight = weight * _FACTOR & _ALL_BITS
        mixed += _weighted(rows[name] - start_unix_s if name == "second" else rows[name], np.uint64(weight))
    mixed ^= mixed >> np.uint64(29)
    mixed *= np.uint64(_FACTOR)
    mixed ^= mixed >> np.uint64(32)
    return Fingerprint(part, int(mixed.sum()), start_unix_s, int(rows["count"].sum()), varied)


def _weighted(values: pd.Series[Any], weight: np.uint64) -> NDArray[np.uint64]:
    if not isinstance(values.dtype, pd.CategoricalDtype):
        numbers = values.to_numpy()
        return (
            numbers.astype(np.float64 if numbers.dtype.kind == "f" else np.int64, copy=False).view(np.uint64) * weight
        )
    # Texts by themselves, as the code of one depends on which others there are.
    hashes = [zlib.crc32(str(text).encode("utf-8", "replace")) for text in values.cat.categories]
    weighted = np.array(hashes, dtype=np.uint64) * weight
    return weighted[values.cat.codes.to_numpy()] if hashes else np.empty(0, np.uint64)
