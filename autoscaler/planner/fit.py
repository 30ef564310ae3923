"""On which node a pod goes, once it is settled that it may come.

EDL's own pods take the tightest room that holds them: large holes stay for gangs and for the web, which the
scheduler sends to the emptiest node.  Other people's pods are expected where the scheduler's default score
(LeastAllocated) would put them; guessing best fit for them loses rooms (`kubernetes.md` 16).  These are scores of
nodes, so floats do: the resources are summed in one fixed order, and ties go to the first name (A5).
"""

from __future__ import annotations

from collections.abc import Collection

from autoscaler.domain import NodeName, Resources, Shape
from autoscaler.planner.draft import Draft, Room


def rooms_for(draft: Draft, shape: Shape, *, now: bool, avoid: Collection[NodeName] = ()) -> list[Room]:
    """Return the open nodes that accept and hold one such pod."""
    return [
        room
        for name, room in draft.rooms.items()
        if name not in avoid and room.has(shape.requests, now=now) and room.node.accepts(shape)
    ]


def tightest_room(draft: Draft, shape: Shape, *, now: bool, avoid: Collection[NodeName] = ()) -> Room | None:
    """Return the node that the pod leaves fullest; ties to the first name."""
    fitting = rooms_for(draft, shape, now=now, avoid=avoid)
    return min(fitting, key=lambda room: (slack(room, shape.requests), room.node.name), default=None)


def rooms_by_tightness(draft: Draft, shape: Shape, *, now: bool) -> list[Room]:
    """Return all nodes that `tightest_room` could choose, in its order."""
    fitting = rooms_for(draft, shape, now=now)
    return sorted(fitting, key=lambda room: (slack(room, shape.requests), room.node.name))


def emptiest_room(draft: Draft, shape: Shape, *, now: bool) -> Room | None:
    """Return the node that kube-scheduler's LeastAllocated score prefers; ties to the first name."""
    fitting = rooms_for(draft, shape, now=now)
    return min(fitting, key=lambda room: (-slack(room, shape.requests), room.node.name), default=None)


def slack(room: Room, requests: Resources) -> float:
    """How empty the node would be with the pod on it: the free part, summed over the resources that the pod names."""
    offered, free = room.node.allocatable, room.later
    return sum(
        (free.amount(name) - amount) / whole for name, amount in requests.amounts() if (whole := offered.amount(name))
    )


def fits_an_empty_node(draft: Draft, shape: Shape) -> bool:
    """Whether any node of the cluster, empty, could hold the pod.  If not, nothing that EDL does can help it."""
    return any(node.accepts(shape) and shape.requests.fits_into(node.allocatable) for node in draft.view.nodes)


def nearest_room(draft: Draft, shape: Shape) -> Room | None:
    """Return the open node that lacks least for the pod, for the explanation; None if none accepts it."""
    accepting = [room for room in draft.rooms.values() if room.node.accepts(shape)]
    return min(accepting, key=lambda room: (shortage(room, shape.requests), room.node.name), default=None)


def shortage(room: Room, requests: Resources) -> float:
    """What the node lacks for the pod, as a part of the request, summed over its resources."""
    return sum(max(0, amount - room.later.amount(name)) / amount for name, amount in requests.amounts())
