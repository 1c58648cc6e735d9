"""Environments and unpacked packages: no root, no system service, nothing outside the repository.

Standard library only, because it is what installs everything else:

    python3 -m harness.install locust keystone      # or: tests chromium, for locust with the test tools
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
SERVERS = REPOSITORY / ".servers"
REQUIREMENTS = {
    "keystone": REPOSITORY / "configs/servers/keystone/requirements.txt",
    "postgresql": REPOSITORY / "configs/servers/keystone/postgresql-requirements.txt",
    "keystone-queens": REPOSITORY / "configs/servers/keystone/queens/requirements.txt",
    "nginx": REPOSITORY / "configs/servers/nginx/requirements.txt",
    "rally": REPOSITORY / "benchmarks/rally-requirements.txt",
}
OLDEST_PYTHON = (3, 11)
ONLY_PYTHON = {"keystone-queens": "3.11"}
"""Environments that no other Python can run."""

Report = Callable[[str], None]


class InstallError(Exception):
    """Something could not be installed: what, where the log is, what to do."""


@dataclasses.dataclass(frozen=True)
class Environment:
    """A virtual environment that holds a server and nothing else."""

    folder: Path
    requirements: Path

    def program(self, name: str) -> Path:
        """Path of a program installed in it."""
        return self.folder / "bin" / name

    def version(self, package: str) -> str:
        """The pinned version of a package in it; raises KeyError for one that is not pinned."""
        pins = (line.partition("==") for line in self.requirements.read_text(encoding="utf-8").splitlines())
        return {name.strip().lower(): version.strip() for name, _, version in pins}[package.lower()]


def _print_line(message: str) -> None:
    """Report to a person: one write a line, for several installations report at once."""
    sys.stderr.write(message + "\n")


def _silent(message: str) -> None:
    """Report to nobody."""


def environment(system: str, report: Report = _silent) -> Environment:
    """The virtual environment of a system, installed first where it is missing or its pins have changed.

    Files in site-packages/ beside the pins are put among its packages.
    Raises InstallError.
    """
    requirements, folder = REQUIREMENTS[system], _folder(system)
    if (python := _python(system)) is None:
        raise InstallError(f"{_needs_python(system)} Or choose another server.configuration.")
    # The list is complete, so there is nothing to resolve.
    _install(folder, folder.name, ["--no-deps", "-r", str(requirements)], system, report, python, _additions(system))
    return Environment(folder, requirements)


def _folder(system: str) -> Path:
    digest = _digest(REQUIREMENTS[system], *_additions(system), version=ONLY_PYTHON.get(system))
    return SERVERS / "environments" / f"{system}-{digest}"


def _additions(system: str) -> list[Path]:
    return sorted(REQUIREMENTS[system].parent.glob("site-packages/*.p*"))


def _python(system: str) -> str | None:
    """The interpreter that runs this environment: ours, unless it needs another; None where there is no such one."""
    needed = ONLY_PYTHON.get(system)
    return sys.executable if needed in (None, _version()) else shutil.which(f"python{needed}")


def _needs_python(system: str) -> str:
    needed = ONLY_PYTHON[system]
    return (
        f"{system} runs on Python {needed} only; this is {_version()}, and there is no python{needed} on the PATH. "
        f"Install one, or try: make PYTHON=python{needed} …"
    )


def _version() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def locust_environment(tests: bool, report: Report = _silent) -> None:
    """.venv, from which Locust, the harness and the analysis run; with the test tools where `tests`.

    Raises InstallError.
    """
    runtime, dev, pins = (REPOSITORY / name for name in ("requirements.txt", "requirements-dev.txt", "constraints.txt"))
    with_tests = f"tests-{_digest(runtime, dev, pins)}"
    if tests or _is_complete(REPOSITORY / ".venv", with_tests):
        _install(REPOSITORY / ".venv", with_tests, ["-r", str(dev)], "locust and the test tools", report)
    else:
        _install(REPOSITORY / ".venv", f"runtime-{_digest(runtime, pins)}", ["-r", str(runtime)], "locust", report)


def _is_complete(folder: Path, mark: str) -> bool:
    try:
        return (folder / ".complete").read_text(encoding="utf-8") == mark
    except OSError:
        return False


def _install(
    folder: Path,
    mark: str,
    arguments: list[str],
    what: str,
    report: Report,
    python: str = sys.executable,
    additions: Sequence[Path] = (),
) -> None:
    """Make a virtual environment at `folder`, unless it carries this mark. `additions` go to its site-packages."""
    with locked(SERVERS / "environments" / folder.name.lstrip(".")):
        if _is_complete(folder, mark):
            return
        report(f"installing {what}")
        shutil.rmtree(folder, ignore_errors=True)
        log = _log(folder)
        log.unlink(missing_ok=True)
        _run([python, "-m", "venv", str(folder)], log)
        pip = [str(folder / "bin/python"), "-m", "pip", "install", "--disable-pip-version-check", "--no-input"]
        _run([*pip, "--progress-bar", "off", *arguments], log)
        for addition in additions:
            shutil.copy(addition, next(folder.glob("lib/python3*/site-packages")))
        (folder / ".complete").write_text(mark, encoding="utf-8")


def _log(folder: Path) -> Path:
    return SERVERS / "environments" / f"{folder.name.lstrip('.')}.log"


def debian_packages(
    name: str, packages: Sequence[str], report: Report = lambda message: None, with_libraries: bool = False
) -> Path:
    """The folder into which Debian packages were unpacked: downloaded with a private package state, nothing installed.

    apt verifies each by the signature of the archive. `with_libraries`: also the libraries and fonts they depend on, as
    far as the machine lacks them. Raises InstallError, also where there is no apt-get.
    """
    root = SERVERS / "packages" / name
    with locked(root):
        if not (root / ".complete").exists():
            if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
                raise InstallError(
                    f"{name} comes from Debian's packages, and this machine has no apt-get. "
                    f"Choose a configuration that does without {name}."
                )
            report(f"unpacking {name} from Debian's packages")
            shutil.rmtree(root, ignore_errors=True)
            _unpack(root, packages, with_libraries)
            (root / ".complete").touch()
    return root / "root"


def _unpack(root: Path, packages: Sequence[str], with_libraries: bool) -> None:
    for folder in ("state/lists/partial", "cache/archives/partial", "debs", "root"):
        (root / folder).mkdir(parents=True)
    log = root / "apt.log"
    options = [
        *("-o", f"Dir::State={root}/state", "-o", f"Dir::State::lists={root}/state/lists"),
        *("-o", "Dir::State::status=/var/lib/dpkg/status", "-o", f"Dir::Cache={root}/cache"),
        *("-o", f"Dir::Cache::archives={root}/cache/archives", "-o", "Debug::NoLocking=1", "-o", "APT::Sandbox::User="),
    ]
    _run(["apt-get", *options, "-q", "update"], log)
    wanted = [*packages, *(_missing_libraries(options, packages) if with_libraries else [])]
    _run(["apt-get", *options, "-q", "download", *wanted], log, root / "debs")
    for package in sorted((root / "debs").glob("*.deb")):
        _run(["dpkg", "-x", str(package), str(root / "root")], log)
    for folder in ("state", "cache", "debs"):
        shutil.rmtree(root / folder)


def _missing_libraries(options: Sequence[str], packages: Sequence[str]) -> list[str]:
    """Names of the packages that these depend on and the machine lacks: libraries, fonts and data of the same name.

    The solver works as if nothing were installed: a machine with unmet dependencies would stop it. Graphics drivers and
    Perl come with helper programs that are left out here, and are by far the largest.
    """
    nothing = ("-o", "Dir::State::status=/dev/null")
    solver = ["apt-get", *options, *nothing, "--no-install-recommends", "--simulate", "install", *packages]
    solved = subprocess.run(solver, capture_output=True, text=True, check=False)
    query = ["dpkg-query", "--show", "--showformat=${Package} ${db:Status-Status}\n"]
    listed = subprocess.run(query, capture_output=True, text=True, check=False)
    if solved.returncode != 0:
        raise InstallError(f"apt-get finds no way to install {', '.join(packages)}: {solved.stderr.strip()}")
    present = {line.split()[0] for line in listed.stdout.splitlines() if line.endswith(" installed")}
    needed = re.findall(rf"^Inst ((?:lib|font|{'|'.join(map(re.escape, packages))})\S*) ", solved.stdout, re.MULTILINE)
    large = ("libllvm", "libgl1-mesa", "libperl")
    return [
        name
        for name in needed
        if name.startswith(tuple(packages)) or (name not in present and not name.startswith(large))
    ]


def chromium(report: Report = _silent) -> tuple[Path, dict[str, str]]:
    """A headless browser that shows the report to the tests: its program, and what its environment needs besides.

    The variable CHROMIUM names another program, for a machine without Debian's packages. The version is the newest of
    the machine's Debian release: its mirrors keep no older one to pin. Raises InstallError.
    """
    if chosen := os.environ.get("CHROMIUM"):
        return Path(chosen), {}
    if shutil.which("apt-get") is None:
        raise InstallError("the tests of the report need a Chromium: set CHROMIUM to the path of one.")
    root = debian_packages("chromium", ["chromium"], report, with_libraries=True)
    program = root / "usr/lib/chromium/chromium"
    if not program.exists():
        raise InstallError(f"apt-get's package holds no {program}. Set CHROMIUM to the path of a Chromium.")
    folders = [library_path(root), *(str(path) for path in sorted(root.glob("usr/lib/*/pulseaudio")))]
    variables = {"LD_LIBRARY_PATH": ":".join(filter(None, folders))}
    if Path("/etc/fonts/fonts.conf").exists():
        return program, variables
    # The packages' own list of fonts points to /etc and /usr, where they are not.
    fonts = root.with_name("fonts.conf")
    text = f"<dir>{root}/usr/share/fonts</dir><cachedir>{root.with_name('font-cache')}</cachedir>"
    fonts.write_text(f"<fontconfig>{text}</fontconfig>\n", encoding="utf-8")
    return program, variables | {"FONTCONFIG_FILE": str(fonts)}


def apache(report: Report = _silent) -> Path:
    """Where Apache httpd and mod_wsgi lie unpacked. Raises InstallError."""
    return debian_packages("apache", ["apache2-bin", "libapache2-mod-wsgi-py3"], report, with_libraries=True)


def memcached(report: Report = _silent) -> Path:
    """Where memcached lies unpacked. Raises InstallError."""
    return debian_packages("memcached", ["memcached"], report, with_libraries=True)


def library_path(root: Path) -> str:
    """LD_LIBRARY_PATH for programs unpacked under `root`, whatever the architecture's folder is called."""
    libraries = [folder for base in ("usr/lib", "lib") for folder in sorted((root / base).glob("*-linux-gnu*"))]
    return ":".join(str(folder) for folder in libraries)


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold an exclusive lock beside `folder`: two harnesses at once must not both build it."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(folder.name + ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _digest(*requirements: Path, version: str | None = None) -> str:
    python = f"{sys.implementation.name}-{version or _version()}"
    return hashlib.sha256(python.encode() + b"".join(path.read_bytes() for path in requirements)).hexdigest()[:12]


