"""Writes events about jobs (`events.k8s.io/v1`), a bounded queue behind whoever has something to say.

Events are for people: one that cannot be written is dropped with a line in the log, and nothing waits for it.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from autoscaler.clusters.kubernetes.api.errors import NotFoundError
from autoscaler.clusters.kubernetes.api.kinds import EVENTS
from autoscaler.clusters.kubernetes.api.port import Api, Raw
from autoscaler.clusters.kubernetes.building.labels import API_VERSION
from autoscaler.clusters.kubernetes.building.names import split_key
from autoscaler.clusters.kubernetes.reading.jobs import KubeJob
from autoscaler.errors import ClusterError
from autoscaler.operator.dedupe import Create, Raise, Said, say, unsay
from autoscaler.operator.lease import to_micro_time
from autoscaler.operator.records import Note

CONTROLLER: Final = "edl.dev/operator"
MOST_WAITING: Final = 1_000
MOST_PER_S: Final = 20.0
LONGEST_NOTE: Final = 1024  # bytes, the API's

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Waiting:
    job: KubeJob
    note: Note
    at_s: float  # Unix time


class Events:
    """`wall_s` tells the time of day, `identity` which operator speaks."""

    def __init__(self, api: Api, *, identity: str, wall_s: Callable[[], float]) -> None:
        self.dropped = 0
        self._api = api
        self._identity = identity
        self._wall_s = wall_s
        self._said = Said()
        self._queue: asyncio.Queue[_Waiting] = asyncio.Queue(MOST_WAITING)

    def say(self, job: KubeJob, note: Note) -> None:
        """Tell users; at once, or never when too much is waiting."""
        level = logging.WARNING if note.is_warning else logging.INFO
        log.log(level, "tj/%s in %s: %s: %s", job.name, job.namespace, note.reason, note.message)
        try:
            self._queue.put_nowait(_Waiting(job=job, note=note, at_s=self._wall_s()))
        except asyncio.QueueFull:
            self.dropped += 1

    async def run(self) -> None:
        """Write what is said, until cancelled."""
        while True:
            await self.write(await self._queue.get())
            await asyncio.sleep(1 / MOST_PER_S)

    async def write_all(self) -> None:
        """Write what waits now."""
        while not self._queue.empty():
            await self.write(self._queue.get_nowait())

    async def write(self, waiting: _Waiting) -> None:
        """Write one event, or raise the count of its series."""
        job, note = waiting.job, waiting.note
        subject = (job.uid, note.reason, f"{note.pod}\0{note.message}")
        name = f"{job.name}.{uuid.uuid4().hex[:16]}"
        self._said, what = say(self._said, subject, name, waiting.at_s)
        try:
            match what:
                case Create():
                    await self._api.create(EVENTS, self._body(waiting, what.name))
                case Raise():
                    series = {"count": what.count, "lastObservedTime": to_micro_time(waiting.at_s)}
                    await self._api.patch(EVENTS, what.name, {"series": series}, namespace=job.namespace)
                case None:
                    pass
        except NotFoundError:
            self._said = unsay(self._said, subject)  # it was kept its hour
        except ClusterError as error:
            self.dropped += 1
            self._said = unsay(self._said, subject)
            log.warning("event %s about tj/%s could not be written: %s", note.reason, job.name, error)

    def _body(self, waiting: _Waiting, name: str) -> Raw:
        job, note = waiting.job, waiting.note
        body: Raw = {
            "metadata": {"name": name, "namespace": job.namespace},
            "eventTime": to_micro_time(waiting.at_s),
            "reportingController": CONTROLLER,
            "reportingInstance": self._identity[:128],
            "action": note.reason,
            "reason": note.reason,
            "type": "Warning" if note.is_warning else "Normal",
            "note": note.message.encode()[:LONGEST_NOTE].decode(errors="ignore"),
            "regarding": {
                "apiVersion": API_VERSION,
                "kind": "TrainingJob",
                "name": job.name,
                "namespace": job.namespace,
                "uid": job.uid,
            },
        }
        if note.pod:
            namespace, pod = split_key(note.pod)
            body["related"] = {"apiVersion": "v1", "kind": "Pod", "name": pod, "namespace": namespace}
        return body
