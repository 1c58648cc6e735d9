"""The manifest and the users' file of a dataset, consent, and how often and how long is waited."""

import dataclasses
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from keystoneauth1 import token_endpoint
from keystoneauth1.identity import v3

from harness import dataset_command
from harness.datasets import manifest
from harness.datasets.consent import check_may_write
from harness.datasets.errors import CloudError, DatasetError
from harness.datasets.keystone_cloud import Cloud, Patience
from harness.datasets.keystone_removal import orphans
from harness.datasets.manifest import Description, Entry
from harness.datasets.parallel import GRACE_S, do_all
from harness.datasets.users_file import UsersFile
from harness.hosts import checked_url
from harness.server import free_port
from tests.known_server import Answer, KnownServer, Request

from .conftest import no_room_beyond

ABOUT = Description("0123456789ab", "http://127.0.0.1:5000/v3", "default", "member", "f" * 32, 1, 2, False, 0)


def test_a_manifest_knows_what_was_intended_done_and_removed(tmp_path: Path) -> None:
    path = tmp_path / "manifest.jsonl"
    with manifest.create(path, ABOUT) as made:
        made.intend("user", "a")
        made.intend("user", "b")
        made.done("user", "b", "b1")
        made.intend("user", "c")
        made.done("user", "c", "c1")
        made.removed(Entry("user", "c", "c1"))
    expected = [Entry("user", "a"), Entry("user", "b", "b1"), Entry("user", "c", "c1", removed=True)]
    assert manifest.read(tmp_path) == (ABOUT, expected)


def test_half_a_line_of_a_killed_program_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "manifest.jsonl"
    with manifest.create(path, ABOUT) as made:
        made.intend("user", "a")
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"done": "user", "na')
    with manifest.resume(path) as again:
        assert again.entries == [Entry("user", "a")]
        again.done("user", "a", "a1")
    assert path.read_bytes() == whole + b'{"done": "user", "name": "a", "id": "a1"}\n'


def test_a_full_disk_names_the_file_and_leaves_no_half_line(tmp_path: Path) -> None:
    path, users_path = tmp_path / "manifest.jsonl", tmp_path / "users.csv"
    users = UsersFile(users_path)
    with manifest.create(path, ABOUT) as made:
        for file, write in (
            (path, lambda: made.intend("user", "a" * 50)),
            (users_path, lambda: users.add("a" * 50, "p", "p", "default")),
        ):
            before = file.read_bytes()
            with no_room_beyond(len(before) + 20), pytest.raises(OSError, match="File too large") as caught:
                write()
            assert caught.value.filename == str(file)
            assert file.read_bytes() == before
        assert made.entry("user", "a" * 50) is None
        made.intend("user", "b")  # once there is room again
    users.close()
    assert manifest.read(path)[1] == [Entry("user", "b")]


def test_a_manifest_for_which_there_is_no_room_is_not_begun(tmp_path: Path) -> None:
    path = tmp_path / "manifest.jsonl"
    with no_room_beyond(20), pytest.raises(OSError, match="File too large") as caught:
        manifest.create(path, ABOUT)
    assert caught.value.filename == str(path) and not path.exists()


def test_a_manifest_of_before_there_were_further_roles_is_read(tmp_path: Path) -> None:
    path = tmp_path / "manifest.jsonl"
    first = {"manifest": 1, **dataclasses.asdict(ABOUT)}
    path.write_text(json.dumps({name: value for name, value in first.items() if name != "also_on"}) + "\n")
    assert manifest.read(path) == (ABOUT, [])
    path.write_text(json.dumps(first | {"also_on": ["galaxy"]}) + "\n")
    with pytest.raises(DatasetError, match=r"line 1: .*'galaxy' is none of domain, system"):
        manifest.read(path)


def test_one_process_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "manifest.jsonl"
    with (
        manifest.create(path, ABOUT),
        pytest.raises(DatasetError, match="another process is making or removing this dataset"),
    ):
        manifest.resume(path)


