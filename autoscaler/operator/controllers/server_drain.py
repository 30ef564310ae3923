"""Draining of parameter servers: the number of servers that a job's master is set to, and when a server may be
deleted.

The planner decides a number, the operator creates and deletes pods, the master moves buckets.  The master is set to n
servers with the ordinals 0 to n - 1; n is derived from the existing pods, so a new leader computes the same
(`jobs.server_count`).  A new pod raises n.  A server that the planner deletes lowers n and *drains*: its pod stays
until the master reports that it owns no bucket.  No pod waits for its capacity meanwhile; a deleted pod would have
its grace period only.  If the master is silent for `SILENCE_LIMIT_S`, the server is deleted anyway and hands over
within its grace period.  A master that answers without leading does not count as silent: etcd is unreachable, and no
server could take over buckets (ADR 0156).

Forced deletions (a node's drain, a gang that is deleted as one, the end of its job) bypass this module.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Final

from autoscaler.cluster_port import Cluster, WriteOutcome, WriteResult
from autoscaler.clusters.kubernetes.api.api_port import Raw
from autoscaler.clusters.kubernetes.objects.fields import key_of, text
from autoscaler.clusters.kubernetes.parsing.server_replacement import find_replaced_pod
from autoscaler.clusters.kubernetes.parsing.training_jobs import KubeJob
from autoscaler.domain import Action, Cause, ClusterView, DeletePod, JobState, PodName, Role
from autoscaler.fault_isolation import GuardedTask
from autoscaler.jobs.progress import JobProgress, shortened
from autoscaler.jobs.restart_policy import SILENCE_LIMIT_S
from autoscaler.jobs.server_count import SPARE_ORDINALS, servers_wanted
from autoscaler.manifests.api_types import ReplicaBounds
from autoscaler.operator.controllers.master_client import MasterClient
from autoscaler.operator.job.job_pods import (
    active_pods,
    has_consistent_name,
    has_ended,
    is_leaving,
    ordinal_of,
    role_of,
    uid_of,
)
from autoscaler.operator.job.job_record import SERVING, JobRecord, ServerDrain
from autoscaler.operator.store.event_recorder import JobEvent
from autoscaler.operator.store.job_store import JobStore

VOLUNTARY: Final = frozenset({Cause.RATIO, Cause.EDIT})
"""Causes of voluntary server deletions in an active job: fewer trainers, or an edited count."""

log = logging.getLogger(__name__)


def plan_server_count(
    sizes: ReplicaBounds,
    *,
    target: int,
    active: Collection[int],
    draining: Collection[int],
    current: int,
    successors: Collection[int] = (),
) -> int:
    """Return the number of servers to set the master to.

    `current`: the number that the master is set to; `target`: the planner's; the rest are ordinals.  A shrink that an
    earlier leader began continues, even while a window of the new leader's planner delays the decision.  A server in
    `successors` counts as one more until the server that it replaces is gone.
    """
    count = servers_wanted(sizes.minimum, (ordinal for ordinal in active if ordinal not in draining))
    count = min(count, sizes.maximum + SPARE_ORDINALS)  # in spite of pods that users created
    enough = max(sizes.minimum, target) <= sum(ordinal < current for ordinal in active if ordinal not in draining)
    kept = max([current, *(ordinal + 1 for ordinal in successors)])
    return kept if enough and kept < count else count


def drain_problem(drain: ServerDrain, record: JobRecord, now_s: float) -> str:
    """Return why the server's pod is not deleted yet; empty if it may be.

    The reason contains no changing numbers: each would be one more write of the status.
    """
    progress = record.progress
    answered_s = max(drain.since_s, record.progress_at_s, record.refused_at_s)
    has_answered = now_s - answered_s < SILENCE_LIMIT_S
    if has_answered and record.refused_at_s > record.progress_at_s:
        return "no master leads the job now, so its buckets are unknown"
    if progress is None or not has_answered:
        return f"waits up to {SILENCE_LIMIT_S:.0f} s for the job's master to report its buckets" if has_answered else ""
    if progress.servers_wanted > drain.ordinal:
        return "the job's master has not been set to the new number yet"
    if progress.phase not in SERVING:
        return f"the job's master does not know its buckets yet: {progress.phase}"
    is_empty = not dict(progress.buckets).get(drain.ordinal)
    return "" if is_empty else "its buckets are being moved to other servers"


class ServerDrains:
    """Parameter servers of all jobs that drain, and the number of servers of each job's master."""

    def __init__(self, store: JobStore, masters: MasterClient) -> None:
        self._store = store
        self._masters = masters

    # ---- planned deletions ----------------------------------------------------------------------------

    def begin(self, action: DeletePod) -> str:
        """Begin to drain the server of a planned deletion.

        Return why its pod must stay; empty if it may be deleted.
        """
        record = self._store.records.get(action.job)
        if action.role is not Role.SERVER or action.cause not in VOLUNTARY or record is None:
            return ""
        raw = self._active_servers(record.job).get(action.pod)
        if raw is None or record.life.state is not JobState.ACTIVE:
            return ""
        now_s, drain = self._store.clock(), record.drains.get(action.pod)
        if drain is None:
            drain = ServerDrain(ordinal=ordinal_of(raw), since_s=now_s)
            self._store.change(record.job, drains={**record.drains, action.pod: drain})
            message = f"server {action.pod}: drains, and is deleted once its buckets have been moved"
            self._store.events.emit(record.job, JobEvent(reason="ServerDraining", message=message, pod=action.pod))
        return drain_problem(drain, record, now_s)

    def keep_planned(self, actions: Iterable[Action]) -> None:
        """End each drain whose deletion is not in the newest plan: that server stays."""
        planned = {action.pod for action in actions if isinstance(action, DeletePod)}
        for record in tuple(self._store.records.values()):
            if record.drains and not record.drains.keys() <= planned:
                drains = {pod: drain for pod, drain in record.drains.items() if pod in planned}
                with self._store.errors.isolate(record.job.key, GuardedTask.REPORT):
                    self._store.change(record.job, drains=drains)

    # ---- the number of servers ----------------------------------------------------------------------------------

    async def apply_count(
        self, job: KubeJob, masters: Sequence[Raw], leader: str, progress: JobProgress
    ) -> JobProgress:
        """Set the number of servers at the master pod `leader` if it counts on another; return the progress after."""
        count = self._plan_count(job, progress)
        if count is not None and count != progress.servers_wanted:
            raw = next(raw for raw in masters if text(raw, "metadata", "name") == leader)
            progress = await self._set_count(job, raw, progress, count)
        record = self._store.records.get(job.key)
        if record is not None and record.drains:
            self._store.request_plan()  # a refused deletion may succeed now
        return progress

    def _plan_count(self, job: KubeJob, progress: JobProgress) -> int | None:
        """Return the number of servers to set; None: do not change the master's number."""
        record, decision = self._store.records.get(job.key), self._store.plan_report_of(job.key).decision
        if job.spec.server is None or record is None or decision is None or not self._store.may_write(job):
            return None
        if record.life.state is not JobState.ACTIVE:
            return None  # an ending job keeps its number
        ended = [raw for raw in self._servers(job) if has_ended(raw) and not is_leaving(raw)]
        if any(uid_of(raw) not in record.handled for raw in ended):
            return None  # an ended server may have been released: keep the number until its end is handled
        there, drains = self._active_servers(job), record.drains
        return plan_server_count(
            job.spec.server.replicas,
            target=decision.servers_target,
            active=[ordinal_of(raw) for raw in there.values()],
            draining=[drains[name].ordinal for name in there.keys() & drains.keys()],
            current=progress.servers_wanted,
            successors=[
                ordinal_of(raw) for raw in there.values() if find_replaced_pod(raw, self._store.objects.pod) is not None
            ],
        )

    async def _set_count(self, job: KubeJob, leader: Raw, progress: JobProgress, count: int) -> JobProgress:
        answer = await self._masters.set_servers(job, leader, count)
        record = self._store.find(job)
        if answer is None or record is None:
            return progress  # set again with the next poll
        refused = "" if answer.refused is None else shortened(f"{answer.refused.field} {answer.refused.message}")
        if refused and refused != record.count_refusal:
            message = f"the job's master refuses {count} parameter servers: {refused}"
            self._store.events.emit(job, JobEvent(reason="ServersRefused", message=message, is_warning=True))
        elif not refused:
            log.info("tj/%s: the master is set to %d servers (was %d)", job.key, count, progress.servers_wanted)
        self._store.change(job, count_refusal=refused)
        return replace(progress, servers_wanted=answer.count)

    def _active_servers(self, job: KubeJob) -> dict[PodName, Raw]:
        return {PodName(key_of(raw)): raw for raw in active_pods(self._servers(job), Role.SERVER)}

    def _servers(self, job: KubeJob) -> list[Raw]:
        """Return the job's servers, active or not."""
        pods = self._store.objects.pods(job)
        return [raw for raw in pods if role_of(raw) is Role.SERVER and has_consistent_name(raw, job.name)]


class DrainGuard:
    """Decorator of the cluster port: a server is deleted only after it has drained.

    A watch may show a deletion before the write returns, so each deletion is recorded before it is written; otherwise
    it would be attributed to a user.
    """

    def __init__(self, inner: Cluster, store: JobStore, drains: ServerDrains) -> None:
        self._inner = inner
        self._store = store
        self._drains = drains

    def now(self) -> float:
        """See `Cluster.now`."""
        return self._inner.now()

    async def observe(self) -> ClusterView:
        """See `Cluster.observe`."""
        return await self._inner.observe()

    async def apply(self, action: Action) -> WriteOutcome:
        """See `Cluster.apply`."""
        if isinstance(action, DeletePod):
            if why := self._drains.begin(action):
                return WriteOutcome(result=WriteResult.REFUSED, message=f"pod {action.pod} is not deleted yet: {why}")
            self._store.record_deletion(action.job, action.pod)
        return await self._inner.apply(action)

    async def changed(self, timeout_s: float) -> bool:
        """See `Cluster.changed`."""
        return await self._inner.changed(timeout_s)
