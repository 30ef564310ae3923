"""Planned changes: joins, drains, a new quarantine, other shares, a plan that could not be connected (79, 83, 94)."""

from __future__ import annotations

from typing import Final

from master.api.messages.generations import CopyWanted
from master.group.ending import needs_group
from master.group.generations import has_trouble, is_gathering, regroup, release, write_record
from master.group.group_events import JoinersGathered, LeaveDue
from master.group.group_state import GroupState, GroupTurn, Replica
from master.group.measured_shares import needs_other_weights, observe_speeds
from master.group.membership import candidates, in_rank_order, is_lost
from master.job.domain.durable_records import SECOND, MemberKey

GATHER_NS: Final = SECOND
GATHER_AT_LEAST_NS: Final = SECOND // 4
GATHER_MEMBERS: Final = 16
"""Trainers that come within so much of the first one make one change of members.

The more members there are, the less a joiner adds and the more of them a change stops: from so many on it is all of it.
"""
LEAVE_SHARE: Final = 0.8  # of a leaver's grace that may pass before nothing is waited for any more


def gather_joiners(turn: GroupTurn) -> None:
    """The time in which joiners are gathered begins with the first of them."""
    state = turn.state
    is_first = state.record is None and state.dataset is not None and bool(candidates(state))
    is_join = state.current is not None and not is_gathering(state) and bool(_joiners(state))
    if state.gather_ends is None and (is_first or is_join):
        turn.change(gather_ends=turn.after(_gather_ns(state)))
    elif state.gather_ends is not None and not candidates(state):
        turn.change(gather_ends=None)


def _gather_ns(state: GroupState) -> int:
    if state.current is None:
        return GATHER_NS
    return max(GATHER_AT_LEAST_NS, min(GATHER_NS, GATHER_NS * len(state.current.members) // GATHER_MEMBERS))


def handle_gathered(turn: GroupTurn, event: JoinersGathered) -> None:
    """The gathered members make the next change."""
    state = turn.state
    if state.gather_ends != event.deadline:
        return
    turn.change(gather_ends=None)
    if state.current is None and needs_group(state):
        regroup(turn)  # else they are gathered again
    elif state.current is not None and _may_plan(turn.state) and not has_trouble(turn.state):
        _plan(turn, with_joiners=True)
    elif state.current is not None and not is_gathering(state):
        turn.change(
            gather_ends=turn.after(_gather_ns(state))
        )  # the change before is not over, or head is being written


def advance(turn: GroupTurn, *, is_troubled: bool) -> None:
    """Plans what is due and possible: after a plan that failed, for leavers, a new quarantine, other shares."""
    observe_speeds(turn)
    state = turn.state
    if _may_replan(state):
        _replan(turn)
    elif not is_troubled and _may_plan(state):
        _plan(turn, with_joiners=False)


def handle_leave_due(turn: GroupTurn, event: LeaveDue) -> None:
    """The grace is almost over: the next generation does without this member, checkpoint or not."""
    replica = turn.state.try_replica(event.member)
    if replica and replica.leaves_by == event.deadline:
        turn.put(replica, leave_step=0)


def _may_plan(state: GroupState) -> bool:
    """True in a generation whose sync is over, and with no change of the durable state under way."""
    current = state.current
    return (
        current is not None
        and not state.writing
        and not state.is_complete
        and not is_gathering(state)
        and state.synced >= current.number
        and all(state.try_replica(key) for key in state.roster.current)  # a new master hears them all first
    )


def _joiners(state: GroupState) -> tuple[Replica, ...]:
    listed = state.roster.listed
    joiners = tuple(one for one in candidates(state) if one.key not in listed and not one.is_leaving)
    room = state.dataset.dataset.batch_size - len(listed) if state.dataset else 0
    return joiners[: max(0, room)]


def _plan(turn: GroupTurn, *, with_joiners: bool) -> None:
    state, current = turn.state, turn.state.current
    assert current is not None
    here = [one for key in state.roster.current if (one := state.try_replica(key))]
    if any(one.is_released for one in here):  # it ends by itself: no plan counts on it, the record follows its end
        return
    leaving = [one for one in here if one.is_leaving]
    staying = [one for one in here if not one.is_leaving]
    joiners = _joiners(state) if with_joiners or leaving else ()
    if leaving and len(staying) <= 1 and not joiners and not _is_made_up_for(turn, leaving):
        return
    if leaving and not staying and not joiners:
        for one in leaving:
            release(turn, one)
        return
    if not staying:  # a plan keeps a member of `from` (rule 79): they join first, and the leavers go after it
        staying = here
    members = in_rank_order((*staying, *joiners))
    has_change = {one.key for one in members} != state.roster.listed
    assert state.lineage is not None
    if has_change or state.lineage.quarantine != current.quarantine or needs_other_weights(turn):
        turn.change(gather_ends=None)
        write_record(turn, members, before=current)


def _is_made_up_for(turn: GroupTurn, leaving: list[Replica]) -> bool:
    """True if a checkpoint makes up for the leavers; else one of them is asked for a copy (rule 83)."""
    state = turn.state
    for one in leaving:
        if one.leave_step < 0 and one.leaves_by is not None:
            left_s = max(0.0, (one.leaves_by - turn.now) / SECOND)
            turn.put(one, leave_step=max(1, one.state.step if one.state else 1))
            turn.send(one.key, CopyWanted(deadline_s=left_s))
    return _has_copy(state, leaving)


def _has_copy(state: GroupState, leaving: list[Replica]) -> bool:
    head = state.head_state.state.step
    return all(0 <= one.leave_step <= head for one in leaving)


def _may_replan(state: GroupState) -> bool:
    """True if a plan has lost joiners or could not be connected, before its sync.

    The old generation is whole and trains on undisturbed (rule 83).
    """
    current, before, roster = state.current, state.before, state.roster
    if current is None or before is None or state.writing or is_gathering(state) or current.lineage != state.number:
        return False
    old = [one for key in roster.before if (one := state.try_replica(key)) and not one.is_lost and not one.is_out]
    if len(old) < len(before.members):
        return False
    if any(one.failed_plan == current.number for one in old):
        return True
    return any(_is_absent(state, key) for key in roster.listed.difference(roster.before))


def _is_absent(state: GroupState, key: MemberKey) -> bool:
    replica = state.try_replica(key)
    return is_lost(state, key) or (replica is not None and _has_failed(state, replica))


def _has_failed(state: GroupState, replica: Replica) -> bool:
    return replica.is_out and state.current is not None and replica.left >= state.current.number


def _replan(turn: GroupTurn) -> None:
    state, before = turn.state, turn.state.before
    kept = [one for key in state.roster.current if (one := state.try_replica(key)) and not is_lost(state, key)]
    kept += [one for one in _joiners(state) if one not in kept]
    if any(one.key in state.roster.before for one in kept):
        write_record(turn, in_rank_order(kept), before=before)
