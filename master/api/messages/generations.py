"""Records and messages of a group: trainers that each hold the whole model (rules 63 to 98).

A group's *generation* is one set of trainers that all-reduce their gradients; each change of members makes the next
one.  Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from master.api.identities import DatasetSpec, Incarnation, Lineage, ManifestId, MemberName, Term
from master.api.messages.checkpoint_files import FileRecord
from master.api.positions import EMPTY, PositionSet


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class StateId:
    """The bits of a replica and their age: generation in which the last step completed, and steps done (rule 65).

    Equal ids are equal bits; within a lineage the larger id, generation first, has seen more.  A stopped state has the
    bits of the one that is not, and is larger: who takes part in a sync with it is stopped too (rule 97).
    """

    lineage: Lineage
    generation: int
    step: int
    is_stopped: bool = False  # a script has ended training here, before the last step

    @property
    def progress(self) -> tuple[int, bool]:
        """Of two states in one line the later one's is larger."""
        return self.step, self.is_stopped


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMember:
    """A trainer of a generation; its rank is its place in the record."""

    name: MemberName
    incarnation: Incarnation
    address: str  # of its listener: host:port or unix:PATH
    share: int = 1  # weight of its share of each step's records
    takes_state: bool = False  # its replica is not the group's yet: no share of the generation's first step (rule 63)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadState:
    """The state that head holds; `manifest` None: the first state, which the script makes itself."""

    state: StateId
    manifest: ManifestId | None = None
    skipped: PositionSet = EMPTY
    files: tuple[FileRecord, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """The durable record of a generation (rule 64), written before anybody hears of it (rule 76).

    A share is a function of the record and the step alone (rule 63, `group_shares`).
    """

    number: int  # from one counter, never used twice
    lineage: Lineage
    members: tuple[GroupMember, ...]  # in rank order
    head: HeadState
    planned_from: int = 0  # the generation whose members agree on the switch (rules 79 to 83); 0: there is none
    quarantine: PositionSet = EMPTY  # skipped by all from here on (rule 94)
    suspects: PositionSet = EMPTY  # positions under suspicion: of `suspect_rank` alone (M4)
    suspect_rank: int = 0


class GroupPhase(StrEnum):
    """Phase of a group's member; the master tells by it whether a silent step is one that stands still."""

    OUT = "out"  # in no generation: its script waits for a step
    UNREADY = "unready"  # in no generation, and in the script's code, which has not asked for a step since (rule 75)
    SYNC = "sync"  # all members compare their states
    TRANSFER = "transfer"  # a state is received: waits for the member that sends it
    RESTORE = "restore"  # in a sync or transfer, and loads, copies or restores its replica: waits for no other member
    COMPUTE = "compute"  # in a step, before its collectives or between them
    WARM_UP = "warm_up"  # as COMPUTE, of a number of records that this process has not trained before: it may compile
    LOAD = "load"  # in a step, and waits for its data loader
    REDUCE = "reduce"  # in a step's collectives: waits for other members
    SCRIPT = "script"  # in the script's code outside a step: it applies one, evaluates, or has not heard of a sync yet
    DONE = "done"  # all steps are done; waits for the last copy and the end


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaComparison:
    """So many members of a generation have compared their replicas at this state, and all had this digest (rule 65)."""

    state: StateId
    members: int
    digest: str


# ---- from members ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterReplica:
    """First message of a group trainer's stream, and after FENCED or a broken stream."""

    name: MemberName
    ordinal: int
    incarnation: Incarnation
    address: str
    generation: int = 0  # that it is in; 0: none
    left: int = 0  # it takes part in nothing up to this generation: a promise (rule 73)
    state: StateId | None = None  # of its replica; None: nothing (rule 66)
    has_final_hook: bool = False
    is_leaving: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftGeneration:
    """REPORT (rule 73): this process takes part in nothing up to `left`, and its replica is at `state`."""

    left: int
    state: StateId | None
    differs: str = ""  # in what the members' replicas differ, and at whom (rule 65)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupProgress:
    """Alive, and what it does.  `steps_begun` grows with each step that the script begins; metrics as in Progress."""

    generation: int
    phase: GroupPhase
    state: StateId | None  # of its replica, at the last boundary
    is_synced: bool  # the sync of `generation` is over: its planned_from needs no member any more
    steps_begun: int
    median_step_s: float = 0.0  # of this process's last steps; 0: not known yet
    samples_per_s: float = 0.0
    pause_s: float = 0.0  # of the last change of members: from the last step before it to the next
    failed_plan: int = 0  # generation, planned from this one, whose members it could not connect (rule 83); 0: none
    waiting_share: float = 0.0  # of the time of its last steps, 0 to 1: its script waited for its data loader
    data_problem: str = ""  # where members have read other data (rule 63)
    compared: ReplicaComparison | None = None  # the newest one
    reducing_s: float = 0.0  # for so long it has waited in the collective that it is in; 0: it is in none
    compute_rate: float = 0.0  # its records a second while it computed, without the wait for others; 0: not known yet
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferState:
    """COMMIT (rule 87): a copy of the replica at `state` is written; `shards` files of one state make a checkpoint.

    `stamp`: the generation in which the copy was taken, or of a later sync that kept the state (rules 85, 86).
    Answered OfferAnswered, and asked again until then.  `file.marks`: `group_shares.copy_marks`.  `contents`: digest of
    the names, dtypes and shapes of the whole replica's arrays, equal for shards that fit together.
    """

    offer: int
    stamp: int
    state: StateId
    skipped: PositionSet
    shard: int
    shards: int
    file: FileRecord
    contents: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyFailed:
    """This member's part of the copy at `state` could not be written: the other shards are given up (rule 88)."""

    state: StateId
    shards: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveRequest:
    """This trainer terminates within `grace_s`: the next planned generation leaves it out (rules 79, 83).

    It is said again after each registration, with what is left by then.
    It ends after the switch to a generation without it, or when it is Released.
    """

    grace_s: float
    reason: str = ""


# ---- from the master ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaRegistered:
    """Answer to RegisterReplica."""

    term: Term
    lineage: Lineage
    dataset: DatasetSpec | None
    report_every_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NewGeneration:
    """NEW, or PLAN if the record is planned from another one (rules 76, 77, 79)."""

    record: Generation


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokenGeneration:
    """BROKEN (rule 74): leave everything up to this number, and report."""

    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyWanted:
    """Have the replica copied and offered, within `deadline_s` (rule 84).

    The next step's word carries the wish to all members.  Who leaves, is alone, or has done the last step copies by
    itself at its next boundary: whoever leaves waits for it (83).
    """

    deadline_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonWanted:
    """Have the members compare their replicas: the next step's word carries the wish, that after it the digests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupEnded:
    """FINAL and END (rule 96): everything is trained and committed.  `final_saver`: run the hook, say FinalSaved.

    `head`: of END, the last checkpoint.  Who holds another state loads it before its script goes on after the loop.
    """

    final_saver: bool = False
    head: HeadState | None = None
