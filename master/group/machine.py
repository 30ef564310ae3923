"""The transition function of a group's master: one event goes to its handler, then everything advances.

A handler does what its event says.  `_advance` then does what the state alone allows, in the order of importance:
trouble before plans, a written checkpoint before a next generation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from master.api.identities import Lineage, Term
from master.api.messages.from_members import Declare, Failed, FinalSaved, Leave, MemberMessage
from master.api.messages.generations import (
    CopyFailed,
    GroupProgress,
    LeaveRequest,
    LeftGeneration,
    OfferState,
    RegisterReplica,
)
from master.api.messages.to_members import Fenced, Refused
from master.api.servers_answer import ServersAnswer
from master.errors import InvariantViolationError
from master.group import commits, comparisons, declaration, ending, generations, plans, reports, suspects
from master.group.group_events import CheckpointDue, GroupCoreEvent, JoinersGathered, LeaveDue, ReplicaSilent
from master.group.group_state import GroupState, GroupStep, GroupTurn, Replica, roster_of
from master.job.domain.durable_records import (
    Durable,
    Instant,
    LineageRecord,
    MemberKey,
    RaiseLineage,
    RecordDataset,
    RecordFinalSave,
    RecordGeneration,
    RecordQuarantine,
    SwapHead,
)
from master.job.domain.effects import AnswerServers, StepDown
from master.job.domain.job_config import JobConfig
from master.job.domain.job_events import (
    AdoptableFound,
    BackoffLimitSet,
    ComparisonRequested,
    HeadNamed,
    ManifestWriteFailed,
    ManifestWritten,
    MessageReceived,
    Persisted,
    PersistRefused,
    ReclaimWindowEnded,
    ReconnectWindowEnded,
    ServersRequested,
    StreamBroken,
)

MOST_ROUNDS: Final = 8  # one or two are enough
_NOT_FOR_GROUPS: Final = (
    "this script asks for shards or parameter servers, and the job is a group, whose trainers each hold the model: "
    "start it by `edl launch --no-group`, or --servers for tables; in a job file remove spec.group"
)


def initial(config: JobConfig, durable: Durable, term: Term, now: Instant) -> GroupStep:
    """The state of a new master: what is durable, and time for the members of the record to come (rule 91)."""
    record, head, dataset = durable.generation, durable.head, durable.dataset
    failed = ""
    if head and dataset and not declaration.is_same_order(head.dataset, dataset.dataset):
        failed = f"checkpoint {head.id} belongs to another data set than this job declared"
    elif head and head.state is None:
        failed = f"checkpoint {head.id} is not of a group: start the job without spec.group, or in another folder"
    state = GroupState(
        config=config,
        term=term,
        lineage=durable.lineage,
        head=head,
        named=head,
        is_head_named=head is None,
        dataset=dataset,
        layout=dataset.layout if dataset else "",
        record=record,
        roster=roster_of(record),
        widest=len(record.current.members) if record else 0,
        largest=record.current.number if record else 0,
        newest=head.step if head and head.state else 0,
        final_save=durable.final_save,
        failed=failed,
        origin=durable.origin,
    )
    turn = GroupTurn(state, now)
    if record:
        turn.change(reclaim_ends=turn.after(config.reconnect_window_ns))
    _advance(turn)
    return turn.step()


def handle(state: GroupState, event: GroupCoreEvent, now: Instant) -> GroupStep:
    """The state after the event, and the effects in order.  Raises InvariantViolationError for an impossible event."""
    if state.is_over:
        return GroupStep(state=state, effects=())
    turn = GroupTurn(state, now)
    HANDLERS[type(event)](turn, event)
    if not (turn.state.is_over or turn.is_idle):
        _advance(turn)
    return turn.step()


def _advance(turn: GroupTurn) -> None:
    """Until the state allows nothing more: an event that changes nothing of it needs no look at all members."""
    for _ in range(MOST_ROUNDS):
        before = turn.state
        _advance_once(turn)
        if turn.state is before or turn.state == before or turn.state.is_over:
            return


def _advance_once(turn: GroupTurn) -> None:
    declaration.advance(turn)
    _found(turn)
    _give_up_replicas(turn)
    ending.advance(turn)
    commits.swap(turn)
    if ending.needs_group(turn.state):
        is_troubled = generations.is_in_trouble(turn.state)
        plans.advance(turn, is_troubled=is_troubled)
        if is_troubled and not turn.state.writing:
            generations.break_group(turn)
        if turn.state.current is not None:  # else once the first ones are gathered
            generations.regroup(turn)
        plans.gather_joiners(turn)
    commits.ask_for_copy(turn)


def _found(turn: GroupTurn) -> None:
    """The first lineage of a job, above all that are known (rule 29)."""
    state = turn.state
    if state.lineage is not None or state.dataset is None or state.writing:
        return
    known = [state.head.lineage if state.head else 0, state.origin.founded - 1]
    known.append(state.record.current.lineage if state.record else 0)
    known.extend(one.state.lineage - 1 for one in state.members.values() if one.state)  # replicas of a lost record
    new = LineageRecord(number=Lineage(1 + max(known)), base=state.head_id)
    turn.write(RaiseLineage(old=None, new=new, route=None))


def _give_up_replicas(turn: GroupTurn) -> None:
    """A lineage above those of replicas whose record is lost: the job goes back to head (M8, rule 93).

    Records lost twice, with no file of the lineage between, give its number twice; its replicas would count in 70.
    """
    state = turn.state
    if state.record is not None or state.lineage is None or state.head is None or state.writing:
        return
    heard = max((one.state.lineage for one in state.members.values() if one.state), default=0)
    if heard >= state.number:
        new = replace(state.lineage, number=Lineage(1 + heard), base=state.head_id)
        turn.write(RaiseLineage(old=state.lineage, new=new, route=None))


# ---- members --------------------------------------------------------------------------------------------------------

MESSAGE_HANDLERS: Final[Mapping[type[MemberMessage], Callable[[GroupTurn, Replica, Any], None]]] = {
    Declare: declaration.handle_declare,
    LeftGeneration: reports.handle_left,
    GroupProgress: reports.handle_progress,
    OfferState: commits.handle_offer,
    CopyFailed: commits.handle_copy_failed,
    LeaveRequest: reports.handle_leave_request,
    Failed: suspects.handle_failed,
    FinalSaved: ending.handle_final_saved,
    Leave: reports.handle_leave,
}


def _handle_message(turn: GroupTurn, event: MessageReceived) -> None:
    message, sender = event.message, event.sender
    if isinstance(message, RegisterReplica):
        reports.handle_register(turn, message)
        ending.repeat(turn, sender)
        return
    handler, replica = MESSAGE_HANDLERS.get(type(message)), turn.state.try_replica(sender)
    if handler is None:
        turn.send(sender, Refused(field="group", message=_NOT_FOR_GROUPS))
    elif replica is None:
        turn.send(sender, Fenced(reason="not registered with this master: register again"))
    else:
        handler(turn, replica, message)


def _handle_servers(turn: GroupTurn, event: ServersRequested) -> None:
    answer = ServersAnswer(count=0, least=0, most=0)
    turn.emit(AnswerServers(requests=(event.request,), answer=answer))


# ---- the store ------------------------------------------------------------------------------------------------------


def _handle_persisted(turn: GroupTurn, event: Persisted) -> None:
    write = event.write
    if isinstance(write, RecordDataset):
        declaration.handle_recorded(turn, write)
        return
    if turn.state.writing != write:  # it was answered before
        return
    turn.change(writing=None)
    match write:
        case RecordGeneration():
            generations.handle_recorded(turn, write)
        case RaiseLineage() | RecordQuarantine():
            turn.change(lineage=write.new)
        case RecordFinalSave():
            turn.change(final_save=write.manifest)
        case SwapHead():
            commits.handle_swapped(turn)
        case _:
            raise InvariantViolationError(f"a group's master never writes {type(write).__name__}")


def _handle_refused(turn: GroupTurn, event: PersistRefused) -> None:
    turn.change(is_over=True)
    turn.emit(StepDown(reason=f"{type(event.write).__name__} was refused: {event.reason}"))


HANDLERS: Final[Mapping[type, Callable[[GroupTurn, Any], None]]] = {
    MessageReceived: _handle_message,
    StreamBroken: lambda turn, event: reports.handle_stream_broken(turn, _member(event)),
    Persisted: _handle_persisted,
    PersistRefused: _handle_refused,
    ManifestWritten: commits.handle_manifest_written,
    ManifestWriteFailed: commits.handle_manifest_write_failed,
    HeadNamed: commits.handle_head_named,
    AdoptableFound: lambda turn, event: None,  # noqa: ARG005  nothing is adopted: living writers ask again (rule 89)
    ServersRequested: _handle_servers,
    BackoffLimitSet: suspects.handle_backoff_limit,
    ComparisonRequested: comparisons.handle_requested,
    JoinersGathered: plans.handle_gathered,
    ReplicaSilent: reports.handle_silent,
    LeaveDue: plans.handle_leave_due,
    CheckpointDue: commits.handle_due,
    ReclaimWindowEnded: reports.handle_reclaim_ended,
    ReconnectWindowEnded: reports.handle_window_ended,
}


def _member(event: StreamBroken) -> MemberKey:
    return event.member
