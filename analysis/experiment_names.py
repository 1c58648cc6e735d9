"""What the experiments of one report are called, so that two results of one experiment are told apart. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from analysis.decide import Analysis


def distinct(analyses: Sequence[Analysis]) -> list[str]:
    """Name of each: the experiment's, followed by as much of its folder as tells it from others of that name.

    The same folder twice, of which nothing tells one from the other, gets a number.
    """
    named = [(analysis.experiment.record.name, analysis.experiment.folder.resolve()) for analysis in analyses]
    taken: dict[str, None] = {}
    for name, folder in named:
        namesakes = {other for other_name, other in named if other_name == name}
        several = sum(other_name == name for other_name, _ in named) > 1
        label = f"{name} ({_tail(folder, namesakes - {folder})})" if several else name
        numbered = (label if number == 1 else f"{label} ({number})" for number in range(1, len(named) + 1))
        taken[next(text for text in numbered if text not in taken)] = None
    return list(taken)


def _tail(folder: Path, others: set[Path]) -> str:
    """The shortest end of a path that none of the others has."""
    sizes = range(1, len(folder.parts) + 1)
    size = next((n for n in sizes if not any(folder.parts[-n:] == other.parts[-n:] for other in others)), len(sizes))
    return Path(*folder.parts[-size:]).as_posix()
