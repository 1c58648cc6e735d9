"""What to say about a word that stands for nothing: what there is, and which of it was probably meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def did_you_mean(word: object, known: Iterable[object]) -> str:
    """ "; did you mean X?" for the known word nearest to this one, else nothing."""
    near = difflib.get_close_matches(str(word), [str(k) for k in known], n=1, cutoff=0.6)
    return f"; did you mean {near[0]}?" if near else ""


def there_is_no(word: object, known: Iterable[object], what: str = "") -> str:
    """ "there is no X; there are: A, B; did you mean A?"."""
    names = [str(k) for k in known]
    return f"there is no {what}{word!r}; there are: {', '.join(names)}{did_you_mean(word, names)}"
