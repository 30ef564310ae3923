"""A group's master in the checker's world: the real core, what it has asked of etcd and storage, and etcd itself.

The core gets each event at one instant, and a deadline at its own; afterwards every instant that it keeps is set back,
so time makes no states.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import assert_never

from master import group
from master.api.checkpoints.manifest import Manifest
from master.api.identities import ManifestId, Term
from master.api.positions import PositionSet
from master.group.group_events import GroupCoreEvent, GroupDeadline
from master.group.group_state import GroupState, GroupTurn
from master.job.domain.durable_records import Durable, DurableWrite, Instant, RecordQuarantine, SwapHead
from master.job.domain.effects import (
    AnswerServers,
    CloseStream,
    FallBack,
    FindAdoptable,
    Persist,
    Retain,
    Send,
    StepDown,
    WriteManifest,
)
from master.job.domain.job_config import JobConfig
from master.job.domain.job_events import HeadNamed, Persisted
from tests.protocol.interning import RememberedOf, Unique, hashed_once

NOW = Instant(1_000_000_000_000)
LATER = Instant(2 * NOW)
"""When some member is heard last: any other one may be silent at any time, and not the link to the master."""


@dataclass(frozen=True, kw_only=True)
class GroupMaster:
    """One term.  What it has asked for and has not been told the outcome of, in order."""

    state: GroupState
    writes: tuple[DurableWrite, ...] = ()
    manifests: tuple[Manifest, ...] = ()
    naming: ManifestId | None = None  # the head that the folder's file HEAD does not name yet
    named: Manifest | None = None  # what HEAD names, whichever master wrote it
    searches: int = 0
    has_stepped_down: bool = False

    def __hash__(self) -> int:
        """Kept; of the state it is its identity, as `states` has one object for equal ones."""
        known = vars(self)
        if "_hash" not in known:
            known["_hash"] = hash(
                (
                    id(self.state),
                    self.writes,
                    self.manifests,
                    self.naming,
                    self.named and self.named.id,
                    self.searches,
                    self.has_stepped_down,
                )
            )
        return int(known["_hash"])


states: Unique[GroupState] = Unique()
"""All that masters of worlds are in."""


@dataclass(frozen=True, kw_only=True)
class GroupEtcd:
    term: Term
    durable: Durable
    __hash__ = hashed_once


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMasterStep:
    master: GroupMaster
    said: tuple[Send | CloseStream, ...] = ()


def started(config: JobConfig, etcd: GroupEtcd, named: Manifest | None) -> GroupMasterStep:
    """The process that has just won the term and read what is durable; HEAD names `named`."""
    step = group.initial(config, etcd.durable, etcd.term, NOW)
    effects, head, naming = step.effects, etcd.durable.head, None
    if head is not None and named is not None and named.id == head.id:  # it is written again, which changes nothing
        step = group.handle(step.state, HeadNamed(manifest=head.id), NOW)
        effects = (*effects, *step.effects)
    elif head is not None:
        naming = head.id
    return _carried_out(GroupMaster(state=states.same(step.state), naming=naming, named=named), effects)


@lru_cache(maxsize=1 << 16)  # the same few masters meet the same few events in most states
def handled(
    master: GroupMaster, event: GroupCoreEvent, now: Instant = NOW, heard: GroupCoreEvent | None = None
) -> GroupMasterStep:
    """`heard`: a message that comes right before the event, a deadline, at the same instant."""
    if heard is not None:
        master = replace(master, state=group.handle(master.state, heard, now).state)
    step = group.handle(master.state, event, now)
    match event:
        case Persisted(write=SwapHead(manifest=manifest)):
            master = replace(master, naming=manifest)
        case HeadNamed():
            master = replace(master, naming=None, named=step.state.head)
    return _carried_out(replace(master, state=states.same(_timeless(step.state))), step.effects)


@RememberedOf
def check_state(state: GroupState) -> None:
    """The core's own check, asked once of each: most moves leave the master as it is.  Raises what that raises."""
    group.check_invariants(state)


@RememberedOf
def deadlines(state: GroupState) -> tuple[tuple[Instant, GroupDeadline], ...]:
    return group.deadlines(state)


def skipping(master: GroupMaster, positions: PositionSet) -> GroupMasterStep:
    """The master has decided to skip these positions: rule 94 says what follows."""
    turn = GroupTurn(master.state, NOW)
    assert turn.state.lineage is not None
    new = replace(turn.state.lineage, quarantine=turn.state.lineage.quarantine | positions)
    turn.write(RecordQuarantine(old=turn.state.lineage, new=new))
    return _carried_out(replace(master, state=states.same(turn.state)), tuple(turn.effects))


def _timeless(state: GroupState) -> GroupState:
    members = state.members
    for name, one in tuple(members.items()):
        window = None if one.window_ends is None else Instant(NOW + state.config.reconnect_window_ns)
        leaves = None if one.leaves_by is None else Instant(NOW + 10**10)
        parts = {"heard_at": NOW, "moved_at": NOW, "window_ends": window, "leaves_by": leaves}
        if any(getattr(one, key) != value for key, value in parts.items()):
            members = members.put(name, replace(one, **parts))
    return replace(
        state,
        members=members,
        broken_at=NOW if state.broken_at else Instant(0),
        heard_at=LATER,
        heard_again=NOW,
        gather_ends=None if state.gather_ends is None else Instant(NOW + 1),
        reclaim_ends=None if state.reclaim_ends is None else Instant(NOW + state.config.reconnect_window_ns),
        pace=replace(
            state.pace,
            due=None if state.pace.due is None else Instant(NOW + state.config.checkpoint_every_ns),
            committed_at=None if state.pace.committed_at is None else NOW,
        ),
    )


def _carried_out(master: GroupMaster, effects: tuple) -> GroupMasterStep:
    said: list[Send | CloseStream] = []
    for effect in effects:
        match effect:
            case Persist(write=write):
                master = replace(master, writes=(*master.writes, write))
            case WriteManifest(manifest=manifest):
                master = replace(master, manifests=(*master.manifests, manifest))
            case FindAdoptable():
                master = replace(master, searches=master.searches + 1)
            case Send() | CloseStream():
                said.append(effect)
            case Retain() | AnswerServers():
                pass
            case StepDown() | FallBack():
                master = replace(master, has_stepped_down=True)
            case _:
                assert_never(effect)
    return GroupMasterStep(master=master, said=tuple(said))
