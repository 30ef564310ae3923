"""Notices to pods of others that their unused GPUs are to be given back: one a decision, void once it is withdrawn."""

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

    def due_at_s(self, name: PodName, reclaim: IdleReclaim, raw: Raw) -> float:
        """Return when the pod's notice ends; it is given now if the pod has none."""
        uid, notice = text(raw, "metadata", "uid"), self._given.get(name)
        if notice is None or notice.uid != uid:
            notice = self._give(name, reclaim, raw, uid)
        return notice.at_s + self._policy.idle_notice_s

    def occasions(self) -> tuple[Occasion, ...]:
        """Return the pods whose GPUs are about to be given back, for notices to their owners."""
        return tuple(self._occasion(name, notice) for name, notice in self._given.items() if self.is_acting)

    def tell(self, raw: Raw, reason: str, message: str, *, is_warning: bool) -> None:
        """Write an event at the pod."""
        name, namespace, uid = (text(raw, "metadata", field) for field in ("name", "namespace", "uid"))
        subject = ObjectSubject(name=name, namespace=namespace, uid=uid)
        self._events.emit(subject, JobEvent(reason=reason, message=message, is_warning=is_warning))

    def _give(self, name: PodName, reclaim: IdleReclaim, raw: Raw, uid: str) -> PodNotice:
        notice = self._given[name] = PodNotice(uid=uid, at_s=self._clock(), for_whom=str(reclaim.beneficiary))
        since = to_time(reclaim.since_s - self._offset_s)
        what = "1 GPU of it is" if reclaim.gpu_count == 1 else f"{reclaim.gpu_count} GPUs of it are"
        if self.is_acting:
            due = to_time(notice.at_s + self._policy.idle_notice_s - self._offset_s)
            message = f"{what} unused since {since}; given back at {due} for {notice.for_whom}, which waits for them"
            self.tell(
                raw, "IdleGpus", f"{message}. To keep it: edl keep {split_key(name)[1]} --for 2h", is_warning=True
            )
        else:
            message = f"{what} unused since {since}, and {notice.for_whom} waits for them; nothing is done about it"
            self.tell(raw, "IdleGpusObserved", f"{message} (policy.idleReclaim is observe)", is_warning=False)
        return notice

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
