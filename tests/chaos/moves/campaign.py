"""A campaign: one job of each kind after another, resizes of its servers under faults, and its ledger's verdict.

A resize changes the number of servers, or replaces one (`resizes`); faults land at named steps of it
(`resize_runner`).  One seed decides all that is random; what the machine makes of it cannot be repeated.
"""

from __future__ import annotations

import random
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import cycle
from pathlib import Path

from autoscaler.etcd_server.etcd_members import EtcdCluster
from tests.chaos.head_watch import HeadWatch
from tests.chaos.moves.etcd_oracle import EtcdOracle
from tests.chaos.moves.failpoints import Failpoints
from tests.chaos.moves.job_kinds import ChaosJobKind
from tests.chaos.moves.processes import JobProcesses, MovesJobShape, start_processes
from tests.chaos.moves.report import CampaignLog, MovesReport
from tests.chaos.moves.resize_plans import ResizePlan
from tests.chaos.moves.resize_runner import ResizeRunner
from tests.chaos.moves.step_fault_injector import StepFaultInjector
from tests.harness.etcd_faults import EtcdFaultInjector
from trainer_sdk.pserver.process.parameter_server import PIECE_BYTES

PATIENT_S = 8.0  # servers are waited for under a new master where one loss must take nothing back
RESIZES_EACH = 12  # of a job: so every kind has its share
PIECES = (64, PIECE_BYTES)  # its pushes are small: they are passed on as they come, or once they are there


def shaped(shape: MovesJobShape, kind: ChaosJobKind) -> MovesJobShape:
    """A job of this kind."""
    return replace(shape, kind=kind, reconnect_s=PATIENT_S if kind.copies > 1 else shape.reconnect_s)


class MovesCampaign:
    """Injects faults until the plan is over or the time is."""

    def __init__(
        self,
        folder: Path,
        etcd: EtcdCluster,
        *,
        plan: ResizePlan,
        rng: random.Random,
        until_s: float,  # monotonic: no resize begins after that
        say: Callable[[str], None],
    ) -> None:
        self._folder = folder
        self._etcd = etcd
        self._plan = plan
        self._rng = rng
        self._until_s = until_s
        self._say = say
        self._log = CampaignLog(plan, say)

    @property
    def report(self) -> MovesReport:
        return self._log.report

    @property
    def is_over(self) -> bool:
        is_late = time.monotonic() > self._until_s
        return is_late or self._plan.is_over(len(self.report.landed), self.report.resizes.total())

    async def run(self, shape: MovesJobShape, kinds: Sequence[ChaosJobKind]) -> MovesReport:
        """A job of each kind in turn, with other batches and commits.

        Raises TimeoutError: a job does not start, settle or end.
        """
        for kind in cycle(kinds):
            if self.is_over:
                break
            batch_size, every_s = self._rng.choice((5, 8, 12)), self._rng.choice((0.3, 0.8, 2.0))
            of_job = replace(shape, batch_size=batch_size, checkpoint_every_s=every_s)
            if kind.copies > 1:
                of_job = replace(of_job, piece_bytes=self._rng.choice(PIECES))
            await self.run_job(f"moves-{self.report.jobs + 1}", shaped(of_job, kind))
        return self.report

    async def run_job(self, job: str, shape: MovesJobShape) -> None:
        """One job from its start to its verdict.  Raises as `run`."""
        self.report.jobs += 1
        share = self.report.shares[shape.kind]
        share.jobs += 1
        most = share.resizes + RESIZES_EACH
        folder = (self._folder / job).resolve()
        failpoints = Failpoints(folder / "failpoints")
        processes = JobProcesses(job, shape, folder=folder, etcd=self._etcd.endpoints, failpoints=failpoints.folder)
        watch = HeadWatch(processes.checkpoint_uri)
        told = f"batches of {shape.batch_size}, a checkpoint every {shape.checkpoint_every_s:g} s"
        if shape.piece_bytes != PIECE_BYTES:
            told += f", pushes passed on in pieces of {shape.piece_bytes} bytes"
        self._say(f"     {job} ({shape.kind}): {told}")
        try:
            async with _following(processes, watch), _oracle(self._etcd, job) as oracle:
                injector = StepFaultInjector(processes, EtcdFaultInjector(self._etcd, self._rng), failpoints, self._rng)
                runner = ResizeRunner(processes, failpoints, oracle, injector, self._log)
                await runner.begin()
                while not self.is_over and share.resizes < most and await runner.has_room():
                    await runner.resize(self._plan.next(processes))
                await runner.end()
        finally:
            self.report.problems += [f"{job}: {problem}" for problem in processes.problems]
            self.report.graces_over += processes.graces_over
        before = self.report.roll_backs
        self._say(f"     {job}: {self.report.judge(job, watch, processes.diaries, keeps=shape.kind.keeps)}")
        share.roll_backs += self.report.roll_backs - before


@asynccontextmanager
async def _following(processes: JobProcesses, watch: HeadWatch) -> AsyncIterator[None]:
    """Processes run and heads are read; the last head is read when all is quiet."""
    async with watch.following(), start_processes(processes):
        yield


@asynccontextmanager
async def _oracle(etcd: EtcdCluster, job: str) -> AsyncIterator[EtcdOracle]:
    oracle = EtcdOracle(etcd.endpoints, job)
    try:
        yield oracle
    finally:
        await oracle.close()
