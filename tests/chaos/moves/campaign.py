"""Jobs of each kind in turn, resizes one after another over each, and the ledger's verdict at its end.

A resize is an order to the cast: so many servers, or one of them leaves and comes back (`orders`); a few blows fall at
named steps of it (`act`).  All that is random comes from one seed; what the machine makes of it is not repeatable, of
course.
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
from tests.chaos.moves.etcd_oracle import Book
from tests.chaos.moves.failpoints import Points
from tests.chaos.moves.job_kinds import JobKind
from tests.chaos.moves.notes import Notes, Report
from tests.chaos.moves.processes import Cast, Shape, on_stage
from tests.chaos.moves.resize_plans import Plan
from tests.chaos.moves.resize_runner import Act
from tests.chaos.moves.step_fault_injector import Fists
from tests.harness.etcd_faults import Quorum
from trainer_sdk.pserver.process.parameter_server import PIECE_BYTES

PATIENT_S = 8.0  # servers are waited for under a new master where one loss must take nothing back
RESIZES_EACH = 12  # of a job: so every kind has its share
PIECES = (64, PIECE_BYTES)  # its pushes are small: they are passed on as they come, or once they are there


def shaped(shape: Shape, kind: JobKind) -> Shape:
    """A job of this kind."""
    return replace(shape, kind=kind, reconnect_s=PATIENT_S if kind.copies > 1 else shape.reconnect_s)


class Campaign:
    """`fight` until the plan is over or the time is."""

    def __init__(
        self,
        folder: Path,
        etcd: EtcdCluster,
        *,
        plan: Plan,
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
        self._notes = Notes(plan, say)

    @property
    def report(self) -> Report:
        return self._notes.report

    @property
    def is_over(self) -> bool:
        is_late = time.monotonic() > self._until_s
        return is_late or self._plan.is_over(len(self.report.landed), self.report.resizes.total())

    async def fight(self, shape: Shape, kinds: Sequence[JobKind]) -> Report:
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
            await self.play(f"moves-{self.report.jobs + 1}", shaped(of_job, kind))
        return self.report

    async def play(self, job: str, shape: Shape) -> None:
        """One job from its start to its verdict.  Raises as `fight`."""
        self.report.jobs += 1
        share = self.report.shares[shape.kind]
        share.jobs += 1
        most = share.resizes + RESIZES_EACH
        folder = (self._folder / job).resolve()
        points = Points(folder / "points")
        cast = Cast(job, shape, folder=folder, etcd=self._etcd.endpoints, points=points.folder)
        watch = HeadWatch(cast.checkpoint_uri)
        told = f"batches of {shape.batch_size}, a checkpoint every {shape.checkpoint_every_s:g} s"
        if shape.piece_bytes != PIECE_BYTES:
            told += f", pushes passed on in pieces of {shape.piece_bytes} bytes"
        self._say(f"     {job} ({shape.kind}): {told}")
        try:
            async with _following(cast, watch), _book(self._etcd, job) as book:
                fists = Fists(cast, Quorum(self._etcd, self._rng), points, self._rng)
                act = Act(cast, points, book, fists, self._notes)
                await act.begin()
                while not self.is_over and share.resizes < most and await act.has_room():
                    await act.resize(self._plan.next(cast))
                await act.end()
        finally:
            self.report.problems += [f"{job}: {problem}" for problem in cast.problems]
            self.report.graces_over += cast.graces_over
        before = self.report.roll_backs
        self._say(f"     {job}: {self.report.judge(job, watch, cast.diaries, keeps=shape.kind.keeps)}")
        share.roll_backs += self.report.roll_backs - before


@asynccontextmanager
async def _following(cast: Cast, watch: HeadWatch) -> AsyncIterator[None]:
    """Processes run and heads are read; the last head is read when all is quiet."""
    async with watch.following(), on_stage(cast):
        yield


@asynccontextmanager
async def _book(etcd: EtcdCluster, job: str) -> AsyncIterator[Book]:
    book = Book(etcd.endpoints, job)
    try:
        yield book
    finally:
        await book.close()
