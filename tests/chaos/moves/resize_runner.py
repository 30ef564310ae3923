"""Runs the resizes of one job: begins each, injects its faults, and waits until the job has recovered.

The failpoint of each step is armed; the process that reaches it is stopped while the fault lands.  A resize is over
when the store says that exactly the wanted servers own buckets, no bucket moves and second copies are where they can
be, and when training has advanced since.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from autoscaler.domain import Role
from tests.chaos.moves.etcd_oracle import EtcdOracle, StoredPlacement
from tests.chaos.moves.failpoints import CUT_STEPS, Failpoints, StoppedProcess
from tests.chaos.moves.fault_matrix import StepFault
from tests.chaos.moves.loss_checks import LossChecks
from tests.chaos.moves.processes import JobProcesses
from tests.chaos.moves.report import CampaignLog
from tests.chaos.moves.resize_plans import PlannedResize
from tests.chaos.moves.resizes import ServerResize
from tests.chaos.moves.step_fault_injector import StepFaultInjector
from tests.harness.faults import LandedFault
from tests.harness.master_status import describe_status, try_status

START_BUDGET_S = 120.0
SETTLE_BUDGET_S = 150.0  # of a machine that has much else to do
END_BUDGET_S = 240.0
POLL_S = 0.1
LAST_OF_A_JOB = 0.15  # of its positions: with so few left no resize begins
MISSED_AFTER_S = 2.0
CUT_FIRST_S = 0.3  # a move that begins under an open cut is given so long


class ResizeRunner:
    """Begins resizes of one job and injects their faults."""

    def __init__(
        self,
        processes: JobProcesses,
        failpoints: Failpoints,
        oracle: EtcdOracle,
        injector: StepFaultInjector,
        log: CampaignLog,
    ) -> None:
        self._processes = processes
        self._failpoints = failpoints
        self._oracle = oracle
        self._injector = injector
        self._losses = LossChecks(processes, oracle)
        self._log = log
        self._placement: StoredPlacement | None = None
        self._begun: ServerResize | None = None

    async def begin(self) -> None:
        until_s = time.monotonic() + START_BUDGET_S
        while not (await self._done()) or not self._is_placed(await self._read()):
            if time.monotonic() > until_s:
                raise TimeoutError(f"{self._processes.job} does not begin: {await self._brief()}")
            await self._pause()

    async def has_room(self) -> bool:
        """True if enough is left to train for one more resize."""
        shape = self._processes.shape
        if self._processes.is_over:
            return False
        return (await self._done() or 0) < (1 - LAST_OF_A_JOB) * shape.size * shape.epochs

    async def resize(self, planned: PlannedResize) -> None:
        """Raises TimeoutError when the job does not get there."""
        resize, faults = planned.resize, planned.faults
        watch = asyncio.create_task(self._watch())
        found: list[LandedFault[StepFault] | None] = []
        await self._losses.begin(resize)
        try:
            if faults and faults[0].step in CUT_STEPS:
                found.append(await self._under_a_cut(faults[0], resize))
            later = [self._inject_at_step(fault, resize) for fault in faults[len(found) :]]
            found += await asyncio.gather(*later) if planned.together else [await one for one in later]
            self._begin(resize)
            resize.change_mind(self._processes)
            since_s = max((one.over_at_s for one in found if one), default=time.monotonic())
            await self._settle(resize)
        finally:
            watch.cancel()
            await asyncio.gather(watch, return_exceptions=True)
            self._log.put_back([fault for fault, one in zip(faults, found, strict=False) if one is None])
        self._log.add_losses(self._processes.shape.kind, resize, *await self._losses.end())
        self._log.add_resize(
            self._processes.shape.kind, resize, [one for one in found if one], time.monotonic() - since_s
        )

    async def _under_a_cut(self, fault: StepFault, resize: ServerResize) -> LandedFault[StepFault] | None:
        """The resize begins while a process is stopped at a step of a cut."""
        self._failpoints.arm(fault.step)
        stopped = await self._failpoints.wait_reached(
            fault.step, budget_s=self._processes.shape.meet_budget_s, give_up=lambda: self._processes.is_over
        )
        self._begin(resize)
        if stopped is None:
            return None
        await asyncio.sleep(CUT_FIRST_S)
        return await self._inject(fault, stopped, resize)

    async def _inject_at_step(self, fault: StepFault, resize: ServerResize) -> LandedFault[StepFault] | None:
        self._failpoints.arm(fault.step)
        await asyncio.sleep(0)  # the other faults arm their steps before anything moves
        self._begin(resize)
        budget_s = self._processes.shape.meet_budget_s
        stopped = await self._failpoints.wait_reached(fault.step, budget_s=budget_s, give_up=self._give_up_when(resize))
        return await self._inject(fault, stopped, resize) if stopped is not None else None

    async def _inject(
        self, fault: StepFault, stopped: StoppedProcess, resize: ServerResize
    ) -> LandedFault[StepFault] | None:
        before = await self._losses.observe()
        landed = await self._injector.inject(fault, stopped, resize.is_source, before.placement)
        await self._losses.handle_fault(landed, before)
        return landed

    def _begin(self, resize: ServerResize) -> None:
        if self._begun is not resize:
            self._begun = resize
            resize.begin(self._processes)

    def _give_up_when(self, resize: ServerResize) -> Callable[[], bool]:
        """No step is awaited once the resize is over; a lost server is noticed only after a while."""
        early_s = time.monotonic() + (0.5 if self._processes.shape.kind.copies == 1 else MISSED_AFTER_S)

        def is_over() -> bool:
            is_early = time.monotonic() < early_s
            return self._processes.is_over or (
                not is_early and resize.is_done(self._processes) and self._is_placed(self._placement)
            )

        return is_over

    async def _settle(self, resize: ServerResize) -> None:
        until_s, lowest = time.monotonic() + SETTLE_BUDGET_S, None
        while not self._processes.is_over:
            done = await self._done()
            if done is not None:
                lowest = done if lowest is None else min(lowest, done)
                if done > lowest and resize.is_done(self._processes) and self._is_placed(await self._read()):
                    return
                if done >= self._processes.shape.size * self._processes.shape.epochs:
                    return  # all positions are trained: no bucket moves any more
            if time.monotonic() > until_s:
                raise TimeoutError(f"{resize} is not over: {await self._brief()}")
            await self._pause()

    async def end(self) -> None:
        """Training ends as soon as it can, then the master is terminated; servers and trainers still run.

        A master writes the hint of its last checkpoint into the folder before it ends; one that is killed may not.
        """
        self._processes.hurry()
        await self._until(lambda: self._processes.is_over)
        for master in self._processes.staying(Role.MASTER):
            self._processes.terminate(master)
        await self._until(
            lambda: not any(a.is_running for a in self._processes.processes.values() if a.role is Role.MASTER)
        )

    async def _until(self, is_so: Callable[[], bool]) -> None:
        until_s = time.monotonic() + END_BUDGET_S
        while not is_so():
            if time.monotonic() > until_s:
                raise TimeoutError(f"{self._processes.job} does not end: {await self._brief()}")
            await self._pause()

    # ---- what is known ----------------------------------------------------------------------------------------------

    async def _watch(self) -> None:
        while True:
            await self._read()
            await asyncio.sleep(POLL_S)

    async def _pause(self) -> None:
        self._processes.check()
        await asyncio.sleep(POLL_S)

    async def _read(self) -> StoredPlacement | None:
        self._placement = await self._oracle.read()
        return self._placement

    def _is_placed(self, placement: StoredPlacement | None) -> bool:
        """True if exactly the wanted servers own buckets, none moves, and second copies are where they can be."""
        processes = self._processes
        wanted = {f"{processes.job}-{Role.SERVER}-{ordinal}" for ordinal in range(processes.servers_wanted)}
        if placement is None or placement.moving or placement.names != wanted:
            return False
        return processes.shape.kind.copies == 1 or len(wanted) == 1 or not placement.single_copies

    async def _done(self) -> int | None:
        status = await try_status(self._processes.address, self._processes.job)
        return None if status is None else status.positions.done + status.positions.committed

    async def _brief(self) -> str:
        status = await try_status(self._processes.address, self._processes.job)
        alive = [f"{a.name} pid {a.pid}" for a in self._processes.processes.values() if a.is_running]
        return f"{describe_status(status)}; the store: {await self._read()}; processes: {', '.join(alive)}"
