"""Devices of pods, as the kubelet of this node tells them on its pod-resources socket.

The socket belongs to root.  An answer is bounded by gRPC's largest message, and comes within a deadline or not at all.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import grpc

from autoscaler.gpus.owners import HoldingPod, OwnersUnknown
from autoscaler.gpus.pods.device_ids import DRA_DRIVER, RESOURCE_PREFIX
from autoscaler.gpus.pods.podresources.v1 import podresources_pb2 as api
from autoscaler.gpus.pods.podresources.v1.podresources_pb2_grpc import PodResourcesListerStub

KUBELET_SOCKET: Final = Path("/var/lib/kubelet/pod-resources/kubelet.sock")

DEADLINE_S: Final = 3.0
_MOST_BYTES: Final = 4 << 20  # 250 pods with eight devices each take 200 KB
_MOST_ALLOCATIONS: Final = 16_384
_LONGEST_NAME: Final = 253


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """A device that a pod was given, by the identifier that the kubelet knows."""

    pod: HoldingPod
    identifier: str
    is_claim: bool = False  # of a ResourceClaim


class PodResources:
    """The kubelet's socket.  The connection is made when it is first asked, and again after a failure."""

    def __init__(self, socket: Path = KUBELET_SOCKET, *, deadline_s: float = DEADLINE_S) -> None:
        self._socket = socket
        self._deadline_s = deadline_s
        self._channel: grpc.Channel | None = None

    def list_allocations(self) -> tuple[Allocation, ...] | OwnersUnknown:
        """All NVIDIA devices that pods of this node were given, or why that is not known."""
        if self._channel is None:
            options = [("grpc.max_receive_message_length", _MOST_BYTES), ("grpc.enable_http_proxy", 0)]
            self._channel = grpc.insecure_channel(f"unix://{self._socket.absolute()}", options=options)
        try:
            answer = PodResourcesListerStub(self._channel).List(api.ListPodResourcesRequest(), timeout=self._deadline_s)
        except grpc.RpcError as error:
            self.close()
            return OwnersUnknown(reason=_reason(error, self._socket))
        return read_allocations(answer)

    def close(self) -> None:
        """Afterwards there is no connection."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None


def read_allocations(answer: api.ListPodResourcesResponse) -> tuple[Allocation, ...] | OwnersUnknown:
    """NVIDIA devices of the answer.  Pure."""
    found: list[Allocation] = []
    for pod in answer.pod_resources:
        if max(len(pod.name), len(pod.namespace)) > _LONGEST_NAME:
            return OwnersUnknown(reason="the kubelet told a pod with an impossible name")
        holder = HoldingPod(namespace=pod.namespace, name=pod.name)
        for container in pod.containers:
            for given in container.devices:
                if given.resource_name.startswith(RESOURCE_PREFIX):
                    found += (Allocation(pod=holder, identifier=one) for one in given.device_ids)
            for claim in container.dynamic_resources:
                found += (
                    Allocation(pod=holder, identifier=one.device_name, is_claim=True)
                    for one in claim.claim_resources
                    if one.driver_name == DRA_DRIVER
                )
            if len(found) > _MOST_ALLOCATIONS:
                return OwnersUnknown(reason=f"the kubelet told more than {_MOST_ALLOCATIONS} devices")
    return tuple(found)


def _reason(error: Any, socket: Path) -> str:
    """Reason of a failure; `error` has a status, as every error of a call has."""
    if not socket.exists():
        return f"there is no socket of a kubelet at {socket}"
    return f"the kubelet at {socket} answers {error.code().name}: {(error.details() or '')[:200]}"
