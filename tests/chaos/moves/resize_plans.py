"""Which resize comes next and what falls during it: dealt by chance, or written down."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from tests.chaos.moves.failpoints import COPY_STEPS, Step
from tests.chaos.moves.fault_matrix import Blow, Deck
from tests.chaos.moves.processes import Cast
from tests.chaos.moves.resizes import Order, Orders

BLOWS_EACH = (3, 3, 4, 4, 5)
TOGETHER = 0.4  # of the resizes have all their steps armed at once; the others one after another


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """One resize.  `together`: its steps are armed at once."""

    order: Order
    blows: Sequence[Blow]
    together: bool = False


class Plan(Protocol):
    """A campaign's next resizes."""

    def is_over(self, faults: int, resizes: int) -> bool:
        """So many have come about; no more are needed."""

    def next(self, cast: Cast) -> Planned:
        """The next one."""

    def take_back(self, blows: Iterable[Blow]) -> None:
        """These did not fall: their steps were not met."""


class Dealt:
    """Until there are enough: every blow once, then all of them again, over resizes by chance."""

    def __init__(self, rng: random.Random, *, faults: int, resizes: int, steps: Sequence[Step]) -> None:
        self._rng = rng
        self._faults, self._resizes = faults, resizes
        self._deck = Deck(rng, steps)
        self._orders = Orders(rng)

    def is_over(self, faults: int, resizes: int) -> bool:
        return faults >= self._faults and resizes >= self._resizes

    def next(self, cast: Cast) -> Planned:
        order = self._orders.next(cast)
        steps = [step for step in cast.shape.kind.steps if order.count > 1 or step not in COPY_STEPS]
        blows = self._deck.deal(self._rng.choice(BLOWS_EACH), steps)
        is_provoked = any(blow.step in {Step.PROMOTE, Step.ALONE, Step.CHANGED} for blow in blows)
        together = is_provoked or self._rng.random() < TOGETHER  # what is soon over is armed before it is provoked
        return Planned(order=order, blows=blows, together=together)

    def take_back(self, blows: Iterable[Blow]) -> None:
        self._deck.give_back(blows)


class Written:
    """These, in this order."""

    def __init__(self, lines: Sequence[tuple[Callable[[Cast], Order], Sequence[Blow]]]) -> None:
        self._lines = list(lines)
        self.missed: list[Blow] = []

    def is_over(self, faults: int, resizes: int) -> bool:
        return not self._lines

    def next(self, cast: Cast) -> Planned:
        order, blows = self._lines.pop(0)
        return Planned(order=order(cast), blows=blows)

    def take_back(self, blows: Iterable[Blow]) -> None:
        self.missed += blows
