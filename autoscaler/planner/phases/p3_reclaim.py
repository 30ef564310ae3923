"""P3: surplus trainers leave for pods that outrank surplus and fit nowhere.

For each such pod `victims` chooses the node and the trainers, by the keys listed there. No job falls below its
minimum, and no server leaves, since moving its state would take longer than the web can wait. For a pod that did not
use vacated capacity twice, nothing more is reclaimed (`beside-the-scheduler.md` 15).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from operator import add

from autoscaler.domain import Cause, DemandState, Reclaim
from autoscaler.planner.placement.node_choice import emptiest_node
from autoscaler.planner.placement.victims import SideCost, Victims, cheapest_victims
from autoscaler.planner.placement.waste import WEIGHED_NODES
from autoscaler.planner.sharing.step_down import last_step_of, share_below
from autoscaler.planner.working_copy.plan_records import Want
from autoscaler.planner.working_copy.planned_job import PlannedJob
from autoscaler.planner.working_copy.ranks import shrink
from autoscaler.planner.working_copy.shapes import copies_that_fit
from autoscaler.planner.working_copy.working_copy import WorkingCopy


def reclaim_surplus(copy: WorkingCopy) -> None:
    """Serve every want that P1 left unserved, most urgent first."""
    wants = sorted(copy.external.unserved, key=lambda want: want.urgency)
    waiting = Counter(want.shape for want in wants)
    for want in wants:
        serve_want(copy, want, alike=waiting[want.shape])
        waiting[want.shape] -= 1
    copy.external.unserved.clear()


def serve_want(copy: WorkingCopy, want: Want, *, alike: int) -> None:
    """Remove the cheapest surplus for the want, or record why none is removed.

    `alike`: how many wants of this shape are left, this one included.
    """
    capacity, shape = copy.capacity, copy.shapes.number(want.shape)
    at = emptiest_node(copy, shape, now=False, exists=want.exists)
    if at is not None:  # the victims of a more urgent want vacated more than it needs
        capacity.allocate(at, shape, now=False)
        copy.external.answer(want, DemandState.CAPACITY_DRAINING, capacity.names[at])
        return
    if is_left_to_scheduler(copy, want):
        copy.external.answer(want, DemandState.LEFT_TO_SCHEDULER)
        return
    used = frozenset(made.node for made in copy.view.history.vacated_nodes if made.pod == want.name)
    refused = any(refusal.pod == want.name for refusal in copy.view.history.refusals)
    if refused and len(used) >= copy.policy.vacated_nodes_per_pod:
        copy.external.answer(want, DemandState.SCHEDULER_REFUSED)
        return
    avoid = capacity.mask(used) if refused else None
    victims = cheapest_victims(copy, shape, want.rank, avoid=avoid, side_cost=side_cost_of_shrink(copy, shape, alike))
    if victims is None:
        copy.external.answer(want, DemandState.NO_CAPACITY)
        return
    reclaim_from(copy, want, victims)


def reclaim_from(copy: WorkingCopy, want: Want, victims: Victims) -> None:
    """Shrink the victims' jobs and reserve the vacated capacity for the want."""
    for job, pods in victims.taken:
        shrink(copy, job, pods, want.cause, beneficiary=want.name)
    copy.capacity.allocate(victims.at, copy.shapes.number(want.shape), now=False)
    copy.external.answer(want, DemandState.SHRUNK_FOR, copy.capacity.names[victims.at], victims.pods)


def side_cost_of_shrink(copy: WorkingCopy, shape: int, alike: int) -> Callable[[Victims], SideCost] | None:
    """Return what a choice costs beyond the trainers that leave; None on large clusters, where it is not weighed.

    The first part is what fairness moves back: a job that is poor already would get its step back from the richest
    one. The second is what stays unused on the node after this want and its `alike` are placed: beside one free core,
    one trainer of 5 cores leaves enough for two web pods of 3.
    """
    capacity = copy.capacity
    if len(capacity) > WEIGHED_NODES:
        return None
    requests = capacity.request_amounts(shape)
    richest: dict[int, PlannedJob] = {}
    for job in copy.jobs.values():
        priority = job.spec.priority
        if job.spare and (priority not in richest or share_below(copy, job) > share_below(copy, richest[priority])):
            richest[priority] = job

    def moved_back(job: PlannedJob, count: int) -> int:
        rich = richest.get(job.spec.priority)
        is_poor = rich is not None and job.attained(more=1 - count) < share_below(copy, rich)
        return last_step_of(rich) if rich is not None and is_poor else 0

    def side_cost(victims: Victims) -> SideCost:
        free = capacity.later[:, victims.at].tolist()
        for pod in victims.pods:
            free = list(map(add, free, capacity.request_amounts(copy.shapes.number(pod.shape))))
        count = min(alike, copies_that_fit(free, requests))
        left = zip(free, requests, capacity.allocatable[:, victims.at].tolist(), strict=True)
        leftover = sum((offered - count * amount) / allocatable for offered, amount, allocatable in left if amount > 0)
        return sum(moved_back(job, len(pods)) for job, pods in victims.taken), leftover

    return side_cost


def is_left_to_scheduler(copy: WorkingCopy, want: Want) -> bool:
    """True if the scheduler acts first: it has given no verdict yet, or it may still preempt for the pod itself."""
    if want.cause is Cause.ANNOUNCED_GROWTH:
        # Announced pods are created within milliseconds; a preempting scheduler then chooses their victims itself.
        return copy.policy.reclaim is Reclaim.SCHEDULER
    pod = want.pod
    if pod is None or want.cause is not Cause.POD:
        return False
    if pod.unschedulable_since_s is None:
        return True
    if copy.policy.reclaim is Reclaim.PLANNER or not pod.can_preempt:
        return False
    due_s = pod.unschedulable_since_s + copy.policy.preemption_wait_s
    if copy.now_s < due_s:
        copy.wake_at_s.append(due_s)
    return copy.now_s < due_s
