"""Changes without a plan: BROKEN, the wait for reports, the next record (rules 73 to 76, 78, 91).

Everything is derived from the record and from what members report, so any later master does the same again.
"""

from __future__ import annotations

from math import ceil
from typing import Final

from master.api.messages.generations import (
    BrokenGeneration,
    Generation,
    GroupMember,
    GroupPhase,
    NewGeneration,
)
from master.api.messages.to_members import Refused, Released
from master.group import membership, suspects
from master.group.group_state import GroupState, GroupTurn, Replica, keys_of
from master.group.measured_shares import weights_of
from master.group.membership import candidates, concerned, in_rank_order, is_gone, is_lost
from master.job.domain.durable_records import GenerationRecord, Instant, MemberKey, RecordGeneration

_IN_NEXT_STEP: Final = (GroupPhase.COMPUTE, GroupPhase.WARM_UP, GroupPhase.REDUCE)
UNHEARD: Final = 1000
"""Generations that may have begun after the largest one that members tell of, where the record is lost (rule 64)."""

REFUSED_BEGUN_ANEW: Final = Refused(
    field="incarnation",
    message="the master lost its records and the job has begun again before this trainer was heard: start it anew",
)


def has_trouble(state: GroupState) -> bool:
    """True if the record must be replaced without a plan: a member is lost or has reported, or the lineage is new."""
    current, before = state.current, state.before
    if current is None:
        return False
    if current.lineage != state.number or any(_is_missed(state, key) for key in concerned(state)):
        return True
    if state.has_stopped and _has_passed_stop(state):
        return True
    roster = state.roster
    return _has_left(state, roster.current, current) or (before is not None and _has_left(state, roster.before, before))


def _has_passed_stop(state: GroupState) -> bool:
    """True if a member works on the step after one that another member has stopped at: it waits in vain (rule 97)."""
    here = [
        (one.generation, one.state, one.phase)
        for key in concerned(state)
        if (one := state.try_replica(key)) and one.state and not one.is_out
    ]
    stops = {(generation, own.step) for generation, own, _ in here if own.is_stopped}
    working = {
        (generation, own.step) for generation, own, phase in here if phase in _IN_NEXT_STEP and not own.is_stopped
    }
    return bool(stops & working)


def _is_missed(state: GroupState, key: MemberKey) -> bool:
    return is_lost(state, key) and not is_gone(state, key)


def _has_left(state: GroupState, keys: tuple[MemberKey, ...], generation: Generation) -> bool:
    """True if one of the generation's members, `keys`, says that it takes part in it no more."""
    replicas = (state.try_replica(key) for key in keys)
    return any(one.is_out and one.left >= generation.number for one in replicas if one)


def is_gathering(state: GroupState) -> bool:
    """True from BROKEN on, until the next record is durable."""
    return state.current is not None and state.broken >= state.current.number


def is_in_trouble(state: GroupState) -> bool:
    """True if the group is to be broken, and was not yet."""
    return state.current is not None and not is_gathering(state) and has_trouble(state)


def break_group(turn: GroupTurn) -> None:
    """BROKEN to all concerned, once for each record and master (rule 74)."""
    state = turn.state
    assert state.current is not None
    turn.change(broken=state.current.number, broken_at=turn.now)
    for key in concerned(state):
        if (replica := state.try_replica(key)) and not (replica.is_out and replica.left >= state.current.number):
            turn.send(key, BrokenGeneration(number=state.current.number))


def refute(turn: GroupTurn, replica: Replica) -> None:
    """BROKEN for a member whose report is awaited, or that is in no generation of the record (rules 74, 92).

    Who is out has not promised enough by that: the record may have been written since, and NEW have been lost.  A
    leaver is in the generation that the record is planned from until it has done the step of the switch, also once the
    others have left it.  A generation whose record is lost ends, whatever its number: no record will ever follow it.
    """
    state, current = turn.state, turn.state.current
    number = max(replica.generation, current.number if current else 0)
    if current is None or not is_gathering(state):
        is_refuted = not (replica.is_out or _is_in_record(state, replica))
        number = replica.generation if replica.key in state.roster.listed else number
    else:
        is_refuted = not replica.is_out or (replica.left < current.number and replica.key in concerned(state))
    if is_refuted:
        turn.send(replica.key, BrokenGeneration(number=number))


