"""Leaves out of objects what nobody behind the store reads: 10,000 pods are most of what an operator holds.

Known ballast goes, everything else stays, so that what a later version of the API brings is not lost before its reader
is written.  `tests/unit/test_kube_slim.py` holds that every reader finds the same in both.

Who may make an object may make it 1.5 MB long, and hundreds of them (A11).  So nothing that is as long as its author
likes stays whole: labels, annotations and what a container runs go; a template of a job, or what is left of a pod or of
somebody else's template, that is still longer than `LONGEST` has a short form, which is never taken for the whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from autoscaler.clusters.kubernetes.api.kinds import (
    DAEMON_SETS,
    DEPLOYMENTS,
    LIMIT_RANGES,
    POD_AUTOSCALERS,
    PODS,
    RESOURCE_QUOTAS,
    TRAINING_JOBS,
    Kind,
)
from autoscaler.clusters.kubernetes.api.port import Raw, Slim
from autoscaler.clusters.kubernetes.building.labels import API_GROUP, MASTER_SEATS, REPLACES
from autoscaler.clusters.kubernetes.reading.amounts import GPU
from autoscaler.clusters.kubernetes.reading.raw import controller_of, part, parts
from autoscaler.clusters.kubernetes.reading.requests import PODS as POD_COUNT
from autoscaler.clusters.kubernetes.reading.requests import pod_request
from autoscaler.clusters.kubernetes.reading.shapes import TOO_LONG

LONGEST: Final = 16_384
"""Characters of what is left of a pod or of somebody else's template; of a usual one some 1,500 are."""

LONGEST_TEMPLATE: Final = 262_144
"""Of one template of a job, which is kept whole: its pods are made of it."""

MOST_RESOURCES: Final = 64
"""That the short form of a pod names."""

_METADATA: Final = frozenset(
    {"annotations", "finalizers", "generateName", "labels", "managedFields", "ownerReferences", "selfLink"}
)
_SHORT_METADATA: Final = (
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "labels",
    "name",
    "namespace",
    "ownerReferences",
    "resourceVersion",
    "uid",
)
_LABELS: Final = frozenset({"pod-template-hash"})  # that are read beside EDL's
_ANNOTATIONS: Final = (MASTER_SEATS, REPLACES)  # that are read
_SPEC: Final = frozenset(
    {
        "automountServiceAccountToken",
        "containers",
        "dnsConfig",
        "dnsPolicy",
        "enableServiceLinks",
        "ephemeralContainers",
        "hostAliases",
        "imagePullSecrets",
        "initContainers",
        "securityContext",
        "serviceAccount",
        "serviceAccountName",
        "volumes",
    }
)
_CONTAINER: Final = frozenset(
    {
        "args",
        "command",
        "env",
        "envFrom",
        "image",
        "imagePullPolicy",
        "lifecycle",
        "livenessProbe",
        "ports",
        "readinessProbe",
        "securityContext",
        "startupProbe",
        "terminationMessagePath",
        "terminationMessagePolicy",
        "volumeDevices",
        "volumeMounts",
        "workingDir",
    }
)
_STATUS: Final = frozenset(
    {
        "conditions",
        "containerStatuses",
        "ephemeralContainerStatuses",
        "hostIP",
        "hostIPs",
        "initContainerStatuses",
        "podIPs",
        "qosClass",
        "resourceClaimStatuses",
    }
)
_CONTAINER_STATUS: Final = frozenset({"containerID", "image", "imageID", "started", "user", "volumeMounts"})
_CONDITIONS: Final = frozenset(
    {"ContainersReady", "Initialized", "PodReadyToStartContainers"}
)  # of which `Ready` tells
_CONDITION: Final = frozenset({"lastProbeTime", "observedGeneration"})
_SHORT_SPEC: Final = frozenset({"nodeName", "preemptionPolicy", "priority", "priorityClassName"})
_WORKLOAD_SPEC: Final = frozenset({"selector", "strategy", "template", "updateStrategy"})
_SCALER_SPEC: Final = frozenset({"maxReplicas", "minReplicas", "scaleTargetRef"})
_SCALER_STATUS: Final = frozenset({"currentReplicas", "desiredReplicas"})
_CLAIMED: Final = ("persistentVolumeClaim", "ephemeral")  # volumes that say where a pod may run


def slim_pod(raw: Raw) -> Raw:
    """The pod without ballast; its parts are shared with `raw`, which nobody must change."""
    metadata, spec, status = raw["metadata"], raw.get("spec") or {}, raw.get("status") or {}
    kept = _slim_metadata(metadata)
    annotations = metadata.get("annotations") or {}
    if read := {name: annotations[name] for name in _ANNOTATIONS if name in annotations}:
        kept["annotations"] = read
    slim = {**raw, "metadata": kept, "spec": slim_spec(spec), "status": _slim_status(status)}
    return _short_pod(slim) if is_longer(slim, LONGEST) else slim


