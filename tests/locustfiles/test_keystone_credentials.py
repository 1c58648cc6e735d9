"""Credentials for a Keystone: users files, OS_* variables and clouds.yaml."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from _errors import HostUnknown, NotReady
from _keystone import authentication_body
from _keystone_credentials import (
    USERS_COLUMNS,
    credential_of,
    host_of,
    read_cloud,
    read_users,
)

# openstacksdk warns of its own plans whenever a cloud is read
pytestmark = pytest.mark.filterwarnings("ignore:Support for InfluxDB")

PASSWORD = "planted-Passw0rd-7f3a"
HEADER = ",".join(USERS_COLUMNS)


def write(path: Path, text: str, mode: int = 0o600) -> Path:
    path.write_bytes(text.encode("latin-1"))
    path.chmod(mode)
    return path


def test_users_in_any_order_of_columns(tmp_path: Path) -> None:
    path = write(
        tmp_path / "u.csv",
        "\xef\xbb\xbfpassword,username,project_name,project_domain_id,user_domain_id\r\n"
        f'"{PASSWORD},""x""",ann,p,d2,d1\r\n\r\n',
    )
    (user,) = read_users(path)
    assert (user.username, user.password, user.user_domain_id) == ("ann", f'{PASSWORD},"x"', "d1")
    assert (user.project_name, user.project_domain_id) == ("p", "d2")
    assert PASSWORD not in repr(user)
    assert PASSWORD not in user.label


def test_users_may_be_marked_as_made_for_load(tmp_path: Path) -> None:
    text = f"{HEADER},created_by\na,{PASSWORD},d,p,d,stackswarm\nb,{PASSWORD},d,p,d,\n"
    assert [user.created_by for user in read_users(write(tmp_path / "u.csv", text))] == ["stackswarm", ""]


@pytest.mark.parametrize(
    ("text", "mode", "message"),
    [
        (f"{HEADER}\na,{PASSWORD},d,p,d\n", 0o640, "chmod 600"),
        (f"{HEADER}\na,{PASSWORD},d,p,d\n", 0o604, "chmod 600"),
        ("", 0o600, "holds no user"),
        (f"{HEADER}\n", 0o600, "holds no user"),
        (f"a,{PASSWORD},d,p,d\n", 0o600, "line 1: the header"),
        (f"{HEADER},extra\na,{PASSWORD},d,p,d,e\n", 0o600, "line 1: the header"),
        (f"{HEADER}\na,{PASSWORD},d,p,d\nb,{PASSWORD},d\n", 0o600, "line 3: 3 values where 5"),
        (f"{HEADER}\n,{PASSWORD},d,,d\n", 0o600, "line 2: no username, project_name"),
        (f"{HEADER}\na,{PASSWORD}\xff,d,p,d\n", 0o600, "not a CSV file in UTF-8"),
        (f'{HEADER}\na,"{PASSWORD},d,p,d\n', 0o600, "not a CSV file in UTF-8"),
    ],
)
def test_a_wrong_users_file_is_refused_with_its_place(tmp_path: Path, text: str, mode: int, message: str) -> None:
    path = write(tmp_path / "users.csv", text, mode)
    with pytest.raises(NotReady) as caught:
        read_users(path)
    assert message in str(caught.value)
    assert str(path) in str(caught.value)
    assert PASSWORD not in str(caught.value)


def test_a_missing_users_file(tmp_path: Path) -> None:
    with pytest.raises(NotReady, match=r"none\.csv: cannot be read \(No such file"):
        read_users(tmp_path / "none.csv")


