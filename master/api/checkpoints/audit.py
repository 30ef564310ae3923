"""Audit of a checkpoint without its job: what it has trained, from which history, and whether its files agree.

The problem: a user has a folder and needs to know on which samples its model was trained.  The answer is in the
manifests and files alone (M1, M8); no store and no process of the job is needed.  Only the store knows for certain
which manifest was committed last.  The master leaves its name in the file HEAD; without HEAD the newest end of a
chain is taken, and the others are reported as orphans.

Not here: printing (`edl data audit`), the inside of a server's file (`trainer_sdk.pserver`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from master.api.checkpoints.checkpoint_files import check_file, read_manifest, read_retired
from master.api.checkpoints.folder_contents import HEAD, format_head, parse_head, write_order
from master.api.checkpoints.manifest import Manifest, try_manifest_id, try_retired_id
from master.api.checkpoints.resume import later_commit_after
from master.api.checkpoints.storage import Storage, open_storage
from master.api.errors import ContractError, StorageAlteredError, StorageError, StorageMissingError
from master.api.identities import ManifestId
from master.api.messages.checkpoint_files import FileRecord
from master.api.positions import PositionSet

_MOST_ATTEMPTS: Final = 5
"""Most attempts to read a folder while a job changes it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochAudit:
    """One epoch of the data set, in positions of that epoch (0 to size - 1)."""

    epoch: int
    trained: PositionSet
    quarantined: PositionSet
    missing: PositionSet


@dataclass(frozen=True, slots=True, kw_only=True)
class FileAudit:
    """One file of the checkpoint; `problem` is empty when its size and digest are those of the manifest."""

    name: str
    size_bytes: int
    problem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """A checkpoint as its folder shows it.  `chain` is head and its ancestors as far as they are kept, newest first."""

    uri: str
    head: Manifest
    chain: tuple[ManifestId, ...]
    orphans: tuple[ManifestId, ...]  # manifests outside the chain: never committed, or rolled back from
    epochs: tuple[EpochAudit, ...]
    files: tuple[FileAudit, ...]
    problems: tuple[str, ...]  # everything that is wrong, files included; empty: the checkpoint is sound

    @property
    def is_sound(self) -> bool:
        return not self.problems


def read_checkpoint(uri: str, *, head: ManifestId | None = None, verifies_files: bool = True) -> Audit:
    """The audit of the checkpoint in this folder.  `head` names another manifest than the last one.

    Raises StorageError or ManifestError when there is no manifest to begin with; everything else is in `problems`.
    """
    return replace(audit_storage(open_storage(uri), head=head, verifies_files=verifies_files), uri=uri)


def audit_storage(storage: Storage, *, head: ManifestId | None = None, verifies_files: bool = True) -> Audit:
    """As `read_checkpoint`.  If a running job replaces files meanwhile, the folder is read again."""
    for _ in range(_MOST_ATTEMPTS - 1):
        seen = storage.list("manifest-")
        try:
            audit = _audit_once(storage, head=head, verifies_files=verifies_files)
        except ContractError:  # a live folder has one manifest, and the next commit renames it
            if storage.list("manifest-") == seen:
                raise
            continue
        if audit.is_sound or storage.list("manifest-") == seen:
            return audit
    return _audit_once(storage, head=head, verifies_files=verifies_files)


def _audit_once(storage: Storage, *, head: ManifestId | None, verifies_files: bool) -> Audit:
    manifests, problems = _read_manifests(storage)
    newest = _find_head(storage, manifests, head, problems)
    chain = _chain(manifests, newest)
    files = tuple(_audit_file(storage, file) for file in newest.files) if verifies_files else ()
    problems += [f"{file.name}: {file.problem}" for file in files if file.problem]
    problems += contradictions(newest)
    return Audit(
        uri=storage.uri,
        head=newest,
        chain=chain,
        orphans=tuple(sorted(set(manifests) - set(chain))),
        epochs=_epochs(newest),
        files=files,
        problems=tuple(problems),
    )


def write_head_hint(storage: Storage, manifest_id: ManifestId) -> None:
    """HEAD names the newest committed manifest, for readers without the store."""
    storage.write_file(HEAD, [format_head(manifest_id)])


def try_head_hint(storage: Storage) -> ManifestId | None:
    """The manifest that HEAD names; None: there is none.  A crash may leave an older one."""
    try:
        return parse_head(storage.read(HEAD))
    except ContractError:
        return None


def newest_manifest(storage: Storage, manifests: Iterable[Manifest]) -> Manifest | None:
    """The manifest that HEAD names, else the newest end of a chain; None: there is none."""
    by_id = {manifest.id: manifest for manifest in manifests}
    hinted = try_head_hint(storage)
    if hinted is not None and hinted in by_id:
        return by_id[hinted]
    parents = {manifest.parent for manifest in by_id.values()}
    ends = [manifest for manifest in by_id.values() if manifest.id not in parents]
    return max(ends, key=lambda m: (*write_order(m), m.id), default=None)


