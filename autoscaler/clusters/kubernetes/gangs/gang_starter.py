"""Gang starts (`beside-the-scheduler.md` 8 to 11): dry run, gated pods, second capacity check, removal of gates,
masters.

Gangs start concurrently (ADR 0159).  Each proves its capacity beside all un-gated pods, and reserves it while its own
gates are removed.  Two things are kept in memory: backoffs (`start_backoff`) and the gates being removed.  Everything
else is read from the pods each time (`gang_pods`), so after a crash at any write the next pass continues.
"""

from __future__ import annotations

import logging
from asyncio import CancelledError
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from typing import Final

from autoscaler.bounded_gather import gather_bounded
from autoscaler.cluster_port import WriteOutcome, WriteResult
from autoscaler.clusters.kubernetes.api.api_port import REQUEST_TIMEOUT_S, Api, Raw
from autoscaler.clusters.kubernetes.api.errors import AlreadyExistsError
from autoscaler.clusters.kubernetes.api.kinds import DEPLOYMENTS
from autoscaler.clusters.kubernetes.builders.build_settings import BuildSettings
from autoscaler.clusters.kubernetes.builders.master_deployment import build_master
from autoscaler.clusters.kubernetes.cache.object_cache import ObjectCache
from autoscaler.clusters.kubernetes.cluster_view import ViewBuilder
from autoscaler.clusters.kubernetes.gangs import start_backoff
from autoscaler.clusters.kubernetes.gangs.dry_run import check_gang
from autoscaler.clusters.kubernetes.gangs.gang_pods import GangPods
from autoscaler.clusters.kubernetes.gangs.start_backoff import GangStarts, GangStatus
from autoscaler.clusters.kubernetes.objects.labels import GATE
from autoscaler.clusters.kubernetes.parsing.pod_objects import gates_of
from autoscaler.clusters.kubernetes.parsing.training_jobs import KubeJob, shapes_of
from autoscaler.clusters.kubernetes.writes.capacity_check import (
    NodePlacement,
    find_capacity_problem,
    find_existing_pods,
)
from autoscaler.clusters.kubernetes.writes.object_ownership import check_own
from autoscaler.clusters.kubernetes.writes.pod_writer import PodWriter
from autoscaler.domain import AdmitGang, ClusterView, CreatePod, JobName, NodeName, Role, Shape
from autoscaler.errors import ClusterError, PermanentError
from autoscaler.fault_isolation import GuardedTask, JobErrors
from autoscaler.manifests.api_types import Mode

AT_ONCE: Final = 16
"""Concurrent writes: a gang of 60 is written in well under a second, without load on the server."""

LIFT_LIMIT_S: Final = 2 * REQUEST_TIMEOUT_S
"""By then a patch without an answer was applied or never will be, and the watch has shown it."""

