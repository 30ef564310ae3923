"""Job store: records, reports and queues of all jobs.

The controllers (`job_controller`, `pod_failures`, `progress_poller`, `server_drain`, `job_reporter`, `status_writer`)
read and write this store in place of calling each other.  `jobs.lifecycle` decides; which pods
must stop is derived from the lifecycle's stage (`Life.leaving_roles`), so nothing can be lost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final, assert_never

from autoscaler.clusters.kubernetes.cluster_view import JobRuntime
from autoscaler.clusters.kubernetes.kubernetes_cluster import KubernetesCluster
from autoscaler.clusters.kubernetes.objects.fields import key_of, part
from autoscaler.clusters.kubernetes.objects.names import job_key, split_store_name, store_name
from autoscaler.clusters.kubernetes.parsing.priority_classes import (
    PriorityClasses,
    find_class_problems,
    find_rank_problem,
)
from autoscaler.clusters.kubernetes.parsing.training_jobs import KubeJob
from autoscaler.domain import JobName, PodName, Reclaim, Role
from autoscaler.fault_isolation import GuardedTask, JobErrors
from autoscaler.jobs import life_events
from autoscaler.jobs import lifecycle as lives
from autoscaler.jobs.trainer_ledger import Device
from autoscaler.manifests.api_types import Mode
from autoscaler.operator.job.job_pods import has_ended, has_unstarted, is_gated, role_of, roles_of, uid_of
from autoscaler.operator.job.job_record import JobRecord, facts_of, idle_window_s
from autoscaler.operator.job.recovery import FoundJob, recover_record
from autoscaler.operator.status.status_inputs import PlanReport
from autoscaler.operator.store.event_recorder import EventRecorder, JobEvent
from autoscaler.operator.store.job_objects import JobCache, JobObjects
from autoscaler.operator.store.work_queue import SETTLE_S, StatusQueue


class JobStore:
    """Records, reports and queues of all jobs of one term.  Call `attach` once, before anything else.

    `clock` is the cluster's; `offset_s` takes Unix time to it.  With `is_frozen` nothing is written for any job.
    """

    def __init__(
        self,
        cache: JobCache,
        events: EventRecorder,
        errors: JobErrors,
        *,
        clock: Callable[[], float],
        offset_s: float,
        reclaim: Reclaim,
        is_frozen: bool = False,
        status_settle_s: float = SETTLE_S,
        idle_window_s: float = 0.0,
    ) -> None:
        self.records: Final[dict[JobName, JobRecord]] = {}
        self.plan_reports: Final[dict[JobName, PlanReport]] = {}
        self.to_reconcile: Final = cache.changed_jobs
        self.to_write_status: Final = StatusQueue(clock, errors, settle_s=status_settle_s)
        self.definition_problem = ""  # of the cluster's TrainingJob definition; empty: none
        self.events: Final = events
        self.errors: Final = errors
        self.clock: Final = clock
        self.offset_s: Final = offset_s
        self.is_frozen: Final = is_frozen
        self.devices: Mapping[PodName, Device] = {}  # of pods whose node has an agent
        self.objects: JobObjects
        self.cluster: KubernetesCluster
        self._cache = cache
        self._reclaim = reclaim
        self._idle_window_s = idle_window_s
        self._class_problems: tuple[PriorityClasses | None, dict[str, str]] = (None, {})

    def attach(self, cluster: KubernetesCluster) -> None:
        """Read jobs from this cluster, which asks for their `facts`."""
        self.cluster = cluster
        self.objects = JobObjects(self._cache, cluster.views)

    # ---- records ------------------------------------------------------------------------------------------------

    def record_of(self, job: KubeJob) -> JobRecord:
        """Return the job's record: begun now, or brought up to its spec as it is now."""
        record = self.records.get(job.key)
        if record is None or record.job.uid != job.uid:
            self.records[job.key] = self._begin(job)
        elif record.job is not job:
            policy = job.spec.run_policy
            self.records[job.key] = replace(record, job=job, life=replace(record.life, policy=policy))
            self.handle(job, life_events.SuspendRequested(on=policy.suspend))
        else:
            return record
        if job.is_deleting:
            self.handle(job, life_events.DeletionRequested())
        self.to_reconcile.add(job.key)
        return self.records[job.key]

    def find(self, job: KubeJob) -> JobRecord | None:
        """Return the record of this very job, if it still has one."""
        record = self.records.get(job.key)
        return record if record is not None and record.job.uid == job.uid else None

    def change(self, job: KubeJob, **fields: Any) -> None:
        """Set fields of the job's record, if it still has one."""
        record = self.find(job)
        if record is not None:
            self.records[job.key] = replace(record, **fields)

    def handle(self, job: KubeJob, event: life_events.LifeEvent) -> bool:
        """Apply an event to the job's lifecycle.  True if the TrainingJob is to be deleted."""
        record = self.find(job)
        if record is None:
            return False
        step = lives.handle(record.life, event, self.clock())
        if step.life != record.life:
            self.records[job.key] = replace(record, life=step.life)
            self.to_write_status.add(job.key)
            self.request_plan()
            self.to_reconcile.add(job.key)
        is_done = False
        for effect in step.effects:
            match effect:
                case life_events.Announce():
                    is_warning = effect.reason in {lives.JobEnding.FAILED, "TrainerFailed", "TrainerRefused"}
                    self.events.emit(job, JobEvent(reason=effect.reason, message=effect.message, is_warning=is_warning))
                case life_events.DeleteJob():
                    is_done = True
                case _:
                    assert_never(effect)
        return is_done

    def plan_report_of(self, job: JobName) -> PlanReport:
        """Return what the planner's passes have said of the job."""
        return self.plan_reports.get(job, PlanReport())

    def record_deletion(self, job: JobName, pod: str) -> None:
        """Record that EDL is about to delete this pod (NAMESPACE/NAME) by a planned action."""
        record = self.records.get(job)
        if record is not None:
            uids = {uid_of(raw) for raw in self.objects.pods(record.job) if key_of(raw) == pod}
            self.change(record.job, deleted_by_edl=record.deleted_by_edl | uids)

    def fail_over_etcd(self, name_in_etcd: str, excess: str) -> None:
        """Fail the job of this etcd name: it is barred from etcd and cannot commit."""
        namespace, name, _ = split_store_name(name_in_etcd)
        job = self.objects.jobs.get(JobName(job_key(namespace, name)))
        if job is not None and store_name(job.namespace, job.name, job.uid) == name_in_etcd:
            message = f"it used more than its share of etcd, which all jobs share: {excess}; "
            message += "its checkpoints stand: make it anew to go on"
            given_up = life_events.GivenUp(reason=life_events.FailureReason.ETCD_BOUND_EXCEEDED, message=message)
            with self.errors.isolate(job.key, GuardedTask.LIFE):  # the space keeper handles all jobs
                self.handle(job, given_up)

    def request_plan(self) -> None:
        """Request a new plan because a job's facts may have changed."""
        self.cluster.touch()

    # ---- facts for other components --------------------------------------------------------------------------

    def may_write(self, job: KubeJob) -> bool:
        """True if EDL acts on the job, False if it only shows what it would do."""
        return not self.is_frozen and job.spec.mode is Mode.MANAGE

    def facts(self, job: KubeJob) -> JobRuntime:
        """Facts about the job for the planner.  The record of a new job begins with this call.

        Nothing is created for any job while the priority classes would make EDL do harm (`docs/kubernetes.md`).
        """
        is_held = bool(self.cluster_problems() or self._rank_problem(job))
        return facts_of(self.record_of(job), self.clock(), is_held=is_held)

    def idle_window_s(self, job: KubeJob) -> float:
        """Return after how long without a batch a trainer of the job is idle; 0: never."""
        return idle_window_s(job, self._idle_window_s)

    def problems_of(self, job: KubeJob) -> Mapping[str, str]:
        """Problems that block EDL for the job: one-word reason to message."""
        problems = {
            "PriorityClassTooLow": self._rank_problem(job),
            "LimitRange": self.objects.views.jobs.refused.get(job.key, ""),
            "InternalError": self.errors.problem(job.key),
        }
        return self.cluster_problems() | {reason: message for reason, message in problems.items() if message}

    def cluster_problems(self) -> dict[str, str]:
        """Return what keeps EDL from its work for all jobs: one-word reason to message."""
        classes = self.objects.views.classes
        if self._class_problems[0] is not classes:
            found = find_class_problems(classes, self._reclaim)
            self._class_problems = (classes, {"PriorityClasses": "; ".join(found)} if found else {})
        old = self.definition_problem
        return {"OldDefinition": old, **self._class_problems[1]} if old else self._class_problems[1]

    def server_count(self, job: KubeJob) -> int:
        """Return how many parameter servers stand; those that others delete count until they are gone."""
        record = self.records.get(job.key)
        deleted = frozenset[str]() if record is None else record.deleted_by_edl
        servers = (raw for raw in self.objects.pods(job) if role_of(raw) is Role.SERVER)
        return sum(not has_ended(raw) and not is_gated(raw) and uid_of(raw) not in deleted for raw in servers)

    def has_unstarted_pod(self, job: KubeJob) -> bool:
        """True if a pod of the job has had a node for long, and no containers yet."""
        return has_unstarted(self.objects.pods(job), self.clock() - self.offset_s)

    def jobs_with_pods(self) -> list[KubeJob]:
        """Return the jobs that have pods, and that EDL acts on."""
        found = []
        for job in tuple(self.objects.jobs.values()):
            with self.errors.isolate(job.key, GuardedTask.PODS_OWNED):
                if self.may_write(job) and self.objects.pods(job) and not job.is_deleting:
                    found.append(job)
        return found

    def _rank_problem(self, job: KubeJob) -> str:
        return find_rank_problem(self.objects.views.classes, job.spec.priority_class, self._reclaim)

    def _begin(self, job: KubeJob) -> JobRecord:
        pods = self.objects.pods(job)
        found = FoundJob(
            status=part(self.objects.raw(job.key) or {}, "status"),
            pods=pods,
            roles=roles_of(pods, has_master=self.objects.master(job) is not None),
        )
        return recover_record(job, found, offset_s=self.offset_s, now_s=self.clock())
