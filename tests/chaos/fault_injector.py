"""Fault injection into a job of a local run: kills and pauses of its processes and of etcd, and drains."""

from __future__ import annotations

import asyncio
import math
import random
import signal
import time
from enum import StrEnum
from typing import assert_never

from autoscaler.domain import Role
from autoscaler.local_run.run_snapshot import PodLine
from master.api.master_status import JobPhase, JobStatus
from tests.chaos.chaos_run import POLL_S, ChaosJobShape, ChaosRun
from tests.harness.etcd_faults import EtcdFaultInjector
from tests.harness.faults import LandedFault
from tests.harness.process_state import has_died, has_stopped, process_state

ROLL_BACK_BUDGET_S = 30.0
LONG_STOPS = 0.15
BROKEN_AFTER_S = 18.0  # keepalive has closed a silent connection by then (master.api.wire.grpc_options)


class Fault(StrEnum):
    TRAINER_KILL = "kill trainer"
    SERVER_KILL = "kill server"
    MASTER_KILL = "kill master"
    ETCD_KILL = "kill etcd member"
    TRAINER_STOP = "stop trainer past its lease"
    SERVER_STOP = "stop server past its window"
    MASTER_STOP = "stop master past its term"
    ETCD_STOP = "stop all of etcd"
    TRAINER_DRAIN = "drain trainer"
    ROLL_BACK_STOP = "stop trainer over a roll-back"  # it wakes up with a gradient of the lineage before


WEIGHTS = {
    Fault.TRAINER_KILL: 30,
    Fault.SERVER_KILL: 18,
    Fault.MASTER_KILL: 16,
    Fault.ETCD_KILL: 12,
    Fault.TRAINER_STOP: 6,
    Fault.SERVER_STOP: 4,
    Fault.MASTER_STOP: 4,
    Fault.ETCD_STOP: 3,
    Fault.TRAINER_DRAIN: 7,
    Fault.ROLL_BACK_STOP: 5,
}


ROLES = {
    Fault.TRAINER_KILL: Role.TRAINER,
    Fault.SERVER_KILL: Role.SERVER,
    Fault.MASTER_KILL: Role.MASTER,
    Fault.TRAINER_STOP: Role.TRAINER,
    Fault.SERVER_STOP: Role.SERVER,
    Fault.MASTER_STOP: Role.MASTER,
}


def draw_fault(rng: random.Random) -> Fault:
    return rng.choices(list(WEIGHTS), weights=list(WEIGHTS.values()))[0]


