"""The Kubernetes adapter of the port `Cluster`: the planner's view, and how its actions are carried out.

A reflector fills the object cache.  `cluster_view` derives the view, `gangs` starts jobs and `writes` changes pods.
kube-scheduler binds pods; EDL has proved their capacity and ties each pod to its node.  A job's lifecycle (stop,
suspend, forget) belongs to `autoscaler.operator`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from typing import Final, assert_never

from autoscaler.cluster_port import WriteOutcome, WriteResult
from autoscaler.clusters.kubernetes.api.api_port import Api, Preconditions, Propagation, Raw
from autoscaler.clusters.kubernetes.api.errors import ForbiddenError, NotFoundError, UnavailableError
from autoscaler.clusters.kubernetes.api.kinds import DEPLOYMENTS, PODS
from autoscaler.clusters.kubernetes.builders.build_settings import BuildSettings
from autoscaler.clusters.kubernetes.cache.object_cache import ObjectCache, StaleViewError, check_fresh
from autoscaler.clusters.kubernetes.cluster_view import JobRuntime, RuntimeOf, ViewBuilder
from autoscaler.clusters.kubernetes.gangs.gang_starter import GangStarter
from autoscaler.clusters.kubernetes.gangs.start_backoff import StartBackoff
from autoscaler.clusters.kubernetes.objects.fields import controller_of
from autoscaler.clusters.kubernetes.objects.names import master_name, split_key
from autoscaler.clusters.kubernetes.parsing.server_replacement import replacement_annotation
from autoscaler.clusters.kubernetes.parsing.training_jobs import KubeJob, shapes_of
from autoscaler.clusters.kubernetes.writes.capacity_check import find_capacity_problem, find_existing_pods
from autoscaler.clusters.kubernetes.writes.create_backoff import CreateBackoff
from autoscaler.clusters.kubernetes.writes.pod_writer import PodWriter
from autoscaler.domain import (
    FOR_JOBS,
    Action,
    AdmitGang,
    ClusterView,
    CreatePod,
    DeletePod,
    JobName,
    JobState,
    Role,
)
from autoscaler.errors import ClusterError, PermanentError
from autoscaler.fault_isolation import JobErrors
from autoscaler.manifests.api_types import Mode

DONE: Final = WriteOutcome(result=WriteResult.DONE)
SETTLE_AGAIN_S: Final = 1.0  # after an error
SETTLE_EVERY_S: Final = 0.25
"""Shortest period of `settle`, which visits all jobs; while many of them start, changes come all the time."""

log = logging.getLogger(__name__)


class KubernetesCluster:
    """Adapter of one cluster.  The reflector calls `touch` after each change of the cache; `settle_gangs` runs beside
    the loop.

    `clock` is the cluster's clock, `offset_s` converts Unix time to it.  `api` is fenced: it writes for the leader
    alone.  With `is_frozen`, `settle_gangs` writes nothing; the loop has `Policy.is_frozen`.
    """

    def __init__(
        self,
        api: Api,
        store: ObjectCache,
        settings: BuildSettings,
        *,
        clock: Callable[[], float],
        offset_s: float,
        runtime_of: RuntimeOf,
        prepare: Callable[[KubeJob], Awaitable[None]],
        errors: JobErrors,
        is_frozen: bool = False,
        settle_every_s: float = SETTLE_EVERY_S,
    ) -> None:
        self._api = api
        self._settle_every_s = settle_every_s
        self._store = store
        self._clock = clock
        self._writer = PodWriter(api, store, settings, clock=clock, errors=errors)
        self.views = ViewBuilder(
            store,
            reclaim=settings.reclaim,
            offset_s=offset_s,
            runtime_of=lambda job: self._with_start_backoff(job, runtime_of(job)),
            expected=self._writer.expected,
            errors=errors,
            fixes_observed=True,
            elastic_servers=settings.elastic_servers,
            moves_servers=settings.moves_servers,
        )
        self._gangs = GangStarter(
            api,
            store,
            self.views,
            self._writer,
            settings,
            clock=clock,
            prepare=prepare,
            errors=errors,
            is_frozen=is_frozen,
        )
        self._create_backoff = CreateBackoff()
        self._news = asyncio.Event()
        self._unsettled = asyncio.Event()

    # ---- the port -----------------------------------------------------------------------------------------------

    def now(self) -> float:
        return self._clock()

    async def observe(self) -> ClusterView:
        return self.view()

    def view(self) -> ClusterView:
        """Return what `observe` returns, without waiting."""
        return self.views.build(self._clock())

    async def apply(self, action: Action) -> WriteOutcome:
        """Carry out one action, completely or not at all.

        A refusal does not wake the loop: the same plan would be made and refused again for as long as the reason lasts.
        """
        outcome = await self._apply_safely(action)
        if outcome.result is not WriteResult.REFUSED:
            self.touch()
        return outcome

    async def changed(self, timeout_s: float) -> bool:
        try:
            async with asyncio.timeout(timeout_s):
                await self._news.wait()
        except TimeoutError:
            return False
        self._news.clear()
        return True

    # ---- beside the port ----------------------------------------------------------------------------------------

    def touch(self) -> None:
        """Wake the loop and `settle_gangs`: something has changed that a plan depends on."""
        self._news.set()
        self._unsettled.set()

    async def delete_pod(self, raw: Raw) -> None:
        """Delete this very pod; the next view shows it terminating.  Raises ClusterError."""
        await self._writer.delete(raw)
        self.touch()

    def start_backoff(self, job: JobName) -> StartBackoff:
        """Return the job's backoff after failed starts."""
        return self._gangs.starts.backoff(job)

    async def settle_gangs(self) -> None:
        """Create masters of bound gangs and delete late pods, until cancelled.

        The first change after a quiet while is handled at once; a row of changes every `settle_every_s`.
        """
        while True:
            self._unsettled.clear()
            looked_at_s, wait_s = self._clock(), None
            try:
                check_fresh(self._store, self._clock())
                self.view()
                await self._gangs.settle(self._clock())
                if (wake_at_s := self._gangs.wake_at_s) is not None:
                    wait_s = max(0.0, wake_at_s - self._clock())
            except StaleViewError:
                wait_s = SETTLE_AGAIN_S
            except ClusterError as error:
                log.warning("starting gangs: %s; retrying in %g s", error, SETTLE_AGAIN_S)
                wait_s = SETTLE_AGAIN_S
            try:
                async with asyncio.timeout(wait_s):
                    await self._unsettled.wait()
            except TimeoutError:
                pass
            if (left_s := looked_at_s + self._settle_every_s - self._clock()) > 0.0:
                await asyncio.sleep(left_s)

    # ---- actions ------------------------------------------------------------------------------------------------

    async def _apply_safely(self, action: Action) -> WriteOutcome:
        try:
            return await self._apply(action)
        except UnavailableError as error:
            return WriteOutcome(result=WriteResult.FAILED, message=str(error))
        except PermanentError as error:
            return WriteOutcome(result=WriteResult.REFUSED, message=str(error))
        except ClusterError as error:
            return WriteOutcome(result=WriteResult.FAILED, message=str(error))

    async def _apply(self, action: Action) -> WriteOutcome:
        check_fresh(self._store, self._clock())
        view = self.view()
        job = self.views.jobs.known.get(action.job)
        if job is None and not isinstance(action, DeletePod):
            return refused(f"there is no job {action.job}")
        if job is not None and job.spec.mode is Mode.OBSERVE:
            return refused(f"job {action.job} is only observed")
        match action:
            case CreatePod():
                assert job is not None
                return await self._create(action, job, view)
            case AdmitGang():
                assert job is not None
                return await self._admit(action, job, view)
            case DeletePod():
                return await self._delete(action, job, view)
            case _:
                assert_never(action)

    async def _create(self, placement: CreatePod, job: KubeJob, view: ClusterView) -> WriteOutcome:
        facts = self.views.jobs.runtime(job)
        if facts.state is not JobState.ACTIVE:
            return refused(f"job {placement.job} accepts no pods now")
        if placement.role is Role.MASTER:
            return refused("masters are replaced by their Deployment")
        shape = shapes_of(job, avoid=facts.avoided_nodes)[placement.role]
        held = self._gangs.reserved_capacity(view, besides=[placement])
        if problem := find_capacity_problem(
            view, [(placement.node, shape)], find_existing_pods(view, [placement]), reserved=held
        ):
            return refused(problem)
        if message := self._create_backoff.refusal(placement.job, placement.tier, self._clock()):
            return refused(message)
        replaces = ""
        if placement.replaces is not None:
            old = self._store.get(PODS, split_key(placement.replaces))
            if old is None:
                return refused(f"pod {placement.replaces} is gone and needs no successor")
            replaces = replacement_annotation(old)
        try:
            await self._writer.create_tied(job, placement, avoid=facts.avoided_nodes, replaces=replaces)
        except ForbiddenError as error:
            self._create_backoff.retain(self.views.jobs.known)
            self._create_backoff.record(placement.job, placement.tier, error, self._clock())
            raise
        self._create_backoff.forget(placement.job, placement.tier)
        return DONE

    async def _admit(self, action: AdmitGang, job: KubeJob, view: ClusterView) -> WriteOutcome:
        if self.views.jobs.runtime(job).state is not JobState.ACTIVE:
            return refused(f"job {action.job} accepts no pods now")
        return await self._gangs.admit(action, view, self.view)

    async def _delete(self, action: DeletePod, job: KubeJob | None, view: ClusterView) -> WriteOutcome:
        gains = self.views.jobs.known.get(JobName(action.beneficiary)) if action.cause in FOR_JOBS else None
        if gains is not None and gains.spec.mode is Mode.OBSERVE:
            return refused(f"the deletion is for job {gains.key}, which is only observed")
        existing = next((pod for pod in view.pods if pod.name == action.pod), None)
        if existing is not None and existing.job != action.job:
            return refused(f"pod {action.pod} is not a pod of job {action.job}")
        if action.role is Role.MASTER:
            return await self._delete_masters(job)
        raw = self._store.get(PODS, split_key(action.pod))
        if existing is not None and raw is not None:
            await self._writer.delete(raw, grace_s=action.grace_s)
        return DONE

    async def _delete_masters(self, job: KubeJob | None) -> WriteOutcome:
        """Delete a job's masters, all of them, by their Deployment."""
        raw = None if job is None else self._store.get(DEPLOYMENTS, (job.namespace, master_name(job.name)))
        if job is None or raw is None or controller_of(raw).get("uid") != job.uid:
            return DONE
        metadata = raw["metadata"]
        with suppress(NotFoundError):
            await self._api.delete(
                DEPLOYMENTS,
                metadata["name"],
                namespace=metadata["namespace"],
                only=Preconditions(uid=metadata["uid"]),
                propagation=Propagation.BACKGROUND,
            )
        return DONE

    def _with_start_backoff(self, job: KubeJob, facts: JobRuntime) -> JobRuntime:
        """Return the runtime of a job that creates nothing while its start backoff lasts."""
        hold_until_s = self._gangs.hold_until_s(job)
        return replace(facts, hold_until_s=hold_until_s) if hold_until_s > facts.hold_until_s else facts


def refused(message: str) -> WriteOutcome:
    return WriteOutcome(result=WriteResult.REFUSED, message=message)
