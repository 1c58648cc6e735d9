"""Texts of result folders as a terminal may be given them. Pure, standard library only."""

from __future__ import annotations

import re
import unicodedata

HIDDEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Unicode categories that move the cursor, change colours or the direction of writing, or cannot be encoded."""


def printable(text: str) -> str:
    r"""`text` on one line, hidden characters as their escapes: a folder's text must not speak for this program.

    >>> printable("a\x1b[31m\nb")
    'a\\x1b[31m b'
    """
    flat = re.sub(r"[\t\n\r]+", " ", text)
    return "".join(_escaped(c) if unicodedata.category(c) in HIDDEN else c for c in flat)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")