def _is_in_record(state: GroupState, replica: Replica) -> bool:
    """True for a member of the record, or of the one that it is planned from, that is in that generation."""
    current, roster = state.current, state.roster
    if current is None:
        return False
    keys = roster.current if replica.generation == current.number else roster.before
    return replica.generation in (current.number, current.planned_from) and replica.key in keys


def regroup(turn: GroupTurn) -> None:
    """The next record, once each member concerned has reported or is lost (rules 75, 76, 78).

    The first one, too, where the trainers of the beginning are gathered and none is in a generation of a lost record.
    """
    current, pool = turn.state.current, _ready_pool(turn.state)
    if not pool:
        return
    turn.change(gather_ends=None)
    if current is not None:
        suspects.judge_losses(turn)
        if turn.state.writing:  # a quarantine is recorded first, and the record names it
            return
        until = partner_awaited(turn.state)
        if until is not None and turn.now < until:
            return
    write_record(turn, pool, before=None)


def _ready_pool(state: GroupState) -> tuple[Replica, ...]:
    """Members that the next record would have; nobody while it cannot be written."""
    current = state.current
    if state.writing or state.lineage is None or state.dataset is None:
        return ()
    if current is None:
        is_ready = state.reclaim_ends is None or all(one.is_out for one in state.members.values())
    else:
        is_ready = is_gathering(state) and all(_is_settled(state, key, current) for key in concerned(state))
    return _pool(state) if is_ready else ()


def partner_awaited(state: GroupState) -> Instant | None:
    """Until then a sole survivor waits for another trainer, since something has failed twice; None: it does not."""
    if state.failed or state.is_complete:
        return None
    is_awaited = is_gathering(state) and suspects.awaits_partner(state, _ready_pool(state))
    return suspects.partner_until(state) if is_awaited else None


def _is_settled(state: GroupState, key: MemberKey, current: Generation) -> bool:
    replica = state.try_replica(key)
    if replica is not None and not replica.is_lost:
        return replica.is_out and replica.left >= current.number and replica.is_connected  # else its window settles it
    return is_lost(state, key) or is_gone(state, key)


def _pool(state: GroupState) -> tuple[Replica, ...]:
    """All that are out and alive; leavers only where their work would be lost without them (rule 83)."""
    out = candidates(state)
    stay = tuple(one for one in out if not one.is_leaving)
    held = max((_steps(state, one) for one in stay), default=-1)
    needed = [one for one in out if one.is_leaving and _steps(state, one) > held + 1]
    return in_rank_order((*stay, *needed))


def _steps(state: GroupState, replica: Replica) -> int:
    """Steps of its replica in this lineage; -1: it has nothing."""
    own = replica.state
    return own.step if own is not None and own.lineage == state.number else -1


def write_record(turn: GroupTurn, replicas: tuple[Replica, ...], *, before: Generation | None) -> None:
    """The record of these members is written; NEW follows once it is durable (rule 76)."""
    state = turn.state
    assert state.lineage is not None
    assert state.dataset is not None
    head = state.head_state
    number = 1 + max(_largest(state), head.state.generation)
    chosen = _within_batch(state, replicas, before)
    takers = _takers(state, chosen, before)
    members = tuple(
        GroupMember(
            name=one.key.name,
            incarnation=one.key.incarnation,
            address=one.address,
            share=weight,
            takes_state=one.key in takers,
        )
        for one, weight in zip(chosen, weights_of(state, chosen), strict=True)
    )
    doubtful = suspects.to_try(state)
    record = Generation(
        number=number,
        lineage=state.number,
        members=members,
        head=head,
        planned_from=before.number if before else 0,
        quarantine=state.lineage.quarantine,
        suspects=doubtful,
        suspect_rank=suspects.trial_rank(chosen, number) if doubtful else 0,
    )
    new = GenerationRecord(current=record, before=before)
    turn.write(RecordGeneration(old=state.record, new=new, head=state.head_id, lineage=state.lineage))


