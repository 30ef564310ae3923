"""Plays the script on a live run: moves the web's replica count along the tide and lets the faults strike.

Everything goes through the local cluster's public calls, as `edl scale` and `edl drain` do; SIGKILL is a real signal.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Final

from autoscaler.clusters.local.run import LocalRun
from autoscaler.clusters.local.snapshot import PodLine
from autoscaler.domain import PodName, PodPhase, Role
from experiments.demo.run_samples import FaultMark
from experiments.demo.timeline import Fault, PlannedFault, WebLoad

STEP_S: Final = 0.2
STRIKE_LIMIT_S: Final = 20.0  # a fault waits this long for somebody to strike
WORKLOAD: Final = "web"


class LoadDriver:
    """One performance.  `marks` are the faults that have landed, `waits` how long each web pod was pending."""

    def __init__(self, run: LocalRun, tide: WebLoad, faults: Sequence[PlannedFault], *, seed: int) -> None:
        self._run = run
        self._tide = tide
        self._faults = list(faults)
        self._random = random.Random(seed)  # noqa: S311 - a play, not a secret
        self.marks: list[FaultMark] = []
        self._pending_s: dict[tuple[str, int | None], float | None] = {}

    @property
    def waits(self) -> tuple[float | None, ...]:
        """Seconds from creation to readiness of every web pod that there was; None: it never became ready."""
        return tuple(self._pending_s.values())

    async def drive(self) -> None:
        """Play until cancelled; the tide stays low when it has run out."""
        while True:
            snapshot = self._run.snapshot()
            self._scale(snapshot.t_s)
            self._watch(snapshot.pods)
            while self._faults and self._faults[0].at_s <= snapshot.t_s:
                await self._strike(self._faults.pop(0))
            await asyncio.sleep(STEP_S)

    def _scale(self, t_s: float) -> None:
        wanted = self._tide.replicas(t_s)
        if self._run.cluster.deployments[WORKLOAD].wanted != wanted:
            self._run.cluster.scale(WORKLOAD, wanted)

    def _watch(self, pods: Sequence[PodLine]) -> None:
        for pod in pods:
            if pod.role is Role.OTHER:
                self._pending_s[pod.name, pod.pid] = pod.pending_s
                if pod.pid is not None:  # it was noted without a process before
                    self._pending_s.pop((pod.name, None), None)

    async def _strike(self, fault: PlannedFault) -> None:
        """Strike a running member of the job, waiting a while for there to be one."""
        role = Role.MASTER if fault.fault is Fault.KILL_MASTER else Role.TRAINER
        for _ in range(int(STRIKE_LIMIT_S / STEP_S)):
            snapshot = self._run.snapshot()
            standing = [
                pod.name
                for pod in snapshot.pods
                if pod.owner == fault.job and pod.role is role and pod.phase is PodPhase.READY
            ]
            if standing and self._hit(fault, PodName(self._random.choice(standing))):
                self.marks.append(FaultMark(at_s=snapshot.t_s, label=fault.fault, job=fault.job))
                return
            await asyncio.sleep(STEP_S)

    def _hit(self, fault: PlannedFault, pod: PodName) -> bool:
        self._run.recorder.note("Fault", f"pod/{pod}", fault.fault, "struck by the demo")
        if fault.fault is Fault.DRAIN_TRAINER:
            self._run.cluster.leave(pod, why="drained by the demo")
            return True
        return self._run.cluster.kill(pod)
