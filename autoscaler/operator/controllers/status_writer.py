"""Writer of every TrainingJob's status, by server-side apply on its subresource, when it differs from the stored one.

Bounded: at most `MOST_PER_S` writes; a job's status is written once it has settled (`StatusQueue`), and at most every
`progress_every_s` if only its progress changed.  Status edits by others are reverted.  Fields that an older CRD drops
are not rewritten every time.
"""

from __future__ import annotations

import asyncio
import logging
from math import inf
from typing import Final

from autoscaler.clusters.kubernetes.api.api_port import Api, Preconditions, Raw, Subresource
from autoscaler.clusters.kubernetes.api.errors import ConflictError, NotFoundError
from autoscaler.clusters.kubernetes.api.kinds import TRAINING_JOBS
from autoscaler.clusters.kubernetes.objects.fields import Raw as RawRead
from autoscaler.clusters.kubernetes.objects.fields import part
from autoscaler.clusters.kubernetes.objects.names import split_key
from autoscaler.domain import JobName
from autoscaler.errors import ClusterError
from autoscaler.fault_isolation import GuardedTask
from autoscaler.operator.controllers.status_source import StatusSource
from autoscaler.operator.status.job_status import differs_only_in_progress
from autoscaler.operator.store.job_store import JobStore

MOST_PER_S: Final = 50.0
PROGRESS_EVERY_S: Final = 10.0

log = logging.getLogger(__name__)


class StatusWriter:
    """Writes the status of each job of the store's queue that differs from what stands."""

    def __init__(
        self, api: Api, store: JobStore, source: StatusSource, *, progress_every_s: float = PROGRESS_EVERY_S
    ) -> None:
        self._progress_every_s = progress_every_s
        self._api = api
        self._store = store
        self._source = source
        self._written_at_s: dict[JobName, float] = {}
        self._kept: dict[JobName, tuple[Raw, Raw]] = {}  # the status last written, and as the server stored it

    async def run(self) -> None:
        """Write until cancelled."""
        queue, errors = self._store.to_write_status, self._store.errors
        while True:
            for job in queue.due():
                was_tried = True
                with errors.isolate(job, GuardedTask.WRITE_STATUS):
                    was_tried = await self.write(job)
                if again_at_s := errors.retry_at_s(job, GuardedTask.WRITE_STATUS):
                    queue.delay(job, again_at_s)
                await asyncio.sleep(1 / MOST_PER_S if was_tried else 0.0)  # others have their turn in any case
            await queue.wait()

    async def write(self, job: JobName) -> bool:
        """Write the job's status if it has changed; return True if a write was tried."""
        queue = self._store.to_write_status
        queue.remove(job)
        raw, status = self._store.objects.raw(job), self._source.status_of(job)
        if raw is None or status is None or raw["metadata"].get("deletionTimestamp"):
            self._written_at_s.pop(job, None)
            self._kept.pop(job, None)
            return False
        standing, now_s = part(raw, "status"), self._store.clock()
        if status == standing or (status, standing) == self._kept.get(job):
            return False
        due_s = self._written_at_s.get(job, -inf) + self._progress_every_s
        if differs_only_in_progress(status, standing) and now_s < due_s:
            queue.delay(job, due_s)
            return False
        self._written_at_s[job] = now_s
        try:
            await self._apply(job, raw, status)
        except (NotFoundError, ConflictError):
            return True  # deleted or replaced; the watch will show it
        except ClusterError as error:
            log.warning("status of job %s: %s; trying again", job, error)
            queue.delay(job, now_s + PROGRESS_EVERY_S)
        return True

    async def _apply(self, job: JobName, raw: Raw, status: Raw) -> None:
        namespace, name = split_key(job)
        body = {"metadata": {"name": name, "namespace": namespace, "uid": raw["metadata"]["uid"]}, "status": status}
        written = await self._api.apply(TRAINING_JOBS, body, subresource=Subresource.STATUS)
        if forged := _removal_patch(part(written, "status"), status):
            written = await self._api.patch(
                TRAINING_JOBS,
                name,
                {"status": forged},
                namespace=namespace,
                only=Preconditions(uid=raw["metadata"]["uid"]),
                subresource=Subresource.STATUS,
            )
        self._store.objects.cache.put_written(TRAINING_JOBS, written)
        self._kept[job] = (status, written.get("status") or {})


def _removal_patch(standing: RawRead, wanted: RawRead) -> Raw:
    """Return the patch that removes the fields of others: an apply leaves them, for it owns its own fields alone."""
    found: Raw = {}
    for name, value in standing.items():
        if name not in wanted:
            found[name] = None
        elif isinstance(value, dict) and (nested := _removal_patch(value, wanted[name])):
            found[name] = nested
    return found
