"""What is done to whom at which step: all combinations, dealt like cards.  How one is carried out: `fists`."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tests.chaos.moves.failpoints import COPY_STEPS, CUT_STEPS, Step


class Victim(StrEnum):
    SOURCE = "source"
    TARGET = "target"
    OWNER = "owner"  # of a bucket that has two copies
    BACKUP = "backup"
    BOTH = "both"  # the one soon after the other
    MASTER = "master"
    TRAINER = "trainer"
    ETCD = "etcd"


_EVERYBODY: Final = (Victim.MASTER, Victim.TRAINER, Victim.ETCD)
_OF_A_MOVE: Final = (Victim.SOURCE, Victim.TARGET, *_EVERYBODY)
_OF_COPIES: Final = (Victim.OWNER, Victim.BACKUP, Victim.BOTH, *_EVERYBODY)


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
    """`over_at_s`: from when on the job can recover (monotonic); `names`: of the servers that were hit."""

    blow: Blow
    told: str
    over_at_s: float
    names: frozenset[str]


def _kills(victim: Victim, *steps: Step) -> tuple[Blow, ...]:
    return tuple(Blow(step=step, victim=victim, how=How.KILL) for step in steps)


_LOSING: Final = (*_kills(Victim.OWNER, Step.PASS, Step.PASSED), *_kills(Victim.BACKUP, Step.PASS, Step.PASSED))

PROVOKES: Final[Mapping[Step, tuple[Blow, ...]]] = {
    # the next master undoes what it finds
    Step.UNDO: _kills(Victim.MASTER, Step.INTENT, Step.FREEZE, Step.HANDOVER, Step.INSTALLED),
    Step.PROMOTE: _LOSING,
    Step.ALONE: _LOSING,
}
"""Steps that nobody reaches unless something has failed, and what makes it fail."""


def victims_at(step: Step) -> tuple[Victim, ...]:
    return _OF_COPIES if step in COPY_STEPS else _OF_A_MOVE


class Deck:
    """Every blow once, in the order of the seed, then all of them again."""

    def __init__(self, rng: random.Random, steps: Iterable[Step]) -> None:
        self._rng = rng
        self._steps = tuple(steps)
        self._cards: list[Blow] = []

    def deal(self, count: int, steps: Collection[Step]) -> list[Blow]:
        """About so many, one a step, of these: those at a cut's steps first, the others in the order of a move.

        What a step needs to be met is dealt with it.
        """
        cards = self._draw(count, [step for step in self._steps if step in steps])
        cards += [self._rng.choice(PROVOKES[step]) for step in sorted({blow.step for blow in cards} & PROVOKES.keys())]
        dealt = {blow.step: blow for blow in cards}
        self.give_back(blow for blow in cards if blow not in dealt.values())
        order = [*CUT_STEPS, *(step for step in Step if step not in CUT_STEPS)]
        return sorted(dealt.values(), key=lambda blow: order.index(blow.step))

    def _draw(self, count: int, steps: Collection[Step]) -> list[Blow]:
        """The uppermost at these steps; what cannot be met by this job waits for another one."""
        while steps and sum(blow.step in steps for blow in self._cards) < count:
            all_of_them = ((step, victim, how) for step in self._steps for victim in victims_at(step) for how in How)
            fresh = [Blow(step=step, victim=victim, how=how) for step, victim, how in all_of_them]
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
