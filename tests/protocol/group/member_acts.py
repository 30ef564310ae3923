"""What a trainer of a group does: its collectives, its steps, its copies and its end."""

from __future__ import annotations

from dataclasses import replace
from hashlib import blake2b

from master.api.group_shares import copy_marks
from master.api.messages.checkpoint_files import FileRecord
from master.api.messages.from_members import Leave
from tests.protocol.group.change import content_of
from tests.protocol.group.draft import GroupDraft
from tests.protocol.group.world import ASTRAY, Collectives, Presence, StepSum, put, without_astray
from trainer_sdk.group.core.member_events import (
    CopyTaken,
    CopyWritten,
    DigestTaken,
    FinalHookDone,
    GatherStates,
    LoadHead,
    ReceiveState,
    SendState,
    StateCaptured,
    StatesGathered,
    StateTaken,
    StepApplied,
    StepReduced,
    StopAsked,
    TakeCopy,
    TakeDigest,
    WordsGathered,
)
from trainer_sdk.group.core.member_state import MemberPhase, MemberState, Transfer
from trainer_sdk.group.core.replica_digests import digest_of
from trainer_sdk.group.core.sync import choose_transfer
from trainer_sdk.group.core.transitions import give
from trainer_sdk.protocol.trainer_events import FinishReason


def take_list(draft: GroupDraft, place: int, event: StatesGathered) -> None:
    draft.tell(place, event)
    core = draft.member(place).core
    if core is not None and core.number == event.number:
        _check_source(draft, place, core)
    may_lose = draft.has_happened("suspect") or draft.world.given_up > 0
    if core is None or core.number != event.number or may_lose:
        return
    source = core.transfer.state.step if core.transfer else core.step
    others = [one.core for one in draft.world.members if one.presence is Presence.HERE and one.core]
    most = max(one.step for one in others if not one.is_leaving or one.number == event.number)
    if source < most - 1:
        draft.blame(f"I4: generation {event.number} goes on from step {source}, a living process has held step {most}")


def _check_source(draft: GroupDraft, place: int, core: MemberState) -> None:
    """I3: what the generation goes on from extends the head that its record names."""
    group, transfer = draft.group(core.number, core), core.transfer
    files = group.record.head.files
    if not files or (transfer is not None and transfer.is_from_head):
        return
    head, _ = content_of(draft.world, files[0].name)
    sender = core.rank
    while (known := _transfer_of(group, sender)) is not None and known.source is not None:
        sender = known.source
    incarnation = group.record.members[sender].incarnation
    bits = next(one.bits for one in draft.world.members if one.core and one.core.incarnation == incarnation)
    if without_astray(bits)[: len(head)] != head:
        draft.blame(f"I3: generation {core.number} goes on from {bits}, which does not extend the head {head}")


def _transfer_of(group: Collectives, rank: int) -> Transfer | None:
    entries = tuple(entry for entry in group.entries if entry is not None)
    return choose_transfer(group.record, entries, rank)


def enter_sync(draft: GroupDraft, place: int, work: GatherStates, core: MemberState) -> None:
    group = draft.group(work.number, core)
    draft.set_group(replace(group, entries=put(group.entries, core.rank, work.entry)))


def capture(draft: GroupDraft, place: int, work: SendState, core: MemberState) -> None:
    """From here on the sender goes on: its receivers get what its replica is now."""
    group = draft.group(work.number, core)
    draft.set_group(replace(group, captured=put(group.captured, core.rank, draft.member(place).bits)))
    draft.tell(place, StateCaptured(number=work.number))


def receive(draft: GroupDraft, place: int, work: ReceiveState, core: MemberState) -> None:
    bits = draft.group(work.number, core).captured[work.source]
    assert bits is not None
    draft.set_member(place, bits=bits)
    draft.tell(place, StateTaken(number=work.number, state=work.state, skipped=work.skipped))


def load(draft: GroupDraft, place: int, work: LoadHead) -> None:
    bits, skipped = content_of(draft.world, work.head.files[0].name)
    for file in work.head.files[1:]:
        if content_of(draft.world, file.name) != (bits, skipped):
            draft.blame(f"I1: head {work.head.state} is put together of two states")
    draft.set_member(place, bits=bits)
    draft.tell(place, StateTaken(number=work.number, state=work.head.state, skipped=skipped))