def slim_workload(raw: Raw) -> Raw:
    """The Deployment or DaemonSet likewise: how many pods it wants, and what each asks for."""
    spec, template = _less(raw.get("spec") or {}, _WORKLOAD_SPEC), part(raw, "spec", "template")
    if template:
        pods = slim_spec(part(template, "spec"))
        spec["template"] = {"spec": _short_spec(pods, {}) if is_longer(pods, LONGEST) else pods}
    status = {name: value for name, value in (raw.get("status") or {}).items() if name != "conditions"}
    conditions = [one for one in parts(raw, "status", "conditions") if one.get("type") == "ReplicaFailure"]
    kept = {**raw, "metadata": _slim_metadata(raw["metadata"]), "spec": spec, "status": status}
    if conditions:
        status["conditions"] = [{name: one.get(name) for name in ("type", "status", "reason")} for one in conditions]
    return kept


def slim_scaler(raw: Raw) -> Raw:
    """The HorizontalPodAutoscaler without its metrics."""
    spec = {name: value for name, value in part(raw, "spec").items() if name in _SCALER_SPEC}
    status = {name: value for name, value in part(raw, "status").items() if name in _SCALER_STATUS}
    return {**raw, "metadata": _slim_metadata(raw["metadata"]), "spec": spec, "status": status}


def slim_named(raw: Raw) -> Raw:
    """Any other object: without labels, annotations and the like."""
    return {**raw, "metadata": _slim_metadata(raw["metadata"])}


def slim_job(raw: Raw) -> Raw:
    """The TrainingJob; a template that is too long says that alone, and is refused for it."""
    spec = raw.get("spec")
    kept = slim_named(raw)
    if isinstance(spec, dict):
        kept["spec"] = {name: _slim_role(value) for name, value in spec.items()}
    return kept


def is_longer(value: Any, most: int) -> bool:
    """Whether the object is longer, as text, than so many characters; no more than that many are looked at."""
    left, rest = most, [value]
    while rest and left >= 0:
        found = rest.pop()
        kind = type(found)  # of what JSON gives; asked of every pod of every listing
        if kind is str:
            left -= len(found) + 2
        elif kind is dict:
            left -= 2 * len(found) + sum(map(len, found))
            rest.extend(found.values())
        elif kind is list:
            left -= len(found)
            rest.extend(found)
        else:
            left -= 4
    return left < 0


SLIMS: Final[Mapping[Kind, Slim]] = {
    PODS: slim_pod,
    DEPLOYMENTS: slim_workload,
    DAEMON_SETS: slim_workload,
    POD_AUTOSCALERS: slim_scaler,
    RESOURCE_QUOTAS: slim_named,
    LIMIT_RANGES: slim_named,
    TRAINING_JOBS: slim_job,
}
"""What an operator leaves out of what it holds, by kind: of answers to its own writes too."""


def _slim_metadata(metadata: Raw) -> Raw:
    kept = _less(metadata, _METADATA)
    labels = metadata.get("labels") or {}
    if read := {name: labels[name] for name in labels if name in _LABELS or name.startswith(f"{API_GROUP}/")}:
        kept["labels"] = read
    if owner := controller_of({"metadata": metadata}):
        kept["ownerReferences"] = [owner]
    return kept


def _slim_role(value: Any) -> Any:
    is_long = isinstance(value, dict) and is_longer(value.get("template"), LONGEST_TEMPLATE)
    return {**value, "template": {TOO_LONG: True}} if is_long else value


def _short_pod(slim: Raw) -> Raw:
    """What is left of a pod that is longer than any is: whose it is, where it stands, what it holds there."""
    metadata = {name: value for name, value in slim["metadata"].items() if name in _SHORT_METADATA}
    return {
        **{name: slim[name] for name in ("apiVersion", "kind") if name in slim},
        "metadata": metadata,
        "spec": _short_spec(slim["spec"], slim["status"]),
        "status": _less(slim["status"], frozenset({"containerStatuses", "initContainerStatuses", "message"})),
    }


def _short_spec(spec: Raw, status: Raw) -> Raw:
    """One container that asks for what all ask for, and nothing of where the pod may stand."""
    asked = pod_request(spec, status)
    amounts = {"cpu": f"{asked.cpu_milli}m", "memory": str(asked.memory_bytes), GPU: str(asked.gpu_count)}
    devices = [(name, str(amount)) for name, amount in asked.extended if name != POD_COUNT]
    requests = amounts | dict(devices[: MOST_RESOURCES - len(amounts)])
    kept = {name: value for name, value in spec.items() if name in _SHORT_SPEC}
    return {**kept, TOO_LONG: True, "containers": [{"name": "all", "resources": {"requests": requests}}]}


def slim_spec(spec: Mapping[str, Any]) -> Raw:
    """A pod's spec without ballast."""
    kept = _less(spec, _SPEC)
    for name in ("containers", "initContainers"):
        if found := spec.get(name):
            kept[name] = [_less(one, _CONTAINER) for one in found]
    volumes = [one for one in spec.get("volumes") or () if any(name in one for name in _CLAIMED)]
    if volumes:
        kept["volumes"] = volumes
    return kept


def _slim_status(status: Mapping[str, Any]) -> Raw:
    kept = _less(status, _STATUS)
    for name in ("containerStatuses", "initContainerStatuses"):
        if found := status.get(name):
            kept[name] = [_less(one, _CONTAINER_STATUS) for one in found]
    conditions = [one for one in status.get("conditions") or () if one.get("type") not in _CONDITIONS]
    if conditions:
        kept["conditions"] = [_less(one, _CONDITION) for one in conditions]
    return kept


def _less(fields: Mapping[str, Any], ballast: frozenset[str]) -> Raw:
    return {name: value for name, value in fields.items() if name not in ballast}
