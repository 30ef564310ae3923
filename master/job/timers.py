"""Pending deadlines: a function of the state, so none is forgotten when the state changes.

The shell sleeps until the earliest and feeds its event back.  An event that comes early or late is the same decision
taken early or late; a stale one does nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from master.job.domain.durable_records import Instant
from master.job.domain.job_events import (
    AnswersOverdue,
    CommitDue,
    CutExpired,
    Deadline,
    HoldExpired,
    LeaseExpired,
    MovesExpired,
    MovesRetryDue,
    OwnersWaitEnded,
    ReclaimWindowEnded,
    ReconnectWindowEnded,
)
from master.job.moves import move_timeouts
from master.job.servers import disconnect_grace
from master.job.state.job_state import MasterState
from master.job.state.protocol_state import CommitPhase, RecoveryStage


def deadlines(state: MasterState) -> tuple[tuple[Instant, Deadline], ...]:
    """(instant, event) of each pending deadline, in no order; none once the term is over."""
    return () if state.is_over else (*_of_members(state), *_of_commit(state), *_of_recovery(state))


def _of_members(state: MasterState) -> Iterator[tuple[Instant, Deadline]]:
    holders = state.dispatch.holders
    for trainer in state.members.trainers.values():
        holder = holders.get(trainer.key.incarnation)
        if holder and holder.leases:
            at = holder.progress_deadline
            yield at, LeaseExpired(trainer=trainer.key, deadline=at)
        if trainer.window_ends is not None:
            yield trainer.window_ends, ReconnectWindowEnded(member=trainer.key, deadline=trainer.window_ends)
    for server in state.members.servers.values():
        if (ends := disconnect_grace.ends_at(state, server)) is not None:
            yield ends, ReconnectWindowEnded(member=server.key, deadline=ends)


def _of_commit(state: MasterState) -> Iterator[tuple[Instant, Deadline]]:
    commit = state.commit
    is_waiting = commit.phase is CommitPhase.IDLE and state.stage is RecoveryStage.SERVING and state.dataset is not None
    if is_waiting and commit.due is not None and not state.is_complete:
        yield commit.due, CommitDue(deadline=commit.due)
    if commit.cut and commit.expires is not None and commit.phase is CommitPhase.HOLDING:
        yield commit.expires, HoldExpired(cut=commit.cut)
    if commit.cut and commit.expires is not None and commit.phase is CommitPhase.WRITING:
        yield commit.expires, CutExpired(cut=commit.cut)


def _of_recovery(state: MasterState) -> Iterator[tuple[Instant, Deadline]]:
    if state.reclaim_ends is not None:
        yield state.reclaim_ends, ReclaimWindowEnded(deadline=state.reclaim_ends)
    if state.recovery.owners_wait_ends is not None:
        yield state.recovery.owners_wait_ends, OwnersWaitEnded(deadline=state.recovery.owners_wait_ends)
    if (ends := move_timeouts.expires_at(state)) is not None:
        yield ends, MovesExpired(deadline=ends)
    if state.moves.retry_at is not None:
        yield state.moves.retry_at, MovesRetryDue(deadline=state.moves.retry_at)
    resend_at = {state.recovery.resend_at, state.skip.resend_at if state.skip and not state.writing else None}
    resend_at.add(state.moves.resend_at)
    for at in resend_at:
        if at is not None:
            yield at, AnswersOverdue(deadline=at)
