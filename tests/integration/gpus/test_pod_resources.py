"""The kubelet's pod-resources socket: a real gRPC server that answers, refuses, hangs, and goes."""

import grpc
import pytest

from autoscaler.gpus.owners import HoldingPod, OwnersUnknown
from autoscaler.gpus.pods.pod_resources import PodResources
from tests.harness.fake_kubelet import serving


@pytest.fixture
def client(socket):
    client = PodResources(socket, deadline_s=60.0)
    yield client
    client.close()


def listed(client):
    return [(str(one.pod), one.identifier, one.is_claim) for one in client.list_allocations()]


def test_devices_of_pods_and_of_claims_are_listed(client, kubelet, socket):
    """Those of NVIDIA, by device plugin or by claim, and no others."""
    kubelet.give("one", "GPU-1", "GPU-2::3")
    kubelet.give("mig", "MIG-1", resource="nvidia.com/mig-1g.5gb")
    kubelet.give("nic", "rdma0", resource="rdma/hca")
    kubelet.give_claimed("dra", "gpu-0")
    kubelet.give_claimed("other", "nic-0", driver="nic.example.org")
    with serving(kubelet, socket):
        assert listed(client) == [
            ("ns/one", "GPU-1", False),
            ("ns/one", "GPU-2::3", False),
            ("ns/mig", "MIG-1", False),
            ("ns/dra", "gpu-0", True),
        ]


def test_a_missing_socket_is_unknown_and_then_found(client, kubelet, socket):
    """The kubelet starts later, and starts anew."""
    told = client.list_allocations()
    assert isinstance(told, OwnersUnknown)
    assert str(socket) in told.reason
    for _ in range(2):
        with serving(kubelet, socket):
            assert listed(client) == []
        assert isinstance(client.list_allocations(), OwnersUnknown)


@pytest.mark.parametrize("code", [grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.PERMISSION_DENIED])
def test_a_kubelet_that_refuses_is_unknown(client, kubelet, socket, code):
    """Such as its own limit of calls."""
    kubelet.code = code
    with serving(kubelet, socket):
        told = client.list_allocations()
        assert isinstance(told, OwnersUnknown)
        assert code.name in told.reason
        kubelet.code = None
        assert listed(client) == []


def test_a_kubelet_that_hangs_is_unknown_at_the_deadline(kubelet, socket):
    """No reading waits for it."""
    kubelet.gate.clear()
    client = PodResources(socket, deadline_s=0.2)
    with serving(kubelet, socket):
        told = client.list_allocations()
        client.close()
    assert isinstance(told, OwnersUnknown)
    assert "DEADLINE_EXCEEDED" in told.reason or "UNAVAILABLE" in told.reason  # a busy machine has not connected yet


@pytest.mark.parametrize("devices", [20_000, 200_000], ids=["too many", "too large a message"])
def test_an_answer_without_bounds_is_refused(client, kubelet, socket, devices):
    """Memory of the agent does not depend on who answers."""
    kubelet.give("many", *(f"GPU-0000000000000000000000{number}" for number in range(devices)))
    with serving(kubelet, socket):
        assert isinstance(client.list_allocations(), OwnersUnknown)


def test_something_else_on_the_socket_is_unknown(client, socket):
    """A socket on which nobody speaks HTTP/2."""
    import socket as sockets  # noqa: PLC0415 - the fixture has the name
    import threading  # noqa: PLC0415 - with it

    with sockets.socket(sockets.AF_UNIX) as listening:
        listening.bind(str(socket))
        listening.listen()

        def answer():
            connection, _ = listening.accept()
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            connection.close()

        thread = threading.Thread(target=answer)
        thread.start()
        assert isinstance(client.list_allocations(), OwnersUnknown)
        thread.join()


def test_a_pod_with_an_impossible_name_is_refused(client, kubelet, socket):
    """Names become labels of metrics."""
    kubelet.give("x" * 300, "GPU-1")
    with serving(kubelet, socket):
        assert isinstance(client.list_allocations(), OwnersUnknown)


def test_pods_are_told_by_namespace_and_name(client, kubelet, socket):
    """Two pods of one name in two namespaces are two."""
    kubelet.give("one", "GPU-1", namespace="a")
    kubelet.give("one", "GPU-2", namespace="b")
    with serving(kubelet, socket):
        told = client.list_allocations()
    assert {one.pod for one in told} == {HoldingPod(namespace="a", name="one"), HoldingPod(namespace="b", name="one")}
