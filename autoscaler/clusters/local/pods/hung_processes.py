"""Hang detection for masters and servers: kills a process that stands still, so that it starts again in place.

`jobs.restart_policy` decides when a process counts as hung.  Trainers are left alone, because their script may compute
for an hour after its session is closed: what they held goes to others when their leases end.
"""

from __future__ import annotations

from collections.abc import Callable

from autoscaler.clusters.local.pods.local_pod import LocalPod
from autoscaler.clusters.local.pods.pod_runtime import PodRuntime
from autoscaler.domain import PodName
from autoscaler.jobs.restart_policy import MasterSilence, observe_answer


class HungProcesses:
    """Since when each process has been silent."""

    def __init__(self, runtime: PodRuntime, *, clock: Callable[[], float]) -> None:
        self._runtime = runtime
        self._clock = clock
        self._heard: dict[PodName, MasterSilence] = {}

    def observe(self, pod: LocalPod, *, is_heard: bool, lacking: str) -> None:
        """Note whether the process that `pod` had when it was asked has answered; kill it once it counts as hung.

        `lacking` names the missing sign of life, for the user.
        """
        before = self._heard.pop(pod.name, None)
        if not self._runtime.is_present(pod):
            return
        heard = observe_answer(before, pod.key, has_answered=is_heard, now_s=self._clock())
        if heard.is_hung:
            self._runtime.end_hung(pod.name, why=f"{lacking} for {heard.silent_s:.0f} s")
        else:
            self._heard[pod.name] = heard
