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
    PodPhase,
    Policy,
)
from autoscaler.planner.draft import Draft
from autoscaler.planner.snapshot import take_snapshot


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
            return can_delete(draft.view, action)
        case CreatePod():
            return can_create(draft, action)
        case AdmitGang():
            trial = draft.copy()
            if not all(can_create(trial, pod) for pod in action.pods):
                return False
            draft.adopt(trial)
            return True


def can_delete(view: ClusterView, action: DeletePod) -> bool:
    """Whether the pod is there, staying, and still in somebody's way."""
    pods = {pod.name: pod for pod in view.pods}
    victim = pods.get(action.pod)
    if victim is None or victim.phase is PodPhase.TERMINATING or victim.node != action.node:
        return False
    if action.cause is not Cause.POD:
        return True
    waiting = next((pod for pod in view.pods if pod.name == action.beneficiary), None)
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
