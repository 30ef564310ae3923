"""`GroupState`: state of the master of a group, frozen; `GroupTurn`: builder of the next state.

The state is soft but for `job.domain.Durable`: everything else is heard again from members (docs: rules 63 to 98).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final

from master.api.checkpoints.manifest import Manifest
from master.api.group_shares import total_steps
from master.api.identities import NO_LINEAGE, Incarnation, Lineage, ManifestId, MemberName, Term
from master.api.messages.checkpoint_files import FileRecord
from master.api.messages.from_members import Declare
from master.api.messages.generations import Generation, GroupPhase, HeadState, ReplicaComparison, StateId
from master.api.messages.to_members import MasterMessage
from master.api.positions import EMPTY, PositionSet
from master.job.domain.durable_records import (
    UNNAMED_ORIGIN,
    DatasetRecord,
    DurableWrite,
    GenerationRecord,
    Instant,
    LineageRecord,
    ManifestOrigin,
    MemberKey,
)
from master.job.domain.effects import CoreEffect, Persist, Send
from master.job.domain.frozen_map import FrozenMap, copy_with
from master.job.domain.job_config import JobConfig
from master.job.state.trainer_failures import FailureCounts

RETIRED_KEPT: Final = 256
"""Incarnations remembered as gone; a late message of an older process could at worst displace its successor."""

_START: Final = Instant(0)
_NO_METRICS: Final[FrozenMap[str, float]] = FrozenMap()


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """One trainer's process, as it was heard last."""

    key: MemberKey
    ordinal: int
    address: str
    generation: int = 0  # that it is in; 0: none
    left: int = 0  # it takes part in nothing up to this generation (rule 73)
    state: StateId | None = None
    phase: GroupPhase = GroupPhase.OUT
    steps_begun: int = 0
    median_step_s: float = 0.0
    samples_per_s: float = 0.0
    pause_s: float = 0.0
    waiting_share: float = 0.0
    compute_rate: float = 0.0  # records a second while it computes; 0: not known
    failed_plan: int = 0  # planned generation that it could not connect (rule 83); 0: none
    metrics: FrozenMap[str, float] = _NO_METRICS
    has_final_hook: bool = False
    has_declared: bool = False
    has_worked: bool = False  # it has completed a step: what it fails at later may be to blame (M4)
    refusal: str = ""  # of its declaration
    declares: Declare | None = None  # not answered yet: trainers that declared otherwise may come back (rule 98)
    heard_at: Instant = _START
    moved_at: Instant = _START  # since then it has not shown that it moves
    window_ends: Instant | None = None  # set while its stream is broken
    is_lost: bool = False  # for the group: silent for too long; it comes back once its script asks for a step
    was_silent: bool = False  # lost, and nothing was heard of it: it comes back as soon as it is heard
    owes_request: bool = False  # its step was dropped in the middle: its script is to ask for a step soon
    leaves_by: Instant | None = None  # it wants to leave, and ends at this instant whatever happens
    leave_step: int = 0  # a checkpoint of this step makes up for it (rule 83)
    is_released: bool = False

    @property
    def is_out(self) -> bool:
        return self.generation == 0

    @property
    def is_connected(self) -> bool:
        return self.window_ends is None

    @property
    def is_leaving(self) -> bool:
        return self.leaves_by is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Roster:
    """The processes that a record names, in rank order: made once for a record, and read with each message."""

    current: tuple[MemberKey, ...] = ()
    before: tuple[MemberKey, ...] = ()  # of the generation that it is planned from
    both: tuple[MemberKey, ...] = ()  # each one once
    listed: frozenset[MemberKey] = frozenset()  # `current`


def keys_of(generation: Generation | None) -> tuple[MemberKey, ...]:
    """The processes of a generation, in rank order; none for None."""
    members = generation.members if generation else ()
    return tuple(MemberKey(name=one.name, incarnation=one.incarnation) for one in members)


def roster_of(record: GenerationRecord | None) -> Roster:
    if record is None:
        return Roster()
    current, before = keys_of(record.current), keys_of(record.before)
    both = tuple(dict.fromkeys((*current, *before)))
    return Roster(current=current, before=before, both=both, listed=frozenset(current))


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedMember:
    """A process whose declaration was refused while others were there that train: it is no failure of the job."""

    member: MemberKey
    at: Instant
    message: str


