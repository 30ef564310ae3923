"""Policy: what the cluster's owner can choose, each setting with its unit, default and reason."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from autoscaler.domain.cluster import Headroom


class Admission(StrEnum):
    """Who comes first when a job waits for its minimum."""

    MINS_FIRST = "MinsFirst"  # every job's minimum before anybody's surplus
    STRICT_CLASS = "StrictClass"  # a class of priority is finished before the next one


class Fairness(StrEnum):
    """Between whom the shares of one priority are made equal."""

    JOB = "Job"
    NAMESPACE = "Namespace"  # between namespaces first, then between the jobs of each: ten small jobs, one share


class Reclaim(StrEnum):
    """Who evicts surplus for a pending pod (`beside-the-scheduler.md` 1)."""

    PLANNER = "planner"  # EDL chooses every victim; the local cluster
    SCHEDULER = "scheduler"  # kube-scheduler preempts; EDL adds what it cannot do


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Settings of the planner.  All durations in seconds; 0 switches a window off."""

    admission: Admission = Admission.MINS_FIRST
    """A job that waits for its minimum makes no progress at all; surplus only makes others slower."""

    reclaim: Reclaim = Reclaim.PLANNER
    """Without kube-scheduler there is nobody else; the Kubernetes adapter sets SCHEDULER."""

    fairness: Fairness = Fairness.JOB
    """A job is what users weigh; where namespaces are teams of unequal zeal, NAMESPACE keeps them level."""

    preempts_jobs: bool = False
    """Whether a waiting gang may take a whole running job of lower priority once no surplus is left to take.  Off: a
    stopped job starts from its last checkpoint and queues again, which an owner must have wanted."""

    stale_limit_s: float = 10.0
    """An older view moves no pod (A7): half of the usual 20 s after which a silent node is suspected."""

    lost_nodes_limit_percent: int = 30
    """More nodes NotReady at once looks like a broken view, not like broken nodes (`beside-the-scheduler.md` 13)."""

    up_window_s: float = 3.0
    """A job grows this long after its last shrink: longer than a drain, short beside a web wave."""

    down_window_s: float = 30.0
    """A voluntary shrink keeps this distance from the last growth: starting a trainer must pay off first."""

    quiet_window_s: float = 1.0
    """No voluntary change after a submission or a new pod of others: a burst is answered once, not pod by pod."""

    burst_window_s: float = 6.0
    """So long after a submission more of them are expected: until then no job takes more than `burst_part`.  People and
    pipelines submit in rows; what the first of a row would have grown into is taken back from it at once."""

    burst_part: int = 20
    """One part in so many of the cluster, times the job's weight over the usual one.  Where jobs are smaller than that
    nothing is ever held back."""

    victim_age_s: float = 30.0
    """A trainer runs at least this long before a voluntary removal."""

    transfers_per_minute: int = 6
    """Most removals used to be fairness moved twice; this caps what fairness may cost, with the next setting: the
    larger of the two counts."""

    transfers_percent_per_minute: int = 25
    """Of all trainers.  A trainer that moves stands still for some 5 s, so this is 2 % of the work at the most."""

    server_moves_per_minute: int = 6
    """Parameter servers that move to where they waste less, with the next setting: the larger of the two counts; both
    0: none moves.  Where the adapter cannot move servers none does, whatever stands here."""

    server_moves_percent_per_minute: int = 50
    """Of all parameter servers."""

    server_move_cost_s: float = 1.0
    """For so long all trainers of a job stand still when one of its servers moves: routes change twice.  A move is
    made if the trainers that it makes room for bring more within `payoff_s`."""

    resizes_per_minute: int = 0
    """Voluntary changes of size per minute, all jobs together; 0: as many as their windows allow."""

    payoff_s: float = 600.0
    """A voluntary change makes good within this time (the job's own remaining time, if that is shorter) what it costs;
    otherwise it is not made.  0: cost is not asked."""

    preempted_pause_s: float = 30.0
    """A job that the scheduler has just preempted does not grow: the next wave would take it again."""

    gang_age_s: float = 120.0
    """After this wait the oldest unfit gang of a priority reserves its best nodes against younger ones."""

    shortfall_limit_s: float = 60.0
    """A core that cannot be refilled for this long leaves whole (`beside-the-scheduler.md` 5)."""

    refused_after_s: float = 5.0
    """A pod that has room and is not bound this long later cannot use it (`beside-the-scheduler.md` 15)."""

    refusal_backoff_s: float = 60.0
    """First pause after a refusal; doubles with each one."""

    refusal_backoff_limit_s: float = 600.0
    """Longest pause after refusals."""

    rooms_per_pod: int = 2
    """So many refused rooms are the most that a pod's unknown constraints may cost."""

    preemption_wait_s: float = 2.0
    """With `reclaim: scheduler`: how long the scheduler has for its own nomination."""

    surplus_grace_s: float = 10.0
    """Grace of surplus is the web's waiting time: shortfall 2.5 % at 2 s, 5 % at 10 s, 11 % at 30 s (simulated)."""

    is_frozen: bool = False
    """Decisions are made and shown, nothing is written: to look before trusting, or to stop everything at once."""

    headroom: tuple[Headroom, ...] = ()
    """Room kept free for pods that nobody has asked for yet."""

    headroom_percent: float = 0.0
    """Of the allocatable capacity, kept free in pods of the workloads' own shapes: room in crumbs would help nobody."""

    autoscaler_headroom_percent: float = 0.0
    """Of the replicas by which workloads with an autoscaler of their own may still grow: kept free for them."""

    gpus_keep_room: bool = False
    """Whether a pod without GPUs leaves beside a node's free GPUs the cpu and memory that they will need."""
