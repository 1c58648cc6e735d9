"""What lies in a run's folder besides its record: where it is made, what is written without secrets, files by role."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from analysis import record
from analysis.record import PlannedRun


def make_partial(folder: Path, planned: PlannedRun) -> Path:
    """A new .partial folder for a run. An earlier attempt keeps its folder; this one is called "…+2", "…+3"."""
    runs = folder / record.RUNS_FOLDER
    names = [planned.folder, *(f"{planned.folder}+{attempt}" for attempt in range(2, 1000))]
    taken = {path.name.removesuffix(record.PARTIAL_SUFFIX) for path in runs.glob("*")}
    partial = runs / (next(name for name in names if name not in taken) + record.PARTIAL_SUFFIX)
    partial.mkdir(parents=True)
    return partial


def write(path: Path, text: str, secrets: frozenset[str]) -> None:
    """Write a text without the secrets in it; folders on the way are made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(redact(text, secrets), encoding="utf-8")


def redact(text: str, secrets: frozenset[str]) -> str:
    """`text` with every secret in it replaced."""
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, "[redacted]")
    return text


def files(partial: Path) -> dict[str, Any]:
    """Files by role, relative to the run folder."""

    def below(pattern: str) -> list[str]:
        return sorted(str(path.relative_to(partial)) for path in partial.glob(pattern) if path.is_file())

    return {
        "response_times": below("response_times/*.csv"),
        "processes": below("response_times/*.json"),
        "health": below("response_times/*.health.jsonl"),
        "warm_up_response_times": below("warm_up/response_times/*.csv"),
        "usage": "usage.csv",
        "arrival_rates": below("arrival_rates.csv"),
        "machine": "machine.csv",
        "server_counts": below("server_counts.csv"),
        "locust": below("locust/*"),
        "server_logs": below("server/*"),
        "configuration": below("configuration/*"),
    }
