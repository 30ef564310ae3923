"""Between planning and writing the cluster moves on: which actions of a plan still hold on a fresh view.

What no longer holds is dropped, never mended: the next plan derives what is right.  A trainer must not leave for a pod
that has found its place meanwhile, and nothing is created into room that is gone.
"""

from __future__ import annotations

from autoscaler.domain import (
    Action,
    AdmitGang,
    Cause,
    ClusterView,
    CreatePod,
    DeletePod,
    JobState,
    Plan,
    PodName,
    PodPhase,
    Policy,
)
from autoscaler.planner.draft import Draft
from autoscaler.planner.snapshot import take_snapshot

# The others are asked for by the user, the node or the job itself, whatever is left.
TAKEN_FOR_OTHERS = frozenset(
    {Cause.POD, Cause.GANG, Cause.HEADROOM, Cause.ANNOUNCED_GROWTH, Cause.TRANSFER, Cause.STEP}
)


def still_valid(plan: Plan, fresh: ClusterView, policy: Policy) -> tuple[Action, ...]:
    """Return the actions that hold on `fresh`, in the plan's order; together they keep its capacity (A2)."""
    if fresh.revision == plan.revision:
        return plan.actions
    draft = take_snapshot(fresh, policy, plan.planned_at_s)
    return tuple(action for action in plan.actions if holds(draft, action))


def holds(draft: Draft, action: Action) -> bool:
    """Whether the action still makes sense; if so, its room is taken on the draft."""
    match action:
        case DeletePod():
            return can_delete(draft, action)
        case CreatePod():
            return can_create(draft, action)
        case AdmitGang():
            trial = draft.copy()
            if not all(can_create(trial, pod) for pod in action.pods):
                return False
            draft.adopt(trial)
            return True


def can_delete(draft: Draft, action: DeletePod) -> bool:
    """Whether the pod is there, staying, in somebody's way and beyond its job's minimum; if so, it leaves."""
    pods = {pod.name: pod for pod in draft.view.pods}
    victim = pods.get(action.pod)
    if victim is None or victim.phase is PodPhase.TERMINATING or victim.place != action.node:
        return False
    job = draft.jobs.get(action.job)
    if action.cause in TAKEN_FOR_OTHERS and job is not None:
        if victim not in job.trainers or not job.spare:
            return False
        job.trainers.remove(victim)
    if action.cause is not Cause.POD:
        return True
    waiting = pods.get(PodName(action.beneficiary))
    return waiting is not None and waiting.phase is PodPhase.PENDING and waiting.place is None


def can_create(draft: Draft, action: CreatePod) -> bool:
    """Whether job, seat and room are as they were; if so, the room is taken."""
    job = draft.jobs.get(action.job)
    room = draft.rooms.get(action.node)
    if job is None or room is None or job.job.state is not JobState.ACTIVE:
        return False
    shape = job.shape_of(action.role)
    taken = job.ordinals.setdefault(action.role, set())
    if action.ordinal in taken or not room.node.accepts(shape) or not shape.requests.fits_into(room.free):
        return False
    taken.add(action.ordinal)
    room.take(shape.requests, now=True)
    return True
