"""What happens at once in a job that has `begun`: it commutes with all else, or its delay is explored elsewhere.

Streams answer registrations, members report what is new, connections are made, an update is applied where it is
complete.  What the rules are about stays a step of its own: NEW, PLAN and BROKEN on their way, the sync's list, words,
transfers, copies, writes, deadlines.
"""

from __future__ import annotations

from master.api.messages.generations import CopyWanted, GroupPhase, ReplicaRegistered
from master.api.messages.to_members import Declared, OfferAnswered
from tests.protocol.group import master_changes, member_acts
from tests.protocol.group.change import Change
from tests.protocol.group.draft import GroupDraft, work_of
from tests.protocol.group.member_changes import report_of
from tests.protocol.group.world import GroupWorld, Presence
from trainer_sdk.group.core.member_events import (
    GatherStates,
    GroupConnected,
    SendState,
)
from trainer_sdk.group.core.member_state import MemberPhase, MemberState, rank_in

AT_ONCE = (ReplicaRegistered, Declared, OfferAnswered, CopyWanted)


def has_begun(world: GroupWorld) -> bool:
    """True once all trainers of the beginning are between two steps of one generation, and the master knows."""
    cores = [one.core for one in world.members if one.core is not None]
    number = world.master.state.synced
    return number > 0 and all(core.phase is MemberPhase.BOUNDARY and core.number == number for core in cores)


def is_of_the_beginning(change: Change) -> bool:
    """True for what brings the trainers of the beginning into their first generation."""
    return not change.fault and not change.label.endswith(" comes") and " computes " not in change.label


def happen(draft: GroupDraft) -> None:
    """Each of these once, where it can happen; called again until nothing changes."""
    for place, member in enumerate(draft.world.members):
        if member.presence is Presence.DEAD and member.link:
            draft.break_stream(place)
        if member.presence is not Presence.HERE:
            continue
        if member.inbox and isinstance(member.inbox[0], AT_ONCE):
            draft.set_member(place, inbox=member.inbox[1:])
            draft.tell(place, member.inbox[0])
        core = draft.member(place).core
        assert core is not None
        if core.phase is MemberPhase.COMPLETE:
            member_acts.apply(draft, place)
        else:
            _connect(draft, place, core)
            if not member.is_hanging:
                _take_part(draft, place)
        _report(draft, place)
    if draft.world.master.manifests:
        master_changes.write_manifest(draft)
    if draft.world.master.naming:
        master_changes.name_head(draft)


def _connect(draft: GroupDraft, place: int, core: MemberState) -> None:
    planned = None if core.plan is None or core.is_prepared else core.plan.number
    awaited = None if core.is_connected else core.number
    for group in draft.world.groups if planned is not None or awaited is not None else ():
        number = group.record.number
        if number not in (planned, awaited) or any(group.left) or not all(group.connecting):
            continue
        if rank_in(group.record, core.incarnation) >= 0:
            draft.tell(place, GroupConnected(number=number))


def _take_part(draft: GroupDraft, place: int) -> None:
    core = draft.member(place).core
    assert core is not None
    work = work_of(core)
    if not isinstance(work, GatherStates | SendState):
        return
    group = draft.world.group(work.number, core.incarnation)
    if group is None:
        return
    if isinstance(work, GatherStates):
        if group.entries[core.rank] is None and not any(group.left):
            member_acts.enter_sync(draft, place, work, core)
    else:
        member_acts.capture(draft, place, work, core)


def _is_reported(world: GroupWorld, phase: MemberPhase) -> bool:
    if phase is MemberPhase.CONTRIBUTED:
        return any(one.core is not None and one.core.state and one.core.state.is_stopped for one in world.members)
    return phase in (MemberPhase.BOUNDARY, MemberPhase.OUT)


def _report(draft: GroupDraft, place: int) -> None:
    """At a boundary, where it waits for one that has stopped, and in no generation whether its script asks for a step.

    Only what the master of its stream does not know of; anywhere while a script hangs, so that it is known who waits.
    """
    member = draft.member(place)
    core = member.core
    if core is None or not core.is_registered or core.phase is MemberPhase.GONE:
        return
    if any(one.is_hanging for one in draft.world.members):
        draft.tell(place, report_of(member))
        return
    if not _is_reported(draft.world, core.phase):
        return
    state = draft.master_state(member.link)
    known = state.members.get(core.name) if state else None
    if state is None or known is None:
        return
    report = report_of(member)
    if core.phase is MemberPhase.OUT:
        if (known.phase is GroupPhase.UNREADY) != member.is_hanging or (known.is_lost and not member.is_hanging):
            draft.tell(place, report)
        return
    at_boundary = GroupPhase.DONE if core.is_all_done else GroupPhase.COMPUTE
    phase = GroupPhase.REDUCE if core.phase is MemberPhase.CONTRIBUTED else at_boundary
    is_news = (known.generation, known.state, known.phase) != (core.number, core.state, phase)
    if is_news or (state.current and state.synced < core.number == state.current.number):
        draft.tell(place, report)
