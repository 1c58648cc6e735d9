"""python -m harness dataset: users and projects on a cloud, made and removed. Prints, as __main__ does."""

from __future__ import annotations

import contextlib
import shlex
import stat
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from harness.datasets import manifest as manifests
from harness.datasets.consent import check_may_write
from harness.datasets.errors import CloudError, DatasetError
from harness.datasets.keystone_creation import Creation, new_dataset_id
from harness.datasets.keystone_removal import Outcome, check_same_cloud, orphans, remove_orphans
from harness.datasets.keystone_removal import remove as remove_dataset
from harness.datasets.manifest import AlsoOn, Description, Manifest
from harness.datasets.users_file import NAME as USERS_NAME
from harness.datasets.users_file import UsersFile

if TYPE_CHECKING:  # heavy, and not needed by the harness's other commands
    from harness.datasets.keystone_cloud import Cloud

PROGRESS_S = 5.0
LISTED = 20
"""Lines of a list; the rest is counted."""
PROGRAM = "python -m harness dataset keystone"

app = typer.Typer(help="Make and remove users to measure with.", no_args_is_help=True, rich_markup_mode=None)
keystone = typer.Typer(
    help="Projects and users on the Keystone that the OS_* variables name.", no_args_is_help=True, rich_markup_mode=None
)
app.add_typer(keystone, name="keystone")
out = Console(highlight=False, soft_wrap=True)
err = Console(stderr=True, highlight=False, soft_wrap=True)

Concurrency = Annotated[int, typer.Option(min=1, max=200, help="requests at the same time")]
CaCert = Annotated[
    str | None, typer.Option("--os-cacert", metavar="FILE", help="certificate authority; otherwise OS_CACERT")
]
MayLoad = Annotated[
    str | None, typer.Option("--i-may-load", metavar="HOST", help="write to this host, which is not loopback")
]


class Progress:
    """A line every few seconds, with the time left; nothing for what is over sooner."""

    def __init__(self) -> None:
        self._what, self._began, self._first, self._said = "", 0.0, 0, 0.0

    def __call__(self, what: str, done: int, of: int) -> None:
        """`done` of `of` are there."""
        now = time.monotonic()
        if what != self._what:
            self._what, self._began, self._first, self._said = what, now, done, now
        elif now - self._said >= PROGRESS_S and done > self._first:
            self._said = now
            left = round((of - done) * (now - self._began) / (done - self._first))
            err.print(f"{what}: {done} of {of}, about {left // 60}:{left % 60:02d} left", markup=False)


@keystone.command()
def create(  # noqa: PLR0913, PLR0917 (a command's options)
    output: Annotated[
        Path | None, typer.Option(metavar="DIR", help="new folder for the manifest and the users", show_default=False)
    ] = None,
    projects: Annotated[int, typer.Option(min=1, max=10_000)] = 12,
    users: Annotated[int, typer.Option(min=1, max=100_000, help="in each project")] = 512,
    domain: Annotated[str, typer.Option(help="id or name of an existing domain")] = "default",
    role: Annotated[str, typer.Option(help="that each user gets on its project")] = "member",
    also_on: Annotated[
        list[AlsoOn] | None,
        typer.Option(
            help="where else each user gets the role, for tokens of that scope; may be repeated", show_default=False
        ),
    ] = None,
    password_from_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="one password for all users; by default each gets its own")
    ] = None,
    resume: Annotated[
        Path | None, typer.Option(metavar="MANIFEST", help="make what is missing of this dataset", show_default=False)
    ] = None,
    concurrency: Concurrency = 30,
    os_cacert: CaCert = None,
    i_may_load: MayLoad = None,
) -> None:
    """Make projects, and users in them. Everything made carries a mark, and is listed in a manifest."""
    if (output is None) == (resume is None):
        raise DatasetError("name a new folder with --output, or the manifest of a begun dataset with --resume")
    password = _password(password_from_file) if password_from_file else None
    cloud = _connect(os_cacert, concurrency)
    if resume is not None:
        opened = manifests.resume(resume)
        _check_resumable(opened, password)
    else:
        also = [one.value for one in AlsoOn if one in (also_on or ())]
        _show_and_ask(cloud, projects, users, domain, also, i_may_load)
        about = _description(cloud, domain, role, projects, users, password is not None, also)
        opened = _new_manifest(output or Path(), about)
    with opened:
        if resume is not None:
            about = opened.description
            _show_and_ask(cloud, about.projects, about.users_per_project, about.domain_id, about.also_on, i_may_load)
            cloud.log_in()
            check_same_cloud(cloud, about)
        _create(cloud, opened, password, concurrency)