class CopyPhase(StrEnum):
    """Stages of a commit: files of one state are offered, the manifest is written, head is swapped, HEAD names it."""

    IDLE = "idle"
    OFFERED = "offered"
    RECORDING = "recording"
    WRITTEN = "written"
    SWAPPING = "swapping"
    NAMING = "naming"  # head is swapped in the store: its writers are answered once the folder's HEAD names it too


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardOffer:
    """One offered file: who asks, under which number, and the stamp that it has by now (rules 85, 86)."""

    member: MemberKey
    offer: int
    stamp: int
    file: FileRecord


_NO_OFFERS: Final[FrozenMap[int, ShardOffer]] = FrozenMap()


@dataclass(frozen=True, slots=True, kw_only=True)
class StateCommit:
    """The commit of one state's copy, by its shards (rules 87, 88)."""

    phase: CopyPhase = CopyPhase.IDLE
    state: StateId | None = None
    skipped: PositionSet = EMPTY
    shards: int = 1
    contents: str = ""  # of the replica that all shards are cut from
    offers: FrozenMap[int, ShardOffer] = _NO_OFFERS
    manifest: Manifest | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyPace:
    """Pace of copies: when the next one is asked for, and what became of the last one."""

    sequence: int = 0
    due: Instant | None = None
    final_asked: tuple[int, MemberName] | None = None  # generation and member that were asked for the last step's copy
    refusals: int = 0
    problem: str = ""
    failed: StateId | None = None  # a shard of this state could not be written, so the others make no checkpoint
    committed_at: Instant | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonState:
    """The newest comparison of replicas, and a request for one: answered by one of a later state than `base`."""

    newest: ReplicaComparison | None = None
    asked: str = ""
    answered: str = ""
    base: ReplicaComparison | None = None


NO_REPLICAS: Final[FrozenMap[MemberName, Replica]] = FrozenMap()
_NOBODY: Final[FrozenMap[MemberName, Incarnation]] = FrozenMap()


