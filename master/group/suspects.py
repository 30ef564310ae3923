"""Poison records: what a lost member had in flight comes back alone, and is left out after some failures (M4).

Which step was in flight is known from the survivors: a step needs all members, so it is the one after the least that
a survivor has done, or the next one (rule 69).
"""

from __future__ import annotations

from dataclasses import replace

from master.api.group_shares import data_of, shares, step_positions, total_steps
from master.api.messages.from_members import Failed
from master.api.positions import EMPTY, PositionSet
from master.group.group_state import GroupState, GroupTurn, Replica
from master.job.domain.durable_records import MemberKey, RecordQuarantine
from master.job.domain.job_events import BackoffLimitSet
from master.job.state.trainer_failures import FailureNote, clear_positions, count_failure


def handle_failed(turn: GroupTurn, replica: Replica, failure: Failed) -> None:
    """The script raised: counted once per process; failures in a row end the job (M4)."""
    state = turn.state
    in_flight = failure.positions & share_in_flight(state, replica.key)
    _count(turn, replica.key, in_flight, failure.message, has_raised=True, has_worked=replica.has_worked)
    failures, limit = turn.state.failures, state.config.backoff_limit
    if state.failed:
        return
    if replica.refusal and not (state.dataset or state.pending_declaration):
        turn.change(failed=f"the declaration of {replica.key.name} is refused: {replica.refusal}")
    elif failures.in_a_row >= max(1, limit):
        reason = f"{failures.in_a_row} failures in a row without one step completed (backoffLimit {limit}); the last, "
        turn.change(failed=f"{reason}of {replica.key.name}: {failure.message}")


def handle_backoff_limit(turn: GroupTurn, event: BackoffLimitSet) -> None:
    """The operator polls with the limit of the job's spec, so an edit reaches a running master."""
    turn.change(config=replace(turn.state.config, backoff_limit=event.limit))


def share_in_flight(state: GroupState, key: MemberKey) -> PositionSet:
    """What this member of the record may have had in hand, by what the others have done; nothing for others."""
    current, dataset = state.current, state.dataset.dataset if state.dataset else None
    ranks = state.roster.current
    if current is None or dataset is None or key not in state.roster.listed:
        return EMPTY
    heard = [one.state for other in ranks if other != key and (one := state.try_replica(other)) and not one.is_lost]
    steps = {own.step for own in heard if own is not None and own.lineage == state.number}
    own = state.try_replica(key)
    if not steps and own and own.state:
        steps = {own.state.step}
    share = EMPTY
    for step in steps:
        if step < total_steps(dataset):
            share |= shares(current, step_positions(dataset, step))[ranks.index(key)]
    return share


def judge_losses(turn: GroupTurn) -> None:
    """The shares of lost members are counted against; those that failed too often are recorded as skipped (94)."""
    state = turn.state
    for key, has_worked in state.counted:
        if share := share_in_flight(state, key):
            _count(turn, key, share, "it was lost in the middle of a step", has_raised=False, has_worked=has_worked)
    turn.change(counted=())
    quarantine(turn)


def quarantine(turn: GroupTurn) -> None:
    """Positions with enough failures are left out from the next record on, once that is durable."""
    state = turn.state
    bad = state.failures.to_quarantine(state.config.quarantine_after)
    if not bad or state.lineage is None or state.writing:
        return
    turn.change(failures=clear_positions(state.failures, bad))
    new = replace(state.lineage, quarantine=state.lineage.quarantine | bad)
    if new != state.lineage:
        turn.write(RecordQuarantine(old=state.lineage, new=new))


def _count(
    turn: GroupTurn, key: MemberKey, positions: PositionSet, message: str, *, has_raised: bool, has_worked: bool
) -> None:
    failures = turn.state.failures
    is_evidence = has_worked or (bool(positions) and positions <= failures.suspects)
    note = FailureNote(member=key, at=turn.now, positions=positions, message=message)
    turn.change(failures=count_failure(failures, note, has_raised=has_raised, is_evidence=is_evidence))


def handle_steps_done(turn: GroupTurn, step: int) -> None:
    """Steps that were completed clear their positions: they can be trained."""
    state = turn.state
    if not state.failures.is_clear and state.dataset and step:
        turn.change(failures=clear_positions(state.failures, data_of(state.dataset.dataset, step)))
