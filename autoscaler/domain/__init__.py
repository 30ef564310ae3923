"""The values of the cluster side: what is seen, what is wanted, what is decided.

Nothing here decides or does I/O.  `cluster` and `jobs` are what stands, `view` is all of it at one instant with
`history`, `policy` is what the owner chose, `plans` is the planner's answer.  Read `autoscaler.planner` next.
"""

from autoscaler.domain.cluster import (
    Capabilities,
    Headroom,
    JobName,
    Labels,
    Node,
    NodeName,
    Pod,
    PodName,
    PodPhase,
    Role,
    Shape,
    Tier,
    Workload,
    WorkloadName,
)
from autoscaler.domain.history import (
    History,
    Refusal,
    Reservation,
    Resize,
    RoomMade,
    RoomSeen,
    Seat,
    Shortfall,
)
from autoscaler.domain.jobs import DEFAULT_WEIGHT, Job, JobState, MasterSpec, ServerSpec, TrainerSpec
from autoscaler.domain.plans import (
    Action,
    AdmitGang,
    Bottleneck,
    Cause,
    CreatePod,
    Decision,
    DeletePod,
    Demand,
    DemandState,
    Plan,
    Reason,
    Wait,
)
from autoscaler.domain.policy import Admission, Policy, Reclaim
from autoscaler.domain.resources import NOTHING, Resources
from autoscaler.domain.view import ClusterView

__all__ = [
    "DEFAULT_WEIGHT",
    "NOTHING",
    "Action",
    "Admission",
    "AdmitGang",
    "Bottleneck",
    "Capabilities",
    "Cause",
    "ClusterView",
    "CreatePod",
    "Decision",
    "DeletePod",
    "Demand",
    "DemandState",
    "Headroom",
    "History",
    "Job",
    "JobName",
    "JobState",
    "Labels",
    "MasterSpec",
    "Node",
    "NodeName",
    "Plan",
    "Pod",
    "PodName",
    "PodPhase",
    "Policy",
    "Reason",
    "Reclaim",
    "Refusal",
    "Reservation",
    "Resize",
    "Resources",
    "Role",
    "RoomMade",
    "RoomSeen",
    "Seat",
    "ServerSpec",
    "Shape",
    "Shortfall",
    "Tier",
    "TrainerSpec",
    "Wait",
    "Workload",
    "WorkloadName",
]
