"""Servers as levels of an experiment: whole ones by their names, configurations, and values that must not meet."""

from pathlib import Path

import pytest

from harness import configuration
from harness.plan import plan
from harness.runner import describe
from harness.validate import read

from .test_validate import problems

GOOD = Path(__file__).resolve().parents[2] / "configs/experiments/keystone-processes.yml"
NO_FACTORS = ("factors={}", "baseline={}", "primary={}")

SERVERS = """
question: Does the front end matter?
workload: keystone_auth
dataset: {projects: 2, users_per_project: 20}
load: {users: 4}
factors:
  server:
    uWSGI 1: {system: keystone, configuration: uwsgi, parameters: {cache: null}}
    Apache 2: {system: keystone, configuration: apache, parameters: {processes: 2, hash_rounds: 4}}
baseline: {server: uWSGI 1}
timing: {warm_up: 1s, steady_state: 3s}
"""


def test_whole_servers_are_levels_by_their_names(tmp_path: Path) -> None:
    (tmp_path / "chain.yml").write_text(SERVERS)
    file = read(tmp_path / "chain.yml")
    assert file.treatments() == [{"server": "uWSGI 1"}, {"server": "Apache 2"}]
    one, two = (file.at(treatment).server for treatment in file.treatments())
    assert (one.configuration, one.parameters) == ("uwsgi", {"cache": "null"})
    assert (two.configuration, two.parameters["processes"]) == ("apache", 2)
    notes = describe(file).notes
    assert any(note.startswith("Apache 2 is keystone/apache with processes = 2, ") for note in notes)
    assert any("hash_rounds = 12, 4, and ships with 12" in note for note in notes)
    assert [note for note in notes if note.startswith("cache = ")] == [
        "cache = null: within one request only; every request reads from the database what it needs."
    ]
    assert sorted(str(run.treatment["server"]) for run in plan(file.experiment)) == ["Apache 2", "uWSGI 1"]


@pytest.mark.parametrize(
    ("before", "after", "line", "message"),
    [
        ("processes: 2", "processes: 3", 9, "factors.server: level 'Apache 2': server.parameters.processes: 3 is not"),
        ("workload:", "server: {}\nworkload:", 3, "server: factors.server names whole servers; leave it out"),
        ("baseline: {server: uWSGI 1}", "baseline: {server: uWSGI}", 10, "baseline: 'uWSGI' is not a level of server"),
        ("  server:\n", "  server.parameters.cache: [dict]\n  server:\n", 7, "factors.server.parameters.cache: write"),
        ("{system: keystone, configuration: uwsgi, parameters: {cache: null}}", "1", 7, "factors.server: write names"),
    ],
)
def test_whole_servers_that_are_wrong_are_named(
    tmp_path: Path, before: str, after: str, line: int, message: str
) -> None:
    assert before in SERVERS
    (tmp_path / "chain.yml").write_text(SERVERS.replace(before, after))
    found = problems(tmp_path / "chain.yml")
    assert any(at == line and text.startswith(message) for at, text in found), found


def test_the_configuration_is_a_factor_and_must_take_every_parameter(monkeypatch: pytest.MonkeyPatch) -> None:
    change = "factors.server.configuration=[uwsgi, apache]"
    assert len(read(GOOD, (change,)).treatments()) == 8
    real = configuration.read

    def reading(system: str, name: str) -> configuration.Configuration:
        found = real(system, name)
        if name == "apache":
            one = found.declaration.parameters["processes"].model_copy(update={"values": [1]})
            found.declaration.parameters["processes"] = one
        return found

    monkeypatch.setattr(configuration, "read", reading)
    refused = "server.parameters.processes: 2 is not one of 1 with server.configuration = apache"
    assert [message for _, message in problems(GOOD, change)] == [refused]


UUID_ON_SQLITE = "processes = 2, token_provider = uuid, database = sqlite: every UUID token is a row that is written"


@pytest.mark.parametrize(
    ("parameters", "is_refused"),
    [
        ("{token_provider: uuid, database: sqlite}", True),
        ("{token_provider: uuid}", True),  # sqlite is the default
        ("{token_provider: uuid, database: postgresql}", False),
        ("{token_provider: fernet, database: sqlite}", False),
    ],
)
def test_values_that_must_not_meet_are_refused(parameters: str, is_refused: bool) -> None:
    changes = ("server.configuration=queens", f"server.parameters={parameters}")
    if not is_refused:
        assert len(read(GOOD, changes).treatments()) == 4
        return
    ((_, message),) = problems(GOOD, *changes)
    assert UUID_ON_SQLITE in message and "Take database postgresql" in message


def test_values_that_meet_only_in_a_treatment_are_refused() -> None:
    varied = "factors={server.parameters.processes: [1, 2], server.parameters.token_provider: [fernet, uuid]}"
    ((_, message),) = problems(GOOD, "server={system: keystone, configuration: queens}", varied, "primary={}")
    assert UUID_ON_SQLITE in message
