from __future__ import annotations

import math
import re
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.importers import locust_csv
from analysis.importers.csv_rows import Row, read_table
from analysis.importers.oddities import Oddities
from analysis.load import Experiment
from analysis.record import RecordError

FILES = Path(__file__).parents[1] / "fixtures" / "locust_csv"
STATS = (FILES / "2.47.0" / "run_stats.csv").read_bytes()
OLD_STATS = (FILES / "0.14.6" / "run_stats.csv").read_bytes()


def imported(folder: Path, data: bytes) -> Experiment:
    (folder / "run_stats.csv").write_bytes(data)
    return locust_csv.load_prefixes([folder / "run"])


def numbers(experiment: Experiment) -> list[tuple[object, ...]]:
    frame = experiment.reported
    return [(e, m, None if math.isnan(v) else v, n) for e, m, v, n in
            zip(frame["endpoint"], frame["metric"], frame["value"], frame["samples"], strict=True)]  # fmt: skip


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda data: b"\xef\xbb\xbf" + data, ["begins with a byte order mark; read as UTF-8"]),
        (lambda data: data.decode().encode("utf-16"), ["begins with a byte order mark; read as UTF-16-LE"]),
        (lambda data: b"\xfe\xff" + data.decode().encode("utf-16-be"),
         ["begins with a byte order mark; read as UTF-16-BE"]),
        (lambda data: data.decode().encode("utf-16-le"),
         ["has no byte order mark, and looks like UTF-16-LE; read as such"]),
        (lambda data: data.replace(b"\r\n", b"\n"), []),
        (lambda data: data.replace(b"\r\n", b"\r"), ["has carriage returns that are no end of a line of Locust's"]),
        (lambda data: data.replace(b"\r\n", b"\r\r\n"),
         ["has carriage returns that are no end of a line of Locust's",
          "an empty line (4 times: also in line 4, 6, 8)"]),
    ],
)  # fmt: skip
def test_encodings_and_line_ends_are_read_and_said(tmp_path: Path, change, said: list[str]) -> None:  # type: ignore[no-untyped-def]
    plain = imported(tmp_path, STATS)
    changed = imported(tmp_path, change(STATS))
    assert numbers(changed) == numbers(plain)
    assert [o.what for o in changed.oddities] == said


def test_latin_1_keeps_its_letters(tmp_path: Path) -> None:
    experiment = imported(tmp_path, STATS.replace(b"/read", "/café".encode("latin-1")))
    assert "GET /café" in set(experiment.reported["endpoint"])
    assert [o.what for o in experiment.oddities] == ["is not UTF-8; read as Latin-1"]


@pytest.mark.parametrize("data", [STATS, OLD_STATS])
def test_no_cut_makes_another_number(tmp_path: Path, data: bytes) -> None:
    """A file that ends anywhere has fewer numbers than the whole one, never others."""
    whole = numbers(imported(tmp_path, data))
    for end in range(0, len(data), 7):
        try:
            seen = numbers(imported(tmp_path, data[:end]))
        except RecordError:
            continue
        assert [row for row in seen if row[2] is not None and row not in whole] == []


@pytest.mark.parametrize("version", ["0.14.6", "1.6.0", "2.47.0"])
@pytest.mark.parametrize(("suffix", "frame"), [("_failures.csv", "failed"), ("_stats_history.csv", "history")])
def test_no_cut_makes_another_failure_or_rate(tmp_path: Path, version: str, suffix: str, frame: str) -> None:
    (tmp_path / "run_stats.csv").write_bytes((FILES / version / "run_stats.csv").read_bytes())
    data = (FILES / version / f"run{suffix}").read_bytes()

    def rows(end: int) -> set[tuple[object, ...]]:
        (tmp_path / f"run{suffix}").write_bytes(data[:end])
        seen = getattr(locust_csv.load_prefixes([tmp_path / "run"]), frame).fillna(-1.0)
        return set(seen.itertuples(index=False, name=None))

    whole = rows(len(data))
    assert whole
    for end in [*range(len(data) - 30, len(data)), *range(0, len(data), 97)]:
        assert rows(end) <= whole


def test_a_last_line_without_its_end_loses_its_last_field_alone(tmp_path: Path) -> None:
    (tmp_path / "a_failures.csv").write_bytes(b"Method,Name,Error,Occurrences\r\nGET,/a,x,10\r\nGET,/b,y,12")
    oddities = Oddities(1)
    table = read_table(tmp_path / "a_failures.csv", oddities)
    assert [row.count("Occurrences") for row in table.rows] == [10, None]
    assert [(o.file, o.what) for o in oddities.found()] == [
        ("a_failures.csv:3", "the last line has no end; its last field is left out")
    ]


