"""Source of each job's status: gathers what `status.job_status` needs, and shows the status as metrics."""

from __future__ import annotations

from math import isfinite

from autoscaler.clusters.kubernetes.api.api_port import Raw
from autoscaler.clusters.kubernetes.objects.fields import Raw as RawRead
from autoscaler.clusters.kubernetes.objects.fields import condition_of, integer, part
from autoscaler.domain import JobName
from autoscaler.fault_isolation import GuardedTask
from autoscaler.jobs.lifecycle import LifeStage
from autoscaler.manifests.api_types import Mode
from autoscaler.operator.controllers.server_drain import drain_problem
from autoscaler.operator.job.job_record import JobRecord, alerted_uncommitted_since_s, idle_report_of, master_report_of
from autoscaler.operator.job_gauges import training_figures
from autoscaler.operator.metrics import Metrics
from autoscaler.operator.status.conditions import ConditionType
from autoscaler.operator.status.job_status import internal_error_status, status_of, unreadable_status
from autoscaler.operator.status.status_inputs import StatusInputs
from autoscaler.operator.store.event_recorder import JobEvent, subject_of
from autoscaler.operator.store.job_store import JobStore


class StatusSource:
    """Computes the status of each job from the present state."""

    def __init__(self, store: JobStore, metrics: Metrics) -> None:
        self._store = store
        self._metrics = metrics

    def status_of(self, name: JobName) -> Raw | None:
        """Desired status of the job; None for an unknown job."""
        store, raw = self._store, self._store.objects.raw(name)
        if raw is None:
            return None
        if not store.errors.is_paused(name, GuardedTask.STATUS):
            with store.errors.isolate(name, GuardedTask.STATUS):
                return self._status_of(name, raw)
        problem, generation = store.errors.problem(name), _generation(raw)
        status = internal_error_status(
            problem, part(raw, "status"), generation=generation, now_unix_s=self._now_unix_s()
        )
        self._metrics.set_unreadable_job(name, status)
        return status

    def _status_of(self, name: JobName, raw: RawRead) -> Raw | None:
        store, before = self._store, part(raw, "status")
        if (error := store.objects.unreadable.get(name)) is not None:
            status = unreadable_status(error, before, generation=_generation(raw), now_unix_s=self._now_unix_s())
            new, stored = (
                condition_of({"status": status}, ConditionType.ADMITTED),
                condition_of(raw, ConditionType.ADMITTED),
            )
            if new.get("message") != stored.get("message"):
                event = JobEvent(reason="InvalidSpec", message=str(error), is_warning=True)
                store.events.emit(subject_of(raw), event)
            self._metrics.set_unreadable_job(name, status)
            return status
        record = store.records.get(name)
        if record is None:
            return None
        status = status_of(self._inputs(record, before), now_s=store.clock(), offset_s=store.offset_s)
        self._export_metrics(name, record, status)
        return status

    def _inputs(self, record: JobRecord, before: RawRead) -> StatusInputs:
        store, job, now_s = self._store, record.job, self._store.clock()
        return StatusInputs(
            record=record,
            plan_report=store.plan_report_of(job.key),
            start_backoff=store.cluster.start_backoff(job.key),
            pods=store.objects.pods(job),
            has_master=store.objects.master(job) is not None,
            previous=before if isinstance(before, dict) else {},
            master_report=master_report_of(record, now_s, store.offset_s),
            idle_report=idle_report_of(record, window_s=store.idle_window_s(job), offset_s=store.offset_s),
            priority=store.objects.priority(job),
            is_contested=store.objects.is_contested(job.key),
            is_observed=job.spec.mode is Mode.OBSERVE or store.is_frozen,
            problems=store.problems_of(job),
            draining={pod: drain_problem(drain, record, now_s) for pod, drain in record.drains.items()},
        )

    def _export_metrics(self, name: JobName, record: JobRecord, status: Raw) -> None:
        self._metrics.set_job(name, status, checkpoint_every_s=record.job.spec.checkpoint.every_s)
        self._metrics.set_instants(
            name,
            checkpoint=self._unix_s(record.checkpoint_at_s),
            uncommitted=self._unix_s(alerted_uncommitted_since_s(record)),
            waiting=self._unix_s(record.waiting_since_s),
        )
        is_active = record.life.stage is LifeStage.ACTIVE
        silent_s = self._store.clock() - record.progress_at_s
        figures = training_figures(record.progress, record.throughput, is_active=is_active, silent_s=silent_s)
        self._metrics.set_training(name, figures)

    def _now_unix_s(self) -> float:
        return self._store.clock() - self._store.offset_s

    def _unix_s(self, at_s: float | None) -> float | None:
        return at_s - self._store.offset_s if at_s is not None and isfinite(at_s) else None


def _generation(raw: RawRead) -> int:
    return integer(raw, "metadata", "generation")
