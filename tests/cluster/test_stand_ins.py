"""Stand-in nodes and pods behave as the tests of EDL need them to: placed by the real scheduler, ended as told."""

import time

import pytest
from kubernetes import client, watch

from tests.cluster.kwok_nodes import GPU, Life, NodeShape, make_pod
from tests.cluster.workloads import wait_class
from tests.harness.waiting import BUDGET_S, wait_for


@pytest.fixture
def pods(core, namespace):
    return Pods(core, namespace)


class Pods:
    """The test's pods."""

    def __init__(self, core, namespace):
        self.core = core
        self.namespace = namespace

    def create(self, name, life=None, **options):
        self.core.create_namespaced_pod(self.namespace, make_pod(name, life, **options))

    def get(self, name):
        found = [pod for pod in self.core.list_namespaced_pod(self.namespace).items if pod.metadata.name == name]
        return found[0] if found else None

    def wait_phase(self, name, phase):
        def probe():
            pod = self.get(name)
            return pod if pod is not None and pod.status.phase == phase else None

        return wait_for(f"{name} {phase}", probe)

    def version(self):
        """To follow from."""
        return self.core.list_namespaced_pod(self.namespace).metadata.resource_version

    def follow(self, name, since):
        """Every state of it since then, in order: what passes between two looks too; (state, whether it is gone)."""
        events = watch.Watch()
        where = {"field_selector": f"metadata.name={name}", "resource_version": since}
        for event in events.stream(
            self.core.list_namespaced_pod, self.namespace, **where, timeout_seconds=int(BUDGET_S)
        ):
            yield event["object"], event["type"] == "DELETED"
        raise AssertionError(f"{name}: nothing more in time")

    def watch_end(self, name):
        """Deletes it; the last status that was seen of it."""
        since = self.version()
        self.core.delete_namespaced_pod(name, self.namespace)
        return next(pod.status for pod, is_gone in self.follow(name, since) if is_gone)


def ready(pod):
    return next((one.status for one in pod.status.conditions or [] if one.type == "Ready"), None)


def test_a_pod_is_placed_where_the_gpus_are(nodes, pods):
    _, gpu_node = nodes(NodeShape(), NodeShape(gpus=4))
    pods.create("trainer", requests={"cpu": "1", GPU: "4"})
    pod = pods.wait_phase("trainer", "Running")
    assert pod.spec.node_name == gpu_node
    assert ready(pod) == "True"


def test_a_pod_that_fits_nowhere_stays_pending_and_says_so(nodes, pods):
    nodes(NodeShape(gpus=4))
    pods.create("large", requests={"cpu": "1", GPU: "5"})

    def verdict():
        found = [one for one in pods.get("large").status.conditions or [] if one.type == "PodScheduled"]
        return found[0] if found else None

    refused = wait_for("a verdict", verdict)
    assert (refused.status, refused.reason) == ("False", "Unschedulable")
    assert "Insufficient nvidia.com/gpu" in refused.message


def test_a_pod_starts_and_gets_ready_as_late_as_told(nodes, pods):
    nodes(NodeShape())
    since, begun_s = pods.version(), time.monotonic()
    pods.create("slow", Life(start_after_s=1, ready_after_s=1))
    running = (pod for pod, _ in pods.follow("slow", since) if pod.status.phase == "Running")
    assert ready(next(running)) == "False"
    assert time.monotonic() - begun_s >= 1
    assert any(ready(pod) == "True" for pod in running)
    assert time.monotonic() - begun_s >= 2


def test_a_pod_ends_as_told(nodes, pods):
    nodes(NodeShape())
    pods.create("done", Life(done_after_s=0.1))
    pods.create("failed", Life(fail_after_s=0.1, exit_code=42))
    pods.wait_phase("done", "Succeeded")
    failed = pods.wait_phase("failed", "Failed")
    assert failed.status.container_statuses[0].state.terminated.exit_code == 42


def test_a_pod_that_heeds_no_signal_has_all_of_its_grace(nodes, pods):
    """It is killed at the end, as a kubelet would."""
    nodes(NodeShape())
    pods.create("stubborn", terminationGracePeriodSeconds=2)
    pods.wait_phase("stubborn", "Running")
    begun_s = time.monotonic()
    status = pods.watch_end("stubborn")
    assert time.monotonic() - begun_s >= 2
    assert (status.phase, status.container_statuses[0].state.terminated.exit_code) == ("Failed", 137)


def test_a_pod_that_leaves_when_told_does_not_use_its_grace_up(nodes, pods):
    nodes(NodeShape())
    pods.create("polite", Life(leave_after_s=0.5), terminationGracePeriodSeconds=25)
    pods.wait_phase("polite", "Running")
    begun_s = time.monotonic()
    status = pods.watch_end("polite")
    assert time.monotonic() - begun_s >= 0.5
    assert (status.phase, status.container_statuses[0].state.terminated.exit_code) == ("Succeeded", 0)


def test_a_pod_that_would_leave_too_late_is_killed(nodes, pods):
    nodes(NodeShape())
    pods.create("late", Life(leave_after_s=20), terminationGracePeriodSeconds=1)
    pods.wait_phase("late", "Running")
    status = pods.watch_end("late")
    assert status.container_statuses[0].state.terminated.exit_code == 137


def test_a_pod_of_a_higher_class_takes_the_room_of_a_lower_one(api, nodes, pods):
    """The real scheduler preempts, and marks its victim, which may be gone before anybody looks."""
    scheduling = client.SchedulingV1Api(api)
    classes = {f"{pods.namespace}-low": -5, f"{pods.namespace}-high": 1000}
    for name, value in classes.items():
        scheduling.create_priority_class({"metadata": {"name": name}, "value": value})
        wait_class(api, name)
    low, high = classes
    try:
        nodes(NodeShape(gpus=1))
        pods.create("low", requests={GPU: "1"}, priorityClassName=low, terminationGracePeriodSeconds=1)
        pods.wait_phase("low", "Running")
        since = pods.version()
        pods.create("high", requests={GPU: "1"}, priorityClassName=high)
        victim = next(pod for pod, _ in pods.follow("low", since) if pod.metadata.deletion_timestamp)
        marks = [one.reason for one in victim.status.conditions if one.type == "DisruptionTarget"]
        assert marks == ["PreemptionByScheduler"]
        pods.wait_phase("high", "Running")
        wait_for("the victim is gone", lambda: pods.get("low") is None)
    finally:
        for name in classes:
            scheduling.delete_priority_class(name)
