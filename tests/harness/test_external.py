"""An external server without load: who must consent, what the operator's command does, what the probe says of it."""

import dataclasses
import os
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from analysis import record
from harness import external, runner
from harness.apply import Operator, contains
from harness.experiment import ExperimentFile, External, host_url, rate
from harness.external import Consent, NotAllowed
from harness.parsed_file import ExperimentError
from harness.server import ServerError
from harness.validate import read
from tests.certificates import ADDRESS, Authority
from tests.known_server import Answer, KnownServer, Request

from .conftest import Quiet

FLIP = "import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1]).read().decode())"
GOOD = Path(__file__).resolve().parents[2] / "configs/experiments/keystone-processes.yml"


@dataclasses.dataclass
class Theirs:
    """Somebody else's server: one parameter, which a GET of /set/VALUE changes, and /status says."""

    workers: str = "0"
    listens_to_set: bool = True
    sets: list[str] = dataclasses.field(default_factory=list)

    def answer(self, request: Request) -> Answer:
        if request.path.startswith("/set/"):
            self.sets.append(request.path.removeprefix("/set/"))
            self.workers = self.sets[-1] if self.listens_to_set else self.workers
            return Answer(body=b"planted-password is set")
        return Answer(body=f"up\nworkers {self.workers}, all well\n".encode())


@pytest.fixture
def theirs() -> Theirs:
    return Theirs()


def described(url: str, **changes: Any) -> External:
    given = {
        "host": url,
        "parameters": {"workers": 4},
        "apply": [sys.executable, "-c", FLIP, f"{url}/set/{{parameters.workers}}"],
        "probe": {"get": "/status", "contains": "workers {parameters.workers}", "timeout": "300ms"},
    }
    return External.model_validate(given | changes)


@pytest.fixture
def operator() -> Operator:
    return Operator(dict(os.environ))


def test_apply_runs_where_the_level_changes_and_is_probed(
    server: KnownServer, theirs: Theirs, operator: Operator, tmp_path: Path
) -> None:
    four, one = described(server.url), described(server.url, parameters={"workers": 1})
    for level in (four, four, one, one, four):
        operator.bring(level, tmp_path)
        assert operator.is_applied(level)
    assert theirs.sets == ["4", "1", "4"]
    assert "planted-password is set" in operator.take() and operator.take() == ""


def test_an_apply_that_lies_is_found_out(
    server: KnownServer, theirs: Theirs, operator: Operator, tmp_path: Path
) -> None:
    theirs.listens_to_set, theirs.workers = False, "16"
    with pytest.raises(ServerError, match="'workers 1' is not in the answer"):
        operator.bring(described(server.url, parameters={"workers": 1}), tmp_path)
    theirs.listens_to_set = True
    operator.bring(described(server.url, parameters={"workers": 1}), tmp_path)
    assert theirs.sets == ["1", "1"]  # what did not take is tried again


