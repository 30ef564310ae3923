"""Node choice: on which node a pod goes, EDL's own or an external one.

EDL's own pods go where they waste least, and among such nodes to the tightest (`waste`): large holes stay for gangs and
for web pods, which the scheduler sends to the emptiest node. External pods are expected where kube-scheduler's default
score (LeastAllocated) would put them, since guessing best fit for them would plan for capacity that they do not take
(`beside-the-scheduler.md` 16). Scores of nodes may be floats: resources are summed in one fixed order, and ties go to
the first name (A5).

Nodes go by their place in `capacity`, shapes by their number.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from heapq import heapify, heappop, heapreplace
from math import inf
from types import MappingProxyType
from typing import Final

import numpy as np

from autoscaler.planner.placement.device_reserve import nodes_with_blocked_devices
from autoscaler.planner.placement.waste import ABOVE_SLACK, waste_of
from autoscaler.planner.working_copy.free_capacity import NodeScores
from autoscaler.planner.working_copy.node_arrays import Mask
from autoscaler.planner.working_copy.shapes import PlainNode, slacks_of, without_surplus
from autoscaler.planner.working_copy.working_copy import WorkingCopy

FEW_OF_NODES: Final = 64
"""Number of nodes among which one search for the emptiest takes as long as one step of a heap over them."""

Crowding = Mapping[int, float]
"""Extra cost by node, in grains (`colocation.crowding_of`)."""

NO_CROWDING: Final[Crowding] = MappingProxyType({})


def nodes_by_tightness(copy: WorkingCopy, shape: int, *, now: bool, avoid: Mask | None = None) -> Iterator[int]:
    """Yield the nodes that accept and hold the pod, the tightest first; taking one costs one search.

    A further one may be taken only while the copy is as it was at the first.
    """
    if avoid is None:
        first = copy.capacity.tightest(shape, now=now)
        if first < 0:
            return
        yield first
    scores = copy.capacity.fitting(shape).scores(now=now)
    if avoid is not None:
        scores = np.where(avoid, inf, scores)
    order = scores.argsort(kind="stable")
    yield from order[0 if avoid is not None else 1 : int(np.count_nonzero(scores < inf))].tolist()


def allocate_tightest(copy: WorkingCopy, shape: int, count: int, *, now: bool, avoid: Mask | None) -> list[int]:
    """Allocate up to `count` pods, each on the node that is then the tightest; return the nodes.

    A node that takes one is tighter afterwards, so it takes as many as it holds before the next node takes any. The
    result is that of `nodes_by_tightness` and `allocate` for each pod, at the cost of one sort.
    """
    capacity = copy.capacity
    by_node = capacity.copies_in(np.minimum(capacity.later, capacity.free) if now else capacity.later, shape)
    order = np.array([*nodes_by_tightness(copy, shape, now=now, avoid=avoid)], dtype=np.intp)
    if by_node is None:
        filled = order[:1].repeat(count).tolist()
    else:
        copies = np.minimum(by_node[order], count).astype(np.intp)
        enough = int(np.searchsorted(np.cumsum(copies), count)) + 1
        filled = order[:enough].repeat(copies[:enough])[:count].tolist()
    if filled:
        capacity.allocate_free(filled, shape, now=now)
    return filled


def emptiest_node(copy: WorkingCopy, shape: int, *, now: bool, exists: bool = True) -> int | None:
    """Return the node that kube-scheduler's LeastAllocated score prefers; ties go to the first name.

    A pod that does not exist yet (`exists` False) goes to the node that would be emptiest without surplus, among
    those where it fits now. So it stays where it was when trainers come and go around it, and a plan that is carried
    out does not move it (ADR 0114).
    """
    scores = emptiness(copy, shape, now=now, exists=exists)
    if not len(scores):
        return None
    best = int(scores.argmax())
    return None if scores[best] == -inf else best


def emptiness(copy: WorkingCopy, shape: int, *, now: bool, exists: bool) -> NodeScores:
    """Return by node the part that stays free beside one such pod; minus infinity where it does not fit."""
    slack = copy.capacity.fitting(shape).scores(now=now)
    wanted = slack if exists else copy.capacity.slack_without_surplus(shape)
    return np.where(slack == inf, -inf, wanted)


def allocate_emptiest(copy: WorkingCopy, shape: int, count: int, *, now: bool, exists: bool = True) -> list[int]:
    """Place external pods, one after the other on the node that is then the emptiest; return the nodes.

    Returns fewer than `count` if no more fit. The result is that of `emptiest_node` and `allocate` for each
    pod, at the cost of a heap.
    """
    capacity = copy.capacity
    if count * FEW_OF_NODES < len(capacity):
        return allocate_emptiest_by_ones(copy, shape, count, now=now, exists=exists)
    scores = emptiness(copy, shape, now=now, exists=exists)
    fitting = (scores > -inf).nonzero()[0]
    heap = [(-score, at) for score, at in zip(scores[fitting].tolist(), fitting.tolist(), strict=True)]
    heapify(heap)
    amounts = capacity.request_amounts(shape)
    left: dict[int, PlainNode] = {}
    taken: list[int] = []
    while heap and len(taken) < count:
        at = heap[0][1]
        taken.append(at)
        node = left.get(at) or capacity.plain(at)
        left[at] = node = [
            (later - requests, free - requests if now else free, allocatable)
            for (later, free, allocatable), requests in zip(node, amounts, strict=True)
        ]
        slack = slacks_of(node, amounts)[now]
        if slack < inf and not exists:
            slack, _ = slacks_of(without_surplus(node, capacity.surplus[:, at].tolist()), amounts)
        if slack < inf:
            heapreplace(heap, (-slack, at))
        else:
            heappop(heap)
    if taken:
        capacity.allocate_free(taken, shape, now=now)
    return taken


def allocate_emptiest_by_ones(copy: WorkingCopy, shape: int, count: int, *, now: bool, exists: bool) -> list[int]:
    """Do the same for few pods on many nodes."""
    taken: list[int] = []
    while len(taken) < count and (at := emptiest_node(copy, shape, now=now, exists=exists)) is not None:
        copy.capacity.allocate(at, shape, now=now)
        taken.append(at)
    return taken


def node_with_least_deficit(copy: WorkingCopy, shape: int) -> int | None:
    """Return the open node that lacks least for the pod, for the explanation; None if none accepts it."""
    capacity = copy.capacity
    lack = np.where(capacity.accepted(shape) & capacity.is_open, 0.0, inf)
    for column, amount in enumerate(copy.shapes.amounts[shape]):
        if amount > 0:
            lack += (np.maximum(amount - capacity.later[column], 0) / amount).astype(np.float64)
    best = int(lack.argmin()) if len(lack) else -1
    return None if best < 0 or lack[best] == inf else best


def least_waste(
    copy: WorkingCopy, shape: int, *, now: bool, is_lasting: bool = False, crowding: Crowding = NO_CROWDING
) -> int | None:
    """Return the node that the pod wastes least of, and of such nodes the tightest; ties go to the first name.

    `is_lasting`: a core pod, for which surplus on the node leaves sooner or later.
    """
    return next(nodes_by_waste(copy, shape, now=now, is_lasting=is_lasting, crowding=crowding), None)


def nodes_by_waste(
    copy: WorkingCopy,
    shape: int,
    *,
    now: bool,
    avoid: Mask | None = None,
    is_lasting: bool = False,
    crowding: Crowding = NO_CROWDING,
) -> Iterator[int]:
    """Yield all nodes that `least_waste` could choose, in its order.

    The device reserve is never used by surplus, and by core pods only if no other node fits.
    """
    blocked = nodes_with_blocked_devices(copy, shape)
    if blocked is None:
        yield from by_waste(copy, shape, now=now, avoid=avoid, is_lasting=is_lasting, crowding=crowding)
        return
    avoided = blocked if avoid is None else avoid | blocked
    yield from by_waste(copy, shape, now=now, avoid=avoided, is_lasting=is_lasting, crowding=crowding)
    if is_lasting:
        unblocked = ~blocked if avoid is None else avoid | ~blocked
        yield from by_waste(copy, shape, now=now, avoid=unblocked, is_lasting=is_lasting, crowding=crowding)


def by_waste(
    copy: WorkingCopy, shape: int, *, now: bool, avoid: Mask | None, is_lasting: bool, crowding: Crowding
) -> Iterator[int]:
    """Yield the nodes that are not to be avoided, by waste and tightness."""
    waste = waste_of(copy)
    if not waste.is_weighed and not crowding:
        yield from nodes_by_tightness(copy, shape, now=now, avoid=avoid)
        return
    best = -1
    if avoid is None and not crowding:
        first = copy.capacity.tightest(shape, now=now)
        if first < 0:
            return
        if waste.is_least(first, shape, is_lasting=is_lasting):
            best = first
            yield best
    costs = waste.costs(shape, is_lasting=is_lasting) if waste.is_weighed else 0.0
    scores = copy.capacity.fitting(shape).scores(now=now) + costs
    for at, grains in crowding.items():
        scores[at] += grains * ABOVE_SLACK
    if avoid is not None:
        scores[avoid] = inf
    order = scores.argsort(kind="stable")
    yield from (at for at in order[: int(np.count_nonzero(scores < inf))].tolist() if at != best)
