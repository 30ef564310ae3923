"""Membership of a group: who counts for the record, who is lost, and what follows from a loss (rules 73 to 75, 92).

A lost member is one whose stream broke for longer than the short window, or that stands still while the others wait
for it.  A false loss costs one step and never a wrong one: the record fences (rules 74, 76).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from master.api.group_shares import steps_per_epoch
from master.api.messages.generations import Generation, GroupPhase, StateId
from master.group.group_state import RETIRED_KEPT, GroupState, GroupTurn, Replica
from master.job.domain.durable_records import SECOND, Instant, MemberKey

SILENT_AT_LEAST_NS: Final = 2 * SECOND
SEVERED_NS: Final = SECOND // 20
"""A broken group waits so long for a member whose stream is broken too: both at once is what a killed process leaves.

Only beside a survivor that has reported: at most one step is lost should the process live (rule 69).
"""
SILENT_STEPS: Final = 10  # median steps
SILENT_REPORTS: Final = 4  # reports that a process alone owes, or one in its script or its compiler
SILENT_REPORTS_IN_STEP: Final = 2  # and one that all others wait for in a usual step
LOADING_NS: Final = 600 * SECOND
"""How long a member that lives and reports may wait for its data or its replica, while the others wait for it."""
_WAITING: Final = frozenset({GroupPhase.REDUCE, GroupPhase.SYNC, GroupPhase.DONE})
_BUSY: Final = frozenset(
    {GroupPhase.COMPUTE, GroupPhase.WARM_UP, GroupPhase.LOAD, GroupPhase.SCRIPT, GroupPhase.RESTORE}
)
_FETCHES: Final = frozenset({GroupPhase.LOAD, GroupPhase.RESTORE})
_LONG: Final = frozenset({GroupPhase.WARM_UP, GroupPhase.SCRIPT})
IN_SCRIPT: Final = _BUSY | {GroupPhase.UNREADY}


def concerned(state: GroupState) -> tuple[MemberKey, ...]:
    """The members of the record, and of the one that it is planned from until its sync is over (rule 74)."""
    return state.roster.both if state.before is not None else state.roster.current


def is_lost(state: GroupState, key: MemberKey) -> bool:
    """True if nobody waits for this process any more; one of an earlier master is awaited for a while (rule 91)."""
    replica = state.try_replica(key)
    if replica is not None:
        return replica.is_lost
    if key in state.gone:
        return key in state.roster.listed  # who left in order is missed where the record counts on it
    return state.reclaim_ends is None or key.incarnation in state.retired


def is_gone(state: GroupState, key: MemberKey) -> bool:
    """True if it left in order, by a record that does without it: no survivor, and not missed."""
    return key in state.gone and key not in state.roster.listed


def is_of_other_records(state: GroupState, key: MemberKey, own: StateId | None) -> bool:
    """True for a process with a replica whose id this job may have given to other bits (rule 65).

    The store had lost its records, and the job has begun again without hearing of a process that trained by them.  One
    that a newer process of its name has replaced is refused too: it would displace its successor.
    """
    is_unlisted = bool(state.first) and state.last_listed.get(key.name) != key.incarnation
    return is_unlisted and own is not None and own.lineage == state.number and own.generation >= state.first


def in_rank_order(replicas: Sequence[Replica]) -> tuple[Replica, ...]:
    return tuple(sorted(replicas, key=lambda one: (one.ordinal, one.key.name)))


def candidates(state: GroupState) -> tuple[Replica, ...]:
    """Processes that are out, alive, declared and ready: whoever makes a record may take them (rule 75)."""
    here = [one for one in state.members.values() if one.is_out and one.has_declared and _is_usable(one)]
    if not all(map(_is_ready, here)):
        survivors = frozenset(concerned(state))
        here = [one for one in here if _is_ready(one) or one.key in survivors]
    return in_rank_order(here)


def left_behind(state: GroupState) -> tuple[Replica, ...]:
    """Processes that may live, and that the others train on without: lost by silence, or not ready."""
    survivors = frozenset(concerned(state))
    here = (one for one in state.members.values() if one.is_connected and not one.is_released)
    return in_rank_order([one for one in here if one.is_lost or not (_is_ready(one) or one.key in survivors)])


def _is_usable(replica: Replica) -> bool:
    return not replica.is_lost and not replica.is_released and replica.is_connected


def _is_ready(replica: Replica) -> bool:
    return replica.phase is not GroupPhase.UNREADY


def lose(turn: GroupTurn, replica: Replica) -> None:
    """The member is lost; it stays known, and comes back once its script asks for a step (rules 75, 92)."""
    if not replica.is_lost:
        turn.put(replica, is_lost=True, was_silent=turn.now - replica.heard_at >= _cut_off_ns(turn.state))
        count_loss(turn, replica)


def hear(turn: GroupTurn, replica: Replica) -> Replica:
    """Something was heard of the member: one that was lost since nothing was heard of it is lost no more (ADR 0308)."""
    state, roster = turn.state, turn.state.roster
    if replica.key in roster.listed or replica.key in roster.before:
        is_again = turn.now - state.heard_at >= _cut_off_ns(state)
        turn.change(heard_at=turn.now, heard_again=turn.now if is_again else state.heard_again)
    if not (replica.is_lost and replica.was_silent):
        return replica
    turn.change(counted=tuple(one for one in state.counted if one[0] != replica.key))
    return turn.put(replica, is_lost=False, was_silent=False, moved_at=turn.now, heard_at=turn.now)


def count_loss(turn: GroupTurn, replica: Replica) -> None:
    """The loss is judged once the step in flight is known from the survivors (`suspects`)."""
    key, counted = replica.key, turn.state.counted
    if key in turn.state.roster.listed and key not in [one for one, _ in counted]:
        turn.change(counted=(*counted, (key, replica.has_worked)))


def remove(turn: GroupTurn, replica: Replica, *, is_over: bool) -> None:
    """The process is no member any more.  `is_over`: its process has ended and will not register again."""
    count_loss(turn, replica)
    turn.change(members=turn.state.members.without(replica.key.name))
    if is_over:
        turn.change(retired=(*turn.state.retired, replica.key.incarnation)[-RETIRED_KEPT:])


def leave(turn: GroupTurn, replica: Replica) -> None:
    """The member left in order: it is not under suspicion, and where the record lists it, it is missed at once."""
    turn.change(
        members=turn.state.members.without(replica.key.name),
        retired=(*turn.state.retired, replica.key.incarnation)[-RETIRED_KEPT:],
        gone=(*turn.state.gone, replica.key)[-RETIRED_KEPT:],
    )


# ---- silence --------------------------------------------------------------------------------------------------------


def silences(state: GroupState) -> Iterator[tuple[Instant, Replica]]:
    """(instant, member): unless it moves until then, the member is lost for the group.

    While nobody of a generation that trains is heard, this master's own link is to blame: nobody is lost then, nor for
    two reports after the first one is heard again.
    """
    current = state.current
    if current is None or state.failed or state.is_complete:
        return
    here = [one for key in concerned(state) if (one := state.try_replica(key)) and not one.is_lost]
    usual_ns = _usual_limit_ns(state)
    if state.broken >= current.number:
        has_survivor = any(_has_survived(state, one, current) for one in here)
        for one in here:
            if one.window_ends is not None and has_survivor:
                stream_broke = one.window_ends - state.config.short_window_ns
                yield Instant(max(state.broken_at, stream_broke) + SEVERED_NS), one
            elif not (one.is_out and one.left >= current.number):
                yield _silence_in_a_break(state, one, usual_ns, has_survivor=has_survivor), one
        return
    by_generation: dict[int, list[Replica]] = {}
    for one in here:
        by_generation.setdefault(one.generation, []).append(one)
    heard_until = state.heard_at + state.config.report_every_ns
    heard_from = state.heard_again + _cut_off_ns(state)
    for number, members in by_generation.items():
        silent = _silences_in(state, members, usual_ns) if number and len(members) > 1 else ()
        yield from ((Instant(max(at, heard_from)), one) for at, one in silent if at <= heard_until)


def _cut_off_ns(state: GroupState) -> int:
    """So long nothing is heard of a member, or of any: it says nothing, or this master is cut off from all."""
    return SILENT_REPORTS_IN_STEP * state.config.report_every_ns


def _silence_in_a_break(state: GroupState, one: Replica, usual_ns: int, *, has_survivor: bool) -> Instant:
    """Until then its report is awaited; one that says nothing at all is not awaited for long where others wait."""
    at = max(state.broken_at, one.moved_at) + _limit_ns(state, one, usual_ns)
    if has_survivor and one.phase in _LONG:
        quiet_ns = max(usual_ns, SILENT_REPORTS * state.config.report_every_ns)
        at = min(at, max(state.broken_at, one.heard_at) + quiet_ns)
    return Instant(at)


def _has_survived(state: GroupState, one: Replica, current: Generation) -> bool:
    """True if it holds the group's work, and waits for the next record."""
    is_whole = one.state is not None and one.state.lineage == state.number
    return is_whole and one.is_connected and one.is_out and one.left >= current.number


