"""Locks on checkpoint folders: one run per folder.

Two runs have two stores, so neither fences the other's commits: both would write manifests of one lineage into one
folder.  A run therefore locks each folder of this machine that its jobs name.  The lock lasts while the run or a child
of it lives (`master.api.checkpoints.folder_lock`).  Object stores (`s3://...`) have no lock.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Self

from autoscaler.errors import PermanentError
from master.api.checkpoints import folder_lock
from master.api.checkpoints.local_storage import LocalStorage
from master.api.checkpoints.storage import open_storage


class CheckpointFolderLockedError(PermanentError):
    """Another job writes its checkpoints into the folder."""


class CheckpointLocks:
    """The folders that one run has locked.  A context: the locks are released at its end."""

    def __init__(self, *, run: str, allows_shared: bool = False) -> None:
        self._run = run
        self._allows_shared = allows_shared  # folders that every user of this machine may write to
        self._locks = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._locks.close()

    def lock(self, job: str, uri: str, *, working_dir: Path) -> None:
        """Lock the folder for the job, and delete part files that dead writers left in it.

        Raises:
            CheckpointFolderLockedError: a job of this or another run holds the lock; the message names the job.
            StorageError: the URI is unusable, or the folder cannot be made or locked.
        """
        storage = open_storage(uri)
        if isinstance(storage, LocalStorage):
            storage = LocalStorage(working_dir / storage.uri)
        try:
            holder = f"tj/{job} of run {self._run}"
            claim = folder_lock.claim_folder(storage, holder, allows_shared=self._allows_shared)
        except folder_lock.CheckpointFolderInUseError as error:
            problem = f"spec.checkpoint.uri {uri} of tj/{job} is in use by {error.holder}"
            raise CheckpointFolderLockedError(f"{problem}: give the job another folder, or stop that run") from None
        if claim is not None:
            self._locks.callback(claim.release)
