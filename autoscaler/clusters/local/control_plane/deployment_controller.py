"""Deployment controller: creates and deletes pods until each Deployment has its replicas.

No ReplicaSet is stored.  Its name, DEPLOYMENT-HASH, stands in the owner reference of the pods as on a real cluster,
with one hash for all, for the template of a Deployment does not change while a run lasts.  Which pods leave first is
the ranking of the ReplicaSet controller.  Not here: where pods run (`pod_scheduler`), and pods whose Deployment is gone
(`memory_api.garbage_collection`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from autoscaler.clusters.kubernetes.api.api_port import Raw
from autoscaler.clusters.kubernetes.api.kinds import DEPLOYMENTS, PODS
from autoscaler.clusters.kubernetes.memory_api import MemoryServer
from autoscaler.clusters.kubernetes.memory_api.field_ownership import FieldOwner
from autoscaler.clusters.kubernetes.objects.fields import ENDED_PHASES, condition_of, controller_of, integer, part, text
from autoscaler.errors import ClusterError
from autoscaler.fault_isolation import GuardedTask, JobErrors, raw_object_key

CONTROLLER_MANAGER: Final = FieldOwner("kube-controller-manager", is_apply=False)
REPLICA_SET_HASH: Final = "local"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaDelta:
    """Changes that bring a Deployment to its replicas.  `create`: bodies of pods; `delete`: names of pods."""

    create: tuple[dict[str, Any], ...] = ()
    delete: tuple[str, ...] = ()


def plan_replicas(deployment: Raw, owned: Sequence[Raw], names: Collection[str]) -> ReplicaDelta:
    """The pods to create or delete.  `owned`: the Deployment's; `names`: of all pods in its namespace."""
    wanted = 0 if _is_deleting(deployment) else integer(deployment, "spec", "replicas", default=1)
    staying = standing(owned)
    if len(staying) > wanted:
        ranked = sorted(sorted(staying, key=_ordinal_order, reverse=True), key=_deletion_rank)
        return ReplicaDelta(delete=tuple(pod["metadata"]["name"] for pod in ranked[: len(staying) - wanted]))
    bodies: list[dict[str, Any]] = []
    ordinal = 0
    while len(staying) + len(bodies) < wanted:
        name = f"{replica_set_name(deployment)}-{ordinal}"
        if name not in names:
            bodies.append(build_replica(deployment, name))
        ordinal += 1
    return ReplicaDelta(create=tuple(bodies))


def standing(pods: Sequence[Raw]) -> list[Raw]:
    """The pods that neither leave nor have ended."""
    return [pod for pod in pods if not _is_deleting(pod) and text(pod, "status", "phase") not in ENDED_PHASES]


def build_replica(deployment: Raw, name: str) -> dict[str, Any]:
    """The body of one pod, with the owner reference and the hash label that tell whose it is."""
    template = part(deployment, "spec", "template")
    labels = {**part(template, "metadata", "labels"), "pod-template-hash": REPLICA_SET_HASH}
    owner = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": replica_set_name(deployment),
        "uid": deployment["metadata"]["uid"],
        "controller": True,
    }
    return {
        "metadata": {
            "name": name,
            "namespace": deployment["metadata"]["namespace"],
            "labels": labels,
            "annotations": dict(part(template, "metadata", "annotations")),
            "ownerReferences": [owner],
        },
        "spec": dict(part(template, "spec")),
    }


def replica_set_name(deployment: Raw) -> str:
    return f"{deployment['metadata']['name']}-{REPLICA_SET_HASH}"


def reconcile_deployments(server: MemoryServer, errors: JobErrors) -> None:
    """Every Deployment has its replicas, and its status counts them.

    A pod that the API server refuses is told in the condition ReplicaFailure, and its Deployment is tried again with
    the next change.
    """
    pods = server.all(PODS)
    for deployment in server.all(DEPLOYMENTS):
        beside = [pod for pod in pods if pod["metadata"].get("namespace") == deployment["metadata"]["namespace"]]
        key = raw_object_key("deployment", deployment)
        errors.attempt(key, GuardedTask.WRITE, partial(_reconcile, server, deployment, beside), passing=())


def _reconcile(server: MemoryServer, deployment: Raw, beside: Sequence[Raw]) -> None:
    namespace, uid = deployment["metadata"]["namespace"], deployment["metadata"]["uid"]
    owned = [pod for pod in beside if controller_of(pod).get("uid") == uid]
    change = plan_replicas(deployment, owned, {pod["metadata"]["name"] for pod in beside})
    created, failure = 0, ""
    for body in change.create:
        try:
            server.create(PODS, body, CONTROLLER_MANAGER)
        except ClusterError as error:
            failure = str(error)
            break
        created += 1
    for name in change.delete:
        server.delete(PODS, namespace, name)
    wanted = integer(deployment, "spec", "replicas", default=1)
    ready = sum(condition_of(pod, "Ready").get("status") == "True" for pod in standing(owned))
    status = {
        "observedGeneration": deployment["metadata"]["generation"],
        "replicas": len(standing(owned)) - len(change.delete) + created,
        "readyReplicas": ready,
        "unavailableReplicas": max(0, wanted - ready),
        "conditions": [_available(is_available=ready >= wanted), *([_failed_create(failure)] if failure else [])],
    }
    server.rewrite(DEPLOYMENTS, dict(deployment), {**deployment, "status": status})


def _available(*, is_available: bool) -> dict[str, Any]:
    """The condition that `edl wait --for=condition=Available` reads; here it takes every replica."""
    if is_available:
        return {"type": "Available", "status": "True", "reason": "MinimumReplicasAvailable"}
    return {"type": "Available", "status": "False", "reason": "MinimumReplicasUnavailable"}


def _failed_create(message: str) -> dict[str, Any]:
    return {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": message}


def _deletion_rank(pod: Raw) -> tuple[bool, bool]:
    """Unbound pods leave first, then those that are not ready."""
    return bool(text(pod, "spec", "nodeName")), condition_of(pod, "Ready").get("status") == "True"


def _ordinal_order(pod: Raw) -> tuple[int, str]:
    name: str = pod["metadata"]["name"]
    return len(name), name


def _is_deleting(raw: Raw) -> bool:
    return "deletionTimestamp" in raw["metadata"]
