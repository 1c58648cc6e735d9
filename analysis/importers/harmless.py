"""Names and messages of a load test as they may be shown and written: without secrets, control characters, formulas.

What is taken out is counted as an oddity, never in silence. Pure, but for the Oddities it is given.
"""

from __future__ import annotations

from analysis.importers.oddities import Oddities
from analysis.importers.redaction import REDACTED, redact
from analysis.printable import printable

LONGEST = 200
"""Characters of a name or message; a report with names of 100 kB is none."""
LOOKED_AT = 2_000


def harmless(text: str, file: str, line: int | None, oddities: Oddities) -> str:
    """`text` as it may be written anywhere; all that was changed is noted with its line."""
    safe = redact(text[:LOOKED_AT])
    if safe != text[:LOOKED_AT]:
        oddities.note(file, f"a text with what looks like a secret; it is shown as {REDACTED}", line)
    plain = printable(safe)
    if plain != safe:
        oddities.note(file, "a text with control characters; they are shown as their escapes", line)
    if len(plain) > LONGEST or len(text) > LOOKED_AT:
        oddities.note(file, f"a text longer than {LONGEST} characters; it is shown cut", line)
        plain = f"{plain[:LONGEST]}… ({len(text):,} characters)"
    if plain.startswith(("=", "+", "-", "@")):
        oddities.note(file, "a text that a spreadsheet would take for a formula; it is shown with ' before it", line)
        plain = "'" + plain
    return plain