def _largest(state: GroupState) -> int:
    """The largest number that may have been used (rule 64): members tell of a lost record, and not of all of them."""
    known = state.current.number if state.current else 0
    heard = max(state.largest, *(max(one.left, one.generation) for one in state.members.values()))
    return heard + UNHEARD if heard > known else known


def _within_batch(state: GroupState, replicas: tuple[Replica, ...], before: Generation | None) -> tuple[Replica, ...]:
    """As many members as a step has records, in rank order.

    Members of `before` come first (rule 79), then those whose replicas have seen most: no work is lost for a joiner.
    """
    assert state.dataset is not None
    old = frozenset(keys_of(before))

    def order(one: Replica) -> tuple[bool, int, int]:
        own = one.state
        seen = (own.generation, own.step) if own is not None and own.lineage == state.number else (-1, -1)
        return one.key not in old, -seen[0], -seen[1]

    return in_rank_order(sorted(replicas, key=order)[: state.dataset.dataset.batch_size])


def _takers(state: GroupState, chosen: tuple[Replica, ...], before: Generation | None) -> frozenset[MemberKey]:
    """Members that are known to lack what another one holds; those of `before` move on while the record is written.

    None if too few would be left to compute: a share grows beyond what it was before only to twice the usual one, since
    a larger one may not fit into memory, and takes as long as several steps.
    """
    held = {one.key: one.state for one in chosen if one.state is not None and one.state.lineage == state.number}
    old, newest = frozenset(keys_of(before)), max(held.values(), default=None)
    if newest is None or newest < state.head_state.state:
        return frozenset()
    lacking = frozenset(one.key for one in chosen if one.key not in old and held.get(one.key) != newest)
    computed = len(state.current.members) if state.current else len(chosen)
    is_enough = len(chosen) - len(lacking) >= min(computed, ceil(len(chosen) / 2))
    return lacking if is_enough else frozenset()


def handle_recorded(turn: GroupTurn, write: RecordGeneration) -> None:
    """The record is durable: NEW to its members, PLAN to those of the generation that it is planned from (rule 76)."""
    record, before = write.new.current, write.new.before
    is_planned = before is not None
    turn.set_record(write.new)
    turn.change(largest=max(turn.state.largest, record.number), gather_ends=None, uneven_since=None)
    if write.old is None:
        turn.change(reclaim_ends=None)  # no record names those who have not come yet
    if not is_planned:
        turn.change(counted=(), newest=_steps_held(turn.state))
    for replica in tuple(turn.state.members.values()):
        if membership.is_of_other_records(turn.state, replica.key, replica.state):
            membership.remove(turn, replica, is_over=True)
            turn.send(replica.key, REFUSED_BEGUN_ANEW)
    concerned_by_it = turn.state.roster.both
    for key in concerned_by_it:
        if turn.state.try_replica(key):
            turn.send(key, NewGeneration(record=record))
    listed = frozenset(concerned_by_it)
    for replica in tuple(turn.state.members.values()):
        if replica.key in listed:
            refute(turn, turn.put(replica, moved_at=turn.now))
        elif replica.is_leaving and replica.is_out:
            release(turn, replica)


def _steps_held(state: GroupState) -> int:
    """Steps that the generation goes on from: those of its members, or head's where all that were ahead are lost."""
    held = [_steps(state, one) for key in state.roster.current if (one := state.try_replica(key))]
    return max([state.head_state.state.step, *(min(steps, state.steps) for steps in held)])


def release(turn: GroupTurn, replica: Replica) -> None:
    """Nobody waits for it any more: it may end."""
    if not replica.is_released:
        turn.put(replica, is_released=True)
        turn.send(replica.key, Released())
