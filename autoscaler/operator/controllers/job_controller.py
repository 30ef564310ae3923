"""Controller of all TrainingJobs: updates each job's lifecycle from the observed objects and deletes what must stop.

`jobs.lifecycle` decides, `job_store` keeps, `pod_failures` handles ended pods, `progress_poller` polls masters. It is
level-triggered: deletions are derived from the lifecycle's stage and repeated until observed, so a lost event or a
refused write only causes delay.  Sizes are the planner's.

An ended pod is deleted once its end has been handled, for its name is used again.  The pod that ended its job stays
until the status shows the ending: after an operator's crash the next leader finds it and reaches the same result (ADR
0152).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from functools import partial
from typing import Final

from autoscaler.bounded_gather import gather_bounded
from autoscaler.clusters.kubernetes.api.api_port import Raw
from autoscaler.clusters.kubernetes.objects.fields import condition_of, integer, key_of
from autoscaler.clusters.kubernetes.parsing.training_jobs import KubeJob
from autoscaler.domain import JobName, JobState, Role
from autoscaler.errors import ClusterError
from autoscaler.fault_isolation import GuardedTask
from autoscaler.jobs import life_events
from autoscaler.jobs import lifecycle as lives
from autoscaler.operator.controllers.job_reporter import JobReporter
from autoscaler.operator.controllers.job_writer import JobWriter
from autoscaler.operator.controllers.owned_objects import OwnedObjects
from autoscaler.operator.controllers.pod_failures import PodFailures
from autoscaler.operator.controllers.progress_poller import ProgressPoller
from autoscaler.operator.job.job_pods import (
    grace_beyond,
    has_ended,
    is_gated,
    is_leaving,
    role_of,
    roles_of,
    uid_of,
)
from autoscaler.operator.job.job_record import next_reconcile_at_s, waiting_since_s
from autoscaler.operator.job.pod_termination import TerminationCause, termination_of
from autoscaler.operator.store.event_recorder import JobEvent
from autoscaler.operator.store.job_store import JobStore

TICK_S: Final = 0.5
DELETE_AGAIN_S: Final = 5.0  # a deletion that no watch has shown by then is repeated
AT_ONCE: Final = 16  # deletions at the same time

log = logging.getLogger(__name__)


class JobController:
    """Reconciles all jobs of one term."""

    def __init__(
        self,
        store: JobStore,
        *,
        writer: JobWriter,
        owned: OwnedObjects,
        poller: ProgressPoller,
        failures: PodFailures,
        reporter: JobReporter,
    ) -> None:
        self._store = store
        self._writer = writer
        self._owned = owned
        self._poller = poller
        self._failures = failures
        self._reporter = reporter
        self._reconcile_at_s: dict[JobName, float] = {}
        self._deleted_at_s: dict[str, float] = {}  # by UID of the pod, those of the last seconds

    async def run(self) -> None:
        """Reconcile jobs whenever something of them has changed or is due, until cancelled."""
        try:
            while True:
                await self._reconcile_due()
                await self._store.to_reconcile.wait(TICK_S)
        finally:
            await self._failures.close()

    async def reconcile(self, name: JobName) -> None:
        """Reconcile one job: observe its objects, and delete what its life no longer needs.  Raises ClusterError."""
        store, job = self._store, self._store.objects.jobs.get(name)
        if job is None:
            self._forget(name)
            return
        store.record_of(job)
        pods, master = store.objects.pods(job), store.objects.master(job)
        self._handle_departures(job, pods)
        for raw in pods:
            if has_ended(raw) and is_leaving(raw):
                self._failures.handle_deleted_server(job, raw)
            elif has_ended(raw):
                self._failures.handle_ended(job, raw)
        roles = roles_of(pods, has_master=master is not None)
        if store.records[name].life.stage is lives.LifeStage.FINISHING and self._failures.is_judging_trainer(pods):
            roles |= {Role.TRAINER}  # how it ended is part of how the job did
        is_done = store.handle(job, life_events.PodsObserved(roles=roles))
        self._record_waiting(job, has_started=master is not None)
        self._reconcile_at_s[name] = next_reconcile_at_s(store.records[name].life, store.clock())
        if store.may_write(job):
            await self._stop(job, pods, master)
            await self._delete_handled(job, pods)
            if is_done:
                await self._delete_job(job)
            elif master is not None and store.records[name].life.state is JobState.ACTIVE:
                await self._writer.keep_master_count(job, master)
            await self._restore_grace(job, pods)  # last, so that a refusal stops nothing else
        store.to_write_status.add(name)
        self._owned.queue_if_edited(job)

    def _record_waiting(self, job: KubeJob, *, has_started: bool) -> None:
        if (record := self._store.find(job)) is not None:
            managed, now_s = self._store.may_write(job), self._store.clock()
            since_s = waiting_since_s(record, has_started=has_started, is_managed=managed, now_s=now_s)
            self._store.change(job, waiting_since_s=since_s)

    def _forget(self, name: JobName) -> None:
        """Drop the state of an unreadable or deleted job."""
        record = self._store.records.pop(name, None)
        if record is not None:
            self._poller.forget(record.job)
        self._reconcile_at_s.pop(name, None)
        self._failures.forget(name)
        self._store.to_write_status.add(name)
        if self._store.objects.raw(name) is None:
            self._owned.forget(name)
            self._reporter.forget(name)

    def _handle_departures(self, job: KubeJob, pods: Sequence[Raw]) -> None:
        """Report each departing pod once, with its cause; drop pods that are gone."""
        record = self._store.records[job.key]
        there = frozenset(uid_of(raw) for raw in pods)
        departed = record.departed & there
        for raw in pods:
            end, role = termination_of(raw, record.deleted_by_edl), role_of(raw)
            if (
                end is None
                or role is None
                or end.cause is TerminationCause.OWN_EXIT
                or end.uid in departed
                or end.node is None
            ):
                continue
            departed |= {end.uid}
            self._reporter.handle_departure(job, role, end)
        handled, deleted, released = record.handled & there, record.deleted_by_edl & there, record.released & there
        if (departed, handled, deleted, released) != (
            record.departed,
            record.handled,
            record.deleted_by_edl,
            record.released,
        ):
            self._store.change(job, departed=departed, handled=handled, deleted_by_edl=deleted, released=released)

    # ---- writes -------------------------------------------------------------------------------------------------

    async def _stop(self, job: KubeJob, pods: Sequence[Raw], master: Raw | None) -> None:
        """Delete the pods and masters of roles that must stop."""
        life = self._store.records[job.key].life
        roles = life.leaving_roles
        unwanted = []
        for raw in pods:
            is_idle = is_gated(raw) and life.state is not JobState.ACTIVE
            is_unwanted = is_idle or (role_of(raw) in roles and role_of(raw) is not Role.MASTER)
            if is_unwanted and not is_leaving(raw) and not has_ended(raw):
                unwanted.append(raw)
        await self._delete_pods(job, unwanted)
        if master is not None and Role.MASTER in roles:
            masters = frozenset(uid_of(raw) for raw in pods if role_of(raw) is Role.MASTER)
            self._store.change(job, deleted_by_edl=self._store.records[job.key].deleted_by_edl | masters)
            await self._writer.delete_master(master)

    async def _restore_grace(self, job: KubeJob, pods: Sequence[Raw]) -> None:
        """Shorten the grace period of pods that a user deleted with a longer one than their spec's."""
        now_s = self._store.clock()
        for raw in pods:
            grace_s = None if has_ended(raw) else grace_beyond(raw)
            if grace_s is None or now_s < self._deleted_at_s.get(uid_of(raw), -DELETE_AGAIN_S) + DELETE_AGAIN_S:
                continue
            self._deleted_at_s[uid_of(raw)] = now_s
            await self._writer.shorten_grace(raw, grace_s)
            message = f"somebody told it to leave within {integer(raw, 'metadata', 'deletionGracePeriodSeconds')} s; "
            message += f"its terminationGracePeriodSeconds is {grace_s}, which holds again"
            event = JobEvent(reason="GraceRestored", message=message, pod=key_of(raw), is_warning=True)
            self._store.events.emit(job, event)

    async def _delete_handled(self, job: KubeJob, pods: Sequence[Raw]) -> None:
        """Delete ended pods that are handled; trainers that failed the job, or failed after its end, stay as evidence
        until the status says so."""
        record = self._store.records[job.key]
        is_late = record.life.completion_reason is lives.CompletionReason.SCRIPT_FAILED
        has_failed = record.life.ending is lives.JobEnding.FAILED or is_late
        keeps_trainers = has_failed and not self._is_end_reported(job)
        handled = [raw for raw in pods if has_ended(raw) and not is_leaving(raw) and uid_of(raw) in record.handled]
        await self._delete_pods(job, [raw for raw in handled if not (keeps_trainers and role_of(raw) is Role.TRAINER)])

    async def _delete_pods(self, job: KubeJob, pods: Sequence[Raw]) -> None:
        """Delete pods, several at a time; one again only if that has not shown for a while."""
        now_s = self._store.clock()
        due = [raw for raw in pods if now_s >= self._deleted_at_s.get(uid_of(raw), -DELETE_AGAIN_S) + DELETE_AGAIN_S]
        if due:
            self._store.change(
                job, deleted_by_edl=self._store.records[job.key].deleted_by_edl | {uid_of(raw) for raw in due}
            )
            await gather_bounded((partial(self._delete_pod, raw) for raw in due), at_once=AT_ONCE)

    async def _delete_pod(self, raw: Raw) -> None:
        await self._writer.delete_pod(raw)
        self._deleted_at_s[uid_of(raw)] = self._store.clock()

    async def _delete_job(self, job: KubeJob) -> None:
        """Delete a job whose time to live after its end is over."""
        raw = self._store.objects.raw(job.key)
        if raw is not None and uid_of(raw) == job.uid and not is_leaving(raw):
            await self._writer.delete_job(raw)

    def _is_end_reported(self, job: KubeJob) -> bool:
        raw = self._store.objects.raw(job.key) or {}
        return any(condition_of(raw, kind).get("status") == "True" for kind in ("Failed", "Completed"))

    # ---- tasks --------------------------------------------------------------------------------------------------

    async def _reconcile_due(self) -> None:
        for name in self._pop_due():
            try:
                with self._store.errors.isolate(name, GuardedTask.LIFE):
                    await self.reconcile(name)
            except ClusterError as error:
                log.warning("job %s: %s; trying again in %g s", name, error, TICK_S)
                self._reconcile_at_s[name] = self._store.clock()
            if again_at_s := self._store.errors.retry_at_s(name, GuardedTask.LIFE):
                self._reconcile_at_s[name] = again_at_s
            await asyncio.sleep(0)  # yield to other tasks

    def _pop_due(self) -> list[JobName]:
        now_s, errors = self._store.clock(), self._store.errors
        self._deleted_at_s = {uid: at_s for uid, at_s in self._deleted_at_s.items() if now_s < at_s + DELETE_AGAIN_S}
        names = self._store.to_reconcile.pop_all()
        names |= {name for name, at_s in self._reconcile_at_s.items() if now_s >= at_s}
        paused = {name for name in names if errors.is_paused(name, GuardedTask.LIFE)}
        self._reconcile_at_s |= {name: errors.retry_at_s(name, GuardedTask.LIFE) for name in paused}
        return sorted(names - paused)