@pytest.mark.parametrize(
    ("probe", "reason"),
    [
        ({"run": ["echo", "4"], "prints": "{parameters.workers}"}, None),
        ({"run": ["sh", "-c", "echo 4; echo 5 >&2"], "prints": "{parameters.workers}"}, None),
        ({"run": ["echo", "40"], "prints": "{parameters.workers}"}, "it printed something else"),
        ({"run": ["false"], "prints": ""}, "it ended with status 1"),
        ({"run": ["/nowhere/no-such-program"], "prints": ""}, "no-such-program cannot be started: No such file"),
        ({"run": ["sleep", "60"], "prints": ""}, "did not end within 0.3 s, and was broken off"),
        ({"get": "/status", "contains": "workers 4", "status": 204}, "it answered 200"),
        ({"get": "http://127.0.0.1:1/", "contains": "4"}, r"no answer \(ConnectionRefusedError\)"),
    ],
)
def test_probes(
    server: KnownServer, theirs: Theirs, operator: Operator, tmp_path: Path, probe: dict[str, Any], reason: str | None
) -> None:
    level = described(server.url, probe={"timeout": "300ms"} | probe)
    if reason is None:
        operator.bring(level, tmp_path)
        return
    with pytest.raises(ServerError, match=reason):
        operator.bring(level, tmp_path)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ("os_cacert", None),
        ("OS_CACERT", None),
        ("os_cacert before OS_CACERT", None),
        ("another's", r"no answer \(TLS, with os_cacert or OS_CACERT, .*other\.pem: .*certificate"),
        ("none", r"no answer \(TLS, with the system's own authorities: .*certificate"),
        ("no certificate", r"no answer \(TLS, with .*empty\.pem: NO_CERTIFICATE"),
    ],
)
def test_an_https_probe_trusts_whom_the_load_trusts(
    theirs: Theirs, tmp_path: Path, given: str, reason: str | None
) -> None:
    ours, other, empty = Authority(tmp_path, "ours"), Authority(tmp_path, "other"), tmp_path / "empty.pem"
    empty.touch()
    changes = {"os_cacert": str(ours.file)} if given.startswith("os_cacert") else {}
    by_variable = {"OS_CACERT": ours, "another's": other, "os_cacert before OS_CACERT": other}
    variables = {**os.environ, "OS_CACERT": str(by_variable[given].file if given in by_variable else "")}
    if given == "no certificate":
        variables["OS_CACERT"] = str(empty)
    with KnownServer(theirs.answer, tls=ours.server(ADDRESS)) as server:
        theirs.workers = "4"
        level = described(server.url, apply=None, **changes)
        if reason is None:
            Operator(variables).look(level, tmp_path)
            return
        with pytest.raises(ServerError, match=reason):
            Operator(variables).look(level, tmp_path)


def test_a_file_of_authorities_is_looked_for_before_any_run(
    server: KnownServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_dataset(tmp_path, monkeypatch)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OS_CACERT", "missing.pem")
    with pytest.raises(NotAllowed, match=r"missing\.pem: cannot be read"):
        external.check(an_experiment(server), Consent.of([], True))
    # Locust, which runs elsewhere, gets the file's whole name.
    target = external.target(external.externals(an_experiment(server))[0], os.environ)
    assert target.environment["OS_CACERT"] == str(tmp_path / "missing.pem")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("server.external.apply_timeout=0s", r"apply_timeout: '0s' is no time to wait"),
        ("server.external.probe.timeout=0ms", r"probe\.timeout: '0ms' is no time to wait"),
        ("server.external.parameters={workers: [1, 4]}", r"parameters\.workers: \[1, 4\] is not text, a number"),
        ("server.external.parameters=[1]", r"external\.parameters: \[1\] is not a mapping"),
    ],
)
def test_what_no_treatment_could_mean_is_one_error(
    server: KnownServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str, says: str
) -> None:
    without_dataset(tmp_path, monkeypatch)
    not_varied = "factors={load.users: [1, 2]}"
    varied = "factors={server.external.parameters.workers: [1, 4], load.users: [1, 2]}"
    for factors in (not_varied, varied)[: 1 if "[1]" in change else 2]:
        with pytest.raises(ExperimentError, match=says) as caught:
            an_experiment(server, change, factors)
        assert len(caught.value.problems) == 1


def test_a_server_that_is_slow_to_take_it_is_waited_for(
    server: KnownServer, theirs: Theirs, operator: Operator, tmp_path: Path
) -> None:
    later = "import subprocess, sys; subprocess.Popen(['sh', '-c', 'sleep 0.4; ' + sys.argv[1]])"
    flip = f"{sys.executable} -c '{FLIP}' {server.url}/set/4"
    probe = {"get": "/status", "contains": "workers {parameters.workers}", "timeout": "5s"}
    operator.bring(described(server.url, apply=[sys.executable, "-c", later, flip], probe=probe), tmp_path)
    assert theirs.workers == "4"  # and what the command left running was not ended with it


def test_an_apply_that_hangs_is_ended_with_all_its_children(
    server: KnownServer, operator: Operator, tmp_path: Path
) -> None:
    note = tmp_path / "child"
    hang = f"sleep 61 & echo $! > {note}; echo begun; wait"
    began = time.monotonic()
    with pytest.raises(ServerError, match=r"apply: did not end within 0\.5 s, and was broken off"):
        operator.bring(described(server.url, apply=["sh", "-c", hang], apply_timeout="500ms"), tmp_path)
    assert time.monotonic() - began < 10
    assert not psutil.pid_exists(int(note.read_text())) or (
        psutil.Process(int(note.read_text())).status() == psutil.STATUS_ZOMBIE
    )
    assert "begun" in operator.take()


