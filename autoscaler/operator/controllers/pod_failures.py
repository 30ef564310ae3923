"""Pod failures: why a pod ended on its own, and what follows.

A trainer's end is handled after one more poll of the job's master, since a trainer that ends because the data has
ended has not failed; so is the end of a server with code 0, since its master may have released it.  One poll serves
all pods that wait for it, and respects the master's pause, so a crash-looping job costs the operator no more than
polling does, and delays no other job's pods (ADR 0190).  A leader handles each pod once (by UID).  The next leader
handles existing ended pods again, and the status does not count these (`job_status`): a crash may lose a failure, and
none is counted twice.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from itertools import count
from math import isfinite
from typing import Final

from autoscaler.clusters.kubernetes.api.api_port import Raw
from autoscaler.clusters.kubernetes.objects.fields import key_of, parts, text
from autoscaler.clusters.kubernetes.parsing.training_jobs import KubeJob
from autoscaler.domain import JobName, JobState, Role
from autoscaler.errors import ClusterError
from autoscaler.fault_isolation import GuardedTask
from autoscaler.jobs import life_events
from autoscaler.jobs.lifecycle import LifeStage
from autoscaler.jobs.progress import RefusedTrainer
from autoscaler.jobs.progress_events import early_exit_problem, has_opened_no_session, no_session_problem
from autoscaler.jobs.server_count import describe_loss, loss_of, only_copies_of
from autoscaler.operator.controllers.job_reporter import JobReporter
from autoscaler.operator.controllers.job_writer import JobWriter
from autoscaler.operator.controllers.progress_poller import ProgressPoller
from autoscaler.operator.job.job_pods import has_consistent_name, ordinal_of, role_of, uid_of
from autoscaler.operator.job.job_record import JobRecord, count_server_failure, was_released
from autoscaler.operator.job.node_blocklist import add_failure
from autoscaler.operator.job.pod_termination import (
    PodTermination,
    TerminationCause,
    script_failed_at_s,
    termination_of,
)
from autoscaler.operator.store.event_recorder import JobEvent
from autoscaler.operator.store.job_store import JobStore

CONCURRENT_HANDLINGS: Final = 16  # pods handled concurrently
FIRST_ANSWER_POLLS: Final = 60
ROUNDED_S: Final = 1.0  # instants of the Kubernetes API have no fraction
FIRST_ANSWER_PAUSE_S: Final = 1.0  # between them; below `lifecycle.DIAGNOSIS_LIMIT_S`, so that nothing replaces the pod

log = logging.getLogger(__name__)


class PodFailures:
    """Handler of ended pods.  `tasks`: the handlings in progress; `blocks_nodes`: see `node_blocklist`."""

    def __init__(
        self,
        store: JobStore,
        writer: JobWriter,
        poller: ProgressPoller,
        reporter: JobReporter,
        *,
        blocks_nodes: bool = True,
    ) -> None:
        self.tasks: set[asyncio.Task[None]] = set()
        self._store = store
        self._writer = writer
        self._poller = poller
        self._reporter = reporter
        self._blocks_nodes = blocks_nodes
        self._handling: set[str] = set()  # UIDs
        self._turn = asyncio.Semaphore(CONCURRENT_HANDLINGS)
        self._polls: dict[JobName, asyncio.Lock] = {}
        self._moments = count()
        self._polled_at: dict[JobName, int] = {}  # start of the last poll

    def handle_ended(self, job: KubeJob, raw: Raw) -> None:
        """Handle a pod that has ended without having been deleted."""
        record, role, uid = self._store.record_of(job), role_of(raw), uid_of(raw)
        is_paused = self._store.errors.is_paused(job.key, GuardedTask.POD_END)
        if uid in record.handled or uid in self._handling or role is None or is_paused:
            return
        end = termination_of(raw, record.deleted_by_edl)
        is_judged = record.life.state is JobState.ACTIVE or self._is_late(job, raw, role, end)
        if end is None or not end.is_failure or role is Role.MASTER or not is_judged:
            self._store.change(job, handled=record.handled | {uid})
            return
        if role is Role.TRAINER and record.life.state is JobState.ACTIVE:
            self._store.handle(job, life_events.TrainerEnded())
        self._handling.add(uid)
        handling = self._store.errors.attempt_async(
            job.key, GuardedTask.POD_END, partial(self._handle, job, raw, role, end)
        )
        task = asyncio.ensure_future(handling)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        task.add_done_callback(lambda _: self._end_handling(job.key, uid))

    def is_judging_trainer(self, pods: Iterable[Raw]) -> bool:
        """True while one of these is a trainer that has ended and is not handled."""
        return any(role_of(raw) is Role.TRAINER and uid_of(raw) in self._handling for raw in pods)

    def handle_deleted_server(self, job: KubeJob, raw: Raw) -> None:
        """Emit an event that states whether a deleted server had handed over its buckets before its end."""
        record, uid = self._store.record_of(job), uid_of(raw)
        if role_of(raw) is not Role.SERVER or uid in record.handled or not record.life.needs_model:
            return
        self._store.change(job, handled=record.handled | {uid})
        end = termination_of(raw, record.deleted_by_edl)
        assert end is not None, f"{key_of(raw)} has ended"
        lost = loss_of(end.code, end.exit_description, was_empty=uid in record.emptied)
        if not lost and record.life.state is not JobState.ACTIVE:
            return  # it is suspended: all its servers are deleted
        self._store.events.emit(
            job,
            JobEvent(
                reason="ServerLost" if lost else "ServerLeft",
                message=f"server {end.pod}: {lost or 'handed over all its buckets'}",
                is_warning=bool(lost),
                pod=end.pod,
            ),
        )

    def forget(self, job: JobName) -> None:
        """Drop the state of a deleted job."""
        self._polls.pop(job, None)
        self._polled_at.pop(job, None)

    async def close(self) -> None:
        """Cancel all handlings in progress."""
        for task in tuple(self.tasks):
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    def _end_handling(self, job: JobName, uid: str) -> None:
        self._handling.discard(uid)
        self._store.to_reconcile.add(job)

    async def _handle(self, job: KubeJob, raw: Raw, role: Role, end: PodTermination) -> None:
        try:
            if role is Role.TRAINER and end.code == 0:
                await self._poll_begun_master(job)
            elif role is Role.TRAINER or end.code == 0:
                await self._poll_master(job)
            async with self._turn:
                description = await self._describe(job, raw, role, end)
            self._apply_end(job, raw, role, end, description)
        except ClusterError as error:
            log.warning("the end of %s could not be handled: %s; it is retried", end.pod, error)

    async def _poll_master(self, job: KubeJob) -> None:
        """Wait for a poll of the job's master that begins after this call."""
        called_at = next(self._moments)
        async with self._polls.setdefault(job.key, asyncio.Lock()):
            if self._polled_at.get(job.key, -1) > called_at:
                return
            if (rest_s := self._poller.pause_left_s(job)) > 0.0:
                await asyncio.sleep(rest_s)
            async with self._turn:
                began_at = next(self._moments)
                await self._poller.poll(job)
                self._polled_at[job.key] = began_at  # a failed poll serves no waiter

    async def _poll_begun_master(self, job: KubeJob) -> None:
        """Poll until a master's term has begun: a script that does not use EDL may end before its master has started.

        At most FIRST_ANSWER_POLLS times; no replacement is created meanwhile.
        """
        for _ in range(FIRST_ANSWER_POLLS):
            await self._poll_master(job)
            record = self._store.find(job)
            if record is None or record.life.state is not JobState.ACTIVE:
                return
            if record.progress is not None and record.progress.has_begun:
                return
            self._store.handle(job, life_events.TrainerEnded())
            await asyncio.sleep(FIRST_ANSWER_PAUSE_S)

    def _apply_end(self, job: KubeJob, raw: Raw, role: Role, end: PodTermination, description: str) -> None:
        record, now_s = self._store.find(job), self._store.clock()
        if record is None:
            return
        if role is Role.TRAINER and end.code == 0 and record.progress is not None and record.progress.is_trained:
            # The master reported the end; a final save may still run.
            self._store.change(job, handled=record.handled | {end.uid})
            self._reporter.handle_departure(job, role, end)
            return
        if role is Role.SERVER and was_released(raw, end, record):
            self._store.change(job, handled=record.handled | {end.uid})
            self._reporter.handle_departure(job, role, replace(end, cause=TerminationCause.MASTER))
            return
        name: str = raw["metadata"]["name"]
        refused = _refusal_of(name, record) if role is Role.TRAINER else None
        if refused is not None:  # after the end, too: whoever was refused was no part of the job
            self._store.change(job, handled=record.handled | {end.uid}, refused=record.refused | {refused.process})
            self._reporter.handle_departure(job, role, end)
            self._store.handle(job, life_events.TrainerRefused(pod=name, reason=refused.reason))
            return
        if role is Role.TRAINER and end.code == 0 and _has_no_session(record):
            self._store.change(job, handled=record.handled | {end.uid})
            self._reporter.handle_departure(job, role, end)
            reason, message = life_events.FailureReason.NO_SESSION, f"trainer {name} {description}"
            self._store.handle(job, life_events.GivenUp(reason=reason, message=message))
            return
        if self._blocks_nodes and end.node is not None:
            self._store.change(job, blocklist=add_failure(record.blocklist, end.node, now_s))
        self._store.change(job, handled=record.handled | {end.uid})
        if record.life.state is not JobState.ACTIVE:
            if self._is_late(job, raw, role, end):
                self._reporter.handle_departure(job, role, end)
                self._store.handle(job, life_events.TrainerFailed(pod=name, exit_description=description))
            return
        self._reporter.handle_departure(job, role, end)
        if role is Role.TRAINER:
            self._store.handle(job, life_events.TrainerFailed(pod=name, exit_description=description))
            return
        self._count_server_failure(job, raw, end, description, record)

    def _is_late(self, job: KubeJob, raw: Raw, role: Role, end: PodTermination | None) -> bool:
        """True if a trainer's script failed after the last commit, or in the second before, and before the job is over.

        When the operator hears of either says nothing: the script may have failed long before.  The second is what an
        instant of a node leaves open; most scripts that fail after the loop do so at once.
        """
        record = self._store.record_of(job)
        if role is not Role.TRAINER or end is None or not end.is_failure:
            return False
        if record.life.stage is not LifeStage.FINISHING:
            return False
        failed_at_s = script_failed_at_s(raw, self._container_of(job, role))
        committed_at_s = record.checkpoint_at_s - self._store.offset_s
        return failed_at_s is not None and isfinite(committed_at_s) and failed_at_s + ROUNDED_S > committed_at_s

    def _container_of(self, job: KubeJob, role: Role) -> str:
        template = job.template(role)
        return text(parts(template.raw, "spec", "containers")[template.container], "name")

    def _count_server_failure(
        self, job: KubeJob, raw: Raw, end: PodTermination, description: str, record: JobRecord
    ) -> None:
        name: str = raw["metadata"]["name"]
        counted = count_server_failure(record, self._store.clock())
        self._store.change(job, server_failures=counted.server_failures, server_failed_at_s=counted.server_failed_at_s)
        message = f"parameter server {name} {description}"
        self._store.events.emit(job, JobEvent(reason="ServerFailed", message=message, is_warning=True, pod=end.pod))
        lost = only_copies_of(ordinal_of(raw), record.progress) if has_consistent_name(raw, job.name) else 0
        if lost and job.spec.server is not None:
            message = describe_loss(name, lost, job.spec.server.after_loss)
            self._store.events.emit(job, JobEvent(reason="ServerLost", message=message, is_warning=True, pod=end.pod))

    async def _describe(self, job: KubeJob, raw: Raw, role: Role, end: PodTermination) -> str:
        description = end.exit_description
        if end.code == 0 and role is Role.TRAINER:
            record = self._store.find(job)
            has_servers, is_group = job.spec.server is not None, job.spec.group is not None
            if record is not None and _has_no_session(record):
                description += no_session_problem(is_group=is_group)
            else:
                progress = record.progress if record is not None else None
                description += early_exit_problem(progress, has_servers=has_servers, is_group=is_group)
        lines = await self._writer.tail(raw, self._container_of(job, role))
        return f"{description}; its last lines:\n{lines}" if lines else description


def _has_no_session(record: JobRecord) -> bool:
    """True if no trainer of the job has ever spoken to its master, by its answer to a poll after the pod's end."""
    return record.missing_answer is None and has_opened_no_session(record.progress)


def _refusal_of(pod: str, record: JobRecord) -> RefusedTrainer | None:
    """Return the refusal that this trainer's end follows from: one of its name that no earlier end was due to."""
    known = record.progress.refused if record.progress is not None else ()
    return next((one for one in known if one.name == pod and one.process not in record.refused), None)
