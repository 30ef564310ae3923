"""Check which planned deletions their beneficiaries still need (ADR 0160).

Between plan and write a pod may have been bound, capacity may have become free elsewhere, or announced growth may
have been withdrawn. The wants of the fresh view are placed as P1, P3 and P4 place them, with the plan's own victims
and no others: a want that fits without them needs no deletion. Trainers that only help together leave together or not
at all. To be called in a trial, which the caller rolls back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from autoscaler.domain import (
    FOR_JOBS,
    Action,
    AdmitGang,
    Cause,
    CreatePod,
    DeletePod,
    JobName,
    JobState,
    Plan,
    Pod,
    PodName,
    PodPhase,
    Role,
)
from autoscaler.planner.phases.p1_external_pods import place_external_pods, place_headroom
from autoscaler.planner.placement.core_placement import core_roles, try_place_all, try_place_on
from autoscaler.planner.placement.node_choice import emptiest_node
from autoscaler.planner.working_copy.plan_records import Want
from autoscaler.planner.working_copy.planned_job import PlannedJob
from autoscaler.planner.working_copy.shapes import amounts_fit
from autoscaler.planner.working_copy.working_copy import WorkingCopy

FOR_WANTS = frozenset({Cause.POD, Cause.ANNOUNCED_GROWTH, Cause.HEADROOM})
VOLUNTARY = frozenset({Cause.FREE_CAPACITY, Cause.TRANSFER})  # creations that come after everything else

DeletionGroup = tuple[Cause, str]
"""Deletions with one cause and one beneficiary."""


def has_checked_need(action: Action) -> bool:
    """True if the action removes a pod for a beneficiary whose need can be checked again."""
    return isinstance(action, DeletePod) and bool(action.beneficiary) and action.cause in FOR_WANTS | FOR_JOBS


def needed_deletions(copy: WorkingCopy, plan: Plan, pods: Mapping[PodName, Pod]) -> frozenset[PodName]:
    """Return the pods whose removal is still needed by others. To be called in a trial."""
    groups = group_deletions(plan)
    needed: list[DeletePod] = []
    place_external_pods(copy)
    needed += needed_by_wants(copy, groups, pods)
    allocate_creations(copy, (action for action in plan.actions if not is_voluntary(action)))
    for (cause, name), group in groups.items():
        if cause is Cause.GANG and is_needed_by_gang(copy, plan, group, JobName(name), pods):
            needed += group
    if any(cause is Cause.HEADROOM for cause, _ in groups):
        place_headroom(copy)
        needed += needed_by_wants(copy, groups, pods)
    allocate_creations(copy, filter(is_voluntary, plan.actions))
    for (cause, name), group in groups.items():
        if (
            cause in {Cause.TRANSFER, Cause.IDLE}
            and lacks_capacity(copy, plan, JobName(name))
            and remove_group(copy, group, pods)
        ):
            needed += group
    return frozenset(action.pod for action in needed)


def group_deletions(plan: Plan) -> dict[DeletionGroup, list[DeletePod]]:
    """Return the deletions by cause and beneficiary; what a gang takes is one group, the swap of its own trainers
    included."""
    groups: dict[DeletionGroup, list[DeletePod]] = {}
    deletions = [action for action in plan.actions if isinstance(action, DeletePod)]
    for action in filter(has_checked_need, deletions):
        cause = Cause.GANG if action.cause is Cause.PREEMPTION else action.cause
        groups.setdefault((cause, action.beneficiary), []).append(action)
    for action in deletions:
        if action.cause is Cause.CORE_SWAP and (group := groups.get((Cause.GANG, action.beneficiary))) is not None:
            group.append(action)
    return groups


def needed_by_wants(
    copy: WorkingCopy, groups: Mapping[DeletionGroup, Sequence[DeletePod]], pods: Mapping[PodName, Pod]
) -> list[DeletePod]:
    """Place the unserved wants with the plan's victims; return the deletions that are needed.

    Pods of one workload are alike: what leaves for an announced one leaves for the pod that exists by now.
    """
    needed: list[DeletePod] = []
    by_kind: dict[str, list[DeletionGroup]] = {}
    for cause, name in groups:
        if cause in FOR_WANTS:
            by_kind.setdefault(want_kind(cause, name, pods), []).append((cause, name))
    for want in sorted(copy.external.unserved, key=lambda want: want.urgency):
        shape = copy.shapes.number(want.shape)
        at = emptiest_node(copy, shape, now=False, exists=want.exists)
        left = by_kind.get(want_kind(want.cause, want.name, pods))
        if at is None and left:
            own = (want.cause, want.name)
            group = groups[left.pop(left.index(own) if own in left else 0)]
            at = node_after(copy, want, group, pods)
            needed += group if at is not None else ()
        if at is not None:
            copy.capacity.allocate(at, shape, now=False)
    copy.external.unserved.clear()
    return needed


def want_kind(cause: Cause, name: str, pods: Mapping[PodName, Pod]) -> str:
    """Return a key that is equal for wants that may use each other's capacity: their workload, or their headroom's
    shape."""
    if cause is Cause.POD:
        pod = pods.get(PodName(name))
        return name if pod is None or pod.workload is None else pod.workload
    return name.rpartition("+" if cause is Cause.ANNOUNCED_GROWTH else "-")[0]


def node_after(copy: WorkingCopy, want: Want, group: Sequence[DeletePod], pods: Mapping[PodName, Pod]) -> int | None:
    """Return where the want fits once the group has gone; None, with nothing changed, if the group is too small or too
    large."""
    mark, shape = copy.mark(), copy.shapes.number(want.shape)
    at = None
    if remove_group(copy, group, pods):
        at = emptiest_node(copy, shape, now=False, exists=want.exists)
    if at is not None and any(fits_beside(copy, want, at, copy.jobs[one.job], pods[one.pod]) for one in group):
        at = None
    if at is None:
        copy.roll_back(mark)
    return at


def fits_beside(copy: WorkingCopy, want: Want, at: int, job: PlannedJob, pod: Pod) -> bool:
    """True if the want fits on the node though this trainer stays; a trainer that makes up a step is judged with the
    step."""
    if pod.place != copy.capacity.names[at] or not job.spec.trainer.is_by_single_trainers:
        return False
    left = copy.capacity.later[:, at].tolist()
    for column, amount in enumerate(copy.capacity.request_amounts(copy.shapes.number(pod.shape))):
        left[column] -= amount
    return amounts_fit(left, copy.capacity.request_amounts(copy.shapes.number(want.shape)))


def is_needed_by_gang(
    copy: WorkingCopy, plan: Plan, group: Sequence[DeletePod], name: JobName, pods: Mapping[PodName, Pod]
) -> bool:
    """True if the job still waits, does not fit, and would fit with these pods gone."""
    job = copy.jobs.get(name)
    if job is None or job.spec.state is not JobState.ACTIVE:
        return False
    lacking = job.missing(copy.view.capabilities) if job.is_running else core_roles(job)
    mark = copy.mark()
    fits = not lacking or try_place_all(copy, job, lacking, now=True) is not None
    copy.roll_back(mark)
    if fits or not remove_group(copy, group, pods):
        return False
    placements = next((entry.placements for entry in plan.history.reservations if entry.job == name), ())
    return not placements or try_place_on(
        copy, job, [(placement.role, placement.node) for placement in placements], now=False
    )


def lacks_capacity(copy: WorkingCopy, plan: Plan, name: JobName) -> bool:
    """True if the poorer job, which runs or starts, may still grow and lacks free capacity or quota."""
    job = copy.jobs.get(name)
    if job is None or job.spec.state is not JobState.ACTIVE or job.size >= job.spec.trainer.ceiling:
        return False
    if not job.is_running and not any(isinstance(one, AdmitGang) and one.job == name for one in plan.actions):
        return False
    if (
        not job.spec.trainer.is_by_single_trainers
        or job.spec.trainer.per_node > 1
        or copy.quotas.find_problem(job, [Role.TRAINER], now=True)
    ):
        return True
    return emptiest_node(copy, job.shapes[Role.TRAINER], now=True) is None


def remove_group(copy: WorkingCopy, group: Iterable[DeletePod], pods: Mapping[PodName, Pod]) -> bool:
    """Remove all of them; return False, with none removed, if one of them has gone, moved, or is no longer spare."""
    mark = copy.mark()
    for action in group:
        job, pod = copy.jobs.get(action.job), pods.get(action.pod)
        if job is None or pod is None or not is_dispensable(job, pod, action):
            copy.roll_back(mark)
            return False
        copy.remove(job, [pod], action.cause, beneficiary=action.beneficiary)
    return True


def is_dispensable(job: PlannedJob, pod: Pod, action: DeletePod) -> bool:
    """True if the pod is on its node as planned and its job can do without it."""
    if pod.phase is PodPhase.TERMINATING or pod.place != action.node:
        return False
    is_whole_job = action.cause is Cause.PREEMPTION
    return is_whole_job or (pod in job.trainers and (bool(job.spare) or action.cause is Cause.CORE_SWAP))


def allocate_creations(copy: WorkingCopy, actions: Iterable[Action]) -> None:
    """Take the capacity of the plan's creations, where it is still free."""
    for action in actions:
        for pod in action.pods if isinstance(action, AdmitGang) else (action,):
            if isinstance(pod, CreatePod):
                job, at = copy.jobs.get(pod.job), copy.capacity.index.get(pod.node)
                if job is not None and at is not None and copy.capacity.fits_now(at, job.shapes[pod.role]):
                    copy.capacity.allocate(at, job.shapes[pod.role], now=True)


def is_voluntary(action: Action) -> bool:
    """True if the action is a voluntary creation, which uses only capacity that no other action needs."""
    return isinstance(action, CreatePod) and action.cause in VOLUNTARY
