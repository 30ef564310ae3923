"""A plan: actions that are safe now, what waits and why, and one decision for each job."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NewType, assert_never

from autoscaler.domain.cluster import JobName, NodeName, PodName, Role, Shape, Tier
from autoscaler.domain.history import History
from autoscaler.domain.idleness import IdleReclaim


class Reason(StrEnum):
    """Reason of a decision: what happens to a job in this plan."""

    KEPT = "Kept"
    STARTED = "Started"
    GROWN = "Grown"
    REFILLED = "Refilled"
    SHRUNK = "Shrunk"
    MOVED = "Moved"  # its size stays, a server of it goes to another node
    WAITING = "Waiting"  # a gang that cannot start yet
    STOPPED = "Stopped"
    STALE_VIEW = "StaleView"
    EXCLUDED = "Excluded"  # its planning failed: its size stays while other jobs are planned


class Bottleneck(StrEnum):
    """The constraint that keeps a job from its next size: the one that the plan records last (`PlannedJob.block`)."""

    MAX = "Max"  # it has the largest size that its spec allows
    PINNED = "Pinned"  # its spec pins the size
    NODE_FIT = "NodeFit"  # no node has capacity for one more trainer, or for the server that comes with it
    NEVER_FITS = "NeverFits"  # not even on an empty node
    PRIORITY = "Priority"  # capacity is kept for jobs of higher priority
    FAIR_SHARE = "FairShare"  # jobs of its priority with a smaller share, or less progress, come first
    STEP = "Step"  # one more would fit, a whole step does not
    GANG = "Gang"  # another gang is starting, or has reserved the capacity
    CAPACITY_DRAINING = "CapacityDraining"  # the capacity is being vacated
    QUOTA = "Quota"  # a resource quota of its namespace allows no more
    COOLDOWN = "Cooldown"  # a window of `Policy`, or the pause after failures
    BUDGET = "Budget"  # the transfers or resizes of this minute are used up
    EFFICIENCY = "Efficiency"  # its next trainers would add less than `TrainerSpec.efficiency` asks for
    RESIZE_COST = "ResizeCost"  # its growth would cost more training time than it gains (`Policy.payoff_s`)
    IDLE_HELD = "IdleHeld"  # pods of others hold GPUs that nobody uses, and that would be enough
    IDLE = "Idle"  # trainers of it do no work, or did none until they were given away
    STALE_VIEW = "StaleView"  # the view is too old to plan with
    NOT_ACTIVE = "NotActive"  # suspended, ending or over
    PLANNING_FAILED = "PlanningFailed"  # by a fault of EDL with this job


class Cause(StrEnum):
    """Cause of a pod's creation or deletion, forced or voluntarily (`is_forced`)."""

    POD = "pod"
    GANG = "gang"
    HEADROOM = "headroom"
    ANNOUNCED_GROWTH = "announced growth"
    CORE_SWAP = "core swap"
    LOST_NODE = "lost node"
    EDIT = "edit"
    PREEMPTION = "preemption"
    REFILL = "refill"  # below the minimum
    START = "start"
    FREE_CAPACITY = "free capacity"
    TRANSFER = "transfer"
    STEP = "step"  # pods beyond an allowed size
    IDLE = "idle"  # a trainer that does no work, for a job that waits for capacity
    HUNG = "hung"  # a trainer that hangs: a new process takes its place
    EFFICIENCY = "efficiency"  # pods that add too little, or whose worth is to be measured
    RATIO = "ratio"  # servers that fewer trainers no longer need
    DEFRAGMENTATION = "defragmentation"  # a server that wastes less elsewhere: the new one, then the old one

    @property
    def is_forced(self) -> bool:
        """True if the change is made at once (A6); a voluntary one keeps the windows and caps of `Policy`."""
        match self:
            case Cause.FREE_CAPACITY | Cause.TRANSFER | Cause.STEP | Cause.RATIO | Cause.DEFRAGMENTATION:
                return False
            case Cause.IDLE | Cause.EFFICIENCY:
                return False
            case Cause.POD | Cause.GANG | Cause.HEADROOM | Cause.ANNOUNCED_GROWTH | Cause.CORE_SWAP:
                return True
            case Cause.HUNG | Cause.LOST_NODE | Cause.EDIT | Cause.PREEMPTION | Cause.REFILL | Cause.START:
                return True
            case _:
                assert_never(self)

    @property
    def counts_as_resize(self) -> bool:
        """True if the change counts among a minute's voluntary resizes; moves of servers have a cap of their own."""
        return not self.is_forced and self is not Cause.DEFRAGMENTATION


JobSetting = NewType("JobSetting", str)
"""A field, or the state, of the job's own document, such as `spec.trainer.step`."""

Beneficiary = PodName | JobName | NodeName | JobSetting
"""Beneficiary of a deletion: a pod (causes POD, ANNOUNCED_GROWTH, HEADROOM, DEFRAGMENTATION), a job (GANG, TRANSFER,
IDLE, PREEMPTION, CORE_SWAP), the node that it leaves (LOST_NODE), or what the job's document says (EDIT, STEP,
EFFICIENCY, RATIO).
"""

