"""A day of a cluster that a web service and training jobs share: the web rises, training gives way; it falls, and
training takes the room back.  EDL runs in this process, everything else is real but the nodes.

    async with MixedDay(plane.kubeconfig, namespace, nodes, policy) as day:
        await day.begin(jobs=4, maximum=40, web=20)
        rise = await day.rise(12)

The timeline says what happened; nothing here is EDL's own word but why it told a trainer to leave.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from autoscaler.clusters.kubernetes.api.http_client import HttpApi, connect
from autoscaler.clusters.kubernetes.api.kinds import DEPLOYMENTS, TRAINING_JOBS
from autoscaler.domain import Cause, Policy, Reclaim
from tests.cluster.autoscaling import Autoscaling
from tests.cluster.kwok_nodes import Life
from tests.cluster.pod_timeline import PodTimeline
from tests.cluster.workloads import job_of, web_of
from tests.harness.waiting import BUDGET_S

WEB: Final = "web"
GRACE_S: Final = 2
DEAF: Final = Life()
"""A trainer that uses all of its grace: the longest that the web can be made to wait."""

POLL_S: Final = 0.02
STILL_S: Final = 0.5  # so long after the last web pod runs a late victim is still counted
FORCED: Final = frozenset({Cause.POD, Cause.ANNOUNCED_GROWTH})


def brisk(reclaim: Reclaim, **more: Any) -> Policy:
    """A policy whose windows are short, so that a day has many rises."""
    return Policy(
        reclaim=reclaim,
        up_window_s=0.5,
        down_window_s=1.0,
        quiet_window_s=0.2,
        burst_window_s=0.0,
        preempted_pause_s=2.0,
        victim_age_s=0.0,
        surplus_grace_s=float(GRACE_S),
        **more,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Rise:
    """One rise of the web.  Times in seconds; None: it did not happen."""

    pods: int
    first_verdict_s: float | None  # after the Deployment was written
    first_told_s: float | None  # the first surplus trainer, after the Deployment was written
    running_s: tuple[float, ...]  # each web pod, after it was created
    all_running_s: float  # the last web pod, after the first was created
    lost: int  # trainers that the scheduler took, or EDL for the web
    moved: int  # trainers that EDL told to leave for any other reason
    trainers: Mapping[str, int]  # left standing, by job

    @property
    def reaction_s(self) -> float | None:
        """From the first verdict to the first deletion; below 0: EDL was ahead of the scheduler."""
        if self.first_verdict_s is None or self.first_told_s is None:
            return None
        return self.first_told_s - self.first_verdict_s

    @property
    def spread(self) -> int:
        """Trainers between the largest and the smallest job."""
        return max(self.trainers.values()) - min(self.trainers.values())


class MixedDay:
    """An async context: inside it EDL runs, unless `stop_edl` was called, and the timeline looks on."""

    def __init__(self, kubeconfig: Path, namespace: str, capacity_milli: Mapping[str, int], policy: Policy) -> None:
        self.namespace = namespace
        self.full = 0
        self._kubeconfig = kubeconfig
        self._capacity_milli = dict(capacity_milli)
        self._policy = policy
        self._api: HttpApi | None = None
        self._edl: Autoscaling | None = None
        self._watch: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._api = await connect(self._kubeconfig)
        self.timeline = PodTimeline(api=self._api, namespace=self.namespace, capacity_milli=self._capacity_milli)
        self._watch = asyncio.create_task(self.timeline.run())
        self._edl = await Autoscaling(self._kubeconfig, self._policy).__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._api is not None
        assert self._watch is not None
        await self.stop_edl()
        self._watch.cancel()
        await asyncio.gather(self._watch, return_exceptions=True)
        await self._api.close()

    async def stop_edl(self) -> None:
        """From here on the scheduler is alone.  Raises what EDL met."""
        edl, self._edl = self._edl, None
        if edl is not None:
            await edl.__aexit__(None, None, None)

    @property
    def edl(self) -> Autoscaling:
        """The autoscaler, while it runs."""
        assert self._edl is not None
        return self._edl

    async def begin(self, *, jobs: int, maximum: int, web: int, full: int) -> None:
        """Create the web and the jobs, and wait until `full` trainers fill the cluster."""
        self.full = full
        await self.open_web(web_of(WEB, replicas=web))
        await self.submit(
            job_of(f"job-{number}", maximum=maximum, life=DEAF, grace_s=GRACE_S) for number in range(jobs)
        )
        await self.wait(f"{full} trainers", lambda: self.standing() == full)

    async def open_web(self, body: dict[str, Any]) -> None:
        """Scale the Deployment WEB, and wait until it has its pods."""
        assert self._api is not None
        body["metadata"]["namespace"] = self.namespace
        await self._api.create(DEPLOYMENTS, body)
        await self.wait("the first web pods", lambda: self.running_web() == body["spec"]["replicas"])

    async def submit(self, jobs: Iterable[dict[str, Any]]) -> None:
        """Hand in TrainingJobs."""
        assert self._api is not None
        for body in jobs:
            body["metadata"]["namespace"] = self.namespace
            await self._api.create(TRAINING_JOBS, body)

    async def rise(self, more: int, *, budget_s: float = BUDGET_S) -> Rise:
        """The web wants so many pods more and gets them."""
        before, asked_at_s = {pod.uid for pod in self.timeline.web(WEB)}, time.monotonic()
        if self._edl is not None:
            self._edl.told.clear()
        await self._scale(len(before) + more)
        wanted = len(before) + more
        await self.wait(f"{wanted} web pods", lambda: self.running_web() == wanted, budget_s=budget_s)
        await asyncio.sleep(STILL_S)
        risen = [pod for pod in self.timeline.web(WEB) if pod.uid not in before]
        told = self.timeline.told_since(asked_at_s)
        causes = {} if self._edl is None else self._edl.told
        forced = [pod for pod in told if pod.is_preempted or causes.get(pod.name) in FORCED]
        verdicts = [pod.verdict_at_s - asked_at_s for pod in risen if pod.verdict_at_s is not None]
        return Rise(
            pods=more,
            first_verdict_s=min(verdicts, default=None),
            first_told_s=(forced[0].told_at_s or 0.0) - asked_at_s if forced else None,
            running_s=tuple((pod.running_at_s or 0.0) - pod.created_at_s for pod in risen),
            all_running_s=max(pod.running_at_s or 0.0 for pod in risen) - min(pod.created_at_s for pod in risen),
            lost=len(forced),
            moved=len(told) - len(forced),
            trainers=self.timeline.trainers(),
        )

    async def fall(self, less: int, *, budget_s: float = BUDGET_S) -> float:
        """The web wants so many pods less; how long until training has taken all of the room, in seconds."""
        asked_at_s = time.monotonic()
        await self._scale(len(self.timeline.web(WEB)) - less)
        await self.wait(f"{self.full} trainers again", lambda: self.standing() == self.full, budget_s=budget_s)
        return time.monotonic() - asked_at_s

    async def end(self) -> None:
        """Take the jobs and the web away."""
        assert self._api is not None
        for raw in (await self._api.list(TRAINING_JOBS)).items:
            await self._api.delete(TRAINING_JOBS, raw["metadata"]["name"], namespace=self.namespace)
        await self._api.delete(DEPLOYMENTS, WEB, namespace=self.namespace)

    def running_web(self) -> int:
        """Web pods that run and stay."""
        return sum(pod.running_at_s is not None for pod in self.timeline.web(WEB))

    def standing(self) -> int:
        """Trainers that run and stay, of all jobs."""
        return sum(self.timeline.trainers().values())

    def spread(self) -> int:
        """Difference in live trainers between the largest and the smallest job."""
        trainers = self.timeline.trainers().values()
        return max(trainers) - min(trainers)

    async def wait(self, what: str, holds: Callable[[], bool], *, budget_s: float = BUDGET_S) -> None:
        """Wait until it holds.  Raises AssertionError with the state of pods and EDL's errors."""
        assert self._watch is not None
        until_s = time.monotonic() + budget_s
        while not holds():
            if self._watch.done():
                self._watch.result()
            if self._edl is not None:
                self._edl.check()
            if time.monotonic() > until_s:
                said = self._edl.said() if self._edl is not None else "EDL is stopped"
                story = f"{self.running_web()} web pods, trainers {self.timeline.trainers()}; {said}"
                raise AssertionError(f"{what}: not within {budget_s:g} s: {story}")
            await asyncio.sleep(POLL_S)

    async def _scale(self, replicas: int) -> None:
        assert self._api is not None
        await self._api.patch(DEPLOYMENTS, WEB, {"spec": {"replicas": replicas}}, namespace=self.namespace)
