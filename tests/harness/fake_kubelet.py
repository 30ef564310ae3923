"""A gRPC server on a unix socket that answers as the kubelet's pod-resources API does."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import grpc

from autoscaler.gpus.pods.podresources.v1 import podresources_pb2 as api
from autoscaler.gpus.pods.podresources.v1.podresources_pb2_grpc import (
    PodResourcesListerServicer,
    add_PodResourcesListerServicer_to_server,
)


class Kubelet(PodResourcesListerServicer):
    """Answers `answer`, or refuses with `code`, once `gate` is open."""

    def __init__(self):
        self.answer = api.ListPodResourcesResponse()
        self.code = None
        self.gate = threading.Event()
        self.gate.set()

    def give(self, pod, *identifiers, namespace="ns", resource="nvidia.com/gpu"):
        """From now on the pod is listed with these devices."""
        devices = api.ContainerDevices(resource_name=resource, device_ids=identifiers)
        container = api.ContainerResources(name="main", devices=[devices])
        self.answer.pod_resources.append(api.PodResources(name=pod, namespace=namespace, containers=[container]))

    def give_claimed(self, pod, *names, namespace="ns", driver="gpu.nvidia.com"):
        """The same for devices of a ResourceClaim."""
        given = [api.ClaimResource(driver_name=driver, pool_name="node", device_name=name) for name in names]
        claim = api.DynamicResource(claim_name="claim", claim_namespace=namespace, claim_resources=given)
        container = api.ContainerResources(name="main", dynamic_resources=[claim])
        self.answer.pod_resources.append(api.PodResources(name=pod, namespace=namespace, containers=[container]))

    def List(self, request, context):  # noqa: N802 - the wire's name
        self.gate.wait()
        if self.code is not None:
            context.abort(self.code, "a test says so")
        return self.answer


@contextmanager
def serving(kubelet, socket):
    """The server listens on the socket inside the context."""
    pool = ThreadPoolExecutor(4)
    server = grpc.server(pool)
    add_PodResourcesListerServicer_to_server(kubelet, server)
    server.add_insecure_port(f"unix://{socket}")
    server.start()
    try:
        yield
    finally:
        kubelet.gate.set()
        server.stop(None).wait()
        pool.shutdown()
