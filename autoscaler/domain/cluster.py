"""Nodes, pods and external workloads of a cluster.

A pod occupies its node from binding until it is gone, terminating included (`beside-the-scheduler.md` 13). Pods that
have finished are not in a view. Jobs are in `jobs`, the whole picture in `view`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NewType

from autoscaler.domain.eligibility import NODE_NAME, Labels, NodeSelectorTerm, Taint, Toleration
from autoscaler.domain.resources import Resources

NodeName = NewType("NodeName", str)
PodName = NewType("PodName", str)  # unique in a view; with its namespace in front where the cluster has namespaces
JobName = NewType("JobName", str)  # likewise
WorkloadName = NewType("WorkloadName", str)


class Role(StrEnum):
    """Purpose of a pod.  EXTERNAL: a pod that EDL never creates, deletes or moves."""

    TRAINER = "trainer"
    SERVER = "server"
    MASTER = "master"
    EXTERNAL = "external"


class Tier(StrEnum):
    """Tier of a pod, fixed at its creation; it decides who may reclaim the pod.  CORE: its job cannot run without it.

    SURPLUS: above the minimum.
    """

    CORE = "core"
    SURPLUS = "surplus"
    EXTERNAL = "external"  # not EDL's


class Trait(StrEnum):
    """Trait of a pod by which a quota scope may select it."""

    BEST_EFFORT = "BestEffort"  # asks for neither cpu nor memory
    TERMINATING = "Terminating"  # has a deadline of its own
    CROSS_NAMESPACE = "CrossNamespacePodAffinity"  # wants to be near to, or far from, pods of other namespaces


class PodPhase(StrEnum):
    """Phase of a pod, as far as capacity and job size are concerned."""

    GATED = "gated"  # not schedulable yet: counts for neither capacity nor size
    PENDING = "pending"  # waits for a node
    STARTING = "starting"  # bound, not ready
    READY = "ready"
    TERMINATING = "terminating"  # leaving, still occupies its node


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Shape of a pod: its requests and its requirements on a node.

    Pods of one shape are interchangeable to the planner.
    """

    requests: Resources
    node_selector: Labels = frozenset()  # the node carries all of these
    node_terms: tuple[NodeSelectorTerm, ...] = ()  # required affinity: one of these holds; none: every node will do
    tolerations: frozenset[Toleration] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A machine.  `allocatable` is what pods may request in total."""

    name: NodeName
    allocatable: Resources
    labels: Labels = frozenset()
    taints: frozenset[Taint] = frozenset()  # those that keep pods away
    is_ready: bool = True
    is_cordoned: bool = False  # nothing new comes; its surplus is the first voluntary victim
    is_draining: bool = False  # EDL's pods leave it; implies cordoned

    def is_open(self) -> bool:
        """True if new pods may come here."""
        return self.is_ready and not self.is_cordoned and not self.is_draining

    def accepts(self, shape: Shape) -> bool:
        """True if the shape's selector, affinity and tolerations allow this node, whatever its free capacity."""
        if not shape.node_selector <= self.labels:
            return False
        if self.taints and not all(any(t.tolerates(taint) for t in shape.tolerations) for taint in self.taints):
            return False
        if not shape.node_terms:
            return True
        labels = {**dict(self.labels), NODE_NAME: self.name}
        return any(term and all(requirement.holds(labels) for requirement in term) for term in shape.node_terms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """One pod, EDL's or not.  Times are seconds on the cluster's clock (`Cluster.now`)."""

    name: PodName
    role: Role
    tier: Tier
    shape: Shape
    phase: PodPhase
    priority: int = 0  # the pod's own value, never a class name (`beside-the-scheduler.md` 3)
    node: NodeName | None = None  # bound there
    nominated_node: NodeName | None = None  # not bound, but its capacity there is taken
    job: JobName | None = None  # of EDL's pods
    ordinal: int = 0  # of EDL's pods: unique per job and role
    workload: WorkloadName | None = None  # of external pods: their Deployment
    created_at_s: float = 0.0
    unschedulable_since_s: float | None = None  # since when the scheduler finds no node; None: not tried yet
    can_preempt: bool = False  # the scheduler itself may free capacity for it (`reclaim: scheduler`)
    is_modelled: bool = True  # False: needs something that the fit test does not know; EDL does nothing for it
    is_preempted: bool = False  # of EDL's pods: removed by the scheduler for a pod of higher priority
    replaces: PodName | None = None  # of servers: the one that this one replaces (ADR 0118)
    is_settling: bool = False  # of servers: its buckets are still moving to it, or this is unknown

    @property
    def requests(self) -> Resources:
        """Resources that the pod occupies on its node."""
        return self.shape.requests

    @property
    def place(self) -> NodeName | None:
        """Node whose capacity it takes: the bound one, else the nominated one."""
        return self.node if self.node is not None else self.nominated_node


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Replicated external pods (a web Deployment). EDL reads it and never writes it (A10)."""

    name: WorkloadName
    shape: Shape
    priority: int = 0
    desired_replicas: int = 0  # more than it has pods: announced growth
    max_replicas: int = 0  # the limit of its autoscaler; 0: it has none


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """Capabilities of a cluster's adapter.  The planner plans nothing that it cannot."""

    servers_elastic: bool = False  # parameter servers can move state while training goes on
    moves_servers: bool = False  # servers can move to another node: the successor is created first
    replaces_masters: bool = False  # a lost master is replaced by the cluster itself; the planner leaves it alone


@dataclass(frozen=True, slots=True, kw_only=True)
class Headroom:
    """Headroom: capacity kept free for `count` future pods of a shape. Minimums take precedence."""

    shape: Shape
    count: int
