"""Datasets made and removed on one real Keystone that holds others' projects and users: those stay.

What a cloud does wrong comes from a proxy in front of it, which answers some requests itself.
"""

import collections
import contextlib
import csv
import http.server
import json
import os
import random
import re
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from keystoneauth1 import session
from keystoneauth1.identity import v3
from typer.testing import CliRunner

from harness import configuration, dataset_command, server
from harness.datasets import keystone_cloud
from harness.datasets.errors import CloudError, DatasetError
from harness.datasets.keystone_cloud import Cloud, Object
from harness.systems import keystone

from .conftest import no_room_beyond
from .faulty_proxy import Faults

REPOSITORY = Path(__file__).resolve().parent.parent.parent
SMALL = ("--projects", "2", "--users", "3")


class Up:
    """The Keystone, its administrator, and what else lives there."""

    def __init__(self, running: server.Running) -> None:
        self.url = running.target.url
        self.environment = {**running.target.environment, "OS_AUTH_URL": self.url}
        with pytest.MonkeyPatch.context() as patch:
            for name, value in self.environment.items():
                patch.setenv(name, value)
            self.cloud = keystone_cloud.connect(None, 4)

    def everything(self) -> set[tuple[str, str, str]]:
        found = [one for kind in ("project", "user") for one in self.cloud.all_of(kind, "default")]
        return {(one.kind, one.id, one.name) for one in found}

    def of(self, dataset: str) -> list[Object]:
        found = [one for kind in ("project", "user") for one in self.cloud.all_of(kind, "default")]
        return [one for one in found if one.dataset == dataset]


@pytest.fixture(scope="module")
def up() -> Iterator[Up]:
    chosen = configuration.read("keystone", "uwsgi")
    parameters: dict[str, configuration.Value] = {
        **{"processes": 1, "token_provider": "fernet", "cache": "dict", "hash_rounds": 4},
    }
    prepared = keystone.prepare(chosen, parameters, {"projects": 2, "users_per_project": 20}, lambda message: None)
    with (
        server.scratch_folder() as scratch,
        server.running(lambda place: keystone.server(prepared, place, chosen, parameters), scratch) as running,
    ):
        yield Up(running)


def command(*words: object) -> list[str]:
    return [sys.executable, "-m", "harness", "dataset", "keystone", *map(str, words)]


def clean(environment: dict[str, str]) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("OS_", "LOCUST_", "STACKSWARM_"))}
    return {**kept, **environment}


def program(up: Up, *words: object, status: int = 0) -> str:
    """What the program says, which is to end with `status`."""
    done = subprocess.run(
        command(*words), cwd=REPOSITORY, env=clean(up.environment), capture_output=True, text=True, timeout=60,
        check=False,
    )  # fmt: skip
    said = done.stdout + done.stderr
    assert done.returncode == status, said
    assert "Traceback" not in said
    assert up.environment["OS_PASSWORD"] not in said
    return said


def ask(up: Up, *words: object, error: type[Exception] | None = None, **changes: str) -> str:
    """As program(), but within this process: what it says, and its error."""
    variables = {name: None for name in os.environ if name.startswith("OS_")}
    result = CliRunner().invoke(
        dataset_command.keystone, list(map(str, words)), env={**variables, **up.environment, **changes}
    )
    assert (type(result.exception) if result.exception else None) is error, str(result.exception)
    said = f"{result.output}error: {result.exception}\n" if error else result.output
    assert up.environment["OS_PASSWORD"] not in said
    return said


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "manifest.jsonl").read_text().splitlines()]


def rows(folder: Path) -> list[dict[str, str]]:
    return list(csv.DictReader((folder / "users.csv").open()))


