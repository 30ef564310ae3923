"""Handlers of trainers' messages: registration, leases, acks, progress, the end (rules 10 to 12, 14, 15, 18, 32).

Not here: how trainers go (`trainer_loss`), the data set (`job_spec`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from master.api.messages.from_members import Ack, Acquire, FinalSaved, Progress, RegisterTrainer, Return
from master.api.messages.to_members import Ended, Granted, Refused, Registered, RouteChanged, Wait
from master.job.dispatch.high_water import add_trainer
from master.job.dispatch.lease_size import batches_to_grant, choose_positions
from master.job.domain.durable_records import SECOND, Instant, MemberKey
from master.job.domain.frozen_map import FrozenMap
from master.job.state.dispatch_state import TrainerLeases
from master.job.state.job_state import Turn
from master.job.state.lease_changes import ack_positions, add_leases, reclaim_leases, renew_leases, return_positions
from master.job.state.members import Trainer, put_trainer, retire, trainer_of
from master.job.state.protocol_state import RecoveryStage
from master.job.state.trainer_failures import clear_positions
from master.job.trainers.trainer_loss import leased_by, lose_trainer, send_ranks

MIN_RATE: Final = 1e-6
"""Samples/s.  What lies outside (0, NaN and infinity too) is no measurement."""

MAX_RATE: Final = 1e12

# ---- registration ---------------------------------------------------------------------------------------------------


def handle_register(turn: Turn, registration: RegisterTrainer) -> None:
    """The trainer is a member, with the leases that it may keep (rule 18)."""
    state, key = turn.state, MemberKey(name=registration.name, incarnation=registration.incarnation)
    if key.incarnation in state.members.retired:
        turn.send(key, Refused(field="incarnation", message=f"a newer process is {key.name}; this one may end"))
        return
    before = state.members.trainers.get(key.name)
    if before and before.key != key:
        lose_trainer(turn, before, "its process was replaced")
        turn.change(members=retire(turn.state.members, before.key.incarnation))
    trainer = trainer_of(registration, before)
    turn.change(members=put_trainer(turn.state.members, trainer))
    state = turn.state
    dispatch, kept = reclaim_leases(
        state.dispatch, key.incarnation, state.term, state.number, registration.held, deadline=_deadline(turn, trainer)
    )
    turn.change(dispatch=dispatch)
    add_trainer(turn, key)
    if kept:
        _record_first_lease(turn, trainer)
    turn.send(
        key,
        Registered(
            term=state.term,
            lineage=state.number,
            kept=kept,
            dataset=state.dataset.dataset if state.dataset else None,
            tables=state.dataset.tables if state.dataset else (),
            head=state.head_id,
            report_every_s=state.config.report_every_ns / SECOND,
        ),
    )
    if state.stage is RecoveryStage.SERVING and state.route and state.config.servers:
        turn.send(key, RouteChanged(route=state.route, bucket_count=len(state.route.owner)))
    send_ranks(turn)


# ---- working --------------------------------------------------------------------------------------------------------


def handle_acquire(turn: Turn, trainer: Trainer, message: Acquire) -> None:
    """Granted, Wait, Ended or Refused; the same request again gets the same leases (rule 10, M3)."""
    state, key = turn.state, trainer.key
    holder = state.dispatch.holders.get(key.incarnation) or TrainerLeases()
    if state.failed:
        turn.send(key, Refused(field="job", message=state.failed))
    elif state.is_complete:
        _end(turn, trainer, message.request)
    elif state.stage is not RecoveryStage.SERVING or state.dataset is None:
        _wait(turn, key, message.request)
    elif message.request == holder.request:
        again = tuple(lease for lease in holder.leases if lease.token.number in holder.granted)
        if again:
            turn.send(key, Granted(request=message.request, leases=again))
        else:
            _wait(turn, key, message.request)
    elif message.request > holder.request:
        _grant(turn, trainer, message)


def _grant(turn: Turn, trainer: Trainer, message: Acquire) -> None:
    state, config, key = turn.state, turn.state.config, trainer.key.incarnation
    dispatch, shards = state.dispatch, max(1, message.shards)
    batches = batches_to_grant(
        config,
        batch_size=dispatch.batch_size,
        samples_per_s=trainer.samples_per_s,
        left=len(dispatch.todo),
        rates=[one.samples_per_s for one in state.members.trainers.values()],
        shards=shards,
    )
    shards = min(shards, batches)
    dispatch, pieces = choose_positions(
        dispatch, state.failures, config, trainer, shards=shards, size=batches // shards * dispatch.batch_size
    )
    if not pieces:
        turn.change(dispatch=dispatch)
        if not dispatch.todo:
            _shorten_windows(turn)
        _wait(turn, trainer.key, message.request)
        return
    dispatch, leases = add_leases(
        dispatch,
        key,
        state.term,
        state.number,
        pieces,
        request=message.request,
        idle_deadline=_deadline(turn, trainer),
    )
    turn.change(dispatch=dispatch)
    _record_first_lease(turn, trainer)
    turn.send(trainer.key, Granted(request=message.request, leases=leases))


def _record_first_lease(turn: Turn, trainer: Trainer) -> None:
    """The trainer holds its first lease under this master."""
    if trainer.start_by is None:
        start_by = turn.after(turn.state.config.lease_first_ns)
        turn.change(members=put_trainer(turn.state.members, replace(trainer, start_by=start_by)))


def _shorten_windows(turn: Turn) -> None:
    """A trainer could do the work of those whose streams are broken: they are lost after the short window."""
    config = turn.state.config
    latest = turn.after(config.reconnect_window_ns - config.short_window_ns)
    for trainer in tuple(turn.state.members.trainers.values()):
        if (
            trainer.window_ends is not None
            and trainer.window_ends <= latest
            and leased_by(turn.state.dispatch, trainer.key)
        ):
            lose_trainer(turn, trainer, "its stream broke, and another trainer waits for its positions")


def _wait(turn: Turn, key: MemberKey, request: int) -> None:
    turn.send(key, Wait(request=request, retry_after_s=turn.state.config.wait_retry_ns / SECOND))


def _end(turn: Turn, trainer: Trainer, request: int) -> None:
    """End the job: one trainer with a hook saves the final model; if it dies, another does (rule 32).

    Whoever asks, and was not refused, trains the same: one that knew it before it registered declares nothing.
    """
    if trainer.refusal:
        return
    turn.change(is_end_inherited=False)
    state = turn.state
    saver = state.final_saver and state.members.try_trainer(state.final_saver)
    if trainer.has_final_hook and not state.is_final_saved and saver in (None, trainer):
        if state.stage is not RecoveryStage.SERVING:
            _wait(turn, trainer.key, request)
            return
        turn.change(final_saver=trainer.key)
        turn.send(trainer.key, Ended(request=request, final_saver=True))
    else:
        turn.send(trainer.key, Ended(request=request))


def handle_final_saved(turn: Turn, trainer: Trainer, message: FinalSaved) -> None:  # noqa: ARG001  one signature for all
    """The final model is saved, also by a saver of an earlier master; the hook runs at least once."""
    if turn.state.is_complete:
        turn.change(is_final_saved=True)


def handle_ack(turn: Turn, trainer: Trainer, message: Ack) -> None:
    """Progress, and the proof that these positions can be trained (rules 12, 15; M4)."""
    state = turn.state
    if message.token.incarnation != trainer.key.incarnation:
        return
    dispatch, taken = ack_positions(state.dispatch, message.token, message.positions, deadline=_deadline(turn, trainer))
    if not taken:
        return
    turn.change(dispatch=dispatch)
    if not trainer.has_worked:
        turn.change(members=put_trainer(state.members, replace(trainer, has_worked=True)))
    if not state.failures.is_clear:
        turn.change(failures=clear_positions(state.failures, taken))


def handle_return(turn: Turn, trainer: Trainer, message: Return) -> None:
    """The positions go to the front (rule 13)."""
    if message.token.incarnation == trainer.key.incarnation:
        turn.change(dispatch=return_positions(turn.state.dispatch, message.token, message.positions))


def handle_progress(turn: Turn, trainer: Trainer, message: Progress) -> None:
    """Steps that grew renew the leases; before the first step a message alone does so for a while (M2)."""
    moved = message.steps > trainer.steps
    trainer = replace(
        trainer,
        steps=max(trainer.steps, message.steps),
        samples_per_s=message.samples_per_s if MIN_RATE < message.samples_per_s < MAX_RATE else trainer.samples_per_s,
        metrics=FrozenMap(message.metrics),
        waiting_share=min(1.0, message.waiting_share) if message.waiting_share > 0.0 else 0.0,  # NaN counts as 0
        is_computing=message.is_computing,
        is_waiting=message.is_waiting,
    )
    turn.change(members=put_trainer(turn.state.members, trainer))
    is_starting = not trainer.samples_per_s and trainer.start_by is not None and turn.now < trainer.start_by
    if moved or is_starting:
        turn.change(dispatch=renew_leases(turn.state.dispatch, trainer.key.incarnation, _deadline(turn, trainer)))


def _deadline(turn: Turn, trainer: Trainer) -> Instant:
    """The instant until which the trainer may go without progress: a floor, or some expected batch times."""
    config, rate = turn.state.config, trainer.samples_per_s
    expected_ns = int(config.lease_factor * turn.state.dispatch.batch_size / rate * SECOND) if rate > 0 else 0
    return turn.after(max(config.lease_floor_ns, expected_ns))
