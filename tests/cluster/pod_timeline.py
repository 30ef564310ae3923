"""Observed history of a namespace's pods: a watch independent of EDL, by this process's clock.

The API server's own times are whole seconds, so each instant is when the watch told it: late by what this process was
busy with, never early.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Final

from autoscaler.clusters.kubernetes.api.api_port import Api, Raw, Scope
from autoscaler.clusters.kubernetes.objects.fields import condition_of, key_of, text
from autoscaler.clusters.kubernetes.objects.labels import JOB, ROLE, TIER
from autoscaler.clusters.kubernetes.parsing.pod_requests import pod_request
from autoscaler.domain import PodName, Resources
from tests.cluster.pod_watch import follow_pods

ENDED: Final = frozenset({"Succeeded", "Failed"})


@dataclass(slots=True, kw_only=True)
class PodTimes:
    """One pod; instants in seconds, None: not yet."""

    name: PodName
    uid: str
    requests: Resources
    job: str
    role: str
    is_surplus: bool
    priority: int
    app: str
    created_at_s: float
    free_at_s: float | None = None  # no gate holds it any more
    verdict_at_s: float | None = None  # PodScheduled=False for the first time
    bound_at_s: float | None = None
    running_at_s: float | None = None
    told_at_s: float | None = None  # told to leave
    ended_at_s: float | None = None  # occupies nothing from here on
    has_succeeded: bool | None = None  # None: it has not ended
    is_preempted: bool = False
    node: str = ""

    @property
    def cpu_milli(self) -> int:
        """Its CPU request."""
        return self.requests.cpu_milli

    @property
    def stands(self) -> bool:
        """True if it runs and is not being deleted."""
        return self.running_at_s is not None and self.told_at_s is None and self.ended_at_s is None


@dataclass(slots=True, kw_only=True)
class PodTimeline:
    """Watches one namespace.  `run` it beside whatever is to be witnessed."""

    api: Api
    namespace: str
    capacity_milli: dict[str, int]  # by node
    pods: dict[str, PodTimes] = field(default_factory=dict)  # by UID; those that have gone too
    excess: list[str] = field(default_factory=list)  # nodes that held more than they have

    async def run(self) -> None:
        """Until it is cancelled."""
        await follow_pods(self.api, Scope(namespace=self.namespace), self._hear, listed=asyncio.Event())

    def trainers(self) -> dict[str, int]:
        """How many of each job run and stay."""
        counts: dict[str, int] = defaultdict(int)
        for pod in self.pods.values():
            counts[pod.job] += pod.role == "trainer" and pod.stands
        return {job: count for job, count in counts.items() if job}

    def web(self, app: str) -> list[PodTimes]:
        """The service's pods that are not being deleted."""
        return [pod for pod in self.pods.values() if pod.app == app and pod.told_at_s is None]

    def told_since(self, at_s: float) -> list[PodTimes]:
        """The trainers that were deleted from then on, in that order."""
        found = [pod for pod in self.pods.values() if pod.role == "trainer" and (pod.told_at_s or 0.0) >= at_s]
        return sorted(found, key=lambda pod: pod.told_at_s or 0.0)

    def waited_s(self) -> dict[PodName, float]:
        """Time that each trainer without a gate spent without a node, until now at most."""
        now_s = time.monotonic()
        return {
            pod.name: (pod.bound_at_s or pod.ended_at_s or now_s) - pod.free_at_s
            for pod in self.pods.values()
            if pod.role == "trainer" and pod.free_at_s is not None
        }

    def without_node(self) -> list[PodName]:
        """Trainers that wait for the scheduler now: no gate holds them."""
        return [
            pod.name
            for pod in self.pods.values()
            if pod.role == "trainer" and pod.free_at_s is not None and pod.bound_at_s is None and pod.ended_at_s is None
        ]

    def _hear(self, raw: Raw, is_gone: bool) -> None:
        if is_gone:
            self._end(raw)
        else:
            self._see(raw)

    def _see(self, raw: Raw) -> None:
        now_s, uid = time.monotonic(), text(raw, "metadata", "uid")
        pod = self.pods.get(uid)
        if pod is None:
            pod = self.pods[uid] = PodTimes(
                name=PodName(key_of(raw)),
                uid=uid,
                requests=pod_request(raw["spec"]),
                job=text(raw, "metadata", "labels", JOB),
                role=text(raw, "metadata", "labels", ROLE),
                is_surplus=text(raw, "metadata", "labels", TIER) == "surplus",
                priority=raw["spec"].get("priority") or 0,
                app=text(raw, "metadata", "labels", "app"),
                created_at_s=now_s,
            )
        scheduled, disrupted = condition_of(raw, "PodScheduled"), condition_of(raw, "DisruptionTarget")
        pod.is_preempted |= disrupted.get("reason") == "PreemptionByScheduler" and disrupted.get("status") == "True"
        if not raw["spec"].get("schedulingGates"):
            pod.free_at_s = pod.free_at_s or now_s
        if scheduled.get("status") == "False" and scheduled.get("reason") == "Unschedulable":
            pod.verdict_at_s = pod.verdict_at_s or now_s
        if raw["metadata"].get("deletionTimestamp"):
            pod.told_at_s = pod.told_at_s or now_s
        if text(raw, "status", "phase") == "Running":
            pod.running_at_s = pod.running_at_s or now_s
        if text(raw, "status", "phase") in ENDED:
            pod.ended_at_s = pod.ended_at_s or now_s
            pod.has_succeeded = text(raw, "status", "phase") == "Succeeded"
        if (node := text(raw, "spec", "nodeName")) and not pod.node:
            pod.node, pod.bound_at_s = node, now_s
            self._weigh(node)

    def _end(self, raw: Raw) -> None:
        pod = self.pods.get(text(raw, "metadata", "uid"))
        if pod is not None:
            pod.told_at_s = pod.told_at_s or time.monotonic()
            pod.ended_at_s = pod.ended_at_s or time.monotonic()
            pod.has_succeeded = bool(pod.has_succeeded)

    def _weigh(self, node: str) -> None:
        held = sum(pod.cpu_milli for pod in self.pods.values() if pod.node == node and pod.ended_at_s is None)
        if held > self.capacity_milli[node]:
            self.excess.append(f"{node}: {held} of {self.capacity_milli[node]}")