def _connect(cacert: str | None, connections: int) -> Cloud:
    from harness.datasets import keystone_cloud

    return keystone_cloud.connect(cacert, connections)


def _create(cloud: Cloud, opened: Manifest, password: str | None, concurrency: int) -> None:
    done = [e.name for e in opened.entries if e.kind == "user" and e.id is not None]
    path = opened.path.with_name(USERS_NAME)
    users = UsersFile(path, done)
    try:
        with _advice(opened.path):
            Creation(cloud, opened, users, password).run(concurrency, Progress())
    finally:
        users.close()
    about = opened.description
    out.print(f"{about.projects} projects, {about.projects * about.users_per_project} users", markup=False)
    out.print(f"load:   locust -f locustfiles/keystone_auth.py --users-csv {_shown(path)}", markup=False)
    out.print(f"remove: {PROGRAM} remove {_shown(opened.path)}", markup=False)


@contextlib.contextmanager
def _advice(path: Path) -> Iterator[None]:
    """However it ends before the end: the manifest knows what there is, and these go on from it."""
    advice = f"go on with `{PROGRAM} create --resume {_shown(path)}`, or `{PROGRAM} remove {_shown(path)}`"
    try:
        yield
    except (CloudError, OSError) as error:
        raise CloudError(f"{_said(error)}. What was made is kept: {advice}") from error
    except BaseException as error:
        error.add_note(f"what was made is kept: {advice}")
        raise


def _said(error: CloudError | OSError) -> str:
    """The error in words; one of a file names it."""
    if isinstance(error, CloudError):
        return str(error)
    return f"{error.filename or 'a file of the dataset'}: cannot be written ({error.strerror})"


def _description(
    cloud: Cloud, domain: str, role: str, projects: int, users: int, from_file: bool, also_on: list[str]
) -> Description:
    cloud.log_in()
    return Description(
        dataset=new_dataset_id(), auth_url=cloud.auth_url, domain_id=cloud.domain_id(domain), role=role,
        role_id=cloud.role_id(role), projects=projects, users_per_project=users, password_from_file=from_file,
        created_unix_s=int(time.time()), also_on=also_on,
    )  # fmt: skip


def _new_manifest(folder: Path, about: Description) -> Manifest:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise DatasetError(f"--output {folder}: holds files already, and nothing is overwritten; name a new folder")
    except OSError as error:
        raise DatasetError(f"--output {folder}: cannot be made ({error.strerror})") from error
    return manifests.create(folder / manifests.NAME, about)


def _check_resumable(opened: Manifest, password: str | None) -> None:
    if any(entry.removed or entry.removing for entry in opened.entries):
        raise DatasetError(f"{opened.path}: the removal of this dataset has begun; finish it, and make a new one")
    if opened.description.password_from_file != (password is not None):
        raise DatasetError(f"{opened.path}: give --password-from-file if, and only if, the dataset was begun with it")


def _show_and_ask(
    cloud: Cloud, projects: int, users: int, domain: str, also_on: list[str], may_load: str | None
) -> None:
    what = f"this makes {projects} projects and {projects * users} users in domain {domain} on {cloud.auth_url}"
    if also_on:
        what += f", who also get a role on {' and '.join(f'the {one}' for one in also_on)}"
    check_may_write(cloud.auth_url, may_load, what)
    err.print(what, markup=False)


def _password(path: Path) -> str:
    try:
        if stat.S_IMODE(path.stat().st_mode) & 0o077:
            raise DatasetError(f"{path}: holds a password, and others may read it. Run: chmod 600 {path}")
        first = path.read_text(encoding="utf-8").partition("\n")[0].rstrip("\r")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise DatasetError(f"--password-from-file {path}: cannot be read ({reason})") from None
    if not first:
        raise DatasetError(f"--password-from-file {path}: its first line, which would be the password, is empty")
    return first