@pytest.mark.parametrize(
    ("text", "words", "found"),
    [
        ("workers 1", "workers 1", True),
        ("workers 16", "workers 1", False),
        ("workers 1.5", "workers 1", False),
        ("workers 1.", "workers 1", True),
        ("-1", "1", False),
        ("0.1", "1", False),
        ('{"workers": 1}', '"workers": 1', True),
        ('{"workers": 1}', '{"workers": 1}', True),
    ],
)
def test_a_level_is_no_part_of_a_longer_one(text: str, words: str, found: bool) -> None:
    assert contains(text, words) is found


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("http://127.0.0.1:5000", True),
        ("http://127.9.9.9", True),
        ("http://localhost:5000/identity", True),
        ("http://[::1]:5000", True),
        ("http://0.0.0.0:5000", False),
        ("http://192.0.2.7:5000", False),
        ("http://[2001:db8::1]", False),
        ("http://name.invalid", False),
    ],
)
def test_what_is_loopback(host: str, loopback: bool) -> None:
    assert external.is_loopback(External(host=host)) is loopback


def test_a_name_with_one_other_address_is_not_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    infos = [(0, 0, 0, "", (address, 0)) for address in ("127.0.0.1", "192.0.2.7")]
    monkeypatch.setattr(external.hosts.socket, "getaddrinfo", lambda *_: infos)
    assert not external.is_loopback(External(host="http://both.example"))


@pytest.mark.parametrize(
    ("may_load", "allowed"),
    [([], False), (["192.0.2.70"], False), (["192.0.2.7"], True), (["other", "192.0.2.7"], True), (["192.0.2"], False)],
)
def test_consent_is_for_the_very_host(may_load: list[str], allowed: bool) -> None:
    host = External(host="http://192.0.2.7:5000")
    if allowed:
        external.check_may_load(host, Consent.of(may_load, False))
        return
    with pytest.raises(NotAllowed, match=r"--i-may-load 192\.0\.2\.7$"):
        external.check_may_load(host, Consent.of(may_load, False))


@pytest.mark.parametrize(
    "text",
    [
        *("127.0.0.1:5000", "ftp://127.0.0.1", "http://", "http://u:pw@127.0.0.1", "http://h/?q=1", "http://h:99999"),
        *(r"http://10.0.0.1\@127.0.0.1:9", r"http://h\x", "http://[::1", "http://h/a b"),
    ],
)
def test_what_is_no_host(text: str) -> None:
    with pytest.raises(ValueError, match=r"no URL that can be used|path alone") as raised:
        host_url(text)
    assert "pw" not in str(raised.value)


def test_another_operation_is_another_experiment() -> None:
    """What `run --resume` compares: with another command the same level would mean something else."""
    one = External(host="http://h", parameters={"n": 1}, apply=["set", "{parameters.n}"])
    other = one.model_copy(update={"apply": ["set", "1{parameters.n}"]})
    assert external.flat(one) == external.flat(one.model_copy())
    assert external.flat(one) != external.flat(other)
    assert external.flat(one) != external.flat(one.model_copy(update={"rate_ceiling": 5.0}))


@pytest.mark.parametrize(
    ("levels", "contains"),
    [
        ("[mem, mem+disk]", "workers {parameters.workers}"),
        ("[1, '1']", "workers {parameters.workers}"),
        ("['', 4]", "{parameters.workers}"),
    ],
)
def test_levels_that_the_probe_takes_for_each_other_are_refused(
    server: KnownServer, levels: str, contains: str
) -> None:
    changes = (
        f"factors={{server.external.parameters.workers: {levels}, load.users: [1, 2]}}",
        f"server.external.probe.contains={contains!r}",
    )
    with pytest.raises(ExperimentError, match="cannot say which level is on"):
        an_experiment(server, *changes)


@pytest.mark.parametrize("value", ["50", 50, "0/s", "-1/s", "50/min", None])
def test_what_is_no_rate(value: object) -> None:
    with pytest.raises(ValueError, match="is not a rate above 0"):
        rate(value)
    assert rate("2.5/s") == 2.5


