"""The end: head holds the last step, one trainer runs the final hook, then END to everybody (rules 95, 96)."""

from __future__ import annotations

from master.api.messages.from_members import FinalSaved
from master.api.messages.generations import GroupEnded
from master.api.messages.to_members import Refused
from master.group.group_state import GroupState, GroupTurn, Replica
from master.job.domain.durable_records import MemberKey, RecordFinalSave


def advance(turn: GroupTurn) -> None:
    """FINAL to one whole replica, END to all once it is durable that it has saved; a failed job is refused to all."""
    state = turn.state
    if state.failed:
        _tell_all(turn, Refused(field="job", message=state.failed))
        return
    if not state.may_end:
        return
    if not owes_final_save(state):
        _tell_all(turn, GroupEnded(head=state.head_state))
        return
    if state.has_final_saved:
        _record_final_save(turn)
        return
    saver = state.try_replica(state.final_saver) if state.final_saver else None
    if saver is None or saver.is_lost:
        chosen = next((one for one in state.members.values() if _can_save(state, one)), None)
        if chosen is not None:
            turn.change(final_saver=chosen.key)
            turn.send(chosen.key, GroupEnded(final_saver=True))


def _record_final_save(turn: GroupTurn) -> None:
    """A next master need not have the hook run again (rule 96); another write of the record is answered first."""
    head = turn.state.head_id
    if turn.state.writing is None and head is not None:
        turn.write(RecordFinalSave(old=turn.state.final_save, manifest=head))


def owes_final_save(state: GroupState) -> bool:
    """True while it is not durable that the final hook has run, or a saver of an earlier master may return."""
    if not state.is_complete or state.is_final_saved:
        return False
    has_hook = any(one.has_final_hook for one in state.members.values())
    return has_hook or state.has_final_saved or state.final_saver is not None or state.reclaim_ends is not None


def needs_group(state: GroupState) -> bool:
    """True while generations are made: steps are left, or the final hook needs a replica that nobody has (rule 96)."""
    if state.failed or state.pending_declaration is not None:  # the record would name the head under the old one
        return False
    if not state.is_complete:
        return True
    has_hook = any(one.has_final_hook for one in state.members.values())
    is_owed = owes_final_save(state) and not state.has_final_saved and has_hook
    return is_owed and not any(_can_save(state, one) for one in state.members.values())


def handle_final_saved(turn: GroupTurn, replica: Replica, message: FinalSaved) -> None:  # noqa: ARG001  one signature
    """The hook has run on a replica of the last step, also if an earlier master chose it."""
    if turn.state.is_complete:
        turn.change(has_final_saved=True)


def repeat(turn: GroupTurn, key: MemberKey) -> None:
    """A member that registers again may have missed what it was told (at least once)."""
    turn.change(told_end=tuple(one for one in turn.state.told_end if one != key))
    if turn.state.final_saver == key and not turn.state.has_final_saved and owes_final_save(turn.state):
        turn.send(key, GroupEnded(final_saver=True))


def _can_save(state: GroupState, one: Replica) -> bool:
    own = one.state
    is_last = own is not None and own.lineage == state.number and own.step == state.steps
    is_head = own is not None and own == state.head_state.state
    return one.has_final_hook and one.is_connected and not one.is_lost and (is_last or is_head)


def _tell_all(turn: GroupTurn, message: GroupEnded | Refused) -> None:
    for one in tuple(turn.state.members.values()):
        has_said_all = one.has_declared or isinstance(message, Refused)  # it may ask for more epochs (rule 98)
        if has_said_all and one.is_connected and one.key not in turn.state.told_end:
            turn.change(told_end=(*turn.state.told_end, one.key))
            turn.send(one.key, message)
