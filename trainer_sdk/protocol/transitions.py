"""The dispatch: one event, one function that decides."""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from master.api.messages import (
    Declared,
    Drain,
    Ended,
    Failed,
    Fenced,
    FinalSaved,
    Granted,
    OfferAnswered,
    OfferCheckpoint,
    Progress,
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
    BatchDone,
    BatchWanted,
    CheckpointWritten,
    Complain,
    DrainDeadlinePassed,
    DrainRequested,
    Event,
    FinalHookRun,
    LeaveRequested,
    OfferSettled,
    Place,
    Pulled,
    PushAnswered,
    PushWanted,
    ReportDue,
    ScriptFailed,
    Send,
    SpecDeclared,
    StreamBroken,
    StreamOpened,
    UseRoute,
)
from trainer_sdk.protocol.trainer_state import Phase, Step, TrainerState

_Rare = (
    StreamOpened
    | StreamBroken
    | Registered
    | Declared
    | Drain
    | RouteChanged
    | RankChanged
    | OfferAnswered
    | Fenced
    | Refused
    | SpecDeclared
    | CheckpointWritten
    | FinalHookRun
    | ScriptFailed
    | DrainRequested
    | DrainDeadlinePassed
    | LeaveRequested
)


def handle(state: TrainerState, event: Event) -> Step:
    """The next state and what to do.  Raises nothing: an event that comes too late changes nothing."""
    step = _decide(state, event)
    if step.state.is_wanted and not isinstance(event, BatchWanted):
        given = batches.want(step.state)
        return Step(given.state, step.effects + given.effects)
    return step


def _decide(state: TrainerState, event: Event) -> Step:  # noqa: C901  one case a line: the table of what happens often
    match event:
        case BatchWanted():
            return batches.want(state)
        case BatchDone(flight=number):
            return batches.done(state, number)
        case PushAnswered(flight=number, rulings=rulings):
            return batches.answered(state, number, rulings)
        case PushWanted(flight=number):
            return batches.push(state, number)
        case Pulled(lineage=lineage):
            return batches.pulled(state, lineage)
        case Granted():
            return leasing.take(state, event)
        case Wait():
            return leasing.wait(state, event)
        case Ended():
            return leasing.end(state, event)
        case AcquireDue(request=request):
            return leasing.ask_again(state, request)
        case ReportDue():
            return _report(state, event)
        case _:
            return _decide_rare(state, event)


def _decide_rare(state: TrainerState, event: _Rare) -> Step:  # noqa: C901, PLR0912  one case a line, as above
    match event:
        case StreamOpened():
            return Step(state) if state.phase is Phase.LEFT else leasing.register(state)
        case StreamBroken():
            return Step(state) if state.phase is Phase.LEFT else Step(replace(state, phase=Phase.APART))
        case Registered():
            return leasing.join(state, event)
        case Fenced():
            return leasing.renounce(state)
        case Declared():
            return Step(state)
        case Refused(field=field, message=message):
            return Step(state, (Complain(field=field, message=message),))
        case RouteChanged(route=route, bucket_count=count):
            known = replace(state, buckets=PositionSet.span(0, count))
            asked = leasing.ask_again(known, state.request) if state.is_told_to_wait else Step(known)
            return Step(asked.state, (UseRoute(route=route, bucket_count=count), *asked.effects))
        case RankChanged(rank=rank, world_size=world_size):
            return Step(state, (Place(rank=rank, world_size=world_size),))
        case SpecDeclared():
            return _declare(state, event)
        case CheckpointWritten():
            return _offer(state, event)
        case OfferAnswered():
            return _settle_offer(state, event)
        case Drain() | DrainRequested():
            return leasing.drain(state)
        case DrainDeadlinePassed():
            return leasing.leave(state, "the batch in hand was not finished within the grace period")
        case FinalHookRun():
            return Step(state, (Send(message=FinalSaved()),) if state.phase is Phase.JOINED else ())
        case ScriptFailed(message=message):
            in_hand = union(f.positions for f in state.flights)
            failed = Send(message=Failed(positions=in_hand, message=message))
            return leasing.leave(state, "the script raised", failed=(failed,))
        case LeaveRequested(reason=reason):
            return leasing.leave(state, reason)
        case _:
            assert_never(event)


def _declare(state: TrainerState, event: SpecDeclared) -> Step:
    state = replace(state, spec=event.spec)
    if state.phase is not Phase.JOINED:
        return Step(state)
    asked = leasing.ask_if_low(state)
    return Step(asked.state, (Send(message=event.spec), *asked.effects))


def _report(state: TrainerState, event: ReportDue) -> Step:
    if state.phase is not Phase.JOINED:
        return Step(state)
    progress = Progress(
        steps=event.steps,
        samples_per_s=event.samples_per_s,
        metrics=event.metrics,
        waiting_share=event.waiting_share,
    )
    acked = leasing.flush_acks(state)
    return Step(acked.state, (*acked.effects, Send(message=progress)))


def _offer(state: TrainerState, event: CheckpointWritten) -> Step:
    """Offer the file under the world it was trained in; said again on a new stream until it is answered (rule 35)."""
    offer = OfferCheckpoint(offer=event.offer, world=state.lineage, file=event.file)
    return Step(replace(state, offer=offer), (Send(message=offer),) if state.phase is Phase.JOINED else ())


def _settle_offer(state: TrainerState, answer: OfferAnswered) -> Step:
    if state.offer is None or state.offer.offer != answer.offer:
        return Step(state)
    marks = union(m.applied for m in state.offer.file.marks)
    committed = marks if answer.manifest else state.committed
    return Step(replace(state, offer=None, committed=committed), (OfferSettled(answer=answer),))
