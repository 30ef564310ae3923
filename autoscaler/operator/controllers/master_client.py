"""Which master of a job answers, and what it says: each of its pods is asked until one leads.

The same door serves to tell it how many parameter servers its job is to have (`servers`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from autoscaler.clusters.kubernetes.api.api_port import Raw
from autoscaler.clusters.kubernetes.builders.job_identity import Identity
from autoscaler.clusters.kubernetes.builders.pod_environment import MASTER_PORT
from autoscaler.clusters.kubernetes.objects.fields import text
from autoscaler.clusters.kubernetes.objects.names import master_host, store_name
from autoscaler.clusters.kubernetes.parsing.training_jobs import KubeJob
from autoscaler.errors import ClusterError
from autoscaler.jobs.answers import MalformedAnswer, NoAnswer, NoProgress
from autoscaler.jobs.master_connections import Door, DoorTls, Masters
from autoscaler.jobs.progress import JobProgress
from master.api.servers_answer import ServersAnswer


class Asking:
    """Asks by the addresses of the pods, so that a standby that answers first is no answer."""

    def __init__(self, masters: Masters, identity_of: Callable[[KubeJob], Awaitable[Identity | None]]) -> None:
        self._masters = masters
        self._identity_of = identity_of

    async def ask(self, job: KubeJob, masters: Sequence[Raw]) -> tuple[str, JobProgress] | NoAnswer:
        """The pod that leads and what it says; REFUSED when some answer and none leads, as while etcd is away."""
        addresses = {text(raw, "metadata", "name"): address for raw in masters if (address := _address(raw))}
        await self._masters.keep_only(_store_name(job), frozenset(addresses.values()))
        heard: NoAnswer = NoProgress.SILENT
        for name, address in addresses.items():
            door = await self._door(job, address)
            answer = NoProgress.SILENT if door is None else await self._masters.ask(door)
            if isinstance(answer, JobProgress):
                return name, answer
            if isinstance(answer, MalformedAnswer) or heard is NoProgress.SILENT:
                heard = answer
        return heard

    async def set_servers(self, job: KubeJob, leader: Raw, count: int) -> ServersAnswer | None:
        """Tell the master that leads how many servers there are to be; None when it does not answer."""
        door = await self._door(job, _address(leader))
        answer = NoProgress.SILENT if door is None else await self._masters.set_servers(door, count)
        return answer if isinstance(answer, ServersAnswer) else None

    def reading_s(self, job: KubeJob) -> float:
        """How many seconds of a core it took to read the last answer."""
        return self._masters.reading_s(_store_name(job))

    async def _door(self, job: KubeJob, address: str) -> Door | None:
        try:
            identity = await self._identity_of(job) if address else None
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
        return Door(job=_store_name(job), address=address, token=identity.token, tls=tls)


def _store_name(job: KubeJob) -> str:
    return store_name(job.namespace, job.name, job.uid)


def _address(raw: Raw) -> str:
    """host:port of a master; empty while it has no address."""
    ip = text(raw, "status", "podIP")
    return f"{f'[{ip}]' if ':' in ip else ip}:{MASTER_PORT}" if ip else ""
