"""Load projects and users straight into a Keystone database, in seconds where the API takes an hour.

Written for the schemas of Queens and later, and for SQLAlchemy 1.3 and later.

A program of its own, run with the Python of Keystone's environment (which has SQLAlchemy and bcrypt), never imported:

    DATASET_PASSWORD=… python keystone_sql.py CONFIG_FILE USERS_CSV PROJECTS USERS_PER_PROJECT HASH_ROUNDS

Every user gets the same password and therefore shares one hash: a bcrypt hash carries its own salt, so Keystone does
the same work for each of them as if they differed. The users' credentials are written to USERS_CSV, mode 0600.
"""

import configparser
import csv
import datetime
import os
import sys
import time
import uuid
from collections.abc import Iterator

import bcrypt  # type: ignore[import-not-found]
import sqlalchemy as sa  # type: ignore[import-not-found]

TABLES = ("project", "user", "local_user", "password", "assignment", "system_assignment")
Rows = dict[str, list[dict[str, object]]]


def rows(projects: int, users_per_project: int, password_hash: str, role_id: str, first_local_id: int) -> Rows:
    """Rows of every table, in the order in which they may be inserted."""
    now = datetime.datetime.now(datetime.UTC).replace(tzinfo=None)
    result: Rows = {table: [] for table in TABLES}
    local_id = first_local_id
    for p in range(projects):
        project_id = uuid.uuid4().hex
        result["project"].append(_project(project_id, p))
        for u in range(users_per_project):
            user_id = uuid.uuid4().hex
            for table, row in _user(user_id, local_id, f"stackswarm-{p}-{u}", project_id, password_hash, role_id, now):
                result[table].append(row)
            local_id += 1
    return result


def _project(project_id: str, number: int) -> dict[str, object]:
    return {
        "id": project_id,
        "name": f"stackswarm-{number}",
        "extra": "{}",
        "description": "",
        "enabled": True,
        "domain_id": "default",
        "parent_id": "default",
        "is_domain": False,
    }


def _user(
    user_id: str,
    local_id: int,
    name: str,
    project_id: str,
    password_hash: str,
    role_id: str,
    now: datetime.datetime,
) -> Iterator[tuple[str, dict[str, object]]]:
    yield (
        "user",
        {
            "id": user_id,
            "extra": "{}",
            "enabled": True,
            "default_project_id": project_id,
            "created_at": now,
            "domain_id": "default",
        },
    )
    yield (
        "local_user",
        {"id": local_id, "user_id": user_id, "domain_id": "default", "name": name, "failed_auth_count": 0},
    )
    yield (
        "password",
        {
            "local_user_id": local_id,
            "self_service": False,
            "password_hash": password_hash,
            "created_at": now,
            "created_at_int": int(time.time() * 1e6),
        },
    )
    # On each thing that a token can be for.
    for table, type_, target_id in (
        ("assignment", "UserProject", project_id),
        ("assignment", "UserDomain", "default"),
        ("system_assignment", "UserSystem", "system"),
    ):
        role = {"type": type_, "actor_id": user_id, "target_id": target_id, "role_id": role_id, "inherited": False}
        yield table, role


def load(connection_url: str, projects: int, users_per_project: int, password_hash: str) -> Rows:
    """Insert everything in one transaction, and return what was inserted."""
    engine = sa.create_engine(connection_url)
    metadata = sa.MetaData()
    metadata.reflect(engine, only=[*TABLES, "role"])
    tables = metadata.tables
    with engine.begin() as connection:
        last_id = connection.execute(sa.func.max(tables["local_user"].c.id).select()).scalar() or 0
        data = rows(projects, users_per_project, password_hash, _member_role(connection, tables["role"]), last_id + 1)
        for name in TABLES:
            connection.execute(tables[name].insert(), data[name])
    return data


def _member_role(connection: sa.engine.Connection, table: sa.Table) -> str:
    """Id of the role "member", which Keystone makes itself from Rocky on."""
    found = connection.execute(table.select().where(table.c.name == "member")).first()
    if found is not None:
        return str(found.id)
    role_id = uuid.uuid4().hex
    # What Keystone writes for "of no domain".
    connection.execute(table.insert(), [{"id": role_id, "name": "member", "extra": "{}", "domain_id": "<<null>>"}])
    return role_id


def write_users(path: str, data: Rows, password: str) -> None:
    """The users' credentials, one line a user, in a file that nobody else can read."""
    projects = {row["id"]: row["name"] for row in data["project"]}
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        # created_by: these users belong to nobody, so that load may send wrong passwords for them.
        columns = ("username", "password", "user_domain_id", "project_name", "project_domain_id", "created_by")
        writer.writerow(columns)
        for user, local_user in zip(data["user"], data["local_user"], strict=True):
            project = projects[user["default_project_id"]]
            writer.writerow([local_user["name"], password, "default", project, "default", "stackswarm"])


def main(config_file: str, users_csv: str, projects: str, users_per_project: str, hash_rounds: str) -> None:
    """Read the database's address from Keystone's own configuration, load it, write the users' file."""
    # As oslo.config reads it: sections may stand twice, and % means %.
    config = configparser.ConfigParser(strict=False, interpolation=None)
    config.read(config_file)
    password = os.environ["DATASET_PASSWORD"]
    password_hash = bcrypt.hashpw(password.encode(), bcrypt.gensalt(int(hash_rounds))).decode()
    data = load(config["database"]["connection"], int(projects), int(users_per_project), password_hash)
    write_users(users_csv, data, password)


if __name__ == "__main__":
    main(*sys.argv[1:])
