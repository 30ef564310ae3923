"""On which node a pod goes, once it is settled that it may come.

EDL's own pods take the tightest room that holds them, among those that they harm alike (`waste`): large holes stay for
gangs and for the web, which the scheduler sends to the emptiest node.  Other people's pods are expected where the
scheduler's default score (LeastAllocated) would put them; guessing best fit for them loses rooms (`kubernetes.md` 16).
Scores of nodes may be floats: the resources are summed in one fixed order, and ties go to the first name (A5).

Nodes go by their place in `rooms`, shapes by their number.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

import numpy as np

from autoscaler.planner.draft import Draft
from autoscaler.planner.rooms import Mask


def tightest_room(draft: Draft, shape: int, *, now: bool, avoid: Mask | None = None) -> int | None:
    """Return the node that the pod leaves fullest; ties to the first name."""
    return next(rooms_by_tightness(draft, shape, now=now, avoid=avoid), None)


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


def emptiest_room(draft: Draft, shape: int, *, now: bool) -> int | None:
    """Return the node that kube-scheduler's LeastAllocated score prefers; ties to the first name."""
    scores = draft.rooms.fitting(shape).scores(now=now)
    if not len(scores):
        return None
    scores = np.where(scores == inf, -inf, scores)
    best = int(scores.argmax())
    return None if scores[best] == -inf else best


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