def compute(draft: GroupDraft, place: int) -> None:
    core = draft.member(place).core
    assert core is not None
    draft.set_member(place, core=give(core))
    draft.tell(place, StepReduced(replica_bytes=draft.setting.replica_bytes))


def hang(draft: GroupDraft, place: int) -> None:
    core = draft.member(place).core
    assert core is not None
    draft.set_member(place, core=give(core), is_hanging=True)


def come_back(draft: GroupDraft, place: int) -> None:
    draft.set_member(place, is_hanging=False, is_left_behind=False)


def complete(draft: GroupDraft, place: int, done: StepSum, number: int) -> None:
    """The step is complete here: its update is right (I1), and all that complete it go the same way (I5)."""
    before = draft.member(place).core
    draft.tell(place, WordsGathered(number=number, words=done.words))
    core = draft.member(place).core
    assert before is not None
    assert core is not None
    if core.phase is not MemberPhase.COMPLETE:
        return
    draft.set_member(place, update=done.tag)
    if done.tag[1] == "bad":
        draft.blame(f"I1: {core.name} completes step {core.step} with {done.tag}")
    goes_to = core.promised.number if core.is_agreed and core.promised else 0
    if done.goes_to not in (None, goes_to):
        draft.blame(f"I5: after step {core.step} {core.name} goes to {goes_to}, another member to {done.goes_to}")
    group = draft.group(number, before)
    if done in group.sums:
        draft.set_group(replace(group, sums=(replace(done, goes_to=goes_to),)))


def apply(draft: GroupDraft, place: int) -> None:
    member = draft.member(place)
    assert member.update is not None
    if len(member.bits) == draft.setting.stops_at:
        draft.tell(place, StopAsked())
    update = (*member.update, ASTRAY) if member.is_astray else member.update
    draft.set_member(place, bits=(*member.bits, update), update=None, is_astray=False)
    draft.tell(place, StepApplied())


def digest(draft: GroupDraft, place: int, work: TakeDigest) -> None:
    bits = blake2b(repr(draft.member(place).bits).encode(), digest_size=8).digest()
    draft.tell(place, DigestTaken(digest=digest_of(work.state, {"bits": int.from_bytes(bits)})))


def copy(draft: GroupDraft, place: int, work: TakeCopy) -> None:
    member = draft.member(place)
    draft.set_member(place, copying=(*member.copying, (work, member.bits)))
    draft.tell(place, CopyTaken(work=work))


def written(draft: GroupDraft, place: int, at: int) -> None:
    member = draft.member(place)
    assert member.core is not None
    copy, bits = member.copying[at]
    name = f"{member.core.incarnation}-{copy.number}"
    marks = copy_marks(draft.setting.dataset, copy.state.step, copy.skipped, copy.shard)
    file = FileRecord(name=name, size_bytes=1, digest="d", lineage=copy.state.lineage, marks=marks)
    draft.set_member(place, copying=(*member.copying[:at], *member.copying[at + 1 :]))
    draft.world = draft.world._replace(files=(*draft.world.files, (name, bits, copy.skipped)))
    draft.tell(place, CopyWritten(number=copy.number, file=file))


def not_written(draft: GroupDraft, place: int, at: int) -> None:
    member = draft.member(place)
    copy, _ = member.copying[at]
    draft.set_member(place, copying=(*member.copying[:at], *member.copying[at + 1 :]))
    draft.tell(place, CopyWritten(number=copy.number, file=None, problem="the disk is full"))


def finish(draft: GroupDraft, place: int, finish: object) -> None:
    if finish.reason is FinishReason.ENDED and finish.final_saver:
        draft.world = draft.world._replace(is_hook_done=True)
        draft.tell(place, FinalHookDone())
    for message in (*draft.member(place).outbox, Leave()):  # the stream ends in order
        draft.hear(place, message)
    for group in draft.world.groups:
        draft.close(place, group.record.number)
    draft.break_stream(place)
    draft.set_member(place, presence=Presence.GONE)
