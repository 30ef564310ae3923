"""The scheduler's queue: active pods, pods in backoff, and unschedulable pods that wait for a change.

An unschedulable pod backs off for 1 s, doubling, and is retried once its backoff is over and something has changed
that could help it.  Since 1.33, with no active pod, the scheduler takes the first pod in backoff.  In 1.6 a pod is
tried once its backoff is over, change or not.  Sources: backend/queue of pkg/scheduler, KEP 5142.  Not emulated:
queueing hints (every change that frees capacity moves every pod).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from math import ceil

from autoscaler.clusters.simulated.scheduling.scheduler_profile import SchedulerProfile
from autoscaler.clusters.simulated.world.sim_pods import SimPod
from autoscaler.domain import PodName


class OrderedPods:
    """Pods by a key, first in first out for equal keys, with lazy removal."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, float, int, SimPod]] = []
        self._entries: dict[PodName, int] = {}  # the entry that counts: a pod may have left, or come again
        self._count = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[SimPod]:
        """Yield pods in the order of insertion."""
        pods = {number: pod for _, _, number, pod in self._heap}
        return iter([pods[number] for number in sorted(self._entries.values())])

    def put(self, pod: SimPod, key: float, then: float = 0.0) -> None:
        """Insert or move the pod."""
        self._count += 1
        self._entries[pod.name] = self._count
        heapq.heappush(self._heap, (key, then, self._count, pod))

    def remove(self, pod: SimPod) -> None:
        """Remove the pod if it is queued."""
        self._entries.pop(pod.name, None)

    def first_key(self) -> float | None:
        """Return the smallest key; None if empty."""
        while self._heap and self._entries.get(self._heap[0][3].name) != self._heap[0][2]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def pop(self) -> SimPod:
        """Remove and return the first pod."""
        self.first_key()
        *_, pod = heapq.heappop(self._heap)
        del self._entries[pod.name]
        return pod


class SchedulingQueue:
    """The scheduler's queue, a pure structure.  A pod is in at most one of its three parts."""

    def __init__(self, profile: SchedulerProfile) -> None:
        self._profile = profile
        self._active = OrderedPods()  # by priority from the top, then by time
        self._backing_off = OrderedPods()  # by the end of the back-off
        self._unschedulable = OrderedPods()  # by the instant at which they are tried in any case

    @property
    def has_next(self) -> bool:
        """True if a pod can be tried now."""
        return bool(self._active) or (self._profile.pops_backoff and bool(self._backing_off))

    def add(self, pod: SimPod, now_s: float) -> None:
        """Queue a new pod, to be tried at once."""
        pod.queued_at_s = now_s
        self._activate(pod)

    def remove(self, pod: SimPod) -> None:
        for part in (self._active, self._backing_off, self._unschedulable):
            part.remove(pod)

    def pop(self) -> SimPod:
        """Return the next pod: the highest priority, then the longest wait."""
        return self._active.pop() if self._active else self._backing_off.pop()

    def refuse(self, pod: SimPod, now_s: float) -> None:
        """Put back a pod that fits nowhere."""
        pod.attempts += 1
        pod.queued_at_s = now_s
        if self._profile.waits_for_events:
            self._unschedulable.put(pod, now_s + self._profile.unschedulable_limit_s)
        else:
            self._backing_off.put(pod, self.backoff_ends_at_s(pod))

    def move(self, now_s: float) -> None:
        """Retry unschedulable pods after a change: at once, or after their backoff."""
        for pod in self._unschedulable:
            self._requeue(pod, now_s)

    def flush(self, now_s: float) -> None:
        """Activate pods whose backoff is over, or that have waited for a change too long."""
        while (until_s := self._backing_off.first_key()) is not None and until_s <= now_s:
            self._activate(self._backing_off.pop())
        while (until_s := self._unschedulable.first_key()) is not None and until_s <= now_s:
            self._requeue(self._unschedulable.pop(), now_s)

    def flush_at_s(self) -> float | None:
        """Return when `flush` next has an effect; None if no pod waits for time."""
        keys = (self._backing_off.first_key(), self._unschedulable.first_key())
        instants = [at_s for at_s in keys if at_s is not None]
        if not instants:
            return None
        period_s = self._profile.flush_s
        return ceil(min(instants) / period_s) * period_s if period_s else min(instants)

    def backoff_ends_at_s(self, pod: SimPod) -> float:
        """Return when the pod may be retried."""
        doubled_s = self._profile.backoff_first_s * 2.0 ** min(pod.attempts - 1, 30)
        return pod.queued_at_s + min(doubled_s, self._profile.backoff_limit_s)

    def _requeue(self, pod: SimPod, now_s: float) -> None:
        self._unschedulable.remove(pod)
        until_s = self.backoff_ends_at_s(pod)
        if until_s <= now_s:
            self._activate(pod)
        else:
            self._backing_off.put(pod, until_s)

    def _activate(self, pod: SimPod) -> None:
        priority = pod.priority if self._profile.has_priorities else 0
        self._active.put(pod, -priority, pod.queued_at_s)
