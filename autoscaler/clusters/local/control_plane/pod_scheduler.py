"""Scheduler: binds pending pods to nodes as kube-scheduler would.

`scheduling` chooses the node.  A pod that fits nowhere gets the condition Unschedulable, which is the planner's demand.
The scheduler preempts nobody: the planner of a run chooses every victim (`Reclaim.PLANNER`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

from autoscaler.clusters.kubernetes.api.api_port import Raw
from autoscaler.clusters.kubernetes.api.kinds import NODES, PODS
from autoscaler.clusters.kubernetes.memory_api import MemoryServer
from autoscaler.clusters.kubernetes.objects.fields import (
    ENDED_PHASES,
    condition_of,
    created_at_s,
    integer,
    key_of,
    parts,
    text,
)
from autoscaler.clusters.kubernetes.parsing.node_objects import parse_node
from autoscaler.clusters.kubernetes.parsing.pod_requests import pod_request
from autoscaler.clusters.kubernetes.parsing.pod_shapes import shape_of_spec
from autoscaler.clusters.local.machine.scheduling import place_pending
from autoscaler.domain import JobName, Node, NodeName, Pod, PodName, PodPhase, Resources, Role, Tier
from autoscaler.fault_isolation import GuardedTask, JobErrors, raw_object_key

_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"


def schedule_pods(server: MemoryServer, errors: JobErrors) -> None:
    """Each pending pod without gates is bound, or is told once that no node has room for it."""
    pods = server.all(PODS)
    found = errors.read_each(pods, _key_of, GuardedTask.PODS, _read_pending, passing=())
    if not found:
        return
    nodes = [parse_node(raw) for raw in server.all(NODES)]
    free = free_capacity(nodes, pods, errors)
    placed = place_pending(
        [one.pod for one in found], nodes, free, preferred={one.pod.name: one.preferred for one in found}
    )
    for one in found:
        node = placed[one.pod.name]
        bind = partial(_bind, server, one.raw, node, len(nodes))
        errors.attempt(_key_of(one.raw), GuardedTask.POD_BINDING, bind, passing=())


def _bind(server: MemoryServer, pod: Raw, node: NodeName | None, nodes: int) -> None:
    if node is not None:
        server.bind(pod["metadata"]["namespace"], pod["metadata"]["name"], node)
    elif condition_of(pod, "PodScheduled").get("reason") != "Unschedulable":
        verdict = _unschedulable(nodes)
        server.rewrite(PODS, pod, {**pod, "status": {**pod["status"], "conditions": [verdict]}})


def free_capacity(nodes: Iterable[Node], pods: Iterable[Raw], errors: JobErrors) -> dict[NodeName, Resources]:
    """Free capacity of the nodes: a pod holds its requests from its binding until it has ended."""
    free = {node.name: node.allocatable for node in nodes}
    for node, held in errors.read_each(pods, _key_of, GuardedTask.PODS, _read_held, passing=()):
        if node in free:
            free[node] -= held
    return free


def _read_held(pod: Raw) -> tuple[NodeName, Resources] | None:
    """The node of a bound pod, and what it holds there."""
    node = NodeName(text(pod, "spec", "nodeName"))
    if not node or text(pod, "status", "phase") in ENDED_PHASES:
        return None
    return node, pod_request(pod["spec"], pod["status"])


def is_pending(pod: Raw) -> bool:
    """True if the pod waits for a node, no gate holds it and nobody has deleted it."""
    is_waiting = not text(pod, "spec", "nodeName") and not parts(pod, "spec", "schedulingGates")
    return is_waiting and "deletionTimestamp" not in pod["metadata"]


def preferred_nodes(pod: Raw) -> frozenset[str]:
    """The nodes that the pod's affinity prefers by name: where EDL has proved room for a master."""
    terms = parts(pod, "spec", "affinity", "nodeAffinity", _PREFERRED)
    fields = [field for term in terms for field in parts(term, "preference", "matchFields")]
    return frozenset(name for field in fields for name in field.get("values") or ())


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingPod:
    """A pod that waits for a node: its object, what placing it depends on, and the nodes that it prefers."""

    raw: Raw
    pod: Pod
    preferred: frozenset[str]


def _read_pending(pod: Raw) -> PendingPod | None:
    return PendingPod(raw=pod, pod=_read(pod), preferred=preferred_nodes(pod)) if is_pending(pod) else None


def _key_of(pod: Raw) -> JobName:
    """Name under which faults with the pod are kept."""
    return raw_object_key("pod", pod)


def _read(pod: Raw) -> Pod:
    """Pod as its placement reads it; its shape holds the node that EDL has tied it to."""
    return Pod(
        name=PodName(key_of(pod)),
        role=Role.EXTERNAL,
        tier=Tier.EXTERNAL,
        shape=shape_of_spec(pod["spec"]),
        phase=PodPhase.PENDING,
        priority=integer(pod, "spec", "priority"),
        created_at_s=created_at_s(pod),
    )


def _unschedulable(nodes: int) -> dict[str, Any]:
    """The verdict in kube-scheduler's words, by which the planner knows that room is what the pod lacks."""
    return {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": f"0/{nodes} nodes are available: {nodes} Insufficient cpu.",
        "lastTransitionTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
