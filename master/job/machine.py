"""The transition function of the master's core: one event goes to its handler, then every protocol advances.

A handler does what its event says.  `_advance` then does what the state alone allows, so no protocol waits for an
event that has already come.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, assert_never

from master.api.identities import Term
from master.api.messages.from_members import (
    Ack,
    Acquire,
    Declare,
    Failed,
    FinalSaved,
    GroupMessage,
    Leave,
    MemberMessage,
    Progress,
    RegisterServer,
    RegisterTrainer,
    Return,
)
from master.api.messages.to_members import Fenced, Refused
from master.errors import InvariantViolationError
from master.job.commit import commit_protocol, head_swap
from master.job.dispatch import high_water, skip_agreement
from master.job.domain.durable_records import (
    ChangeTable,
    Durable,
    Instant,
    MemberKey,
    RaiseLineage,
    RecordDataset,
    RecordFinalSave,
    RecordGeneration,
    RecordQuarantine,
    RecordServers,
    ReserveHighWater,
    SwapHead,
)
from master.job.domain.effects import FindAdoptable, StepDown
from master.job.domain.job_config import JobConfig
from master.job.domain.job_events import (
    AdoptableFound,
    AnswersOverdue,
    BackoffLimitSet,
    CommitDue,
    ComparisonRequested,
    CoreEvent,
    CutExpired,
    HeadNamed,
    HoldExpired,
    LeaseExpired,
    ManifestWriteFailed,
    ManifestWritten,
    MessageReceived,
    MovesExpired,
    MovesRequested,
    MovesRetryDue,
    OwnersWaitEnded,
    Persisted,
    PersistRefused,
    ReclaimWindowEnded,
    ReconnectWindowEnded,
    ServersRequested,
    StreamBroken,
)
from master.job.moves import move_lifecycle, move_timeouts, rebalancing, server_scaling
from master.job.recovery import model_recovery, rollback, server_quorum, server_restore
from master.job.servers import disconnect_grace, server_handlers, server_release
from master.job.state.job_state import JobStep, MasterState, Turn
from master.job.state.members import Trainer
from master.job.state.protocol_state import BucketMoves, RecoveryStage, ServerScale
from master.job.trainers import job_spec, trainer_handlers, trainer_loss


def initial(config: JobConfig, durable: Durable, term: Term, now: Instant) -> JobStep:
    """The state of a new master: it adopts at most one manifest and ends unfinished work before it grants leases
    (rules 17, 18).
    """
    mark, lease_holders = high_water.initial_marks(durable)
    state = MasterState(
        config=config,
        term=term,
        lineage=durable.lineage,
        head=durable.head,
        dataset=durable.dataset,
        route=durable.route,
        backups=durable.backups,
        moves=BucketMoves(intents=durable.intents),
        scale=ServerScale(target=min(durable.servers or config.servers, config.most_servers)),
        high_water=mark,
        lease_holders=lease_holders,
        is_end_inherited=durable.head is not None and durable.head.is_complete and not durable.high_water,
        origin=durable.origin,
    )
    turn = Turn(state, now)
    if durable.high_water:
        turn.change(reclaim_ends=turn.after(config.reconnect_window_ns))
    if durable.dataset:
        turn.change(dispatch=job_spec.initial_dispatch(state, high_water=durable.high_water))
        if durable.head and durable.head.dataset.digest != durable.dataset.dataset.digest:
            turn.change(failed=f"checkpoint {durable.head.id} belongs to another data set than this job declared")
    if durable.route:
        server_quorum.await_owners(turn, is_new=True)
    if durable.dataset and durable.lineage:
        turn.emit(FindAdoptable(parent=turn.state.head_id, lineage=turn.state.number))
    else:
        turn.recover(stage=RecoveryStage.GATHERING)
    _advance(turn)
    return turn.step()


def handle(state: MasterState, event: CoreEvent, now: Instant) -> JobStep:
    """The state after the event, and the effects in order.  Raises InvariantViolationError for an impossible state."""
    if state.is_over:
        return JobStep(state=state, effects=())
    turn = Turn(state, now)
    HANDLERS[type(event)](turn, event)
    if not turn.state.is_over:
        _advance(turn)
    return turn.step()


def _advance(turn: Turn) -> None:
    """Advances every protocol that can proceed, recovery first: nothing else may run while the model is incomplete."""
    model_recovery.advance(turn)
    high_water.reserve(turn)
    skip_agreement.advance(turn)
    server_release.advance(turn)
    commit_protocol.advance(turn)
    move_lifecycle.advance(turn)


def _handle_refused(turn: Turn, event: PersistRefused) -> None:
    turn.change(is_over=True)
    turn.emit(StepDown(reason=f"{type(event.write).__name__} was refused: {event.reason}"))


def _handle_reclaim_ended(turn: Turn, event: ReclaimWindowEnded) -> None:
    if turn.state.reclaim_ends == event.deadline:
        turn.change(reclaim_ends=None)
        high_water.stop_waiting_for_trainers(turn)


# ---- members --------------------------------------------------------------------------------------------------------


def _handle_message(turn: Turn, event: MessageReceived) -> None:
    if type(event.message) in server_handlers.HANDLERS or isinstance(event.message, RegisterServer):
        server_handlers.handle_message(turn, event.sender, event.message)
    else:
        _handle_trainer_message(turn, event.sender, event.message)


_TRAINER_HANDLERS: Final[Mapping[type[MemberMessage], Callable[[Turn, Trainer, Any], None]]] = {
    Declare: job_spec.handle_declare,
    Acquire: trainer_handlers.handle_acquire,
    Ack: trainer_handlers.handle_ack,
    Return: trainer_handlers.handle_return,
    Progress: trainer_handlers.handle_progress,
    Failed: trainer_loss.handle_failed,
    FinalSaved: trainer_handlers.handle_final_saved,
    Leave: lambda turn, trainer, _: trainer_loss.handle_leave(turn, trainer),
}


_NO_GROUP: Final = "this job is none whose trainers all hold the model: its script uses shards, or it lacks spec.group"


def _handle_trainer_message(turn: Turn, sender: MemberKey, message: MemberMessage) -> None:
    if isinstance(message, GroupMessage):
        turn.send(sender, Refused(field="group", message=_NO_GROUP))
        return
    if isinstance(message, RegisterTrainer):
        trainer_handlers.handle_register(turn, message)
        return
    trainer = turn.state.members.try_trainer(sender)
    if trainer is None or not (trainer.is_registered or isinstance(message, Leave)):
        turn.send(sender, Fenced(reason="not registered with this master: register again"))
        return
    _TRAINER_HANDLERS[type(message)](turn, trainer, message)


def _handle_stream_broken(turn: Turn, event: StreamBroken) -> None:
    if trainer := turn.state.members.try_trainer(event.member):
        trainer_loss.open_window(turn, trainer)
    elif server := turn.state.members.try_server(event.member):
        server_handlers.open_window(turn, server)


def _handle_window_ended(turn: Turn, event: ReconnectWindowEnded) -> None:
    trainer, server = turn.state.members.try_trainer(event.member), turn.state.members.try_server(event.member)
    if trainer and trainer.window_ends == event.deadline:
        trainer_loss.lose_trainer(turn, trainer, "its stream broke and it did not reconnect")
    elif server and disconnect_grace.ends_at(turn.state, server) == event.deadline:
        server_handlers.handle_window_ended(turn, server)


# ---- the store ------------------------------------------------------------------------------------------------------


def _handle_persisted(turn: Turn, event: Persisted) -> None:
    match event.write:
        case ReserveHighWater():
            high_water.handle_recorded(turn)
        case RecordDataset() as write:
            job_spec.handle_recorded(turn, write)
        case RecordServers() as write:
            server_scaling.handle_recorded(turn, write)
        case ChangeTable() as write:
            if not move_lifecycle.handle_changed(turn, write):
                rollback.lose_model(turn, "a server was lost while its bucket moved", rolls_back=False)
        case SwapHead() | RaiseLineage() | RecordQuarantine() as write:
            if turn.state.writing == write:  # else it was answered before
                turn.change(writing=None)
                _handle_model_changed(turn, write)
        case RecordGeneration() | RecordFinalSave():
            raise InvariantViolationError(f"only a group's master writes {type(event.write).__name__}")
        case never:
            assert_never(never)


def _handle_model_changed(turn: Turn, write: SwapHead | RaiseLineage | RecordQuarantine) -> None:
    match write:
        case SwapHead():
            head_swap.handle_head_swapped(turn)
            if turn.state.stage is RecoveryStage.ADOPTING:
                turn.recover(stage=RecoveryStage.GATHERING)
        case RaiseLineage():
            server_restore.handle_raised(turn, write)
        case RecordQuarantine():
            skip_agreement.handle_recorded(turn, write)
        case never:
            assert_never(never)


HANDLERS: Final[Mapping[type[CoreEvent], Callable[[Turn, Any], None]]] = {
    MessageReceived: _handle_message,
    StreamBroken: _handle_stream_broken,
    Persisted: _handle_persisted,
    PersistRefused: _handle_refused,
    ManifestWritten: head_swap.handle_manifest_written,
    ManifestWriteFailed: head_swap.handle_manifest_write_failed,
    AdoptableFound: model_recovery.handle_adoptable,
    LeaseExpired: trainer_loss.handle_lease_expired,
    ReconnectWindowEnded: _handle_window_ended,
    ReclaimWindowEnded: _handle_reclaim_ended,
    CommitDue: commit_protocol.handle_due,
    HoldExpired: commit_protocol.handle_hold_expired,
    CutExpired: commit_protocol.handle_cut_expired,
    AnswersOverdue: server_handlers.handle_overdue,
    MovesRequested: rebalancing.handle_moves_requested,
    OwnersWaitEnded: server_quorum.handle_owners_wait_ended,
    MovesExpired: move_timeouts.handle_expired,
    MovesRetryDue: move_timeouts.handle_retry_due,
    ServersRequested: server_scaling.handle_servers_requested,
    BackoffLimitSet: trainer_loss.handle_backoff_limit,
    ComparisonRequested: lambda turn, event: None,  # noqa: ARG005  its trainers hold no replicas
    HeadNamed: lambda turn, event: None,  # noqa: ARG005  it hears `Persisted` then
}
