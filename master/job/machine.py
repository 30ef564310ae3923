"""One event at a time: which handler takes it, and what can go on because of it.

An event is handled in two parts: what it says (the handlers), and what can go on because of it (`_advance`, driven by
the state alone, so that nothing waits for an event that has already come).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, assert_never

from master.api.identities import Term
from master.api.messages import (
    Ack,
    Acquire,
    Declare,
    Failed,
    Fenced,
    FinalSaved,
    Leave,
    MemberMessage,
    OfferCheckpoint,
    Progress,
    RegisterServer,
    RegisterTrainer,
    Return,
)
from master.job import (
    cuts,
    declaring,
    departures,
    lateness,
    moves,
    ownership,
    quorum,
    recovery,
    releasing,
    reserving,
    resizing,
    restoring,
    rollback,
    scaling,
    servers,
    skipping,
    trainers,
    waiting,
)
from master.job.domain import (
    AdoptableFound,
    AnswersOverdue,
    ChangeTable,
    CommitDue,
    CutExpired,
    Durable,
    Event,
    FindAdoptable,
    HoldExpired,
    Instant,
    JobConfig,
    LeaseExpired,
    ManifestWriteFailed,
    ManifestWritten,
    MemberKey,
    MessageReceived,
    MovesAgain,
    MovesAsked,
    MovesExpired,
    OwnersAwaited,
    Persisted,
    PersistRefused,
    RaiseLineage,
    ReclaimWindowEnded,
    ReconnectWindowEnded,
    RecordDataset,
    RecordQuarantine,
    RecordServers,
    ReserveHighWater,
    ServersAsked,
    StepDown,
    StreamBroken,
    SwapHead,
)
from master.job.membership import Trainer
from master.job.state import JobState, Moves, Scale, Stage, Step, Turn


def initial(config: JobConfig, durable: Durable, term: Term, now: Instant) -> Step:
    """A new master: adopt at most one manifest, finish what is unfinished, then grant (rules 17, 18)."""
    reserved, holding = reserving.begun(durable)
    state = JobState(
        config=config,
        term=term,
        lineage=durable.lineage,
        head=durable.head,
        dataset=durable.dataset,
        route=durable.route,
        backups=durable.backups,
        moves=Moves(intents=durable.intents),
        scale=Scale(wanted=min(durable.servers or config.servers, config.most_servers)),
        reserved=reserved,
        holding=holding,
        origin=durable.origin,
    )
    turn = Turn(state, now)
    if durable.high_water:
        turn.change(reclaim_ends=turn.after(config.reconnect_window_ns))
    if durable.dataset:
        turn.change(dispatch=declaring.books_of(state, high_water=durable.high_water))
        if durable.head and durable.head.dataset.digest != durable.dataset.dataset.digest:
            turn.change(
                failed=f"checkpoint {durable.head.id} is of another data set than the one this job has declared"
            )
    if durable.route:
        quorum.await_owners(turn, is_new=True)
    if durable.dataset and durable.lineage:
        turn.emit(FindAdoptable(parent=turn.state.head_id, lineage=turn.state.number))
    else:
        turn.recover(stage=Stage.GATHERING)
    _advance(turn)
    return turn.step()


def handle(state: JobState, event: Event, now: Instant) -> Step:
    """What holds after the event.  Raises InvariantViolationError on what cannot be."""
    if state.is_over:
        return Step(state=state, effects=())
    turn = Turn(state, now)
    HANDLERS[type(event)](turn, event)
    if not turn.state.is_over:
        _advance(turn)
    return turn.step()


def _advance(turn: Turn) -> None:
    """What can go on, goes on; recovery before all else, since nothing else may while the model is not whole."""
    recovery.advance(turn)
    reserving.reserve(turn)
    skipping.advance(turn)
    releasing.advance(turn)
    cuts.advance(turn)
    moves.advance(turn)


def _handle_refused(turn: Turn, event: PersistRefused) -> None:
    turn.change(is_over=True)
    turn.emit(StepDown(reason=f"{type(event.write).__name__} was refused: {event.reason}"))


def _handle_reclaim_ended(turn: Turn, event: ReclaimWindowEnded) -> None:
    if turn.state.reclaim_ends == event.deadline:
        turn.change(reclaim_ends=None)
        reserving.await_nobody(turn)


# ---- members --------------------------------------------------------------------------------------------------------


def _handle_message(turn: Turn, event: MessageReceived) -> None:
    if type(event.message) in servers.HANDLERS or isinstance(event.message, RegisterServer):
        servers.handle_message(turn, event.sender, event.message)
    else:
        _handle_trainer_message(turn, event.sender, event.message)


_TRAINER_HANDLERS: Final[Mapping[type[MemberMessage], Callable[[Turn, Trainer, Any], None]]] = {
    Declare: declaring.handle_declare,
    Acquire: trainers.handle_acquire,
    Ack: trainers.handle_ack,
    Return: trainers.handle_return,
    Progress: trainers.handle_progress,
    Failed: departures.handle_failed,
    OfferCheckpoint: lambda turn, trainer, said: cuts.handle_offer(turn, trainer.key, said),
    FinalSaved: trainers.handle_final_saved,
    Leave: lambda turn, trainer, _: departures.leave(turn, trainer),
}


def _handle_trainer_message(turn: Turn, sender: MemberKey, said: MemberMessage) -> None:
    if isinstance(said, RegisterTrainer):
        trainers.handle_register(turn, said)
        return
    trainer = turn.state.members.try_trainer(sender)
    if trainer is None or not (trainer.is_registered or isinstance(said, Leave)):
        turn.send(sender, Fenced(reason="not registered with this master: register again"))
        return
    _TRAINER_HANDLERS[type(said)](turn, trainer, said)


def _handle_stream_broken(turn: Turn, event: StreamBroken) -> None:
    if trainer := turn.state.members.try_trainer(event.member):
        departures.window(turn, trainer)
    elif server := turn.state.members.try_server(event.member):
        servers.window(turn, server)


def _handle_window_ended(turn: Turn, event: ReconnectWindowEnded) -> None:
    trainer, server = turn.state.members.try_trainer(event.member), turn.state.members.try_server(event.member)
    if trainer and trainer.window_ends == event.deadline:
        departures.lose(turn, trainer, "its stream broke and did not come back")
    elif server and waiting.ends(turn.state, server) == event.deadline:
        servers.handle_window_ended(turn, server)


# ---- the store ------------------------------------------------------------------------------------------------------


def _handle_persisted(turn: Turn, event: Persisted) -> None:
    match event.write:
        case ReserveHighWater():
            reserving.handle_recorded(turn)
        case RecordDataset() as write:
            declaring.handle_recorded(turn, write)
            ownership.admit_first(turn)
        case RecordServers() as write:
            scaling.handle_recorded(turn, write)
        case ChangeTable() as write:
            if not moves.handle_changed(turn, write):
                rollback.lose_model(turn, "a server was lost while its bucket moved", rolls_back=False)
        case SwapHead() | RaiseLineage() | RecordQuarantine() as write:
            if turn.state.writing == write:  # else it was answered before
                turn.change(writing=None)
                _handle_model_changed(turn, write)
        case never:
            assert_never(never)


def _handle_model_changed(turn: Turn, write: SwapHead | RaiseLineage | RecordQuarantine) -> None:
    match write:
        case SwapHead():
            cuts.handle_head_swapped(turn)
            if turn.state.stage is Stage.ADOPTING:
                turn.recover(stage=Stage.GATHERING)
        case RaiseLineage():
            restoring.handle_raised(turn, write)
        case RecordQuarantine():
            skipping.handle_recorded(turn, write)
        case never:
            assert_never(never)


HANDLERS: Final[Mapping[type[Event], Callable[[Turn, Any], None]]] = {
    MessageReceived: _handle_message,
    StreamBroken: _handle_stream_broken,
    Persisted: _handle_persisted,
    PersistRefused: _handle_refused,
    ManifestWritten: cuts.handle_manifest_written,
    ManifestWriteFailed: cuts.handle_manifest_write_failed,
    AdoptableFound: recovery.handle_adoptable,
    LeaseExpired: departures.handle_lease_expired,
    ReconnectWindowEnded: _handle_window_ended,
    ReclaimWindowEnded: _handle_reclaim_ended,
    CommitDue: cuts.handle_due,
    HoldExpired: cuts.handle_hold_expired,
    CutExpired: cuts.handle_cut_expired,
    AnswersOverdue: servers.handle_overdue,
    MovesAsked: resizing.handle_asked,
    OwnersAwaited: quorum.handle_owners_awaited,
    MovesExpired: lateness.handle_expired,
    MovesAgain: lateness.handle_again,
    ServersAsked: scaling.handle_asked,
}
