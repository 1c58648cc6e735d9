"""What runs Keystone and answers for it: uWSGI, or Apache httpd with mod_wsgi. Each as one process with children."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path

from harness import another_user, install
from harness.configuration import Configuration
from harness.server import Process, ServerError, check_socket_path

TEMPLATES = {"uwsgi.ini.j2": "uwsgi", "httpd.conf.j2": "apache"}
"""The template that a configuration has to have, one of them: front end."""
ASK_PYTHON = (
    "import json, sys, sysconfig; v = sysconfig.get_config_var; "
    "print(json.dumps([str(v('LIBDIR')), str(v('INSTSONAME')), sys.base_prefix]))"
)


def name(configuration: Configuration) -> str:
    """The front end of a configuration, by the template that it has."""
    return next(front_end for template, front_end in TEMPLATES.items() if configuration.has(template))


def install_it(configuration: Configuration, report: install.Report) -> None:
    """Install what the front end needs besides Keystone's environment. Raises InstallError."""
    if name(configuration) == "apache":
        install.apache(report)


def process(
    configuration: Configuration,
    environment: install.Environment,
    folder: Path,
    log: Path,
    variables: Mapping[str, str],
) -> Process:
    """The front end, started on its files in `folder`. Raises ServerError."""
    if name(configuration) == "uwsgi":
        argv = [str(environment.program("uwsgi")), "--ini", str(folder / "uwsgi.ini")]
        return Process("uwsgi", argv, dict(variables), log)
    check_socket_path(folder / "wsgi.4194304.0.1.sock", "mod_wsgi")
    root = install.apache()
    argv = [str(root / "usr/sbin/apache2"), "-f", str(folder / "httpd.conf"), "-DFOREGROUND"]
    libraries = f"{_python_library_folder(environment, root)}:{install.library_path(root)}"
    return Process("apache", another_user.command(argv), {**variables, "LD_LIBRARY_PATH": libraries}, log)


def modules(configuration: Configuration) -> str:
    """The folder of Apache's modules; nothing where the front end is another."""
    return str(install.apache() / "usr/lib/apache2/modules") if name(configuration) == "apache" else ""


def _python_library_folder(environment: install.Environment, root: Path) -> Path:
    """Where the Python library of Keystone's environment lies, the one that uWSGI runs it on.

    Debian's mod_wsgi takes any build of the Python version that it was built for. On another one than uWSGI has, the
    two would differ in more than the front end. Raises ServerError.
    """
    asked = subprocess.run(
        [environment.program("python"), "-c", ASK_PYTHON], capture_output=True, text=True, check=True
    )
    folder, library, prefix = json.loads(asked.stdout)
    if library.encode() not in (root / "usr/lib/apache2/modules/mod_wsgi.so").read_bytes():
        raise ServerError(
            f"Apache's mod_wsgi of this Debian release needs another Python than {library}, which Keystone's "
            "environment has. Take the release's own, as in: make PYTHON=/usr/bin/python3 …, or choose uwsgi."
        )
    unpacked = [path.parent for path in root.glob(f"usr/lib/*/{library}") if prefix == "/usr"]
    for candidate in (Path(folder), *unpacked):
        if (candidate / library).is_file():
            return candidate
    raise ServerError(
        f"Apache's mod_wsgi needs {library}, and the Python of Keystone's environment ({prefix}) was built without it. "
        "Take another, as in: make PYTHON=/usr/bin/python3 …, or choose uwsgi."
    )
