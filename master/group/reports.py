"""Reports of members: registration, reports, progress, the wish to leave, a broken stream (73, 77, 91)."""

from __future__ import annotations

from dataclasses import replace

from master.api.messages.from_members import Leave
from master.api.messages.generations import (
    GroupPhase,
    GroupProgress,
    LeaveRequest,
    LeftGeneration,
    NewGeneration,
    RegisterReplica,
    ReplicaRegistered,
    StateId,
)
from master.api.messages.to_members import Refused
from master.group import comparisons, membership
from master.group.generations import REFUSED_BEGUN_ANEW, has_trouble, is_gathering, refute, release
from master.group.group_events import ReplicaSilent
from master.group.group_state import GroupState, GroupTurn, Replica
from master.group.measured_shares import is_time_to_observe
from master.group.plans import LEAVE_SHARE
from master.group.suspects import handle_steps_done
from master.job.domain.durable_records import SECOND, Instant, MemberKey
from master.job.domain.frozen_map import FrozenMap
from master.job.domain.job_events import ReclaimWindowEnded, ReconnectWindowEnded

MOST_STEP_S = 1e6
MOST_RATE = 1e12
LONGEST_PROBLEM = 1000
LEAST_GRACE_NS = SECOND
_HOW_TO_MEND = (
    "What a script does to its model, its rates and its schedule must be the same on all ranks, and their processors "
    "and GPUs of a kind, since others round differently; no checkpoint holds the difference"
)


def handle_register(turn: GroupTurn, said: RegisterReplica) -> None:
    """The trainer is known, with what it holds; a new process of its name replaces the old one."""
    state, key = turn.state, MemberKey(name=said.name, incarnation=said.incarnation)
    if key.incarnation in state.retired:
        turn.send(key, Refused(field="incarnation", message=f"a newer process is {key.name}; this one may end"))
        return
    if membership.is_of_other_records(state, key, said.state):
        turn.send(key, REFUSED_BEGUN_ANEW)
        return
    before = state.members.get(key.name)
    if before and before.key != key:
        membership.remove(turn, before, is_over=True)
        before = None
    before = before and membership.hear(turn, before)
    fresh = before or Replica(key=key, ordinal=said.ordinal, address=said.address, moved_at=turn.now)
    left = max(fresh.left, said.left)
    replica = turn.put(
        replace(
            fresh,
            ordinal=said.ordinal,
            address=said.address,
            generation=said.generation if said.generation > left else 0,
            left=left,
            state=said.state,
            has_final_hook=said.has_final_hook,
            has_declared=fresh.has_declared or said.generation > 0 or said.left > 0,
            heard_at=turn.now,
            window_ends=None,
        )
    )
    if state.record is None and not state.largest and max(replica.left, replica.generation):  # the record is lost
        turn.change(reclaim_ends=turn.after(state.config.reconnect_window_ns))
    _learn(turn, replica)
    if said.is_leaving and not replica.is_leaving:
        _want_to_leave(turn, replica, turn.state.config.reconnect_window_ns)
    state = turn.state
    dataset = state.dataset.dataset if state.dataset else None
    every_s = state.config.report_every_ns / SECOND
    turn.send(key, ReplicaRegistered(term=state.term, lineage=state.number, dataset=dataset, report_every_s=every_s))
    tell(turn, key)


def tell(turn: GroupTurn, key: MemberKey) -> None:
    """The record for a member that may have missed it, or BROKEN for one that is in another generation (74, 77)."""
    state, replica = turn.state, turn.state.try_replica(key)
    current = state.current
    if replica is None:
        return
    is_in_order = current is not None and not is_gathering(state) and not has_trouble(state)
    if current is not None and is_in_order and key in membership.concerned(state) and replica.left < current.number:
        turn.send(key, NewGeneration(record=current))
    refute(turn, replica)


def handle_left(turn: GroupTurn, replica: Replica, said: LeftGeneration) -> None:
    """REPORT: a promise, so it never grows stale (rule 73).

    A process answers BROKEN whatever its script does, so who was lost in its script's code stays lost (rule 75).
    """
    replica = membership.hear(turn, replica)
    is_in_script = replica.phase in membership.IN_SCRIPT
    owes_request = replica.owes_request or membership.owes_request(turn.state, replica, now_at=said.state)
    left = max(replica.left, said.left)
    replica = turn.put(
        replica,
        left=left,
        generation=replica.generation if replica.generation > left else 0,
        state=said.state,
        phase=GroupPhase.UNREADY if is_in_script else GroupPhase.OUT,
        is_lost=replica.is_lost and is_in_script,
        owes_request=owes_request,
        moved_at=turn.now,
        heard_at=turn.now,
    )
    _learn(turn, replica)
    if said.differs and not turn.state.failed:
        turn.change(failed=f"replicas differ: {said.differs[:LONGEST_PROBLEM]}. {_HOW_TO_MEND}")
    tell(turn, replica.key)  # it may have been elsewhere when the record was announced


