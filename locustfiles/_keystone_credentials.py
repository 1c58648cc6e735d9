"""Who asks a Keystone, and where it is: users files, OS_* variables, clouds.yaml. Asks no server."""

from __future__ import annotations

import csv
import dataclasses
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path

from _errors import HostUnknown, NotReady

USERS_COLUMNS = ("username", "password", "user_domain_id", "project_name", "project_domain_id")

MARK_COLUMN = "created_by"
"""A further column that a users file may have."""

MARK = "stackswarm"
"""What stands there for a user that was made for load, and belongs to nobody: such a one may be locked out."""


@dataclasses.dataclass(frozen=True)
class Credential:
    """A user with a password, and what tokens are for. Names or ids; where both are given the id counts."""

    username: str | None
    password: str = dataclasses.field(repr=False)
    user_id: str | None = None
    user_domain_id: str | None = None
    user_domain_name: str | None = None
    project_id: str | None = None
    project_name: str | None = None
    project_domain_id: str | None = None
    project_domain_name: str | None = None
    domain_id: str | None = None
    """For scope domain; without it the user's own domain."""
    domain_name: str | None = None
    created_by: str | None = None
    """MARK for a user that was made for load."""
    origin: str = ""
    """Where it was read, for messages: "users.csv line 3"."""

    @property
    def label(self) -> str:
        """The user in a message, never with the password."""
        return f"user {self.username or self.user_id!r}" + (f" ({self.origin})" if self.origin else "")


@dataclasses.dataclass(frozen=True)
class Cloud:
    """What OS_* variables and clouds.yaml say, in openstacksdk's order of precedence."""

    auth_url: str | None
    verify: bool | str
    """False: certificates are not checked. A string: the file of the certificate authority."""
    credential: Credential | None
    missing: str
    """Why there is no credential; empty where there is one."""


def read_users(path: str | Path) -> list[Credential]:
    """Users of a CSV file with the columns USERS_COLUMNS, in any order.

    Raises NotReady, naming file and line, where the file is missing, readable by others, or not what it should be.
    """
    path = Path(path)
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise NotReady(f"{path}: is a folder. Give --users-csv a file.")
        if mode & (stat.S_IRWXG | stat.S_IRWXO):
            octal = f"{stat.S_IMODE(mode):04o}"
            raise NotReady(f"{path}: holds passwords and is open to others (mode {octal}). Run: chmod 600 {path}")
        with path.open(encoding="utf-8-sig", newline="") as file:
            users = _users_of_rows(csv.reader(file, strict=True), path)
    except OSError as error:
        raise NotReady(f"{path}: cannot be read ({error.strerror}). Give --users-csv an existing file.") from error
    except (csv.Error, UnicodeDecodeError) as error:
        raise NotReady(f"{path}: not a CSV file in UTF-8 ({type(error).__name__}).") from None
    if not users:
        raise NotReady(
            f"{path}: holds no user. It needs a header, {','.join(USERS_COLUMNS)}, and one line for each user."
        )
    return users


def _users_of_rows(rows: Iterable[list[str]], path: Path) -> list[Credential]:
    columns: list[str] | None = None
    users = []
    for line, row in enumerate(rows, start=1):
        if columns is None:
            columns = _header(row, path)
        elif row:
            users.append(_user_of_row(columns, row, f"{path} line {line}"))
    return users


def _header(row: list[str], path: Path) -> list[str]:
    columns = [name.strip() for name in row]
    if sorted(columns) not in (sorted(USERS_COLUMNS), sorted((*USERS_COLUMNS, MARK_COLUMN))):
        # The row itself is not shown: in a file without a header it holds a password.
        raise NotReady(
            f"{path} line 1: the header must name these columns, and may name {MARK_COLUMN}, no others: "
            f"{','.join(USERS_COLUMNS)}"
        )
    return columns


