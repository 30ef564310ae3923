"""The resizes of one job: each is begun, its blows fall, and the job gets over them.

Its steps are armed by name; whoever reaches one is held there while the blow falls.  A resize is over when the store
says that every server that is wanted owns buckets, nobody else does, nothing moves and second copies are where they can
be, and training has gone on since.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from tests.chaos.moves.etcd_oracle import Book, Truth
from tests.chaos.moves.failpoints import CUT_STEPS, Met, Points
from tests.chaos.moves.fault_matrix import Blow, Landed
from tests.chaos.moves.loss_checks import Losses
from tests.chaos.moves.notes import Notes
from tests.chaos.moves.process import Part
from tests.chaos.moves.processes import Cast
from tests.chaos.moves.resize_plans import Planned
from tests.chaos.moves.resizes import Order
from tests.chaos.moves.step_fault_injector import Fists
from tests.harness.master_status import ask_status, brief

START_BUDGET_S = 120.0
SETTLE_BUDGET_S = 150.0  # of a machine that has much else to do
END_BUDGET_S = 240.0
LOOK_EVERY_S = 0.1
LAST_OF_A_JOB = 0.15  # of its positions: with so few left no resize begins
MISSED_AFTER_S = 2.0
CUT_FIRST_S = 0.3  # a move that begins under an open cut is given so long


class Act:
    """The resizes of one job."""

    def __init__(self, cast: Cast, points: Points, book: Book, fists: Fists, notes: Notes) -> None:
        self._cast = cast
        self._points = points
        self._book = book
        self._fists = fists
        self._losses = Losses(cast, book)
        self._notes = notes
        self._truth: Truth | None = None
        self._given: Order | None = None

    async def begin(self) -> None:
        until_s = time.monotonic() + START_BUDGET_S
        while not (await self._done()) or not self._is_placed(await self._read()):
            if time.monotonic() > until_s:
                raise TimeoutError(f"{self._cast.job} does not begin: {await self._brief()}")
            await self._pause()

    async def has_room(self) -> bool:
        """Training goes on long enough for one more resize."""
        shape = self._cast.shape
        if self._cast.is_over:
            return False
        return (await self._done() or 0) < (1 - LAST_OF_A_JOB) * shape.size * shape.epochs

    async def resize(self, planned: Planned) -> None:
        """Raises TimeoutError when the job does not get there."""
        order, blows = planned.order, planned.blows
        watch = asyncio.create_task(self._watch())
        found: list[Landed | None] = []
        await self._losses.begin(order)
        try:
            if blows and blows[0].step in CUT_STEPS:
                found.append(await self._under_a_cut(blows[0], order))
            later = [self._one(blow, order) for blow in blows[len(found) :]]
            found += await asyncio.gather(*later) if planned.together else [await one for one in later]
            self._give(order)
            order.insist(self._cast)
            since_s = max((one.over_at_s for one in found if one), default=time.monotonic())
            await self._settle(order)
        finally:
            watch.cancel()
            await asyncio.gather(watch, return_exceptions=True)
            self._notes.take_back([blow for blow, one in zip(blows, found, strict=False) if one is None])
        self._notes.note_losses(self._cast.shape.kind, order, *await self._losses.end())
        self._notes.note(self._cast.shape.kind, order, [one for one in found if one], time.monotonic() - since_s)

    async def _under_a_cut(self, blow: Blow, order: Order) -> Landed | None:
        """The resize begins while somebody stands at a step of a cut."""
        self._points.arm(blow.step)
        met = await self._points.meet(
            blow.step, budget_s=self._cast.shape.meet_budget_s, give_up=lambda: self._cast.is_over
        )
        self._give(order)
        if met is None:
            return None
        await asyncio.sleep(CUT_FIRST_S)
        return await self._strike(blow, met, order)

    async def _one(self, blow: Blow, order: Order) -> Landed | None:
        self._points.arm(blow.step)
        await asyncio.sleep(0)  # others arm theirs before anything moves
        self._give(order)
        budget_s = self._cast.shape.meet_budget_s
        met = await self._points.meet(blow.step, budget_s=budget_s, give_up=self._given_up(order))
        return await self._strike(blow, met, order) if met is not None else None

    async def _strike(self, blow: Blow, met: Met, order: Order) -> Landed | None:
        before = await self._losses.look()
        landed = await self._fists.strike(blow, met, order.gives, before.truth)
        await self._losses.note(landed, before)
        return landed

    def _give(self, order: Order) -> None:
        if self._given is not order:
            self._given = order
            order.give(self._cast)

    def _given_up(self, order: Order) -> Callable[[], bool]:
        """A step of a resize that is over is not waited for; whoever was lost is missed after a while only."""
        early_s = time.monotonic() + (0.5 if self._cast.shape.kind.copies == 1 else MISSED_AFTER_S)

        def is_over() -> bool:
            is_early = time.monotonic() < early_s
            return self._cast.is_over or (not is_early and order.is_done(self._cast) and self._is_placed(self._truth))

        return is_over

    async def _settle(self, order: Order) -> None:
        until_s, lowest = time.monotonic() + SETTLE_BUDGET_S, None
        while not self._cast.is_over:
            done = await self._done()
            if done is not None:
                lowest = done if lowest is None else min(lowest, done)
                if done > lowest and order.is_done(self._cast) and self._is_placed(await self._read()):
                    return
                if done >= self._cast.shape.size * self._cast.shape.epochs:
                    return  # all is trained: nothing more moves
            if time.monotonic() > until_s:
                raise TimeoutError(f"{order} is not over: {await self._brief()}")
            await self._pause()

    async def end(self) -> None:
        """Training ends, as soon as it can; then the master is told to go and has gone, as of every job that has ended.

        The others are still here.  A master notes its last checkpoint in the folder before it goes; killed, it may not.
        """
        self._cast.hurry()
        await self._until(lambda: self._cast.is_over)
        for master in self._cast.here(Part.MASTER):
            self._cast.leave(master)
        await self._until(lambda: not any(a.is_here for a in self._cast.actors.values() if a.part is Part.MASTER))

    async def _until(self, is_so: Callable[[], bool]) -> None:
        until_s = time.monotonic() + END_BUDGET_S
        while not is_so():
            if time.monotonic() > until_s:
                raise TimeoutError(f"{self._cast.job} does not end: {await self._brief()}")
            await self._pause()

    # ---- what is known ----------------------------------------------------------------------------------------------

    async def _watch(self) -> None:
        while True:
            await self._read()
            await asyncio.sleep(LOOK_EVERY_S)

    async def _pause(self) -> None:
        self._cast.check()
        await asyncio.sleep(LOOK_EVERY_S)

    async def _read(self) -> Truth | None:
        self._truth = await self._book.read()
        return self._truth

    def _is_placed(self, truth: Truth | None) -> bool:
        """Those that are wanted own buckets, nobody else does, nothing moves, and second copies are where they can."""
        cast = self._cast
        wanted = {f"{cast.job}-{Part.SERVER}-{ordinal}" for ordinal in range(cast.servers_wanted)}
        if truth is None or truth.moving or truth.names != wanted:
            return False
        return cast.shape.kind.copies == 1 or len(wanted) == 1 or not truth.alone

    async def _done(self) -> int | None:
        status = await ask_status(self._cast.address, self._cast.job)
        return None if status is None else status.positions.done + status.positions.committed

    async def _brief(self) -> str:
        status = await ask_status(self._cast.address, self._cast.job)
        alive = [f"{a.name} pid {a.pid}" for a in self._cast.actors.values() if a.is_here]
        return f"{brief(status)}; the store: {await self._read()}; processes: {', '.join(alive)}"
