"""State of a group member, and its invariants.  Pure; it hashes, so that a checker can keep it in a set."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from master.api.group_shares import total_steps
from master.api.identities import NO_LINEAGE, DatasetSpec, Incarnation, Lineage, MemberName
from master.api.messages.checkpoint_files import FileRecord
from master.api.messages.generations import CopyFailed, Generation, GroupEnded, ReplicaComparison, StateId
from master.api.positions import EMPTY, PositionSet
from trainer_sdk.group.core.member_events import GroupEffect, ReplicaDigest


class MemberPhase(StrEnum):
    OUT = "out"  # in no generation
    SYNC = "sync"  # entered; no list of the members' states yet
    TRANSFER = "transfer"  # the list is known; a state is sent, received or loaded
    BOUNDARY = "boundary"  # between two steps, or computing the next one: the replica is whole at `state`
    CONTRIBUTED = "contributed"  # in the step's flag collective
    COMPLETE = "complete"  # the step is complete here; the script applies it
    GONE = "gone"  # drained: takes part in nothing any more


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """Part of this member in the sync, once the list is known (rules 70, 71)."""

    state: StateId  # of the source: every member's, afterwards
    skipped: PositionSet
    source: int | None  # the rank that it receives from; None: it has the state, or loads the head
    is_from_head: bool = False
    receivers: tuple[int, ...] = ()  # ranks that it sends to, once it has the state


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """An unfinished checkpoint: a copy of the replica, or a shard, that is written in the background (84 to 88)."""

    number: int  # of the copy within this process
    offer: int
    state: StateId
    skipped: PositionSet
    stamp: int
    shard: int = 0
    writers: tuple[Incarnation, ...] = ()  # of the shards, in their order; none: the copy is whole
    is_compared: bool = True  # with the other members' replicas: it is offered from then on
    file: FileRecord | None = None  # once written
    contents: str = ""


@dataclass(frozen=True, kw_only=True)  # without slots, for `changed`
class MemberState:
    """One process's part in the group."""

    name: MemberName
    ordinal: int
    incarnation: Incarnation
    address: str  # of its listener
    dataset: DatasetSpec  # `batch_size` is the global batch
    layout: str
    has_final_hook: bool = False
    can_compare: bool = False  # its replica has digests

    is_registered: bool = False  # on the present stream
    lineage: Lineage = NO_LINEAGE  # newest heard
    left: int = 0  # takes part in nothing up to this generation: a promise (rule 73)
    entered: PositionSet = EMPTY  # numbers of the generations that it has been in
    offered: Generation | None = None  # newest record heard

    phase: MemberPhase = MemberPhase.OUT
    record: Generation | None = None  # of the generation that it is in
    is_connected: bool = False  # to the members of `record`
    transfer: Transfer | None = None
    previous: int = 0  # generation whose connections wait for the new one's list (rule 82); 0: none
    has_synced: bool = False

    plan: Generation | None = None  # newest record planned from `record` (rule 79)
    is_prepared: bool = False  # connected to the plan's members, or not one of them
    has_plan_failed: bool = False  # its members could not be connected: the master has to make another (rule 83)
    promised: Generation | None = None  # the plan that this step's control word named (rule 81)
    is_agreed: bool = False  # every member named it: the switch follows this step
    broken: int = 0  # heard while the step is applied: leave up to this generation afterwards
    must_stop: bool = False  # the script ended training while its step is not applied: with the next one (rule 97)

    state: StateId | None = None  # of the replica (rule 65); None: nothing, or as the script made it
    skipped: PositionSet = EMPTY  # part of the replica's data position (rules 63, 90)
    is_fresh: bool = True  # the replica is as the script made it
    is_step_given: bool = False
    newest_given: int = -1  # to tell a redo
    digest: ReplicaDigest | None = None  # the newest that was taken
    wants_comparison: bool = False  # carried to all members in the next control word
    is_comparison_agreed: bool = False  # all members digest the state of this boundary
    compared: ReplicaComparison | None = None  # the newest that found no difference
    is_last_compared: bool = False  # all members of the generation hold the last step's state

    copy: Copy | None = None
    copies: int = 0
    writing: int = 0  # number of the copy that is being written, also once it was dropped; 0: none
    offers: int = 0
    wants_copy: bool = False  # carried to all members in the next control word (rule 84)
    copy_shards: int = 0  # of the copy that all members take at this boundary; 0: none
    must_copy: bool = False  # the whole, by itself, at the next boundary
    committed: tuple[int, bool] = (0, False)  # `StateId.progress` of the newest head that it knows
    data_problem: str = ""  # what the members' samples have told (rule 63)
    untold_failure: CopyFailed | None = None  # of the newest copy, while there was no stream
    refused_copy: int = 0  # stamp of the last copy that failed or was refused

    is_leaving: bool = False
    grace_s: float = 0.0
    ended: GroupEnded | None = None

    @property
    def rank(self) -> int:
        """Rank in `record`; -1: in none."""
        return -1 if self.record is None else rank_in(self.record, self.incarnation)

    @property
    def number(self) -> int:
        """Number of the generation that the member is in; 0: none."""
        return 0 if self.record is None else self.record.number

    @property
    def step(self) -> int:
        return 0 if self.state is None else self.state.step

    @property
    def is_all_done(self) -> bool:
        """True at the last step, whether it is the job's or the one that a script ended training with (rule 97)."""
        return self.state is not None and (self.state.is_stopped or self.step >= total_steps(self.dataset))


