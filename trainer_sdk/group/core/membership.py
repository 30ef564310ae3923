"""Entering and leaving generations: rules 73, 74, 77, 79, 80, 82, 83.  Pure."""

from __future__ import annotations

from dataclasses import replace

from master.api.messages.generations import BrokenGeneration, Generation, LeaveRequest, LeftGeneration, NewGeneration
from master.api.positions import PositionSet
from trainer_sdk.group.core.member_events import (
    AbortGroup,
    CloseGroup,
    ConnectGroup,
    DrainAsked,
    GroupConnected,
    GroupEffect,
    GroupFailed,
    TellMaster,
)
from trainer_sdk.group.core.member_state import MemberPhase, MemberState, MemberStep, rank_in, with_lineage


def handle_new(state: MemberState, event: NewGeneration) -> MemberStep:
    """Rule 77, and 79 for a record planned from the generation that this member is in."""
    record = event.record
    if state.offered is None or record.number > state.offered.number:
        state = replace(with_lineage(state, record.lineage), offered=record)
    if state.phase is MemberPhase.GONE or record.number <= max(state.left, state.number):
        return MemberStep(state)
    if state.record is None:
        return _try_enter(state)
    if record.planned_from == state.number:
        return _prepare(state, record)
    if state.phase is MemberPhase.COMPLETE and state.is_agreed:
        return MemberStep(state)  # it has only to apply the step of the switch
    return leave(state, state.number if rank_in(record, state.incarnation) >= 0 else record.number)


def handle_broken(state: MemberState, event: BrokenGeneration) -> MemberStep:
    """Rule 74: leave everything up to this number; out of all, promise it."""
    if state.record is not None and event.number < state.number:
        return MemberStep(state)
    return leave(state, event.number)


def handle_failed(state: MemberState, event: GroupFailed) -> MemberStep:
    """Rule 73.  A plan that cannot be connected is not agreed to, and the next reports say so (rule 83).

    One member's second attempt would meet no other member's, so the master makes another plan.
    """
    if event.number == state.number:
        return leave(state, event.number)
    if state.plan is not None and event.number == state.plan.number:
        failed = replace(state, is_prepared=False, has_plan_failed=True)
        return MemberStep(failed, (AbortGroup(number=event.number),))
    return MemberStep(state)


def handle_connected(state: MemberState, event: GroupConnected) -> MemberStep:
    if event.number == state.number:
        return MemberStep(replace(state, is_connected=True))
    if state.plan is not None and event.number == state.plan.number and not state.has_plan_failed:
        return MemberStep(replace(state, is_prepared=True))
    return MemberStep(state)


def handle_drain(state: MemberState, event: DrainAsked) -> MemberStep:
    """Rule 83: a leaver trains until the switch to a generation without it.  Who holds nothing goes at once."""
    asked = replace(state, is_leaving=True, grace_s=event.grace_s)
    if state.record is None and state.state is None:
        return go(asked)
    return MemberStep(asked, (TellMaster(message=LeaveRequest(grace_s=event.grace_s, reason=event.reason)),))


def leave(state: MemberState, upto: int, *, differs: str = "") -> MemberStep:
    """Drops the step in flight, keeps process and replica, and promises to take part in nothing up to `upto` (73).

    While a complete step is being applied, the report waits for it: it names the replica's state.  `differs`: in what
    the members' replicas differ.
    """
    left = max(state.left, upto)
    if state.phase is MemberPhase.COMPLETE:
        is_first = not state.broken
        later = replace(state, broken=max(state.broken, state.number, upto), is_agreed=False)
        return MemberStep(later, (AbortGroup(number=state.number),) if is_first else ())
    if state.record is None:
        out = replace(state, left=left)
        return MemberStep(out, (_report(out),)) if left > state.left else MemberStep(state)
    aborts = _connections(state)
    out = replace(_outside(state), phase=MemberPhase.OUT, left=max(left, state.number))
    entered = _try_enter(out)
    return MemberStep(entered.state, (*aborts, _report(out, differs), *entered.effects))


