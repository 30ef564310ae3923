"""Client of a job's masters: finds the leader, polls its progress and sets the number of servers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from autoscaler.clusters.kubernetes.api.api_port import Raw
from autoscaler.clusters.kubernetes.builders.pod_environment import MASTER_PORT
from autoscaler.clusters.kubernetes.objects.fields import text
from autoscaler.clusters.kubernetes.objects.names import master_host, store_name
from autoscaler.clusters.kubernetes.parsing.training_jobs import KubeJob
from autoscaler.errors import ClusterError
from autoscaler.jobs.master_connections import MasterConnections, MasterEndpoint, MasterTls
from autoscaler.jobs.progress import JobProgress, MalformedAnswer, MissingAnswer, WhyNoAnswer
from autoscaler.operator.controllers.owned_objects import OwnedObjects
from master.api.servers_answer import ServersAnswer


class MasterClient:
    """Polls each master pod at its own address, so that a standby is not mistaken for the leader.

    `socket_of` names the Unix socket of a job's master by the job's store name, where all pods run on this machine
    and need no TLS.
    """

    def __init__(
        self, masters: MasterConnections, owned: OwnedObjects, *, socket_of: Callable[[str], str] | None = None
    ) -> None:
        self._masters = masters
        self._owned = owned
        self._socket_of = socket_of

    async def poll(
        self, job: KubeJob, masters: Sequence[Raw], *, comparison: str = ""
    ) -> tuple[str, JobProgress] | MissingAnswer:
        """Return the pod that leads and what it says; REFUSED if masters answer but none leads, as while etcd is
        unreachable.  `comparison`: the name of a request for a comparison of the job's replicas.
        """
        addresses = {text(raw, "metadata", "name"): address for raw in masters if (address := self._address(job, raw))}
        await self._masters.keep_only(_store_name(job), frozenset(addresses.values()))
        limit = job.spec.run_policy.backoff_limit
        best: MissingAnswer = WhyNoAnswer.SILENT
        for name, address in addresses.items():
            door = await self._endpoint(job, address)
            answer = (
                WhyNoAnswer.SILENT
                if door is None
                else await self._masters.poll(door, backoff_limit=limit, comparison=comparison)
            )
            if isinstance(answer, JobProgress):
                return name, answer
            if isinstance(answer, MalformedAnswer) or best is WhyNoAnswer.SILENT:
                best = answer
        return best

    async def set_servers(self, job: KubeJob, leader: Raw, count: int) -> ServersAnswer | None:
        """Set the number of servers at the leading master; return None if it does not answer."""
        door = await self._endpoint(job, self._address(job, leader))
        answer = WhyNoAnswer.SILENT if door is None else await self._masters.set_servers(door, count)
        return answer if isinstance(answer, ServersAnswer) else None

    def decode_s(self, job: KubeJob) -> float:
        """Return how many seconds of a core it took to read the last answer."""
        return self._masters.decode_s(_store_name(job))

    async def close(self, job: KubeJob) -> None:
        """Close the connections to the masters of a job that is gone."""
        await self._masters.keep_only(_store_name(job), frozenset())

    async def _endpoint(self, job: KubeJob, address: str) -> MasterEndpoint | None:
        try:
            identity = await self._owned.identity_of(job) if address else None
        except ClusterError:
            return None
        if identity is None:
            return None
        if self._socket_of is not None:
            return MasterEndpoint(job=_store_name(job), address=address, token=identity.token)
        tls = MasterTls(
            authority=identity.authority.certificate,
            certificate=identity.member.certificate,
            key=identity.member.key,
            host=master_host(job.namespace, job.name),
        )
        return MasterEndpoint(job=_store_name(job), address=address, token=identity.token, tls=tls)

    def _address(self, job: KubeJob, raw: Raw) -> str:
        """Return where a master pod listens, host:port or a socket; empty while the pod has no address."""
        ip = text(raw, "status", "podIP")
        if not ip:
            return ""
        if self._socket_of is not None:
            return self._socket_of(_store_name(job))
        return f"{f'[{ip}]' if ':' in ip else ip}:{MASTER_PORT}"


def _store_name(job: KubeJob) -> str:
    return store_name(job.namespace, job.name, job.uid)
