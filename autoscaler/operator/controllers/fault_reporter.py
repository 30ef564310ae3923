"""Reports of isolated faults (`fault_isolation`, A11): an event, a status and a metric of the job."""

from __future__ import annotations

from autoscaler.domain import JobName
from autoscaler.fault_isolation import JobError
from autoscaler.fault_log import FaultLog
from autoscaler.operator.metrics import Metrics
from autoscaler.operator.store.event_recorder import JobEvent, subject_of
from autoscaler.operator.store.job_store import JobStore


class FaultReporter(FaultLog):
    """Fault listener that logs, counts and emits an event for each fault."""

    def __init__(self, store: JobStore, metrics: Metrics) -> None:
        self._store = store
        self._metrics = metrics

    def handle_failure(self, job: JobName, failure: JobError, error: Exception, *, has_changed: bool) -> None:
        """See `fault_isolation.FaultListener`.  A fault with an object of no job is only logged and counted."""
        super().handle_failure(job, failure, error, has_changed=has_changed)
        self._metrics.count_error(job, failure.task, failure.retry_at_s)
        raw = self._store.objects.raw(job) if job.count("/") == 1 else None
        if raw is None or not has_changed:
            return
        event = JobEvent(reason="InternalError", message=self._store.errors.problem(job), is_warning=True)
        self._store.events.emit(subject_of(raw), event)
        self._store.to_write_status.add(job)

    def handle_recovery(self, job: JobName) -> None:
        """See `fault_isolation.FaultListener`."""
        super().handle_recovery(job)
        self._store.to_write_status.add(job)
