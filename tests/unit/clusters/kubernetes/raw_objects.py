"""Raw objects as an API server would send them, for tests of `parsing` and `builders`."""

import copy

from autoscaler.clusters.kubernetes.builders.build_settings import BuildSettings, EtcdAccess
from autoscaler.clusters.kubernetes.parsing.training_jobs import parse_job
from autoscaler.domain import Cause, CreatePod, Reclaim, Role, Tier

SETTINGS = BuildSettings(image="edl:test", etcd=EtcdAccess(endpoints="https://etcd:2379", ca="CA", user="edl"))
UID = "0f8fad5b-d9cb-469f-a165-70867728950e"
CREATED = "2026-01-02T03:04:05Z"
CREATED_S = 1767323045.0


def template(name="main", *, cpu="1", memory="1Gi", spec=None, **container):
    first = {"name": name, "image": "train:1", "resources": {"requests": {"cpu": cpu, "memory": memory}}, **container}
    return {"spec": {"containers": [first], **(spec or {})}}


def raw_job(name="digits", *, trainer=None, server=None, master=None, **spec):
    roles = {
        "trainer": {"minReplicas": 2, "maxReplicas": 8, "template": template()} | (trainer or {}),
        "checkpoint": {"uri": "file:///shared/digits"},
    }
    if server is not None:
        roles["parameterServer"] = {"minReplicas": 1, "maxReplicas": 2, "template": template()} | server
    if master is not None:
        roles["master"] = master
    return {
        "apiVersion": "edl.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {
            "name": name,
            "namespace": "team-a",
            "uid": UID,
            "generation": 3,
            "creationTimestamp": CREATED,
            "resourceVersion": "7",
        },
        "spec": roles | spec,
    }


def kube_job(**fields):
    return parse_job(raw_job(**fields))


def placement(role=Role.TRAINER, *, ordinal=0, tier=Tier.CORE, node="n1", grade=0):
    return CreatePod(
        job="team-a/digits", role=role, ordinal=ordinal, tier=tier, node=node, cause=Cause.START, grade=grade
    )


def planner_settings():
    return BuildSettings(image="edl:test", etcd=SETTINGS.etcd, reclaim=Reclaim.PLANNER)


def raw_pod(name="web-1", *, namespace="team-a", node=None, labels=None, owner=None, status=None, meta=None, **spec):
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"uid-{name}",
            "creationTimestamp": CREATED,
            "labels": labels or {},
            **({"ownerReferences": [owner]} if owner else {}),
            **(meta or {}),
        },
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}], **spec},
        "status": {"phase": "Running" if node else "Pending", **(status or {})},
    }
    if node:
        body["spec"]["nodeName"] = node
    return body


def condition(kind, status, **fields):
    return {"type": kind, "status": status, **fields}


def as_stored(body, uid="uid-stored"):
    """The pod as the API server keeps it: what its defaults and its admission plug-ins fill in."""
    stored = copy.deepcopy(body)
    stored["metadata"] |= {"uid": uid, "creationTimestamp": CREATED, "resourceVersion": "11", "generation": 1}
    spec = stored["spec"]
    for holder in ("containers", "initContainers"):
        for container in spec.get(holder, ()):
            resources = container.setdefault("resources", {})
            for name, amount in resources.get("limits", {}).items():
                resources.setdefault("requests", {}).setdefault(name, amount)
            container.setdefault("terminationMessagePath", "/dev/termination-log")
            container.setdefault("imagePullPolicy", "IfNotPresent")
    for key in ("not-ready", "unreachable"):
        toleration = {"effect": "NoExecute", "key": f"node.kubernetes.io/{key}", "operator": "Exists"}
        spec.setdefault("tolerations", []).append({**toleration, "tolerationSeconds": 300})
    for toleration in spec["tolerations"]:
        if not toleration.get("operator"):
            toleration["operator"] = "Equal"
    spec |= {"priority": 0, "preemptionPolicy": "Never"}
    for name, value in (("dnsPolicy", "ClusterFirst"), ("schedulerName", "default-scheduler")):
        spec.setdefault(name, value)
    stored["status"] = {"phase": "Pending", "qosClass": "Burstable"}
    return stored


def merge(target, patch):
    """RFC 7386."""
    result = dict(target)
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        elif isinstance(value, dict):
            result[name] = merge(result.get(name) or {}, value)
        else:
            result[name] = value
    return result