def test_braces_that_are_no_placeholder_stay(tmp_path: Path) -> None:
    one = External(host="http://h", parameters={"on": True, "n": 1.5})
    assert external.command(["awk '{print $1}'", "{parameters.on}{parameters.n}", '{"a": {}}'], one) == [
        "awk '{print $1}'", "true1.5", '{"a": {}}',
    ]  # fmt: skip


def test_secrets_are_found_where_they_may_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "clouds.yaml").write_text("clouds: {a: {auth: {username: me, password: of-the-cloud}}, b: {token: 77}}")
    (tmp_path / "users.csv").write_text("username,password\nu1,of-user-1\nu2,42\n")
    one = External(host="http://h", users_csv="users.csv")
    found = external.secrets(one, {"OS_PASSWORD": "of-the-env", "OS_USERNAME": "me", "HOME": "/nowhere"})
    assert found == {"of-the-cloud", "77", "of-user-1", "42", "of-the-env"}
    assert external.safe_in_numbers(found) == {"of-the-cloud", "of-user-1", "of-the-env"}
    target = external.target(one, {"OS_CLOUD": "a", "HOME": "/nowhere", "AWS": "x"})
    assert target.environment == {"OS_CLOUD": "a", "OS_CLIENT_CONFIG_FILE": str(tmp_path / "clouds.yaml")}
    assert target.options == {"users-csv": str(tmp_path / "users.csv")}


def an_experiment(server: KnownServer, *changes: str) -> ExperimentFile:
    apply = [sys.executable, "-c", FLIP, f"{server.url}/set/{{parameters.workers}}"]
    probe = {"get": "/status", "contains": "workers {parameters.workers}", "timeout": "300ms"}
    parts = {"host": server.url, "parameters": {"workers": 1}, "apply": apply, "probe": probe}
    return read(
        GOOD,
        (
            f"server={{external: {parts}}}",
            "factors={server.external.parameters.workers: [1, 4], load.users: [1, 2]}",
            *("baseline={}", "primary={}", "replicates=1", "order.server=per_block"),
            *changes,
        ),
    )


def without_dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "theirs.yml"
    file.write_text("\n".join(line for line in GOOD.read_text().splitlines() if not line.startswith("dataset:")))
    monkeypatch.setattr(sys.modules[__name__], "GOOD", file)


def test_a_level_that_does_not_take_is_not_measured(
    server: KnownServer, theirs: Theirs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_dataset(tmp_path, monkeypatch)
    theirs.listens_to_set, theirs.workers = False, "planted-password"
    file = an_experiment(server, "server.external.users_csv=users.csv")
    monkeypatch.chdir(tmp_path)
    users = tmp_path / "users.csv"
    users.write_text("username,password,user_domain_id,project_name,project_domain_id\nu,planted-password,d,p,d\n")
    with pytest.raises(NotAllowed, match=r"users\.csv: holds passwords, and others may read it"):
        external.check(file, Consent.of([], True))
    users.chmod(0o600)
    written = users.read_bytes()
    users.write_bytes(b"\xff\xfe" + written)
    with pytest.raises(NotAllowed, match=r"users\.csv: is not text in UTF-8"):
        external.check(file, Consent.of([], True))
    users.write_bytes(written)
    with pytest.raises(NotAllowed, match=rf"--allow-apply:\n  .*/set/1\n  .*{server.url}/set/4$"):
        runner.run(file, tmp_path / "result", Quiet())
    assert theirs.sets == []
    (tmp_path / "result/runs").mkdir(parents=True)
    record.write_experiment(tmp_path / "result", runner.describe(file))
    monkeypatch.setattr(runner.load, "run", lambda *_: pytest.fail("measured under the wrong configuration"))
    outcomes = runner.run(file, tmp_path / "result", Quiet(), Consent.of([], True))
    assert [outcome.status for outcome in outcomes] == ["failed"] * 4
    for outcome in outcomes:
        assert outcome.reason is not None and "the probe says that the server is not as it must be" in outcome.reason
        assert "configuration_sha256" not in outcome.server
    assert len(theirs.sets) == 2
    logs = [path.read_text() for path in (tmp_path / "result").rglob("operator.log")]
    assert len(logs) == 2 and all("[redacted] is set" in text for text in logs)
    assert not [p for p in (tmp_path / "result").rglob("*") if p.is_file() and "planted-password" in p.read_text()]
