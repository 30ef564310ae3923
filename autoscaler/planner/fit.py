"""On which node a pod goes, once it is settled that it may come.

EDL's own pods take the tightest room that holds them, among those that they harm alike (`waste`): large holes stay for
gangs and for the web, which the scheduler sends to the emptiest node.  Other people's pods are expected where the
scheduler's default score (LeastAllocated) would put them; guessing best fit for them loses rooms (`kubernetes.md` 16).
Scores of nodes may be floats: the resources are summed in one fixed order, and ties go to the first name (A5).

Nodes go by their place in `rooms`, shapes by their number.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heapreplace
from math import inf
from typing import Final

import numpy as np

from autoscaler.planner.draft import Draft
from autoscaler.planner.node_arrays import Mask, PlainNode
from autoscaler.planner.plain_rooms import slacks_of, without_surplus
from autoscaler.planner.rooms import Scores

FEW_OF_NODES: Final = 64
"""One search for the emptiest node among so many takes as long as one step of a heap over them."""


def rooms_by_tightness(draft: Draft, shape: int, *, now: bool, avoid: Mask | None = None) -> Iterator[int]:
    """Yield the nodes that accept and hold the pod, the tightest first; who asks for one pays for one.

    Take a further one only while the draft is as it was at the first.
    """
    if avoid is None:
        first = draft.rooms.tightest(shape, now=now)
        if first < 0:
            return
        yield first
    scores = draft.rooms.fitting(shape).scores(now=now)
    if avoid is not None:
        scores = np.where(avoid, inf, scores)
    order = scores.argsort(kind="stable")
    yield from order[0 if avoid is not None else 1 : int(np.count_nonzero(scores < inf))].tolist()


def emptiest_room(draft: Draft, shape: int, *, now: bool, is_there: bool = True) -> int | None:
    """Return the node that kube-scheduler's LeastAllocated score prefers; ties to the first name.

    A pod that is not there yet (`is_there`) goes to the one that would be emptiest without surplus, among those that
    have room as things are.  So it stands where it stood when trainers come and go around it, and a plan that is
    carried out does not move it (ADR 0114).
    """
    scores = emptiness(draft, shape, now=now, is_there=is_there)
    if not len(scores):
        return None
    best = int(scores.argmax())
    return None if scores[best] == -inf else best


def emptiness(draft: Draft, shape: int, *, now: bool, is_there: bool) -> Scores:
    """Return by node the part that stays free beside one such pod; minus infinity where it does not fit."""
    slack = draft.rooms.fitting(shape).scores(now=now)
    wanted = slack if is_there else draft.rooms.slack_without_surplus(shape)
    return np.where(slack == inf, -inf, wanted)


def take_emptiest(draft: Draft, shape: int, count: int, *, now: bool, is_there: bool = True) -> list[int]:
    """Give pods of others room, one after the other on the node that is then the emptiest; return the nodes.

    Fewer than `count` where there is no more room.  As `emptiest_room` and `Rooms.take` for each, at the price of a
    heap.
    """
    rooms = draft.rooms
    if count * FEW_OF_NODES < len(rooms):
        return take_emptiest_by_ones(draft, shape, count, now=now, is_there=is_there)
    scores = emptiness(draft, shape, now=now, is_there=is_there)
    fitting = (scores > -inf).nonzero()[0]
    heap = [(-score, at) for score, at in zip(scores[fitting].tolist(), fitting.tolist(), strict=True)]
    heapify(heap)
    amounts = rooms.asked_amounts(shape)
    left: dict[int, PlainNode] = {}
    taken: list[int] = []
    while heap and len(taken) < count:
        at = heap[0][1]
        taken.append(at)
        room = left.get(at) or rooms.plain(at)
        left[at] = room = [
            (later - asked, free - asked if now else free, whole)
            for (later, free, whole), asked in zip(room, amounts, strict=True)
        ]
        slack = slacks_of(room, amounts)[now]
        if slack < inf and not is_there:
            slack, _ = slacks_of(without_surplus(room, rooms.surplus[:, at].tolist()), amounts)
        if slack < inf:
            heapreplace(heap, (-slack, at))
        else:
            heappop(heap)
    if taken:
        rooms.take_free(taken, shape, now=now)
    return taken


def take_emptiest_by_ones(draft: Draft, shape: int, count: int, *, now: bool, is_there: bool) -> list[int]:
    """As `take_emptiest`, for few pods on many nodes."""
    taken: list[int] = []
    while len(taken) < count and (at := emptiest_room(draft, shape, now=now, is_there=is_there)) is not None:
        draft.rooms.take(at, shape, now=now)
        taken.append(at)
    return taken


def fits_an_empty_node(draft: Draft, shape: int) -> bool:
    """Whether any node of the cluster, empty, could hold the pod.  If not, nothing that EDL does can help it."""
    return draft.rooms.fits_empty(shape)


def nearest_room(draft: Draft, shape: int) -> int | None:
    """Return the open node that lacks least for the pod, for the explanation; None if none accepts it."""
    rooms = draft.rooms
    lack = np.where(rooms.accepted(shape) & rooms.is_open, 0.0, inf)
    for column, amount in enumerate(draft.shapes.amounts[shape]):
        if amount > 0:
            lack += (np.maximum(amount - rooms.later[column], 0) / amount).astype(np.float64)
    best = int(lack.argmin()) if len(lack) else -1
    return None if best < 0 or lack[best] == inf else best
