"""Deployments and StatefulSets of stand-in pods in the namespace `nb`, and the operator's hand on their scale."""

import json
import time

from autoscaler.clusters.kubernetes.api.kinds import PODS, STATEFUL_SETS
from autoscaler.clusters.kubernetes.cache.object_cache import ObjectCache
from autoscaler.clusters.kubernetes.parsing.object_trimming import TRIMMERS
from autoscaler.fault_isolation import JobErrors
from autoscaler.operator.idle.owner_replicas import replicas_of
from autoscaler.operator.idle.owner_scaling import OwnerScaling
from tests.cluster.kwok_nodes import Life, make_pod


def workload(kind, name, replicas):
    """A Deployment or StatefulSet of pods that run at once and leave at once."""
    pod = make_pod(name, Life(leave_after_s=0.1), restartPolicy="Always")
    pod["metadata"] = {"annotations": pod["metadata"]["annotations"], "labels": {"app": name}}
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": pod}
    if kind == STATEFUL_SETS:
        spec |= {"serviceName": name, "podManagementPolicy": "Parallel"}
    return {"apiVersion": "apps/v1", "kind": kind.kind, "metadata": {"name": name}, "spec": spec}


async def start(plane, operator, kind, name, replicas):
    """Make the workload; its object and its pods by name, once all are Ready."""
    plane.kubectl("create", "-n", "nb", "-f", "-", stdin=json.dumps(workload(kind, name, replicas)))
    plane.kubectl("rollout", "status", f"{kind.plural}/{name}", "-n", "nb", "--timeout=120s")
    return await operator.get(kind, name, namespace="nb"), sorted(await pods_of(operator, name))


async def pods_of(operator, name):
    """The workload's pods, those that leave apart."""
    found = (await operator.list(PODS)).items
    mine = [one["metadata"] for one in found if one["metadata"]["name"].startswith(f"{name}-")]
    return {one["name"] for one in mine if "deletionTimestamp" not in one}


def scaling_of(operator):
    """`try_scale(pod's name, owner, kind, minimum)`, by pods as they are listed before."""
    cache = ObjectCache(JobErrors(time.monotonic), {PODS: TRIMMERS[PODS]})
    scaling = OwnerScaling(operator, cache, clock=time.monotonic)

    async def try_scale(name, owner, kind, minimum):
        cache.apply_listing(PODS, await operator.list(PODS), requested_at_s=time.monotonic())
        pod = cache.get(PODS, ("nb", name))
        version = pod["metadata"]["resourceVersion"]
        return await scaling.try_scale(pod, replicas_of(kind, owner, pod, minimum), version=version)

    return try_scale
