"""A cluster for the page's benchmark: an API server in memory with many jobs and pods, and viewers of parts of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from autoscaler.clusters.kubernetes.api.kinds import ACCESS_REVIEWS, DEPLOYMENTS, NODES, PODS, TOKEN_REVIEWS
from autoscaler.clusters.kubernetes.api.kinds import TRAINING_JOBS as JOBS
from autoscaler.clusters.kubernetes.memory_api import MemoryServer
from autoscaler.clusters.kubernetes.memory_api.field_ownership import FieldOwner
from autoscaler.clusters.kubernetes.objects.fields import to_time

NAMESPACES: Final = 20
JOB_COUNT: Final = 1_000
POD_COUNT: Final = 20_000
NODE_COUNT: Final = 2_500
ADMIN: Final = "admin"
_OWNER: Final = FieldOwner("bench", is_apply=False)
_POD: Final = {"containers": [{"name": "main", "image": "i", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}]}


def make_server(now: Callable[[], float]) -> MemoryServer:
    """Jobs of 16 trainers each, the rest web pods; viewer N may read namespace N, the administrator everything."""
    server = MemoryServer(now=now, namespaces=tuple(map(namespace_of, range(NAMESPACES))))
    server.reviewers |= {TOKEN_REVIEWS: _review_token, ACCESS_REVIEWS: _review_access}
    for number in range(NODE_COUNT):
        status = {"allocatable": {"cpu": "16", "memory": "64Gi", "pods": "110"}}
        _put(server, NODES, {"metadata": {"name": f"node-{number:05}"}, "spec": {}}, status | _READY)
    for number in range(JOB_COUNT):
        _put(server, JOBS, _job(number), status_of(number, now(), "no node has free capacity for one more trainer"))
    for number in range(NAMESPACES):
        metadata = {"name": "web", "namespace": namespace_of(number)}
        spec = {"replicas": 200, "selector": {}, "template": {"spec": _POD}}
        _put(server, DEPLOYMENTS, {"metadata": metadata, "spec": spec}, {"readyReplicas": 200})
    for number in range(POD_COUNT):
        _put(server, PODS, _pod(number), {"phase": "Running", **_READY})
    return server


def namespace_of(number: int) -> str:
    """Name of the namespace that owns the number."""
    return f"team-{number % NAMESPACES:02}"


def status_of(number: int, now_s: float, message: str) -> dict[str, Any]:
    """Status of a job whose condition has this message."""
    conditions = [
        {"type": kind, "status": "True", "reason": "NodeFit", "message": message, "lastTransitionTime": to_time(now_s)}
        for kind in ("Admitted", "Ready", "Scaled")
    ]
    trainers = {"ready": 16, "target": 16, "core": 2, "surplus": 14}
    return {"conditions": conditions, "reason": "NodeFit", "trainers": trainers, "progress": {"epoch": number % 10}}


def change_job(server: MemoryServer, number: int, now_s: float, message: str) -> None:
    """Give the job's condition this message."""
    found = server.get(JOBS, namespace_of(number), f"job-{number:04}")
    server.rewrite(JOBS, found, found | {"status": status_of(number, now_s, message)})


_READY: Final = {"conditions": [{"type": "Ready", "status": "True"}]}


def _put(server: MemoryServer, kind: Any, body: dict[str, Any], status: dict[str, Any]) -> None:
    made = server.create(kind, body, _OWNER)
    server.rewrite(kind, made, made | {"status": status})


def _job(number: int) -> dict[str, Any]:
    spec = {
        "trainer": {"minReplicas": 2, "maxReplicas": 32, "template": {"spec": _POD}},
        "checkpoint": {"uri": "/checkpoints"},
    }
    return {"metadata": {"name": f"job-{number:04}", "namespace": namespace_of(number)}, "spec": spec}


def _pod(number: int) -> dict[str, Any]:
    job, ordinal = number % JOB_COUNT, number // JOB_COUNT
    name, labels, owner = f"job-{job:04}-trainer-{ordinal}", {}, []
    if ordinal < 16:
        tier = "core" if ordinal < 2 else "surplus"
        labels = {"edl.dev/job": f"job-{job:04}", "edl.dev/role": "trainer", "edl.dev/tier": tier}
        labels["edl.dev/ordinal"] = str(ordinal)
    else:
        name, labels = f"web-abc-{number}", {"pod-template-hash": "abc"}
        owner = [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-abc", "uid": "1", "controller": True}]
    metadata = {"name": name, "namespace": namespace_of(job), "labels": labels, "ownerReferences": owner}
    return {"metadata": metadata, "spec": {**_POD, "nodeName": f"node-{number % NODE_COUNT:05}"}}


def _review_token(body: dict[str, Any]) -> dict[str, Any]:
    return body | {"status": {"authenticated": True, "user": {"username": body["spec"]["token"]}}}


def _review_access(body: dict[str, Any]) -> dict[str, Any]:
    user, where = body["spec"]["user"], body["spec"]["resourceAttributes"].get("namespace", "")
    return body | {"status": {"allowed": user.startswith(ADMIN) or (where != "" and user.startswith(where))}}
