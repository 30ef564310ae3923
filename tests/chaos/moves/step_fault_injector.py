"""Fault injection at a step of a move, into one job.

The process that has reached the step stays stopped while the fault lands on source, target, owner, backup, master,
trainer or etcd.  Then it continues, unless the fault was for it.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Sequence

from autoscaler.domain import Role
from tests.chaos.moves.etcd_oracle import StoredPlacement
from tests.chaos.moves.failpoints import Failpoints, Step, StoppedProcess
from tests.chaos.moves.fault_matrix import FaultTarget, StepFault
from tests.chaos.moves.process import JobProcess
from tests.chaos.moves.processes import JobProcesses
from tests.harness.etcd_faults import EtcdFaultInjector
from tests.harness.faults import FaultKind, LandedFault
from tests.harness.process_state import has_died, has_stopped, is_process_dead

LONG_PAUSES = 0.05  # beyond the time that a move may take: it is undone
LONG_PAUSE_S = 12.0
PAUSES = (0.3, 1.6)  # of the window that the pause is about: some end before it is over
RELEASE_AFTER_S = (0.0, 0.4)
SECOND_AFTER_S = (0.0, 1.2)  # of both that are killed: some before the first one's loss is known


class StepFaultInjector:
    """Injects faults into one job."""

    def __init__(
        self, processes: JobProcesses, quorum: EtcdFaultInjector, failpoints: Failpoints, rng: random.Random
    ) -> None:
        self._processes = processes
        self._quorum = quorum
        self._failpoints = failpoints
        self._rng = rng

    async def inject(
        self,
        fault: StepFault,
        stopped: StoppedProcess,
        sources: Callable[[JobProcess], bool],
        placement: StoredPlacement | None,
    ) -> LandedFault[StepFault] | None:
        """The fault that landed; None without a process to hit.

        `sources` tells which servers give buckets away, `placement` which servers hold which copies.
        """
        holder = self._processes.by_pid(stopped.pid)
        names: frozenset[str] = frozenset()
        try:
            if fault.target is FaultTarget.ETCD:
                told = await self._hit_etcd(fault, stopped)
            else:
                processes = self._choose(fault, holder, sources, placement)
                told = await self._hit(fault, processes, stopped) if processes else ""
                names = frozenset(
                    self._processes.name_of(process) for process in processes if process.role is Role.SERVER
                )
        finally:
            self._failpoints.release(stopped)
        where = f"{holder.name if holder else 'no process'} was stopped there"
        return (
            LandedFault(fault=fault, target=f"{told}; {where}", over_at_s=time.monotonic(), servers=names)
            if told
            else None
        )

    def _choose(
        self,
        fault: StepFault,
        holder: JobProcess | None,
        sources: Callable[[JobProcess], bool],
        placement: StoredPlacement | None,
    ) -> list[JobProcess]:
        match fault.target:
            case FaultTarget.MASTER:
                those = self._processes.staying(Role.MASTER)
            case FaultTarget.TRAINER:
                those = self._processes.staying(Role.TRAINER)
            case FaultTarget.OWNER | FaultTarget.BACKUP | FaultTarget.BOTH:
                return self._choose_pair(fault, holder, placement)
            case _:
                servers = [
                    process for process in self._servers() if sources(process) is (fault.target is FaultTarget.SOURCE)
                ]
                if holder in servers:
                    return [holder]
                those = servers
        those = [process for process in those if not is_process_dead(process.pid)]
        return [self._rng.choice(those)] if those else []

    def _choose_pair(
        self, fault: StepFault, holder: JobProcess | None, placement: StoredPlacement | None
    ) -> list[JobProcess]:
        """An owner, its backup, or both; at PASS and PASSED one of them is the stopped process."""
        servers = {
            self._processes.name_of(process): process for process in self._servers() if not is_process_dead(process.pid)
        }
        known = sorted(placement.pairs) if placement is not None else []
        pairs = [(servers[owner], servers[backup]) for owner, backup in known if {owner, backup} <= servers.keys()]
        at = {Step.PASS: 0, Step.PASSED: 1}.get(fault.step)
        pairs = [pair for pair in pairs if at is None or pair[at] is holder]
        if not pairs:
            return []
        owner, backup = self._rng.choice(pairs)
        return {FaultTarget.OWNER: [owner], FaultTarget.BACKUP: [backup]}.get(fault.target, [owner, backup])

    def _servers(self) -> list[JobProcess]:
        return [
            process
            for process in self._processes.processes.values()
            if process.role is Role.SERVER and process.is_running
        ]

    async def _hit(self, fault: StepFault, processes: Sequence[JobProcess], stopped: StoppedProcess) -> str:
        told = " and ".join(f"{process.name} pid {process.pid}" for process in processes)
        if fault.kind is FaultKind.STOP:
            return await self._stop(processes, stopped, told)
        for number, process in enumerate(processes):
            if number:
                await self._release_and_wait(stopped, self._rng.uniform(*SECOND_AFTER_S))
            self._processes.kill(process)
            if not await has_died(process.pid):
                return ""
        return told

    async def _stop(self, processes: Sequence[JobProcess], stopped: StoppedProcess, told: str) -> str:
        for process in processes:
            self._processes.pause(process)
        try:
            if not all([await has_stopped(process.pid) for process in processes]):
                return ""
            pause_s = self._pause_s(processes[0].role)
            is_beside = stopped.pid not in {process.pid for process in processes}
            await self._release_and_wait(stopped if is_beside else None, pause_s)
        finally:
            for process in processes:
                self._processes.resume(process)
        return f"{told} for {pause_s:.1f} s"

    async def _hit_etcd(self, fault: StepFault, stopped: StoppedProcess) -> str:
        pause_s = self._processes.shape.leader_ttl_s * self._rng.uniform(0.5, 1.5)
        work = self._quorum.kill() if fault.kind is FaultKind.KILL else self._quorum.stop(pause_s)
        told, _ = await asyncio.gather(work, self._release_and_wait(stopped, 0.0))
        return told

    async def _release_and_wait(self, stopped: StoppedProcess | None, at_least_s: float) -> None:
        """Releases the stopped process after a moment; returns after `at_least_s`."""
        first_s = self._rng.uniform(*RELEASE_AFTER_S)
        await asyncio.sleep(first_s)
        if stopped is not None:
            self._failpoints.release(stopped)
        await asyncio.sleep(max(0.0, at_least_s - first_s))

    def _pause_s(self, role: Role) -> float:
        if self._rng.random() < LONG_PAUSES:
            return LONG_PAUSE_S
        shape = self._processes.shape
        window_s = {
            Role.MASTER: shape.leader_ttl_s,
            Role.SERVER: shape.server_pause_s,
            Role.TRAINER: shape.lease_floor_s,
        }
        return window_s[role] * self._rng.uniform(*PAUSES)