def test_a_name_beyond_the_limit_of_a_field_costs_its_line_alone(tmp_path: Path) -> None:
    experiment = imported(tmp_path, STATS.replace(b"/read", b"x" * 200_000))
    assert set(experiment.reported["endpoint"]) == {'POST /write, "quoted"', "all requests"}
    assert ("run_stats.csv:2", "a line that is not whole; left out", True) in [
        (o.file, o.what, o.loses_data) for o in experiment.oddities
    ]


def test_a_name_of_100_kb_is_shown_cut(tmp_path: Path) -> None:
    experiment = imported(tmp_path, STATS.replace(b"/read", b"x" * 100_000))
    (name,) = (e for e in set(experiment.reported["endpoint"]) if e.startswith("GET"))
    assert name == "GET " + "x" * 196 + "… (100,004 characters)"


@pytest.mark.parametrize(
    ("text", "number"),
    [("12", 12), ("12.5", 12.5), ("1e3", 1000), ("", None), ("N/A", None), ("-1", None), ("nan", None), ("inf", None),
     ("1_000", None), ("١٢", None), (" 12", None), ("0x10", None), ("1e99", None), ("9" * 400, None), ("12,5", None)],
)  # fmt: skip
def test_only_plain_numbers_are_numbers(text: str, number: float | None) -> None:
    assert Row(2, {"x": text}).number("x") == number


def test_half_a_request_is_no_count() -> None:
    assert Row(2, {"x": "12.5"}).count("x") is None
    assert Row(2, {"x": "12.0"}).count("x") == 12


# --- any bytes -------------------------------------------------------------------------------------------------------

SUFFIXES = (
    "_stats.csv",
    "_stats_history.csv",
    "_failures.csv",
    "_exceptions.csv",
    "_requests.csv",
    "_distribution.csv",
)
WHOLE = {suffix: [path.read_bytes() for path in sorted(FILES.glob(f"[0-9]*/run{suffix}"))] for suffix in SUFFIXES}


@st.composite
def damaged(draw: st.DrawFn, suffix: str) -> bytes:
    """A real file with some bytes replaced, cut out, doubled, or put in."""
    data = draw(st.sampled_from(WHOLE[suffix]))
    for _ in range(draw(st.integers(0, 3))):
        start = draw(st.integers(0, len(data)))
        length = draw(st.integers(0, 40))
        middle = draw(
            st.one_of(st.binary(max_size=12), st.sampled_from([b'"', b",", b"\r\n", b"\0", b"9", b"\xff", b"-"]))
        )
        data = data[:start] + middle + data[start + length :]
    return data


def files() -> st.SearchStrategy[dict[str, bytes]]:
    one = {suffix: st.one_of(damaged(suffix), st.binary(max_size=300)) for suffix in SUFFIXES}
    return st.fixed_dictionaries({}, optional=one)


@settings(max_examples=150, deadline=None)
@given(files())
def test_any_bytes_give_numbers_of_the_files_or_one_clear_error(written: dict[str, bytes]) -> None:
    with tempfile.TemporaryDirectory() as name:
        for suffix, data in written.items():
            (Path(name) / f"run{suffix}").write_bytes(data)
        try:
            experiment = locust_csv.load_prefixes([Path(name) / "run"])
        except RecordError as error:
            assert "run" in str(error)
            return
    known = {float(text) for data in written.values() for text in _numbers(data)}
    reported = experiment.reported.dropna()
    times = reported[reported["metric"].isin(["min", "mean", "p50", "p90", "p95", "p99", "max"])]
    assert set(times["value"]) <= known
    assert set(experiment.failed["count"]) <= known
    assert set(experiment.history["second"]) | set(experiment.history["users"].dropna()) <= known
    assert set(experiment.history["failures"].dropna()) <= known
    counts = set(reported.loc[reported["metric"] == "count", "value"])
    sums = {a + b for a in known for b in known} if "_stats.csv" not in written else set()
    assert counts <= known | sums
    assert reported.loc[reported["metric"] == "success_ratio", "value"].between(0, 1).all()


def _numbers(data: bytes) -> list[str]:
    texts = [data.decode("latin-1"), data.decode("utf-16-le", "replace"), data.decode("utf-16-be", "replace")]
    return [part for text in texts for part in re.split(r'[,"\r\n]', text) if re.fullmatch(r"[0-9.eE+-]{1,40}", part)
            and re.fullmatch(r"[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]{1,2})?", part)]  # fmt: skip
