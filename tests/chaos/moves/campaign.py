"""Resizes one after another, each with a few blows at named steps, over jobs that are judged by their ledgers.

A resize is an order to the cast: so many servers, or one of them leaves and comes back.  Its steps are armed by name;
whoever reaches one is held there while the blow falls.  A resize is over when the store says that every server that is
wanted owns buckets, nobody else does and nothing moves, and training has gone on since.  All that is random comes from
one seed; what the machine makes of it is not repeatable, of course.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from itertools import cycle
from pathlib import Path

from master.etcd_server.cluster import EtcdCluster
from tests.chaos.asking import ask_status, brief
from tests.chaos.heads import HeadWatch
from tests.chaos.moves.blows import Blow, Fists, Landed
from tests.chaos.moves.cast import Cast, Part, Shape, on_stage
from tests.chaos.moves.kinds import JobKind
from tests.chaos.moves.orders import Order
from tests.chaos.moves.plans import Plan, Planned
from tests.chaos.moves.points import CUT_STEPS, Points, Step
from tests.chaos.moves.truth import Book, Truth
from tests.chaos.quorum import Quorum
from tests.chaos.tally import Tally

START_BUDGET_S = 60.0
MEET_BUDGET_S = 8.0
SETTLE_BUDGET_S = 90.0
END_BUDGET_S = 240.0
LOOK_EVERY_S = 0.1
LAST_OF_A_JOB = 0.15  # of its positions: with so few left no resize begins
RESIZES_EACH = 12  # of a job: so every kind has its share
CUT_FIRST_S = 0.3  # a move that begins under an open cut is given so long


@dataclass(slots=True, kw_only=True)
class Share:
    """What one kind of job had of it."""

    jobs: int = 0
    resizes: int = 0
    faults: int = 0
    roll_backs: int = 0  # or, where the others keep what they have, as often as that


@dataclass(slots=True, kw_only=True)
class Report(Tally):
    """What a campaign found."""

    shares: dict[JobKind, Share] = field(default_factory=lambda: defaultdict(Share))
    landed: list[Landed] = field(default_factory=list)
    resizes: Counter[str] = field(default_factory=Counter)
    took_s: list[float] = field(default_factory=list)  # from the last blow to a resize's end
    unmet: Counter[Step] = field(default_factory=Counter)  # steps that a resize ended without
    graces_over: int = 0


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
        self.report = Report()

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
            job = f"moves-{self.report.jobs + 1}"
            await self.play(job, replace(shape, kind=kind, batch_size=batch_size, checkpoint_every_s=every_s))
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
        self._say(f"     {job} ({shape.kind}): {told}")
        try:
            async with _following(cast, watch), _book(self._etcd, job) as book:
                fists = Fists(cast, Quorum(self._etcd, self._rng), points, self._rng)
                act = _Act(cast, points, book, fists, self)
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

    def take_back(self, blows: Sequence[Blow]) -> None:
        """These did not fall: their steps were not met."""
        self._plan.take_back(blows)
        self.report.unmet.update(blow.step for blow in blows)

    def note(self, kind: JobKind, order: Order, landed: Sequence[Landed], took_s: float) -> None:
        """The resize is over, the job has recovered."""
        self.report.shares[kind].resizes += 1
        self.report.shares[kind].faults += len(landed)
        self.report.resizes[order.kind] += 1
        self.report.landed += landed
        self.report.took_s.append(took_s)
        total, faults = self.report.resizes.total(), len(self.report.landed)
        self._say(f"{total:4} {order}: {len(landed)} blows, over {took_s:.1f} s after the last; {faults} so far")
        for one in landed:
            self._say(f"       {one.blow} ({one.told})")


class _Act:
    """The resizes of one job."""

    def __init__(self, cast: Cast, points: Points, book: Book, fists: Fists, campaign: Campaign) -> None:
        self._cast = cast
        self._points = points
        self._book = book
        self._fists = fists
        self._campaign = campaign
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
            self._campaign.take_back([blow for blow, one in zip(blows, found, strict=False) if one is None])
        self._campaign.note(self._cast.shape.kind, order, [one for one in found if one], time.monotonic() - since_s)

    async def _under_a_cut(self, blow: Blow, order: Order) -> Landed | None:
        """The resize begins while somebody stands at a step of a cut."""
        self._points.arm(blow.step)
        met = await self._points.meet(blow.step, budget_s=MEET_BUDGET_S, give_up=lambda: self._cast.is_over)
        self._give(order)
        if met is None:
            return None
        await asyncio.sleep(CUT_FIRST_S)
        return await self._fists.strike(blow, met, order.gives)

    async def _one(self, blow: Blow, order: Order) -> Landed | None:
        self._points.arm(blow.step)
        await asyncio.sleep(0)  # others arm theirs before anything moves
        self._give(order)
        met = await self._points.meet(blow.step, budget_s=MEET_BUDGET_S, give_up=self._given_up(order))
        return await self._fists.strike(blow, met, order.gives) if met is not None else None

    def _give(self, order: Order) -> None:
        if self._given is not order:
            self._given = order
            order.give(self._cast)

    def _given_up(self, order: Order) -> Callable[[], bool]:
        """A step of a resize that is over is not waited for."""
        begun_s = time.monotonic()

        def is_over() -> bool:
            is_early = time.monotonic() < begun_s + 0.5
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
        """Training ends, as soon as it can, then everybody goes."""
        self._cast.hurry()
        until_s = time.monotonic() + END_BUDGET_S
        while not self._cast.is_over:
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
        """Those that are wanted own buckets, nobody else does, and nothing moves."""
        cast = self._cast
        wanted = {f"{cast.job}-{Part.SERVER}-{ordinal}" for ordinal in range(cast.servers_wanted)}
        return truth is not None and not truth.moving and truth.names == wanted

    async def _done(self) -> int | None:
        status = await ask_status(self._cast.address, self._cast.job)
        return None if status is None else status.positions.done + status.positions.committed

    async def _brief(self) -> str:
        status = await ask_status(self._cast.address, self._cast.job)
        alive = [f"{a.name} pid {a.pid}" for a in self._cast.actors.values() if a.is_here]
        return f"{brief(status)}; the store: {await self._read()}; processes: {', '.join(alive)}"


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
