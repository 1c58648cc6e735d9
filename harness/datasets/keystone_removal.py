"""A dataset removed from a cloud: only what is in the manifest and carries the dataset's mark on the server, too."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING

from harness.datasets.errors import DatasetError
from harness.datasets.keystone_creation import Report, why_not_ours
from harness.datasets.manifest import KINDS, Description, Entry, Manifest
from harness.datasets.parallel import do_all
from harness.datasets.users_file import MARK

if TYPE_CHECKING:  # heavy, and not needed by the harness's other commands
    from harness.datasets.keystone_cloud import Cloud, Object


@dataclasses.dataclass(frozen=True)
class Kept:
    """Something that stays, and why."""

    kind: str
    name: str
    why: str


class Outcome:
    """What became of everything. Filled from several threads."""

    def __init__(self) -> None:
        self.removed: list[Object] = []
        """Or would be."""
        self.gone: list[Entry] = []
        """Not there: never made, or removed before."""
        self.kept: list[Kept] = []
        self.lock = threading.Lock()


def check_same_cloud(cloud: Cloud, about: Description) -> None:
    """Raise DatasetError where the manifest is of another cloud, on which nothing of it would be found."""
    if cloud.auth_url != about.auth_url and not cloud.has_role(about.role_id):
        raise DatasetError(
            f"the dataset was made on {about.auth_url}, and OS_AUTH_URL names another cloud, {cloud.auth_url}"
        )


def remove(cloud: Cloud, manifest: Manifest, concurrency: int, dry_run: bool, report: Report) -> Outcome:
    """Remove what is left of a dataset, users before projects. Raises CloudError; a second call does the rest."""
    about, outcome = manifest.description, Outcome()

    def work(entry: Entry) -> None:
        found = cloud.get(entry.kind, entry.id) if entry.id else cloud.find(entry.kind, entry.name, about.domain_id)
        if found is None:
            with outcome.lock:
                outcome.gone.append(entry)
            return
        if not dry_run and why_not_ours(found, about.dataset) is None:
            manifest.removing(entry)
        if _removed(cloud, found, about.dataset, dry_run, outcome):
            manifest.removed(entry)

    for kind in reversed(KINDS):
        entries = [entry for entry in manifest.entries if entry.kind == kind and not entry.removed]
        do_all(work, entries, concurrency, cloud.stop, lambda done, of, kind=kind: report(f"{kind}s", done, of))  # type: ignore[misc]
    return outcome


def _removed(cloud: Cloud, found: Object, dataset: str, dry_run: bool, outcome: Outcome) -> bool:
    why = why_not_ours(found, dataset) or (None if dry_run else cloud.delete(found))
    with outcome.lock:
        if why:
            outcome.kept.append(Kept(found.kind, found.name, why))
        else:
            outcome.removed.append(found)
    return not why and not dry_run


def orphans(cloud: Cloud, manifests: Iterable[tuple[Description, list[Entry]]]) -> list[Object]:
    """Objects of all domains that carry a mark of ours and are in none of these manifests.

    The manifests are iterated after the cloud was listed: what is made meanwhile has a line before it is on the cloud.
    """
    found = [one for domain in cloud.domain_ids() for kind in KINDS for one in cloud.all_of(kind, domain)]
    names: set[tuple[str, str, str]] = set()
    ids: set[tuple[str, str | None]] = set()
    for about, entries in manifests:
        # What was removed and is there all the same is an orphan.
        names |= {(about.dataset, entry.kind, entry.name) for entry in entries if not entry.removed}
        ids |= {(about.dataset, entry.id) for entry in entries if not entry.removed}
    marked = [one for one in found if one.created_by == MARK and one.dataset is not None]
    return [
        one for one in marked if (one.dataset, one.id) not in ids and (one.dataset, one.kind, one.name) not in names
    ]


def remove_orphans(cloud: Cloud, found: list[Object], concurrency: int, report: Report) -> Outcome:
    """Remove orphans; each is looked at once more right before. Raises CloudError."""
    outcome = Outcome()

    def work(orphan: Object) -> None:
        now = cloud.get(orphan.kind, orphan.id)
        if now is not None and orphan.dataset is not None:
            _removed(cloud, now, orphan.dataset, False, outcome)

    for kind in reversed(KINDS):
        chosen = [one for one in found if one.kind == kind]
        do_all(work, chosen, concurrency, cloud.stop, lambda done, of, kind=kind: report(f"{kind}s", done, of))  # type: ignore[misc]
    return outcome
