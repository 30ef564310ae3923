"""What is asked of the cast: another number of servers, one that leaves and comes back, two wishes at once."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from tests.chaos.moves.process import Actor, Part
from tests.chaos.moves.processes import Cast

SIZES = {1: (1, 2, 2, 3, 3, 4), 2: (1, 2, 3, 3, 3, 4)}  # by copies of a bucket: with one server it has one
LEAVES = 0.2
CHANGES_OF_MIND = 0.1
BY_SIGNAL = 0.5
OTHER_TRAINERS = 0.25


class Kind(StrEnum):
    GROW = "grow"
    SHRINK = "shrink"
    LEAVE = "leave and come back"
    TWO_WISHES = "two wishes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """One resize.  `first`: of two wishes, the one that is replaced at once; `leaver`: who has to go."""

    kind: Kind
    before: int
    count: int
    trainers: int
    first: int | None = None
    leaver: Actor | None = None
    by_signal: bool = False

    def __str__(self) -> str:
        told = f"{self.kind} {self.before} -> {self.count}"
        return told + (f" by way of {self.first}" if self.first else "") + (" by signal" if self.by_signal else "")

    def give(self, cast: Cast) -> None:
        cast.leave_by_signal = self.by_signal
        cast.trainers_wanted = self.trainers
        cast.servers_wanted = self.first or self.count
        if self.leaver is not None and self.leaver.is_here:
            cast.leave(self.leaver)

    def insist(self, cast: Cast) -> None:
        """The second wish takes the place of the first."""
        cast.servers_wanted = self.count

    def is_done(self, cast: Cast) -> bool:
        """Of the processes: those that are wanted run, the others have gone."""
        ordinals = [a.ordinal for a in cast.actors.values() if a.part is Part.SERVER and a.is_here and not a.is_leaving]
        leaving = any(a.part is Part.SERVER and a.is_here and a.is_leaving for a in cast.actors.values())
        return not leaving and sorted(ordinals) == list(range(self.count))

    @property
    def fewest(self) -> int:
        """Servers that are wanted at some time of it."""
        return min(self.before, self.count, self.first or self.count)

    def gives(self, server: Actor) -> bool:
        """Whether this server gives buckets away; the others take them."""
        if self.leaver is not None:
            return server.pid == self.leaver.pid
        return server.ordinal >= self.count if self.count < self.before else server.ordinal < self.before


def sized(count: int, *, by_signal: bool = False) -> Callable[[Cast], Order]:
    """So many servers."""

    def order(cast: Cast) -> Order:
        before = cast.servers_wanted
        kind = Kind.GROW if count > before else Kind.SHRINK
        return Order(kind=kind, before=before, count=count, trainers=cast.trainers_wanted, by_signal=by_signal)

    return order


def left_by(ordinal: int) -> Callable[[Cast], Order]:
    """This server leaves; another process with its ordinal comes."""

    def order(cast: Cast) -> Order:
        count = cast.servers_wanted
        leaver = cast.actors[f"{Part.SERVER}-{ordinal}"]
        return Order(kind=Kind.LEAVE, before=count, count=count, trainers=cast.trainers_wanted, leaver=leaver)

    return order


class Orders:
    """Chooses the next one."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def next(self, cast: Cast) -> Order:
        rng, before = self._rng, cast.servers_wanted
        trainers = rng.randint(1, 3) if rng.random() < OTHER_TRAINERS else cast.trainers_wanted
        by_signal = rng.random() < BY_SIGNAL
        servers = cast.here(Part.SERVER)
        if before > 1 and servers and rng.random() < LEAVES:
            leaver = rng.choice(servers)
            return Order(kind=Kind.LEAVE, before=before, count=before, trainers=trainers, leaver=leaver, by_signal=True)
        sizes = SIZES[cast.shape.kind.copies]
        count = rng.choice([size for size in sizes if size != before])
        kind = Kind.GROW if count > before else Kind.SHRINK
        first = None
        if rng.random() < CHANGES_OF_MIND:
            kind, first = Kind.TWO_WISHES, rng.choice([size for size in sizes if size not in {before, count}])
        return Order(
            kind=kind,
            before=before,
            count=count,
            first=first,
            trainers=trainers,
            by_signal=by_signal and count < before,
        )
