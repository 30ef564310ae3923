"""Which node a pending pod goes to, as kube-scheduler would decide for these pods: a filter, then LeastAllocated.

Only web pods come here; EDL's own pods arrive with their node (`autoscaler.planner`).  A pod that fits nowhere stays
pending with its verdict, which is the planner's demand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autoscaler.domain import Node, NodeName, Pod, PodName, Resources


def place_pending(
    pending: Sequence[Pod], nodes: Sequence[Node], free: Mapping[NodeName, Resources]
) -> dict[PodName, NodeName | None]:
    """A node for each pod, None for those that fit nowhere; higher priority first, then the older, then by name."""
    room = dict(free)
    placed: dict[PodName, NodeName | None] = {}
    for pod in sorted(pending, key=lambda p: (-p.priority, p.created_at_s, p.name)):
        fitting = [n for n in nodes if n.is_open() and n.accepts(pod.shape) and pod.requests.fits_into(room[n.name])]
        best = max(fitting, key=lambda n: (score_least_allocated(n, room[n.name] - pod.requests), n.name), default=None)
        placed[pod.name] = best.name if best is not None else None
        if best is not None:
            room[best.name] -= pod.requests
    return placed


def score_least_allocated(node: Node, free: Resources) -> int:
    """kube-scheduler's default score: the mean of the free percentages of cpu and memory, in whole numbers."""
    pairs = (
        (free.cpu_milli, node.allocatable.cpu_milli),
        (free.memory_bytes, node.allocatable.memory_bytes),
    )
    scores = [part * 100 // whole for part, whole in pairs if whole > 0]
    return sum(scores) // len(scores) if scores else 0
