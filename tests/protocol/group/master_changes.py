"""What can happen next with the master of a group: its writes, its deadlines, take-overs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

from master.api.group_shares import data_of
from master.api.identities import Lineage, Term
from master.api.messages.generations import GroupPhase
from master.api.positions import PositionSet
from master.group import group_events
from master.job.domain.durable_records import (
    DatasetRecord,
    Durable,
    DurableWrite,
    Instant,
    LineageRecord,
    MemberKey,
    SwapHead,
)
from master.job.domain.job_events import (
    HeadNamed,
    ManifestWritten,
    MessageReceived,
    Persisted,
    PersistRefused,
    ReclaimWindowEnded,
    ReconnectWindowEnded,
)
from tests.protocol import masters as plain_masters
from tests.protocol.group import masters
from tests.protocol.group.change import Change, content_of
from tests.protocol.group.draft import GroupDraft, member_step
from tests.protocol.group.masters import GroupEtcd
from tests.protocol.group.member_changes import report_of
from tests.protocol.group.settings import GroupSetting
from tests.protocol.group.world import ASTRAY, Bits, GroupWorld, Presence, without_astray
from trainer_sdk.group.core.member_events import TellMaster

IN_OWN_CODE: Final = (GroupPhase.COMPUTE, GroupPhase.WARM_UP, GroupPhase.LOAD, GroupPhase.SCRIPT, GroupPhase.RESTORE)


def master_changes(setting: GroupSetting, world: GroupWorld) -> Iterator[Change]:
    master = world.master
    if master.writes:
        yield Change(f"master's {type(master.writes[0]).__name__} is answered", _write)
    if master.manifests:
        yield Change(f"manifest of {master.manifests[0].state} is written", write_manifest)
    if master.naming:
        yield Change(f"HEAD names {master.naming}", name_head)
    yield Change("a new master TAKES OVER", _take_over, "take_over")
    yield Change("the store's records are LOST, and a new master begins", _lose_store, "lose")
    if master.has_stepped_down:
        yield Change("the master has stepped down, another one leads", _take_over)
    if world.old_masters and world.old_masters[0].writes:
        yield Change("the old master's write arrives", _old_write)
    if setting.has_head and (head := world.etcd.durable.head) and 0 < head.step < setting.steps:
        yield Change("a user goes back to the first checkpoint, and a new master begins", _restore, "restore")
    if world.etcd.durable.lineage and not master.state.writing:
        yield Change("master decides to SKIP the last position", _skip, "skip")
    for at, deadline in masters.deadlines(master.state):
        yield from _deadline_changes(world, at, deadline)


def _deadline_changes(world: GroupWorld, at: Instant, deadline: group_events.GroupDeadline) -> Iterator[Change]:
    def act(draft: GroupDraft, heard: MessageReceived | None = None) -> None:
        draft.master_handles(deadline, now=masters.LATER if heard else at, heard=heard)

    label = type(deadline).__name__
    match deadline:
        case group_events.JoinersGathered():
            is_late = world.etcd.durable.generation is None and _is_anybody_late(world)
            yield Change(label, act, "suspect" if is_late else "")
        case group_events.CheckpointDue():
            if any(one.core is not None and one.core.is_all_done for one in world.members):
                yield Change(label, act)
            elif world.copies:
                yield Change(label, lambda draft: _copy_due(draft, act))
        case ReconnectWindowEnded(member=key) | group_events.ReplicaSilent(member=key):
            yield _loss(world, key, f"{label} {key.name}", act)
        case group_events.LeaveDue(member=key):
            member = next((one for one in world.members if one.core and one.core.incarnation == key.incarnation), None)
            is_dead = member is None or member.presence is not Presence.HERE
            if is_dead:
                yield Change(f"{label} {key.name}", act)
        case ReclaimWindowEnded():
            is_late = _is_anybody_late(world) or _is_first_record_held_up(world)
            yield Change(label, act, "suspect" if is_late else "")


def _is_anybody_late(world: GroupWorld) -> bool:
    """True while a living process has not come to the new master."""
    term = world.master.state.term
    return any(one.presence is Presence.HERE and one.link != term for one in world.members)


def _is_first_record_held_up(world: GroupWorld) -> bool:
    """True while the first record waits for a member that has not left a lost one."""
    has_record = world.etcd.durable.generation is not None
    return not (has_record or all(one.is_out for one in world.master.state.members.values()))


def _loss(world: GroupWorld, key: MemberKey, label: str, act: Callable[..., None]) -> Change:
    """No suspicion where the process is dead, or its script hangs."""
    for place, member in enumerate(world.members):
        if member.core and member.core.incarnation == key.incarnation and member.presence is Presence.HERE:
            if member.is_hanging and member.link:
                return Change(label, lambda draft, at=place: _lose_hanging(draft, at, act))
            return Change(label, act, "suspect")
    return Change(label, act)


def _lose_hanging(draft: GroupDraft, place: int, act: Callable[[GroupDraft, MessageReceived], None]) -> None:
    """The master holds a script that hangs for lost, whose process reports till then.

    Only if others wait for it.  I9 counts from here on if the master knows where the script is.
    """
    member = draft.member(place)
    core = member.core
    assert core is not None
    known = draft.world.master.state.members.get(core.name)
    (report,) = [one.message for one in member_step(core, report_of(member)).effects if isinstance(one, TellMaster)][:1]
    key = MemberKey(name=core.name, incarnation=core.incarnation)
    act(draft, MessageReceived(sender=key, message=report))
    lost = draft.world.master.state.members.get(core.name)
    if known is not None and known.phase in IN_OWN_CODE and lost is not None and lost.is_lost:
        draft.set_member(place, is_left_behind=True)


def _write(draft: GroupDraft) -> None:
    master = draft.world.master
    write = master.writes[0]
    draft.world = draft.world._replace(master=replace(master, writes=master.writes[1:]))
    _answer(draft, write, master.state.term)


def _answer(draft: GroupDraft, write: DurableWrite, term: Term) -> None:
    is_done = _try_write(draft, write, term)
    draft.master_handles(
        Persisted(write=write) if is_done else PersistRefused(write=write, reason="compared"), term=term
    )


def _try_write(draft: GroupDraft, write: DurableWrite, term: Term) -> bool:
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
    if any(tag[-1] == ASTRAY for file in head.files for tag in content_of(draft.world, file.name)[0]):
        draft.blame(f"I10: head {head.state} is of replicas that differ")
    if any(content_of(draft.world, file.name) != (bits, skipped) for file in head.files[1:]):
        draft.blame(f"I1: head {head.state} is put together of two states")
    if len(bits) - 1 != head.state.step or any(tag[1] == "bad" for tag in bits):
        draft.blame(f"I1: head {head.state} has had the updates {bits}")
    data = data_of(draft.setting.dataset, len(bits) - 1) - skipped
    if (head.data, head.step) != (data, len(bits) - 1):
        draft.blame(f"I1: head says that it holds {head.data} after step {head.step}, its file holds {data}")
    if any(tag[0] <= draft.world.given_up for tag in bits[1 + draft.world.kept :]):
        draft.blame(f"I7: head holds {bits}, generations up to {draft.world.given_up} were given up")
    if skipped != head.quarantine:
        draft.blame(f"I1: head says that it skips {head.quarantine}, its file skips {skipped}")
    before = draft.world.etcd.durable.head
    if before is not None:
        old, _ = content_of(draft.world, before.files[0].name)
        if bits[: len(old)] != old:
            draft.blame(f"I3: head goes from {old} to {bits}, which does not extend it")
    _check_line(draft, bits)


def _check_line(draft: GroupDraft, head: Bits) -> None:
    """I3: the head is an ancestor of what the recorded generations hold, or one step before it (rule 87)."""
    record = draft.world.etcd.durable.generation
    numbers = [one.number for one in (record.current, record.before) if one] if record else []
    for member in draft.world.members:
        core = member.core
        if member.presence is not Presence.HERE or core is None or not core.has_synced or core.number not in numbers:
            continue
        shorter = min(len(head), len(member.bits))
        held = without_astray(member.bits)[:shorter]
        if core.state and core.state.lineage == record.current.lineage and without_astray(head)[:shorter] != held:
            draft.blame(f"I3: head goes to {head}, and {core.name} of generation {core.number} holds {member.bits}")


def _take_over(draft: GroupDraft) -> None:
    old = draft.world.master
    etcd = replace(draft.world.etcd, term=Term(draft.world.etcd.term + 1))
    keeps = (old,) if old.writes or draft.setting.overlap else ()
    step = masters.started(draft.setting.config, etcd, old.named)
    draft.world = draft.world._replace(etcd=etcd, master=step.master, old_masters=keeps)
    for place, member in enumerate(draft.world.members):
        draft.set_member(place, is_left_behind=False)
        if member.link and not draft.setting.overlap:
            draft.set_member(place, link=0, inbox=(), outbox=())
    draft.take_master_step(step)


def _old_write(draft: GroupDraft) -> None:
    """And it goes on, or steps down."""
    old = draft.world.old_masters[0]
    write = old.writes[0]
    draft.put_master(replace(old, writes=old.writes[1:]))
    _answer(draft, write, old.state.term)
    stays = tuple(one for one in draft.world.old_masters if draft.setting.overlap and not one.has_stepped_down)
    draft.world = draft.world._replace(old_masters=stays)


def _restore(draft: GroupDraft) -> None:
    """Head and lineage change beneath the masters (rule 93); the new one finds members of the lineage before."""
    etcd = draft.world.etcd
    old, record = etcd.durable.lineage, etcd.durable.generation
    assert old is not None
    lineage = replace(old, number=Lineage(old.number + 1))
    durable = replace(etcd.durable, lineage=lineage, head=draft.setting.first_checkpoint)
    given_up = record.current.number if record else 0
    draft.world = draft.world._replace(etcd=replace(etcd, durable=durable), given_up=given_up)
    draft.put_master(replace(draft.world.master, named=draft.setting.first_checkpoint))
    _take_over(draft)


def _lose_store(draft: GroupDraft) -> None:
    """The new master begins from the checkpoint that the folder's file HEAD names, in a lineage of its own (rule 29).

    Without one it knows of nothing.  What the old master had asked of its store is lost with it.
    """
    master, etcd = draft.world.master, draft.world.etcd
    head = master.named
    durable = Durable()
    if head is not None:
        lineage = LineageRecord(number=Lineage(head.lineage + 1), base=head.id, quarantine=head.quarantine)
        durable = Durable(lineage=lineage, head=head, dataset=DatasetRecord(dataset=head.dataset))
        draft.world = draft.world._replace(given_up=_newest_generation(draft.world, head.step), kept=head.step)
    draft.put_master(replace(master, writes=()))
    draft.world = draft.world._replace(etcd=replace(etcd, durable=durable))
    _take_over(draft)


def _newest_generation(world: GroupWorld, kept: int) -> int:
    """The largest one that somebody has been in; a number that was recorded and never heard may be given again."""
    here = [one for one in world.members if one.presence is Presence.HERE]
    held = [*(one.bits for one in here), *(bits for _, bits, _ in world.files)]
    worked = [tag[0] for bits in held for tag in bits[1 + kept :]]
    return max([0, *worked, *(one.core.number for one in here if one.core)])


def _skip(draft: GroupDraft) -> None:
    dataset = draft.setting.dataset
    draft.take_master_step(masters.skipping(draft.world.master, PositionSet.of(dataset.size - 1)))


def _copy_due(draft: GroupDraft, act: Callable[[GroupDraft], None]) -> None:
    draft.world = draft.world._replace(copies=draft.world.copies - 1)
    act(draft)


def write_manifest(draft: GroupDraft) -> None:
    master = draft.world.master
    first, *rest = master.manifests
    draft.world = draft.world._replace(
        master=replace(master, manifests=tuple(rest)), storage=(*draft.world.storage, first)
    )
    draft.master_handles(ManifestWritten(manifest=first.id), term=master.state.term)


def name_head(draft: GroupDraft) -> None:
    master = draft.world.master
    assert master.naming is not None
    draft.master_handles(HeadNamed(manifest=master.naming), term=master.state.term)
