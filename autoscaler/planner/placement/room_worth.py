"""Worth of rooms to whole trainers, by which servers move (`relocations`): best fillings by what running jobs lack.

A job that waits for its gang adds no kind of trainer: gangs get room by their own phase, and one that never fits would
count for ever. Of the other kinds each node counts the few that would take most (`packing_patterns.MOST_KINDS`).
"""

from __future__ import annotations

from itertools import islice
from math import gcd
from typing import Final

from autoscaler.domain import JobState, Role
from autoscaler.planner.placement.packing_patterns import MOST_KINDS, Patterns, minus, patterns_of, worths_of
from autoscaler.planner.working_copy.shapes import ColumnAmounts, sort_key
from autoscaler.planner.working_copy.working_copy import WorkingCopy

MOST_HELD: Final = 200  # trainers on one node that are looked at one by one


class RoomWorth:
    """Worths of rooms in this plan. Worths have one unit, and compare exactly."""

    def __init__(self, copy: WorkingCopy) -> None:
        self._copy = copy
        lacked: dict[int, int] = {}
        for job in copy.jobs.values():
            count = job.spec.trainer.ceiling - job.size
            if job.is_running and job.spec.state is JobState.ACTIVE and count > 0:
                number = job.shapes[Role.TRAINER]
                lacked[number] = lacked.get(number, 0) + count
        shapes = copy.shapes.shapes
        worths = worths_of([shapes[number] for number in copy.by_trainer], copy.capacity.ready_capacity())
        self._worths = {number: worths[shapes[number]] for number in copy.by_trainer}
        kinds = [number for number in lacked if self._worths[number] > 0]
        kinds.sort(key=lambda number: (-lacked[number] * self._worths[number], sort_key(shapes[number])))
        self._kinds = [(number, copy.capacity.accepted(number)) for number in kinds]
        self._patterns: dict[tuple[int, ...], tuple[Patterns, int]] = {}
        self._held: dict[int, list[tuple[int, ColumnAmounts]]] = {}

    def worth_of(self, trainer: int) -> int:
        """Return what one trainer of this shape is worth."""
        return self._worths[trainer]

    def lacked(self, at: int, free: ColumnAmounts) -> int | None:
        """Return the worth of a node's free amounts to trainers that running jobs lack.

        None for a node far from full: nothing is wasted there.
        """
        patterns, unit = self._patterns_of(self._kinds_at(at))
        worth = patterns.worth(free)
        return None if worth is None else worth * unit

    def beside_held(self, at: int, free: ColumnAmounts) -> int | None:
        """Return the same where the node's trainers of kinds that no job lacks may stay: each is worth what it is.

        As many are kept as is best, the smallest first. None for a node far from full.
        """
        best, kept = self.lacked(at, free), 0
        for worth, amounts in self._held_on(at):
            free, kept = minus(free, amounts), kept + worth
            rest = None if min(free) < 0 else self.lacked(at, free)
            if best is None or rest is None:
                break
            best = max(best, kept + rest)
        return best

    def _kinds_at(self, at: int) -> tuple[int, ...]:
        return tuple(islice((number for number, accepted in self._kinds if accepted[at]), MOST_KINDS))

    def _patterns_of(self, kinds: tuple[int, ...]) -> tuple[Patterns, int]:
        """Return the patterns of these trainers, and the unit of their worths: reduced ones are alike in all plans."""
        found = self._patterns.get(kinds)
        if found is None:
            unit = gcd(*(self._worths[number] for number in kinds)) or 1
            amounts = self._copy.capacity.request_amounts
            pods = tuple((amounts(number), self._worths[number] // unit) for number in kinds)
            found = self._patterns[kinds] = (patterns_of(pods), unit)
        return found

    def _held_on(self, at: int) -> list[tuple[int, ColumnAmounts]]:
        """Return worth and requests of the surplus trainers on the node of kinds that no job lacks, smallest first."""
        held = self._held.get(at)
        if held is None:
            jobs, lacked = self._copy.jobs, set(self._kinds_at(at))
            owners = [jobs[name] for name in self._copy.surplus_owners.get(at, ()) if name is not None and name in jobs]
            there = [number for job in owners if (number := job.shapes[Role.TRAINER]) not in lacked]
            amounts = self._copy.capacity.request_amounts
            held = self._held[at] = sorted((self._worths[number], amounts(number)) for number in there)[:MOST_HELD]
        return held
