"""Policy: what the cluster's owner can choose, each setting with its unit, default and reason."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from autoscaler.domain.cluster import Headroom
from autoscaler.domain.idleness import ReclaimMode


class Admission(StrEnum):
    """Admission order while a job waits for its minimum."""

    MINS_FIRST = "MinsFirst"  # every job's minimum before anybody's surplus
    STRICT_CLASS = "StrictClass"  # all jobs of one priority before those of the next


class Fairness(StrEnum):
    """Fairness: what is made equal within one priority, and between whom."""

    JOB = "Job"  # the shares of jobs
    NAMESPACE = (
        "Namespace"  # shares, between namespaces first, then between the jobs of each: ten small jobs, one share
    )
    PROGRESS = "Progress"  # of jobs: their throughput in relation to that alone on their part of the cluster


class Reclaim(StrEnum):
    """Reclaim mode: who evicts surplus for a pending pod (`beside-the-scheduler.md` 1)."""

    PLANNER = "planner"  # EDL chooses every victim; the local cluster
    SCHEDULER = "scheduler"  # kube-scheduler preempts; EDL adds what it cannot do


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Settings of the planner.  All durations in seconds; 0 switches a window off."""

    admission: Admission = Admission.MINS_FIRST
    """A job that waits for its minimum makes no progress at all; surplus only makes others slower."""

    reclaim: Reclaim = Reclaim.PLANNER
    """Default without kube-scheduler; the Kubernetes adapter sets SCHEDULER."""

    fairness: Fairness = Fairness.JOB
    """Users weigh single jobs; NAMESPACE keeps a team with many jobs from getting more than a team with few; PROGRESS
    lets all gain alike from what others leave of their parts: jobs that scale badly get more, the sum is slower."""

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
    """After a submission more are expected for this long: until then no job takes more than `burst_part`.

    Jobs are often submitted in bursts; growth of the first job would be reversed at once.
    """

    burst_part: int = 20
    """Limit within the burst window: 1/N of the cluster, times the job's weight over the default weight.

    Jobs that are smaller than that are never held back.
    """

    victim_age_s: float = 30.0
    """A trainer runs at least this long before a voluntary removal."""

    transfers_per_minute: int = 6
    """Cap on transfers per minute, because most voluntary removals were transfers that were reversed; the larger of
    this and the next setting applies.
    """

    transfers_percent_per_minute: int = 25
    """The same cap in percent of all trainers.

    A trainer that moves stands still for some 5 s, so this is 2 % of the work at the most.
    """

    server_moves_per_minute: int = 6
    """Parameter servers that move to where they waste less, with the next setting: the larger of the two counts; both
    0: none moves.  Where the adapter cannot move servers none does, whatever stands here."""

    server_moves_percent_per_minute: int = 50
    """The same cap in percent of all parameter servers."""

    server_move_cost_s: float = 1.0
    """Pause of all trainers of a job when one of its servers moves: routes change twice.

    A move is made if the trainers for which it frees capacity bring more within `payoff_s`.
    """

    resizes_per_minute: int = 0
    """Voluntary changes of size per minute, all jobs together; 0: as many as their windows allow."""

    payoff_s: float = 600.0
    """Pay-off time: a voluntary change must gain more within it (or within the job's remaining time, if shorter) than
    it costs.  0: costs are ignored.
    """

    observing_s: float = 60.0
    """A job that was made smaller to be measured (`trainer.efficiency`) grows so long after that at the earliest: pods
    leave, then the size settles and is averaged (`jobs.throughput_watch`).  0: no job is made smaller for that."""

    preempted_pause_s: float = 30.0
    """A job that the scheduler has just preempted does not grow: the next wave would take it again."""

    gang_age_s: float = 120.0
    """After this wait the oldest unfit gang of a priority reserves its best nodes against younger ones."""

    shortfall_limit_s: float = 60.0
    """A core that cannot be refilled for this long leaves whole (`beside-the-scheduler.md` 5)."""

    refused_after_s: float = 5.0
    """A pod that kube-scheduler has not bound this long after a node had free capacity for it is refused there
    (`beside-the-scheduler.md` 15).
    """

    refusal_backoff_s: float = 60.0
    """First pause after a refusal; doubles with each one."""

    refusal_backoff_limit_s: float = 600.0
    """Longest pause after refusals.  Not a job's `backoffLimit`, which counts failures."""

    vacated_nodes_per_pod: int = 2
    """Most nodes that are vacated in vain for a pod with constraints that EDL does not know."""

    preemption_wait_s: float = 2.0
    """With `reclaim: scheduler`: how long the scheduler has for its own nomination."""

    idle_window_s: float = 300.0
    """A trainer without a batch for so long is idle: it goes to whoever waits, and one that hangs is replaced.  A job
    may say otherwise (`trainer.idleSeconds`).  0: nobody is idle.  Longer than reading data or a first step takes."""

    idle_pause_s: float = 600.0
    """A job does not grow for so long after a trainer of it that did no work went to others: it would come back."""

    idle_reclaim: ReclaimMode = ReclaimMode.OBSERVE
    """GPUs that pods of others hold and do not use, where their owner agreed: told first, since a notebook is work."""

    idle_notice_s: float = 300.0
    """The owner is told so long before, and may keep the pod."""

    surplus_grace_s: float = 10.0
    """Longest grace period of surplus; web pods wait for it: shortfall 2.5 % at 2 s, 5 % at 10 s, 11 % at 30 s
    (simulated).
    """

    is_frozen: bool = False
    """Dry-run switch: decisions are shown and nothing is written, for a trial or to stop all changes at once."""

    headroom: tuple[Headroom, ...] = ()
    """Capacity kept free for future pods."""

    headroom_percent: float = 0.0
    """Headroom in percent of the allocatable capacity, kept free as whole pods of the workloads' shapes, because
    fragments help no pod.
    """

    autoscaler_headroom_percent: float = 0.0
    """Headroom in percent of the replicas by which autoscaled workloads may still grow."""

    has_device_reserve: bool = False
    """Whether EDL keeps, beside each free GPU of a node, the cpu and memory that a pod with it will need."""