@keystone.command()
def remove(
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[MANIFEST]...", help="manifests or their folders", show_default=False),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="only say what would be removed")] = False,
    orphaned: Annotated[
        bool, typer.Option("--orphans", help="instead: what carries a mark of ours and is in none of the manifests")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="remove the orphans, too, instead of listing them")] = False,
    concurrency: Concurrency = 30,
    os_cacert: CaCert = None,
    i_may_load: MayLoad = None,
) -> None:
    """Remove what is in the manifest and carries its mark. The rest is kept, and listed with the reason."""
    if not orphaned and (not files or yes):
        raise DatasetError("name the manifest of a dataset, or --orphans, perhaps with --yes, for what is in none")
    cloud = _connect(os_cacert, concurrency)
    reads_only = dry_run or (orphaned and not yes)
    if not reads_only:
        check_may_write(cloud.auth_url, i_may_load, f"this removes projects and users on {cloud.auth_url}")
    if orphaned:
        _remove_orphans(cloud, files or [], concurrency, reads_only)
        return
    outcomes = [_remove(cloud, file, concurrency, dry_run) for file in files or []]
    _fail_if_kept(outcomes)


def _remove(cloud: Cloud, file: Path, concurrency: int, dry_run: bool) -> Outcome:
    with manifests.resume(file) as opened:
        cloud.log_in()
        check_same_cloud(cloud, opened.description)
        with _repeat_advice():
            outcome = remove_dataset(cloud, opened, concurrency, dry_run, Progress())
    _print_outcome(outcome, "would be removed" if dry_run else "removed")
    return outcome


def _remove_orphans(cloud: Cloud, files: list[Path], concurrency: int, reads_only: bool) -> None:
    with contextlib.ExitStack() as locks:
        if not reads_only:  # nobody may make what is being removed
            for path in {manifests.located(file).resolve() for file in files}:
                locks.enter_context(manifests.resume(path))
        _remove_orphans_of(cloud, files, concurrency, reads_only)


def _remove_orphans_of(cloud: Cloud, files: list[Path], concurrency: int, reads_only: bool) -> None:
    cloud.log_in()
    found = orphans(cloud, (manifests.read(file) for file in files))
    _print_list([f"{one.kind} {one.name} ({one.id}), dataset {one.dataset}" for one in found])
    if reads_only:
        again = "; they may be of a dataset that somebody still uses. --yes removes them" if found else ""
        out.print(f"{len(found)} orphans{again}", markup=False)
        return
    with _repeat_advice():
        outcome = remove_orphans(cloud, found, concurrency, Progress())
    _print_outcome(outcome, "removed")
    _fail_if_kept([outcome])


@contextlib.contextmanager
def _repeat_advice() -> Iterator[None]:
    try:
        yield
    except (CloudError, OSError) as error:
        raise CloudError(f"{_said(error)}. The same command again removes the rest") from error
    except BaseException as error:
        error.add_note("the same command again removes the rest")
        raise


def _print_outcome(outcome: Outcome, word: str) -> None:
    counts = Counter(one.kind for one in outcome.removed)
    gone = f"; {len(outcome.gone)} were not there" if outcome.gone else ""
    out.print(f"{word}: {counts['user']} users, {counts['project']} projects{gone}", markup=False)
    _print_list([f"kept: {one.kind} {one.name}: {one.why}" for one in outcome.kept])


def _print_list(lines: list[str]) -> None:
    for line in lines[:LISTED]:
        out.print(line, markup=False)
    if len(lines) > LISTED:
        out.print(f"… and {len(lines) - LISTED} more", markup=False)


def _fail_if_kept(outcomes: list[Outcome]) -> None:
    if kept := sum(len(outcome.kept) for outcome in outcomes):
        raise CloudError(f"{kept} objects were kept, for the reasons above")


def _shown(path: Path) -> str:
    return shlex.quote(str(path))
