"""All that a TrainingJob's status is made of, at one instant.  `leading` sees; `verdicts` and `status` tell.  Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from autoscaler.clusters.kubernetes.gangs.start_backoff import StartBackoff
from autoscaler.clusters.kubernetes.objects.fields import Raw
from autoscaler.clusters.kubernetes.parsing.training_jobs import KubeJob
from autoscaler.domain import Role
from autoscaler.jobs.training_health import MasterReport
from autoscaler.operator.job.job_pods import is_seated, standing_by_role
from autoscaler.operator.job.job_record import JobRecord
from autoscaler.operator.status.job_report import JobReport


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusInputs:
    """`problems`: one-word reason to message, of what keeps EDL from doing its work."""

    record: JobRecord
    report: JobReport
    race: StartBackoff
    pods: Sequence[Raw]
    has_master: bool
    before: Raw  # the status as it stands
    heard: MasterReport  # of its master
    priority: int | None  # None: there is no such class
    is_contested: bool = False
    is_observed: bool = False
    problems: Mapping[str, str]
    draining: Mapping[str, str] = field(default_factory=dict)  # servers that are to go, and why each of them stays yet
    there: Mapping[Role, Sequence[Raw]] = field(init=False)  # the pods that stand, by role

    def __post_init__(self) -> None:
        seated = [raw for raw in self.pods if is_seated(raw, self.job.name)]
        object.__setattr__(self, "there", standing_by_role(seated))

    @property
    def job(self) -> KubeJob:
        return self.record.job
