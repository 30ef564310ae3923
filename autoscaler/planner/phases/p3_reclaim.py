"""P3: surplus trainers leave for pods that outrank surplus and fit nowhere.

For each such pod `victims` chooses the node and the trainers, by the keys listed there. No job falls below its
minimum, and no server leaves, since moving its state would take longer than the web can wait. For a pod that did not
use vacated capacity twice, nothing more is reclaimed (`beside-the-scheduler.md` 15).
"""

from __future__ import annotations

from collections import Counter

from autoscaler.domain import Cause, DemandState, Reclaim
from autoscaler.planner.phases.p3_side_costs import side_costs_of
from autoscaler.planner.placement.node_choice import emptiest_node
from autoscaler.planner.placement.victims import Victims, cheapest_victims
from autoscaler.planner.placement.waste import WEIGHED_NODES
from autoscaler.planner.working_copy.node_arrays import Mask
from autoscaler.planner.working_copy.plan_records import Want
from autoscaler.planner.working_copy.ranks import Rank, shrink
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
    victims = victims_for(copy, shape, want.rank, avoid, alike)
    if victims is None:
        copy.external.answer(want, DemandState.NO_CAPACITY)
        return
    reclaim_from(copy, want, victims)


def victims_for(copy: WorkingCopy, shape: int, rank: Rank, avoid: Mask | None, alike: int) -> Victims | None:
    """Return the cheapest surplus for one of these wants; on large clusters its side costs are not weighed."""
    if len(copy.capacity) > WEIGHED_NODES:
        return cheapest_victims(copy, shape, rank, avoid=avoid)
    costs = side_costs_of(copy, shape, rank)
    costs.begin_want(alike)
    return cheapest_victims(copy, shape, rank, avoid=avoid, side_cost=costs.of, least_side_cost=costs.least)


def reclaim_from(copy: WorkingCopy, want: Want, victims: Victims) -> None:
    """Shrink the victims' jobs and reserve the vacated capacity for the want."""
    for job, pods in victims.taken:
        shrink(copy, job, pods, want.cause, beneficiary=want.name)
    copy.capacity.allocate(victims.at, copy.shapes.number(want.shape), now=False)
    copy.external.answer(want, DemandState.SHRUNK_FOR, copy.capacity.names[victims.at], victims.pods)


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
