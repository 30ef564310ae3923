"""Verification of a checkpoint folder: reads every byte and reports damage (`edl data verify`; M11).

A checkpoint is intact when its manifest matches its own digest and its files' records, and each file has its length
and digest, with nothing behind it.  Retired manifests are verified too: one may be needed to resume.

Not here: which samples a checkpoint holds (`audit`), what a job resumes from (`resume`), the inside of a data file:
here a file is a name, a length and a digest, whoever wrote it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from master.api.checkpoints.audit import contradictions
from master.api.checkpoints.checkpoint_files import check_file
from master.api.checkpoints.folder_contents import HEAD, FolderContents, read_contents, write_order
from master.api.checkpoints.manifest import Manifest
from master.api.checkpoints.resume import later_commit_after
from master.api.checkpoints.storage import Storage
from master.api.errors import StorageError
from master.api.identities import ManifestId
from master.api.messages.checkpoint_files import FileRecord

_MOST_ATTEMPTS: Final = 3
"""Most attempts to read a folder while its job runs; files that the job deletes meanwhile are not damage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedCheckpoint:
    """One checkpoint.  `problems`: by file, its manifest's own first; empty: it is intact."""

    manifest: Manifest
    is_head: bool
    is_retired: bool
    problems: tuple[str, ...]

    @property
    def is_intact(self) -> bool:
        """True if there is no problem."""
        return not self.problems


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderVerification:
    """A folder, verified.  `problems`: all of them, for people; `unnamed`: files that no manifest names."""

    uri: str
    head: ManifestId | None
    checkpoints: tuple[VerifiedCheckpoint, ...]  # the newest first
    unnamed: tuple[str, ...]
    bytes_read: int
    problems: tuple[str, ...]

    @property
    def is_intact(self) -> bool:
        """True if every file is intact and HEAD names one of the checkpoints."""
        return not self.problems

    @property
    def is_empty(self) -> bool:
        return not (self.checkpoints or self.unnamed or self.problems)


def verify_folder(
    storage: Storage, *, on_progress: Callable[[int, int], None] = lambda _read, _of: None
) -> FolderVerification:
    """Reads every byte.  `tell` is called with (bytes read, bytes in all) after each piece.

    Raises StorageError where the folder or a file cannot be read at all, damaged or not.
    """
    for _ in range(_MOST_ATTEMPTS - 1):
        before = storage.list()
        verdict = _verify(storage, read_contents(storage), on_progress)
        if verdict.is_intact or storage.list() == before:
            return verdict
    return _verify(storage, read_contents(storage), on_progress)


def _verify(storage: Storage, contents: FolderContents, on_progress: Callable[[int, int], None]) -> FolderVerification:
    files = {(f.name, f.size_bytes, f.digest): f for m in contents.known.values() for f in m.files}
    found = _check_files(storage, files, on_progress)
    checked = tuple(
        VerifiedCheckpoint(
            manifest=manifest,
            is_head=manifest.id == contents.head,
            is_retired=manifest.id not in contents.manifests,
            problems=(
                *contradictions(manifest),
                *(problem for f in manifest.files if (problem := found[f.name, f.size_bytes, f.digest])),
            ),
        )
        for manifest in sorted(contents.known.values(), key=write_order, reverse=True)
    )
    named = {name for name, _, _ in files}
    unnamed = tuple(name for name in contents.data_files if name not in named)
    return FolderVerification(
        uri=storage.uri,
        head=contents.head,
        checkpoints=checked,
        unnamed=unnamed,
        bytes_read=sum(size for _, size, _ in files),
        problems=(
            *(f"{damage.name}: {damage.problem}" for damage in (*contents.damaged, *contents.damaged_retired)),
            *_head_problems(contents, unnamed),
            *(f"checkpoint {one.manifest.id}: {problem}" for one in checked for problem in one.problems),
        ),
    )


def _head_problems(contents: FolderContents, unnamed: tuple[str, ...]) -> tuple[str, ...]:
    if contents.head is not None and contents.head not in contents.known:
        return (f"{HEAD}: names {contents.head}, which cannot be read here",)
    if contents.head is not None and (
        later := later_commit_after(contents.known[contents.head], contents.manifests, contents.retired)
    ):
        return (f"{HEAD}: names {contents.head}, but {later} proves a later commit",)
    if contents.head is None and contents.manifests and not any(one.name == HEAD for one in contents.damaged):
        return (f"{HEAD}: is missing, though there are manifests",)
    if contents.head is None and unnamed and not contents.known and not contents.damaged:
        return ("manifest-*.json: is missing, though there are data files",)
    return ()


def _check_files(
    storage: Storage, files: Mapping[tuple[str, int, str], FileRecord], on_progress: Callable[[int, int], None]
) -> dict[tuple[str, int, str], str]:
    """The problem of each file; empty: none."""
    found: dict[tuple[str, int, str], str] = {}
    done, total = 0, sum(size for _, size, _ in files)
    for key, file in files.items():
        try:
            check_file(storage, file, on_progress=partial(_with_offset, on_progress, done, total))
        except StorageError as error:
            found[key] = str(error)
        else:
            found[key] = ""
        done += file.size_bytes
        on_progress(done, total)
    return found


def _with_offset(on_progress: Callable[[int, int], None], before: int, total: int, read: int) -> None:
    on_progress(before + read, total)
