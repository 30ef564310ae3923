"""What a trainer of a group does: its collectives, its steps, its copies and its end."""

from __future__ import annotations

from dataclasses import replace

from master.api.group_shares import data_of
from master.api.messages.checkpoint_files import BucketMarks, FileRecord
from master.api.messages.from_members import Leave
from master.api.positions import PositionSet
from tests.protocol.group.change import FAULTS, content_of
from tests.protocol.group.draft import GroupDraft
from tests.protocol.group.world import Collectives, GroupWorld, Presence, Tag, put
from trainer_sdk.group.core.member_events import (
    CopyTaken,
    CopyWritten,
    FinalHookDone,
    GatherStates,
    LoadHead,
    ReceiveState,
    StatesGathered,
    StateTaken,
    StepApplied,
    StepReduced,
    TakeCopy,
    WordsGathered,
)
from trainer_sdk.group.core.member_state import MemberPhase, MemberState
from trainer_sdk.group.core.transitions import give
from trainer_sdk.protocol.trainer_events import FinishReason


def take_list(draft: GroupDraft, place: int, event: StatesGathered) -> None:
    draft.tell(place, event)
    core = draft.member(place).core
    was_suspected = draft.world.faults[FAULTS.index("suspect")] < draft.setting.faults.suspect
    if core is None or core.number != event.number or was_suspected:
        return
    source = core.transfer.state.step if core.transfer else core.step
    others = [one.core for one in draft.world.members if one.presence is Presence.HERE and one.core]
    most = max(one.step for one in others if not one.is_leaving or one.number == event.number)
    if source < most - 1:
        draft.blame(f"I4: generation {event.number} goes on from step {source}, a living process has held step {most}")


def enter_sync(draft: GroupDraft, place: int, work: GatherStates, core: MemberState) -> None:
    group = draft.group(work.number)
    draft.set_group(replace(group, entries=put(group.entries, core.rank, work.entry)))


def place_of(world: GroupWorld, group: Collectives, rank: int) -> MemberState | None:
    incarnation = group.record.members[rank].incarnation
    for member in world.members:
        if member.presence is Presence.HERE and member.core and member.core.incarnation == incarnation:
            return member.core
    return None


def receive(draft: GroupDraft, place: int, work: ReceiveState, core: MemberState) -> None:
    group = draft.group(work.number)
    incarnation = group.record.members[work.source].incarnation
    source = next(one for one in draft.world.members if one.core and one.core.incarnation == incarnation)
    draft.set_group(replace(group, taken=put(group.taken, core.rank, value=True)))
    draft.set_member(place, bits=source.bits)
    draft.tell(place, StateTaken(number=work.number, state=work.state, skipped=work.skipped))


def load(draft: GroupDraft, place: int, work: LoadHead) -> None:
    bits, skipped = content_of(draft.world, work.head.files[0].name)
    draft.set_member(place, bits=bits)
    draft.tell(place, StateTaken(number=work.number, state=work.head.state, skipped=skipped))


def compute(draft: GroupDraft, place: int) -> None:
    core = draft.member(place).core
    assert core is not None
    draft.set_member(place, core=give(core))
    draft.tell(place, StepReduced())


def complete(draft: GroupDraft, place: int, words: WordsGathered, tag: Tag) -> None:
    draft.tell(place, words)
    core = draft.member(place).core
    assert core is not None
    if core.phase is MemberPhase.COMPLETE:
        draft.set_member(place, update=tag)


def apply(draft: GroupDraft, place: int) -> None:
    member = draft.member(place)
    assert member.update is not None
    draft.set_member(place, bits=(*member.bits, member.update), update=None)
    draft.tell(place, StepApplied())


def copy(draft: GroupDraft, place: int, work: TakeCopy) -> None:
    member = draft.member(place)
    draft.set_member(place, copying=(*member.copying, (work, member.bits)))
    draft.tell(place, CopyTaken(work=work))


def written(draft: GroupDraft, place: int, at: int) -> None:
    member = draft.member(place)
    assert member.core is not None
    copy, bits = member.copying[at]
    name = f"{member.core.incarnation}-{copy.number}"
    applied = data_of(draft.setting.dataset, copy.state.step) - copy.skipped
    marks = (BucketMarks(buckets=PositionSet.span(0, 1), applied=applied),)
    file = FileRecord(name=name, size_bytes=1, digest="d", lineage=copy.state.lineage, marks=marks)
    draft.set_member(place, copying=(*member.copying[:at], *member.copying[at + 1 :]))
    draft.world = draft.world._replace(files=(*draft.world.files, (name, bits, copy.skipped)))
    draft.tell(place, CopyWritten(number=copy.number, file=file))


def finish(draft: GroupDraft, place: int, finish: object) -> None:
    if finish.reason is FinishReason.ENDED and finish.final_saver:
        draft.tell(place, FinalHookDone())
    draft.say(place, Leave())
    for group in draft.world.groups:
        draft.depart(place, group.record.number)
    draft.break_stream(place)
    draft.set_member(place, presence=Presence.GONE)
