"""Writes events about jobs (`events.k8s.io/v1`), a bounded queue behind whoever has something to say.

Events are for people: one that cannot be written is dropped with a line in the log, and nothing waits for it.  A job
that has much to say (its master's words are its owner's) does so within an allowance of its own (A11).
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from autoscaler.clusters.kubernetes.api.api_port import Api, Raw
from autoscaler.clusters.kubernetes.api.errors import NotFoundError
from autoscaler.clusters.kubernetes.api.kinds import EVENTS
from autoscaler.clusters.kubernetes.objects.fields import Raw as RawRead
from autoscaler.clusters.kubernetes.objects.fields import text
from autoscaler.clusters.kubernetes.objects.labels import API_VERSION
from autoscaler.clusters.kubernetes.objects.names import job_key, split_key
from autoscaler.errors import ClusterError
from autoscaler.fault_isolation import JobErrors, Step
from autoscaler.operator.controllers.job_store import Note
from autoscaler.operator.leadership.lease import to_micro_time
from autoscaler.operator.status.event_series import Create, Raise, Said, say, unsay

CONTROLLER: Final = "edl.dev/operator"
MOST_WAITING: Final = 1_000
MOST_PER_S: Final = 20.0
LONGEST_NOTE: Final = 1024  # bytes, the API's

BURST: Final = 50
ONE_MORE_EVERY_S: Final = 10.0
"""Events of one job: so many at once, and one more after so long.  Those of others wait behind none beyond that."""

MOST_SPEAKERS: Final = 10_000  # jobs whose allowance is remembered

log = logging.getLogger(__name__)


class Speaker(Protocol):
    """The TrainingJob that an event is about, whether or not it can be read."""

    @property
    def name(self) -> str: ...

    @property
    def namespace(self) -> str: ...

    @property
    def uid(self) -> str: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A TrainingJob that need not be one that EDL can read."""

    name: str
    namespace: str
    uid: str


def subject_of(raw: RawRead) -> Subject:
    """The TrainingJob, as events name it."""
    name, namespace, uid = (text(raw, "metadata", field) for field in ("name", "namespace", "uid"))
    return Subject(name=name, namespace=namespace, uid=uid)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Waiting:
    job: Speaker
    note: Note
    at_s: float  # Unix time


class Events:
    """`wall_s` tells the time of day, `identity` which operator speaks."""

    def __init__(self, api: Api, *, identity: str, wall_s: Callable[[], float], errors: JobErrors) -> None:
        self.dropped = 0
        self._api = api
        self._identity = identity
        self._wall_s = wall_s
        self._errors = errors
        self._allowances: dict[str, tuple[float, float]] = {}  # by UID: events left, and when that was counted
        self._said = Said()
        self._queue: asyncio.Queue[_Waiting] = asyncio.Queue(MOST_WAITING)

    def say(self, job: Speaker, note: Note) -> None:
        """Tell users; at once, or never when too much is waiting or the job has said too much lately."""
        if not self._may_say(job.uid):
            self.dropped += 1
            return
        level = logging.WARNING if note.is_warning else logging.INFO
        log.log(level, "tj/%s in %s: %s: %s", job.name, job.namespace, note.reason, note.message)
        try:
            self._queue.put_nowait(_Waiting(job=job, note=note, at_s=self._wall_s()))
        except asyncio.QueueFull:
            self.dropped += 1

    async def run(self) -> None:
        """Write what is said, until cancelled."""
        while True:
            waiting = await self._queue.get()
            with self._errors.around(job_key(waiting.job.namespace, waiting.job.name), Step.EVENT):
                await self.write(waiting)
            await asyncio.sleep(1 / MOST_PER_S)

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

    def _may_say(self, uid: str) -> bool:
        """Count one more event of the job, if its allowance has one left."""
        now_s = self._wall_s()
        left, at_s = self._allowances.pop(uid, (float(BURST), now_s))
        left = min(float(BURST), left + max(0.0, now_s - at_s) / ONE_MORE_EVERY_S)
        may_say = left >= 1.0
        self._allowances[uid] = (left - may_say, now_s)
        while len(self._allowances) > MOST_SPEAKERS:
            del self._allowances[next(iter(self._allowances))]
        return may_say

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
