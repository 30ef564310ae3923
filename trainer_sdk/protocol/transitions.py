"""Transitions of the trainer's protocol: the one table from events to the functions that decide."""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from master.api.messages.from_members import Failed, FinalSaved, Progress
from master.api.messages.to_members import (
    Declared,
    Drain,
    Ended,
    Fenced,
    Granted,
    RankChanged,
    Refused,
    Registered,
    RouteChanged,
    Wait,
)
from master.api.positions import PositionSet, union
from trainer_sdk.protocol import batches, leasing
from trainer_sdk.protocol.trainer_events import (
    AcquireDue,
    AssignRank,
    BatchDone,
    BatchRequested,
    DrainDeadlinePassed,
    DrainRequested,
    FinalHookRun,
    LeaveRequested,
    MasterStreamBroken,
    MasterStreamOpened,
    ParametersPulled,
    PushAnswered,
    PushRequested,
    ReportDue,
    ReportRefusal,
    ScriptFailed,
    SendToMaster,
    SpecDeclared,
    TrainerEvent,
    UseRoute,
)
from trainer_sdk.protocol.trainer_state import TrainerPhase, TrainerState, TrainerStep

_Rare = (
    MasterStreamOpened
    | MasterStreamBroken
    | Registered
    | Declared
    | Drain
    | RouteChanged
    | RankChanged
    | Fenced
    | Refused
    | SpecDeclared
    | FinalHookRun
    | ScriptFailed
    | DrainRequested
    | DrainDeadlinePassed
    | LeaveRequested
)


def handle(state: TrainerState, event: TrainerEvent) -> TrainerStep:
    """The next state and its effects.  Raises nothing: an event that comes too late changes nothing."""
    step = _decide(state, event)
    if step.state.is_script_waiting and not isinstance(event, BatchRequested):
        given = batches.handle_batch_requested(step.state)
        return TrainerStep(given.state, step.effects + given.effects)
    return step


def _decide(state: TrainerState, event: TrainerEvent) -> TrainerStep:  # noqa: C901  one case a line: the table of what happens often
    match event:
        case BatchRequested():
            return batches.handle_batch_requested(state)
        case BatchDone(flight=number):
            return batches.handle_batch_done(state, number)
        case PushAnswered(flight=number, rulings=rulings):
            return batches.handle_push_answered(state, number, rulings)
        case PushRequested(flight=number):
            return batches.handle_push_requested(state, number)
        case ParametersPulled(lineage=lineage):
            return batches.handle_pulled(state, lineage)
        case Granted():
            return leasing.handle_granted(state, event)
        case Wait():
            return leasing.handle_wait(state, event)
        case Ended():
            return leasing.handle_ended(state, event)
        case AcquireDue(request=request):
            return leasing.acquire_again(state, request)
        case ReportDue():
            return _report(state, event)
        case _:
            return _decide_rare(state, event)


def _decide_rare(state: TrainerState, event: _Rare) -> TrainerStep:  # noqa: C901, PLR0912  one case a line, as above
    match event:
        case MasterStreamOpened():
            return TrainerStep(state) if state.phase is TrainerPhase.LEFT else leasing.register(state)
        case MasterStreamBroken():
            return (
                TrainerStep(state)
                if state.phase is TrainerPhase.LEFT
                else TrainerStep(replace(state, phase=TrainerPhase.DISCONNECTED))
            )
        case Registered():
            return leasing.handle_registered(state, event)
        case Fenced():
            return leasing.drop_and_register(state)
        case Declared():
            return TrainerStep(state)
        case Refused(field=field, message=message):
            return TrainerStep(state, (ReportRefusal(field=field, message=message),))
        case RouteChanged(route=route, bucket_count=count):
            known = replace(state, buckets=PositionSet.span(0, count))
            acquired = leasing.acquire_again(known, state.request) if state.must_wait else TrainerStep(known)
            return TrainerStep(acquired.state, (UseRoute(route=route, bucket_count=count), *acquired.effects))
        case RankChanged(rank=rank, world_size=world_size):
            return TrainerStep(state, (AssignRank(rank=rank, world_size=world_size),))
        case SpecDeclared():
            return _declare(state, event)
        case Drain() | DrainRequested():
            return leasing.handle_drain(state)
        case DrainDeadlinePassed():
            return leasing.leave(state, "the batch in hand was not finished within the grace period")
        case FinalHookRun():
            return TrainerStep(
                state, (SendToMaster(message=FinalSaved()),) if state.phase is TrainerPhase.JOINED else ()
            )
        case ScriptFailed(message=message):
            in_hand = union(f.positions for f in state.flights)
            failed = SendToMaster(message=Failed(positions=in_hand, message=message))
            return leasing.leave(state, "the script raised", failed=(failed,))
        case LeaveRequested(reason=reason):
            return leasing.leave(state, reason)
        case _:
            assert_never(event)


def _declare(state: TrainerState, event: SpecDeclared) -> TrainerStep:
    state = replace(state, spec=event.spec)
    if state.phase is not TrainerPhase.JOINED:
        return TrainerStep(state)
    acquired = leasing.acquire_if_low(state)
    return TrainerStep(acquired.state, (SendToMaster(message=event.spec), *acquired.effects))


def _report(state: TrainerState, event: ReportDue) -> TrainerStep:
    if state.phase is not TrainerPhase.JOINED:
        return TrainerStep(state)
    progress = Progress(
        steps=event.steps,
        samples_per_s=event.samples_per_s,
        metrics=event.metrics,
        waiting_share=event.waiting_share,
        is_computing=event.is_computing,
        is_waiting=event.is_waiting,
    )
    acked = leasing.flush_acks(state)
    return TrainerStep(acked.state, (*acked.effects, SendToMaster(message=progress)))
