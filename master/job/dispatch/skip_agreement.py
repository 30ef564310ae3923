"""Agreement on a skip: positions are quarantined once every bucket has confirmed never to apply them (rule 31).

All buckets skipped: the quarantine is recorded durably.  All had applied them: nothing is left out.  Mixed: the job
rolls back to head, with the quarantine in the same transaction.  A skip and a commit never overlap, so no cut is
torn.

Not here: which positions (`state.trainer_failures`), the roll-back itself (`recovery.rollback`).
"""

from __future__ import annotations

from dataclasses import replace

from master.api.messages.from_members import SkipAnswer
from master.api.messages.to_members import Skip
from master.api.positions import PositionSet
from master.job.domain.durable_records import BucketTable, RecordQuarantine
from master.job.state.bucket_table import all_backed, backed, changed, owned
from master.job.state.dispatch_state import add_quarantine, begin_skip, end_skip
from master.job.state.job_state import Turn
from master.job.state.members import Server
from master.job.state.protocol_state import CommitPhase, RecoveryStage, SkipState
from master.job.state.trainer_failures import clear_positions


def advance(turn: Turn) -> None:
    """Begins to skip positions that have failed too often (M4)."""
    state = turn.state
    to_quarantine = state.failures.to_quarantine(state.config.quarantine_after)
    if not to_quarantine or state.skip or state.writing or state.stage is not RecoveryStage.SERVING:
        return
    to_quarantine &= state.dispatch.todo
    if to_quarantine and state.commit.phase is CommitPhase.IDLE:
        turn.change(dispatch=begin_skip(state.dispatch, to_quarantine))
        begin_skip_round(turn, to_quarantine)


def finish_skip(turn: Turn, skipped: PositionSet) -> bool:
    """Completes a skip that another master began and some bucket has confirmed (rule 31).

    False: all of these positions are quarantined already.
    """
    dispatch = begin_skip(turn.state.dispatch, skipped)
    if dispatch.skipping:
        turn.change(dispatch=dispatch)
        begin_skip_round(turn, dispatch.skipping)
    return bool(dispatch.skipping)


def begin_skip_round(turn: Turn, positions: PositionSet) -> None:
    """Sends SKIP to every server; the positions are SKIPPING already."""
    turn.change(skip=SkipState(positions=positions, resend_at=turn.after(turn.state.config.answer_timeout_ns)))
    for server in turn.state.members.servers.values():
        resend_skip(turn, server)
    if not turn.state.config.servers:
        _record(turn)


def resend_skip(turn: Turn, server: Server) -> None:
    """SKIP to a server with a bucket for which no server has answered (rule 60).

    A backup is asked after the owner has answered: an owner must not apply what its backup skips (rule 61).
    """
    state, now = turn.state, turn.state.table
    if not state.skip or now is None:
        return
    if owned(now.route, server.key.incarnation) - state.skip.answered:
        turn.send(server.key, Skip(lineage=state.number, positions=state.skip.positions))
    if (backed(now, server.key.incarnation) & state.skip.answered) - state.skip.backups:
        turn.send(server.key, Skip(lineage=state.number, positions=state.skip.positions, of_backups=True))


def handle_answer(turn: Turn, server: Server, answer: SkipAnswer) -> bool:
    """Decides once every bucket has answered.  True: buckets disagree, and only a roll-back makes them agree."""
    state = turn.state
    now = state.table
    if not state.skip or state.writing or now is None:
        return False
    if answer.lineage != state.number or answer.positions != state.skip.positions:
        return False
    skip = _with_answer(state.skip, answer, now, server)
    turn.change(skip=skip)
    for backup in turn.state.members.servers.values() if now.backups else ():
        resend_skip(turn, backup)
    if len(skip.answered) < len(now.route.owner) or not all_backed(now) <= skip.backups:
        return False
    if not skip.applied:
        _record(turn)
    elif not skip.skipped:
        turn.change(
            skip=None,
            dispatch=end_skip(state.dispatch, quarantined=False),
            failures=clear_positions(state.failures, skip.positions),
        )
    else:
        turn.recover(quarantine=state.recovery.quarantine | skip.positions)
        return True
    return False


def _with_answer(skip: SkipState, answer: SkipAnswer, now: BucketTable, server: Server) -> SkipState:
    """The skip with this answer.

    Any server may have answered for a bucket that has moved (rule 60); where there are two copies, only those that
    have them.
    """
    counts, backups = answer.skipped | answer.applied, skip.backups
    if answer.of_backups:
        counts &= backed(now, server.key.incarnation) & skip.answered
        backups |= counts
    elif now.backups:
        counts &= owned(now.route, server.key.incarnation)
    skipped, applied = skip.skipped | (answer.skipped & counts), skip.applied | (answer.applied & counts)
    return replace(skip, skipped=skipped, applied=applied, backups=backups)


def forget_answers(turn: Turn, old: BucketTable, new: BucketTable) -> None:
    """Drops the answers for buckets with a backup of which a version has ended: their new servers are asked (rule
    62).
    """
    skip = turn.state.skip
    if skip and old.backups and (ended := changed(old, new)):
        turn.change(
            skip=replace(skip, skipped=skip.skipped - ended, applied=skip.applied - ended, backups=skip.backups - ended)
        )


def _record(turn: Turn) -> None:
    state = turn.state
    assert state.lineage is not None
    assert state.skip is not None
    new = replace(state.lineage, quarantine=state.lineage.quarantine | state.skip.positions)
    turn.write(RecordQuarantine(old=state.lineage, new=new))


def handle_recorded(turn: Turn, write: RecordQuarantine) -> None:
    """The quarantine is durable: it stands in the status and in the next checkpoint (M4)."""
    dispatch = turn.state.dispatch
    if turn.state.skip:
        dispatch = end_skip(dispatch, quarantined=True)
    turn.change(
        lineage=write.new,
        skip=None,
        dispatch=add_quarantine(dispatch, write.new.quarantine),
        failures=clear_positions(turn.state.failures, write.new.quarantine),
    )
