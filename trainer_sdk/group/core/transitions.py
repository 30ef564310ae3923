"""Transitions of a group member: the one table from events to the functions that decide.  Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import Final, assert_never

from master.api.messages.from_members import Declare, Failed, FinalSaved, Leave
from master.api.messages.generations import (
    BrokenGeneration,
    ComparisonWanted,
    CopyWanted,
    GroupEnded,
    GroupPhase,
    GroupProgress,
    LeaveRequest,
    NewGeneration,
    RegisterReplica,
    ReplicaRegistered,
)
from master.api.messages.to_members import Declared, Fenced, OfferAnswered, Refused, Released
from master.api.positions import EMPTY
from trainer_sdk.group.core import copies, membership, steps, sync
from trainer_sdk.group.core.member_events import (
    AbortGroup,
    CopyNow,
    CopyTaken,
    CopyWritten,
    DigestTaken,
    DrainAsked,
    FinalHookDone,
    GraceEnded,
    GroupConnected,
    GroupEvent,
    GroupFailed,
    RefuseScript,
    ReplicasCompared,
    ReplicaTorn,
    ReportRequested,
    ScriptRaised,
    StateCaptured,
    StatesGathered,
    StateTaken,
    StepApplied,
    StepReduced,
    StopAsked,
    StreamClosed,
    StreamOpened,
    TellMaster,
    WordsGathered,
)
from trainer_sdk.group.core.member_state import MemberPhase, MemberState, MemberStep, changed, with_lineage
from trainer_sdk.group.core.replica_digests import last_word


def handle_member(state: MemberState, event: GroupEvent) -> MemberStep:  # noqa: C901, PLR0912  one case a line
    """The next state and its effects.  Raises nothing: an event that comes late or again changes nothing."""
    match event:
        case NewGeneration():
            return membership.handle_new(state, event)
        case BrokenGeneration():
            return membership.handle_broken(state, event)
        case GroupConnected():
            return membership.handle_connected(state, event)
        case GroupFailed():
            return membership.handle_failed(state, event)
        case StatesGathered():
            return sync.handle_gathered(state, event)
        case StateCaptured():
            return sync.handle_captured(state, event)
        case StateTaken():
            return sync.handle_taken(state, event)
        case ReplicaTorn():
            return sync.handle_torn(state)
        case DigestTaken(digest=digest):
            return MemberStep(changed(state, digest=digest))
        case StepReduced():
            return steps.handle_reduced(state, event)
        case WordsGathered():
            return steps.handle_words(state, event)
        case ReplicasCompared():
            return steps.handle_last_words(state, event)
        case StepApplied():
            return steps.handle_applied(state)
        case StopAsked():
            return steps.handle_stop(state)
        case CopyWanted():
            return copies.handle_due(state)
        case ComparisonWanted():
            return MemberStep(replace(state, wants_comparison=state.can_compare))
        case CopyNow():
            return copies.handle_now(state)
        case CopyTaken():
            return copies.handle_copied(state, event)
        case CopyWritten():
            return copies.handle_written(state, event)
        case OfferAnswered():
            return copies.handle_answered(state, event)
        case DrainAsked():
            return membership.handle_drain(state, event)
        case Released():
            return membership.go(state)
        case GraceEnded():
            return membership.go(replace(state, copy=None))
        case GroupEnded():
            return _end(state, event)
        case _:
            return _handle_stream(state, event)


def _handle_stream(
    state: MemberState,
    event: StreamOpened
    | StreamClosed
    | ReplicaRegistered
    | Declared
    | Fenced
    | Refused
    | ReportRequested
    | ScriptRaised
    | FinalHookDone,
) -> MemberStep:
    match event:
        case StreamOpened() | Fenced():
            return MemberStep(state, _registration(state))
        case StreamClosed():
            return MemberStep(replace(state, is_registered=False))
        case ReplicaRegistered(lineage=lineage):
            told = copies.tell_failure(replace(with_lineage(state, lineage), is_registered=True))
            return MemberStep(told.state, (*told.effects, *copies.offer(told.state)))
        case Declared(dataset=dataset):
            return MemberStep(state if state.entered else replace(state, dataset=dataset))
        case Refused(field=field, message=message):
            return MemberStep(state, (RefuseScript(field=field, message=message),))
        case ReportRequested():
            if not state.is_registered:
                return MemberStep(state)
            return MemberStep(state, (TellMaster(message=_progress(state, event)), *copies.offer(state)))
        case ScriptRaised(message=message, is_in_step=is_in_step):
            is_given = state.is_step_given or (is_in_step and state.phase is MemberPhase.COMPLETE)
            is_suspect = is_given and not event.is_misuse
            positions = steps.share_of(state).positions if is_suspect and state.record else EMPTY
            return MemberStep(state, (TellMaster(message=Failed(positions=positions, message=message)),))
        case FinalHookDone():
            return MemberStep(state, (TellMaster(message=FinalSaved()),))
        case _:
            assert_never(event)


def leave_job(reason: str) -> tuple[TellMaster, ...]:
    """The last message of a process that goes."""
    return (TellMaster(message=Leave(reason=reason)),)


_NOTHING_AGREED: Final = {"copy_shards": 0, "is_comparison_agreed": False}


def give(state: MemberState) -> MemberState:
    """The script has been given the step that `script_work.next_work` names."""
    return changed(state, is_step_given=True, newest_given=max(state.newest_given, state.step), **_NOTHING_AGREED)


def _end(state: MemberState, event: GroupEnded) -> MemberStep:
    """A collective in which this member waits for one that takes part in no more ends (rule 97), no other one."""
    is_waiting = state.phase in (MemberPhase.SYNC, MemberPhase.TRANSFER, MemberPhase.CONTRIBUTED) or state.is_step_given
    is_comparing = state.phase is MemberPhase.BOUNDARY and last_word(state) is not None
    aborts = (AbortGroup(number=state.number),) if is_waiting or is_comparing else ()
    return MemberStep(replace(state, ended=state.ended if _is_saver(state) else event), aborts)


def _is_saver(state: MemberState) -> bool:
    return state.ended is not None and state.ended.final_saver


def _registration(state: MemberState) -> tuple[TellMaster, ...]:
    register = RegisterReplica(
        name=state.name,
        ordinal=state.ordinal,
        incarnation=state.incarnation,
        address=state.address,
        generation=state.number,
        left=state.left,
        state=state.state,
        has_final_hook=state.has_final_hook,
        is_leaving=state.is_leaving,
    )
    declare = Declare(dataset=state.dataset, layout=state.layout)
    leaving = (LeaveRequest(grace_s=state.grace_s),) if state.is_leaving else ()
    return tuple(TellMaster(message=message) for message in (register, declare, *leaving))


def _progress(state: MemberState, event: ReportRequested) -> GroupProgress:
    return GroupProgress(
        generation=state.number,
        phase=_phase(state, event),
        state=state.state,
        is_synced=state.has_synced,
        steps_begun=event.steps_begun,
        median_step_s=event.median_step_s,
        samples_per_s=event.samples_per_s,
        pause_s=event.pause_s,
        failed_plan=state.plan.number if state.plan is not None and state.has_plan_failed else 0,
        waiting_share=event.waiting_share,
        data_problem=state.data_problem,
        compared=state.compared,
        reducing_s=event.reducing_s,
        compute_rate=event.compute_rate,
        metrics=event.metrics,
    )


def _phase(state: MemberState, event: ReportRequested) -> GroupPhase:
    match state.phase:
        case MemberPhase.OUT if event.is_in_script or event.is_working:
            return GroupPhase.UNREADY
        case MemberPhase.OUT | MemberPhase.GONE:
            return GroupPhase.OUT
        case MemberPhase.SYNC | MemberPhase.TRANSFER if event.is_working:
            return GroupPhase.RESTORE
        case MemberPhase.SYNC:
            return _phase_before_sync(event) if event.is_in_script else GroupPhase.SYNC
        case MemberPhase.TRANSFER:
            return GroupPhase.TRANSFER
        case MemberPhase.CONTRIBUTED:
            return GroupPhase.REDUCE
        case MemberPhase.BOUNDARY | MemberPhase.COMPLETE if event.is_reducing:
            return GroupPhase.REDUCE
        case MemberPhase.BOUNDARY if state.is_all_done:
            return GroupPhase.SCRIPT if event.is_in_script or event.is_working else GroupPhase.DONE
        case MemberPhase.BOUNDARY | MemberPhase.COMPLETE:
            is_given = state.is_step_given or (event.is_in_step and state.phase is MemberPhase.COMPLETE)
            return _phase_in_step(event) if is_given else GroupPhase.SCRIPT
        case _:
            assert_never(state.phase)


def _phase_before_sync(event: ReportRequested) -> GroupPhase:
    """The script has not come back from the step that was dropped, or has not asked for its first one."""
    return GroupPhase.LOAD if event.is_loading else GroupPhase.SCRIPT


def _phase_in_step(event: ReportRequested) -> GroupPhase:
    if event.is_loading:
        return GroupPhase.LOAD
    return GroupPhase.WARM_UP if event.is_size_new else GroupPhase.COMPUTE
