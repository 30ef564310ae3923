"""The autoscaler in this process on a real control plane: adapter, planner and loop, without the operator around them.

Jobs live here for ever and own nothing but pods: what is under test is how EDL and kube-scheduler get on.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from autoscaler.cluster_port import WriteResult
from autoscaler.clusters.kubernetes.api.http_client import HttpApi, connect
from autoscaler.clusters.kubernetes.cluster_view import JobRuntime
from autoscaler.clusters.kubernetes.parsing.training_jobs import KubeJob
from autoscaler.domain import Cause, ClusterView, DeletePod, JobState, Pod, PodName, PodPhase, Policy, Role
from autoscaler.loop import LoopPass
from tests.harness.waiting import BUDGET_S
from tests.perturb.composition import compose

POLL_S: Final = 0.05


class Autoscaling:
    """An async context: inside it the loop runs.

    `applied` counts writes by kind of action and verdict, `told` says why EDL told a pod to leave.
    """

    def __init__(self, kubeconfig: Path, policy: Policy) -> None:
        self.policy = policy
        self.applied: Counter[tuple[str, WriteResult]] = Counter()
        self.told: dict[PodName, Cause] = {}
        self.problems: list[str] = []
        self._kubeconfig = kubeconfig
        self._api: HttpApi | None = None
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self._api = await connect(self._kubeconfig)
        composed = compose(
            self._api,
            self.policy,
            clock=time.monotonic,
            offset_s=time.monotonic() - time.time(),
            jitter=random.random,
            facts_of=lambda _job: JobRuntime(state=JobState.ACTIVE),
            prepare=self._prepare,
            listen=self._listen,
        )
        self.cluster, self.loop = composed.cluster, composed.loop
        self._tasks = [asyncio.create_task(composed.run())]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._tasks:
            task.cancel()
        ends = await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._api is not None:
            await self._api.close()
        for end in ends:
            if isinstance(end, Exception) and error is None:
                raise end

    async def wait(self, what: str, holds: Callable[[ClusterView], bool], *, budget_s: float = BUDGET_S) -> ClusterView:
        """The first view of which this holds.  Raises AssertionError with the last one."""
        until_s = time.monotonic() + budget_s
        while not holds(view := self.cluster.view()):
            self.check()
            if time.monotonic() > until_s:
                raise AssertionError(f"{what}: not within {budget_s:g} s; {self.said()}")
            await asyncio.sleep(POLL_S)
        return view

    def check(self) -> None:
        """Raises what a task of it has ended with."""
        for task in self._tasks:
            if task.done():
                task.result()

    def said(self) -> str:
        """Its last decisions and problems."""
        decisions = self.loop.last_plan.decisions if self.loop.last_plan is not None else ()
        told = [f"{d.job}: {d.now} -> {d.target}, {d.bottleneck}: {d.message}" for d in decisions]
        return f"{told}; {self.problems[-5:]}"

    def _listen(self, step: LoopPass) -> None:
        for action, outcome in step.applied:
            self.applied[type(action).__name__, outcome.result] += 1
            if isinstance(action, DeletePod):
                self.told[action.pod] = action.cause
            if outcome.result is not WriteResult.DONE:
                self.problems.append(f"{type(action).__name__}: {outcome.message}")

    async def _prepare(self, job: KubeJob) -> None:
        """Pods of stand-in nodes mount nothing."""


def trainers(view: ClusterView, job: str) -> list[Pod]:
    """Those that run."""
    return [pod for pod in view.pods if pod.job == job and pod.role is Role.TRAINER and pod.phase is PodPhase.READY]
