"""Whether the room that a plan proved is still free, on the newest view: asked right before a write (A2)."""

from __future__ import annotations

from collections.abc import Iterable

from autoscaler.domain import ClusterView, NodeName, PodPhase, Resources, Shape


def find_room_problem(view: ClusterView, seats: Iterable[tuple[NodeName, Shape]], standing: frozenset[str]) -> str:
    """Return why the seats do not all fit into room that is free now; empty: they do.

    `standing`: pods that are among the seats already, so that their room is not counted twice.
    """
    wanted = tuple(seats)
    named = {node for node, _ in wanted}
    nodes = {node.name: node for node in view.nodes if node.name in named}
    free: dict[NodeName, Resources] = {name: node.allocatable for name, node in nodes.items()}
    for pod in view.pods:
        if pod.place in free and pod.phase is not PodPhase.GATED and pod.name not in standing:
            free[pod.place] -= pod.requests
    for name, shape in wanted:
        node = nodes.get(name)
        if node is None or not node.is_open() or not node.accepts(shape):
            return f"node {name} takes no such pods"
        if not shape.requests.fits_into(free[name]):
            return f"the room on {name} is taken"
        free[name] -= shape.requests
    return ""