def test_no_orphans_are_looked_for_while_a_dataset_is_being_made(tmp_path: Path) -> None:
    """What is made now is in no manifest that was read a moment ago, and would be removed."""
    path = tmp_path / "manifest.jsonl"
    command = [sys.executable, "-m", "harness", "dataset", "keystone", "remove", "--orphans", "--yes", str(path)]
    admin = {"OS_AUTH_URL": "http://127.0.0.1:9", "OS_USERNAME": "a", "OS_PASSWORD": "b", "OS_PROJECT_NAME": "c"}
    admin |= {"OS_USER_DOMAIN_ID": "default", "OS_PROJECT_DOMAIN_ID": "default"}
    with manifest.create(path, ABOUT):
        done = subprocess.run(command, env=os.environ | admin, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "another process is making or removing this dataset" in done.stderr


@pytest.mark.parametrize(
    "line",
    [
        "no JSON",
        "[]",
        "{}",
        '{"done": "user", "name": "a"}',
        '{"done": "user", "name": "a", "id": ""}',
        '{"done": "user", "name": "a", "id": "../projects/1"}',
        '{"done": "domain", "name": "a", "id": "1"}',
        '{"made": "user", "name": "a", "id": "1"}',
        '{"intent": "user", "name": 1}',
    ],
)
def test_a_damaged_manifest_is_refused_with_its_line(tmp_path: Path, line: str) -> None:
    path = tmp_path / "manifest.jsonl"
    first = json.dumps({"manifest": 1, **dataclasses.asdict(ABOUT)})
    path.write_text(f"{first}\n{line}\n")
    with pytest.raises(DatasetError, match=r"manifest\.jsonl line 2: not a line of a dataset's manifest"):
        manifest.resume(path)
    path.write_text(first.replace('"projects": 1', '"projects": "1"') + "\n")
    with pytest.raises(DatasetError, match=r"line 1: .*projects is no int"):
        manifest.read(path)


def test_users_who_are_not_whole_are_forgotten_and_missing_ones_refused(tmp_path: Path) -> None:
    path = tmp_path / "users.csv"
    file = UsersFile(path)
    for name in ("a", "b"):
        file.add(name, f'secret, "{name}"', "p", "default")
    file.close()
    header, line_a, _ = path.read_text().splitlines(keepends=True)
    path.write_text(path.read_text() + "c,half")
    UsersFile(path, ["a"]).close()
    assert path.read_text() == header + line_a
    assert header == "username,password,user_domain_id,project_name,project_domain_id,created_by\n"
    with pytest.raises(DatasetError, match=r"1 users of the dataset are not in it, b among them"):
        UsersFile(path, ["a", "b"])


@pytest.mark.parametrize("url", ["http://127.0.0.1:5000/v3", "http://localhost/v3", "https://[::1]:5000/v3"])
def test_loopback_needs_no_consent(url: str) -> None:
    check_may_write(url, None, "this writes")


def test_another_host_needs_consent_for_itself() -> None:
    check_may_write("https://192.0.2.1:5000/v3", "192.0.2.1", "this writes")
    for given in (None, "192.0.2.10", "127.0.0.1"):
        with pytest.raises(DatasetError, match=r"this writes\. That is not .* --i-may-load 192\.0\.2\.1"):
            check_may_write("https://192.0.2.1:5000/v3", given, "this writes")


def test_waits_double_up_to_a_limit_and_obey_the_server() -> None:
    patience = Patience(first_wait_s=0.5)
    assert [patience.wait_s(failures, None, 1.0) for failures in (1, 2, 3, 20)] == [0.5, 1, 2, 30]
    assert patience.wait_s(3, None, 0.0) == 1
    assert patience.wait_s(1, "7", 0.0) == 7
    assert patience.wait_s(1, "9999", 0.0) == 30
    assert patience.wait_s(1, "Wed, 21 Oct 2015 07:28:00 GMT", 1.0) == 0.5


def test_a_cloud_that_is_not_there_is_one_short_reason() -> None:
    """Within three layers of libraries, whose words were cut in the middle of one."""
    url = f"http://127.0.0.1:{free_port()}/v3"
    who = v3.Password(url, username="u", password="p", user_domain_id="d", project_name="p", project_domain_id="d")
    with pytest.raises(CloudError) as caught:
        Cloud(url, who, True, 1, Patience(attempts=1)).log_in()
    assert re.fullmatch(
        rf"cannot log in at {url}: Unable to establish connection to {url}/auth/tokens: Connection refused",
        str(caught.value),
    )


def test_as_many_requests_are_in_flight_as_was_said() -> None:
    """Each is answered only when all have come."""
    all_there = threading.Barrier(12)

    def answer(request: Request) -> Answer:
        all_there.wait(10)
        return Answer(body=json.dumps({"user": {"id": request.path.rpartition("/")[2], "name": "u"}}).encode())

    with KnownServer(answer) as server:
        url = f"{server.url}/v3"
        cloud, found = Cloud(url, token_endpoint.Token(url, "t"), True, 12, Patience(attempts=1)), []
        users = [f"id{n}" for n in range(24)]
        do_all(lambda id_: found.append(cloud.get("user", id_)), users, 12, cloud.stop, lambda done, of: None)
        assert sorted(one.id for one in found if one) == sorted(users)
        assert len({line.connection for line in server.log}) == 12  # kept


def test_the_first_error_ends_all_and_a_hanging_job_is_left_behind() -> None:
    stop, begun = threading.Event(), []

    def work(job: int) -> None:
        begun.append(job)
        if job == 0:
            time.sleep(60)
        if job == 3:
            raise ValueError("three")

    began = time.monotonic()
    with pytest.raises(ValueError, match="three"):
        do_all(work, range(100), 2, stop, lambda done, of: None)
    assert begun == [0, 1, 2, 3]
    assert time.monotonic() - began < GRACE_S + 30


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.2:21905\\@127.0.0.1:9",
        "http://user:secret@127.0.0.1",
        "http://127.0.0.1:99999",
        "http://127.0.0.1:0",
        "http://[::1",
        "http://127.0.0.1/a b",
        "http://127.0.0.1\n",
        "http://",
        "",
    ],
)
def test_a_url_with_two_hosts_or_none_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(ValueError, match="OS_AUTH_URL is no URL that can be used") as caught:
        checked_url(url, "OS_AUTH_URL")
    assert "secret" not in str(caught.value)
    assert checked_url("https://[::1]:5000/v3", "x") == "https://[::1]:5000/v3"


def test_manifests_are_read_after_the_cloud_was_listed() -> None:
    order = []

    class Listed(Cloud):
        def __init__(self) -> None:
            pass

        def domain_ids(self) -> list[str]:
            order.append("cloud")
            return []

    def read() -> Iterator[tuple[Description, list[Entry]]]:
        order.append("manifests")
        yield ABOUT, []

    assert orphans(Listed(), read()) == []
    assert order == ["cloud", "manifests"]


def test_a_removal_that_died_after_its_first_request_is_not_resumed_as_creation(tmp_path: Path) -> None:
    path = tmp_path / "manifest.jsonl"
    with manifest.create(path, ABOUT) as made:
        made.done("user", "a", "a1")
        made.removing(Entry("user", "a", "a1"))
    with manifest.resume(path) as again:
        assert again.entries == [Entry("user", "a", "a1", removing=True)]
        with pytest.raises(DatasetError, match="the removal of this dataset has begun"):
            dataset_command._check_resumable(again, None)
