"""Inputs of a TrainingJob's status: record, pods, and the report of what the planner's passes did.  Pure.

`controllers.job_reporter` and `controllers.status_source` collect them; `condition_rules` and `job_status` read them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import islice
from typing import Final

from autoscaler.clusters.kubernetes.gangs.start_backoff import StartBackoff
from autoscaler.clusters.kubernetes.objects.fields import Raw
from autoscaler.clusters.kubernetes.parsing.training_jobs import KubeJob
from autoscaler.domain import Bottleneck, Cause, Decision, JobName, Plan, Reason, Role
from autoscaler.jobs.idle_report import ALL_WORK, IdleReport
from autoscaler.jobs.training_health import MasterReport
from autoscaler.operator.job.job_pods import active_pods_by_role, has_consistent_name
from autoscaler.operator.job.job_record import JobRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusInputs:
    """Inputs of one job's status.  `problems`: reason (one word) to message, of obstacles to EDL's work."""

    record: JobRecord
    plan_report: PlanReport
    start_backoff: StartBackoff
    pods: Sequence[Raw]
    has_master: bool
    previous: Raw  # the stored status
    master_report: MasterReport  # of its master
    idle_report: IdleReport = ALL_WORK  # of its trainers
    priority: int | None  # None: there is no such class
    is_contested: bool = False
    is_observed: bool = False
    problems: Mapping[str, str]
    draining: Mapping[str, str] = field(default_factory=dict)  # draining servers, and why each is not deleted yet
    active_pods: Mapping[Role, Sequence[Raw]] = field(init=False)  # active pods by role

    def __post_init__(self) -> None:
        consistent = [raw for raw in self.pods if has_consistent_name(raw, self.job.name)]
        object.__setattr__(self, "active_pods", active_pods_by_role(consistent))

    @property
    def job(self) -> KubeJob:
        return self.record.job


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteRefusal:
    """The last write for a job that the API server refused.  `reason`: one word."""

    at_s: float
    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanReport:
    """Planner's report on one job.  `queue_position`: its place among the jobs that wait for their start, from 1; None:
    it does not wait, or is not among the first (`queue_positions`)."""

    decision: Decision | None = None
    queue_position: int | None = None
    refusal: WriteRefusal | None = None
    resizes: tuple[ResizeRecord, ...] = ()


MOST_POSITIONS: Final = 100
"""Jobs whose position is told: each job that starts moves all behind it, and each of these is a write."""


def queue_positions(plan: Plan) -> Mapping[JobName, int]:
    """Return the positions of the first `MOST_POSITIONS` jobs that the plan leaves waiting for their start."""
    starting = {decision.job for decision in plan.decisions if decision.reason is Reason.STARTED}
    waiting = (job for job in plan.queue if job not in starting)
    return {job: position for position, job in enumerate(islice(waiting, MOST_POSITIONS), start=1)}


def deserves_event(decision: Decision) -> bool:
    """True if the decision is worth an event: the size changes and the job has not ended."""
    if decision.reason is Reason.EXCLUDED:
        return False  # reported as an error of the job (`fault_isolation`)
    return decision.reason is not Reason.KEPT and decision.bottleneck is not Bottleneck.NOT_ACTIVE


def reason_of(refusal: str, *, is_final: bool = False) -> str:
    """Return one word for why the API server refused a write; empty for an expected refusal (capacity just taken).

    `is_final`: the same would be refused again.
    """
    for words, reason in (
        ("exceeded quota", "Quota"),
        ("failed quota", "Quota"),
        ("LimitRange", "LimitRange"),
        ("usage per", "LimitRange"),
        ("violates PodSecurity", "PodSecurity"),
        ("because it is being terminated", "NamespaceTerminating"),
        (" is invalid: ", "PodInvalid"),
        ("strict decoding error", "PodInvalid"),  # a field that this server does not know
        ("is not owned by this job", "NameTaken"),
        ("has the label", "NameTaken"),
        ("no PriorityClass", "PriorityClassMissing"),
        ("cannot create", "Forbidden"),
        ("cannot delete", "Forbidden"),
    ):
        if words in refusal:
            return reason
    is_of_job = "create pods " in refusal or "create deployments " in refusal
    return "PodRefused" if is_final and is_of_job else ""  # a webhook, an account that is not there, ...


MOST: Final = 10
BURST_S: Final = 10.0
"""Changes of one cause closer than this are one resize: a wave takes its trainers one by one."""


class ResizeAuthor(StrEnum):
    """Author of a resize."""

    EDL = "edl"
    SCHEDULER = "scheduler"
    DRAIN = "drain"
    NODE = "node"
    USER = "user"
    FAILURE = "failure"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResizeRecord:
    """One resize, as the status shows it.  `at_s`: on the cluster's clock."""

    at_s: float
    before: int
    after: int
    cause: str
    by: ResizeAuthor
    role: Role = Role.TRAINER
    message: str = ""


def add_resize(resizes: tuple[ResizeRecord, ...], new: ResizeRecord) -> tuple[ResizeRecord, ...]:
    """Return the resizes with a new one first; one that continues the last is merged with it."""
    if resizes:
        last = resizes[0]
        is_same_way = (new.after - new.before) * (last.after - last.before) > 0
        is_same = (last.cause, last.by, last.role) == (new.cause, new.by, new.role)
        if is_same and is_same_way and new.at_s - last.at_s <= BURST_S:
            merged = replace(last, at_s=new.at_s, after=last.after + new.after - new.before, message=new.message)
            return (merged, *resizes[1:])
    return (new, *resizes)[:MOST]


def causes_text(causes: Iterable[Cause]) -> str:
    """Return the causes of a set of actions: one word a cause, as events and metrics write it."""
    return ", ".join(dict.fromkeys(cause_word(cause) for cause in causes))


def cause_word(cause: Cause) -> str:
    """`announced growth` -> `AnnouncedGrowth`."""
    return "".join(word.capitalize() for word in cause.value.split())
