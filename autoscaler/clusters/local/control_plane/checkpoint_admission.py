"""Admission of TrainingJobs: a job stands only with the lock on its checkpoint folder, wherever it was created.

The lock follows the object.  It is taken when the API server admits the job, before the object is stored, so that a
folder which another job or another run holds refuses the creation (403).  It is released when the object is gone: the
operator's finalizer keeps it until the job's pods have left.  After an admission that no object follows, such as a dry
run's, it is released in the next turn of the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress

from autoscaler.clusters.kubernetes.api.errors import ForbiddenError, RefusedBy
from autoscaler.clusters.kubernetes.api.kinds import TRAINING_JOBS, Kind
from autoscaler.clusters.kubernetes.memory_api import MemoryServer
from autoscaler.clusters.kubernetes.memory_api.watch_history import ObjectChange
from autoscaler.clusters.kubernetes.objects.fields import Raw, text
from autoscaler.clusters.kubernetes.objects.names import job_key
from autoscaler.clusters.local.run_files.checkpoint_locks import (
    CheckpointFolderLockedError,
    CheckpointLocks,
    JobFolder,
)
from autoscaler.domain import JobName
from master.api.errors import StorageError


class CheckpointAdmission:
    """Lends the locks of a run to the jobs of `server`, which admits none without its lock afterwards."""

    def __init__(self, server: MemoryServer, locks: CheckpointLocks) -> None:
        self._server = server
        self._locks = locks
        self._reserved: set[JobFolder] = set()
        server.admissions = (*server.admissions, self.admit)

    def admit(self, kind: Kind, job: Raw, before: Raw | None) -> None:
        """Lock the folder of a new job, or the new folder of a job that stands (`memory_server.Admission`).

        Raises ForbiddenError: another job or another run holds the folder, or it cannot be locked.
        """
        uri = _uri_of(job)
        if kind != TRAINING_JOBS or not uri or (before is not None and uri == _uri_of(before)):
            return
        self.release_unused()  # a job may have gone in this turn of the loop
        asyncio.get_running_loop().call_soon(self.release_unused)
        try:
            self._locks.lock(_key_of(job), uri)
        except CheckpointFolderLockedError as error:
            raise ForbiddenError(str(error), RefusedBy.ADMISSION) from error
        except StorageError as error:
            message = f"spec.checkpoint.uri {uri} of tj/{text(job, 'metadata', 'name')}: {error}"
            raise ForbiddenError(message, RefusedBy.ADMISSION) from error

    @contextmanager
    def reserve(self, jobs: Iterable[Raw]) -> Iterator[None]:
        """Hold the locks of jobs that are created within, so that none of them is created if one is refused.

        Raises:
            CheckpointFolderLockedError: another job or another run holds a folder; the message names it.
            StorageError: a URI is unusable, or a folder cannot be made or locked.
        """
        try:
            for job in jobs:
                if (uri := _uri_of(job)) and (found := self._locks.lock(_key_of(job), uri)) is not None:
                    self._reserved.add(found)
            yield
        finally:
            self._reserved.clear()
            self.release_unused()

    def handle_changes(self, changes: Sequence[ObjectChange]) -> None:
        """Release the locks of jobs that are gone."""
        if any(change.kind == TRAINING_JOBS and change.after is None for change in changes):
            self.release_unused()

    def release_unused(self) -> None:
        """Release every lock that no job needs."""
        needed = set(self._reserved)
        for job in self._server.all(TRAINING_JOBS):
            with suppress(StorageError):  # of an URI that it got otherwise than by a request
                if (uri := _uri_of(job)) and (found := self._locks.folder_of(_key_of(job), uri)) is not None:
                    needed.add(found)
        self._locks.keep_only(needed)


def _uri_of(job: Raw) -> str:
    return text(job, "spec", "checkpoint", "uri")


def _key_of(job: Raw) -> JobName:
    return job_key(text(job, "metadata", "namespace"), text(job, "metadata", "name"))
