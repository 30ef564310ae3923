"""What masters do, the one that leads and those that do not know better: etcd and storage answer, time is up."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import assert_never

from master.api.checkpoints.manifest import Manifest
from master.api.identities import Term
from master.api.messages.to_members import Cut, Hold
from master.job.domain.durable_records import MemberKey, RaiseLineage, ReserveHighWater
from master.job.domain.job_events import (
    AdoptableFound,
    AnswersOverdue,
    CommitDue,
    CutExpired,
    Deadline,
    HoldExpired,
    LeaseExpired,
    ManifestWritten,
    MovesExpired,
    MovesRetryDue,
    OwnersWaitEnded,
    Persisted,
    PersistRefused,
    ReclaimWindowEnded,
    ReconnectWindowEnded,
)
from master.job.state.protocol_state import CommitPhase
from tests.protocol import claims, masters
from tests.protocol.draft import Draft
from tests.protocol.masters import MasterProcess
from tests.protocol.steps.change import UNNEEDED, Change, Label
from tests.protocol.world import Cast, ServerSlot, World
from trainer_sdk.pserver.core.server_state import CutPhase


def of_leader(cast: Cast, world: World) -> Iterator[Change]:
    leader = cast.masters[world.leader]
    yield from _asked_for(cast, world, world.leader, leader, "master")
    if leader.has_stepped_down:
        yield Change(Label("the master campaigns again"), take_over)
    for deadline in cast.deadlines(world.leader):
        yield Change(
            Label("time is up at the master: {}", (deadline,)),
            lambda d, deadline=deadline: d.to_leader(deadline),
            _fault_of(cast, world, leader, deadline),
        )


def of_zombies(cast: Cast, world: World) -> Iterator[Change]:
    for number in world.zombies:
        zombie = cast.masters[number]
        for change in _asked_for(cast, world, number, zombie, f"old master {zombie.state.term}"):
            yield replace(change, fault=UNNEEDED)
        for deadline in cast.deadlines(number):
            if isinstance(deadline, CommitDue):
                yield Change(
                    Label("old master {} begins a cut", (zombie.state.term,)),
                    lambda d, deadline=deadline, term=zombie.state.term: d.to_master(term, deadline),
                    "zombie",
                )


def _asked_for(cast: Cast, world: World, number: int, master: MasterProcess, who: str) -> Iterator[Change]:
    """The outcome of what this master has asked of etcd and of storage."""
    if master.writes:
        label = Label("etcd answers {}: {}", (who, master.writes[0]))
        yield Change(label, lambda d: _written(d, number))
    for manifest in master.manifests:
        label = Label("{}: manifest {} of {} is written", (who, manifest.id, list(manifest.data)))
        yield Change(label, lambda d, manifest=manifest: _manifest_written(d, number, manifest))
    for search in master.searches:
        for found in (None, *masters.adoptable(cast.storages[world.storage], search)):
            label = Label("{} looks for a manifest to adopt, finds {}", (who, found and found.id))
            yield Change(label, lambda d, found=found: _found(d, number, found))


def _written(draft: Draft, number: int) -> None:
    master = draft.cast.masters[number]
    write, *rest = master.writes
    etcd = draft.durable()
    after = masters.try_write(etcd, master.state.term, write, draft.cast.storages[draft.storage])
    new = draft.cast.masters.number(replace(master, writes=tuple(rest)))
    draft.replace_master(number, new)
    if after is None:
        draft.to_master(master.state.term, PersistRefused(write=write, reason=""))
        return
    if after.durable.head is not None and after.durable.head != etcd.durable.head:
        size, is_plain = draft.cast.setting.positions, not draft.cast.setting.servers
        draft.wrong(claims.wrong_with_new_head(etcd, after.durable.head, size, is_plain=is_plain))
    draft.etcd = draft.cast.etcds.number(after)
    if isinstance(write, RaiseLineage):
        draft.forget_answers()
    draft.to_master(master.state.term, Persisted(write=write))


def reserve(draft: Draft) -> None:
    """The mark, and who trains, are written once it is their turn: no other write of the leader is before them.

    Nothing waits for either (rule 18), so their delay makes many states and little else; it is explored where it is
    the subject (`has_near_mark`).
    """
    while not draft.cast.setting.has_near_mark:
        writes = draft.cast.masters[draft.leader].writes
        if not writes or not isinstance(writes[0], ReserveHighWater):
            return
        _written(draft, draft.leader)
        draft.settle()


def _manifest_written(draft: Draft, number: int, manifest: Manifest) -> None:
    master = draft.cast.masters[number]
    rest = tuple(m for m in master.manifests if m is not manifest)
    draft.replace_master(number, draft.cast.masters.number(replace(master, manifests=rest)))
    draft.storage = draft.cast.storages.number((*draft.cast.storages[draft.storage], manifest))
    draft.to_master(master.state.term, ManifestWritten(manifest=manifest.id))


def _found(draft: Draft, number: int, found: Manifest | None) -> None:
    master = draft.cast.masters[number]
    draft.replace_master(number, draft.cast.masters.number(replace(master, searches=master.searches[1:])))
    draft.to_master(master.state.term, AdoptableFound(manifest=found))


def take_over(draft: Draft) -> None:
    """The old master does not know it yet."""
    etcd = draft.durable()
    after = replace(etcd, term=Term(etcd.term + 1))
    draft.etcd = draft.cast.etcds.number(after)
    draft.zombies.append(draft.leader)
    step = masters.started(draft.cast.setting.job, after)
    draft.leader = draft.cast.masters.number(step.process)
    draft.master_stepped(draft.leader, step)


def _fault_of(cast: Cast, world: World, leader: MasterProcess, deadline: Deadline) -> str | None:
    """Which fault it is that this deadline passes; None when it must come."""
    match deadline:
        case CommitDue() | ReclaimWindowEnded() | MovesRetryDue():
            return None
        case LeaseExpired():
            return "pause"
        case ReconnectWindowEnded(member=member):
            return "pause" if _lives(cast, world, member) else None
        case MovesExpired() | OwnersWaitEnded():
            return "deadline"
        case HoldExpired() | CutExpired():
            slots = [cast.servers[s] for s in world.servers]
            return None if any(is_lost(leader, slot, s) for s, slot in enumerate(slots)) else "deadline"
        case AnswersOverdue():
            return "repeat" if any(cast.servers[s].inbox for s in world.servers) else None
        case _:
            assert_never(deadline)


def _lives(cast: Cast, world: World, member: MemberKey) -> bool:
    slots = (cast.trainers[t] for t in world.trainers)
    keys = {cast.trainer_key(slot.process) for slot in slots if slot.process}
    keys |= {cast.server_key(cast.servers[s], place) for place, s in enumerate(world.servers)}
    return member in keys


def is_lost(leader: MasterProcess, slot: ServerSlot, ordinal: int) -> bool:
    """What the master waits to hear from this server will not come."""
    commit, known = leader.state.commit, slot.process.state.cut
    if ordinal not in commit.expected:
        return False
    if any(isinstance(m, Hold | Cut) and m.cut == commit.cut for m in slot.inbox):
        return False
    if known is None or known.cut != commit.cut:
        return True
    is_waited_for = ordinal not in (commit.held if commit.phase is CommitPhase.HOLDING else commit.files)
    return is_waited_for and known.phase in (CutPhase.HELD, CutPhase.WRITTEN, CutPhase.GONE)
