"""Positions that kill trainers: counted, pinned to one batch, left out (M4).

Each failure adds one to the positions that were in flight; an incarnation fails once, so K failures are K different
trainers.  An ack acquits: whoever trained it is the proof that it can be trained.  Suspects are granted as single
batches, prime suspects (one failure short of K) to a trainer that holds nothing else, so that the culprit is named and
not its neighbours.  Counts outlive a roll-back; they are soft state and end with the term.

Not here: how quarantine is agreed with the servers (`skipping`), the grant itself (`shards`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from master.api.positions import EMPTY, PositionSet
from master.domain import Instant, MemberKey

NOTES_KEPT: Final = 20  # for the status; older ones are in the log


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureNote:
    """For people: who failed when, with what in flight, and what it said."""

    member: MemberKey
    at: Instant
    positions: PositionSet
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Failures:
    """`layers[i]`: positions with more than i failures and no success since; each layer lies inside the one before."""

    layers: tuple[PositionSet, ...] = ()
    in_a_row: int = 0  # scripts that raised, without one batch completed between them
    notes: tuple[FailureNote, ...] = ()

    @property
    def suspects(self) -> PositionSet:
        return self.layers[0] if self.layers else EMPTY

    def prime(self, limit: int) -> PositionSet:
        """One more failure quarantines these."""
        return self._at_least(max(1, limit - 1))

    def condemned(self, limit: int) -> PositionSet:
        """`limit` failures on as many trainers."""
        return self._at_least(limit)

    def _at_least(self, count: int) -> PositionSet:
        return self.layers[count - 1] if len(self.layers) >= count else EMPTY


def count_failure(failures: Failures, note: FailureNote, *, has_raised: bool) -> Failures:
    """One trainer failed with `note.positions` in flight.  `has_raised`: its script said so, it was not just killed."""
    layers, carried = [], note.positions
    for layer in (*failures.layers, EMPTY):
        layers.append(layer | carried)
        carried = carried & layer
    return replace(
        failures,
        layers=tuple(layer for layer in layers if layer),
        in_a_row=failures.in_a_row + has_raised,
        notes=(*failures.notes, note)[-NOTES_KEPT:],
    )


def acquit(failures: Failures, positions: PositionSet) -> Failures:
    """These were completed (or are quarantined): no suspects any more, and the row of failures is broken."""
    if not failures.layers and not failures.in_a_row:
        return failures
    left = tuple(layer - positions for layer in failures.layers)
    return replace(failures, layers=tuple(layer for layer in left if layer), in_a_row=0)
