"""Which master of a job answers, and what it says: each of its pods is asked until one leads."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from autoscaler.clusters.kubernetes.api.port import Raw
from autoscaler.clusters.kubernetes.building.environment import MASTER_PORT
from autoscaler.clusters.kubernetes.building.identity import Identity
from autoscaler.clusters.kubernetes.building.names import master_host, store_name
from autoscaler.clusters.kubernetes.reading.jobs import KubeJob
from autoscaler.clusters.kubernetes.reading.raw import text
from autoscaler.errors import ClusterError
from autoscaler.jobs.masters import Door, DoorTls, Masters
from autoscaler.jobs.progress import JobProgress


class Asking:
    """Asks by the addresses of the pods, so that a standby that answers first is no answer."""

    def __init__(self, masters: Masters, identity_of: Callable[[KubeJob], Awaitable[Identity | None]]) -> None:
        self._masters = masters
        self._identity_of = identity_of

    async def ask(self, job: KubeJob, masters: Sequence[Raw]) -> tuple[str, JobProgress] | None:
        """The pod that leads and what it says; None when none of them answers."""
        name = store_name(job.namespace, job.name, job.uid)
        places = {f"{_bracketed(ip)}:{MASTER_PORT}": raw for raw in masters if (ip := text(raw, "status", "podIP"))}
        await self._masters.keep_only(name, frozenset(places))
        if not places:
            return None
        try:
            identity = await self._identity_of(job)
        except ClusterError:
            return None
        if identity is None:
            return None
        tls = DoorTls(
            authority=identity.authority.certificate,
            certificate=identity.member.certificate,
            key=identity.member.key,
            host=master_host(job.namespace, job.name),
        )
        for address, raw in places.items():
            door = Door(job=name, address=address, token=identity.token, tls=tls)
            if (progress := await self._masters.look(door)) is not None:
                return raw["metadata"]["name"], progress
        return None


def _bracketed(ip: str) -> str:
    return f"[{ip}]" if ":" in ip else ip
