"""Pending deadlines of a group's master: a function of the state, so none is forgotten when the state changes."""

from __future__ import annotations

from collections.abc import Iterator

from master.group.generations import partner_awaited
from master.group.group_events import CheckpointDue, GroupDeadline, JoinersGathered, LeaveDue, ReplicaSilent
from master.group.group_state import GroupState
from master.group.membership import silences
from master.job.domain.durable_records import Instant
from master.job.domain.job_events import ReclaimWindowEnded, ReconnectWindowEnded


def deadlines(state: GroupState) -> tuple[tuple[Instant, GroupDeadline], ...]:
    """(instant, event) of each pending deadline, in no order; none once the term is over."""
    return () if state.is_over else tuple(_of(state))


def _of(state: GroupState) -> Iterator[tuple[Instant, GroupDeadline]]:
    for one in state.members.values():
        if one.window_ends is not None:
            yield one.window_ends, ReconnectWindowEnded(member=one.key, deadline=one.window_ends)
        if one.leaves_by is not None and one.leave_step != 0 and not one.is_released:
            yield one.leaves_by, LeaveDue(member=one.key, deadline=one.leaves_by)
    for at, replica in silences(state):
        yield at, ReplicaSilent(member=replica.key, deadline=at)
    if state.gather_ends is not None:
        yield state.gather_ends, JoinersGathered(deadline=state.gather_ends)
    if (until := partner_awaited(state)) is not None:
        yield until, JoinersGathered(deadline=until)
    if state.reclaim_ends is not None:
        yield state.reclaim_ends, ReclaimWindowEnded(deadline=state.reclaim_ends)
    if state.pace.due is not None and state.record is not None and not state.is_complete and not state.failed:
        yield state.pace.due, CheckpointDue(deadline=state.pace.due)