NO_BENEFICIARY: Final = PodName("")

FOR_JOBS: Final = frozenset({Cause.GANG, Cause.PREEMPTION, Cause.TRANSFER, Cause.IDLE})
"""Causes with which a pod leaves for another job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatePod:
    """Create this pod of a job, bound to `node` (or tied to it where a scheduler binds).

    `replaces`: the server that is deleted once this one is ready; this server takes over its buckets (ADR 0118).
    """

    job: JobName
    role: Role
    ordinal: int
    tier: Tier
    node: NodeName
    cause: Cause
    grade: int = 0  # of surplus: 1 to 8, the class -grade by which a scheduler chooses victims
    replaces: PodName | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletePod:
    """Delete this pod within `grace_s`.  `beneficiary`: who gains its capacity, by `cause`."""

    pod: PodName
    job: JobName
    role: Role
    node: NodeName | None
    cause: Cause
    grace_s: float
    beneficiary: Beneficiary = NO_BENEFICIARY


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmitGang:
    """Start a job: all these pods or none.  All fit one to one into capacity that is free now (A1)."""

    job: JobName
    pods: tuple[CreatePod, ...]


Action = CreatePod | DeletePod | AdmitGang


@dataclass(frozen=True, slots=True, kw_only=True)
class DeferredChange:
    """Change that this plan would make later. It is never executed: the next plan derives it again."""

    job: JobName
    bottleneck: Bottleneck
    message: str
    until_s: float | None = None  # when time alone lifts it


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Decision on a job's size, and why. One per job and plan.

    `message`: what the plan does to the job, else its bottleneck in words.  `limit`: the bottleneck in words where
    `message` tells of a change; empty where both are one.
    """

    job: JobName
    now: int  # trainers that count as size in the view
    target: int  # 0 or an allowed size (A1)
    min: int
    max: int
    servers: int  # servers in the view
    servers_target: int
    reason: Reason
    bottleneck: Bottleneck
    message: str
    limit: str = ""
    cause: Cause | None = None  # of a change
    share: float = 0.0  # dominant share at the target, for people
    progress: float | None = None  # at the target, under `Fairness.PROGRESS`: 1 is as fast as alone on its part
    is_degraded: bool = False  # running below its minimum, or without a server or master
    notice: str = ""  # a request of the user that this cluster cannot fulfil
    held_up_by: tuple[JobName, ...] = ()  # older gangs for which capacity is reserved that it could start in

    @property
    def bottleneck_message(self) -> str:
        """The bottleneck in words, for whoever names the bottleneck beside it."""
        return self.limit or self.message


class DemandState(StrEnum):
    """State of an external pod's demand."""

    CAPACITY_FREE = "CapacityFree"  # it fits now, where the scheduler would put it
    CAPACITY_DRAINING = "CapacityDraining"  # it fits once pods that are leaving have left
    SHRUNK_FOR = "ShrunkFor"  # this plan removes trainers for it
    NO_CAPACITY = "NoCapacity"  # no surplus could help, or its priority is below core's
    IDLE_HELD = "IdleHeld"  # it would fit without pods that do not use their GPUs: `victims`
    NEVER_FITS = "NeverFits"  # not even an empty node could hold it
    SCHEDULER_REFUSED = "SchedulerRefused"  # it did not use capacity that it had
    LEFT_TO_SCHEDULER = "LeftToScheduler"  # the scheduler has not tried it yet, or may preempt for it itself
    NOT_MODELLED = "NotModelled"  # its constraints are beyond the fit test


@dataclass(frozen=True, slots=True, kw_only=True)
class DemandAnswer:
    """The demand of one external pod, existing or expected (`cause`), and what this plan does about it."""

    pod: PodName
    shape: Shape
    cause: Cause  # POD, ANNOUNCED_GROWTH or HEADROOM
    state: DemandState
    node: NodeName | None = None
    victims: tuple[PodName, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ExcludedJob:
    """A job with which planning failed, and that was left out (A11).

    `is_unmodelled`: no stand-in for it was planned, so that nobody may take its surplus: planning failed with the
    stand-in too, or the pass was given up. `error` and `reclaim_error`: what was raised for the job and for its
    stand-in, where found in this pass, for the log.
    """

    job: JobName
    problem: str
    is_unmodelled: bool = False
    error: Exception | None = field(default=None, compare=False, repr=False)
    reclaim_error: Exception | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One answer of the planner. `actions` in this order are safe at every prefix (A2)."""

    revision: int  # of the view it rests on
    planned_at_s: float
    decisions: tuple[Decision, ...] = ()
    actions: tuple[Action, ...] = ()
    waits: tuple[DeferredChange, ...] = ()
    queue: tuple[JobName, ...] = ()  # jobs that waited for their start, in the order in which they have their turn
    demands: tuple[DemandAnswer, ...] = ()
    idle_reclaims: tuple[IdleReclaim, ...] = ()  # of pods of others; carried out beside the actions, or only told
    history: History = field(default_factory=History)  # before the actions: `planner.record_applied` adds them
    excluded: tuple[ExcludedJob, ...] = ()  # the plan was made without them
    replan_at_s: float | None = None  # the earliest instant at which time alone changes the answer