def test_a_dataset_drives_load_and_goes_and_all_else_stays(up: Up, tmp_path: Path) -> None:
    folder = tmp_path / "made"
    before = up.everything()
    said = program(up, "create", *SMALL, "--output", folder)
    about = lines(folder)[0]
    users = rows(folder)
    assert len(users) == len({u["username"] for u in users}) == len({u["password"] for u in users}) == 6
    assert len(up.of(about["dataset"])) == 8
    for path in folder.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert not any(u["password"] in said + (folder / "manifest.jsonl").read_text() for u in users)
    check_load(up, folder, tmp_path)

    # Others: nearly the same name; our mark with another dataset's id; in the manifest, without any mark.
    name = users[0]["username"]
    others = [
        up.cloud._client.users.create(f"{name}0", domain="default", password="x"),
        up.cloud._client.users.create("other-dataset", domain="default", **keystone_cloud.marks("0123456789ab")),
        up.cloud._client.projects.create("listed", domain="default"),
    ]
    with (folder / "manifest.jsonl").open("a") as file:
        for kind, one in (("user", others[1]), ("project", others[2])):
            file.write(json.dumps({"done": kind, "name": one.name, "id": one.id}) + "\n")

    assert "would be removed: 6 users, 2 projects" in ask(up, "remove", folder, "--dry-run", error=CloudError)
    assert len(up.of(about["dataset"])) == 8
    said = program(up, "remove", folder, status=4)
    assert "removed: 6 users, 2 projects\n" in said
    assert "kept: user other-dataset: its mark names another dataset (0123456789ab)" in said
    assert "kept: project listed: it carries no mark of ours" in said
    assert {(kind, id_) for kind, id_, _ in up.everything() - before} == {
        ("user", others[0].id), ("user", others[1].id), ("project", others[2].id),
    }  # fmt: skip
    assert before <= up.everything()
    assert "removed: 0 users, 0 projects\n" in ask(up, "remove", folder, error=CloudError)

    assert "other-dataset" in ask(up, "remove", "--orphans", folder) and others[1].id in ids(up)
    said = ask(up, "remove", "--orphans", "--yes", folder)
    assert "removed: 1 users, 0 projects" in said and others[1].id not in ids(up)
    assert {others[0].id, others[2].id} <= ids(up)


def ids(up: Up) -> set[str]:
    return {id_ for _, id_, _ in up.everything()}