class FaultInjector:
    """Injects faults into one job.  A pause outlasts the time-out that it is meant for by a little; some, by far."""

    def __init__(self, chaos_run: ChaosRun, shape: ChaosJobShape, rng: random.Random) -> None:
        self._chaos_run = chaos_run
        self._shape = shape
        self._rng = rng
        self._windows_s = {
            Fault.TRAINER_STOP: shape.lease_floor_s,
            Fault.SERVER_STOP: shape.reconnect_s,
            Fault.MASTER_STOP: shape.leader_ttl_s,
        }
        self._etcd_faults = EtcdFaultInjector(chaos_run.etcd, rng)
        self._held_until_s: dict[
            int, float
        ] = {}  # by pid: when a stopped process was continued; infinite while it is stopped

    async def inject(self, fault: Fault, job: str) -> LandedFault[Fault] | None:
        """The fault that landed; None without a process to hit, or if the process was gone first."""
        match fault:
            case Fault.TRAINER_KILL | Fault.SERVER_KILL | Fault.MASTER_KILL:
                return await self._kill(fault, job)
            case Fault.TRAINER_STOP | Fault.SERVER_STOP | Fault.MASTER_STOP:
                return await self._stop(fault, job)
            case Fault.ETCD_KILL | Fault.ETCD_STOP:
                return await self._hit_etcd(fault)
            case Fault.TRAINER_DRAIN:
                return await self._drain(job)
            case Fault.ROLL_BACK_STOP:
                return await self._stop_over_roll_back(job)
            case _:
                assert_never(fault)

    def was_held(self, pid: int) -> bool:
        """True if the process was stopped during the grace period that is over now: then it could not leave in time."""
        return time.monotonic() < self._held_until_s.get(pid, -math.inf) + self._shape.grace_s

    def _hold(self, pod: PodLine) -> bool:
        self._held_until_s[pod.pid] = math.inf
        return self._chaos_run.kill(pod.name, signal.SIGSTOP)

    def _let_go(self, pod: PodLine) -> None:
        self._chaos_run.kill(pod.name, signal.SIGCONT)
        self._held_until_s[pod.pid] = time.monotonic()

    def _choose(self, job: str, role: Role) -> PodLine | None:
        pods = self._chaos_run.pods(job, role)
        return self._rng.choice(pods) if pods else None

    async def _kill(self, fault: Fault, job: str) -> LandedFault[Fault] | None:
        pod = self._choose(job, ROLES[fault])
        if pod is None or not self._chaos_run.kill(pod.name, signal.SIGKILL) or not await has_died(pod.pid):
            return None
        return _landed(fault, f"{pod.name} pid {pod.pid}")

    async def _stop(self, fault: Fault, job: str) -> LandedFault[Fault] | None:
        pod = self._choose(job, ROLES[fault])
        if pod is None or not self._hold(pod):
            return None
        began_at_s, has_landed = time.monotonic(), await has_stopped(pod.pid)
        is_long = self._rng.random() < LONG_STOPS
        await asyncio.sleep(BROKEN_AFTER_S if is_long else self._windows_s[fault] * self._rng.uniform(1.1, 1.6))
        self._let_go(pod)
        told = f"{pod.name} pid {pod.pid} for {time.monotonic() - began_at_s:.1f} s"
        return _landed(fault, told) if has_landed else None

    async def _stop_over_roll_back(self, job: str) -> LandedFault[Fault] | None:
        """A trainer is stopped while a killed server causes a roll-back: one fault, on two processes."""
        trainer, server, before = (
            self._choose(job, Role.TRAINER),
            self._choose(job, Role.SERVER),
            await self._chaos_run.status(job),
        )
        if trainer is None or server is None or before is None:
            return None
        began_at_s = time.monotonic()
        if not self._hold(trainer):
            return None
        try:
            if not self._chaos_run.kill(server.name, signal.SIGKILL):
                return None
            until_s = began_at_s + ROLL_BACK_BUDGET_S
            while (status := await self._chaos_run.status(job)) is None or not _has_restored(status, before):
                if time.monotonic() > until_s or self._chaos_run.has_ended(job):
                    return None
                await asyncio.sleep(POLL_S)
            has_landed = process_state(trainer.pid) == "T"
        finally:
            self._let_go(trainer)
        stopped_s = time.monotonic() - began_at_s
        told = f"{trainer.name} pid {trainer.pid} for {stopped_s:.1f} s, {server.name} killed"
        return _landed(Fault.ROLL_BACK_STOP, told) if has_landed else None

    async def _hit_etcd(self, fault: Fault) -> LandedFault[Fault] | None:
        if fault is Fault.ETCD_KILL:
            target = await self._etcd_faults.kill()
        else:
            target = await self._etcd_faults.stop(self._shape.leader_ttl_s * self._rng.uniform(0.5, 1.5))
        return _landed(fault, target) if target else None

    async def _drain(self, job: str) -> LandedFault[Fault] | None:
        pod = self._choose(job, Role.TRAINER)
        if pod is None:
            return None
        await self._chaos_run.drain(pod.name)
        return _landed(Fault.TRAINER_DRAIN, f"{pod.name} pid {pod.pid}") if await has_died(pod.pid) else None


def _landed(fault: Fault, target: str) -> LandedFault[Fault]:
    return LandedFault(fault=fault, target=target, over_at_s=time.monotonic())


def _has_restored(status: JobStatus, before: JobStatus) -> bool:
    return status.lineage > before.lineage and status.phase in {JobPhase.TRAINING, JobPhase.COMMITTING}
