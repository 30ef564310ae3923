"""The status of a group's job as people and the cluster side see it (`api.master_status`)."""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite
from typing import Final

from master.api.group_shares import data_of
from master.api.identities import MemberRole
from master.api.master_status import (
    EpochStatus,
    FailureStatus,
    JobPhase,
    JobStatus,
    MemberStatus,
    PositionCounts,
    RefusalStatus,
)
from master.api.messages.generations import GroupPhase
from master.api.positions import EMPTY, PositionSet
from master.group import membership
from master.group.ending import owes_final_save
from master.group.group_state import CopyPhase, GroupState
from master.group.membership import in_rank_order
from master.job.domain.durable_records import SECOND, Instant

TOLD_AFTER_S: Final = 10.0
"""A trainer that is left behind is told of then: one that begins, or whose step was slow, has come by that time."""
MOST_NAMED: Final = 5  # trainers that one text names
_IN_OWN_CODE: Final = "is in its script's own code, and has not asked for a step since"
_SILENT: Final = "says nothing, as a process that is stopped"
_NOBODY: Final = "No other trainer is there: nothing is trained until one is"


def status(state: GroupState, now: Instant) -> JobStatus:
    """The status as of `now`: positions from head and from the newest step that a member has reported."""
    dataset = state.dataset.dataset if state.dataset else None
    everything = dataset.everything if dataset else EMPTY
    head = state.named
    committed = head.data if head else EMPTY
    skipped = (state.lineage.quarantine if state.lineage else EMPTY) | (head.quarantine if head else EMPTY)
    quarantined = (skipped - committed) & everything
    done = (data_of(dataset, state.newest) if dataset else EMPTY) - committed - quarantined
    committed_at = state.pace.committed_at
    failures, compared = state.failures, state.comparison.newest
    return JobStatus(
        phase=_phase(state),
        problem=state.failed,
        checkpoint_problem=state.pace.problem,
        store_problem="",  # added by the shell (`term_runtime`)
        moves_problem="",
        term=state.term,
        lineage=state.number,
        head=head.id if head else None,
        checkpoint_age_s=None if head is None or committed_at is None else _age_s(committed_at, now),
        epochs=dataset.epochs if dataset else 0,
        epoch_size=dataset.size if dataset else 0,
        positions=PositionCounts(
            total=len(everything),
            todo=len(everything) - len(committed) - len(done) - len(quarantined),
            leased=0,
            done=len(done),
            skipping=0,
            committed=len(committed),
            quarantined=len(quarantined),
        ),
        per_epoch=tuple(_epochs(state, done, quarantined)),
        epochs_committed=_whole_epochs(state, quarantined),
        quarantine=quarantined,
        reworked=0,
        members=tuple(_members(state)),
        servers=0,
        servers_wanted=0,
        servers_max=0,
        moving=0,
        waiting_to_move=0,
        copies=1,
        single_copies=0,
        failures=tuple(
            FailureStatus(
                member=note.member.name, age_s=_age_s(note.at, now), positions=note.positions, message=note.message
            )
            for note in failures.notes
        ),
        failures_in_a_row=failures.in_a_row,
        generation=state.current.number if state.current else 0,
        group_step=max(state.newest, state.head_state.state.step),  # a checkpoint is heard of before its report
        group_steps=state.steps,
        data_problem=state.data_problem,
        compared_step=compared.state.step if compared else 0,
        compared_by=compared.members if compared else 0,
        compared_digest=compared.digest if compared else "",
        compared_request=state.comparison.answered,
        trainers_problem=_left_behind(state, now),
        refusals=tuple(
            RefusalStatus(
                member=one.member.name,
                process=one.member.incarnation,
                age_s=_age_s(one.at, now),
                message=one.message,
            )
            for one in state.refused
        ),
        stopped_at=state.head_state.state.step if state.head_state.state.is_stopped else None,
        resize_pause_s=max((one.pause_s for one in state.members.values()), default=0.0),
        has_heard_trainers=bool(state.members or state.retired),
    )


def _phase(state: GroupState) -> JobPhase:
    if state.failed:
        return JobPhase.FAILED
    if state.record is None and not state.is_declared:
        return JobPhase.STARTING  # the checkpoint that it begins with may hold all steps, and its script want more (98)
    if state.may_end:
        return JobPhase.SAVING if owes_final_save(state) else JobPhase.COMPLETE
    if state.dataset is None or state.record is None:
        return JobPhase.STARTING
    return JobPhase.TRAINING if state.commit.phase is CopyPhase.IDLE else JobPhase.COMMITTING


def _whole_epochs(state: GroupState, quarantined: PositionSet) -> int:
    if not state.dataset or not state.named:
        return 0
    settled = (state.named.data | quarantined).bounds
    return settled[1] // state.dataset.dataset.size if settled[:1] == (0,) else 0


def _epochs(state: GroupState, done: PositionSet, quarantined: PositionSet) -> Iterator[EpochStatus]:
    if not state.dataset:
        return
    size, committed = state.dataset.dataset.size, state.named.data if state.named else EMPTY
    reached = max([0, *done.bounds[-1:], *committed.bounds[-1:]])
    first = _whole_epochs(state, quarantined)
    for epoch in range(first, -(-reached // size)):
        span = PositionSet.span(epoch * size, (epoch + 1) * size)
        yield EpochStatus(
            epoch=epoch,
            committed=len(committed & span),
            done=len(done & span),
            quarantined=len(quarantined & span),
        )


def _members(state: GroupState) -> Iterator[MemberStatus]:
    for one in in_rank_order(tuple(state.members.values())):
        yield MemberStatus(
            name=one.key.name,
            role=MemberRole.TRAINER,
            ordinal=one.ordinal,
            is_connected=one.is_connected,
            is_serving=not one.is_lost,
            leased=0,
            steps=one.steps_begun,
            samples_per_s=0.0 if one.is_lost else one.samples_per_s,
            metrics={name: value for name, value in one.metrics.items() if isfinite(value)},
            waiting_share=one.waiting_share,
            group_phase=str(one.phase),
        )


def _left_behind(state: GroupState, now: Instant) -> str:
    """Text on members that the others train on without; in whole minutes, so that it seldom changes."""
    left = membership.left_behind(state)
    behind = [one for one in left if _age_s(one.moved_at, now) >= TOLD_AFTER_S]
    if not behind or state.failed or state.is_complete:
        return ""
    told = [
        f"{one.key.name} {_IN_OWN_CODE if one.phase is GroupPhase.UNREADY else _SILENT}" for one in behind[:MOST_NAMED]
    ]
    if len(behind) > MOST_NAMED:
        told.append(f"and {len(behind) - MOST_NAMED} more")
    absent = {one.key for one in left}
    if all(one.key in absent for one in state.members.values() if one.is_connected):
        return f"{'; '.join(told)}. {_NOBODY}"
    minutes = int(max(_age_s(one.moved_at, now) for one in behind) // 60)
    since = f"for {minutes} min" if minutes else "for less than a minute"
    return f"{'; '.join(told)}. The others have trained on without {'it' if len(behind) == 1 else 'them'} {since}"


def _age_s(then: Instant, now: Instant) -> float:
    return max(0.0, (now - then) / SECOND)
