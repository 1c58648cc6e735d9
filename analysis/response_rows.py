"""What a file of response times must hold beyond its columns' types: clocks that are known, and endpoints' names."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd

from analysis.csv_tables import Oddity
from analysis.endpoints import told_apart

CLOCKS = ("response", "service", "both")


def checked(rows: pd.DataFrame, say: Callable[[str, bool], None], is_torn: bool) -> pd.DataFrame:
    """The usable rows of one file, record.RESPONSE_TIME_COLUMNS.

    `say` is told what is odd, and whether that loses data. `is_torn`: a killed writer left its last line half written,
    and so, which is not said again, one clock of a response in the last second.
    """
    known = rows["clock"].isin(CLOCKS)
    if not known.all():
        names = ", ".join(repr(str(name)) for name in rows.loc[~known, "clock"].unique()[:3])
        lost = int((~known).sum())
        say(f"{lost} of {len(rows)} lines have a clock that is none of {', '.join(CLOCKS)} ({names}); left out", True)
        rows = rows[known]
    alone = _alone(rows, is_torn)
    if alone:
        say(f"{alone} responses have a response time or a service time, and not the other: lines are lost", True)
    return _named(rows, say)


def _alone(rows: pd.DataFrame, is_torn: bool) -> int:
    """By how many responses the two clocks' counts differ, over all seconds, endpoints and outcomes."""
    apart = rows[rows["clock"] != "both"]
    if is_torn and len(apart):
        apart = apart[apart["second"] < apart["second"].max()]
    if apart.empty:
        return 0
    signed = apart["count"].where(apart["clock"] == "response", -apart["count"])
    sums = signed.groupby([apart["second"], apart["endpoint"], apart["outcome"]], observed=True).sum()
    return int(np.abs(sums).sum())


def _named(rows: pd.DataFrame, say: Callable[[str, bool], None]) -> pd.DataFrame:
    """No endpoint may be taken for all endpoints together."""
    changed = {name: told_apart(name) for name in rows["endpoint"].unique() if told_apart(name) != name}
    if not changed:
        return rows
    for name, shown in changed.items():
        say(f'an endpoint is called "{name}", as all of them together; shown as "{shown}"', False)
    names = [changed.get(name, name) for name in rows["endpoint"]]
    return rows.assign(endpoint=pd.Categorical(names, categories=sorted(set(names))))


def sayer(run: int, file: str, oddities: list[Oddity]) -> Callable[[str, bool], None]:
    """Adds what is odd in one file of a run to `oddities`."""
    return lambda what, loses_data: oddities.append(Oddity(run, file, what, loses_data))
