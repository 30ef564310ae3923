"""A cluster for the page's tests: documents of the API server's shape, and a source that shows them and changes."""

from __future__ import annotations

import asyncio

from autoscaler.clusters.kubernetes.objects.fields import to_time
from autoscaler.domain import (
    ClusterView,
    Job,
    JobName,
    MasterSpec,
    Node,
    NodeName,
    Policy,
    Resources,
    Shape,
    TrainerSpec,
)
from autoscaler.snapshots import SnapshotContent
from autoscaler.views.documents import ClusterDocuments
from autoscaler.views.history.journal import JournalLine

NOW_S = 1_780_000_000.0


def node(name, *, cpu="4", gpus=0, ready=True, **metadata):
    allocatable = {"cpu": cpu, "memory": "16Gi", "pods": "110", **({"nvidia.com/gpu": str(gpus)} if gpus else {})}
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "creationTimestamp": to_time(NOW_S - 9_000), **metadata},
        "spec": {},
        "status": {"allocatable": allocatable, "conditions": conditions},
    }


def pod(name, *, on="", job="", role="trainer", ordinal=0, tier="core", deployment="", namespace="team", **more):
    """A pod of a job, or of a Deployment; `cpu`, `gpus`, `age_s`, `is_ready`, `is_leaving`, `annotations`."""
    labels, owners = {}, []
    if job:
        labels = {"edl.dev/job": job, "edl.dev/role": role, "edl.dev/tier": tier, "edl.dev/ordinal": str(ordinal)}
    if deployment:
        labels = {"pod-template-hash": "abc"}
        owners = [{"kind": "ReplicaSet", "name": f"{deployment}-abc", "controller": True}]
    requests = {"cpu": more.get("cpu", "1"), "memory": "64Mi"}
    if more.get("gpus"):
        requests["nvidia.com/gpu"] = str(more["gpus"])
    is_ready = more.get("is_ready", bool(on))
    metadata = {
        "name": name,
        "namespace": namespace,
        "uid": f"uid-of-{name}",
        "labels": labels,
        "annotations": dict(more.get("annotations", {})),
        "ownerReferences": owners,
        "creationTimestamp": to_time(NOW_S - more.get("age_s", 60)),
    }
    if more.get("is_leaving"):
        metadata["deletionTimestamp"] = to_time(NOW_S)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {
            "containers": [{"name": "main", "resources": {"requests": requests}}],
            **({"nodeName": on} if on else {}),
        },
        "status": {
            "phase": "Running" if on else "Pending",
            "conditions": [{"type": "Ready", "status": "True" if is_ready else "False"}],
        },
    }


def deployment(name, *, replicas, ready=0, namespace="team"):
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"replicas": replicas},
        "status": {"readyReplicas": ready},
    }


def condition(kind, *, status="True", reason="", message="", age_s=30):
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": to_time(NOW_S - age_s),
    }


def job(name, *, namespace="team", low=1, high=6, ready=2, target=None, message="", reason="NodeFit", **more):
    """A TrainingJob; `servers`, `conditions`, `progress`, `status` and `age_s` add to it."""
    spec = {
        "trainer": {"minReplicas": low, "maxReplicas": high, "efficiency": 0.5},
        "checkpoint": {"uri": f"/checkpoints/{name}"},
    }
    conditions = [
        condition("Ready"),
        condition("Scaled", reason=reason, message=message),
        *more.get("conditions", ()),
    ]
    status = {
        "conditions": conditions,
        "reason": reason,
        "trainers": {
            "ready": ready,
            "target": ready if target is None else target,
            "core": low,
            "surplus": ready - low,
        },
        "master": {"ready": 1, "leader": f"{name}-master"},
        "progress": more.get("progress", {}),
        "failures": 0,
        "resizes": more.get("resizes", []),
        **more.get("status", {}),
    }
    if "servers" in more:
        spec["parameterServer"] = {"minReplicas": 1, "maxReplicas": 3}
        status["servers"] = {"ready": more["servers"], "target": more["servers"]}
    return {
        "apiVersion": "edl.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "creationTimestamp": to_time(NOW_S - more.get("age_s", 600)),
        },
        "spec": spec,
        "status": status,
    }


def progress(percent="40.0%", **more):
    return {
        "epoch": 4,
        "epochs": 10,
        "samplesCommitted": 4_000,
        "samplesTotal": 10_000,
        "samplesPerSecond": 100,
        "percent": percent,
        "lastCheckpointTime": to_time(NOW_S - 12),
        **more,
    }


def resize(before, after, *, cause="pod", message="", age_s=20):
    return {
        "time": to_time(NOW_S - age_s),
        "from": before,
        "to": after,
        "role": "trainer",
        "cause": cause,
        "by": "planner",
        "message": message,
    }


def line(target, reason, message="", *, namespace="team", kind="Decided", age_s=5):
    return JournalLine(
        at_s=NOW_S - age_s, kind=kind, object=target, reason=reason, message=message, namespace=namespace
    )


