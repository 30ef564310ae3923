"""What can happen next with a trainer of a group: its stream, its script, its collectives."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from master.api.positions import EMPTY
from master.job.domain.frozen_map import FrozenMap
from tests.protocol.group import member_acts
from tests.protocol.group.change import Change
from tests.protocol.group.draft import GroupDraft, work_of
from tests.protocol.group.world import Collectives, GroupWorld, Member
from trainer_sdk.group.core.member_events import (
    Await,
    CompareReplicas,
    FinishScript,
    GatherStates,
    GiveStep,
    GroupConnected,
    GroupFailed,
    LoadHead,
    ReceiveState,
    ReplicasCompared,
    ReportRequested,
    SendState,
    StatesGathered,
    StopAsked,
    TakeCopy,
    TakeDigest,
)
from trainer_sdk.group.core.member_state import MemberPhase, MemberState, rank_in

_REPORTS: Final = {
    (hangs, works): ReportRequested(is_in_script=hangs and not works, is_working=hangs and works, metrics=FrozenMap())
    for hangs in (False, True)
    for works in (False, True)
}
"""One object for equal ones."""


def report_of(member: Member) -> ReportRequested:
    """What it is asked to report; a script that hangs does so in the work on its replica where that is due."""
    core = member.core
    is_at_work = core is not None and core.phase is MemberPhase.TRANSFER
    return _REPORTS[member.is_hanging, is_at_work]


def stream_changes(place: int, member: Member, *, has_reports: bool) -> Iterator[Change]:
    core = member.core
    assert core is not None
    if member.inbox:
        first = member.inbox[0]

        def deliver(draft: GroupDraft) -> None:
            draft.set_member(place, inbox=member.inbox[1:])
            draft.tell(place, first)

        yield Change(f"trainer {place} hears", deliver, heard=first)
    if member.outbox:

        def arrive(draft: GroupDraft) -> None:
            offer, *rest = member.outbox
            draft.set_member(place, outbox=())
            draft.hear(place, offer)
            for message in rest:
                draft.say(place, message)

        yield Change("master hears", arrive, heard=member.outbox[0])
    repeats_offer = core.copy is not None and core.copy.file is not None and not member.outbox  # rule 87
    if (has_reports or repeats_offer) and core.is_registered and core.phase is not MemberPhase.GONE:
        report = report_of(member)
        yield Change(f"trainer {place} reports", lambda draft: draft.tell(place, report))


def script_changes(world: GroupWorld, place: int, member: Member, core: MemberState) -> Iterator[Change]:  # noqa: C901  one case a kind of work
    name, work = f"trainer {place}", work_of(core)
    if core.phase is MemberPhase.COMPLETE:
        yield Change(f"{name} applies step {core.step}", lambda draft: member_acts.apply(draft, place))
    if _may_go_astray(core) and not member.is_astray:
        yield Change(f"{name}: its next update is ASTRAY", lambda d: d.set_member(place, is_astray=True), "differ")
    if core.state is not None and not core.is_all_done and not core.must_stop:
        yield Change(f"{name} alone STOPS after {core.state}", lambda draft: draft.tell(place, StopAsked()), "stop")
    for at, (copy, _) in enumerate(member.copying):
        yield Change(
            f"{name} has written its copy of {copy.state}", lambda draft, at=at: member_acts.written(draft, place, at)
        )
        yield Change(
            f"{name}: the disk is FULL for {copy.state}",
            lambda draft, at=at: member_acts.not_written(draft, place, at),
            "full",
        )
    if member.is_hanging:
        return
    match work:
        case Await() | TakeDigest():
            pass
        case GatherStates():
            yield from _gather_changes(world, place, work, core)
        case ReceiveState() | LoadHead():
            yield from _take_changes(world, place, work, core)
        case SendState():
            yield Change(f"{name} captures its state", lambda draft: member_acts.capture(draft, place, work, core))
            yield Change(f"{name} HANGS as it captures", lambda d: d.set_member(place, is_hanging=True), "hang")
        case CompareReplicas():
            yield from _compare_changes(world, place, work, core)
        case TakeCopy():
            yield Change(f"{name} copies {work.state}", lambda draft: member_acts.copy(draft, place, work))
            yield Change(f"{name} HANGS as it copies", lambda d: d.set_member(place, is_hanging=True), "hang")
        case GiveStep(share=share):
            group = world.group(share.generation, core.incarnation)
            if group is not None and not any(group.left):
                yield Change(f"{name} computes step {share.step}", lambda draft: member_acts.compute(draft, place))
                yield Change(f"{name} HANGS in step {share.step}", lambda draft: member_acts.hang(draft, place), "hang")
        case FinishScript(finish=finish):
            yield Change(f"{name} ends: {finish.reason}", lambda draft: member_acts.finish(draft, place, finish))


def _may_go_astray(core: MemberState) -> bool:
    """With others beside it, and a step to come."""
    return core.record is not None and len(core.record.members) > 1 and not core.is_all_done


def _compare_changes(world: GroupWorld, place: int, work: CompareReplicas, core: MemberState) -> Iterator[Change]:
    group = world.group(work.number, core.incarnation)
    if group is None:
        return
    if has_last_words(group, core):
        compared = ReplicasCompared(number=work.number, words=group.sums[0].words)
        yield Change(f"trainer {place} has all last words", lambda draft: draft.tell(place, compared))
    elif group.contributions[core.rank] is None and not any(group.left):
        contribute = lambda draft: draft.contribute(place, work.number, EMPTY, work.word)  # noqa: E731
        yield Change(f"trainer {place} compares {core.state}", contribute)


def has_last_words(group: Collectives, core: MemberState) -> bool:
    return bool(group.sums) and group.sums[0].words[core.rank].is_after_last


def _take_changes(world: GroupWorld, place: int, work: ReceiveState | LoadHead, core: MemberState) -> Iterator[Change]:
    name = f"trainer {place}"
    yield Change(f"{name} HANGS as it takes {core.transfer}", lambda d: d.set_member(place, is_hanging=True), "hang")
    if isinstance(work, LoadHead):
        yield Change(f"{name} loads the head", lambda draft: member_acts.load(draft, place, work))
        return
    group = world.group(work.number, core.incarnation)
    if group is not None and not group.left[work.source] and group.captured[work.source] is not None:
        yield Change(f"{name} has received {work.state}", lambda draft: member_acts.receive(draft, place, work, core))


def collective_changes(world: GroupWorld, place: int, core: MemberState) -> Iterator[Change]:
    name = f"trainer {place}"
    for group in world.groups:
        number, rank = group.record.number, rank_in(group.record, core.incarnation)
        if rank < 0 or group.left[rank] or not group.connecting[rank]:
            continue
        is_current = number == core.number
        is_waiting = (is_current and not core.is_connected) or (
            core.plan is not None and core.plan.number == number and not (core.is_prepared or core.has_plan_failed)
        )
        if is_waiting and all(group.connecting) and not any(group.left):
            yield Change(
                f"{name} is connected to generation {number}",
                lambda d, n=number: d.tell(place, GroupConnected(number=n)),
            )
        failed = GroupFailed(number=number)
        is_told = core.phase is not MemberPhase.COMPLETE and not world.members[place].is_hanging
        can_fail = (is_current and is_told) or is_waiting
        if can_fail and _is_cut_short(group, core):
            yield Change(f"{name}: generation {number} fails", lambda d, e=failed: d.tell(place, e))
        elif is_waiting or (
            is_current
            and (
                core.phase in (MemberPhase.SYNC, MemberPhase.TRANSFER, MemberPhase.CONTRIBUTED)
                or isinstance(work_of(core), CompareReplicas)
            )
        ):
            yield Change(f"{name}: the network FAILS generation {number}", lambda d, e=failed: d.tell(place, e), "net")
        if is_current and core.phase is MemberPhase.CONTRIBUTED:
            for done in group.sums:
                if done.step == core.step or done.step < 0:
                    yield Change(
                        f"{name} has all words of step {done.step}",
                        lambda d, s=done, n=number: member_acts.complete(d, place, s, n),
                    )


def _is_cut_short(group: Collectives, core: MemberState) -> bool:
    """True if this member's next or present operation cannot end: somebody has left before it."""
    has_result = core.phase is MemberPhase.CONTRIBUTED and any(one.step == core.step for one in group.sums)
    has_result = has_result or (group.record.number == core.number and has_last_words(group, core))
    return any(group.left) and (group.is_aborted or not has_result)


def _gather_changes(world: GroupWorld, place: int, work: GatherStates, core: MemberState) -> Iterator[Change]:
    group = world.group(work.number, core.incarnation)
    if group is None:
        return
    rank = core.rank
    if group.entries[rank] is None:
        yield Change(
            f"trainer {place} enters the sync of generation {work.number}",
            lambda draft: member_acts.enter_sync(draft, place, work, core),
        )
    elif all(entry is not None for entry in group.entries):
        event = StatesGathered(number=work.number, entries=tuple(entry for entry in group.entries if entry))
        yield Change(
            f"trainer {place} has the list of generation {work.number}",
            lambda draft: member_acts.take_list(draft, place, event),
        )
