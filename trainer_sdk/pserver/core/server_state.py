"""State of a parameter server without table contents: lineage, marks by bucket, and the newest cut.

Live buckets with equal marks are one `BucketGroup`, so a server with hundreds of buckets usually keeps one set (rule
5).  A group also carries the marks of the open fork (`ForkMarks`): live bucket and fork are evaluated and marked in one
step.  Transitions are in `pushes`, `fork` (cuts), `bucket_moves` and `restore`; staged copies in `staged`.  Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache

from master.api.identities import NO_LINEAGE, CutId, Incarnation, Lineage, ServerPlace, Version
from master.api.messages.checkpoint_files import BucketMarks, FileRecord
from master.api.messages.from_members import Held
from master.api.messages.to_members import Restore
from master.api.positions import EMPTY, PositionSet, union
from trainer_sdk.errors import InvariantViolationError
from trainer_sdk.pserver.core.server_events import ServerEffect
from trainer_sdk.pserver.core.staged import NO_MOVES, MoveState, check_moves


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLimits:
    """Time limits of a server."""

    hold_s: float = 0.25  # from HOLD to CUT: some round trips of the master to all servers (rule 19)
    fork_s: float = 60.0  # until the fork is complete: a few lease times (rule 21)


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkMarks:
    """Marks of a forked bucket, and the positions of the cut that the fork still wants (rule 20)."""

    applied: PositionSet
    skipped: PositionSet
    wanted: PositionSet


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketGroup:
    """Buckets of this server with equal marks, version and role; only their parameters differ (rule 5)."""

    buckets: PositionSet
    version: Version
    applied: PositionSet
    skipped: PositionSet
    fork: ForkMarks | None = None
    is_frozen: bool = False  # being handed over: pulled, never pushed to (rules 38, 43)
    backup: ServerPlace | None = None  # of an owned bucket: applies each push first (rule 61)
    is_backup: bool = False  # takes its owner's pushes alone; never pulled, cut or frozen


class CutPhase(StrEnum):
    """Phase of a cut on this server."""

    HELD = "held"  # pushes wait for CUT
    OPEN = "open"  # forked; some position is still wanted
    SEALED = "sealed"  # the fork is complete and is being written
    WRITTEN = "written"  # its file is complete, the fork dropped
    GONE = "gone"  # dropped; the id is never taken again


FORKED = frozenset({CutPhase.OPEN, CutPhase.SEALED})


@dataclass(frozen=True, slots=True, kw_only=True)
class CutState:
    """The newest cut that this server was sent."""

    cut: CutId
    phase: CutPhase
    held_answer: Held | None = None  # the first answer to HOLD; a repeated HOLD gets it again
    file: FileRecord | None = None  # once WRITTEN
    deadline_s: float | None = None  # HELD: of HoldTimedOut; OPEN: of ForkTimedOut
    listed: PositionSet = EMPTY  # the buckets in the HELD answer: only these are forked and written (58)
    departed: tuple[BucketMarks, ...] = ()  # complete forks of buckets that have left this server (59)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerState:
    """State of one server process.  `lineage` is NO_LINEAGE while it holds no model.

    `newest_restore` is the lineage of the newest RESTORE taken, done or not: an older one is never taken after it (rule
    27).  `kept` has the buckets that stay from the lineage before, as they will be once the RESTORE is done; until then
    no pull reads them and no push reaches them (rule 30).
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
        """True between HOLD and CUT, while no push is applied to the listed buckets."""
        return self.cut is not None and self.cut.phase is CutPhase.HELD

    @property
    def held_buckets(self) -> PositionSet:
        """The buckets whose pushes wait for CUT."""
        return self.cut.listed if self.cut is not None and self.cut.phase is CutPhase.HELD else EMPTY

    @property
    def buckets(self) -> PositionSet:
        """The live buckets that this server owns, active or frozen."""
        return joined(*[group.buckets for group in self.groups if not group.is_backup])

    @property
    def active(self) -> PositionSet:
        """The buckets that take pushes of trainers."""
        return joined(*[group.buckets for group in self.groups if not (group.is_frozen or group.is_backup)])

    def has(self, buckets: PositionSet) -> bool:
        """True if this server owns all of these."""
        here = self.buckets
        return buckets == here or buckets <= here


@dataclass(frozen=True, slots=True)
class ServerStep:
    """Result of an event: the state from now on, and what the shell does, in this order."""

    state: ServerState
    effects: tuple[ServerEffect, ...] = ()


@lru_cache(maxsize=1024)
def joined(*some: PositionSet) -> PositionSet:
    """Union of bucket sets; cached, for every push has the same few."""
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
    """(groups of these buckets, groups of the others); a group with both is split."""
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
    """Marks of the active buckets; frozen, staged and backup copies are not listed (rule 58)."""
    active = (g for g in state.groups if not (g.is_frozen or g.is_backup))
    return _marks((g.buckets, g.applied, g.skipped) for g in active)


def fork_marks(groups: Iterable[BucketGroup], left: Iterable[BucketMarks] = ()) -> tuple[BucketMarks, ...]:
    """Marks of a complete fork, as its file has them; groups that differ in their live marks alone become one."""
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
        _expect(bool(g.buckets) and g.buckets.isdisjoint(seen), "every bucket is in exactly one group", g)
        seen |= g.buckets
        _expect(g.fork is None or forked, "buckets are forked only while a cut is open or sealed", g)
        if g.fork is not None:
            _expect(g.fork.applied <= g.applied, "the fork has applied nothing that the live bucket lacks", g)
            _expect(g.fork.wanted.isdisjoint(g.applied), "the live bucket has no position of D that the fork lacks", g)
            _expect(not (g.is_frozen and g.fork.wanted), "no fork waits for a bucket that is frozen (rule 59)", g)
        is_plain = g.fork is None and g.backup is None and not g.is_frozen
        _expect(not g.is_backup or is_plain, "a backup has no fork and no backup, and is never frozen (rule 61)", g)
    _expect(len(merge_groups(state.groups)) == len(state.groups), "equal buckets share their sets", state)
    _expect(
        state.is_ready or not (state.groups or state.moves.staged), "a server without a model has no buckets", state
    )
    _expect(not (state.is_ready and state.kept), "what is kept is live once RESTORE is done", state)
    _expect(not any(g.fork or g.is_frozen for g in state.kept), "no fork and no move outlives its lineage", state)
    if state.cut is not None:
        wanted = any(g.fork and g.fork.wanted for g in state.groups)
        _expect(
            not forked or wanted == (state.cut.phase is CutPhase.OPEN), "a fork is sealed when it wants nothing", state
        )
        _expect(state.cut.phase is not CutPhase.HELD or state.is_ready, "only a server with a model holds", state)
        if forked:
            live = union(g.buckets for g in state.groups if g.fork is not None)
            left = union(marks.buckets for marks in state.cut.departed)
            _expect(live.isdisjoint(left) and live | left == state.cut.listed, "what was listed is forked once", state)
    check_moves(state.moves)
    for one in state.moves.staged:
        held = split_groups(state.groups, PositionSet.of(one.bucket))[0]
        _expect(not held or held[0].version < one.version, "a staged copy is of a later version than the live one", one)


def _expect(holds: bool, claim: str, seen: object) -> None:
    if not holds:
        raise InvariantViolationError(f"{claim}; seen: {seen}")
