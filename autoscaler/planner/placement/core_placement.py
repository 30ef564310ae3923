"""Core placement: a node for each pod that a job needs to run at all.

The pods are placed one after the other, largest first, each on the tightest node; on small clusters the search
backtracks. It never places what does not fit, and may miss a packing (ADR 0102).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

import numpy as np

from autoscaler.domain import Cause, NodeName, Role, Tier
from autoscaler.planner.placement.colocation import (
    Bundle,
    bundles_of,
    crowding_of,
    nodes_for,
    prefers_anti_affinity,
)
from autoscaler.planner.placement.device_reserve import is_held_back_by_devices
from autoscaler.planner.placement.node_choice import Crowding, allocate_tightest
from autoscaler.planner.placement.reclaimable import reclaimable_for
from autoscaler.planner.placement.victims import LeastCosts, cheapest_victims
from autoscaler.planner.placement.waste import ABOVE_SLACK, waste_of
from autoscaler.planner.working_copy.fairness import share_of
from autoscaler.planner.working_copy.free_capacity import NodeScores
from autoscaler.planner.working_copy.node_arrays import Mask
from autoscaler.planner.working_copy.offers import IntArray
from autoscaler.planner.working_copy.planned_job import PlannedJob
from autoscaler.planner.working_copy.ranks import full_rank, shrink
from autoscaler.planner.working_copy.working_copy import WorkingCopy

SEARCH_LIMIT: Final = 400  # 100 backtracking steps on 4 nodes, 4 on 100 nodes

Placements = list[tuple[Role, NodeName]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReclaimPermit:
    """Permission to remove surplus for a placement: the cause, and the priority from which jobs keep their surplus."""

    cause: Cause
    protected_priority: int | None = None


def core_roles(job: PlannedJob) -> list[Role]:
    """Return the roles of all core pods that the job needs, one entry per pod."""
    spec = job.spec
    roles = [Role.MASTER] * spec.master.replicas + [Role.SERVER] * spec.server_count
    return roles + [Role.TRAINER] * spec.trainer.min_replicas


def try_place_all(
    copy: WorkingCopy, job: PlannedJob, roles: Iterable[Role], *, now: bool, avoid: Mask | None = None
) -> Placements | None:
    """Place every pod; None, with nothing changed, if no placement was found."""
    roles = list(roles)
    if copy.quotas.find_problem(job, roles, now=now):
        return None
    mark = copy.mark()
    placements = search_placements(copy, job, largest_first(copy, job, roles), now=now, avoid=avoid)
    copy.roll_back(mark)
    for role, node in placements or ():
        place_pod(copy, job, role, node, now=now)
    return placements


def search_placements(
    copy: WorkingCopy, job: PlannedJob, roles: Sequence[Role], *, now: bool, avoid: Mask | None
) -> Placements | None:
    """Search depth first, best node first, with bounded backtracking (`SEARCH_LIMIT`).

    The capacity of what was found stays taken.
    """
    capacity, bundles = copy.capacity, bundles_of(copy, job, roles)
    if exceeds_capacity(copy, bundles, now=now, avoid=avoid):
        return None
    backtracking_steps = SEARCH_LIMIT // max(1, int(capacity.is_open.sum()))
    if not backtracking_steps and not waste_of(copy).is_weighed:
        return place_in_runs(copy, job, bundles, now=now, avoid=avoid)
    nodes: list[int] = []
    branches: list[tuple[int, Iterator[int]]] = []
    for _ in range(len(bundles) + backtracking_steps):
        if len(nodes) == len(bundles):
            break
        bundle = bundles[len(nodes)]
        if len(branches) == len(nodes):
            beside = nodes_of_servers(bundles, nodes) if bundle.role is Role.SERVER else ()
            found = nodes_for(copy, job, bundle, now=now, avoid=avoid, is_lasting=True, beside=beside)
            branches.append((len(capacity.log), found))
        at = next(branches[-1][1], None)
        if at is not None:
            capacity.allocate(at, bundle.shape, now=now)
            nodes.append(at)
        elif nodes:
            branches.pop()
            nodes.pop()
            copy.roll_back(branches[-1][0])
        else:
            return None
    return placements_on(copy, bundles, nodes) if len(nodes) == len(bundles) else None


def exceeds_capacity(copy: WorkingCopy, bundles: Sequence[Bundle], *, now: bool, avoid: Mask | None) -> bool:
    """True if the nodes hold fewer pods of one of these shapes than are wanted, wherever the others go."""
    capacity = copy.capacity
    amounts = np.minimum(capacity.later, capacity.free) if now else capacity.later
    return any(
        count > 1 and (most := capacity.copies_among(amounts, shape, avoid)) is not None and most < count
        for shape, count in Counter(bundle.shape for bundle in bundles).items()
    )


def place_in_runs(
    copy: WorkingCopy, job: PlannedJob, bundles: Sequence[Bundle], *, now: bool, avoid: Mask | None
) -> Placements | None:
    """Place each bundle on the best node, without backtracking; bundles that are alike are placed together."""
    nodes: list[int] = []
    for bundle, run in groupby(bundles):
        count = len(list(run))
        if fills_node_by_node(copy, job, bundle):
            found = allocate_tightest(copy, bundle.shape, count, now=now, avoid=avoid)
        else:
            found = allocate_by_ones(
                copy, job, bundle, count, now=now, avoid=avoid, beside=nodes_of_servers(bundles, nodes)
            )
        nodes += found
        if len(found) < count:
            return None
    return placements_on(copy, bundles, nodes)


def fills_node_by_node(copy: WorkingCopy, job: PlannedJob, bundle: Bundle) -> bool:
    """True if tightness alone decides where such bundles go, so that they fill one node after the other."""
    per_node = job.spec.trainer.per_node if bundle.role is Role.TRAINER else 1
    is_whole = bundle.copies == per_node
    is_spread = bundle.role is Role.SERVER and prefers_anti_affinity(job)
    return is_whole and not is_spread and not is_held_back_by_devices(copy, bundle.shape)


def allocate_by_ones(
    copy: WorkingCopy,
    job: PlannedJob,
    bundle: Bundle,
    count: int,
    *,
    now: bool,
    avoid: Mask | None,
    beside: Sequence[int],
) -> list[int]:
    """Allocate up to `count` such bundles, each on the node that is then the best; return the nodes."""
    nodes: list[int] = []
    while len(nodes) < count:
        servers = [*beside, *nodes] if bundle.role is Role.SERVER else ()
        at = next(nodes_for(copy, job, bundle, now=now, avoid=avoid, is_lasting=True, beside=servers), None)
        if at is None:
            break
        copy.capacity.allocate(at, bundle.shape, now=now)
        nodes.append(at)
    return nodes


def placements_on(copy: WorkingCopy, bundles: Sequence[Bundle], nodes: Sequence[int]) -> Placements:
    """Return the placements of bundles on their nodes, one for each pod."""
    return [
        placement for bundle, at in zip(bundles, nodes, strict=True) for placement in placements_of(copy, bundle, at)
    ]


def nodes_of_servers(bundles: Sequence[Bundle], nodes: Sequence[int]) -> Sequence[int]:
    """Return the nodes of the servers among the first bundles, which are placed on `nodes`."""
    return [at for bundle, at in zip(bundles, nodes, strict=False) if bundle.role is Role.SERVER]


def placements_of(copy: WorkingCopy, bundle: Bundle, at: int) -> Placements:
    """Return the placements of a bundle on a node, one for each pod."""
    return [(bundle.role, copy.capacity.names[at])] * bundle.copies


def try_place_on(copy: WorkingCopy, job: PlannedJob, placements: Iterable[tuple[Role, NodeName]], *, now: bool) -> bool:
    """Place the pods on these nodes; return False, with the trial to be rolled back, if one no longer fits."""
    placements = list(placements)
    if copy.quotas.find_problem(job, [role for role, _ in placements], now=now):
        return False
    for role, node in placements:
        at = copy.capacity.index.get(node)
        if at is None or not copy.capacity.fits(at, job.shapes[role], now=now):
            return False
        place_pod(copy, job, role, node, now=now)
    return True


def try_place_reclaiming(
    copy: WorkingCopy, job: PlannedJob, roles: Iterable[Role], permit: ReclaimPermit, *, avoid: Mask | None = None
) -> Placements | None:
    """Reserve capacity for the pods as `try_place_all`, removing surplus where it is missing. To be called in a
    trial."""
    placements: Placements = []
    roles = list(roles)
    if copy.quotas.find_problem(job, roles, now=False):
        return None
    bundles = bundles_of(copy, job, largest_first(copy, job, roles))
    if len(bundles) > 1 and exceeds_reclaimable(copy, job, bundles, permit, avoid):
        return None
    for bundle in bundles:
        at = next(nodes_for(copy, job, bundle, now=False, avoid=avoid, is_lasting=True), None)
        if at is None:
            at = vacate_for(copy, job, bundle, permit, avoid)
        if at is None:
            return None
        for role, node in placements_of(copy, bundle, at):
            place_pod(copy, job, role, node, now=False)
            placements.append((role, node))
    return placements


def exceeds_reclaimable(
    copy: WorkingCopy, job: PlannedJob, bundles: Sequence[Bundle], permit: ReclaimPermit, avoid: Mask | None
) -> bool:
    """True if the nodes hold fewer pods of one of these shapes than are wanted, even if all that may be taken left."""
    reclaimable = reclaimable_for(copy, full_rank(job.spec.priority), permit.protected_priority)
    wanted = Counter(bundle.shape for bundle in bundles)
    return any((most := reclaimable.copies(shape, avoid)) is not None and most < wanted[shape] for shape in wanted)


def vacate_for(
    copy: WorkingCopy, job: PlannedJob, bundle: Bundle, permit: ReclaimPermit, avoid: Mask | None
) -> int | None:
    """Remove the cheapest surplus so that the bundle fits, and return the node; None if no surplus helps."""
    waste = waste_of_swap(copy, bundle.shape, crowding_of(copy, job, bundle.role))
    victims = cheapest_victims(
        copy,
        bundle.shape,
        full_rank(job.spec.priority),
        avoid=avoid,
        protected_priority=permit.protected_priority,
        side_cost=None if waste is None else lambda victims: (0, float(waste([victims.at])[0])),
        least_side_cost=None if waste is None else lambda nodes, _: least_costs_of_swap(nodes, waste),
    )
    if victims is None:
        return None
    for owner, pods in victims.taken:
        shrink(copy, owner, pods, Cause.CORE_SWAP if owner is job else permit.cause, beneficiary=job.spec.name)
    return victims.at


def least_costs_of_swap(nodes: IntArray, waste: Callable[[Sequence[int]], NodeScores]) -> LeastCosts:
    """Return the bounds: the waste does not depend on the victims."""
    return LeastCosts(np.zeros_like(nodes), waste(nodes.tolist()))


def waste_of_swap(copy: WorkingCopy, shape: int, crowding: Crowding) -> Callable[[Sequence[int]], NodeScores] | None:
    """Return what it costs nodes to have the pod in place of their surplus; None where waste is not weighed."""
    waste = waste_of(copy)
    if not waste.is_weighed:
        return None

    def of_nodes(nodes: Sequence[int]) -> NodeScores:
        costs = waste.costs_if_vacated(shape, nodes)
        return costs + [crowding.get(at, 0.0) * ABOVE_SLACK for at in nodes] if crowding else costs

    return of_nodes


def place_pod(copy: WorkingCopy, job: PlannedJob, role: Role, node: NodeName, *, now: bool) -> None:
    """Create the pod on its node `now`, or reserve its capacity."""
    if now:
        copy.create(job, role, Tier.CORE, node, Cause.REFILL if job.is_running else Cause.START)
    else:
        copy.reserve(job, role, Tier.CORE, node)


def largest_first(copy: WorkingCopy, job: PlannedJob, roles: Iterable[Role]) -> list[Role]:
    """Order roles by the part of the cluster that one pod takes, largest first."""
    parts = {role: share_of(copy, job, [role]) for role in Role if role in job.shapes}
    return sorted(roles, key=lambda role: (-parts[role], role))
