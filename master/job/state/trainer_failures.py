"""Failures of trainers: positions that may have caused them are counted, pinned to one batch, left out (M4).

Each failure adds one to the positions that were in flight; an incarnation fails once, so K failures are K different
trainers.  An ack clears positions: they can be trained.  Suspects are granted as single batches.  Prime suspects, one
failure short of K, go to a trainer that holds nothing else, so that the culprit is found and not its neighbours.

A process that fails before it has completed a batch says nothing about positions: its script, memory limit or node
may be to blame.  Its positions are only *doubted*, and suspects go to processes that have completed a batch as long
as there is anything else to begin with (ADR 0301).  Counts outlive a roll-back and end with the term of the master.

Not here: how servers agree on a quarantine (`dispatch.skip_agreement`), the grant (`dispatch.lease_size`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from master.api.identities import Incarnation
from master.api.positions import EMPTY, PositionSet
from master.job.domain.durable_records import Instant, MemberKey

NOTES_KEPT: Final = 20  # for the status; older ones are in the log
COUNTED_KEPT: Final = 256
"""Incarnations remembered as having failed; an older one that lives and fails again would count twice, no more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureNote:
    """One failure for people: the member, the time, the positions in flight, its message."""

    member: MemberKey
    at: Instant
    positions: PositionSet
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureCounts:
    """`layers[i]`: positions with more than i failures and no success since; each layer lies inside the one before."""

    layers: tuple[PositionSet, ...] = ()
    doubted: PositionSet = EMPTY  # in flight when a process failed that had not completed a batch
    counted: tuple[Incarnation, ...] = ()  # whose failures these are: each process counts once
    in_a_row: int = 0  # scripts that raised, without one batch completed between them
    notes: tuple[FailureNote, ...] = ()

    @property
    def suspects(self) -> PositionSet:
        return self.doubted | self._at_least(1)

    @property
    def worst(self) -> PositionSet:
        """Positions with the most failures; the doubted ones where nothing has any."""
        return self.layers[-1] if self.layers else self.doubted

    @property
    def is_clear(self) -> bool:
        """True if there is nothing that an ack could clear."""
        return not (self.layers or self.doubted or self.in_a_row)

    def prime(self, limit: int) -> PositionSet:
        """Positions that one more failure quarantines."""
        return self._at_least(max(1, limit - 1))

    def to_quarantine(self, limit: int) -> PositionSet:
        """Positions with `limit` failures on as many trainers."""
        return self._at_least(limit)

    def _at_least(self, count: int) -> PositionSet:
        return self.layers[count - 1] if len(self.layers) >= count else EMPTY


def describe_limit(failures: FailureCounts, limit: int, unit: str) -> str:
    """Reason of a job that failed at its limit; the operator knows these reasons by their beginning.

    `unit`: what none of was completed, "batch" or "step".
    """
    counted = "1 failure" if failures.in_a_row == 1 else f"{failures.in_a_row} failures in a row"
    last = failures.notes[-1]
    counted = f"{counted} without one {unit} completed (backoffLimit {limit})"
    return f"{counted}; the last, of {last.member.name}: {last.message}"


def count_failure(
    failures: FailureCounts, failure: FailureNote, *, has_raised: bool, is_evidence: bool
) -> FailureCounts:
    """One trainer failed with `failure.positions` in flight; no change when this process has failed before.

    `has_raised`: its script raised, it was not just killed.  `is_evidence`: the failure counts against the positions.
    """
    incarnations = failure.member.incarnation
    if incarnations in failures.counted:
        return failures
    failures = replace(
        failures,
        counted=(*failures.counted, incarnations)[-COUNTED_KEPT:],
        in_a_row=failures.in_a_row + has_raised,
        notes=(*failures.notes, failure)[-NOTES_KEPT:],
    )
    if not is_evidence:
        return replace(failures, doubted=failures.doubted | failure.positions)
    layers, carried = [], failure.positions
    for layer in (*failures.layers, EMPTY):
        layers.append(layer | carried)
        carried = carried & layer
    return replace(failures, layers=tuple(layer for layer in layers if layer))


def clear_positions(failures: FailureCounts, positions: PositionSet) -> FailureCounts:
    """These positions were completed or quarantined: they are not suspects, and the row of failures ends."""
    if failures.is_clear:
        return failures
    left = tuple(layer - positions for layer in failures.layers)
    return replace(
        failures,
        layers=tuple(layer for layer in left if layer),
        doubted=failures.doubted - positions,
        in_a_row=0,
    )