def _read_manifests(storage: Storage) -> tuple[dict[ManifestId, Manifest], list[str]]:
    manifests: dict[ManifestId, Manifest] = {}
    problems: list[str] = []
    for name in storage.list("manifest-"):
        manifest_id = try_manifest_id(name)
        if manifest_id is None:
            continue
        try:
            manifests[manifest_id] = read_manifest(storage, manifest_id)
        except ContractError as error:
            problems.append(f"{name}: {error}")
    return manifests, problems


def _read_retired(storage: Storage) -> dict[ManifestId, Manifest]:
    """The retired manifests that can be read."""
    retired: dict[ManifestId, Manifest] = {}
    for name in storage.list("retired-"):
        if (manifest_id := try_retired_id(name)) is not None:
            with suppress(ContractError):
                retired[manifest_id] = read_retired(storage, manifest_id)
    return retired


def _find_head(
    storage: Storage, manifests: Mapping[ManifestId, Manifest], wanted: ManifestId | None, problems: list[str]
) -> Manifest:
    if wanted is not None:
        return manifests.get(wanted) or read_manifest(storage, wanted)
    newest = newest_manifest(storage, manifests.values())
    if newest is not None and (problem := _head_problem(storage, manifests, newest)):
        problems.append(problem)
    if newest is None and problems:
        raise StorageAlteredError("manifest-*.json", f"no manifest in {storage.uri} can be read: {problems[-1]}")
    if newest is None:
        raise StorageMissingError(storage.uri, "no checkpoint was committed there")
    return newest


def _head_problem(storage: Storage, manifests: Mapping[ManifestId, Manifest], audited: Manifest) -> str:
    """Reason why the audited manifest may not be the last checkpoint; empty: it is."""
    instead = f"the audited manifest {audited.id} may be outside the chain"
    try:
        named = parse_head(storage.read(HEAD))
    except StorageMissingError:
        parents = {manifest.parent for manifest in manifests.values()}
        ends = len(manifests.keys() - parents)
        return f"{HEAD}: is missing, and {ends} manifests may have been the last: {instead}" if ends > 1 else ""
    except ContractError as error:
        return f"{HEAD}: cannot be read ({error}): {instead}"
    if named != audited.id:
        return f"{HEAD}: names {named}, which cannot be read here: {instead}"
    later = later_commit_after(audited, manifests, _read_retired(storage))
    return f"{HEAD}: names {named}, but {later} proves a later commit" if later else ""


def _chain(manifests: Mapping[ManifestId, Manifest], head: Manifest) -> tuple[ManifestId, ...]:
    chain = [head.id]
    link: Manifest | None = head
    while link and link.parent and link.parent not in chain:
        link = manifests.get(link.parent)
        if link:
            chain.append(link.id)
    return tuple(chain)


def _audit_file(storage: Storage, file: FileRecord) -> FileAudit:
    problem = ""
    try:
        check_file(storage, file)
    except StorageError as error:
        problem = error.problem
    return FileAudit(name=file.name, size_bytes=file.size_bytes, problem=problem)


def contradictions(manifest: Manifest) -> list[str]:
    """Contradictions between files and manifest (rule 22)."""
    problems = []
    if manifest.data & manifest.quarantine:
        problems.append(f"positions {manifest.data & manifest.quarantine} are both trained and in quarantine")
    if not (manifest.data | manifest.quarantine) <= manifest.dataset.everything:
        problems.append("the data state contains positions outside the data set")
    owned = 0
    for file in manifest.files:
        for marks in file.marks:
            owned += len(marks.buckets)
            if marks.applied != manifest.data or marks.skipped != manifest.quarantine:
                problems.append(f"{file.name}: buckets {marks.buckets} have other marks than the manifest's data state")
    if manifest.files and owned != manifest.bucket_count:
        problems.append(f"the files hold {owned} buckets of {manifest.bucket_count}")
    return problems


def _epochs(manifest: Manifest) -> tuple[EpochAudit, ...]:
    return tuple(
        EpochAudit(
            epoch=epoch,
            trained=(trained := _of_epoch(manifest.data, epoch, manifest.dataset.size)),
            quarantined=(quarantined := _of_epoch(manifest.quarantine, epoch, manifest.dataset.size)),
            missing=PositionSet.span(0, manifest.dataset.size) - trained - quarantined,
        )
        for epoch in range(manifest.dataset.epochs)
    )


def _of_epoch(positions: PositionSet, epoch: int, size: int) -> PositionSet:
    inside = positions & PositionSet.span(epoch * size, (epoch + 1) * size)
    return PositionSet(tuple(bound - epoch * size for bound in inside.bounds))
