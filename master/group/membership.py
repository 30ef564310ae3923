"""Who concerns the record, who is lost to it, and what becomes of a member that is lost (rules 73 to 75, 92).

A lost member is one whose stream broke for longer than the short window, or that stands still while the others wait
for it.  A false loss costs one step and never a wrong one: the record fences (rules 74, 76).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from master.api.messages.generations import Generation, GroupMember, GroupPhase
from master.group.group_state import RETIRED_KEPT, GroupState, GroupTurn, Replica
from master.job.domain.durable_records import SECOND, Instant, MemberKey

SILENT_AT_LEAST_NS: Final = 2 * SECOND
SILENT_STEPS: Final = 10  # median steps
SILENT_REPORTS: Final = 4  # reports that a process alone owes
_WAITING: Final = frozenset({GroupPhase.REDUCE, GroupPhase.SYNC})


def key_of(member: GroupMember) -> MemberKey:
    return MemberKey(name=member.name, incarnation=member.incarnation)


def keys_of(generation: Generation | None) -> tuple[MemberKey, ...]:
    """The processes of a generation, in rank order; none for None."""
    return tuple(key_of(member) for member in generation.members) if generation else ()


def concerned(state: GroupState) -> tuple[MemberKey, ...]:
    """The members of the record, and of the one that it is planned from until its sync is over (rule 74)."""
    members, old = keys_of(state.current), keys_of(state.before)
    return (*members, *(key for key in old if key not in members))


def is_lost(state: GroupState, key: MemberKey) -> bool:
    """True if nobody waits for this process any more; one of an earlier master is awaited for a while (rule 91)."""
    replica = state.try_replica(key)
    if replica is not None:
        return replica.is_lost
    if key in state.gone:
        return key in keys_of(state.current)  # who left in order is missed where the record counts on it
    return state.reclaim_ends is None or key.incarnation in state.retired


def is_gone(state: GroupState, key: MemberKey) -> bool:
    """True if it left in order, by a record that does without it: no survivor, and not missed."""
    return key in state.gone and key not in keys_of(state.current)


def in_rank_order(replicas: Sequence[Replica]) -> tuple[Replica, ...]:
    return tuple(sorted(replicas, key=lambda one: (one.ordinal, one.key.name)))


def candidates(state: GroupState) -> tuple[Replica, ...]:
    """Processes that are out, alive and declared: whoever makes a record may take them (rule 75)."""
    return in_rank_order([one for one in state.members.values() if one.is_out and one.has_declared and _is_usable(one)])


def _is_usable(replica: Replica) -> bool:
    return not replica.is_lost and not replica.is_released and replica.is_connected


def lose(turn: GroupTurn, replica: Replica) -> None:
    """It is lost for the group; it stays known, and may come back by a report (rule 92)."""
    if not replica.is_lost:
        turn.put(replica, is_lost=True)
        count_loss(turn, replica)


def count_loss(turn: GroupTurn, replica: Replica) -> None:
    """The loss is judged once the step in flight is known from the survivors (`suspects`)."""
    key, counted = replica.key, turn.state.counted
    if key in keys_of(turn.state.current) and key not in [one for one, _ in counted]:
        turn.change(counted=(*counted, (key, replica.has_worked)))


def remove(turn: GroupTurn, replica: Replica, *, is_over: bool) -> None:
    """It is no member any more.  `is_over`: its process has ended and will not register again."""
    count_loss(turn, replica)
    turn.change(members=turn.state.members.without(replica.key.name))
    if is_over:
        turn.change(retired=(*turn.state.retired, replica.key.incarnation)[-RETIRED_KEPT:])


def leave(turn: GroupTurn, replica: Replica) -> None:
    """It left in order: it is not under suspicion, and where the record lists it, it is missed at once."""
    turn.change(
        members=turn.state.members.without(replica.key.name),
        retired=(*turn.state.retired, replica.key.incarnation)[-RETIRED_KEPT:],
        gone=(*turn.state.gone, replica.key)[-RETIRED_KEPT:],
    )


# ---- silence --------------------------------------------------------------------------------------------------------


def silences(state: GroupState) -> Iterator[tuple[Instant, Replica]]:
    """(instant, member): unless it moves until then, the member is lost for the group."""
    current = state.current
    if current is None or state.failed or state.is_complete:
        return
    here = [one for key in concerned(state) if (one := state.try_replica(key)) and not one.is_lost]
    for one in here:
        if state.broken >= current.number:
            if not (one.is_out and one.left >= current.number):
                yield Instant(max(state.broken_at, one.moved_at) + _limit_ns(state, one)), one
            continue
        others = [other for other in here if other is not one and other.generation == one.generation]
        if one.is_out or not others:
            continue
        if one.phase is GroupPhase.COMPUTE and all(other.phase in _WAITING for other in others):
            since = max(one.moved_at, *(other.moved_at for other in others))
            yield Instant(since + _limit_ns(state, one)), one
        else:
            moved = max(one.heard_at, *(other.moved_at for other in others))
            quiet = max(_limit_ns(state, one), SILENT_REPORTS * state.config.report_every_ns)
            yield Instant(moved + quiet), one


def is_silent_at(state: GroupState, key: MemberKey, now: Instant) -> bool:
    """True if the member should have moved by now."""
    return any(at <= now and one.key == key for at, one in silences(state))


def _limit_ns(state: GroupState, one: Replica) -> int:
    """How long it may stand still: some steps, and long while its first step of a generation compiles."""
    current = state.current
    steps = one.state is not None and current is not None and one.state.generation == one.generation
    if one.phase in (GroupPhase.COMPUTE, GroupPhase.TRANSFER) and not steps:
        return state.config.lease_first_ns
    medians = [other.median_step_s for other in state.members.values() if other.median_step_s > 0.0]
    slowest = max(medians, default=0.0)
    return max(SILENT_AT_LEAST_NS, int(SILENT_STEPS * slowest * SECOND))
