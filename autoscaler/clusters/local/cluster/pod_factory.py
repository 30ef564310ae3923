"""Pod factory: puts new pods on the table with their port, their GPUs and their log."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from autoscaler.clusters.local.cluster.pod_launch import PodLauncher
from autoscaler.clusters.local.machine.gpus import choose
from autoscaler.clusters.local.pods.local_pod import LocalPod
from autoscaler.clusters.local.pods.pod_table import PodTable
from autoscaler.domain import NodeName, PodName, PodPhase, Role, Tier
from autoscaler.manifests.api_types import PodTemplate


class PodFactory:
    """`gpus`: the device numbers of each node."""

    def __init__(
        self,
        table: PodTable,
        launching: PodLauncher,
        gpus: Mapping[NodeName, Sequence[int]],
        *,
        clock: Callable[[], float],
    ) -> None:
        self._table = table
        self._launching = launching
        self._gpus = gpus
        self._clock = clock

    def make(
        self,
        name: PodName,
        template: PodTemplate,
        *,
        role: Role,
        tier: Tier,
        owner: str,
        ordinal: int,
        priority: int,
        node: NodeName | None = None,
    ) -> None:
        """Put the pod on the table: bound to its node, or pending without one.  It has no process yet."""
        pod = LocalPod(
            name=name,
            role=role,
            tier=tier,
            owner=owner,
            ordinal=ordinal,
            template=template,
            priority=priority,
            grace_s=template.grace_s,
            created_at_s=self._clock(),
            log=self._launching.folder.log_of(name),
            phase=PodPhase.PENDING if node is None else PodPhase.STARTING,
            node=node,
            gpus=() if node is None else self.choose_gpus(node, template),
            port=self._launching.ports.allocate() if template.container_port is not None else None,
        )
        self._table.add(pod)

    def choose_gpus(self, node: NodeName, template: PodTemplate) -> tuple[int, ...]:
        """Devices of the node for one more such pod, whose room has been proved."""
        used = (gpu for pod in self._table.pods.values() if pod.node == node for gpu in pod.gpus)
        return choose(self._gpus[node], used, template.requests.gpu_count)