def _run(command: list[str], log: Path, folder: Path | None = None) -> None:
    with log.open("a", encoding="utf-8") as output:
        status = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, cwd=folder, check=False,
            env={**os.environ, "PIP_USER": "0"},
        ).returncode  # fmt: skip
    if status != 0:
        last = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-3:]
        raise InstallError(
            f"`{' '.join(command[:4])} …` failed with status {status}: {' | '.join(last) or 'it printed nothing'}. "
            f"The whole log is {log}. Check the network and the disk, then run the same command again."
        )


def install(names: Sequence[str], report: Report) -> None:
    """Install several environments at the same time, saying every few seconds how far each is.

    What needs another Python than there is is named and left out: without it the rest is whole. Raises InstallError.
    """
    tasks: dict[str, Callable[[], object]] = {
        "locust": lambda: locust_environment(False, report),
        "tests": lambda: locust_environment(True, report),
        "chromium": lambda: chromium(report),
        "apache": lambda: apache(report),
        "memcached": lambda: memcached(report),
        **{name: lambda name=name: environment(name, report) for name in REQUIREMENTS},  # type: ignore[misc]
    }
    if unknown := [name for name in names if name not in tasks]:
        raise InstallError(f"there is no {unknown[0]!r} to install; there are: {', '.join(tasks)}")
    for name in (impossible := [name for name in names if name in REQUIREMENTS and _python(name) is None]):
        report(f"not installed: {_needs_python(name)}")
    names = [name for name in names if name not in impossible]
    began = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor() as pool:
        pending = {pool.submit(tasks[name]): name for name in names}
        while pending:
            done, _ = concurrent.futures.wait(pending, timeout=5, return_when=concurrent.futures.FIRST_COMPLETED)
            for future in done:
                pending.pop(future)
                future.result()
            counted = [name for name in pending.values() if name not in ("chromium", "apache", "memcached")]
            if counted and not done:
                report(_progress(counted, time.monotonic() - began))


