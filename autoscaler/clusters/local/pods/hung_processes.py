"""Masters and servers that stand still are ended, and start again in place like any other that ends.

When that is decided is `jobs.silence`.  Trainers are left alone: their script may compute for an hour after its session
is closed, what they held goes to others when their leases end, and at the end of the job they are told to leave.
"""

from __future__ import annotations

from collections.abc import Callable

from autoscaler.clusters.local.pods.local_pod import LocalPod
from autoscaler.clusters.local.pods.pod_runtime import PodRuntime
from autoscaler.domain import PodName
from autoscaler.jobs.restart_policy import MasterSilence, observe_answer


class HungProcesses:
    """What was heard of each process."""

    def __init__(self, runtime: PodRuntime, *, clock: Callable[[], float]) -> None:
        self._runtime = runtime
        self._clock = clock
        self._heard: dict[PodName, MasterSilence] = {}

    def note(self, pod: LocalPod, *, is_heard: bool, lacking: str) -> None:
        """The process that `pod` told of, before it was asked, has answered or not; `lacking`: what, for the user."""
        before = self._heard.pop(pod.name, None)
        if not self._runtime.is_present(pod):
            return
        heard = observe_answer(before, pod.key, has_answered=is_heard, now_s=self._clock())
        if heard.is_hung:
            self._runtime.end_hung(pod.name, why=f"{lacking} for {heard.quiet_s:.0f} s")
        else:
            self._heard[pod.name] = heard