def _silences_in(state: GroupState, members: list[Replica], usual_ns: int) -> Iterator[tuple[Instant, Replica]]:
    """Silences in one generation, in one pass: each member is compared with what is latest at all others.

    A member says nothing, or it holds back others that wait.  A usual step's time is enough for the last one that has
    not contributed to its step; any other is in its script, waits for its data, or is not the only one that is late.
    It is enough as well for one that says nothing in a usual step while all others wait in it, or twice that in its
    script and while it compiles, where a library may keep the process from reporting.
    """
    contributed = Counter(_step(one) for one in members if one.phase is GroupPhase.REDUCE)
    newest = max(contributed, default=-1)
    is_usual = any(one.phase is GroupPhase.REDUCE and _has_stepped(one) for one in members) and not _begins_epoch(
        state, newest
    )
    is_any_waiting = any(one.phase in _WAITING for one in members)
    last, before_last = sorted((one.moved_at for one in members), reverse=True)[:2]
    for one in members:
        others_moved = before_last if one.moved_at == last else last
        quiet_ns = max(_limit_ns(state, one, usual_ns), SILENT_REPORTS * state.config.report_every_ns)
        others_wait = contributed[newest] - (one.phase is GroupPhase.REDUCE and _step(one) == newest)
        if is_usual and others_wait == len(members) - 1:
            reports = SILENT_REPORTS if one.phase in _LONG else SILENT_REPORTS_IN_STEP
            quiet_ns = max(usual_ns, reports * state.config.report_every_ns)
        at = max(one.heard_at, others_moved) + quiet_ns
        if is_any_waiting and one.phase in _BUSY:
            is_last = contributed[_step(one)] == len(members) - 1 and _is_in_usual_step(state, one)
            is_awaited = one.owes_request and one.phase is GroupPhase.SCRIPT
            held_ns = usual_ns if is_last or is_awaited else _longest_ns(state, usual_ns)
            if one.phase in _FETCHES:
                held_ns = max(held_ns, LOADING_NS)
            at = min(at, max(one.moved_at, others_moved) + held_ns)
        yield Instant(at), one


