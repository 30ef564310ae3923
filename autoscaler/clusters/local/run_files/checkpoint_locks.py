"""Locks on checkpoint folders: one run per folder.

Two runs have two stores, so neither fences the other's commits: both would write manifests of one lineage into one
folder.  A run therefore locks each folder of this machine that its jobs name.  The lock lasts until its release or,
where none comes, while the run or a child of it lives (`master.api.checkpoints.folder_lock`).  Object stores
(`s3://...`) have no lock.  Which job needs a lock, and for how long, is decided in
`control_plane.checkpoint_admission`.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path
from typing import Self, TypeAlias

from autoscaler.domain import JobName
from autoscaler.errors import PermanentError
from master.api.checkpoints import folder_lock
from master.api.checkpoints.local_storage import LocalStorage
from master.api.checkpoints.storage import open_storage

JobFolder: TypeAlias = tuple[JobName, str]  # the job's name in views, and the folder with symbolic links resolved


class CheckpointFolderLockedError(PermanentError):
    """Another job writes its checkpoints into the folder."""


class CheckpointLocks:
    """The folders that one run has locked.  A context: the locks are released at its end.

    `working_dir`: of relative paths.  `own`: the run's checkpoint folder.  No other run can have a folder below it, so
    no file system has to support locks there.  `allows_shared`: also folders that every user of this machine may
    write to.
    """

    def __init__(self, *, run: str, working_dir: Path, own: Path, allows_shared: bool = False) -> None:
        self._run = run
        self._working_dir = working_dir
        self._own = Path(os.path.realpath(own))
        self._allows_shared = allows_shared
        self._locks: dict[JobFolder, folder_lock.FolderLock | None] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.keep_only(())

    def folder_of(self, job: JobName, uri: str) -> JobFolder | None:
        """The folder that the job's URI names; None for an object store.  Raises StorageError for no usable URI."""
        storage = open_storage(uri)
        if not isinstance(storage, LocalStorage):
            return None
        return job, os.path.realpath(self._working_dir / storage.uri)

    def lock(self, job: JobName, uri: str) -> JobFolder | None:
        """Lock the folder for the job, and delete part files that dead writers left in it.

        Returns `folder_of`.  Nothing happens if the job holds the lock already.

        Raises:
            CheckpointFolderLockedError: another job of this or another run holds the lock; the message names it.
            StorageError: the URI is unusable, or the folder cannot be made or locked.
        """
        found = self.folder_of(job, uri)
        if found is None or found in self._locks:
            return found
        _, folder = found
        holder = next((other for other, held in self._locks if held == folder), None)
        if holder is not None:
            raise self._locked_error(job, uri, self._holder(holder))
        if Path(folder).is_relative_to(self._own):
            self._locks[found] = None
            return found
        try:
            storage = LocalStorage(self._working_dir / open_storage(uri).uri)  # its links are checked as they are
            claim = folder_lock.claim_folder(storage, self._holder(job), allows_shared=self._allows_shared)
        except folder_lock.CheckpointFolderInUseError as error:
            raise self._locked_error(job, uri, error.holder) from None
        self._locks[found] = claim
        return found

    def keep_only(self, needed: Collection[JobFolder]) -> None:
        """Release all other locks."""
        for found in [found for found in self._locks if found not in needed]:
            lock = self._locks.pop(found)
            if lock is not None:
                lock.release()

    def _holder(self, job: JobName) -> str:
        return f"{_shown(job)} of run {self._run}"

    @staticmethod
    def _locked_error(job: JobName, uri: str, holder: str) -> CheckpointFolderLockedError:
        problem = f"spec.checkpoint.uri {uri} of {_shown(job)} is in use by {holder}"
        return CheckpointFolderLockedError(f"{problem}: give the job another folder, or stop that one first")


def _shown(job: JobName) -> str:
    return f"tj/{job.rpartition('/')[2]}"
