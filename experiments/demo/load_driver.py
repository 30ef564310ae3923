"""Driver of a live demo: sets the web's replica count along the load curve, and injects the faults.

It writes to the run's API server as `edl scale` and `edl drain` do; SIGKILL is a real signal.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Final

from autoscaler.clusters.kubernetes.api.errors import NotFoundError
from autoscaler.clusters.kubernetes.api.kinds import DEPLOYMENTS, PODS
from autoscaler.domain import PodPhase, Role
from autoscaler.local_run.local_run import LocalRun
from autoscaler.local_run.run_snapshot import DeploymentLine, PodLine
from experiments.demo.demo_samples import FaultMark
from experiments.demo.load_and_faults import Fault, PlannedFault, WebLoad

STEP_S: Final = 0.2
TARGET_TIMEOUT_S: Final = 20.0  # a fault waits this long for a ready pod
WORKLOAD: Final = "web"
NAMESPACE: Final = "default"


class LoadDriver:
    """Load and faults of one demo.  `marks`: the injected faults; `waits`: how long each web pod was pending."""

    def __init__(self, run: LocalRun, web_load: WebLoad, faults: Sequence[PlannedFault], *, seed: int) -> None:
        self._run = run
        self._web_load = web_load
        self._faults = list(faults)
        self._random = random.Random(seed)  # noqa: S311 - a demo, not a secret
        self.marks: list[FaultMark] = []
        self._pending_s: dict[tuple[str, int | None], float | None] = {}

    @property
    def waits(self) -> tuple[float | None, ...]:
        """Seconds from creation to readiness of every web pod; None if it never became ready."""
        return tuple(self._pending_s.values())

    async def drive(self) -> None:
        """Drive until cancelled; the load stays low after its end."""
        while True:
            snapshot = self._run.snapshot()
            await self._scale(snapshot.t_s, snapshot.deployments)
            self._watch(snapshot.pods)
            while self._faults and self._faults[0].at_s <= snapshot.t_s:
                await self._inject(self._faults.pop(0))
            await asyncio.sleep(STEP_S)

    async def _scale(self, t_s: float, deployments: Sequence[DeploymentLine]) -> None:
        wanted = self._web_load.replicas(t_s)
        if any(line.name == WORKLOAD and line.wanted != wanted for line in deployments):
            await self._run.api.patch(DEPLOYMENTS, WORKLOAD, {"spec": {"replicas": wanted}}, namespace=NAMESPACE)

    def _watch(self, pods: Sequence[PodLine]) -> None:
        for pod in pods:
            if pod.role is Role.EXTERNAL:
                self._pending_s[pod.name, pod.pid] = pod.pending_s
                if pod.pid is not None:  # it was recorded without a process before
                    self._pending_s.pop((pod.name, None), None)

    async def _inject(self, fault: PlannedFault) -> None:
        """Inject a fault into a ready pod of the job, and wait a while for there to be one."""
        role = Role.MASTER if fault.fault is Fault.KILL_MASTER else Role.TRAINER
        for _ in range(int(TARGET_TIMEOUT_S / STEP_S)):
            snapshot = self._run.snapshot()
            ready = [
                pod.name
                for pod in snapshot.pods
                if pod.owner == fault.job and pod.role is role and pod.phase is PodPhase.READY
            ]
            if ready and await self._apply_fault(fault, self._random.choice(ready)):
                self.marks.append(FaultMark(at_s=snapshot.t_s, label=fault.fault, job=fault.job))
                return
            await asyncio.sleep(STEP_S)

    async def _apply_fault(self, fault: PlannedFault, pod: str) -> bool:
        self._run.recorder.record_event("Fault", f"pod/{pod}", fault.fault, "injected by the demo")
        if fault.fault is Fault.DRAIN_TRAINER:
            try:
                await self._run.api.delete(PODS, pod, namespace=NAMESPACE)
            except NotFoundError:
                return False
            return True
        return self._run.kill(pod)
