"""Poison records: found by halving what lost members had in flight, and left out after some failures (rule 94, M4).

Which step was in flight is known from the survivors: a step needs all members, so it is the one after the least that
a survivor has done, or the next one (rule 69).  Each loss counts against what the lost member had in hand of it, so
what failed most often shrinks to the record that is to blame.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from master.api.group_shares import data_of, shares, step_of, step_positions, takers_wait, total_steps
from master.api.messages.from_members import Failed
from master.api.messages.generations import Generation, StateId
from master.api.positions import EMPTY, PositionSet
from master.group.group_state import GroupState, GroupTurn, Replica
from master.job.domain.durable_records import SECOND, Instant, MemberKey, RecordQuarantine
from master.job.domain.job_events import BackoffLimitSet
from master.job.state.trainer_failures import FailureNote, clear_positions, count_failure, describe_limit

PARTNER_NS: Final = 60 * SECOND


def handle_failed(turn: GroupTurn, replica: Replica, failure: Failed) -> None:
    """The script raised: counted once per process; failures in a row end the job (M4).

    One that was refused beside trainers that train has not failed at anything of theirs.
    """
    state = turn.state
    if any(one.member == replica.key for one in state.refused):
        return
    own = [replica.state] if replica.state else []  # told just before: what others have done may be old
    in_flight = failure.positions & _blamed(state, _share_of(state, replica.key, own))
    _count(turn, replica.key, in_flight, failure.message, has_raised=True, has_worked=replica.has_worked)
    failures, limit = turn.state.failures, state.config.backoff_limit
    if state.failed:
        return
    if replica.refusal and not (state.dataset or state.pending_declaration):
        turn.change(failed=f"the declaration of {replica.key.name} is refused: {replica.refusal}")
    elif failures.in_a_row >= max(1, limit):
        turn.change(failed=describe_limit(failures, limit, "step"))


def handle_backoff_limit(turn: GroupTurn, event: BackoffLimitSet) -> None:
    """The operator polls with the limit of the job's spec, so an edit reaches a running master."""
    turn.change(config=replace(turn.state.config, backoff_limit=event.limit))


def share_in_flight(state: GroupState, key: MemberKey) -> PositionSet:
    """Positions that this member may have had in hand, by what the others have done; nothing after the last step."""
    _, ranks = _training(state)
    heard = [one.state for other in ranks if other != key and (one := state.try_replica(other)) and not one.is_lost]
    known = [own for own in heard if own is not None and own.lineage == state.number]
    own = state.try_replica(key)
    if not known and own and own.state:
        known = [own.state]
    if any(one.is_stopped for one in known):
        return EMPTY
    return _share_of(state, key, known)


def _share_of(state: GroupState, key: MemberKey, done: Iterable[StateId]) -> PositionSet:
    """The member's part of the steps that follow these states; nothing for one that does not train."""
    (record, ranks), dataset = _training(state), state.dataset.dataset if state.dataset else None
    share = EMPTY
    if record is None or dataset is None or key not in ranks:
        return share
    for step, is_first in {(one.step, one.generation != record.number) for one in done}:
        if step < total_steps(dataset):
            waits = is_first and takers_wait(dataset, step)
            parts = shares(record, step_positions(dataset, step), is_first=waits)
            share |= parts[ranks.index(key)]
    return share


def _training(state: GroupState) -> tuple[Generation | None, tuple[MemberKey, ...]]:
    """The generation that trains, with its ranks: until the sync of a plan the one that it is planned from."""
    before = state.before
    return (state.current, state.roster.current) if before is None else (before, state.roster.before)


def to_try(state: GroupState) -> PositionSet:
    """Suspects that one rank tries alone in the next generation: half of the worst, after each loss the other half.

    A single one has company of its step, for batch normalisation has no variance of one record.
    """
    quarantine = state.lineage.quarantine if state.lineage else EMPTY
    worst = state.failures.worst - quarantine
    half = worst.first((len(worst) + 1) // 2)
    tried = half if len(worst) == 1 or len(state.failures.counted) % 2 else worst - half
    if len(tried) != 1 or state.dataset is None:
        return tried
    step = step_positions(state.dataset.dataset, step_of(state.dataset.dataset, tried.bounds[0]))
    return tried | (step - worst - quarantine).first(1)


def trial_rank(replicas: Sequence[Replica], number: int) -> int:
    """Rank that tries them: a process that has not trained yet, so no work is lost with it, or each in turn."""
    fresh = [rank for rank, one in enumerate(replicas) if not one.has_worked]
    return fresh[0] if fresh else number % len(replicas)


def awaits_partner(state: GroupState, pool: Sequence[Replica]) -> bool:
    """True if a sole survivor had better wait, till `partner_until`: what failed twice would fail with it again."""
    return len(pool) == 1 and state.widest > 1 and len(state.failures.layers) > 1


def partner_until(state: GroupState) -> Instant:
    """Instant until which a sole survivor waits for another trainer."""
    return Instant(state.broken_at + PARTNER_NS)


def _blamed(state: GroupState, share: PositionSet) -> PositionSet:
    """Positions against which a failure with this share counts: of the rank that tries suspects these alone."""
    record, _ = _training(state)
    is_trial = record is not None and bool(share) and share <= record.suspects
    return share & state.failures.suspects if is_trial else share


def judge_losses(turn: GroupTurn) -> None:
    """The shares of lost members are counted against; those that failed too often are recorded as skipped (94)."""
    state = turn.state
    for key, has_worked in state.counted:
        if share := _blamed(state, share_in_flight(state, key)):
            _count(turn, key, share, "it was lost in the middle of a step", has_raised=False, has_worked=has_worked)
    turn.change(counted=())
    quarantine(turn)


def quarantine(turn: GroupTurn) -> None:
    """Positions with enough failures are left out from the next record on, once that is durable."""
    state = turn.state
    bad = _condemned(state)
    if not bad or state.lineage is None or state.writing:
        return
    turn.change(failures=clear_positions(state.failures, bad))
    new = replace(state.lineage, quarantine=state.lineage.quarantine | bad)
    if new != state.lineage:
        turn.write(RecordQuarantine(old=state.lineage, new=new))


def _condemned(state: GroupState) -> PositionSet:
    """The worst, once it is a single record, or can be narrowed no more: a trainer alone has nobody to share with."""
    failures, limit = state.failures, state.config.quarantine_after
    if not failures.to_quarantine(limit) or state.dataset is None:
        return EMPTY
    halvings = state.dataset.dataset.batch_size.bit_length()
    is_narrow = len(failures.worst) == 1 or state.widest < 2 or len(failures.layers) >= limit + halvings
    return failures.worst if is_narrow else EMPTY


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