def handle_progress(turn: GroupTurn, replica: Replica, said: GroupProgress) -> None:
    """Alive, and where it is.  What it says of a generation that it has left counts for nothing."""
    generation = said.generation if said.generation > replica.left else 0
    shown = (generation, said.phase, said.state, said.steps_begun)
    moved = shown != (replica.generation, replica.phase, replica.state, replica.steps_begun)
    worked = said.state is not None and said.generation > 0 and said.state.generation == said.generation
    waited_ns = int(min(max(0.0, said.reducing_s), MOST_STEP_S) * SECOND)
    known, before = replica, turn.state
    replica = membership.hear(turn, replica)
    replica = turn.put(
        replica,
        generation=generation,
        phase=said.phase,
        state=said.state,
        steps_begun=said.steps_begun,
        median_step_s=said.median_step_s if 0.0 < said.median_step_s < MOST_STEP_S else replica.median_step_s,
        samples_per_s=said.samples_per_s if 0.0 < said.samples_per_s < MOST_RATE else replica.samples_per_s,
        pause_s=said.pause_s if 0.0 <= said.pause_s < MOST_STEP_S else replica.pause_s,
        waiting_share=said.waiting_share if 0.0 <= said.waiting_share <= 1.0 else replica.waiting_share,
        compute_rate=said.compute_rate if 0.0 < said.compute_rate < MOST_RATE else replica.compute_rate,
        failed_plan=said.failed_plan,
        metrics=FrozenMap(said.metrics),
        has_worked=replica.has_worked or worked,
        heard_at=turn.now,
        moved_at=max(replica.moved_at, Instant(turn.now - waited_ns)) if moved else replica.moved_at,
        is_lost=replica.is_lost and said.phase is not GroupPhase.OUT,
        owes_request=_still_owes_request(replica, said),
    )
    _learn(turn, replica)
    if said.data_problem and not turn.state.data_problem:
        turn.change(data_problem=said.data_problem[:LONGEST_PROBLEM])
    if said.compared is not None:
        comparisons.handle_told(turn, said.compared)
    current = turn.state.current
    if said.is_synced and current and generation == current.number and turn.state.synced < generation:
        turn.change(synced=generation)
    refute(turn, replica)
    turn.is_idle = _is_no_news(turn, known, replica, before)


def _still_owes_request(replica: Replica, said: GroupProgress) -> bool:
    """True until its script has asked for a step: it may redo it and evaluate between two reports (ADR 0258)."""
    is_in_script = said.phase in (GroupPhase.SCRIPT, GroupPhase.UNREADY)
    has_asked = (said.steps_begun, said.state) != (replica.steps_begun, replica.state)
    return replica.owes_request and is_in_script and not has_asked


def _is_no_news(turn: GroupTurn, known: Replica, replica: Replica, before: GroupState) -> bool:
    """True if the report shows no more than that a member trains on; all else is looked at with all members."""
    state = turn.state
    is_same = (known.generation, known.is_lost, known.failed_plan) == (
        replica.generation,
        replica.is_lost,
        replica.failed_plan,
    )
    has_moved_alone = (state.synced, state.failures) == (before.synced, before.failures) and state.newest < state.steps
    is_training = replica.generation > 0 and not (replica.is_leaving or state.has_stopped or state.is_complete)
    return is_same and has_moved_alone and is_training and not is_time_to_observe(turn)


def _learn(turn: GroupTurn, replica: Replica) -> None:
    """The largest number and the newest step that anybody has heard of (rule 64).

    More steps than the job has are of a trainer that was away while fewer epochs were declared (rule 98).
    """
    state = turn.state
    largest = max(state.largest, replica.left, replica.generation)
    own: StateId | None = replica.state
    is_of_job = own is not None and own.lineage == state.number and (state.dataset is None or own.step <= state.steps)
    is_of_job &= state.current is None or replica.key in state.roster.both  # who is in no record may be ahead of all
    newest = max(state.newest, own.step) if own is not None and is_of_job else state.newest
    if own is not None and own.is_stopped and not state.has_stopped:
        turn.change(has_stopped=True)
    if (largest, newest) != (state.largest, state.newest):
        turn.change(largest=largest, newest=newest)
        handle_steps_done(turn, newest)


# ---- how members go -------------------------------------------------------------------------------------------------


def handle_leave_request(turn: GroupTurn, replica: Replica, said: LeaveRequest) -> None:
    """The member leaves with the next planned generation, or at once if no generation counts on it.

    It says after each registration what is left of its grace, which another master does not know.
    """
    grace_ns = int(min(max(0.0, said.grace_s), MOST_STEP_S) * SECOND * LEAVE_SHARE)
    if not replica.is_leaving:
        _want_to_leave(turn, replica, grace_ns)
    elif replica.leave_step != 0:  # else it is waited for no more
        turn.put(replica, leaves_by=turn.after(max(LEAST_GRACE_NS, grace_ns)))


def _want_to_leave(turn: GroupTurn, replica: Replica, grace_ns: int) -> None:
    replica = turn.put(replica, leaves_by=turn.after(max(LEAST_GRACE_NS, grace_ns)), leave_step=-1)
    if replica.key not in membership.concerned(turn.state):
        release(turn, replica)


def handle_leave(turn: GroupTurn, replica: Replica, said: Leave) -> None:  # noqa: ARG001  one signature for all
    """The member's process ends: nobody waits for it."""
    membership.leave(turn, replica)


def handle_stream_broken(turn: GroupTurn, key: MemberKey) -> None:
    """The member may come back within a short time: the others wait for it."""
    replica = turn.state.try_replica(key)
    if replica and replica.is_connected:
        turn.put(replica, window_ends=turn.after(turn.state.config.short_window_ns))


def handle_window_ended(turn: GroupTurn, event: ReconnectWindowEnded) -> None:
    replica = turn.state.try_replica(event.member)
    if replica and replica.window_ends == event.deadline:
        membership.remove(turn, replica, is_over=False)


def handle_silent(turn: GroupTurn, event: ReplicaSilent) -> None:
    """The member stands still while the others wait for it."""
    replica = turn.state.try_replica(event.member)
    if replica and membership.is_silent_at(turn.state, replica.key, turn.now):
        membership.lose(turn, replica)


def handle_reclaim_ended(turn: GroupTurn, event: ReclaimWindowEnded) -> None:
    """Members of an earlier master that did not come are lost from now on (rule 91)."""
    if turn.state.reclaim_ends == event.deadline:
        turn.change(reclaim_ends=None)
