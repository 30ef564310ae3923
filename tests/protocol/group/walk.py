"""Random walks of a group that has too many states to be explored: four or five trainers with the real cores.

A walk takes one possible move after another, drawn by a seed, and asks the model's invariants after each.  It proves
less than an exploration, and meets what small groups have not: a state that is passed on by who has just taken it
(rule 71, ADR 0295), and several plans in a row.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Final

from tests.protocol.group.change import Change
from tests.protocol.group.model import GroupModel
from tests.protocol.group.settings import NO_FAULTS, GroupSetting
from tests.protocol.group.world import Collectives, GroupWorld

FAULT_WEIGHT: Final = 0.03
"""Of a fault beside a move that is none: most walks meet it in the middle of something.

Each trainer has faults of its own.  At 0.1 one of four was dead before the sync in each of sixty walks, and the sender
served the two that were left by itself.
"""
JOIN_WEIGHT: Final = 8.0
"""Of a trainer that comes: several join by one plan, so that a state is passed on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Walk:
    """`problem`: what is violated, with `trace` to it; empty: nothing.  `passed_on`: generations that did so."""

    problem: str = ""
    trace: tuple[str, ...] = ()
    has_ended: bool = False
    passed_on: frozenset[int] = field(default_factory=frozenset)

    def __str__(self) -> str:
        lines = [self.problem, *(f"{number:4d}. {label}" for number, label in enumerate(self.trace, 1))]
        return "\n".join(lines)


def walk(setting: GroupSetting, seed: int, *, moves: int) -> Walk:
    """At most so many moves; it ends before with the job, or with a problem."""
    model, random = GroupModel(setting), Random(seed)
    world, trace, passed = model.initial(), [], set[int]()
    for _ in range(moves):
        if model.is_end(world):
            return Walk(trace=tuple(trace), has_ended=True, passed_on=frozenset(passed))
        changes = model.possible(world)
        move = model.move(world, random.choices(changes, [_weight(one) for one in changes])[0])
        trace.append(str(move.label))
        if move.violation is not None:
            return Walk(problem=move.violation, trace=tuple(trace), passed_on=frozenset(passed))
        world = move.target
        passed |= _passed_on(world)
    return Walk(trace=tuple(trace), passed_on=frozenset(passed))


def _weight(change: Change) -> float:
    if change.label.endswith(" comes"):
        return JOIN_WEIGHT
    return FAULT_WEIGHT if change.fault and change.fault not in NO_FAULTS else 1.0


def _passed_on(world: GroupWorld) -> set[int]:
    """Generations in which one that lacked the state has taken it and given it to another."""
    return {group.record.number for group in world.groups if _has_passed_on(group)}


def _has_passed_on(group: Collectives) -> bool:
    held = [entry.state for entry in group.entries if entry is not None and entry.state is not None]
    newest = max(held, default=None)
    return any(
        bits is not None and entry is not None and newest is not None and entry.state != newest
        for bits, entry in zip(group.captured, group.entries, strict=True)
    )