def _step(replica: Replica) -> int:
    return replica.state.step if replica.state is not None else -1


def owes_request(state: GroupState, one: Replica, *, now_at: StateId | None) -> bool:
    """True if its script, whose step was dropped, is to ask for a step within the time of a usual one.

    By its last report in that generation it computed a usual step, or waited for others in its collective.  `now_at`:
    its state as it leaves; a newer one says that it is in another step, which may be no usual one.
    """
    if one.state != now_at:
        return False
    return _is_in_usual_step(state, one) or (one.phase is GroupPhase.REDUCE and _has_stepped(one))


def _is_in_usual_step(state: GroupState, one: Replica) -> bool:
    """False outside a step, in one that may compile, and in the first one of an epoch, where loaders begin."""
    return one.phase is GroupPhase.COMPUTE and _has_stepped(one) and not _begins_epoch(state, _step(one))


def _begins_epoch(state: GroupState, step: int) -> bool:
    steps = steps_per_epoch(state.dataset.dataset) if state.dataset else 1
    return steps > 1 and step % steps == 0


def _has_stepped(one: Replica) -> bool:
    return one.state is not None and one.state.generation == one.generation


def is_silent_at(state: GroupState, key: MemberKey, now: Instant) -> bool:
    """True if the member should have moved by now."""
    return any(at <= now and one.key == key for at, one in silences(state))


def _limit_ns(state: GroupState, one: Replica, usual_ns: int) -> int:
    """Longest silence of a member: `usual_ns`, and long in its script and where it may compile.

    That is in the first step of a generation, and in one of a size that is new to its process.  Who takes, loads or
    restores a replica may keep its process from a few reports.
    """
    if one.phase in (GroupPhase.TRANSFER, GroupPhase.RESTORE):
        return max(usual_ns, SILENT_REPORTS * state.config.report_every_ns)
    is_compiling = one.phase is GroupPhase.COMPUTE and not _has_stepped(one)
    return _longest_ns(state, usual_ns) if is_compiling or one.phase in _LONG else usual_ns


def _longest_ns(state: GroupState, usual_ns: int) -> int:
    """Longest silence of a member that lives and reports, in its script's code."""
    return max(state.config.lease_first_ns, usual_ns)


def _usual_limit_ns(state: GroupState) -> int:
    """Some steps of the slowest member."""
    slowest = max((one.median_step_s for one in state.members.values()), default=0.0)
    return max(SILENT_AT_LEAST_NS, int(SILENT_STEPS * slowest * SECOND))