def _progress(names: Sequence[str], elapsed_s: float) -> str:
    """How many of the pinned packages pip has collected, and how long the rest will take."""
    states = [_state(name, elapsed_s) for name in names]
    found, wanted = sum(state[0] for state in states), sum(state[1] for state in states)
    return (
        f"  {min(found, wanted)} of {wanted} packages collected, about {max(state[2] for state in states):.0f} s left"
    )


def _state(name: str, elapsed_s: float) -> tuple[int, int, float]:
    """One environment: packages collected, packages pinned, seconds left.

    pip says nothing while it unpacks, which was seen to take about half as long as collecting; so the time of the log's
    last line is the moment at which unpacking began.
    """
    requirements = REQUIREMENTS.get(name, REPOSITORY / "constraints.txt")
    log = _log(_folder(name) if name in REQUIREMENTS else REPOSITORY / ".venv")
    text = log.read_text(encoding="utf-8") if log.exists() else ""
    wanted = len(re.findall(r"^[\w.-]+==", requirements.read_text(encoding="utf-8"), re.MULTILINE))
    found = len(re.findall(r"^Collecting ", text, re.MULTILINE))
    if "\nInstalling collected packages" in text:
        unpacking_s = time.time() - log.stat().st_mtime
        return wanted, wanted, max(5.0, 0.5 * (elapsed_s - unpacking_s) - unpacking_s)
    pace_is_known = found > wanted / 4
    return found, wanted, max(20.0, 1.5 * elapsed_s * wanted / found - elapsed_s if pace_is_known else 75.0 - elapsed_s)


if __name__ == "__main__":  # the one room besides __main__.py that prints: it runs before anything is installed
    if sys.version_info < OLDEST_PYTHON:
        found = sys.version.split()[0]
        sys.exit(f"error: this needs Python 3.11 or later, and this is {found}. Try: make PYTHON=python3.12 …")
    try:
        install(sys.argv[1:], report=_print_line)
    except InstallError as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