def switch(state: MemberState, plan: Generation) -> MemberStep:
    """The step of the switch is applied: enter the plan, or go if it does not list this member (rules 81 to 83)."""
    old = state.number
    others = tuple(effect for effect in _connections(state) if effect.number not in (old, plan.number))
    outside = replace(_outside(state), phase=MemberPhase.OUT)
    if rank_in(plan, state.incarnation) < 0:
        gone = go(replace(outside, left=max(outside.left, plan.number)))
        return MemberStep(gone.state, (*others, CloseGroup(number=old), *gone.effects))
    entered = _enter(replace(outside, previous=old), plan, is_connected=True)
    return MemberStep(entered.state, (*others, *entered.effects))


def go(state: MemberState) -> MemberStep:
    """Takes part in nothing any more; an unfinished copy is still offered, unless its state is not compared yet."""
    aborts = _connections(state)
    if state.copy is not None and not state.copy.is_compared:
        state = replace(state, copy=None)
    left = max(state.left, state.number)
    return MemberStep(replace(_outside(state), phase=MemberPhase.GONE, left=left, is_leaving=True), aborts)


def _prepare(state: MemberState, plan: Generation) -> MemberStep:
    """Connects the plan's members in the background while the group trains on (rule 79).

    A plan named in this step's control word keeps its connections until the step has ended (rule 81).
    """
    if state.plan is not None and plan.number <= state.plan.number:
        return MemberStep(state)
    effects: tuple[GroupEffect, ...] = ()
    if state.plan is not None and state.plan is not state.promised and rank_in(state.plan, state.incarnation) >= 0:
        effects = (AbortGroup(number=state.plan.number),)
    is_listed = rank_in(plan, state.incarnation) >= 0
    prepared = replace(state, plan=plan, is_prepared=not is_listed, has_plan_failed=False)
    return MemberStep(prepared, (*effects, ConnectGroup(record=plan)) if is_listed else effects)


def _try_enter(state: MemberState) -> MemberStep:
    """Rules 77 and 80: a record newer than all promises that lists this process, and whose old members it is not of."""
    record = state.offered
    if (
        record is None
        or record.number <= state.left
        or record.number in state.entered
        or rank_in(record, state.incarnation) < 0
        or (record.planned_from and record.planned_from in state.entered)
    ):
        return MemberStep(state)
    return _enter(state, record, is_connected=False)


def _enter(state: MemberState, record: Generation, *, is_connected: bool) -> MemberStep:
    is_of_lineage = record.lineage == state.lineage
    entered = replace(
        state,
        phase=MemberPhase.SYNC,
        record=record,
        entered=state.entered | PositionSet.of(record.number),
        is_connected=is_connected,
        committed=max(state.committed, record.head.state.progress) if is_of_lineage else state.committed,
    )
    return MemberStep(entered, () if is_connected else (ConnectGroup(record=record),))


def _outside(state: MemberState) -> MemberState:
    return replace(
        state,
        record=None,
        is_connected=False,
        transfer=None,
        previous=0,
        has_synced=False,
        plan=None,
        is_prepared=False,
        has_plan_failed=False,
        promised=None,
        is_agreed=False,
        broken=0,
        is_step_given=False,
        copy_shards=0,
        is_last_compared=False,
        is_comparison_agreed=False,
    )


def _connections(state: MemberState) -> tuple[AbortGroup, ...]:
    """Aborts of everything that this member is connected to, or connects."""
    planned = [plan for plan in (state.plan, state.promised) if plan and rank_in(plan, state.incarnation) >= 0]
    numbers = {state.number, state.previous, *(plan.number for plan in planned)} - {0}
    return tuple(AbortGroup(number=number) for number in sorted(numbers))


def _report(state: MemberState, differs: str = "") -> TellMaster:
    return TellMaster(message=LeftGeneration(left=state.left, state=state.state, differs=differs))