class FixedSource:
    """A `PageSource` of fixed documents, which `change` replaces."""

    title = "test cluster"
    problem = ""

    def __init__(self, documents, lines=(), *, snapshot=None, log=()):
        self._documents = documents
        self._lines = list(lines)
        self._snapshot = snapshot
        self._log = tuple(log)
        self._version = 1
        self._changed = asyncio.Event()
        self.snapshots = 0

    def documents(self):
        return self._documents

    def journal(self):
        return self._lines

    async def snapshot(self):
        self.snapshots += 1
        return self._snapshot or empty_snapshot()

    async def log_tail(self, namespace, pod, lines):
        return self._log[-lines:]

    async def wait_for_change(self, version):
        while self._version == version:
            changed = self._changed
            await changed.wait()
        return self._version

    def change(self, documents, lines=None):
        self._documents = documents
        self._lines = self._lines if lines is None else list(lines)
        self._version += 1
        self._changed.set()
        self._changed = asyncio.Event()


def empty_snapshot():
    return SnapshotContent(now_s=NOW_S, policy=Policy(), view=ClusterView(revision=1, observed_at_s=NOW_S))


def snapshot_of_job(name="team/digits-b", *, nodes=1):
    """A snapshot with one job of 1 to 6 trainers of a core, and nodes of 4 cores."""
    cores = Resources(cpu_milli=1000, memory_bytes=2**20)
    view = ClusterView(
        revision=1,
        observed_at_s=NOW_S,
        nodes=tuple(
            Node(name=NodeName(f"node-{at}"), allocatable=Resources(cpu_milli=4000, memory_bytes=2**34))
            for at in range(1, nodes + 1)
        ),
        jobs=(
            Job(
                name=JobName(name),
                submitted_at_s=NOW_S - 600,
                trainer=TrainerSpec(shape=Shape(requests=cores), min_replicas=1, max_replicas=6),
                master=MasterSpec(shape=Shape(requests=cores), replicas=1),
            ),
        ),
    )
    return SnapshotContent(now_s=NOW_S, policy=Policy(), view=view)


def demo_documents():
    """Two jobs beside a web service on three nodes of four cores: what the guide's pictures show."""
    pods = [
        *(pod(f"web-abc-{n}", on=f"node-{(1, 1, 2, 3, 3)[n]}", deployment="web", age_s=40 + n) for n in range(5)),
        pod("web-abc-9", deployment="web", age_s=8),
        *(pod(f"digits-a-trainer-{n}", on=f"node-{(1, 2)[n]}", job="digits-a", ordinal=n, age_s=500) for n in range(2)),
        pod("digits-a-trainer-2", on="node-2", job="digits-a", ordinal=2, tier="surplus", age_s=90),
        pod("digits-a-server-0", on="node-2", job="digits-a", role="server", cpu="500m", age_s=500),
        pod("digits-a-master-0", on="node-1", job="digits-a", role="master", cpu="250m", age_s=510),
        pod("digits-b-trainer-0", on="node-3", job="digits-b", ordinal=0, age_s=300),
        pod("digits-b-trainer-1", on="node-3", job="digits-b", ordinal=1, tier="surplus", age_s=30, is_leaving=True),
        pod("digits-b-master-0", on="node-1", job="digits-b", role="master", cpu="250m", age_s=300),
    ]
    return ClusterDocuments(
        now_s=NOW_S,
        nodes=tuple(node(f"node-{n}") for n in (1, 2, 3)),
        pods=tuple(pods),
        jobs=(
            job(
                "digits-a",
                ready=3,
                low=2,
                servers=1,
                message="no node has free capacity for one more trainer",
                progress=progress("62.0%", metrics={"loss": 0.217, "accuracy": 0.934}),
                status={
                    "throughput": {
                        "setting": "s",
                        "points": [
                            {"setting": "s", "trainers": 1, "samplesPerSecond": 400, "servers": 1},
                            {"setting": "s", "trainers": 2, "samplesPerSecond": 760, "servers": 1},
                            {"setting": "s", "trainers": 3, "samplesPerSecond": 1050, "servers": 1},
                        ],
                        "curve": {"work": 0.0023, "serial": 0.0001, "exchange": 0.0, "overlap": 1.0},
                        "worthwhile": 5,
                    }
                },
                age_s=700,
            ),
            job(
                "digits-b",
                ready=2,
                target=1,
                high=6,
                reason="CapacityDraining",
                message="gave 1 trainer to deployment/web, whose pods come first",
                progress=progress(
                    "31.5%",
                    remaining={"trainers": 1, "seconds": 120.0, "shortestSeconds": 100.0, "longestSeconds": 140.0},
                ),
                resizes=[
                    resize(2, 1, cause="pod", message="for team/web-abc-9", age_s=3),
                    resize(1, 2, cause="free capacity", message="node-3 had room", age_s=200),
                ],
            ),
        ),
        deployments=(deployment("web", replicas=6, ready=5),),
    )


def demo_lines():
    return [
        line("tj/digits-b", "Started", "started with 1 trainer", age_s=300),
        line("tj/digits-b", "Grown", "from 1 to 2 trainers: node-3 has room", age_s=200),
        line("deployment/web", "Scaled", "from 3 to 6 replicas", kind="Resized", age_s=9),
        line("tj/digits-b", "Shrunk", "from 2 to 1 trainers for team/web-abc-9", age_s=3),
    ]
