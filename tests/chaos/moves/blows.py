"""What is done to whom at which step: all combinations, dealt like cards, and how one is carried out.

Whoever meets the step stands still while the blow falls, so source, target, master, trainer and etcd are hit with the
move exactly there.  Then the one that stood goes on, unless it was the one to be hit.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from enum import StrEnum
from itertools import product

from tests.chaos.moves.cast import Actor, Cast, Part
from tests.chaos.moves.points import CUT_STEPS, Met, Points, Step
from tests.chaos.quorum import Quorum
from tests.chaos.signals import is_dead, state_of, until

LONG_PAUSES = 0.05  # beyond the time that a move may take: it is undone
LONG_PAUSE_S = 12.0
PAUSES = (0.3, 1.6)  # of the window that the pause is about: some end before it is over
RELEASE_AFTER_S = (0.0, 0.4)


class Victim(StrEnum):
    SOURCE = "source"
    TARGET = "target"
    MASTER = "master"
    TRAINER = "trainer"
    ETCD = "etcd"


class How(StrEnum):
    KILL = "kill"
    STOP = "stop"


@dataclass(frozen=True, slots=True, kw_only=True)
class Blow:
    step: Step
    victim: Victim
    how: How

    def __str__(self) -> str:
        return f"{self.how} {self.victim} at {self.step}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Landed:
    """`over_at_s`: from when on the job can recover (monotonic)."""

    blow: Blow
    told: str
    over_at_s: float


UNDOING = tuple(  # the next master undoes what it finds
    Blow(step=step, victim=Victim.MASTER, how=How.KILL)
    for step in (Step.INTENT, Step.FREEZE, Step.HANDOVER, Step.INSTALLED)
)


class Deck:
    """Every blow once, in the order of the seed, then all of them again."""

    def __init__(self, rng: random.Random, steps: Iterable[Step]) -> None:
        self._rng = rng
        self._steps = tuple(steps)
        self._cards: list[Blow] = []

    def deal(self, count: int, steps: Collection[Step]) -> list[Blow]:
        """About so many, one a step, of these: those at a cut's steps first, the others in the order of a move.

        What is to be done at UNDO needs a move that fails: what makes it fail is dealt with it.
        """
        cards = self._draw(count, [step for step in self._steps if step in steps])
        if any(blow.step is Step.UNDO for blow in cards):
            cards.append(self._rng.choice(UNDOING))
        dealt = {blow.step: blow for blow in cards}
        self.give_back(blow for blow in cards if blow not in dealt.values())
        order = [*CUT_STEPS, *(step for step in Step if step not in CUT_STEPS)]
        return sorted(dealt.values(), key=lambda blow: order.index(blow.step))

    def _draw(self, count: int, steps: Collection[Step]) -> list[Blow]:
        """The uppermost at these steps; what cannot be met by this job waits for another one."""
        while steps and sum(blow.step in steps for blow in self._cards) < count:
            fresh = [Blow(step=step, victim=who, how=how) for step, who, how in product(self._steps, Victim, How)]
            self._rng.shuffle(fresh)
            self._cards = fresh + self._cards
        drawn = [blow for blow in self._cards[::-1] if blow.step in steps][:count]
        for blow in drawn:
            self._cards.remove(blow)
        return drawn

    def give_back(self, blows: Iterable[Blow]) -> None:
        """They did not fall: they are dealt again, not at once."""
        for blow in blows:
            self._cards.insert(self._rng.randint(0, len(self._cards) // 2), blow)


class Fists:
    """Carries blows out on one job."""

    def __init__(self, cast: Cast, quorum: Quorum, points: Points, rng: random.Random) -> None:
        self._cast = cast
        self._quorum = quorum
        self._points = points
        self._rng = rng

    async def strike(self, blow: Blow, met: Met, sources: Callable[[Actor], bool]) -> Landed | None:
        """None: there was nobody to hit.  `sources`: which servers give buckets away."""
        holder = self._cast.by_pid(met.pid)
        try:
            if blow.victim is Victim.ETCD:
                told = await self._strike_etcd(blow, met)
            else:
                actor = self._choose(blow, holder, sources)
                told = await self._hit(blow, actor, met) if actor is not None else ""
        finally:
            self._points.release(met)
        where = f"{holder.name if holder else 'nobody'} stood there"
        return Landed(blow=blow, told=f"{told}; {where}", over_at_s=time.monotonic()) if told else None

    def _choose(self, blow: Blow, holder: Actor | None, sources: Callable[[Actor], bool]) -> Actor | None:
        match blow.victim:
            case Victim.MASTER:
                those = self._cast.here(Part.MASTER)
            case Victim.TRAINER:
                those = self._cast.here(Part.TRAINER)
            case _:
                servers = [a for a in self._cast.actors.values() if a.part is Part.SERVER and a.is_here]
                those = [a for a in servers if sources(a) is (blow.victim is Victim.SOURCE)]
                if holder in those:
                    return holder
        those = [actor for actor in those if not is_dead(actor.pid)]
        return self._rng.choice(those) if those else None

    async def _hit(self, blow: Blow, actor: Actor, met: Met) -> str:
        told = f"{actor.name} pid {actor.pid}"
        if blow.how is How.KILL:
            self._cast.kill(actor)
            return told if await until(lambda: is_dead(actor.pid)) else ""
        self._cast.pause(actor)
        if not await until(lambda: state_of(actor.pid) in {"T", "Z", ""}) or state_of(actor.pid) != "T":
            return ""
        pause_s = self._pause_s(actor.part)
        await self._let_go_beside(met if met.pid != actor.pid else None, pause_s)
        self._cast.resume(actor)
        return f"{told} for {pause_s:.1f} s"

    async def _strike_etcd(self, blow: Blow, met: Met) -> str:
        pause_s = self._cast.shape.leader_ttl_s * self._rng.uniform(0.5, 1.5)
        work = self._quorum.kill() if blow.how is How.KILL else self._quorum.stop(pause_s)
        told, _ = await asyncio.gather(work, self._let_go_beside(met, 0.0))
        return told

    async def _let_go_beside(self, met: Met | None, at_least_s: float) -> None:
        """The one that stood goes on while the other one stands."""
        first_s = self._rng.uniform(*RELEASE_AFTER_S)
        await asyncio.sleep(first_s)
        if met is not None:
            self._points.release(met)
        await asyncio.sleep(max(0.0, at_least_s - first_s))

    def _pause_s(self, part: Part) -> float:
        if self._rng.random() < LONG_PAUSES:
            return LONG_PAUSE_S
        shape = self._cast.shape
        window_s = {Part.MASTER: shape.leader_ttl_s, Part.SERVER: shape.reconnect_s, Part.TRAINER: shape.lease_floor_s}
        return window_s[part] * self._rng.uniform(*PAUSES)
