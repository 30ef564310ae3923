"""Departure of trainers (failed, drained, lost, expired) and of their positions (rules 13, 18; M2, M4, M7).

Not here: their coming and their work (`trainer_handlers`), what failures lead to (`state.trainer_failures`).
"""

from __future__ import annotations

from dataclasses import replace

from master.api.messages.from_members import Failed
from master.api.messages.to_members import Fenced, RankChanged
from master.api.positions import EMPTY, PositionSet, union
from master.job.dispatch.high_water import remove_trainer
from master.job.domain.durable_records import MemberKey
from master.job.domain.job_events import BackoffLimitSet, LeaseExpired
from master.job.state.dispatch_state import DispatchState
from master.job.state.job_state import Turn
from master.job.state.lease_changes import drop_leases
from master.job.state.members import Trainer, drop_trainer, put_trainer, rank_changes
from master.job.state.trainer_failures import FailureNote, count_failure, describe_limit
from master.job.trainers.job_spec import has_no_declaration


def handle_failed(turn: Turn, trainer: Trainer, failure: Failed) -> None:
    """The script raised: counted once per process; failures in a row end the job (M4).

    The operator counts against the same limit (`autoscaler.jobs.lifecycle`); the first to reach it decides.
    The job ends at once where the script's declaration was refused: its next process would declare the same.
    """
    state = turn.state
    in_flight = failure.positions & leased_by(state.dispatch, trainer.key)
    _count(turn, trainer, in_flight, failure.message, has_raised=True)
    failures, limit = turn.state.failures, state.config.backoff_limit
    if state.failed:
        return
    if trainer.refusal and has_no_declaration(state):
        turn.change(failed=f"the declaration of {trainer.key.name} is refused: {trainer.refusal}")
    elif failures.in_a_row >= max(1, limit):
        turn.change(failed=describe_limit(failures, limit, "batch"))


def handle_backoff_limit(turn: Turn, event: BackoffLimitSet) -> None:
    """The operator polls with the limit of the job's spec, so an edit reaches a running master."""
    turn.change(config=replace(turn.state.config, backoff_limit=event.limit))


def leased_by(dispatch: DispatchState, key: MemberKey) -> PositionSet:
    """All positions of the trainer's live leases."""
    holder = dispatch.holders.get(key.incarnation)
    return union(lease.positions for lease in holder.leases) if holder else EMPTY


def _count(turn: Turn, trainer: Trainer, positions: PositionSet, message: str, *, has_raised: bool) -> None:
    failures, dispatch = turn.state.failures, turn.state.dispatch
    failure = FailureNote(member=trainer.key, at=turn.now, positions=positions, message=message)
    is_evidence = trainer.has_worked or dispatch.todo <= failures.suspects  # or there was nothing else to begin with
    turn.change(failures=count_failure(failures, failure, has_raised=has_raised, is_evidence=is_evidence))


def handle_leave(turn: Turn, trainer: Trainer) -> None:
    """The trainer is drained: its positions return, and it is no member any more (rule 13)."""
    _remove_trainer(turn, trainer, retired=True)


def lose_trainer(turn: Turn, trainer: Trainer, why: str) -> None:
    """The trainer crashed: its leases return at once, and their positions are under suspicion (M4)."""
    in_flight = leased_by(turn.state.dispatch, trainer.key)
    if in_flight:
        _count(turn, trainer, in_flight, why, has_raised=False)
    _remove_trainer(turn, trainer, retired=False)


def handle_lease_expired(turn: Turn, event: LeaseExpired) -> None:
    """The trainer makes no progress: its leases return and it must register again (M2)."""
    trainer = turn.state.members.try_trainer(event.trainer)
    holder = turn.state.dispatch.holders.get(event.trainer.incarnation)
    if trainer and holder and holder.leases and holder.progress_deadline == event.deadline:
        _remove_trainer(turn, trainer, retired=False)
        turn.send(event.trainer, Fenced(reason="no progress for longer than the lease allows: register again"))


def _remove_trainer(turn: Turn, trainer: Trainer, *, retired: bool) -> None:
    dispatch, _ = drop_leases(turn.state.dispatch, trainer.key.incarnation)
    turn.change(members=drop_trainer(turn.state.members, trainer.key, retired=retired), dispatch=dispatch)
    remove_trainer(turn, trainer.key)
    send_ranks(turn)


def open_window(turn: Turn, trainer: Trainer) -> None:
    """The trainer's stream broke: it may come back with its leases until the window ends (rule 18)."""
    if trainer.is_connected:
        ends = turn.after(turn.state.config.reconnect_window_ns)
        turn.change(members=put_trainer(turn.state.members, replace(trainer, window_ends=ends)))
        shorten_for_cut(turn)


def shorten_for_cut(turn: Turn) -> None:
    """Shortens the windows of trainers for whose positions the open cut waits (rules 18, 20).

    A trainer that was killed in the middle of a push would hold the checkpoint up for the whole window.
    """
    dispatch, ends = turn.state.dispatch, turn.after(turn.state.config.short_window_ns)
    for trainer in turn.state.members.trainers.values() if dispatch.wanted_by_cut else ():
        if (
            trainer.window_ends is not None
            and trainer.window_ends > ends
            and dispatch.wanted_by_cut & leased_by(dispatch, trainer.key)
        ):
            turn.change(members=put_trainer(turn.state.members, replace(trainer, window_ends=ends)))


def send_ranks(turn: Turn) -> None:
    """RankChanged to trainers whose rank or world size has changed."""
    for trainer in rank_changes(turn.state.members):
        turn.change(members=put_trainer(turn.state.members, trainer))
        turn.send(trainer.key, RankChanged(rank=trainer.rank[0], world_size=trainer.rank[1]))
