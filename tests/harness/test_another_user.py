"""Becoming another user: what a server that refuses root sees of itself."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness import another_user
from harness.server import ServerError

SEES = """
import os, sys
print(os.getuid(), os.geteuid(), os.access(sys.argv[1], os.R_OK | os.W_OK), os.environ['LD_LIBRARY_PATH'])
"""


def test_it_is_not_root_and_can_still_enter_what_only_we_can(tmp_path: Path) -> None:
    hidden = tmp_path / "hidden"
    hidden.mkdir(mode=0o700)
    (hidden / "key").touch(mode=0o600)
    # A program that gains rights by being started ignores LD_LIBRARY_PATH, by which Apache finds its libraries.
    command = another_user.command([sys.executable, "-c", SEES, str(hidden / "key")])
    environment = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path)}
    said = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.split()
    expected = another_user.NOBODY if os.geteuid() == 0 else os.geteuid()
    assert said == [str(expected), str(expected), "True", str(tmp_path)]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user, and only root has to")
def test_only_a_servers_own_folder_is_given_away(tmp_path: Path) -> None:
    (tmp_path / "cluster/base").mkdir(parents=True)
    (tmp_path / "cluster/base/1").touch()
    another_user.give(tmp_path / "cluster")
    owners = {path.name: path.stat().st_uid for path in (tmp_path, *tmp_path.rglob("*"))}
    assert owners == {tmp_path.name: 0, "cluster": 65_534, "base": 65_534, "1": 65_534}


def test_root_without_the_program_is_told_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ServerError, match="postgres refuses to run as root, and there is no setpriv"):
        another_user.command(["postgres"])


def test_an_ordinary_user_runs_it_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert another_user.command(["postgres", "-D", "d"]) == ["postgres", "-D", "d"]
