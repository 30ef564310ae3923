"""Capacity check right before a write: the capacity that a plan proved must be free on the newest view (A2)."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TypeAlias

from autoscaler.domain import ClusterView, CreatePod, NodeName, PodName, PodPhase, Resources, Shape

NodePlacement: TypeAlias = tuple[NodeName, Shape]


def find_capacity_problem(
    view: ClusterView,
    placements: Iterable[NodePlacement],
    existing: Collection[PodName],
    *,
    reserved: Iterable[NodePlacement] = (),
) -> str:
    """Return why the placements do not all fit into free capacity; empty if they do.

    `existing`: pods that are placed so already; their capacity is not counted twice.  `reserved`: capacity of other
    pods that the view does not show yet.
    """
    wanted = tuple(placements)
    named = {node for node, _ in wanted}
    nodes = {node.name: node for node in view.nodes if node.name in named}
    free: dict[NodeName, Resources] = {name: node.allocatable for name, node in nodes.items()}
    for pod in view.pods:
        if pod.place in free and pod.phase is not PodPhase.GATED and pod.name not in existing:
            free[pod.place] -= pod.requests
    for name, shape in reserved:
        if name in free:
            free[name] -= shape.requests
    for name, shape in wanted:
        node = nodes.get(name)
        if node is None or not node.is_open() or not node.accepts(shape):
            return f"node {name} does not accept pods of this shape"
        if not shape.requests.fits_into(free[name]):
            return f"node {name} has no free capacity any more"
        free[name] -= shape.requests
    return ""


def find_existing_pods(view: ClusterView, placements: Iterable[CreatePod]) -> frozenset[PodName]:
    """Return the pods that are placed so already, on the same nodes.

    A terminating pod does not count: its capacity is not free until it is gone, for its own job neither (A1).
    """
    wanted = {(placement.job, placement.role, placement.ordinal, placement.node) for placement in placements}
    jobs = {job for job, *_ in wanted}
    return frozenset(
        pod.name
        for pod in view.pods
        if pod.job in jobs
        and pod.phase is not PodPhase.TERMINATING
        and (pod.job, pod.role, pod.ordinal, pod.place) in wanted
    )
