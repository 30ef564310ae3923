"""Node for a pending pod, as kube-scheduler would choose it: a filter, preferred nodes, then LeastAllocated.

A pod that fits nowhere stays pending with its verdict, which is the planner's demand.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from autoscaler.domain import Node, NodeName, Pod, PodName, Resources


def place_pending(
    pending: Sequence[Pod],
    nodes: Sequence[Node],
    free: Mapping[NodeName, Resources],
    *,
    preferred: Mapping[PodName, Collection[str]] | None = None,
) -> dict[PodName, NodeName | None]:
    """A node for each pod, None for those that fit nowhere; higher priority first, then the older, then by name.

    `preferred`: nodes that a pod would rather have; one of them is taken before any other that fits.
    """
    wishes = preferred or {}
    room = dict(free)
    placed: dict[PodName, NodeName | None] = {}
    for pod in sorted(pending, key=lambda p: (-p.priority, p.created_at_s, p.name)):
        fitting = [n for n in nodes if n.is_open() and n.accepts(pod.shape) and pod.requests.fits_into(room[n.name])]
        scores = {
            n.name: (
                n.name in wishes.get(pod.name, ()),
                score_least_allocated(n, room[n.name] - pod.requests),
                n.name,
            )
            for n in fitting
        }
        best = max(scores, key=scores.__getitem__, default=None)
        placed[pod.name] = best
        if best is not None:
            room[best] -= pod.requests
    return placed


def score_least_allocated(node: Node, free: Resources) -> int:
    """kube-scheduler's default score: the mean of the free percentages of cpu and memory, in whole numbers."""
    pairs = (
        (free.cpu_milli, node.allocatable.cpu_milli),
        (free.memory_bytes, node.allocatable.memory_bytes),
    )
    scores = [part * 100 // whole for part, whole in pairs if whole > 0]
    return sum(scores) // len(scores) if scores else 0
