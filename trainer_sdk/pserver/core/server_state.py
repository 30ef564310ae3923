"""What a parameter server knows of its buckets, apart from their numbers: lineage, marks, and the newest cut.

Live buckets with equal marks are one `Group`, so a server with hundreds of buckets usually has one set to keep (rule
5).  A group also carries what the open fork has (`ForkMarks`), so live bucket and fork are judged and marked in one
step.  Parameters and slots are in `tables`; the transitions in `bucket` (pushes), `fork` (cuts) and `moving` (buckets
that come and go); what is here besides live buckets in `staged`.  Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache

from master.api.identities import NO_LINEAGE, CutId, Incarnation, Lineage, ServerPlace, Version
from master.api.messages import BucketMarks, FileRecord, Held, Restore
from master.api.positions import EMPTY, PositionSet, union
from trainer_sdk.errors import InvariantViolationError
from trainer_sdk.pserver.core.effects import ServerEffect
from trainer_sdk.pserver.core.staged import NO_MOVES, MoveState, check_moves


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLimits:
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
class BucketGroup:
    """Buckets of this server that are equal in everything but their numbers (rule 5)."""

    buckets: PositionSet
    version: Version
    applied: PositionSet
    skipped: PositionSet
    fork: ForkMarks | None = None
    is_frozen: bool = False  # handed over, or about to be: pulled from, never pushed to (rules 38, 43)
    backup: ServerPlace | None = None  # of an owner: what is pushed is applied there first (rule 61)
    is_backup: bool = False  # takes what its owner passes on, and nothing else; never pulled from, cut or frozen


class CutPhase(StrEnum):
    """How far a cut has come on this server."""

    HELD = "held"  # pushes wait for CUT
    OPEN = "open"  # forked; some position is still wanted
    SEALED = "sealed"  # the fork is complete and is being written
    WRITTEN = "written"  # its file is complete, the fork dropped
    GONE = "gone"  # dropped; the id is never taken again


FORKED = frozenset({CutPhase.OPEN, CutPhase.SEALED})


@dataclass(frozen=True, slots=True, kw_only=True)
class CutState:
    """The newest cut that this server has heard of."""

    cut: CutId
    phase: CutPhase
    held_answer: Held | None = None  # the first answer to HOLD, given again to a repeat
    file: FileRecord | None = None  # once WRITTEN
    deadline_s: float | None = None  # HELD: for HoldTimedOut; OPEN: for ForkTimedOut
    listed: PositionSet = EMPTY  # the buckets that HELD named: held, forked and written, no others (rule 58)
    departed: tuple[BucketMarks, ...] = ()  # complete forks of buckets that are not live here any more (rule 59)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerState:
    """One server process.  `lineage` is NO_LINEAGE while it holds no model.

    `taken` is the newest RESTORE taken, done or not: an older one is never taken after it (rule 27).  `kept`: what
    stays of the lineage before until it is done, as it will be then; nobody pulls it and no push reaches it (rule 30).
    """

    incarnation: Incarnation
    limits: ServerLimits = ServerLimits()
    lineage: Lineage = NO_LINEAGE
    newest_restore: Lineage = NO_LINEAGE
    restoring: Restore | None = None
    kept: tuple[BucketGroup, ...] = ()
    groups: tuple[BucketGroup, ...] = ()
    cut: CutState | None = None
    moves: MoveState = NO_MOVES

    @property
    def is_ready(self) -> bool:
        return self.lineage != NO_LINEAGE

    @property
    def is_holding(self) -> bool:
        """Between HOLD and CUT no push is applied to what was listed."""
        return self.cut is not None and self.cut.phase is CutPhase.HELD

    @property
    def held_buckets(self) -> PositionSet:
        """The buckets whose pushes wait for CUT."""
        return self.cut.listed if self.cut is not None and self.cut.phase is CutPhase.HELD else EMPTY

    @property
    def buckets(self) -> PositionSet:
        """The buckets that are live here, active or frozen, but for those that this server is the backup of."""
        return joined(*[group.buckets for group in self.groups if not group.is_backup])

    @property
    def active(self) -> PositionSet:
        """The buckets that take pushes of trainers."""
        return joined(*[group.buckets for group in self.groups if not (group.is_frozen or group.is_backup)])

    def has(self, buckets: PositionSet) -> bool:
        """Whether all of these are here, to be pulled or cut."""
        here = self.buckets
        return buckets == here or buckets <= here


@dataclass(frozen=True, slots=True)
class ServerStep:
    """What an event leads to: the state from now on, and what the shell does, in this order."""

    state: ServerState
    effects: tuple[ServerEffect, ...] = ()


@lru_cache(maxsize=1024)
def joined(*some: PositionSet) -> PositionSet:
    """The union of sets of buckets: the same few in every push, and scattered once buckets have moved."""
    return some[0] if len(some) == 1 else union(some)


def merge_groups(groups: Iterable[BucketGroup]) -> tuple[BucketGroup, ...]:
    """The same buckets in as few groups as possible."""
    found: dict[tuple[object, ...], BucketGroup] = {}
    for group in groups:
        key = (  # of plain numbers: they are hashed at once, and this is the path of every push
            group.version,
            group.applied.bounds,
            group.skipped.bounds,
            group.fork,
            group.is_frozen,
            group.backup and group.backup.incarnation,
            group.is_backup,
        )
        equal = found.get(key)
        found[key] = group if equal is None else replace(group, buckets=equal.buckets | group.buckets)
    return tuple(found.values())


def split_groups(
    groups: Iterable[BucketGroup], buckets: PositionSet
) -> tuple[tuple[BucketGroup, ...], tuple[BucketGroup, ...]]:
    """(these buckets, the others), groups cut in two where need be."""
    inside: list[BucketGroup] = []
    outside: list[BucketGroup] = []
    for group in groups:
        common = group.buckets & buckets
        if common:
            inside.append(replace(group, buckets=common))
        if rest := group.buckets - common:
            outside.append(replace(group, buckets=rest))
    return tuple(inside), tuple(outside)


def live_marks(state: ServerState) -> tuple[BucketMarks, ...]:
    """Of the active buckets: what is frozen, staged or a backup is listed by nobody (58).  In few groups."""
    active = (g for g in state.groups if not (g.is_frozen or g.is_backup))
    return _marks((g.buckets, g.applied, g.skipped) for g in active)


def fork_marks(groups: Iterable[BucketGroup], left: Iterable[BucketMarks] = ()) -> tuple[BucketMarks, ...]:
    """What the file of a complete fork says of itself; groups that differ in their live marks alone become one."""
    forked = [(g.buckets, g.fork.applied, g.fork.skipped) for g in groups if g.fork is not None]
    return _marks((*forked, *((marks.buckets, marks.applied, marks.skipped) for marks in left)))


def _marks(parts: Iterable[tuple[PositionSet, PositionSet, PositionSet]]) -> tuple[BucketMarks, ...]:
    found: dict[tuple[PositionSet, PositionSet], PositionSet] = {}
    for buckets, applied, skipped in parts:
        found[applied, skipped] = found.get((applied, skipped), EMPTY) | buckets
    return tuple(BucketMarks(buckets=b, applied=applied, skipped=skipped) for (applied, skipped), b in found.items())


def check_state(state: ServerState) -> None:
    """Raises InvariantViolationError unless all that must hold between two events does."""
    forked = state.cut is not None and state.cut.phase in FORKED
    seen = EMPTY
    for g in state.groups:
        _must(bool(g.buckets) and g.buckets.isdisjoint(seen), "every bucket stands in exactly one group", g)
        seen |= g.buckets
        _must(g.fork is None or forked, "buckets are forked only while a cut is open or sealed", g)
        if g.fork is not None:
            _must(g.fork.applied <= g.applied, "the fork has applied nothing that the live bucket lacks", g)
            _must(g.fork.wanted.isdisjoint(g.applied), "the live bucket has no position of D that the fork lacks", g)
            _must(not (g.is_frozen and g.fork.wanted), "no fork waits for a bucket that is frozen (rule 59)", g)
        is_plain = g.fork is None and g.backup is None and not g.is_frozen
        _must(not g.is_backup or is_plain, "a backup has no fork and no backup, and is never frozen (rule 61)", g)
    _must(len(merge_groups(state.groups)) == len(state.groups), "equal buckets share their sets", state)
    _must(state.is_ready or not (state.groups or state.moves.staged), "a server without a model has no buckets", state)
    _must(not (state.is_ready and state.kept), "what is kept is live once RESTORE is done", state)
    _must(not any(g.fork or g.is_frozen for g in state.kept), "no fork and no move outlives its lineage", state)
    if state.cut is not None:
        wanted = any(g.fork and g.fork.wanted for g in state.groups)
        _must(
            not forked or wanted == (state.cut.phase is CutPhase.OPEN), "a fork is sealed when it wants nothing", state
        )
        _must(state.cut.phase is not CutPhase.HELD or state.is_ready, "only a server with a model holds", state)
        if forked:
            live = union(g.buckets for g in state.groups if g.fork is not None)
            left = union(marks.buckets for marks in state.cut.departed)
            _must(live.isdisjoint(left) and live | left == state.cut.listed, "what was listed is forked once", state)
    check_moves(state.moves)
    for one in state.moves.staged:
        held = split_groups(state.groups, PositionSet.of(one.bucket))[0]
        _must(not held or held[0].version < one.version, "a staged copy is of a later version than the live one", one)


def _must(holds: bool, claim: str, seen: object) -> None:
    if not holds:
        raise InvariantViolationError(f"{claim}; seen: {seen}")