@pytest.fixture
def no_cloud(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    import os

    for name in os.environ:
        if name.startswith("OS_"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(tmp_path / "clouds.yaml"))
    monkeypatch.setenv("OS_CLIENT_SECURE_FILE", str(tmp_path / "secure.yaml"))
    return tmp_path


CLOUDS = """
clouds:
  one:
    auth: {auth_url: "http://one:5000/v3", username: ann, project_name: p, user_domain_name: D, project_domain_name: D}
    verify: false
  two:
    auth_type: v3applicationcredential
    auth: {auth_url: "http://two", application_credential_id: x}
"""
SECURE = f"""
clouds:
  one: {{auth: {{password: {PASSWORD}}}}}
"""


def variables(monkeypatch: pytest.MonkeyPatch, **values: str) -> None:
    for name, value in values.items():
        monkeypatch.setenv("OS_" + name.upper(), value)


def test_credentials_from_variables(no_cloud: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    variables(monkeypatch, auth_url="http://e/v3", username="eve", password="12345", user_domain_name="D")
    variables(monkeypatch, project_name="p", project_domain_id="d")
    cloud = read_cloud(None)
    user = credential_of(cloud, "")
    assert (user.username, user.password, user.user_domain_name) == ("eve", "12345", "D")
    assert (user.project_name, user.project_domain_id) == ("p", "d")
    assert host_of(cloud, None) == "http://e/v3"
    assert host_of(cloud, "http://other") == "http://other"
    assert cloud.verify is True


@pytest.mark.parametrize("by_variable", [True, False])
def test_credentials_from_clouds_yaml(no_cloud: Path, monkeypatch: pytest.MonkeyPatch, by_variable: bool) -> None:
    (no_cloud / "clouds.yaml").write_text(CLOUDS)
    (no_cloud / "secure.yaml").write_text(SECURE)
    if by_variable:
        monkeypatch.setenv("OS_CLOUD", "one")
    cloud = read_cloud(None if by_variable else "one")
    assert credential_of(cloud, "").password == PASSWORD
    assert (cloud.auth_url, cloud.verify) == ("http://one:5000/v3", False)
    assert PASSWORD not in repr(cloud)


def test_a_named_cloud_goes_before_the_variables(no_cloud: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (no_cloud / "clouds.yaml").write_text(CLOUDS)
    (no_cloud / "secure.yaml").write_text(SECURE)
    variables(monkeypatch, auth_url="http://e/v3", username="eve", password="x")
    assert credential_of(read_cloud("one"), "").username == "ann"


def test_what_is_missing_is_named_all_at_once(no_cloud: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    variables(monkeypatch, auth_url="http://e/v3", username="eve", user_domain_name="D")
    with pytest.raises(NotReady, match=r"no OS_PASSWORD, OS_PROJECT_NAME, OS_PROJECT_DOMAIN_NAME\. .*, or else"):
        credential_of(read_cloud(None), ", or else")


def test_no_cloud_at_all(no_cloud: Path) -> None:
    cloud = read_cloud(None)
    with pytest.raises(NotReady, match="No Keystone credential"):
        credential_of(cloud, "")
    with pytest.raises(HostUnknown, match="Where is Keystone"):
        host_of(cloud, None)


@pytest.mark.parametrize("text", [CLOUDS, "clouds: ["])
def test_an_unknown_cloud_or_a_damaged_file(no_cloud: Path, text: str) -> None:
    (no_cloud / "clouds.yaml").write_text(text)
    with pytest.raises(NotReady, match="Cloud nine was not found"):
        read_cloud("nine")


@pytest.mark.parametrize(
    ("scope", "given", "missing"),
    [
        ("unscoped", {"user_domain_name": "D"}, ""),
        ("system", {"user_domain_name": "D"}, ""),
        ("domain", {"user_domain_name": "D"}, ""),
        ("domain", {"user_id": "u"}, "no OS_DOMAIN_NAME"),
        ("domain", {"user_id": "u", "domain_id": "d"}, ""),
        ("project", {"user_id": "u"}, "no OS_PROJECT_NAME, OS_PROJECT_DOMAIN_NAME"),
    ],
)
def test_a_credential_needs_what_its_scope_needs(
    no_cloud: Path, monkeypatch: pytest.MonkeyPatch, scope: str, given: dict[str, str], missing: str
) -> None:
    variables(monkeypatch, auth_url="http://e/v3", username="eve", password="x", **given)
    cloud = read_cloud(None, scope)
    assert cloud.missing == missing
    if cloud.credential is not None and scope == "domain":
        domain = json.loads(authentication_body(cloud.credential, scope))["auth"]["scope"]["domain"]
        assert domain == ({"id": "d"} if "domain_id" in given else {"name": "D"})


def test_a_certificate_authority_alone_is_taken_over(no_cloud: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    variables(monkeypatch, cacert="/etc/ours.pem")
    assert read_cloud(None).verify == "/etc/ours.pem"


def test_a_cloud_without_a_password_method(no_cloud: Path) -> None:
    (no_cloud / "clouds.yaml").write_text(CLOUDS)
    with pytest.raises(NotReady, match="auth_type 'v3applicationcredential' is not a password"):
        credential_of(read_cloud("two"), "")
