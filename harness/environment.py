"""Where a run happened: host, kernel, CPU, versions, git commit. Recorded with every run."""

from __future__ import annotations

import functools
import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import psutil

from harness.install import REPOSITORY

PACKAGES = ("locust", "gevent", "h11", "requests", "urllib3", "python-keystoneclient", "keystoneauth1")


def environment() -> dict[str, Any]:
    """Facts of this machine and checkout; what cannot be found out is None."""
    return {**_fixed(), "load_average_1min": round(os.getloadavg()[0], 2), "swap_used_bytes": psutil.swap_memory().used}


@functools.cache
def _fixed() -> dict[str, Any]:
    return {
        "hostname": platform.node(),
        "kernel": f"{platform.system()} {platform.release()}",
        "distribution": _distribution(),
        "machine": platform.machine(),
        "cpu_model": _cpu_model(),
        "cpus": os.cpu_count(),
        "usable_cpus": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
        "cpu_governor": _first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "memory_bytes": psutil.virtual_memory().total,
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
        "git_commit": _git("rev-parse", "HEAD"),
        "git_changes": _changed(),
    }


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _distribution() -> str | None:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME")
    except OSError:
        return None


def _cpu_model() -> str | None:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or None
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), None)


def _first_line(path: str) -> str | None:
    try:
        return Path(path).read_text(encoding="ascii").strip()
    except OSError:
        return None


def _changed() -> bool | None:
    status = _git("status", "--porcelain")
    return None if status is None else bool(status)


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", *arguments], cwd=REPOSITORY, capture_output=True, text=True, check=False)  # noqa: S607
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None
