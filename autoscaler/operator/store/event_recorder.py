"""Recorder of events about jobs (`events.k8s.io/v1`), behind a bounded queue.

Events are for people: one that cannot be written is dropped with a line in the log, and nothing waits for it.  Each
job has a limited allowance of events, because a user's master can cause any number (A11).  Where something is done only
after somebody was told of it, the event is written at once, past the queue, and its writer learns what became of it.
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
from autoscaler.clusters.kubernetes.objects.fields import text, to_micro_time
from autoscaler.clusters.kubernetes.objects.labels import API_VERSION
from autoscaler.clusters.kubernetes.objects.names import job_key, split_key
from autoscaler.errors import ClusterError
from autoscaler.fault_isolation import GuardedTask, JobErrors
from autoscaler.operator.status.event_series import CreateEvent, RaiseCount, RecentEvents, forget_event, plan_event

CONTROLLER: Final = "edl.dev/operator"
MOST_QUEUED: Final = 1_000
MOST_PER_S: Final = 20.0
LONGEST_NOTE: Final = 1024  # bytes, the API's

BURST: Final = 50
ONE_MORE_EVERY_S: Final = 10.0
"""Token bucket of one job's events: burst size, and seconds per further event; other jobs' events do not wait behind
it.
"""

MOST_JOBS: Final = 10_000  # jobs whose allowance is remembered

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEvent:
    """Event about a job for its user.  `pod`: NAMESPACE/NAME, where one is concerned."""

    reason: str
    message: str
    is_warning: bool = False
    pod: str = ""


class EventSubject(Protocol):
    """The TrainingJob that an event is about."""

    @property
    def name(self) -> str: ...

    @property
    def namespace(self) -> str: ...

    @property
    def uid(self) -> str: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadJob:
    """Event subject from a raw TrainingJob, readable or not."""

    name: str
    namespace: str
    uid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectSubject:
    """An object of others as the subject of an event.  `namespace` of an object of the whole cluster: empty."""

    kind: str = "Pod"
    api_version: str = "v1"
    name: str
    namespace: str = ""
    uid: str


def subject_of(raw: RawRead) -> UnreadJob:
    """Return the TrainingJob as events name it."""
    name, namespace, uid = (text(raw, "metadata", field) for field in ("name", "namespace", "uid"))
    return UnreadJob(name=name, namespace=namespace, uid=uid)


@dataclass(frozen=True, slots=True, kw_only=True)
class _QueuedEvent:
    job: EventSubject
    event: JobEvent
    at_s: float  # Unix time


class EventRecorder:
    """Recorder of events.  `wall_s`: time of day; `identity`: the reporting operator."""

    def __init__(self, api: Api, *, identity: str, wall_s: Callable[[], float], errors: JobErrors) -> None:
        self.dropped = 0
        self._api = api
        self._identity = identity
        self._wall_s = wall_s
        self._errors = errors
        self._allowances: dict[str, tuple[float, float]] = {}  # by UID: events left, and when that was counted
        self._sent = RecentEvents()
        self._queue: asyncio.Queue[_QueuedEvent] = asyncio.Queue(MOST_QUEUED)

    def emit(self, job: EventSubject, event: JobEvent) -> None:
        """Log the event and queue it; drop it when the queue is full or the job's allowance is spent."""
        if not self._spend_allowance(job.uid):
            self.dropped += 1
            return
        _log_event(job, event)
        try:
            self._queue.put_nowait(_QueuedEvent(job=job, event=event, at_s=self._wall_s()))
        except asyncio.QueueFull:
            self.dropped += 1

    async def write_now(self, job: EventSubject, event: JobEvent) -> bool:
        """Log the event and write it, whatever waits in the queue; return whether the API server has it."""
        _log_event(job, event)
        return await self.write(_QueuedEvent(job=job, event=event, at_s=self._wall_s()))

    async def run(self) -> None:
        """Write queued events until cancelled."""
        while True:
            queued = await self._queue.get()
            with self._errors.isolate(job_key(queued.job.namespace, queued.job.name), GuardedTask.EVENT):
                await self.write(queued)
            await asyncio.sleep(1 / MOST_PER_S)

    async def write(self, queued: _QueuedEvent) -> bool:
        """Write one event, or raise the count of its series; return whether the API server has it."""
        job, event = queued.job, queued.event
        subject = (job.uid, event.reason, f"{event.pod}\0{event.message}")
        name = f"{job.name}.{uuid.uuid4().hex[:16]}"
        self._sent, what = plan_event(self._sent, subject, name, queued.at_s)
        try:
            match what:
                case CreateEvent():
                    await self._api.create(EVENTS, self._body(queued, what.name))
                case RaiseCount():
                    series = {"count": what.count, "lastObservedTime": to_micro_time(queued.at_s)}
                    await self._api.patch(EVENTS, what.name, {"series": series}, namespace=_namespace_of(job))
                case None:
                    pass
        except NotFoundError:
            self._sent = forget_event(self._sent, subject)  # the API server has expired it
            return False
        except ClusterError as error:
            self.dropped += 1
            self._sent = forget_event(self._sent, subject)
            log.warning("event %s about %s/%s could not be written: %s", event.reason, _kind_of(job), job.name, error)
            return False
        return True

    def _spend_allowance(self, uid: str) -> bool:
        """Count one more event of the job, if its allowance has one left."""
        now_s = self._wall_s()
        left, at_s = self._allowances.pop(uid, (float(BURST), now_s))
        left = min(float(BURST), left + max(0.0, now_s - at_s) / ONE_MORE_EVERY_S)
        is_left = left >= 1.0
        self._allowances[uid] = (left - is_left, now_s)
        while len(self._allowances) > MOST_JOBS:
            del self._allowances[next(iter(self._allowances))]
        return is_left

    def _body(self, queued: _QueuedEvent, name: str) -> Raw:
        job, event = queued.job, queued.event
        body: Raw = {
            "metadata": {"name": name, "namespace": _namespace_of(job)},
            "eventTime": to_micro_time(queued.at_s),
            "reportingController": CONTROLLER,
            "reportingInstance": self._identity[:128],
            "action": event.reason,
            "reason": event.reason,
            "type": "Warning" if event.is_warning else "Normal",
            "note": event.message.encode()[:LONGEST_NOTE].decode(errors="ignore"),
            "regarding": {
                "apiVersion": job.api_version if isinstance(job, ObjectSubject) else API_VERSION,
                "kind": job.kind if isinstance(job, ObjectSubject) else "TrainingJob",
                "name": job.name,
                "uid": job.uid,
                **({"namespace": job.namespace} if job.namespace else {}),
            },
        }
        if event.pod:
            namespace, pod = split_key(event.pod)
            body["related"] = {"apiVersion": "v1", "kind": "Pod", "name": pod, "namespace": namespace}
        return body


def _log_event(job: EventSubject, event: JobEvent) -> None:
    level = logging.WARNING if event.is_warning else logging.INFO
    log.log(level, "%s/%s in %s: %s: %s", _kind_of(job), job.name, job.namespace or "-", event.reason, event.message)


def _kind_of(subject: EventSubject) -> str:
    """The kind of the object as people write it."""
    return subject.kind if isinstance(subject, ObjectSubject) else "tj"


def _namespace_of(subject: EventSubject) -> str:
    """Where an event about it stands: the API wants those about objects of the whole cluster in `default`."""
    return subject.namespace or "default"
