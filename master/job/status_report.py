"""The job's status as people and the cluster side see it (`api.master_status`)."""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite
from typing import Final

from master.api.identities import MemberRole
from master.api.master_status import EpochStatus, FailureStatus, JobPhase, JobStatus, MemberStatus, PositionCounts
from master.api.positions import PositionSet
from master.job.domain.durable_records import SECOND, Instant
from master.job.moves import move_timeouts
from master.job.state.bucket_table import owned, single_copies
from master.job.state.job_state import MasterState
from master.job.state.members import Server
from master.job.state.protocol_state import CommitPhase, RecoveryStage

EPOCHS_SHOWN: Final = 16

_BEFORE_SERVING: Final = {
    RecoveryStage.ADOPTING: JobPhase.STARTING,
    RecoveryStage.GATHERING: JobPhase.WAITING_FOR_SERVERS,
    RecoveryStage.READING_MARKS: JobPhase.RESTORING,
    RecoveryStage.RAISING: JobPhase.RESTORING,
    RecoveryStage.RESTORING: JobPhase.RESTORING,
}


def status(state: MasterState, now: Instant) -> JobStatus:
    """The status as of `now`.  It is cheap enough for one call a second, not for one a message."""
    dispatch, head = state.dispatch, state.head
    committed_at = state.commit.committed_at
    return JobStatus(
        phase=_phase(state),
        problem=state.failed or state.recovery.problem,
        checkpoint_problem=state.commit.problem,
        store_problem="",  # added by the shell (`term_runtime`)
        moves_problem=move_timeouts.problem(state),
        term=state.term,
        lineage=state.number,
        head=state.head_id,
        checkpoint_age_s=None if head is None or committed_at is None else _age_s(committed_at, now),
        epochs=state.dataset.dataset.epochs if state.dataset else 0,
        epoch_size=state.dataset.dataset.size if state.dataset else 0,
        positions=PositionCounts(
            total=len(dispatch.everything),
            todo=len(dispatch.todo),
            leased=len(dispatch.leased),
            done=len(dispatch.done),
            skipping=len(dispatch.skipping),
            committed=len(dispatch.committed),
            quarantined=len(dispatch.quarantined),
        ),
        per_epoch=tuple(_epochs(state)),
        epochs_committed=_whole_epochs(state),
        quarantine=dispatch.quarantined,
        reworked=dispatch.reworked,
        members=tuple(_members(state)),
        servers=sum(1 for one in state.members.servers.values() if _is_ready(state, one)),
        servers_wanted=state.scale.target,
        servers_max=state.config.most_servers,
        moving=len(state.moves.intents),
        waiting_to_move=len(state.moves.waiting),
        copies=state.config.copies,
        single_copies=single_copies(state.table) if state.table else 0,
        failures=tuple(
            FailureStatus(
                member=note.member.name, age_s=_age_s(note.at, now), positions=note.positions, message=note.message
            )
            for note in state.failures.notes
        ),
        failures_in_a_row=state.failures.in_a_row,
        is_model_kept=state.is_model_kept,
        has_heard_trainers=bool(state.members.trainers or state.members.retired),
    )


def _phase(state: MasterState) -> JobPhase:
    if state.failed:
        return JobPhase.FAILED
    if state.is_complete and not state.is_end_inherited:
        return JobPhase.SAVING if _may_be_saving(state) else JobPhase.COMPLETE
    if state.stage is not RecoveryStage.SERVING:
        return _BEFORE_SERVING[state.stage]
    if state.dataset is None or state.is_end_inherited:
        return JobPhase.STARTING  # all is trained, and the script may want more, which is refused
    return JobPhase.TRAINING if state.commit.phase is CommitPhase.IDLE else JobPhase.COMMITTING


def _may_be_saving(state: MasterState) -> bool:
    """True while a final save is owed or an earlier master's saver may return: COMPLETE would end its pod."""
    has_hook = any(trainer.has_final_hook for trainer in state.members.trainers.values())
    is_owed = has_hook or state.final_saver is not None or state.reclaim_ends is not None
    return is_owed and not state.is_final_saved


def _whole_epochs(state: MasterState) -> int:
    if not state.dataset:
        return 0
    settled = (state.dispatch.committed | state.dispatch.quarantined).bounds
    return settled[1] // state.dataset.dataset.size if settled[:1] == (0,) else 0


def _epochs(state: MasterState) -> Iterator[EpochStatus]:
    if not state.dataset:
        return
    dispatch, size = state.dispatch, state.dataset.dataset.size
    first = _whole_epochs(state)
    reached = max([0, *dispatch.done.bounds[-1:], *dispatch.committed.bounds[-1:], dispatch.frontier])
    for epoch in range(first, min(-(-reached // size), first + EPOCHS_SHOWN)):
        span = PositionSet.span(epoch * size, (epoch + 1) * size)
        yield EpochStatus(
            epoch=epoch,
            committed=len(dispatch.committed & span),
            done=len(dispatch.done & span),
            quarantined=len(dispatch.quarantined & span),
        )


def _members(state: MasterState) -> Iterator[MemberStatus]:
    for trainer in sorted(state.members.trainers.values(), key=lambda one: (one.ordinal, one.key.name)):
        holder = state.dispatch.holders.get(trainer.key.incarnation)
        yield MemberStatus(
            name=trainer.key.name,
            role=MemberRole.TRAINER,
            ordinal=trainer.ordinal,
            is_connected=trainer.is_connected,
            is_serving=trainer.is_registered,
            leased=sum(len(lease.positions) for lease in holder.leases) if holder else 0,
            steps=trainer.steps,
            samples_per_s=trainer.samples_per_s,
            metrics={name: value for name, value in trainer.metrics.items() if isfinite(value)},
            waiting_share=trainer.waiting_share,
            is_computing=trainer.is_computing,
            is_waiting=trainer.is_waiting,
        )
    for ordinal, server in sorted(state.members.servers.items()):
        yield MemberStatus(
            name=server.key.name,
            role=MemberRole.SERVER,
            ordinal=ordinal,
            is_connected=server.is_connected,
            is_serving=_is_ready(state, server),
            leased=0,
            steps=0,
            samples_per_s=0.0,
            metrics={},
            buckets=len(owned(state.route, server.key.incarnation)) if state.route else 0,
            took_over=state.promotions.get(ordinal) or 0,
        )


def _is_ready(state: MasterState, server: Server) -> bool:
    return state.stage is RecoveryStage.SERVING and server.is_connected and server.lineage == state.number


def _age_s(then: Instant, now: Instant) -> float:
    return max(0.0, (now - then) / SECOND)
