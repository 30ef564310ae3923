"""`MasterState`: state of one job's master, frozen; `Turn`: builder of the next state.

The state is soft but for `domain.Durable`: a new master rebuilds it from the store, the servers' marks and the
trainers that register.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Final

from master.api.checkpoints.manifest import Manifest
from master.api.identities import NO_LINEAGE, Lineage, ManifestId, Route, Term
from master.api.messages.to_members import MasterMessage
from master.api.positions import EMPTY
from master.job.domain.durable_records import (
    UNNAMED_ORIGIN,
    Backups,
    BucketTable,
    DatasetRecord,
    DurableWrite,
    Instant,
    LineageRecord,
    ManifestOrigin,
    MemberKey,
    RaiseLineage,
    RecordQuarantine,
    SwapHead,
)
from master.job.domain.effects import CoreEffect, Persist, Send
from master.job.domain.frozen_map import FrozenMap, copy_with
from master.job.domain.job_config import JobConfig
from master.job.placement.owner_placement import Weight
from master.job.state.dispatch_state import DispatchState
from master.job.state.members import Members, Server
from master.job.state.protocol_state import (
    BucketMoves,
    CommitPhase,
    CommitState,
    HighWaterMark,
    LeaseHolders,
    RecoveryStage,
    RecoveryState,
    ServerScale,
    SkipState,
)
from master.job.state.trainer_failures import FailureCounts

NO_PROMOTIONS: Final[FrozenMap[int, int]] = FrozenMap()
NO_WEIGHTS: Final[FrozenMap[int, Weight]] = FrozenMap()


@dataclass(frozen=True, kw_only=True)  # no slots: `copy_with` copies it with each event
class MasterState:
    config: JobConfig
    term: Term
    lineage: LineageRecord | None = None  # as recorded
    head: Manifest | None = None
    dataset: DatasetRecord | None = None  # as recorded
    pending_declaration: DatasetRecord | None = None  # being recorded
    is_end_inherited: bool = False  # head, of an earlier start of the job, holds all; no trainer has declared the same
    route: Route | None = None
    backups: Backups | None = None  # beside the route, where buckets have two copies
    writing: DurableWrite | None = None  # the one change of head, lineage or quarantine under way
    recovery: RecoveryState = field(default_factory=RecoveryState)
    members: Members = field(default_factory=Members)
    dispatch: DispatchState = field(default_factory=DispatchState)
    failures: FailureCounts = field(default_factory=FailureCounts)
    commit: CommitState = field(default_factory=CommitState)
    skip: SkipState | None = None
    moves: BucketMoves = field(default_factory=BucketMoves)
    promotions: FrozenMap[int, int] = NO_PROMOTIONS  # by server: buckets of lost servers that it took over (rule 62)
    weights: FrozenMap[int, Weight] = NO_WEIGHTS  # of buckets, as far as their owners have reported them
    scale: ServerScale = field(default_factory=ServerScale)
    reclaim_ends: Instant | None = None  # until then leases of an earlier master may be claimed (rule 18)
    high_water: HighWaterMark = field(default_factory=HighWaterMark)
    lease_holders: LeaseHolders = field(default_factory=LeaseHolders)
    final_saver: MemberKey | None = None  # trainer chosen for the final save, until FinalSaved arrives
    is_final_saved: bool = False
    failed: str = ""  # the job is given up, for this reason
    origin: ManifestOrigin = UNNAMED_ORIGIN
    is_over: bool = False  # this term has ended: nothing is decided any more

    @property
    def number(self) -> Lineage:
        """The number of the current lineage; NO_LINEAGE: there is none yet."""
        return self.lineage.number if self.lineage else NO_LINEAGE

    @property
    def head_id(self) -> ManifestId | None:
        return self.head.id if self.head else None

    @property
    def table(self) -> BucketTable | None:
        """The bucket table as recorded."""
        return BucketTable(route=self.route, intents=self.moves.intents, backups=self.backups) if self.route else None

    @property
    def stage(self) -> RecoveryStage:
        return self.recovery.stage

    def has_to_leave(self, server: Server) -> bool:
        """True if the server said that it leaves, was released, or the job is to have fewer servers."""
        return server.is_leaving or server.is_released or server.ordinal >= self.scale.target

    @property
    def is_complete(self) -> bool:
        """True if END may be said: everything is trained or quarantined, and head says so (rule 32)."""
        return self.dispatch.is_exhausted and self.head is not None and self.head.is_complete

    @property
    def is_commit_due(self) -> bool:
        """True if a commit begins as soon as it can, and there is something to commit."""
        commit, dispatch = self.commit, self.dispatch
        if commit.phase is not CommitPhase.IDLE or self.dataset is None:
            return False
        is_urgent = dispatch.is_exhausted and not commit.is_backing_off
        has_news = bool(dispatch.done) or dispatch.quarantined != (self.head.quarantine if self.head else EMPTY)
        return has_news and (commit.due is None or is_urgent)

    @property
    def is_model_kept(self) -> bool:
        """False once the job is known to share out records only, and nothing of what trainers learn is committed."""
        return self.dataset is None or bool(self.dataset.tables)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStep:
    """The state after an event, and the effects that the shell carries out, in this order."""

    state: MasterState
    effects: tuple[CoreEffect, ...]


class Turn:
    """The handling of one event: handlers put new values into `state` and append effects."""

    __slots__ = ("effects", "now", "state")

    def __init__(self, state: MasterState, now: Instant) -> None:
        self.state = state
        self.now = now
        self.effects: list[CoreEffect] = []

    def change(self, **parts: Any) -> None:
        self.state = copy_with(self.state, **parts)

    def recover(self, **parts: Any) -> None:
        self.change(recovery=replace(self.state.recovery, **parts))

    def emit(self, effect: CoreEffect) -> None:
        self.effects.append(effect)

    def send(self, to: MemberKey, message: MasterMessage) -> None:
        self.effects.append(Send(to=to, message=message))

    def write(self, write: SwapHead | RaiseLineage | RecordQuarantine) -> None:
        """Writes head, lineage or quarantine; one such write at a time, since each requires what the one before it
        made.
        """
        assert self.state.writing is None
        self.change(writing=write)
        self.emit(Persist(write=write))

    def after(self, duration_ns: int) -> Instant:
        return Instant(self.now + duration_ns)

    def step(self) -> JobStep:
        return JobStep(state=self.state, effects=tuple(self.effects))
