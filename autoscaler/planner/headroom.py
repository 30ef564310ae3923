"""How many pods of which shapes are to find free room before anybody asks for them.

Three settings say so: pods of a shape (`headroom`), a part of the cluster (`headroom_percent`), and a part of what
workloads with an autoscaler may still grow (`autoscaler_headroom_percent`).  They answer one question, so for each
shape the largest answer counts, not their sum.  Headroom is kept as places for whole pods of the workloads' own
shapes: a tenth of the cluster in crumbs would help nobody.  Next: `others`, which places it.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil, isfinite

from autoscaler.domain import NOTHING, ClusterView, Headroom, Policy, Resources, Shape
from autoscaler.planner.wanted import sort_key


def headroom_of(view: ClusterView, policy: Policy) -> tuple[Headroom, ...]:
    """Return the room to keep free, one entry per shape, fixed ones first."""
    counts: dict[Shape, int] = {}
    for entry in policy.headroom:
        counts[entry.shape] = counts.get(entry.shape, 0) + entry.count
    for asked in (part_of_cluster(view, policy), part_of_growth(view, policy)):
        for shape in sorted(asked, key=sort_key):
            counts[shape] = max(counts.get(shape, 0), asked[shape])
    return tuple(Headroom(shape=shape, count=count) for shape, count in counts.items() if count > 0)


def part_of_growth(view: ClusterView, policy: Policy) -> Mapping[Shape, int]:
    """Return a part of the replicas that workloads' own autoscalers may still add to what they want now."""
    counts: dict[Shape, int] = {}
    for workload in view.workloads:
        ahead = max(0, workload.max_replicas - workload.desired_replicas)
        more = ceil(ahead * percent(policy.autoscaler_headroom_percent) / 100)
        counts[workload.shape] = counts.get(workload.shape, 0) + more
    return counts


def part_of_cluster(view: ClusterView, policy: Policy) -> Mapping[Shape, int]:
    """Return a part of the ready capacity in pods of the workloads, each by its part of what they want now."""
    wanted: dict[Shape, int] = {}
    if not percent(policy.headroom_percent):
        return wanted
    for workload in view.workloads:
        wanted[workload.shape] = wanted.get(workload.shape, 0) + max(1, workload.desired_replicas)
    if not wanted or not percent(policy.headroom_percent):
        return {}
    capacity = sum((node.allocatable for node in view.nodes if node.is_ready), start=NOTHING)
    parts = {shape: part_taken(shape.requests, capacity) for shape in wanted}
    whole = sum(wanted[shape] * part for shape, part in parts.items())
    if whole <= 0.0:
        return {}
    copies = percent(policy.headroom_percent) / 100 / whole  # of the present mix of pods
    return {shape: int(copies * count + 1e-9) for shape, count in wanted.items() if parts[shape] > 0.0}


def part_taken(requests: Resources, capacity: Resources) -> float:
    """Return the largest part of any resource that one such pod takes."""
    return max(
        (amount / held for name, amount in requests.amounts() if (held := capacity.amount(name)) > 0), default=0.0
    )


def percent(setting: float) -> float:
    """A setting that is no number asks for nothing."""
    return max(0.0, setting) if isfinite(setting) else 0.0
