"""Devices of a real kubelet: who is given what, and what its pod-resources socket tells of that."""

import contextlib

import pytest

from autoscaler.gpus.owners import HoldingPod
from autoscaler.gpus.pods.pod_resources import Allocation, PodResources
from tests.e2e.conftest import NODES
from tests.e2e.device_plugin import RESOURCE, VISIBLE
from tests.e2e.gpu_node import gpus_on
from tests.e2e.pods import make_pod
from tests.harness import fake_nvml
from tests.harness.waiting import wait_for

UNTIL_ASKED = f"echo ${VISIBLE}; until [ -e /tmp/end ]; do sleep 0.1; done"


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return fake_nvml.build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def gpus(real_cluster, library):
    """Two on the left node."""
    with gpus_on(real_cluster, NODES[0], library, 2) as made:
        yield made


@pytest.fixture
def told(gpus):
    """What the kubelet's socket tells, by the product's own reader."""
    with contextlib.closing(PodResources(gpus.pod_resources)) as reader:
        yield reader.list_allocations


def with_gpu(name):
    container = {"resources": {"limits": {RESOURCE: "1"}}}
    return make_pod(name, "busybox", ["sh", "-c", UNTIL_ASKED], container=container, terminationGracePeriodSeconds=0)


def test_the_kubelet_tells_which_pod_has_which_device_until_it_ends(pods, namespace, gpus, told):
    """The container sees the device that the socket names, and a device is given again once its pod has ended."""
    assert told() == ()
    first, second = gpus.devices
    for name, device in (("one", first), ("two", second)):
        pods.run(with_gpu(name))
        assert pods.logs(name).strip() == device
    holders = {"one": first, "two": second}
    assert set(told()) == {
        Allocation(pod=HoldingPod(namespace=namespace, name=name), identifier=device)
        for name, device in holders.items()
    }

    pods.create(with_gpu("three"))
    wait_for("it waits for a device", lambda: is_unschedulable(pods, "three"))
    pods.execute("one", "touch", "/tmp/end")
    pods.wait_end("one")
    wait_for("another has its device", lambda: pods.is_ready("three"))
    assert pods.logs("three").strip() == first
    assert gpus.plugin.given(first) == 2
    wait_for("the socket tells the new owner alone", lambda: owners(told(), first) == {"three"})


def is_unschedulable(pods, name):
    conditions = pods.read(name).status.conditions or ()
    return any(one.type == "PodScheduled" and one.reason == "Unschedulable" for one in conditions)


def owners(allocations, device):
    return {one.pod.name for one in allocations if one.identifier == device}