@dataclass(frozen=True, slots=True)
class MemberStep:
    """Result of an event: the next state, and what the shell does, in this order."""

    state: MemberState
    effects: tuple[GroupEffect, ...] = ()


def changed(state: MemberState, /, **changes: object) -> MemberState:
    """As `dataclasses.replace`, in a tenth of its time: for what every step does."""
    assert changes.keys() <= vars(state).keys(), f"no fields of a member's state: {changes.keys() - vars(state).keys()}"
    new = object.__new__(MemberState)
    vars(new).update(vars(state), **changes)
    return new


def with_lineage(state: MemberState, lineage: Lineage) -> MemberState:
    """The state once this lineage was heard: what an older one has committed says nothing of a newer one (rule 93)."""
    return state if lineage <= state.lineage else replace(state, lineage=lineage, committed=(0, False))


def rank_in(record: Generation, incarnation: Incarnation) -> int:
    """Place of this process in the record, or -1: a new process stands in no old record (rule 64)."""
    ranks = [rank for rank, member in enumerate(record.members) if member.incarnation == incarnation]
    return ranks[0] if ranks else -1


_IN = frozenset(MemberPhase) - {MemberPhase.OUT, MemberPhase.GONE}


def check_member(state: MemberState) -> None:
    """Raises AssertionError when two parts of the state contradict each other."""
    assert (state.phase in _IN) == (state.record is not None), f"{state.phase} in generation {state.number}"
    if state.record is not None:
        assert state.rank >= 0, f"in generation {state.number}, which does not list it"
        assert state.number > state.left, f"in generation {state.number}, and promised up to {state.left} (rule 73)"
        assert state.number in state.entered
    in_step = state.phase in (MemberPhase.BOUNDARY, MemberPhase.CONTRIBUTED, MemberPhase.COMPLETE)
    assert not in_step or (state.state is not None and state.has_synced), "takes part in steps before its sync (72)"
    assert (state.phase is MemberPhase.TRANSFER) == (state.transfer is not None)
    assert state.plan is None or state.plan.planned_from == state.number, "a plan from another generation (79)"
    assert not state.has_plan_failed or (state.plan is not None and not state.is_prepared), "a failed plan is promised"
    assert state.promised is None or state.phase in (MemberPhase.CONTRIBUTED, MemberPhase.COMPLETE)
    assert not state.is_agreed or (state.promised is not None and state.phase is MemberPhase.COMPLETE)
    assert not state.broken or state.phase is MemberPhase.COMPLETE
    assert state.copy is None or state.copy.stamp <= max((0, *state.entered.bounds)), "a stamp it never was in (86)"
    assert state.state is None or not state.is_fresh
    is_stopped = state.state is not None and state.state.is_stopped
    in_next_step = state.is_step_given or state.phase in (MemberPhase.CONTRIBUTED, MemberPhase.COMPLETE)
    assert not (is_stopped and in_next_step), "takes part in a step after the last one (97)"
