"""Pods that wait for the scheduler: those to be tried now, those in their back-off, those that wait for a change.

A pod that was found unschedulable backs off 1 s, doubling, and is tried again when its back-off is over and something
has changed that could help it (or, in 1.6, as soon as the back-off is over).  Source: backend/queue of pkg/scheduler.
Not emulated: queueing hints (every change that frees room moves every pod), and pods popped out of their back-off when
nothing else waits.
"""

from __future__ import annotations

import heapq
from math import ceil

from autoscaler.clusters.simulated.pods import SimPod
from autoscaler.clusters.simulated.profile import SchedulerProfile
from autoscaler.domain import PodName


class WaitingPods:
    """The scheduler's queue.  Times are given to it."""

    def __init__(self, profile: SchedulerProfile) -> None:
        self._profile = profile
        self._active: list[tuple[int, float, int, SimPod]] = []
        self._timers: list[tuple[float, int, SimPod]] = []
        self._is_active: dict[PodName, int] = {}  # the entry that counts: a pod may have left, or come again
        self._timed: dict[PodName, int] = {}
        self._unschedulable: dict[PodName, SimPod] = {}
        self._count = 0

    def __len__(self) -> int:
        """How many pods wait, in whatever way."""
        return len(self._is_active) + len(self._timed)

    @property
    def has_active(self) -> bool:
        """Whether a pod can be tried now."""
        return bool(self._is_active)

    def add(self, pod: SimPod, now_s: float) -> None:
        """A new pod: it can be tried at once."""
        pod.queued_at_s = now_s
        self._activate(pod)

    def remove(self, pod: SimPod) -> None:
        """The pod waits no longer, wherever it waited."""
        self._is_active.pop(pod.name, None)
        self._timed.pop(pod.name, None)
        self._unschedulable.pop(pod.name, None)

    def pop(self) -> SimPod:
        """The pod whose turn it is: the highest priority, then the longest wait."""
        while True:
            *_, number, pod = heapq.heappop(self._active)
            if self._is_active.get(pod.name) == number:
                del self._is_active[pod.name]
                return pod

    def refuse(self, pod: SimPod, now_s: float) -> None:
        """The pod was tried and fits nowhere."""
        pod.attempts += 1
        pod.queued_at_s = now_s
        if self._profile.waits_for_events:
            self._unschedulable[pod.name] = pod
            self._set_timer(pod, now_s + self._profile.unschedulable_limit_s)
        else:
            self._set_timer(pod, self.backoff_ends_at_s(pod))

    def move(self, now_s: float) -> None:
        """Something has changed that could help: pods that wait for it go on to their back-off, or are tried."""
        for pod in self._unschedulable.values():
            until_s = self.backoff_ends_at_s(pod)
            if until_s <= now_s:
                self._activate(pod)
            else:
                self._set_timer(pod, until_s)
        self._unschedulable.clear()

    def flush(self, now_s: float) -> None:
        """Let those be tried whose back-off is over, or that have waited for a change too long."""
        while self._timers and self._timers[0][0] <= now_s:
            _, number, pod = heapq.heappop(self._timers)
            if self._timed.get(pod.name) == number:
                self._unschedulable.pop(pod.name, None)
                self._activate(pod)

    def flush_at_s(self) -> float | None:
        """The next instant at which `flush` does something; None: no pod waits for time."""
        while self._timers and self._timed.get(self._timers[0][2].name) != self._timers[0][1]:
            heapq.heappop(self._timers)
        if not self._timers:
            return None
        period_s = self._profile.flush_s
        return ceil(self._timers[0][0] / period_s) * period_s if period_s else self._timers[0][0]

    def backoff_ends_at_s(self, pod: SimPod) -> float:
        """When a pod that was tried may be tried again."""
        doubled_s = self._profile.backoff_first_s * 2.0 ** min(pod.attempts - 1, 30)
        return pod.queued_at_s + min(doubled_s, self._profile.backoff_limit_s)

    def _set_timer(self, pod: SimPod, until_s: float) -> None:
        self._count += 1
        self._timed[pod.name] = self._count
        heapq.heappush(self._timers, (until_s, self._count, pod))

    def _activate(self, pod: SimPod) -> None:
        self._count += 1
        priority = pod.priority if self._profile.has_priorities else 0
        self._timed.pop(pod.name, None)
        self._is_active[pod.name] = self._count
        heapq.heappush(self._active, (-priority, pod.queued_at_s, self._count, pod))