def check_load(up: Up, folder: Path, home: Path) -> None:
    """Every user logs in, and a share of wrong passwords is allowed, for the file says whose users these are."""
    words = ["--headless", "--only-summary", "-H", up.url, "-u", "2", "-t", "2s", "--wrong-passwords", "10%"]
    done = subprocess.run(
        [sys.executable, "-m", "locust", "-f", str(REPOSITORY / "locustfiles/keystone_auth.py"), *words,
         "--users-csv", str(folder / "users.csv"), "--csv", "load"],
        cwd=home, env=clean({}), capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    total = list(csv.DictReader((home / "load_stats.csv").open()))[-1]
    assert int(total["Request Count"]) >= 12 and total["Failure Count"] == "0"


def check_logins(up: Up, folder: Path) -> None:
    """Each user of the file gets a token for its project."""
    for u in rows(folder):
        auth = v3.Password(
            f"{up.url}/v3", username=u["username"], password=u["password"], user_domain_id=u["user_domain_id"],
            project_name=u["project_name"], project_domain_id=u["project_domain_id"],
        )  # fmt: skip
        assert session.Session(auth).get_token()


def test_what_kill_9_leaves_is_made_whole_and_removed(up: Up, tmp_path: Path) -> None:
    folder = tmp_path / "made"
    before = up.everything()
    begun = subprocess.Popen(
        command("create", "--projects", 2, "--users", 8, "--output", folder, "--concurrency", 4), cwd=REPOSITORY,
        env=clean(up.environment), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    wait_until(lines_of(folder, random.randint(1, 24)))
    begun.kill()
    begun.wait()
    made = {name for _, _, name in up.everything() - before}
    assert made <= {line.get("name") for line in lines_so_far(folder)}
    with (folder / "manifest.jsonl").open("a") as file:
        file.write('{"intent": "user", "na')  # as power that fails leaves it
    ask(up, "create", "--resume", folder)
    names = [u["username"] for u in rows(folder)]
    assert len(names) == len(set(names)) == 16
    assert len(up.everything() - before) == 18
    check_logins(up, folder)
    assert "removed: 16 users, 2 projects" in ask(up, "remove", folder / "manifest.jsonl")
    assert up.everything() == before
    assert "the removal of this dataset has begun" in ask(up, "create", "--resume", folder, error=DatasetError)


def lines_so_far(folder: Path) -> list[dict[str, Any]]:
    text = (folder / "manifest.jsonl").read_text()
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]


def lines_of(folder: Path, least: int) -> Callable[[], bool]:
    return lambda: (folder / "manifest.jsonl").exists() and len(lines_so_far(folder)) > least


def wait_until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_full_disk_is_one_error_that_names_the_file_and_the_rest_is_made_later(up: Up, tmp_path: Path) -> None:
    folder = tmp_path / "made"
    before = up.everything()
    with no_room_beyond(1500):
        said = ask(up, "create", "--projects", 1, "--users", 9, "--output", folder, error=CloudError)
    assert f"error: {folder}/manifest.jsonl: cannot be written (File too large). What was made is kept: go on" in said
    made = {name for _, _, name in up.everything() - before}
    assert made <= {line.get("name") for line in lines(folder)}
    ask(up, "create", "--resume", folder)
    assert len(rows(folder)) == 9
    check_logins(up, folder)
    ask(up, "remove", folder)
    assert up.everything() == before


def test_users_may_also_get_the_role_on_the_domain_and_the_system(up: Up, tmp_path: Path) -> None:
    """And it goes with them."""
    folder = tmp_path / "made"
    words = ("create", "--projects", 1, "--users", 2, "--output", folder)
    said = ask(up, *words, "--also-on", "system", "--also-on", "domain")
    assert "who also get a role on the domain and the system" in said
    assert lines(folder)[0]["also_on"] == ["domain", "system"]
    for u in rows(folder):
        who = {"username": u["username"], "password": u["password"], "user_domain_id": u["user_domain_id"]}
        for scope in ({"domain_id": "default"}, {"system_scope": "all"}):
            assert session.Session(v3.Password(f"{up.url}/v3", **who, **scope)).get_token()
    ids = {line["id"] for line in lines(folder) if line.get("done") == "user"}
    roles = up.cloud._client.role_assignments
    assert len([one for one in roles.list() if one.user["id"] in ids]) == 3 * len(ids) == 6
    ask(up, "remove", folder)
    assert not [one for one in roles.list() if one.user["id"] in ids]


def test_ctrl_c_ends_in_order_and_says_how_to_go_on(up: Up, tmp_path: Path) -> None:
    folder = tmp_path / "made"
    before = up.everything()
    begun = subprocess.Popen(
        command("create", "--projects", 2, "--users", 200, "--output", folder), env=clean(up.environment),
        cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    wait_until(lines_of(folder, 15))
    begun.send_signal(signal.SIGINT)
    said = begun.communicate(timeout=15)[1]
    assert begun.returncode == 130
    assert f"create --resume {folder}/manifest.jsonl" in said and "remove" in said and "Traceback" not in said
    ask(up, "remove", folder)
    assert up.everything() == before


Proxy = Callable[[dict[str, list[Any]]], tuple[str, type[Faults]]]


@pytest.fixture
def proxy(up: Up) -> Iterator[Proxy]:
    with contextlib.ExitStack() as stack:

        def make(plan: dict[str, list[Any]]) -> tuple[str, type[Faults]]:
            handler = type("Handler", (Faults,), {"keystone": up.url, "plan": plan, "counts": collections.Counter()})
            listening = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
            listening.daemon_threads = True
            threading.Thread(target=listening.serve_forever, args=(0.05,), daemon=True).start()
            stack.callback(listening.server_close)
            stack.callback(listening.shutdown)
            return f"http://127.0.0.1:{listening.server_port}", handler

        yield make


def test_failures_that_pass_cost_nothing_but_time(up: Up, proxy: Proxy, tmp_path: Path) -> None:
    before = up.everything()
    url, _ = proxy({
        "POST projects": [503, "lost"],
        "POST users": [429, 401, "lost", 502],
        "PUT projects": [409, 503],
        "DELETE users": [503, 500, "lost"],
    })  # fmt: skip
    folder = tmp_path / "made"
    ask(up, "create", *SMALL, "--output", folder, OS_AUTH_URL=url)
    assert len(rows(folder)) == 6 and len(up.everything() - before) == 8
    check_logins(up, folder)
    # The same cloud by another address.
    ask(up, "remove", folder)
    assert up.everything() == before


@pytest.mark.parametrize(
    ("plan", "says"),
    [
        ({"POST users": [403, "always"]}, r"cannot make user stackswarm-\w+-\d-\d: .*403.*It takes an administrator"),
        (
            {"POST users": [401, "always"]},
            r"cannot make user .*401.*\(2 attempts\).*password or rights may have changed",
        ),
        ({"POST projects": [409, "always"]}, r"cannot make project .*name is taken, but shows nobody"),
        ({"POST users": [300, "always"]}, r"cannot make user .*answers, but not as a Keystone v3 does"),
    ],
)
def test_failures_that_last_end_in_one_error(
    up: Up, proxy: Proxy, tmp_path: Path, plan: dict[str, list[Any]], says: str
) -> None:
    before = up.everything()
    url, _ = proxy(plan)
    said = ask(up, "create", *SMALL, "--output", tmp_path / "made", error=CloudError, OS_AUTH_URL=url)
    assert len(re.findall(r"^error: ", said, re.MULTILINE)) == 1
    assert re.search(says, said) and "create --resume" in said
    ask(up, "remove", tmp_path / "made")
    assert up.everything() == before


@pytest.mark.parametrize("fault", [429, 503, "lost"])
def test_attempts_are_bounded(up: Up, proxy: Proxy, fault: object) -> None:
    url, handler = proxy({"GET users": [fault, "always"]})
    patience = keystone_cloud.Patience(attempts=3, first_wait_s=0.01)
    with pytest.raises(CloudError, match=r"cannot list users: .*\(3 attempts\)"):
        Cloud(f"{url}/v3", up.cloud._session.auth, True, 1, patience).all_of("user", "default")
    assert handler.counts["GET users"] == 3


def test_what_cannot_work_changes_nothing(up: Up, tmp_path: Path) -> None:
    before = up.everything()
    folder = tmp_path / "made"
    for words, changes, says in (
        ((), {"OS_PASSWORD": "wrong-password"}, "refuses the administrator of OS_*: 401"),
        ((), {"OS_AUTH_URL": ""}, "OS_AUTH_URL is no URL"),
        ((), {"OS_USERNAME": ""}, "no OS_USERNAME"),
        ((), {"OS_AUTH_URL": "http://192.0.2.1:5000"}, "say so with --i-may-load 192.0.2.1"),
        (("--i-may-load", "other"), {"OS_AUTH_URL": "http://192.0.2.1:5000"}, "--i-may-load 192.0.2.1, not other"),
        (("--role", "membr"), {}, "has no role 'membr'"),
        (("--domain", "nowhere"), {}, "has no domain 'nowhere'"),
        (("--domain", "default/../default"), {}, "has no domain"),
        (("--domain", ".."), {}, "is no domain; name"),
        (("--domain", ""), {}, "is no domain; name"),
    ):
        assert says in ask(up, "create", *SMALL, "--output", folder, *words, error=DatasetError, **changes)
    assert not folder.exists() and up.everything() == before
    assert "name a new folder with --output" in program(up, "create", status=2)


def test_a_manifest_of_another_cloud_is_refused(up: Up, tmp_path: Path) -> None:
    about = {
        **{"manifest": 1, "dataset": "0123456789ab", "auth_url": "http://cloud:5000/v3", "domain_id": "default"},
        **{"role": "member", "role_id": "f" * 32, "projects": 1, "users_per_project": 1},
        **{"password_from_file": False, "created_unix_s": 0},
    }
    (tmp_path / "manifest.jsonl").write_text(json.dumps(about) + "\n")
    assert "made on http://cloud:5000/v3, and OS_AUTH_URL names another" in ask(
        up, "remove", tmp_path, error=DatasetError
    )


def test_one_password_for_all_from_a_file(up: Up, tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("the-one-Passw0rd\n")
    words = ("create", "--projects", 1, "--users", 2, "--output", tmp_path / "made", "--password-from-file", file)
    file.chmod(0o644)
    assert "chmod 600" in ask(up, *words, error=DatasetError)
    file.chmod(0o600)
    assert "the-one" not in ask(up, *words)
    assert {u["password"] for u in rows(tmp_path / "made")} == {"the-one-Passw0rd"}
    assert "give --password-from-file" in ask(up, "create", "--resume", tmp_path / "made", error=DatasetError)
    ask(up, "remove", tmp_path / "made")


def test_no_role_is_given_on_a_project_without_our_mark(up: Up, tmp_path: Path) -> None:
    folder = tmp_path / "made"
    ask(up, "create", "--projects", 1, "--users", 1, "--output", folder)
    other = up.cloud._client.projects.create("not-ours", domain="default")
    about, *events = lines(folder)
    events = [{**e, "id": other.id} if e.get("done") == "project" else e for e in events if e.get("done") != "user"]
    (folder / "manifest.jsonl").write_text("".join(json.dumps(line) + "\n" for line in (about, *events)))
    assert "it carries no mark of ours" in ask(up, "create", "--resume", folder, error=CloudError)