_STEPS: Final = (GuardedTask.GANG, GuardedTask.POD_BINDING, GuardedTask.GANG_COMPLETE)
"""Steps of `settle` for each job before it writes."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class GateLift:
    """A gang whose gates are being removed: its capacity is proved, and no view shows it yet."""

    placements: tuple[CreatePod, ...]
    shapes: Mapping[Role, Shape]
    until_s: float = inf  # however long that takes


class GangStarter:
    """Starts the gangs of all jobs.  `prepare` creates the objects of a job that its pods mount."""

    def __init__(
        self,
        api: Api,
        store: ObjectCache,
        views: ViewBuilder,
        writer: PodWriter,
        settings: BuildSettings,
        *,
        clock: Callable[[], float],
        prepare: Callable[[KubeJob], Awaitable[None]],
        errors: JobErrors,
        is_frozen: bool = False,
    ) -> None:
        self.starts = GangStarts()
        self._api = api
        self._store = store
        self._views = views
        self._writer = writer
        self._settings = settings
        self._clock = clock
        self._prepare = prepare
        self._errors = errors
        self._is_frozen = is_frozen
        self._pods = GangPods(store, views)
        self._lifts: dict[JobName, GateLift] = {}
        self._masterless: set[JobName] = set()  # at the last `settle`: all pods bound, the master missing
        self._settled_at_s = -inf
        self._uids: Mapping[JobName, str] = {}  # of jobs, when they could last be read

    async def admit(self, action: AdmitGang, view: ClusterView, newest: Callable[[], ClusterView]) -> WriteOutcome:
        """Start a gang whole or not at all.  `view` is of this instant, `newest` returns later ones."""
        job = self._views.jobs.known[action.job]
        if problem := self._find_problem(view, action, job):
            return WriteOutcome(result=WriteResult.REFUSED, message=problem)
        placements = [placement for placement in action.pods if placement.role is not Role.MASTER]
        masters = tuple(placement.node for placement in action.pods if placement.role is Role.MASTER)
        avoid = self._views.jobs.runtime(job).avoided_nodes
        try:
            await check_gang(self._api, job, placements, self._settings, avoid=avoid)
            await self._prepare(job)
            create = partial(self._writer.create_gated, job, avoid=avoid, masters=masters)
            made = await gather_bounded((partial(create, placement) for placement in placements), at_once=AT_ONCE)
        except PermanentError as error:
            self._refuse(job, str(error))
            newest()
            await self._drop_gated(job)
            return WriteOutcome(result=WriteResult.REFUSED, message=str(error))
        if problem := self._find_problem(newest(), action, job):
            return WriteOutcome(result=WriteResult.REFUSED, message=problem)
        gated = [
            (raw, placement.node) for raw, placement in zip(made, placements, strict=True) if GATE in gates_of(raw)
        ]
        await self._lift(job.key, GateLift(placements=action.pods, shapes=shapes_of(job, avoid=avoid)), gated)
        return WriteOutcome(result=WriteResult.DONE)

    async def settle(self, now_s: float) -> None:
        """Create the masters of gangs that are bound, and delete pods that missed their deadline.

        Failures with single jobs are reported after all jobs have been tried.  Raises ClusterError.
        """
        attempt = self._errors.attempt
        is_paused = self._errors.is_paused
        managed = self._managed()
        jobs = [job for job in managed if not is_paused(job.key, GuardedTask.GANG)]
        observed = [(job, attempt(job.key, GuardedTask.GANG, partial(self._pods.observe, job))) for job in jobs]
        statuses = {job.key: found for job, found in observed if found is not None}
        self._pods.forget_gone()
        self._lifts = {name: lift for name, lift in self._lifts.items() if now_s < lift.until_s}
        names, staying = {job.key for job in managed}, self._present_jobs()
        self.starts, lost = start_backoff.observe_gangs(
            self.starts, statuses.values(), now_s, jobs=staying, managed=names, errors=self._errors
        )
        given_up = {one.job for one in lost}
        whole = [
            job
            for job in jobs
            if job.key in statuses
            and job.key not in given_up
            and not is_paused(job.key, GuardedTask.GANG_COMPLETE)
            and attempt(job.key, GuardedTask.GANG_COMPLETE, partial(self._awaits_master, job, statuses[job.key]))
        ]
        self._masterless = {job.key for job in whole}
        self._settled_at_s = now_s
        master_at_s = self._masters_at_s()
        due = [job for job in whole if master_at_s[job.key] <= now_s]
        deletions = [
            partial(self._errors.attempt_async, one.job, GuardedTask.DROP, partial(self._writer.delete, raw))
            for one in lost
            if not is_paused(one.job, GuardedTask.DROP)
            for raw in self._pods.raws(one.pods)
        ]
        masters = (
            partial(self._errors.attempt_async, job.key, GuardedTask.START, partial(self._create_master, job))
            for job in due
        )
        await gather_bounded([*deletions, *masters], at_once=AT_ONCE)

    def _awaits_master(self, job: KubeJob, found: GangStatus) -> bool:
        return bool(found.bound) and not self._pods.has_master(job) and self._pods.is_complete(job, found)

    @property
    def wake_at_s(self) -> float | None:
        """Instant at which `settle` has to run again for reasons of time alone; None: never."""
        errors = self._errors
        masters = [at_s for at_s in self._masters_at_s().values() if at_s > self._settled_at_s]
        tried_again = [errors.retry_at_s(job, step) for step in _STEPS for job in errors.paused(step)]
        late = [
            account.late_at_s
            for job, account in self.starts.records.items()
            if not any(errors.fails(job, step) for step in _STEPS)
        ]
        at_s = min([*masters, *tried_again, *late], default=inf)
        return None if at_s == inf else at_s

    def hold_until_s(self, job: KubeJob) -> float:
        """Return until when the job creates nothing, because its starts failed or were refused."""
        return self.starts.backoff(job.key).held_until_s(job.generation)

    def reserved_capacity(self, view: ClusterView, *, besides: Collection[CreatePod]) -> list[NodePlacement]:
        """Return the capacity proved for gangs whose gates are being removed, as far as the view does not show it.

        `besides`: pods requested now, which would be counted twice.
        """
        now_s = self._clock()
        lifts = {name: lift for name, lift in self._lifts.items() if now_s < lift.until_s}
        there = {(pod.job, pod.role, pod.ordinal) for pod in view.pods if pod.job in lifts} if lifts else set()
        requested = {(placement.job, placement.role, placement.ordinal, placement.node) for placement in besides}
        return [
            (placement.node, lift.shapes[placement.role])
            for name, lift in lifts.items()
            for placement in lift.placements
            if (name, placement.role, placement.ordinal) not in there
            and (name, placement.role, placement.ordinal, placement.node) not in requested
        ]

    # ---- internals ----------------------------------------------------------------------------------------------

    def _managed(self) -> list[KubeJob]:
        """Return active jobs that EDL writes for: none under a freeze, none that is only observed (rule 20)."""
        wanting = self._views.jobs.active().values()
        return [] if self._is_frozen else [job for job in wanting if job.spec.mode is Mode.MANAGE]

    def _present_jobs(self) -> set[JobName]:
        """Return all jobs, unreadable ones too, but not a new job under an old name."""
        before, known, wrong = self._uids, self._views.jobs.known, self._views.jobs.invalid
        self._uids = {name: before[name] for name in wrong if name in before}
        self._uids |= {name: job.uid for name, job in known.items()}
        return {*wrong, *(name for name, job in known.items() if before.get(name, job.uid) == job.uid)}

    def _masters_at_s(self) -> dict[JobName, float]:
        """Return when each missing master may be created: after a failed start, and after a fault of EDL."""
        known = self._views.jobs.known
        jobs = [known[name] for name in self._masterless if name in known]
        retry_at_s = self._errors.retry_at_s
        return {job.key: max(self.hold_until_s(job), retry_at_s(job.key, GuardedTask.START)) for job in jobs}

    def _refuse(self, job: KubeJob, why: str) -> None:
        self.starts = start_backoff.record_refusal(self.starts, job.key, self._clock(), why, generation=job.generation)

    def _find_problem(self, view: ClusterView, action: AdmitGang, job: KubeJob) -> str:
        shapes = shapes_of(job, avoid=self._views.jobs.runtime(job).avoided_nodes)
        placements = ((pod.node, shapes[pod.role]) for pod in action.pods)
        held = self.reserved_capacity(view, besides=action.pods)
        return find_capacity_problem(view, placements, find_existing_pods(view, action.pods), reserved=held)

    async def _lift(self, job: JobName, lift: GateLift, gated: list[tuple[Raw, NodeName]]) -> None:
        """Remove the gates.  After a lost answer the capacity stays reserved: the patch may have been applied."""
        self._lifts[job] = lift
        try:
            await gather_bounded((partial(self._writer.ungate, raw, node) for raw, node in gated), at_once=AT_ONCE)
        except (ClusterError, CancelledError):
            self._lifts[job] = replace(lift, until_s=self._clock() + LIFT_LIMIT_S)
            raise
        except Exception:
            del self._lifts[job]  # a fault of EDL (`fault_isolation`): others need not wait for it
            raise
        del self._lifts[job]

    async def _create_master(self, job: KubeJob) -> None:
        known = self._views.jobs.known.get(job.key)
        if known is None or known.uid != job.uid:
            return  # the job was deleted during other writes
        nodes = self._views.pods.master_nodes(job.key)[: job.spec.master.replicas]  # annotations can be edited
        body = build_master(job, self._settings, nodes=nodes)
        try:
            raw = await self._create_or_find(job, body)
        except PermanentError as error:
            log.warning("tj/%s: the master cannot be created: %s", job.key, error)
            await self._abandon_start(job, str(error))
        else:
            self._store.put_written(DEPLOYMENTS, raw)

    async def _create_or_find(self, job: KubeJob, body: Raw) -> Raw:
        try:
            return await self._api.create(DEPLOYMENTS, body)
        except AlreadyExistsError:
            name = body["metadata"]["name"]
            raw = await self._api.get(DEPLOYMENTS, name, namespace=job.namespace)
            check_own(raw, DEPLOYMENTS, job)
            return raw

    async def _abandon_start(self, job: KubeJob, why: str) -> None:
        """The API server refuses the master: delete a starting gang whole, let a running job wait."""
        status = self._pods.observe(job)
        self._refuse(job, why)
        pods = self._pods.raws(status.bound | status.unbound) if status.is_starting else []
        await gather_bounded((partial(self._writer.delete, raw) for raw in pods), at_once=AT_ONCE)

    async def _drop_gated(self, job: KubeJob) -> None:
        """Delete gated pods: a part of a gang would only use up a quota."""
        gated = [raw for raw in self._pods.members(job) if GATE in gates_of(raw)]
        await gather_bounded((partial(self._writer.delete, raw) for raw in gated), at_once=AT_ONCE)
