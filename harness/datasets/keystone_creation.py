"""Projects and users made on a cloud, many at a time; a creation that was broken off goes on where it was."""

from __future__ import annotations

import dataclasses
import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING

from harness.datasets.errors import CloudError
from harness.datasets.manifest import AlsoOn, Description, Manifest
from harness.datasets.parallel import do_all
from harness.datasets.users_file import MARK, UsersFile

if TYPE_CHECKING:  # heavy, and not needed by the harness's other commands
    from harness.datasets.keystone_cloud import Cloud, Object

Report = Callable[[str, int, int], None]
"""report("users", done, of)"""
Job = tuple[str, str]
"""The project's name, and that of what is to be made."""


@dataclasses.dataclass(frozen=True)
class Creation:
    """One call of the program that makes a dataset, or the rest of it."""

    cloud: Cloud
    manifest: Manifest
    users: UsersFile
    password: str | None
    """For all users; None: each gets one of its own."""
    checked: set[str] = dataclasses.field(default_factory=set)
    """Ids of the projects that were found to be ours, on the server, in this call."""

    def run(self, concurrency: int, report: Report) -> None:
        """Make what is missing. Raises CloudError and OSError; what was made until then is in the manifest."""
        about = self.manifest.description
        self._make("project", self._make_project, [(p, p) for p in project_names(about)], concurrency, report)
        self._make("user", self._make_user, user_names(about), concurrency, report)

    def _make(self, kind: str, work: Callable[[Job], None], jobs: list[Job], concurrency: int, report: Report) -> None:
        missing = [job for job in jobs if not self._is_done(kind, job[1])]
        before = len(jobs) - len(missing)

        def say(done: int, _: int) -> None:
            report(f"{kind}s", before + done, len(jobs))

        do_all(work, missing, concurrency, self.cloud.stop, say)

    def _is_done(self, kind: str, name: str) -> bool:
        entry = self.manifest.entry(kind, name)
        return entry is not None and entry.id is not None

    def _make_project(self, job: Job) -> None:
        name, _ = job
        about = self.manifest.description
        self.manifest.intend("project", name)
        made = self.cloud.create_project(name, about.domain_id, about.dataset) or self._ours("project", name)
        self._check_marks(made)
        self.manifest.done("project", name, made.id)

    def _make_user(self, job: Job) -> None:
        project, name = job
        about = self.manifest.description
        project_entry = self.manifest.entry("project", project)
        assert project_entry is not None and project_entry.id is not None
        self._check_project(project, project_entry.id)
        password = self.password or new_password()
        self.manifest.intend("user", name)
        made = self.cloud.create_user(name, about.domain_id, about.dataset, project_entry.id, password)
        if made is None:
            made = self._ours("user", name)
            self.cloud.set_password(made, password)
        self._check_marks(made)
        self.cloud.grant(about.role_id, made, project=project_entry.id)
        if AlsoOn.DOMAIN in about.also_on:
            self.cloud.grant(about.role_id, made, domain=about.domain_id)
        if AlsoOn.SYSTEM in about.also_on:
            self.cloud.grant(about.role_id, made, system="all")
        # In this order: whoever is done in the manifest has a password in the file.
        self.users.add(name, password, project, about.domain_id)
        self.manifest.done("user", name, made.id)

    def _check_project(self, name: str, id_: str) -> None:
        """Raise CloudError unless the manifest's project is ours on the server, too, before a role is given on it."""
        if id_ in self.checked:
            return
        found = self.cloud.get("project", id_)
        why = "it is not there" if found is None else why_not_ours(found, self.manifest.description.dataset)
        if why:
            raise CloudError(f"no role is given on project {name} ({id_}), which the manifest lists: {why}")
        self.checked.add(id_)

    def _ours(self, kind: str, name: str) -> Object:
        """What an attempt of ours made, whose answer was lost. Raises CloudError where the name is somebody else's."""
        about = self.manifest.description
        found = self.cloud.find(kind, name, about.domain_id)
        if found is None:
            raise CloudError(
                f"cannot make {kind} {name}: Keystone says that the name is taken, but shows nobody with it"
            )
        if why := why_not_ours(found, about.dataset):
            raise CloudError(f"cannot make {kind} {name}: the name is taken by one that is left alone, for {why}")
        return found

    def _check_marks(self, made: Object) -> None:
        if why_not_ours(made, self.manifest.description.dataset):
            raise CloudError(
                f"this cloud does not keep the attributes that mark {made.kind} {made.name} as ours, and so `remove` "
                f"will not touch it: remove {made.kind} {made.id} by hand"
            )


def why_not_ours(found: Object, dataset: str) -> str | None:
    """None for an object that carries the mark of this dataset; else what speaks against it."""
    if found.created_by != MARK:
        return "it carries no mark of ours"
    return None if found.dataset == dataset else f"its mark names another dataset ({found.dataset})"


def new_dataset_id() -> str:
    """Names, and the mark on every object."""
    return secrets.token_hex(6)


def new_password() -> str:
    """With lower and upper case, a digit and a sign, which a cloud's rules may ask for."""
    return f"{secrets.token_urlsafe(18)}-aZ7"


def project_names(about: Description) -> list[str]:
    """Of all projects."""
    return [f"{MARK}-{about.dataset}-{p}" for p in range(about.projects)]


def user_names(about: Description) -> list[Job]:
    """(project, user) for each user."""
    return [(project, f"{project}-{u}") for project in project_names(about) for u in range(about.users_per_project)]
