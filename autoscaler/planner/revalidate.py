"""Between planning and writing the cluster moves on: which actions of a plan still hold on a fresh view.

What no longer holds is dropped, never mended: the next plan derives what is right.  A trainer must not leave for a pod
that has found its place meanwhile, and nothing is created into room that is gone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from autoscaler.domain import (
    Action,
    AdmitGang,
    Cause,
    ClusterView,
    CreatePod,
    DeletePod,
    JobName,
    JobState,
    Plan,
    Pod,
    PodName,
    PodPhase,
    Policy,
    Role,
)
from autoscaler.planner.draft import Draft
from autoscaler.planner.exclusion import MOST_FOUND, find_culprit, leave_out
from autoscaler.planner.memo import Memo
from autoscaler.planner.stale import why_stale

# The others are asked for by the user, the node or the job itself, whatever is left.
TAKEN_FOR_OTHERS = frozenset(
    {Cause.POD, Cause.GANG, Cause.HEADROOM, Cause.ANNOUNCED_GROWTH, Cause.TRANSFER, Cause.STEP}
)


def still_valid(plan: Plan, fresh: ClusterView, policy: Policy, *, memo: Memo | None = None) -> tuple[Action, ...]:
    """Return the actions that hold on `fresh`, in the plan's order; together they keep its capacity (A2).

    None hold on a view on which nothing may be planned (A7), and none of a job with which asking fails (A11).
    """
    if fresh.revision == plan.revision and fresh.is_synced:
        return plan.actions
    memo = Memo() if memo is None else memo
    excluded = [one.job for one in plan.excluded]
    for _ in range(MOST_FOUND):
        try:
            return held_actions(plan, fresh, policy, memo, excluded)
        except Exception as error:
            name = find_culprit(error)
            if name is None or name in excluded:
                raise
            excluded.append(name)
    return ()  # the next plan tells of these jobs


def held_actions(
    plan: Plan, fresh: ClusterView, policy: Policy, memo: Memo, excluded: Collection[JobName]
) -> tuple[Action, ...]:
    """As `still_valid`, for the jobs that are not excluded."""
    fresh = leave_out(fresh, excluded) if excluded else fresh
    draft = memo.begin(fresh, policy, plan.planned_at_s)
    pods = {pod.name: pod for pod in fresh.pods} if any(isinstance(a, DeletePod) for a in plan.actions) else {}
    actions = () if why_stale(draft) else plan.actions
    held = tuple(action for action in actions if action.job not in excluded and holds(draft, pods, action))
    memo.end(draft)
    return held


def holds(draft: Draft, pods: Mapping[PodName, Pod], action: Action) -> bool:
    """Whether the action still makes sense; if so, its room is taken on the draft."""
    match action:
        case DeletePod():
            return can_delete(draft, pods, action)
        case CreatePod():
            return can_create(draft, action)
        case AdmitGang():
            mark = draft.mark()
            if all(can_create(draft, pod) for pod in action.pods):
                return True
            draft.roll_back(mark)
            return False


def can_delete(draft: Draft, pods: Mapping[PodName, Pod], action: DeletePod) -> bool:
    """Whether the pod is there, staying, in somebody's way and beyond its job's minimum; if so, it leaves."""
    victim = pods.get(action.pod)
    if victim is None or victim.phase is PodPhase.TERMINATING or victim.place != action.node:
        return False
    job = draft.jobs.get(action.job)
    is_displaced = action.cause is Cause.DEFRAGMENTATION and action.role is Role.TRAINER
    if (action.cause in TAKEN_FOR_OTHERS or is_displaced) and job is not None:
        if victim not in job.trainers or not job.spare:
            return False
        draft.touch(job)
        job.trainers.remove(victim)
    if action.cause is Cause.DEFRAGMENTATION:
        other = pods.get(PodName(action.beneficiary))
        return other is not None and other.phase is PodPhase.READY
    if action.cause is Cause.PREEMPTION and action.beneficiary:
        winner = draft.jobs.get(JobName(action.beneficiary))
        return winner is not None and not winner.is_running
    if action.cause is not Cause.POD:
        return True
    waiting = pods.get(PodName(action.beneficiary))
    return waiting is not None and waiting.phase is PodPhase.PENDING and waiting.place is None


def can_create(draft: Draft, action: CreatePod) -> bool:
    """Whether job, seat and room are as they were; if so, the room is taken."""
    job, at = draft.jobs.get(action.job), draft.rooms.index.get(action.node)
    if job is None or at is None or job.job.state is not JobState.ACTIVE:
        return False
    is_taken = action.ordinal in job.ordinals.get(action.role, ())
    if is_taken or not draft.rooms.fits_now(at, job.shapes[action.role]):
        return False
    draft.touch(job)
    job.ordinals.setdefault(action.role, set()).add(action.ordinal)
    draft.rooms.take(at, job.shapes[action.role], now=True)
    return True
