"""How a blow is carried out on one job.

Whoever meets the step stands still while the blow falls, so source, target, owner, backup, master, trainer and etcd are
hit with the move exactly there.  Then the one that stood goes on, unless it was the one to be hit.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Sequence

from tests.chaos.moves.etcd_oracle import Truth
from tests.chaos.moves.failpoints import Met, Points, Step
from tests.chaos.moves.fault_matrix import Blow, How, Landed, Victim
from tests.chaos.moves.process import Actor, Part
from tests.chaos.moves.processes import Cast
from tests.harness.etcd_faults import Quorum
from tests.harness.process_state import is_dead, state_of, until

LONG_PAUSES = 0.05  # beyond the time that a move may take: it is undone
LONG_PAUSE_S = 12.0
PAUSES = (0.3, 1.6)  # of the window that the pause is about: some end before it is over
RELEASE_AFTER_S = (0.0, 0.4)
SECOND_AFTER_S = (0.0, 1.2)  # of both that are killed: some before the first one's loss is known


class Fists:
    """Carries blows out."""

    def __init__(self, cast: Cast, quorum: Quorum, points: Points, rng: random.Random) -> None:
        self._cast = cast
        self._quorum = quorum
        self._points = points
        self._rng = rng

    async def strike(
        self, blow: Blow, met: Met, sources: Callable[[Actor], bool], truth: Truth | None
    ) -> Landed | None:
        """None: there was nobody to hit.  `sources`: which servers give buckets away; `truth`: who has which copies."""
        holder = self._cast.by_pid(met.pid)
        names: frozenset[str] = frozenset()
        try:
            if blow.victim is Victim.ETCD:
                told = await self._strike_etcd(blow, met)
            else:
                actors = self._choose(blow, holder, sources, truth)
                told = await self._hit(blow, actors, met) if actors else ""
                names = frozenset(self._cast.name_of(actor) for actor in actors if actor.part is Part.SERVER)
        finally:
            self._points.release(met)
        where = f"{holder.name if holder else 'nobody'} stood there"
        return Landed(blow=blow, told=f"{told}; {where}", over_at_s=time.monotonic(), names=names) if told else None

    def _choose(
        self, blow: Blow, holder: Actor | None, sources: Callable[[Actor], bool], truth: Truth | None
    ) -> list[Actor]:
        match blow.victim:
            case Victim.MASTER:
                those = self._cast.here(Part.MASTER)
            case Victim.TRAINER:
                those = self._cast.here(Part.TRAINER)
            case Victim.OWNER | Victim.BACKUP | Victim.BOTH:
                return self._choose_pair(blow, holder, truth)
            case _:
                servers = [actor for actor in self._servers() if sources(actor) is (blow.victim is Victim.SOURCE)]
                if holder in servers:
                    return [holder]
                those = servers
        those = [actor for actor in those if not is_dead(actor.pid)]
        return [self._rng.choice(those)] if those else []

    def _choose_pair(self, blow: Blow, holder: Actor | None, truth: Truth | None) -> list[Actor]:
        """Of an owner and its backup; who stands at PASS or PASSED is one of them."""
        servers = {self._cast.name_of(actor): actor for actor in self._servers() if not is_dead(actor.pid)}
        known = sorted(truth.pairs) if truth is not None else []
        pairs = [(servers[owner], servers[backup]) for owner, backup in known if {owner, backup} <= servers.keys()]
        at = {Step.PASS: 0, Step.PASSED: 1}.get(blow.step)
        pairs = [pair for pair in pairs if at is None or pair[at] is holder]
        if not pairs:
            return []
        owner, backup = self._rng.choice(pairs)
        return {Victim.OWNER: [owner], Victim.BACKUP: [backup]}.get(blow.victim, [owner, backup])

    def _servers(self) -> list[Actor]:
        return [actor for actor in self._cast.actors.values() if actor.part is Part.SERVER and actor.is_here]

    async def _hit(self, blow: Blow, actors: Sequence[Actor], met: Met) -> str:
        told = " and ".join(f"{actor.name} pid {actor.pid}" for actor in actors)
        if blow.how is How.STOP:
            return await self._stop(actors, met, told)
        for number, actor in enumerate(actors):
            if number:
                await self._let_go_beside(met, self._rng.uniform(*SECOND_AFTER_S))
            self._cast.kill(actor)
            if not await until(lambda actor=actor: is_dead(actor.pid)):
                return ""
        return told

    async def _stop(self, actors: Sequence[Actor], met: Met, told: str) -> str:
        for actor in actors:
            self._cast.pause(actor)
        try:
            for actor in actors:
                await until(lambda actor=actor: state_of(actor.pid) in {"T", "Z", ""})
            if any(state_of(actor.pid) != "T" for actor in actors):
                return ""
            pause_s = self._pause_s(actors[0].part)
            is_beside = met.pid not in {actor.pid for actor in actors}
            await self._let_go_beside(met if is_beside else None, pause_s)
        finally:
            for actor in actors:
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
        window_s = {
            Part.MASTER: shape.leader_ttl_s,
            Part.SERVER: shape.server_pause_s,
            Part.TRAINER: shape.lease_floor_s,
        }
        return window_s[part] * self._rng.uniform(*PAUSES)
