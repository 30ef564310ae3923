"""What can happen next with the master of a group: its writes, its deadlines, take-overs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from master import group as master_group
from master.api.identities import Term
from master.group import group_events
from master.job.domain.durable_records import Instant, SwapHead
from master.job.domain.job_events import (
    ManifestWritten,
    Persisted,
    PersistRefused,
    ReclaimWindowEnded,
    ReconnectWindowEnded,
)
from tests.protocol import masters as plain_masters
from tests.protocol.group import masters
from tests.protocol.group.change import Change, content_of
from tests.protocol.group.draft import GroupDraft
from tests.protocol.group.masters import GroupEtcd
from tests.protocol.group.world import GroupWorld, Presence


def master_changes(world: GroupWorld) -> Iterator[Change]:
    master = world.master
    if master.writes:
        yield Change(f"master's {type(master.writes[0]).__name__} is answered", _write)
    if master.manifests:
        yield Change(f"manifest of {master.manifests[0].state} is written", _manifest)
    yield Change("a new master TAKES OVER", _take_over, "take_over")
    if master.has_stepped_down:
        yield Change("the master has stepped down, another one leads", _take_over)
    if world.old_masters:
        yield Change("the old master's write arrives", _old_write)
    for at, deadline in master_group.deadlines(master.state):
        yield from _deadline_changes(world, at, deadline)


def _deadline_changes(world: GroupWorld, at: Instant, deadline: group_events.GroupDeadline) -> Iterator[Change]:
    def act(draft: GroupDraft) -> None:
        draft.master_handles(deadline, now=at)

    label = type(deadline).__name__
    match deadline:
        case group_events.JoinersGathered():
            yield Change(label, act)
        case group_events.CheckpointDue():
            if world.copies:
                yield Change(label, lambda draft: _copy_due(draft, act))
        case ReconnectWindowEnded(member=key) | group_events.ReplicaSilent(member=key):
            member = next((one for one in world.members if one.core and one.core.incarnation == key.incarnation), None)
            is_dead = member is None or member.presence is not Presence.HERE
            yield Change(f"{label} {key.name}", act, "" if is_dead else "suspect")
        case group_events.LeaveDue(member=key):
            member = next((one for one in world.members if one.core and one.core.incarnation == key.incarnation), None)
            is_dead = member is None or member.presence is not Presence.HERE
            if is_dead:
                yield Change(f"{label} {key.name}", act)
        case ReclaimWindowEnded():
            yield Change(label, act)


def _write(draft: GroupDraft) -> None:
    master = draft.world.master
    write = master.writes[0]
    draft.world = draft.world._replace(master=replace(master, writes=master.writes[1:]))
    after = _try_write(draft, write, master.state.term)
    draft.master_handles(
        Persisted(write=write) if after else PersistRefused(write=write, reason="compared"), term=master.state.term
    )


def _try_write(draft: GroupDraft, write: object, term: Term) -> bool:
    etcd = draft.world.etcd
    plain = plain_masters.Etcd(term=etcd.term, durable=etcd.durable)
    after = plain_masters.try_write(plain, term, write, draft.world.storage)
    if after is None:
        return False
    if isinstance(write, SwapHead):
        _check_head(draft, after.durable.head)
    draft.world = draft.world._replace(etcd=GroupEtcd(term=after.term, durable=after.durable))
    return True


def _check_head(draft: GroupDraft, head: object) -> None:
    bits, skipped = content_of(draft.world, head.files[0].name)
    if len(bits) - 1 != head.state.step or any(tag[1] == "bad" for tag in bits):
        draft.blame(f"I1: head {head.state} has had the updates {bits}")
    if skipped != head.quarantine:
        draft.blame(f"I1: head says that it skips {head.quarantine}, its file skips {skipped}")
    before = draft.world.etcd.durable.head
    if before is not None:
        old, _ = content_of(draft.world, before.files[0].name)
        if bits[: len(old)] != old:
            draft.blame(f"I3: head goes from {old} to {bits}, which does not extend it")


def _take_over(draft: GroupDraft) -> None:
    old = draft.world.master
    etcd = replace(draft.world.etcd, term=Term(draft.world.etcd.term + 1))
    keeps = (old,) if old.writes else ()
    step = masters.started(draft.setting.config, etcd)
    draft.world = draft.world._replace(etcd=etcd, master=step.master, old_masters=keeps)
    for place, member in enumerate(draft.world.members):
        if member.link:
            draft.set_member(place, link=0, inbox=(), outbox=())
    draft.take_master_step(step)


def _old_write(draft: GroupDraft) -> None:
    old = draft.world.old_masters[0]
    _try_write(draft, old.writes[0], old.state.term)
    draft.world = draft.world._replace(old_masters=())


def _copy_due(draft: GroupDraft, act: Callable[[GroupDraft], None]) -> None:
    draft.world = draft.world._replace(copies=draft.world.copies - 1)
    act(draft)


def _manifest(draft: GroupDraft) -> None:
    master = draft.world.master
    first, *rest = master.manifests
    draft.world = draft.world._replace(
        master=replace(master, manifests=tuple(rest)), storage=(*draft.world.storage, first)
    )
    draft.master_handles(ManifestWritten(manifest=first.id), term=master.state.term)
