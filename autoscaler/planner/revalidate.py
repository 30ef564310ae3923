"""Revalidation: which actions of a plan still hold on a fresher view.

Between plan and write the cluster changes. An invalid action is dropped and never repaired; the next plan replaces
it. No trainer is removed for a pod that has been bound meanwhile, and no pod is created without free capacity.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from autoscaler.domain import (
    Action,
    AdmitGang,
    Cause,
    ClusterView,
    CreatePod,
    DeletePod,
    ExcludedJob,
    JobName,
    JobState,
    Plan,
    Pod,
    PodName,
    PodPhase,
    Policy,
    Role,
)
from autoscaler.errors import error_text
from autoscaler.planner.exclusion import MOST_FOUND, exclude, find_culprit
from autoscaler.planner.plan import staleness_problem
from autoscaler.planner.still_needed import has_checked_need, needed_deletions
from autoscaler.planner.working_copy.memo import Memo
from autoscaler.planner.working_copy.planned_job import PlannedJob
from autoscaler.planner.working_copy.working_copy import WorkingCopy

# Deletions with other causes are valid whatever their job's state.
NEEDS_SPARE = frozenset(
    {
        Cause.POD,
        Cause.GANG,
        Cause.HEADROOM,
        Cause.ANNOUNCED_GROWTH,
        Cause.TRANSFER,
        Cause.IDLE,
        Cause.STEP,
        Cause.EFFICIENCY,
    }
)


def still_valid(
    plan: Plan, fresh: ClusterView, policy: Policy, *, memo: Memo | None = None, begun: Collection[Action] = ()
) -> tuple[Action, ...]:
    """Return the actions that hold on `fresh`, in the plan's order; together they keep its capacity (A2).

    `begun`: actions of the plan that are being written, which `fresh` may or may not show yet. No action holds on a
    view on which nothing may be planned (A7), and none of a job with which the check fails (A11).
    """
    if fresh.revision == plan.revision and fresh.is_synced:
        return plan.actions
    memo = Memo() if memo is None else memo
    excluded = {one.job: one for one in plan.excluded}
    for _ in range(MOST_FOUND):
        view = exclude(fresh, excluded.values()) if excluded else fresh
        out = {one.job for one in excluded.values() if one.is_unmodelled}
        left = replace(plan, actions=tuple(action for action in plan.actions if action.job not in out))
        try:
            copy = memo.begin(view, policy, plan.planned_at_s)
            held = () if staleness_problem(copy) else held_actions(copy, left, begun)
        except Exception as error:
            name = find_culprit(error)
            if name is None or name in out:
                raise
            excluded[name] = ExcludedJob(job=name, problem=error_text(error), is_unmodelled=True)
        else:
            memo.end(copy)
            return held
    return ()  # the next plan reports these jobs


def held_actions(copy: WorkingCopy, plan: Plan, begun: Collection[Action]) -> tuple[Action, ...]:
    """Return the plan's actions that are valid on the working copy of a fresh view."""
    has_deletions = any(isinstance(action, DeletePod) for action in plan.actions)
    pods = {pod.name: pod for pod in copy.view.pods} if has_deletions else {}
    actions = tuple(action for action in plan.actions if action not in begun or not has_left(action, pods))
    needed = drop_needless(copy, replace(plan, actions=actions), pods)
    return tuple(action for action in needed if is_valid(copy, pods, action))


def has_left(action: Action, pods: Mapping[PodName, Pod]) -> bool:
    """True if the view shows that a deletion was carried out."""
    if not isinstance(action, DeletePod):
        return False
    pod = pods.get(action.pod)
    return pod is None or pod.phase is PodPhase.TERMINATING


def drop_needless(copy: WorkingCopy, plan: Plan, pods: Mapping[PodName, Pod]) -> tuple[Action, ...]:
    """Return the plan's actions without deletions for those who no longer need them."""
    if not any(map(has_checked_need, plan.actions)):
        return plan.actions
    mark = copy.mark()
    needed = needed_deletions(copy, plan, pods)
    copy.roll_back(mark)
    copy.external.unserved.clear()
    return tuple(
        action
        for action in plan.actions
        if not (isinstance(action, DeletePod) and has_checked_need(action)) or action.pod in needed
    )


def is_valid(copy: WorkingCopy, pods: Mapping[PodName, Pod], action: Action) -> bool:
    """True if the action is still valid; if so, its capacity is taken on the copy."""
    match action:
        case DeletePod():
            return can_delete(copy, pods, action)
        case CreatePod():
            return can_create(copy, action)
        case AdmitGang():
            mark = copy.mark()
            if all(can_create(copy, pod) for pod in action.pods):
                return True
            copy.roll_back(mark)
            return False


def can_delete(copy: WorkingCopy, pods: Mapping[PodName, Pod], action: DeletePod) -> bool:
    """True if the pod still exists, is not terminating, and is above its job's minimum; it is then removed from the
    copy.
    """
    victim = pods.get(action.pod)
    if victim is None or victim.phase is PodPhase.TERMINATING or victim.place != action.node:
        return False
    job = copy.jobs.get(action.job)
    if action.cause in {Cause.IDLE, Cause.HUNG} and (job is None or not still_does_nothing(job, victim, action.cause)):
        return False
    is_displaced = action.cause is Cause.DEFRAGMENTATION and action.role is Role.TRAINER
    if (action.cause in NEEDS_SPARE or is_displaced) and job is not None:
        if victim not in job.trainers or not job.spare:
            return False
        copy.touch(job)
        job.trainers.remove(victim)
    if action.cause is Cause.DEFRAGMENTATION:
        other = pods.get(PodName(action.beneficiary))
        return other is not None and other.phase is PodPhase.READY
    if action.cause is Cause.PREEMPTION and action.beneficiary:
        winner = copy.jobs.get(JobName(action.beneficiary))
        return winner is not None and not winner.is_running
    if action.cause is not Cause.POD:
        return True
    waiting = pods.get(PodName(action.beneficiary))
    return waiting is not None and waiting.phase is PodPhase.PENDING and waiting.place is None


def still_does_nothing(job: PlannedJob, pod: Pod, cause: Cause) -> bool:
    """True if the verdict stands on which the removal rests: one batch ends it (promise A12)."""
    return pod in (job.hung_trainers() if cause is Cause.HUNG else job.idle_trainers())


def can_create(copy: WorkingCopy, action: CreatePod) -> bool:
    """True if job, ordinal and capacity are as they were; if so, the capacity is taken."""
    job, at = copy.jobs.get(action.job), copy.capacity.index.get(action.node)
    if job is None or at is None or job.spec.state is not JobState.ACTIVE:
        return False
    is_taken = action.ordinal in job.ordinals.get(action.role, ())
    if is_taken or not copy.capacity.fits_now(at, job.shapes[action.role]):
        return False
    copy.touch(job)
    job.ordinals.setdefault(action.role, set()).add(action.ordinal)
    copy.capacity.allocate(at, job.shapes[action.role], now=True)
    return True
