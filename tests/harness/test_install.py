"""An environment that only one Python can run, on another one: one message, and the rest is installed."""

import sys
from pathlib import Path

import pytest

from harness import configuration, install
from harness.install import InstallError
from harness.systems import keystone

QUEENS = "keystone-queens"


@pytest.fixture
def other_python(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(install, "ONLY_PYTHON", {QUEENS: "3.2"})
    monkeypatch.setattr(install, "SERVERS", tmp_path)


def test_another_python_is_one_message_before_anything_is_installed(other_python: None, tmp_path: Path) -> None:
    with pytest.raises(
        InstallError, match=r"keystone-queens runs on Python 3\.2 only; this is 3\.\d+, and there is no"
    ):
        install.environment(QUEENS)
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_installed_is_named_and_left_out(other_python: None, tmp_path: Path) -> None:
    said: list[str] = []
    install.install([QUEENS], said.append)
    (line,) = said
    assert line.startswith("not installed: keystone-queens runs on Python 3.2 only")
    assert list(tmp_path.iterdir()) == []


def test_the_python_that_is_needed_is_found_on_the_path(
    other_python: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "python3.2"
    program.symlink_to(sys.executable)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert install._python(QUEENS) == str(program)
    assert install._python("keystone") == sys.executable


def test_a_configuration_has_its_own_release_where_there_are_pins_for_it() -> None:
    names = {name: keystone._environment_of(configuration.read("keystone", name)) for name in ("uwsgi", "queens")}
    assert names == {"uwsgi": "keystone", "queens": QUEENS}
    assert [path.suffix for path in install._additions(QUEENS)] == [".pth", ".py"]
    assert install._additions("keystone") == []
