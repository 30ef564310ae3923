"""One run per checkpoint folder.

The problem: two runs have two stores, so neither fences the other's commits; both would write manifests of one lineage
into one folder, and which model is the job's is anybody's guess.  So a run holds a lock on each folder of this machine
that its jobs name, as long as it lives, however it ends.  Folders elsewhere (`s3://...`) have no such lock.
"""

from __future__ import annotations

import fcntl
from contextlib import ExitStack
from pathlib import Path
from typing import Final, Self

from autoscaler.errors import PermanentError
from master.api.storage import LocalStorage, open_storage

LOCK_NAME: Final = ".edl-run"


class FolderInUseError(PermanentError):
    """Another job writes its checkpoints there."""


class Claims:
    """The folders that one run holds.  A context: they are given back at its end."""

    def __init__(self, *, run: str) -> None:
        self._run = run
        self._locks = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._locks.close()

    def claim(self, job: str, uri: str, *, working_dir: Path) -> None:
        """The job has this folder to itself.

        Raises:
            FolderInUseError: a job of this or another run holds it; with its name.
            StorageError: the URI is unusable.
            OSError: the folder cannot be made or written to.
        """
        storage = open_storage(uri)
        if not isinstance(storage, LocalStorage):
            return
        folder = working_dir / storage.uri
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / LOCK_NAME
        path.touch()
        lock = self._locks.enter_context(path.open("rb"))  # not for writing: that would hold up a remount
        try:
            fcntl.flock(lock.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = lock.readline().decode().strip() or "another run"
            problem = f"spec.checkpoint.uri {uri} of tj/{job} is in use by {holder}"
            raise FolderInUseError(f"{problem}: give the job another folder, or stop that run") from None
        path.write_text(f"tj/{job} of run {self._run}\n", encoding="utf-8")
