"""Writes the status of every TrainingJob, by server-side apply on its subresource, when it differs from what stands.

Bounded: at most `MOST_PER_S` writes, a job's own when it has been still for a second, or has changed for three, so that
a resize is one write where pods start fast; and where only its progress has moved at most every ten seconds.  A status
that somebody else has changed differs too, and is put right.  What the server itself leaves out, as its definition of
the kind is older than the operator, is not written again and again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from autoscaler.clusters.kubernetes.api.api_port import Api, Preconditions, Raw, Subresource
from autoscaler.clusters.kubernetes.api.errors import ConflictError, NotFoundError
from autoscaler.clusters.kubernetes.api.kinds import TRAINING_JOBS
from autoscaler.clusters.kubernetes.cache.object_cache import Store
from autoscaler.clusters.kubernetes.objects.fields import Raw as RawRead
from autoscaler.clusters.kubernetes.objects.fields import part
from autoscaler.clusters.kubernetes.objects.names import split_key
from autoscaler.domain import JobName
from autoscaler.errors import ClusterError
from autoscaler.fault_isolation import JobErrors, Step
from autoscaler.operator.status.job_status import same

MOST_PER_S: Final = 50.0
SETTLE_S: Final = 1.0  # what comes together is one write
LONGEST_S: Final = 3.0  # however it goes on
PROGRESS_EVERY_S: Final = 10.0

log = logging.getLogger(__name__)


class Statuses:
    """`status_of` makes a job's status anew; None: there is no such job any more."""

    def __init__(
        self,
        api: Api,
        store: Store,
        *,
        raw_of: Callable[[JobName], Raw | None],
        status_of: Callable[[JobName], Raw | None],
        clock: Callable[[], float],
        errors: JobErrors,
    ) -> None:
        self._api = api
        self._store = store
        self._raw_of = raw_of
        self._status_of = status_of
        self._clock = clock
        self._errors = errors
        self._dirty: dict[JobName, float] = {}  # from when on it may be written
        self._since_s: dict[JobName, float] = {}  # when the first of what is to be written came
        self._written_at_s: dict[JobName, float] = {}
        self._kept: dict[JobName, tuple[Raw, Raw]] = {}  # what was written last, and what the server made of it
        self._news = asyncio.Event()

    def touch(self, job: JobName) -> None:
        """The job's status may be another one now."""
        now_s = self._clock()
        since_s = self._since_s.setdefault(job, now_s)
        due_s = min(now_s + SETTLE_S, since_s + LONGEST_S)
        self._dirty[job] = max(due_s, self._errors.again_at_s(job, Step.WRITE_STATUS))
        self._news.set()

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            for job in self._due():
                was_tried = True
                with self._errors.around(job, Step.WRITE_STATUS):
                    was_tried = await self.write(job)
                if again_at_s := self._errors.again_at_s(job, Step.WRITE_STATUS):
                    self._dirty[job] = again_at_s
                await asyncio.sleep(1 / MOST_PER_S if was_tried else 0.0)  # others have their turn in any case
            left_s = min(self._dirty.values(), default=None)
            try:
                async with asyncio.timeout(None if left_s is None else max(0.02, left_s - self._clock())):
                    await self._news.wait()
            except TimeoutError:
                pass
            self._news.clear()

    async def write(self, job: JobName) -> bool:
        """Write the job's status if it tells something new; whether it was tried."""
        self._dirty.pop(job, None)
        self._since_s.pop(job, None)
        raw, status = self._raw_of(job), self._status_of(job)
        if raw is None or status is None or raw["metadata"].get("deletionTimestamp"):
            self._written_at_s.pop(job, None)
            self._kept.pop(job, None)
            return False
        standing, now_s = part(raw, "status"), self._clock()
        if status == standing or (status, standing) == self._kept.get(job):
            return False
        due_s = self._written_at_s.get(job, -PROGRESS_EVERY_S) + PROGRESS_EVERY_S
        if same(status, standing) and now_s < due_s:
            self._dirty[job] = due_s
            return False
        self._written_at_s[job] = now_s
        try:
            await self._apply(job, raw, status)
        except (NotFoundError, ConflictError):
            return True  # it has gone, or is another one now: the watch will tell
        except ClusterError as error:
            log.warning("status of job %s: %s; trying again", job, error)
            self._dirty[job] = now_s + PROGRESS_EVERY_S
        return True

    async def _apply(self, job: JobName, raw: Raw, status: Raw) -> None:
        namespace, name = split_key(job)
        body = {"metadata": {"name": name, "namespace": namespace, "uid": raw["metadata"]["uid"]}, "status": status}
        written = await self._api.apply(TRAINING_JOBS, body, subresource=Subresource.STATUS)
        if forged := _beyond(part(written, "status"), status):
            written = await self._api.patch(
                TRAINING_JOBS,
                name,
                {"status": forged},
                namespace=namespace,
                only=Preconditions(uid=raw["metadata"]["uid"]),
                subresource=Subresource.STATUS,
            )
        self._store.learn(TRAINING_JOBS, written)
        self._kept[job] = (status, written.get("status") or {})

    def _due(self) -> list[JobName]:
        now_s = self._clock()
        return [job for job, from_s in self._dirty.items() if from_s <= now_s]


def _beyond(standing: RawRead, wanted: RawRead) -> Raw:
    """What takes away the fields that are somebody else's: an apply leaves them, for it owns its own alone."""
    found: Raw = {}
    for name, value in standing.items():
        if name not in wanted:
            found[name] = None
        elif isinstance(value, dict) and (nested := _beyond(value, wanted[name])):
            found[name] = nested
    return found
