"""One pod of the simulated cluster, from its creation until after its removal.

Mutable, since a run of ten minutes moves thousands of pods through their phases; `world` is the only writer.  `to_view`
is the planner's pod, `run_recorder.PodTimeline` what remains of one in the record.
"""

from __future__ import annotations

from dataclasses import dataclass

from autoscaler.domain import JobName, NodeName, Pod, PodName, PodPhase, Role, Shape, Tier, WorkloadName


@dataclass(slots=True, kw_only=True, eq=False)
class SimPod:
    """One pod.  Times are seconds of virtual time; None: not yet."""

    name: PodName
    role: Role
    tier: Tier
    shape: Shape
    owner: str  # the job or the Deployment; empty: a daemon of its node
    priority: int
    ordinal: int = 0
    grace_s: float = 30.0
    can_preempt: bool = False
    spread_group: str | None = None  # pods of one ReplicaSet keep apart
    generation: int = 0  # of the template of its Deployment
    kind: int = 0  # pods of one shape have one kind
    amounts: tuple[int, ...] = ()  # what it requests, by the table's resources
    controller: str | None = None  # the controller that replaces it; None: it is not replaced
    tie_break: float = 0.0  # in [0, 1): orders what its controller finds equal
    phase: PodPhase = PodPhase.PENDING
    node: NodeName | None = None
    nominated_node: NodeName | None = None
    created_at_s: float = 0.0
    bound_at_s: float | None = None
    running_at_s: float | None = None
    terminating_at_s: float | None = None
    gone_at_s: float | None = None
    unschedulable_since_s: float | None = None
    attempts: int = 0  # of the scheduler
    queued_at_s: float = 0.0  # last put into the scheduler's queue
    starts: int = 0  # how often its process was started
    is_working: bool = False  # it trains or serves, on a live node, and is not terminating
    is_occupying: bool = False  # counted in the usage of running pods
    was_drained: bool | None = None  # it ended by itself within its grace; None: it has not ended
    at_risk_samples: float = 0.0  # what is lost unless it hands over
    is_preempted: bool = False  # the scheduler preempted it
    end_reason: str = ""  # reason of its termination

    @property
    def is_leaving(self) -> bool:
        return self.phase is PodPhase.TERMINATING

    @property
    def is_external(self) -> bool:
        return self.role is Role.EXTERNAL


def to_view(pod: SimPod) -> Pod:
    """Return the pod as the planner sees it."""
    is_external = pod.role is Role.EXTERNAL
    return Pod(
        name=pod.name,
        role=pod.role,
        tier=pod.tier,
        shape=pod.shape,
        phase=pod.phase,
        priority=pod.priority,
        node=pod.node,
        nominated_node=pod.nominated_node,
        job=None if is_external else JobName(pod.owner),
        ordinal=0 if is_external else pod.ordinal,
        workload=WorkloadName(pod.owner) if is_external and pod.owner else None,
        created_at_s=pod.created_at_s,
        unschedulable_since_s=pod.unschedulable_since_s,
        can_preempt=pod.can_preempt,
        is_preempted=pod.is_preempted,
    )
