"""Node -> domain Node, and the capacity of a new node that its DaemonSets will take.

Opting out (`edl.dev/opt-out`) is not parsed here: every pod of EDL requires a node without that label
(`objects.node_affinity`), so that the scheduler enforces it and other pods are not affected.  A node is draining with
the label `edl.dev/drain`, or with a taint by which autoscalers and clouds announce its end.  A cordon alone does not
count as draining: kubectl drain evicts the pods itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Final

from autoscaler.clusters.kubernetes.objects.fields import Raw, condition_of, key_of, part, parts, text
from autoscaler.clusters.kubernetes.objects.labels import DRAIN
from autoscaler.clusters.kubernetes.objects.resource_amounts import amounts_of, to_resources
from autoscaler.clusters.kubernetes.parsing.pod_shapes import READINESS_TAINTS, shape_of_template
from autoscaler.domain import Node, NodeName, Resources, Shape, Taint, TaintEffect, Toleration

DAEMONS_EXPECTED_S: Final = 60.0
"""How long capacity of a new node is kept for its DaemonSets (`beside-the-scheduler.md` 12)."""

LEAVING_TAINTS: Final = frozenset(
    {
        "ToBeDeletedByClusterAutoscaler",
        "aws-node-termination-handler/rebalance-recommendation",
        "aws-node-termination-handler/scheduled-maintenance",
        "aws-node-termination-handler/spot-itn",
        "cloud.google.com/impending-node-termination",
        "karpenter.sh/disrupted",
        "karpenter.sh/disruption",
        "node.kubernetes.io/out-of-service",
    }
)

_UNSCHEDULABLE: Final = "node.kubernetes.io/unschedulable"
_DAEMON_TOLERATIONS: Final = frozenset(
    Toleration(key=f"node.kubernetes.io/{pressure}-pressure", effect=TaintEffect.NO_SCHEDULE)
    for pressure in ("disk", "memory", "pid")
)
"""The DaemonSet controller adds them to its pods."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonSet:
    """Runs one pod on each node that accepts it."""

    name: str  # NAMESPACE/NAME
    shape: Shape


def parse_node(raw: Raw) -> Node:
    """Return the domain's node."""
    labels = {k: v for k, v in part(raw, "metadata", "labels").items() if isinstance(v, str)}
    taints = parts(raw, "spec", "taints")
    is_leaving = DRAIN in labels or any(text(taint, "key") in LEAVING_TAINTS for taint in taints)
    is_cordoned = part(raw, "spec").get("unschedulable") is True or "deletionTimestamp" in part(raw, "metadata")
    return Node(
        name=NodeName(text(raw, "metadata", "name")),
        allocatable=to_resources(amounts_of(part(raw, "status", "allocatable"))),
        labels=frozenset(labels.items()),
        taints=frozenset(_taint(taint) for taint in taints if _keeps_away(taint)),
        is_ready=condition_of(raw, "Ready").get("status") == "True",
        is_cordoned=is_cordoned or is_leaving,
        is_draining=is_leaving,
    )


def parse_daemonset(raw: Raw) -> DaemonSet:
    """Return the pods that a DaemonSet runs on each node."""
    shape = shape_of_template(part(raw, "spec", "template"))
    return DaemonSet(name=key_of(raw), shape=replace(shape, tolerations=shape.tolerations | _DAEMON_TOLERATIONS))


def reserve_for_daemons(
    node: Node, *, created_at_s: float, daemonsets: Iterable[DaemonSet], arrived: AbstractSet[str], now_s: float
) -> Node:
    """Return the node without the capacity of DaemonSets that have no pod there yet.

    The reservation ends `DAEMONS_EXPECTED_S` after the node's creation.

    `arrived`: names of the DaemonSets with a pod on this node, in any phase.  Times are on one clock.

    """
    if now_s >= created_at_s + DAEMONS_EXPECTED_S:
        return node
    missing = [d.shape.requests for d in daemonsets if d.name not in arrived and node.accepts(d.shape)]
    if not missing:
        return node
    left = node.allocatable
    for requests in missing:
        left -= requests
    return replace(node, allocatable=_not_below_zero(left))


def _not_below_zero(amounts: Resources) -> Resources:
    return Resources(
        cpu_milli=max(0, amounts.cpu_milli),
        memory_bytes=max(0, amounts.memory_bytes),
        gpu_count=max(0, amounts.gpu_count),
        extended=tuple((name, max(0, amount)) for name, amount in amounts.extended),
    )


def _keeps_away(taint: Raw) -> bool:
    key = text(taint, "key")
    return taint.get("effect") in {*TaintEffect} and key not in READINESS_TAINTS and key != _UNSCHEDULABLE


def _taint(taint: Raw) -> Taint:
    return Taint(key=text(taint, "key"), value=text(taint, "value"), effect=TaintEffect(text(taint, "effect")))
