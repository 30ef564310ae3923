"""Writes and deletions for a job's lifecycle: pods, master Deployment, TrainingJob; and the end of a pod's log.

Every write has a UID precondition, a job's deletion also a resourceVersion; writes are idempotent.
"""

from __future__ import annotations

import asyncio
import math
from contextlib import aclosing, suppress
from typing import Final

from autoscaler.clusters.kubernetes.api.api_port import Api, Preconditions, Propagation, Raw
from autoscaler.clusters.kubernetes.api.errors import ConflictError, NotFoundError
from autoscaler.clusters.kubernetes.api.kinds import DEPLOYMENTS, PODS, TRAINING_JOBS, Kind
from autoscaler.clusters.kubernetes.objects.fields import integer
from autoscaler.clusters.kubernetes.parsing.training_jobs import KubeJob
from autoscaler.errors import ClusterError
from autoscaler.operator.job.job_pods import uid_of
from autoscaler.operator.store.event_recorder import JobEvent
from autoscaler.operator.store.job_store import JobStore

SCALE_AGAIN_S: Final = 5.0
LAST_LINES: Final = 10
MOST_BYTES: Final = 4096
LOG_LIMIT_S: Final = 2.0


class JobWriter:
    """Writes through a fenced `api`; pods are deleted through the cluster adapter, so that the next view shows it.

    Raises ClusterError.
    """

    def __init__(self, api: Api, store: JobStore) -> None:
        self._api = api
        self._store = store
        self._scaled_at_s: dict[str, float] = {}  # by UID of the Deployment, those of the last seconds

    async def delete_pod(self, pod: Raw) -> None:
        """Delete this very pod with its own grace."""
        await self._store.cluster.delete_pod(pod)

    async def delete_master(self, deployment: Raw) -> None:
        """Delete the Deployment; its pods go after it."""
        await self._delete(DEPLOYMENTS, deployment, Preconditions(uid=deployment["metadata"]["uid"]))

    async def keep_master_count(self, job: KubeJob, deployment: Raw) -> None:
        """Restore the replica count of a master Deployment that a user has scaled.

        Without a master the job's trainers get no leases and occupy capacity in vain.  The count is server-side
        applied, so that its field owner is visible; it is restored at most once per `SCALE_AGAIN_S`.  Other edits of
        the Deployment are left alone.
        """
        now_s, uid = self._store.clock(), uid_of(deployment)
        self._scaled_at_s = {of: at_s for of, at_s in self._scaled_at_s.items() if now_s < at_s + SCALE_AGAIN_S}
        wanted, stands = job.spec.master.replicas, integer(deployment, "spec", "replicas", default=1)
        if stands == wanted or self._scaled_at_s.get(uid, -math.inf) + SCALE_AGAIN_S > now_s:
            return
        self._scaled_at_s[uid] = now_s
        metadata = deployment["metadata"]
        named = {name: metadata[name] for name in ("name", "namespace", "uid")}
        await self._api.apply(DEPLOYMENTS, {"metadata": named, "spec": {"replicas": wanted}})
        message = (
            f"somebody set its Deployment to {stands} replicas; spec.master.replicas is {wanted}, which holds again"
        )
        self._store.events.emit(job, JobEvent(reason="MastersRestored", message=message, is_warning=True))

    async def shorten_grace(self, pod: Raw, grace_s: int) -> None:
        """Shorten the grace period of this terminating pod, counted from its first deletion."""
        metadata = pod["metadata"]
        with suppress(NotFoundError, ConflictError):  # it is gone, or is another pod
            await self._api.delete(
                PODS,
                metadata["name"],
                namespace=metadata["namespace"],
                only=Preconditions(uid=metadata["uid"]),
                grace_s=grace_s,
            )

    async def delete_job(self, job: Raw) -> None:
        """Delete the TrainingJob and, after it, all that it owns.

        Raises ConflictError if it has changed since it was looked at: its time to live may have grown.
        """
        metadata = job["metadata"]
        only = Preconditions(uid=metadata["uid"], resource_version=metadata["resourceVersion"])
        await self._delete(TRAINING_JOBS, job, only)

    async def tail(self, raw: Raw, container: str) -> str:
        """Return the last lines that the container wrote; empty if the API server does not answer within
        `LOG_LIMIT_S`.
        """
        found = bytearray()
        metadata = raw["metadata"]
        with suppress(ClusterError, TimeoutError):
            async with asyncio.timeout(LOG_LIMIT_S):
                log = self._api.log(
                    metadata["name"], namespace=metadata["namespace"], container=container, tail_lines=LAST_LINES
                )
                async with aclosing(log) as chunks:
                    async for chunk in chunks:
                        found += chunk
                        del found[:-MOST_BYTES]
        return found.decode("utf-8", errors="replace").strip()

    async def _delete(self, kind: Kind, raw: Raw, only: Preconditions) -> None:
        metadata = raw["metadata"]
        with suppress(NotFoundError):
            await self._api.delete(
                kind,
                metadata["name"],
                namespace=metadata["namespace"],
                only=only,
                propagation=Propagation.BACKGROUND,
            )
