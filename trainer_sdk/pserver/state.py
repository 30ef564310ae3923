"""What a parameter server knows of its buckets, apart from their numbers: lineage, marks, and the newest cut.

Buckets with equal marks are one `Group`, so a server with hundreds of buckets usually has one set to keep (rule 5).
A group also carries what the open fork has (`ForkMarks`), so live bucket and fork are judged and marked in one step.
Parameters and slots are in `tables`; the transitions in `bucket` (pushes) and `fork` (cuts).  Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

from master.api.identities import NO_LINEAGE, CutId, Incarnation, Lineage, Version
from master.api.messages import BucketMarks, FileRecord, Held, Restore
from master.api.positions import EMPTY, PositionSet, union
from trainer_sdk.errors import InvariantViolationError
from trainer_sdk.pserver.messages import Effect


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How long a server waits for others."""

    hold_s: float = 0.25  # from HOLD to CUT: some round trips of the master to all servers (rule 19)
    fork_s: float = 60.0  # until the fork is complete: a few lease times (rule 21)


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkMarks:
    """A forked bucket: what its copy has applied and skipped, and what of the cut it still wants (rule 20)."""

    applied: PositionSet
    skipped: PositionSet
    wanted: PositionSet


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Buckets of this server that are equal in everything but their numbers (rule 5)."""

    buckets: PositionSet
    version: Version
    applied: PositionSet
    skipped: PositionSet
    fork: ForkMarks | None = None


class Phase(StrEnum):
    """How far a cut has come on this server."""

    HELD = "held"  # pushes wait for CUT
    OPEN = "open"  # forked; some position is still wanted
    SEALED = "sealed"  # the fork is complete and is being written
    WRITTEN = "written"  # its file is complete, the fork dropped
    GONE = "gone"  # dropped; the id is never taken again


FORKED = frozenset({Phase.OPEN, Phase.SEALED})


@dataclass(frozen=True, slots=True, kw_only=True)
class CutState:
    """The newest cut that this server has heard of."""

    cut: CutId
    phase: Phase
    held: Held | None = None  # the first answer to HOLD, given again to a repeat
    file: FileRecord | None = None  # once WRITTEN
    deadline_s: float | None = None  # HELD: for HoldExpired; OPEN: for ForkExpired


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerState:
    """One server process.  `lineage` is NO_LINEAGE while it holds no model.

    `taken` is the newest RESTORE taken, done or not: an older one is never taken after it (rule 27).
    """

    incarnation: Incarnation
    limits: Limits = Limits()
    lineage: Lineage = NO_LINEAGE
    taken: Lineage = NO_LINEAGE
    restoring: Restore | None = None
    groups: tuple[Group, ...] = ()
    cut: CutState | None = None

    @property
    def is_ready(self) -> bool:
        return self.lineage != NO_LINEAGE

    @property
    def is_holding(self) -> bool:
        """Between HOLD and CUT no push is applied."""
        return self.cut is not None and self.cut.phase is Phase.HELD

    def has(self, buckets: PositionSet) -> bool:
        """Whether all of these are here."""
        if len(self.groups) == 1 and self.groups[0].buckets == buckets:  # nearly always
            return True
        return buckets <= union(group.buckets for group in self.groups)


@dataclass(frozen=True, slots=True)
class Step:
    """What an event leads to: the state from now on, and what the shell does, in this order."""

    state: ServerState
    effects: tuple[Effect, ...] = ()


def merged(groups: Iterable[Group]) -> tuple[Group, ...]:
    """The same buckets in as few groups as possible."""
    found: dict[tuple[Version, PositionSet, PositionSet, ForkMarks | None], Group] = {}
    for group in groups:
        key = (group.version, group.applied, group.skipped, group.fork)
        equal = found.get(key)
        found[key] = group if equal is None else replace(group, buckets=equal.buckets | group.buckets)
    return tuple(found.values())


def live_marks(state: ServerState) -> tuple[BucketMarks, ...]:
    return tuple(BucketMarks(buckets=g.buckets, applied=g.applied, skipped=g.skipped) for g in state.groups)


def fork_marks(groups: Iterable[Group]) -> tuple[BucketMarks, ...]:
    """What the file of a complete fork says of itself; groups that differ in their live marks alone become one."""
    found: dict[tuple[PositionSet, PositionSet], PositionSet] = {}
    for g in groups:
        if g.fork is not None:
            key = (g.fork.applied, g.fork.skipped)
            found[key] = found.get(key, EMPTY) | g.buckets
    return tuple(BucketMarks(buckets=b, applied=applied, skipped=skipped) for (applied, skipped), b in found.items())


def check_state(state: ServerState) -> None:
    """Raises InvariantViolationError unless all that must hold between two events does."""
    forked = state.cut is not None and state.cut.phase in FORKED
    seen = EMPTY
    for g in state.groups:
        _must(bool(g.buckets) and g.buckets.isdisjoint(seen), "every bucket stands in exactly one group", g)
        seen |= g.buckets
        _must((g.fork is not None) == forked, "buckets are forked exactly while a cut is open or sealed", g)
        if g.fork is not None:
            _must(g.fork.applied <= g.applied, "the fork has applied nothing that the live bucket lacks", g)
            _must(g.fork.wanted.isdisjoint(g.applied), "the live bucket has no position of D that the fork lacks", g)
    _must(len(merged(state.groups)) == len(state.groups), "equal buckets share their sets", state)
    _must(state.is_ready or not state.groups, "a server without a model has no buckets", state)
    if state.cut is not None:
        wanted = any(g.fork and g.fork.wanted for g in state.groups)
        _must(not forked or wanted == (state.cut.phase is Phase.OPEN), "a fork is sealed when it wants nothing", state)
        _must(state.cut.phase is not Phase.HELD or state.is_ready, "only a server with a model holds", state)


def _must(holds: bool, claim: str, seen: object) -> None:
    if not holds:
        raise InvariantViolationError(f"{claim}; seen: {seen}")
