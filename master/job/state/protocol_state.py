"""The state of each protocol of a master: recovery, commit, skip, moves, number of servers, high-water mark.

Each value belongs to the modules that its docstring names; `job_state` puts them together.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from master.api.checkpoints.manifest import Manifest
from master.api.identities import BucketId, CutId, MemberName, Route
from master.api.messages.checkpoint_files import BucketMarks, FileRecord
from master.api.messages.from_members import MarksReport
from master.api.positions import EMPTY, PositionSet
from master.job.domain.durable_records import ChangeTable, Instant, Intent, MemberKey
from master.job.domain.frozen_map import FrozenMap
from master.job.placement.owner_placement import Move


class RecoveryStage(StrEnum):
    """Stage of recovery (rules 17, 26): only SERVING grants and commits."""

    ADOPTING = "adopting"  # waiting for what storage has to adopt, and for the swap of head that adopts it
    GATHERING = "gathering"  # waiting for the data set and for enough servers
    READING_MARKS = "reading-marks"  # all servers hold the current lineage: what have they applied?
    RAISING = "raising"  # lineage + 1 is being recorded
    RESTORING = "restoring"  # servers take the base
    SERVING = "serving"


_NO_MARKS: Final[FrozenMap[int, MarksReport]] = FrozenMap()
_NO_HELD: Final[FrozenMap[int, tuple[BucketMarks, ...]]] = FrozenMap()
_NO_TIMES: Final[FrozenMap[BucketId, Instant]] = FrozenMap()
_NO_TARGETS: Final[FrozenMap[BucketId, MemberKey]] = FrozenMap()
_NO_FILES: Final[FrozenMap[int, FileRecord]] = FrozenMap()


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryState:
    """Progress of a recovery towards SERVING (`recovery`)."""

    stage: RecoveryStage = RecoveryStage.ADOPTING
    must_raise: bool = False  # a server was lost: this lineage has ended
    rolls_back: bool = False  # ... nor may servers keep what they have: buckets disagree
    kept: Route | None = None  # the table by which servers keep what they have (rule 30); None: nothing is kept
    departed: frozenset[int] = frozenset()  # ordinals of owners that were leaving: no successor is needed
    quarantine: PositionSet = EMPTY  # goes into the next lineage record (rule 31)
    marks: FrozenMap[int, MarksReport] = _NO_MARKS
    is_second_request: bool = False  # other owners were asked for marks before: an answer may be from then
    restored: frozenset[int] = frozenset()
    resend_at: Instant | None = None  # when servers that have not answered get the request again
    owners_wait_ends: Instant | None = None  # until then missing owners may still come (`server_quorum`)
    proceeds_without: bool = False  # that time is over: the connected servers continue
    promotes_backups: bool = False  # missing owners were waited for long enough: their backups take over (rule 62)
    unreadable_since: Instant | None = None  # since a server reported a missing or altered file of the base
    problem: str = ""  # why recovery does not proceed, for people


class CommitPhase(StrEnum):
    """Phase of a commit."""

    IDLE = "idle"
    HOLDING = "holding"  # HOLD is out (rule 19)
    WRITING = "writing"  # CUT is out (rules 20, 21)
    RECORDING = "recording"  # the manifest is being written (rule 23)
    SWAPPING = "swapping"  # head is being moved


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitState:
    """The attempt at a commit that is under way, and when the next one is due (`commit`)."""

    phase: CommitPhase = CommitPhase.IDLE
    sequence: int = 0  # of cuts and manifests of this term
    due: Instant | None = None  # None: due now; it begins as soon as it can
    is_backing_off: bool = False
    refusals: int = 0  # attempts given up in a row
    problem: str = ""
    committed_at: Instant | None = None
    cut: CutId | None = None
    expires: Instant | None = None
    expected: frozenset[int] = frozenset()  # ordinals of the servers that owned a bucket when it began (rule 58)
    done_at_begin: PositionSet = EMPTY
    held: FrozenMap[int, tuple[BucketMarks, ...]] = _NO_HELD
    data: PositionSet = EMPTY  # D, the union of the marks that HELD reported (rule 20)
    files: FrozenMap[int, FileRecord] = _NO_FILES
    manifest: Manifest | None = None

    def is_waiting_for(self, ordinal: int) -> bool:
        """True if the attempt waits for this server: it was asked, and its file is not written yet."""
        is_open = self.phase in (CommitPhase.HOLDING, CommitPhase.WRITING)
        return is_open and ordinal in self.expected and ordinal not in self.files


@dataclass(frozen=True, slots=True, kw_only=True)
class SkipState:
    """A SKIP in progress (rule 31); answers count by bucket, whichever server gave them (rule 60)."""

    positions: PositionSet
    skipped: PositionSet = EMPTY  # buckets that skip some of it for good
    applied: PositionSet = EMPTY  # buckets that have applied some of it; a bucket may be in both
    backups: PositionSet = EMPTY  # buckets whose backup has answered too, which comes after their owner
    resend_at: Instant

    @property
    def answered(self) -> PositionSet:
        return self.skipped | self.applied


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketMoves:
    """Moves of buckets, planned and under way (`moves`).  Only `intents` is durable."""

    intents: tuple[Intent, ...] = ()  # as recorded
    waiting: tuple[Move, ...] = ()  # not begun; source and target are ordinals
    reason: str = ""
    writing: ChangeTable | None = None  # the one change of the table under way
    installed: frozenset[BucketId] = frozenset()  # the target has it: to be flipped
    undone: frozenset[BucketId] = frozenset()  # to be undone, whatever else is reported
    inactive: PositionSet = EMPTY  # buckets whose owner has not confirmed that it serves them at their version
    unready_backups: PositionSet = EMPTY  # ... and whose backup has not: pushes to them wait for it (rule 61)
    unreachable_backups: PositionSet = EMPTY  # buckets whose owner does not reach its backup: ALONE (rule 62)
    resend_at: Instant | None = None  # when FREEZE and ACTIVATE are resent
    begun_at: FrozenMap[BucketId, Instant] = _NO_TIMES  # when each intent became durable (`move_timeouts`)
    turns: FrozenMap[BucketId, Instant] = _NO_TIMES  # when a bucket that its two servers moved before it arrived
    retry_at: Instant | None = None  # when late moves, and those that waited with them, are planned again
    late: int = 0  # how often moves were late since one arrived
    timed_out: FrozenMap[BucketId, MemberKey] = _NO_TARGETS  # late moves that are still wanted; the status shows them

    @property
    def awaited(self) -> tuple[Intent, ...]:
        """The moves that have neither arrived nor been given up."""
        known = self.installed | self.undone
        return tuple(intent for intent in self.intents if intent.bucket not in known)

    @property
    def saved(self) -> frozenset[BucketId]:
        """The buckets that their targets own next, whatever becomes of the source (rule 53)."""
        return self.installed - self.undone


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerScale:
    """The number of servers that the job wants (`server_scaling`)."""

    target: int = 0  # the number that holds: durable, or what the job began with
    newest: int = 0  # requested last
    writing: int | None = None  # being recorded
    waiting_requests: tuple[int, ...] = ()  # requests that are answered once `newest` holds
    replaced: str = ""  # what their answer says of the number before


NO_TRAINERS: Final[FrozenMap[MemberName, MemberKey]] = FrozenMap()
_START: Final = Instant(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class HighWaterMark:
    """The high-water mark: positions from `below` on were never leased (`dispatch.high_water`)."""

    below: int = 0  # durable, unless it is being written
    is_writing: bool = False
    block: int = 0  # how far the last write moved it ...
    at: Instant = _START  # ... and when
    trainers: FrozenMap[MemberName, MemberKey] | None = None  # those that may hold leases, durable too; None: unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseHolders:
    """The trainers that may hold leases, under this master and for the next one (`dispatch.high_water`)."""

    trainers: FrozenMap[MemberName, MemberKey] = NO_TRAINERS  # members, and those of an earlier master
    awaited: FrozenMap[MemberName, MemberKey] | None = None  # of these, not back yet; None: their names are unknown
