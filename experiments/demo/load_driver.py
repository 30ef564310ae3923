"""Driver of a live demo: sets the web's replica count along the load curve, and injects the faults.

It uses the calls of the local cluster that `edl scale` and `edl drain` use; SIGKILL is a real signal.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Final

from autoscaler.clusters.local.run.local_run import LocalRun
from autoscaler.clusters.local.run.run_snapshot import PodLine
from autoscaler.domain import PodName, PodPhase, Role
from experiments.demo.demo_samples import FaultMark
from experiments.demo.load_and_faults import Fault, PlannedFault, WebLoad

STEP_S: Final = 0.2
TARGET_TIMEOUT_S: Final = 20.0  # a fault waits this long for a ready pod
WORKLOAD: Final = "web"


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
            self._scale(snapshot.t_s)
            self._watch(snapshot.pods)
            while self._faults and self._faults[0].at_s <= snapshot.t_s:
                await self._inject(self._faults.pop(0))
            await asyncio.sleep(STEP_S)

    def _scale(self, t_s: float) -> None:
        wanted = self._web_load.replicas(t_s)
        if self._run.cluster.deployments[WORKLOAD].wanted != wanted:
            self._run.cluster.scale(WORKLOAD, wanted)

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
            if ready and self._apply_fault(fault, PodName(self._random.choice(ready))):
                self.marks.append(FaultMark(at_s=snapshot.t_s, label=fault.fault, job=fault.job))
                return
            await asyncio.sleep(STEP_S)

    def _apply_fault(self, fault: PlannedFault, pod: PodName) -> bool:
        self._run.recorder.record_event("Fault", f"pod/{pod}", fault.fault, "injected by the demo")
        if fault.fault is Fault.DRAIN_TRAINER:
            self._run.cluster.leave(pod, why="drained by the demo")
            return True
        return self._run.cluster.kill(pod)
