"""Notices to pods of others that their unused GPUs are to be given back: one a decision, void once it is withdrawn.

The time that a notice leaves begins when the API server has its event: nothing is done to a pod that was not told.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from autoscaler.clusters.kubernetes.objects.fields import Raw, text, to_time
from autoscaler.clusters.kubernetes.objects.names import split_key
from autoscaler.domain import IdleReclaim, PodName, Policy, ReclaimMode
from autoscaler.operator.notices.due_notices import NoticeKind, Occasion
from autoscaler.operator.store.event_recorder import EventRecorder, JobEvent, ObjectSubject


@dataclass(frozen=True, slots=True, kw_only=True)
class PodNotice:
    """Notice to a pod: when it was told, by its UID."""

    uid: str
    at_s: float
    for_whom: str


class PodNotices:
    """Notices of one term.  `offset_s` takes Unix time to `clock`."""

    def __init__(self, events: EventRecorder, policy: Policy, *, clock: Callable[[], float], offset_s: float) -> None:
        self._events, self._policy = events, policy
        self._clock, self._offset_s = clock, offset_s
        self._given: dict[PodName, PodNotice] = {}

    @property
    def is_acting(self) -> bool:
        """True if GPUs are given back after their notice; False where it is only told what would be."""
        return self._policy.idle_reclaim is ReclaimMode.ACT and not self._policy.is_frozen

    def retain(self, wanted: Collection[PodName]) -> None:
        """Drop the notices of all other pods."""
        self._given = {name: notice for name, notice in self._given.items() if name in wanted}

    def drop(self, name: PodName) -> None:
        """Drop the notice of a pod, if it has one: it is told anew, should it come to that."""
        self._given.pop(name, None)

    def due_at_s(self, name: PodName, raw: Raw) -> float | None:
        """Return when the pod's notice ends; None: it has none."""
        notice = self._given.get(name)
        is_told = notice is not None and notice.uid == text(raw, "metadata", "uid")
        return notice.at_s + self._policy.idle_notice_s if notice is not None and is_told else None

    async def give(self, name: PodName, reclaim: IdleReclaim, raw: Raw) -> bool:
        """Tell the pod; return False if it could not be told, and has no notice then.

        Where nothing is done to it, the event may get lost: it waits in the queue behind those of others.
        """
        since = to_time(reclaim.since_s - self._offset_s)
        what = "1 GPU of it is" if reclaim.gpu_count == 1 else f"{reclaim.gpu_count} GPUs of it are"
        whom = str(reclaim.beneficiary)
        if self.is_acting:
            due = to_time(self._clock() + self._policy.idle_notice_s - self._offset_s)
            message = f"{what} unused since {since}; given back at {due} for {whom}, which waits for them"
            namespace, pod = split_key(name)
            message = f"{message}. To keep it: edl keep {pod} -n {namespace} --for 2h"
            notice = JobEvent(reason="IdleGpus", message=message, is_warning=True)
            if not await self._events.write_now(_subject_of(raw), notice):
                return False
        else:
            is_observed = self._policy.idle_reclaim is ReclaimMode.OBSERVE
            why = "policy.idleReclaim is observe" if is_observed else "policy.freeze is true"
            message = f"{what} unused since {since}, and {whom} waits for them; nothing is done about it ({why})"
            self.tell(raw, "IdleGpusObserved", message, is_warning=False)
        self._given[name] = PodNotice(uid=text(raw, "metadata", "uid"), at_s=self._clock(), for_whom=whom)
        return True

    def occasions(self) -> tuple[Occasion, ...]:
        """Return the pods whose GPUs are about to be given back, for notices to their owners."""
        return tuple(self._occasion(name, notice) for name, notice in self._given.items() if self.is_acting)

    def tell(self, raw: Raw, reason: str, message: str, *, is_warning: bool) -> None:
        """Write an event at the pod."""
        self._events.emit(_subject_of(raw), JobEvent(reason=reason, message=message, is_warning=is_warning))

    def _occasion(self, name: PodName, notice: PodNotice) -> Occasion:
        namespace, pod = split_key(name)
        at_unix_s = notice.at_s - self._offset_s
        due = to_time(at_unix_s + self._policy.idle_notice_s)
        return Occasion(
            kind=NoticeKind.GPUS_GIVEN_BACK,
            namespace=namespace,
            name=pod,
            uid=notice.uid,
            since_unix_s=at_unix_s,
            due_unix_s=at_unix_s,
            reason="IdleGpus",
            message=f"nothing computes on them, and {notice.for_whom} waits for them; they are given back at {due}",
            again_after_s=self._policy.idle_notice_s / 2,  # so that it is told before each deed
        )


def _subject_of(raw: Raw) -> ObjectSubject:
    name, namespace, uid = (text(raw, "metadata", field) for field in ("name", "namespace", "uid"))
    return ObjectSubject(name=name, namespace=namespace, uid=uid)
