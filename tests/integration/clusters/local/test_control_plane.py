"""The control plane of a run as a whole: room, floods of changes, and faults with one object beside the others."""

import asyncio
import time

from autoscaler.clusters.kubernetes.api.kinds import DEPLOYMENTS, EVENTS, NODES, SECRETS
from autoscaler.clusters.kubernetes.memory_api import garbage_collection
from autoscaler.clusters.local.control_plane import control_plane, deployment_controller, pod_scheduler
from tests.integration.clusters.local.local_cluster import DEAF, fail, nodes, running


async def test_a_failing_deployment_postpones_no_kill(tmp_path, monkeypatch):
    """The end of a grace is set once, and the failures of a Deployment go with it (A3, A11)."""
    monkeypatch.setattr(control_plane, "RETRY_EVERY_S", 0.1)
    async with running(tmp_path) as plane:
        await plane.add(command=DEAF, grace_s=2)
        await plane.until(lambda: "on" in plane.log())
        monkeypatch.setattr(deployment_controller, "plan_replicas", fail)
        await plane.deploy(1)
        await plane.until(lambda: plane.errors.has_failures, "a failure")
        told_at_s = time.monotonic()
        await plane.delete()
        await plane.until(lambda: plane.phase() is None, "its end")
        assert 2.0 <= time.monotonic() - told_at_s < 4.0
        await plane.api.delete(DEPLOYMENTS, "web", namespace="default")
        await plane.until(lambda: not plane.errors.has_failures, "the end of its failures")


async def test_failures_with_a_pod_that_never_ran_go_with_it(tmp_path, monkeypatch):
    """Nothing is tried again for an object that is gone."""
    async with running(tmp_path, on=nodes(1, cpu_milli=500)) as plane:
        monkeypatch.setattr(pod_scheduler, "_bind", fail)
        await plane.add()
        await plane.until(lambda: plane.errors.has_failures, "a failure")
        await plane.delete()
        await plane.until(lambda: not plane.errors.has_failures, "the end of its failures")


async def test_the_room_is_never_overbooked_while_pods_come_and_go(tmp_path):
    """Requests of bound and leaving pods stay within each node at every change (A2)."""
    async with running(tmp_path, on=nodes(2, cpu_milli=2000)) as plane:
        await plane.deploy(1)
        for replicas in (6, 1, 4, 0, 5):
            await plane.scale(replicas)
            for _ in range(20):
                await asyncio.sleep(0.02)
                for node in ("node-1", "node-2"):
                    assert sum(pod["spec"].get("nodeName") == node for pod in plane.pods().values()) <= 2
        await plane.until(lambda: sum(map(plane.is_ready, plane.pods())) == 4, "a full machine")


async def test_a_cordoned_node_is_left_for_others(tmp_path):
    """As `edl drain node/...` does: it takes nothing new, and who is evicted comes again elsewhere."""
    async with running(tmp_path) as plane:
        await plane.deploy(4)
        await plane.until(lambda: sum(map(plane.is_ready, plane.pods())) == 4, "four ready web pods")
        await plane.api.patch(NODES, "node-1", {"spec": {"unschedulable": True}})
        for name, pod in plane.pods().items():
            if pod["spec"]["nodeName"] == "node-1":
                await plane.delete(name)
        places = lambda: [pod["spec"].get("nodeName") for pod in plane.pods().values()]  # noqa: E731
        await plane.until(
            lambda: places() == ["node-2"] * 4 and all(map(plane.is_ready, plane.pods())), "an empty node"
        )


async def test_more_nodes_than_watches_remember_changes_are_a_machine_as_well(tmp_path):
    """As with `edl run --nodes 1000`."""
    async with running(tmp_path, on=nodes(1_000)) as plane:
        await plane.add()
        await plane.until(plane.is_ready, "a running pod")


async def test_more_changes_at_once_than_watches_remember_end_no_run(tmp_path, monkeypatch):
    """As with thousands of replicas that fit nowhere."""
    monkeypatch.setattr(control_plane, "REMEMBERED_CHANGES", 5)
    async with running(tmp_path, on=nodes(1, cpu_milli=1000)) as plane:
        await plane.deploy(40)
        await plane.until(lambda: sum(map(plane.is_ready, plane.pods())) == 1, "the one that fits")
        await plane.scale(0)
        await plane.until(lambda: not plane.pods(), "an empty machine")


async def test_what_cannot_be_collected_stands_in_no_others_way(tmp_path, monkeypatch):
    """It is tried again; the run goes on (A11)."""
    real = garbage_collection._collect_one

    def collect_one(server, kind, obj, **known):
        if obj["metadata"]["name"] == "bad":
            fail()
        real(server, kind, obj, **known)

    monkeypatch.setattr(garbage_collection, "_collect_one", collect_one)
    async with running(tmp_path) as plane:
        owner = [{"apiVersion": "v1", "kind": "Pod", "name": "owner", "uid": "gone"}]
        for name in ("bad", "good"):
            metadata = {"name": name, "namespace": "default", "ownerReferences": owner}
            await plane.api.create(SECRETS, {"metadata": metadata})
        await plane.add()
        await plane.until(plane.is_ready)
        await plane.delete()
        await plane.until(lambda: plane.phase() is None, "the end of the pod")
        names = lambda: [secret["metadata"]["name"] for secret in plane.server.all(SECRETS)]  # noqa: E731
        await plane.until(lambda: names() == ["bad"], "the end of the other Secret")
        monkeypatch.undo()
        await plane.until(lambda: not names(), "another try")


async def test_only_the_newest_events_are_kept(tmp_path, monkeypatch):
    """A run of days does not fill its memory with them."""
    monkeypatch.setattr(control_plane, "REMEMBERED_EVENTS", 3)
    async with running(tmp_path) as plane:
        for number in range(5):
            body = {"metadata": {"name": f"e{number}", "namespace": "default"}, "reason": "Started", "note": ""}
            await plane.api.create(EVENTS, body)
        names = lambda: [event["metadata"]["name"] for event in plane.server.all(EVENTS)]  # noqa: E731
        await plane.until(lambda: names() == ["e2", "e3", "e4"], "the oldest going")