@dataclass(frozen=True, kw_only=True)  # no slots: `copy_with` copies it with each event
class GroupState:
    config: JobConfig
    term: Term
    lineage: LineageRecord | None = None  # as recorded
    head: Manifest | None = None
    named: Manifest | None = None  # head as the folder's file HEAD has it: what is told of checkpoints
    is_head_named: bool = True  # False: an earlier master has swapped head, and may have ended before it wrote HEAD
    dataset: DatasetRecord | None = None  # as recorded
    layout: str = ""  # of the replicas; empty: not declared yet
    pending_declaration: DatasetRecord | None = None
    is_declared: bool = False  # by a trainer under this master; what it took over may be an end that was not the job's
    refused: tuple[RefusedMember, ...] = ()  # the last one of each name, until a process of it has declared alike
    record: GenerationRecord | None = None  # as recorded
    roster: Roster = field(default_factory=Roster, compare=False)  # of `record`
    first: int = 0  # number of the store's first record, written by this master; 0: an earlier one has written it
    last_listed: FrozenMap[MemberName, Incarnation] = _NOBODY  # the last process of each name in that record, or since
    widest: int = 0  # most members of a generation, under this master
    synced: int = 0  # the newest generation whose sync is known to be over
    broken: int = 0  # the newest generation that this master has broken (rule 74)
    broken_at: Instant = _START
    heard_at: Instant = _START  # some member concerned was heard last
    heard_again: Instant = _START  # the first one was heard after nobody had been for a while
    largest: int = 0  # of all generations that were heard of (rule 64)
    writing: DurableWrite | None = None  # the one change of head, lineage or generation under way
    members: FrozenMap[MemberName, Replica] = NO_REPLICAS
    retired: tuple[Incarnation, ...] = ()
    gone: tuple[MemberKey, ...] = ()  # left in order: no survivors, and nobody waits for them
    counted: tuple[tuple[MemberKey, bool], ...] = ()  # lost, and whether they had worked: judged at the next record
    gather_ends: Instant | None = None  # joiners are gathered until then
    speeds_checked: Instant = _START  # members' speeds were compared then
    uneven_since: Instant | None = None  # since then other shares would make steps shorter
    failures: FailureCounts = field(default_factory=FailureCounts)
    commit: StateCommit = field(default_factory=StateCommit)
    pace: CopyPace = field(default_factory=CopyPace)
    comparison: ComparisonState = field(default_factory=ComparisonState)
    data_problem: str = ""  # the first one that a member has told (rule 63)
    newest: int = 0  # steps that some replica of this lineage has done
    has_stopped: bool = False  # some replica was heard of whose script has ended training (rule 97)
    has_deferred: bool = False  # some member's declaration waits for what becomes of earlier trainers (rule 98)
    reclaim_ends: Instant | None = None  # until then members of an earlier master are awaited (rule 91)
    final_saver: MemberKey | None = None
    has_final_saved: bool = False  # some trainer has said that it has run the final hook
    final_save: ManifestId | None = None  # the checkpoint for which that is durable
    told_end: tuple[MemberKey, ...] = ()  # members that were told the end, or why the job failed
    failed: str = ""
    origin: ManifestOrigin = UNNAMED_ORIGIN
    is_over: bool = False

    @property
    def number(self) -> Lineage:
        """The number of the current lineage; NO_LINEAGE: there is none yet."""
        return self.lineage.number if self.lineage else NO_LINEAGE

    @property
    def head_id(self) -> ManifestId | None:
        return self.head.id if self.head else None

    @property
    def current(self) -> Generation | None:
        """The generation of the durable record."""
        return self.record.current if self.record else None

    @property
    def before(self) -> Generation | None:
        """The generation that the record is planned from, until the record's sync is over."""
        if self.record is None or self.record.before is None or self.synced >= self.record.current.number:
            return None
        return self.record.before

    @property
    def head_state(self) -> HeadState:
        """Head as a record names it (rule 70)."""
        if self.head is None or self.head.state is None:
            return HeadState(state=StateId(lineage=self.number, generation=0, step=0))
        head, state = self.head, self.head.state
        if self.dataset is not None and self.dataset.dataset.epochs > head.dataset.epochs:
            state = replace(state, is_stopped=False)  # a stop holds until more epochs are declared (rule 98)
        return HeadState(state=state, manifest=head.id, skipped=head.quarantine, files=head.files)

    @property
    def steps(self) -> int:
        """Steps of the job; 0: nothing is declared yet."""
        return total_steps(self.dataset.dataset) if self.dataset else 0

    @property
    def is_final_saved(self) -> bool:
        """True if it is durable that the final hook has run on head."""
        return self.final_save is not None and self.final_save == self.head_id

    @property
    def is_complete(self) -> bool:
        """True if head holds the last step: END may be said once the final hook has run (rules 96, 97)."""
        if self.dataset is None or self.head is None or self.pending_declaration is not None:
            return False
        last = self.head_state.state
        return last.is_stopped or last.step == self.steps

    @property
    def may_end(self) -> bool:
        """True if the job is complete, also for who has lost the store and resumes from HEAD."""
        return self.is_complete and self.is_head_named and self.commit.phase is not CopyPhase.NAMING

    def try_replica(self, key: MemberKey) -> Replica | None:
        """The replica if this very process is a member."""
        replica = self.members.get(key.name)
        return replica if replica and replica.key.incarnation == key.incarnation else None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupStep:
    """The state after an event, and the effects that the shell carries out, in this order."""

    state: GroupState
    effects: tuple[CoreEffect, ...]


class GroupTurn:
    """The handling of one event: handlers put new values into `state` and append effects."""

    __slots__ = ("effects", "is_idle", "now", "state")

    def __init__(self, state: GroupState, now: Instant) -> None:
        self.state = state
        self.now = now
        self.effects: list[CoreEffect] = []
        self.is_idle = False
        """True if nothing has changed that a decision depends on: what the state allows was done before."""

    def change(self, **parts: Any) -> None:
        self.state = copy_with(self.state, **parts)

    def set_record(self, record: GenerationRecord) -> None:
        before, members = self.state, record.current.members
        widest, first = max(before.widest, len(members)), before.first if before.record else record.current.number
        listed = before.last_listed
        if first:
            listed = listed.put_all({one.name: one.incarnation for one in members})
        self.change(record=record, roster=roster_of(record), widest=widest, first=first, last_listed=listed)

    def put(self, replica: Replica, **parts: Any) -> Replica:
        """The replica with these parts changed is the member of its name."""
        replica = replace(replica, **parts)
        self.change(members=self.state.members.put(replica.key.name, replica))
        return replica

    def emit(self, effect: CoreEffect) -> None:
        self.effects.append(effect)

    def send(self, to: MemberKey, message: MasterMessage) -> None:
        self.effects.append(Send(to=to, message=message))

    def write(self, write: DurableWrite) -> None:
        """Writes head, lineage or generation; one such write at a time, since each compares what others make."""
        assert self.state.writing is None
        self.change(writing=write)
        self.emit(Persist(write=write))

    def after(self, duration_ns: int) -> Instant:
        return Instant(self.now + duration_ns)

    def step(self) -> GroupStep:
        return GroupStep(state=self.state, effects=tuple(self.effects))
