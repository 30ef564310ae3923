"""The few writes that a job's own life asks for, and the last words of a pod.

Every one means this very object (UID), the end of a job also as it was looked at (resourceVersion), and may be
repeated: what is gone already is as it should be.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing, suppress
from typing import Final

from autoscaler.clusters.kubernetes.api.api_port import Api, Preconditions, Propagation, Raw
from autoscaler.clusters.kubernetes.api.errors import ConflictError, NotFoundError
from autoscaler.clusters.kubernetes.api.kinds import DEPLOYMENTS, PODS, TRAINING_JOBS, Kind
from autoscaler.errors import ClusterError

LAST_LINES: Final = 10
MOST_BYTES: Final = 4096
LOG_LIMIT_S: Final = 2.0


class Hands:
    """Writes by a fenced `api`; pods by the cluster's own door, so that the next view knows.  Raises ClusterError."""

    def __init__(self, api: Api, *, delete_pod: Callable[[Raw], Awaitable[None]]) -> None:
        self._api = api
        self.delete_pod = delete_pod  # tells this pod to leave within its own grace

    async def delete_master(self, deployment: Raw) -> None:
        """Its pods go after it."""
        await self._delete(DEPLOYMENTS, deployment, Preconditions(uid=deployment["metadata"]["uid"]))

    async def scale_master(self, deployment: Raw, replicas: int) -> None:
        """This very Deployment has so many replicas, and the number is EDL's field (server-side apply)."""
        metadata = deployment["metadata"]
        named = {name: metadata[name] for name in ("name", "namespace", "uid")}
        await self._api.apply(DEPLOYMENTS, {"metadata": named, "spec": {"replicas": replicas}})

    async def shorten_grace(self, pod: Raw, grace_s: int) -> None:
        """This very pod, which is leaving, leaves within so many seconds of when it was told first."""
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
        """The TrainingJob and, after it, all that it owns, if it is as it was looked at: its time may have grown.

        Raises ConflictError when it is not.
        """
        metadata = job["metadata"]
        only = Preconditions(uid=metadata["uid"], resource_version=metadata["resourceVersion"])
        await self._delete(TRAINING_JOBS, job, only)

    async def tail(self, raw: Raw, container: str) -> str:
        """The last lines that the container wrote; empty when they are not to be had soon."""
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
