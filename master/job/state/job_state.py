"""All that the master of one job knows, as one frozen value, and the step from one such value to the next.

The state is soft but for what `domain.Durable` names: a new master makes it anew from the store, the servers' marks
and the trainers that register.  Each part has its module; this one only puts them together.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final

from master.api.checkpoints.manifest import Manifest
from master.api.identities import NO_LINEAGE, BucketId, CutId, Lineage, ManifestId, MemberName, Route, Term
from master.api.messages import BucketMarks, FileRecord, MarksReport, MasterMessage
from master.api.positions import EMPTY, PositionSet
from master.job.domain import (
    UNNAMED,
    Backups,
    ChangeTable,
    DatasetRecord,
    Effect,
    Instant,
    Intent,
    JobConfig,
    LineageRecord,
    MemberKey,
    Origin,
    Persist,
    RaiseLineage,
    RecordQuarantine,
    Send,
    SwapHead,
    Table,
    Write,
)
from master.job.domain.copy_with import changed
from master.job.domain.frozen_map import FrozenMap
from master.job.placement.owner_placement import Move, Weight
from master.job.state.dispatch_state import Dispatch
from master.job.state.members import Members, Server
from master.job.state.trainer_failures import Failures


class Stage(StrEnum):
    """How far the master is with the model (rules 17, 26): only SERVING grants and commits."""

    ADOPTING = "adopting"  # waiting for what storage has to adopt, and for the swap of head that adopts it
    GATHERING = "gathering"  # waiting for the data set and for all servers
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
class Recovery:
    """The way to SERVING."""

    stage: Stage = Stage.ADOPTING
    must_raise: bool = False  # a server was lost: nothing of this lineage may go on
    rolls_back: bool = False  # ... nor may anybody keep what it has: buckets disagree
    kept: Route | None = None  # the table by which servers keep what they have (rule 30); None: nothing is kept
    departed: frozenset[int] = frozenset()  # ordinals of owners that were leaving: nobody need come in their place
    quarantine: PositionSet = EMPTY  # goes into the next lineage record (rule 31)
    marks: FrozenMap[int, MarksReport] = _NO_MARKS
    is_asked_anew: bool = False  # marks were asked of other owners before: an answer may be of then
    restored: frozenset[int] = frozenset()
    overdue: Instant | None = None  # then servers that have not answered are asked again
    awaits_until: Instant | None = None  # servers that others could do without have so long to come (`quorum`)
    does_without: bool = False  # that time is over
    succeeds: bool = False  # a new master has waited long enough for owners whose backups are here (rule 62)
    unreadable_since: Instant | None = None  # a server said that a file of the base is missing or altered
    problem: str = ""  # why it does not go on, for people


class Phase(StrEnum):
    """Of a commit."""

    IDLE = "idle"
    HOLDING = "holding"  # HOLD is out (rule 19)
    WRITING = "writing"  # CUT is out (rules 20, 21)
    RECORDING = "recording"  # the manifest is being written (rule 23)
    SWAPPING = "swapping"  # head is being moved


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """A checkpoint that a trainer with its own model has offered (rule 35)."""

    trainer: MemberKey
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    phase: Phase = Phase.IDLE
    sequence: int = 0  # of cuts and manifests of this term
    due: Instant | None = None  # None: due now, and begun as soon as it can be
    is_backing_off: bool = False
    refusals: int = 0  # attempts given up in a row
    problem: str = ""
    committed_at: Instant | None = None
    cut: CutId | None = None
    expires: Instant | None = None
    asked: frozenset[int] = frozenset()  # ordinals of the servers that owned a bucket at its begin (rule 58)
    done_at_begin: PositionSet = EMPTY
    held: FrozenMap[int, tuple[BucketMarks, ...]] = _NO_HELD
    data: PositionSet = EMPTY  # D
    files: FrozenMap[int, FileRecord] = _NO_FILES
    manifest: Manifest | None = None
    offer: Offer | None = None

    def is_owed_by(self, ordinal: int) -> bool:
        """The attempt cannot go on without this server: it was asked, and its file is not written yet."""
        is_open = self.phase in (Phase.HOLDING, Phase.WRITING)
        return is_open and ordinal in self.asked and ordinal not in self.files


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipping:
    """A SKIP that is out (rule 31).  Answers are by bucket: which server gave them does not matter (rule 60)."""

    positions: PositionSet
    skipped: PositionSet = EMPTY  # buckets that skip some of it for good
    applied: PositionSet = EMPTY  # buckets that have applied some of it; a bucket may be in both
    backups: PositionSet = EMPTY  # buckets whose backup has answered too: it is asked after their owner
    overdue: Instant

    @property
    def answered(self) -> PositionSet:
        return self.skipped | self.applied


@dataclass(frozen=True, slots=True, kw_only=True)
class Moves:
    """Buckets on their way (`moves`).  Only `intents` is durable."""

    intents: tuple[Intent, ...] = ()  # as recorded
    waiting: tuple[Move, ...] = ()  # not begun; source and target are ordinals
    reason: str = ""
    writing: ChangeTable | None = None  # the one change of the table under way
    installed: frozenset[BucketId] = frozenset()  # the target has it: to be flipped
    undone: frozenset[BucketId] = frozenset()  # to be undone, whatever else is heard
    inactive: PositionSet = EMPTY  # buckets whose owner has not confirmed that it serves them at their version
    unready: PositionSet = EMPTY  # ... and whose backup has not: pushes to them wait for it (rule 61)
    apart: PositionSet = EMPTY  # ... and whose backup its owner does not reach: it is left alone (rule 62)
    overdue: Instant | None = None  # then FREEZE and ACTIVATE are said again
    since: FrozenMap[BucketId, Instant] = (
        _NO_TIMES  # of each intent when it was durable: it has its own time (`lateness`)
    )
    turns: FrozenMap[BucketId, Instant] = _NO_TIMES  # when one that its ends had to move before it arrived last
    again: Instant | None = None  # what was undone so, and what waited with it, is tried again after this
    late: int = 0  # how often that was, since one arrived
    missed: FrozenMap[BucketId, MemberKey] = _NO_TARGETS  # undone so and wanted there still: people are told

    @property
    def awaited(self) -> tuple[Intent, ...]:
        """Their targets have not said that they have them, and they are not given up."""
        known = self.installed | self.undone
        return tuple(intent for intent in self.intents if intent.bucket not in known)

    @property
    def saved(self) -> frozenset[BucketId]:
        """Whatever becomes of their source, these are the target's next (rule 53)."""
        return self.installed - self.undone


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How many servers are wanted (`scaling`)."""

    wanted: int  # holds: durable, or what the job began with
    newest: int = 0  # asked for last
    writing: int | None = None  # being recorded
    asking: tuple[int, ...] = ()  # requests that are answered once `newest` holds
    replaced: str = ""  # what they are told then


NO_PROMOTIONS: Final[FrozenMap[int, int]] = FrozenMap()
NO_WEIGHTS: Final[FrozenMap[int, Weight]] = FrozenMap()
NO_TRAINERS: Final[FrozenMap[MemberName, MemberKey]] = FrozenMap()

_START: Final = Instant(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reserved:
    """The high-water mark (`reserving`)."""

    below: int = 0  # durable, unless it is being written
    is_writing: bool = False
    block: int = 0  # how far the last write moved it ...
    at: Instant = _START  # ... and when
    trainers: FrozenMap[MemberName, MemberKey] | None = None  # who may hold leases, durable likewise; None: unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """Who may hold leases, under this master and for the next one (`reserving`)."""

    trainers: FrozenMap[MemberName, MemberKey] = NO_TRAINERS  # members, and those of an earlier master
    awaited: FrozenMap[MemberName, MemberKey] | None = None  # of these, not back yet; None: who they are is not known


@dataclass(frozen=True, kw_only=True)  # no slots: `changed` copies it with each event
class JobState:
    config: JobConfig
    term: Term
    lineage: LineageRecord | None = None  # as recorded
    head: Manifest | None = None
    dataset: DatasetRecord | None = None  # as recorded
    declaring: DatasetRecord | None = None  # being recorded
    route: Route | None = None
    backups: Backups | None = None  # beside the route, where buckets have two copies
    writing: Write | None = None  # the one change of head, lineage or quarantine under way
    recovery: Recovery = field(default_factory=Recovery)
    members: Members = field(default_factory=Members)
    dispatch: Dispatch = field(default_factory=Dispatch)
    failures: Failures = field(default_factory=Failures)
    commit: Commit = field(default_factory=Commit)
    skip: Skipping | None = None
    moves: Moves = Moves()
    promotions: FrozenMap[int, int] = NO_PROMOTIONS  # by server: buckets of lost servers that it took over (rule 62)
    weights: FrozenMap[int, Weight] = NO_WEIGHTS  # of buckets, as far as their owners have said it
    scale: Scale = Scale(wanted=0)
    owner: MemberKey | None = None  # the trainer that holds the model, in a job without servers (rule 35)
    is_world_free: bool = False  # nobody has held the model of this lineage yet
    reclaim_ends: Instant | None = None  # until then leases of an earlier master may be claimed (rule 18)
    reserved: Reserved = Reserved()
    holding: Holding = Holding()
    final_saver: MemberKey | None = None  # appointed last; the save is owed until somebody says FinalSaved
    is_final_saved: bool = False
    failed: str = ""  # the job is given up, for this reason
    origin: Origin = UNNAMED
    is_over: bool = False  # this term has ended: nothing is decided any more

    @property
    def number(self) -> Lineage:
        return self.lineage.number if self.lineage else NO_LINEAGE

    @property
    def head_id(self) -> ManifestId | None:
        return self.head.id if self.head else None

    @property
    def table(self) -> Table | None:
        """As recorded."""
        return Table(route=self.route, intents=self.moves.intents, backups=self.backups) if self.route else None

    @property
    def stage(self) -> Stage:
        return self.recovery.stage

    def is_going(self, server: Server) -> bool:
        """It has to go: it has said so, was told that it may, or the job is to have fewer servers."""
        return server.is_leaving or server.is_released or server.ordinal >= self.scale.wanted

    @property
    def is_complete(self) -> bool:
        """END may be said (rule 32)."""
        return self.dispatch.is_exhausted and self.head is not None and self.head.is_complete

    @property
    def is_commit_due(self) -> bool:
        """A commit begins as soon as it can, and there is something to commit."""
        commit, books = self.commit, self.dispatch
        if commit.phase is not Phase.IDLE or self.dataset is None or self.has_own_model:
            return False
        is_urgent = books.is_exhausted and not commit.is_backing_off
        has_news = bool(books.done) or books.quarantined != (self.head.quarantine if self.head else EMPTY)
        return has_news and (commit.due is None or is_urgent)

    @property
    def has_own_model(self) -> bool:
        return self.dataset is not None and self.dataset.own_model


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What holds after an event, and what the shell does now, in this order."""

    state: JobState
    effects: tuple[Effect, ...]


class Turn:
    """The making of one step: handlers put a new state into `state` and append effects; the values never change."""

    __slots__ = ("effects", "now", "state")

    def __init__(self, state: JobState, now: Instant) -> None:
        self.state = state
        self.now = now
        self.effects: list[Effect] = []

    def change(self, **parts: Any) -> None:
        self.state = changed(self.state, **parts)

    def recover(self, **parts: Any) -> None:
        self.change(recovery=replace(self.state.recovery, **parts))

    def emit(self, effect: Effect) -> None:
        self.effects.append(effect)

    def send(self, to: MemberKey, message: MasterMessage) -> None:
        self.effects.append(Send(to=to, message=message))

    def write(self, write: SwapHead | RaiseLineage | RecordQuarantine) -> None:
        """One change of these at a time: each requires what the one before it made."""
        assert self.state.writing is None
        self.change(writing=write)
        self.emit(Persist(write=write))

    def after(self, duration_ns: int) -> Instant:
        return Instant(self.now + duration_ns)

    def step(self) -> Step:
        return Step(state=self.state, effects=tuple(self.effects))