def _user_of_row(columns: list[str], values: list[str], where: str) -> Credential:
    if len(values) != len(columns):
        raise NotReady(f"{where}: {len(values)} values where {len(columns)} are needed ({','.join(columns)})")
    row = dict(zip(columns, values, strict=True))
    empty = [name for name in USERS_COLUMNS if not row[name]]
    if empty:
        raise NotReady(f"{where}: no {', '.join(empty)}. Every column but {MARK_COLUMN} needs a value.")
    return Credential(**row, origin=where)


def read_cloud(name: str | None, scope: str = "project") -> Cloud:
    """What the environment (OS_*) or the cloud `name` of clouds.yaml says; openstacksdk decides which goes first.

    The credential must be good for tokens of that scope, one of SCOPES.
    Raises NotReady where the named cloud does not exist or a file is damaged.
    """
    from openstack.config import loader

    try:
        # Not validated here: openstacksdk names the first missing value only, and a URL alone is of use too.
        region = loader.OpenStackConfig().get_one(cloud=name, validate=False)
        verify = region.get_requests_verify_args()[0]
    except Exception as error:  # openstacksdk, keystoneauth and PyYAML raise errors without a common base
        raise NotReady(f"OS_* variables or clouds.yaml: {first_line(error)}") from None
    config, auth = region.config, dict(region.config.get("auth") or {})
    # where it is not validated, openstacksdk leaves some values beside `auth`
    values = {key: _text(auth.get(key, config.get(key))) for key in _AUTH_KEYS}
    missing = _what_is_missing(config.get("auth_type"), values, scope)
    fields = {key: value for key, value in values.items() if key not in ("auth_url", "password")}
    origin = f"cloud {region.name!r}" if region.name not in ("", "envvars") else "OS_* variables"
    credential = None if missing else Credential(password=values["password"] or "", origin=origin, **fields)
    return Cloud(values["auth_url"], True if verify is None else verify, credential, missing)


_AUTH_KEYS = (
    "auth_url",
    "username",
    "user_id",
    "password",
    "user_domain_id",
    "user_domain_name",
    "project_id",
    "project_name",
    "project_domain_id",
    "project_domain_name",
    "domain_id",
    "domain_name",
)


def _text(value: object) -> str | None:
    # YAML reads an unquoted password of digits as a number
    return None if value is None or value == "" else str(value)


_NEEDED: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "": (("username", "user_id"), ("password",), ("user_domain_name", "user_domain_id", "user_id")),
    "project": (("project_name", "project_id"), ("project_domain_name", "project_domain_id", "project_id")),
    "domain": (("domain_name", "domain_id", "user_domain_name", "user_domain_id"),),
}
"""Of each tuple one must be there; "" stands for every scope."""


def _what_is_missing(auth_type: str | None, values: Mapping[str, str | None], scope: str) -> str:
    if auth_type not in (None, "", "password", "v3password"):
        return f"auth_type {auth_type!r} is not a password, and this workload begins with one"
    needed = _NEEDED[""] + _NEEDED.get(scope, ())
    absent = ["OS_" + names[0].upper() for names in needed if not any(values[name] for name in names)]
    return f"no {', '.join(absent)}" if absent else ""


def first_line(error: BaseException) -> str:
    """Of its text, or else its name."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def credential_of(cloud: Cloud, instead: str) -> Credential:
    """The cloud's credential. Raises NotReady where there is none, with `instead`: what else the user could do."""
    if cloud.credential is None:
        raise NotReady(f"No Keystone credential: {cloud.missing}. Set the OS_* variables or name a cloud{instead}.")
    return cloud.credential


def host_of(cloud: Cloud, host: str | None) -> str:
    """The --host, or else the cloud's URL. Raises HostUnknown where nothing says where Keystone is."""
    found = host or cloud.auth_url
    if not found:
        raise HostUnknown(
            "Where is Keystone? Give --host, set OS_AUTH_URL, or name a cloud of clouds.yaml (--os-cloud)."
        )
    return found
