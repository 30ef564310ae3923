"""Trimming of objects to the fields that EDL reads: 10,000 pods are most of an operator's memory.

Known unused fields are dropped and all others stay, so that fields of a later API version are there once a parser reads
them.  `tests/unit/clusters/kubernetes/parsing/test_object_trimming.py` proves that every
parser reads the same from both.

Anybody may create objects of 1.5 MB, hundreds of them (A11).  So nothing of unlimited length stays whole: labels,
annotations and containers' programs are dropped.  An object that is still too long, or a template of a job that has not
started, gets a short form, which is never taken for the whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from autoscaler.clusters.kubernetes.api.api_port import Raw, Trimmer
from autoscaler.clusters.kubernetes.api.kinds import (
    DAEMON_SETS,
    DEPLOYMENTS,
    DISRUPTION_BUDGETS,
    LIMIT_RANGES,
    NAMESPACES,
    NODE_GPUS,
    POD_AUTOSCALERS,
    PODS,
    RESOURCE_QUOTAS,
    SERVICES,
    STATEFUL_SETS,
    TRAINING_JOBS,
    Kind,
)
from autoscaler.clusters.kubernetes.objects.fields import controller_of, integer, part, parts, text
from autoscaler.clusters.kubernetes.objects.labels import (
    COMPARE,
    DELETION_COST,
    FORMER_COST,
    GRADE,
    IDLE_MINIMUM,
    IDLE_RECLAIM,
    JOB,
    KEEP_UNTIL,
    MASTER_NODES,
    ORDINAL,
    REPLACES,
    ROLE,
    TIER,
)
from autoscaler.clusters.kubernetes.objects.resource_amounts import GPU
from autoscaler.clusters.kubernetes.objects.size_limits import (
    LONGEST,
    LONGEST_TEMPLATE,
    TOO_LONG,
    beside_templates,
    is_longer,
)
from autoscaler.clusters.kubernetes.parsing.node_gpus import trim_node_gpus
from autoscaler.clusters.kubernetes.parsing.pod_requests import PODS as POD_COUNT
from autoscaler.clusters.kubernetes.parsing.pod_requests import pod_request

LONGEST_OWNER: Final = 1_024
"""Characters of the controller reference: names have 253 at most, which the API server does not check here."""

LONGEST_CONSENT: Final = 64
"""Characters of an annotation that consents to GPUs being given back; a longer one is not understood."""

LONGEST_REQUEST: Final = 64
"""Characters of a request for a comparison of replicas; the status has as many."""

MOST_RESOURCES: Final = 64
"""Most resources in the short form of a pod."""

_METADATA: Final = frozenset(
    {"annotations", "finalizers", "generateName", "labels", "managedFields", "ownerReferences", "selfLink"}
)
_SHORT_METADATA: Final = (
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "generation",
    "labels",
    "name",
    "namespace",
    "ownerReferences",
    "resourceVersion",
    "uid",
)
_LABELS: Final = (JOB, ROLE, TIER, ORDINAL, GRADE, "pod-template-hash")  # that are read
_CONSENT: Final = (IDLE_RECLAIM, IDLE_MINIMUM, KEEP_UNTIL)
_ANNOTATIONS: Final = (DELETION_COST, FORMER_COST, MASTER_NODES, REPLACES, *_CONSENT)  # that are read
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
_CONDITIONS: Final = frozenset({"ContainersReady", "Initialized", "PodReadyToStartContainers"})  # `Ready` sums them up
_CONDITION: Final = frozenset({"lastProbeTime", "observedGeneration"})
_SHORT_SPEC: Final = frozenset({"nodeName", "preemptionPolicy", "priority", "priorityClassName"})
_WORKLOAD_SPEC: Final = frozenset({"selector", "strategy", "template", "updateStrategy"})
_SCALER_SPEC: Final = frozenset({"maxReplicas", "minReplicas", "scaleTargetRef"})
_SCALER_STATUS: Final = frozenset({"currentReplicas", "desiredReplicas"})
_COUNTS: Final = frozenset(
    {"replicas", "maxReplicas", "minReplicas", "desiredReplicas", "currentReplicas", "observedGeneration"}
)
_RETENTION: Final = "persistentVolumeClaimRetentionPolicy"
_CLAIMED: Final = ("persistentVolumeClaim", "ephemeral")  # volumes that say where a pod may run


def trim_pod(raw: Raw) -> Raw:
    """Return the trimmed pod; it shares parts with `raw`, which must not be changed."""
    metadata, spec, status = raw["metadata"], raw.get("spec") or {}, raw.get("status") or {}
    kept = _trim_metadata(metadata)
    annotations = metadata.get("annotations") or {}
    if read := {name: annotations[name] for name in _ANNOTATIONS if name in annotations}:
        kept["annotations"] = read
    trimmed = {**raw, "metadata": kept, "spec": trim_pod_spec(spec), "status": _trim_status(status)}
    most = LONGEST_TEMPLATE if JOB in kept.get("labels", {}) else LONGEST
    return _short_pod(trimmed) if is_longer(trimmed, most) else trimmed


def trim_workload(raw: Raw) -> Raw:
    """Return the trimmed Deployment or DaemonSet: how many pods it wants, and what each requests."""
    spec, template = _without(raw.get("spec") or {}, _WORKLOAD_SPEC), part(raw, "spec", "template")
    if template:
        pods = trim_pod_spec(part(template, "spec"))
        spec["template"] = {"spec": _short_spec(pods, {}) if is_longer(pods, LONGEST) else pods}
    status = {name: value for name, value in (raw.get("status") or {}).items() if name != "conditions"}
    conditions = [one for one in parts(raw, "status", "conditions") if one.get("type") == "ReplicaFailure"]
    kept = {**raw, "metadata": _trim_metadata(raw["metadata"]) | consent_of(raw), "spec": spec, "status": status}
    if conditions:
        status["conditions"] = [{name: one.get(name) for name in ("type", "status", "reason")} for one in conditions]
    if not is_longer({**kept, "spec": _without(spec, frozenset({"template"}))}, LONGEST):
        return kept
    short = {name: spec[name] for name in ("template", "paused") if spec.get(name)}
    return _short(
        kept, spec=_counts(spec) | short, status=_counts(status) | {"conditions": status.get("conditions", [])[:1]}
    )


def trim_consent(raw: Raw) -> Raw:
    """Return a Namespace or a StatefulSet: its identity, controller, scale, and consent to give GPUs back."""
    spec = _counts(dict(part(raw, "spec")))
    if start := integer(raw, "spec", "ordinals", "start"):
        spec |= {"ordinals": {"start": start}}
    if text(raw, "spec", _RETENTION, "whenScaled") == "Delete":
        spec |= {_RETENTION: {"whenScaled": "Delete"}}
    return _short({**raw, "metadata": _trim_metadata(raw["metadata"]) | consent_of(raw)}, spec=spec, status={})


def trim_autoscaler(raw: Raw) -> Raw:
    """Return the HorizontalPodAutoscaler without its metrics."""
    spec = {name: value for name, value in part(raw, "spec").items() if name in _SCALER_SPEC}
    status = {name: value for name, value in part(raw, "status").items() if name in _SCALER_STATUS}
    kept = {**raw, "metadata": _trim_metadata(raw["metadata"]), "spec": spec, "status": status}
    return _short(kept, spec=_counts(spec), status=_counts(status)) if is_longer(kept, LONGEST) else kept


def trim_named(raw: Raw) -> Raw:
    """Return any other object without labels, annotations and the like; of one that is too long only that fact is kept.

    An administrator writes quotas and LimitRanges.  If one is too long, the API server still enforces it and refuses
    what was planned.
    """
    kept = {**raw, "metadata": _trim_metadata(raw["metadata"])}
    return _short(kept, spec={TOO_LONG: True}, status={}) if is_longer(kept, LONGEST) else kept


def trim_job(raw: Raw) -> Raw:
    """Return the trimmed TrainingJob; a template, or a spec beside templates, that is too long says that alone.

    The templates of a started job are kept whole: they were checked when the job started, and cannot change until it
    is suspended (ADR 0161).
    """
    kept, spec = {**raw, "metadata": _trim_metadata(raw["metadata"])}, raw.get("spec")
    if request := text(raw, "metadata", "annotations", COMPARE):
        kept["metadata"]["annotations"] = {COMPARE: request[:LONGEST_REQUEST]}
    if isinstance(spec, dict) and not part(raw, "status").get("startTime"):
        kept["spec"] = {TOO_LONG: True} if is_longer(beside_templates(spec), LONGEST) else _trim_roles(spec)
    return kept


TRIMMERS: Final[Mapping[Kind, Trimmer]] = {
    PODS: trim_pod,
    DEPLOYMENTS: trim_workload,
    DAEMON_SETS: trim_workload,
    POD_AUTOSCALERS: trim_autoscaler,
    RESOURCE_QUOTAS: trim_named,
    LIMIT_RANGES: trim_named,
    SERVICES: trim_named,
    DISRUPTION_BUDGETS: trim_named,
    TRAINING_JOBS: trim_job,
    NODE_GPUS: trim_node_gpus,
    NAMESPACES: trim_consent,
    STATEFUL_SETS: trim_consent,
}
"""How the operator trims what it caches, by kind; answers to its own writes too."""


def _trim_metadata(metadata: Raw) -> Raw:
    kept = _without(metadata, _METADATA)
    labels = metadata.get("labels") or {}
    if read := {name: labels[name] for name in _LABELS if name in labels}:
        kept["labels"] = read
    owner = controller_of({"metadata": metadata})
    if owner and not is_longer(owner, LONGEST_OWNER):
        kept["ownerReferences"] = [owner]
    return kept


def consent_of(raw: Raw) -> Raw:
    """Return what an object's annotations say about its unused GPUs, as a part of its metadata."""
    found = part(raw, "metadata", "annotations")
    read = {name: str(found[name])[: LONGEST_CONSENT + 1] for name in _CONSENT if name in found}
    return {"annotations": read} if read else {}


def _trim_roles(spec: Raw) -> Raw:
    return {
        name: {**value, "template": {TOO_LONG: True}}
        if isinstance(value, dict) and is_longer(value.get("template"), LONGEST_TEMPLATE)
        else value
        for name, value in spec.items()
    }


def _counts(fields: Raw) -> Raw:
    return {name: value for name, value in fields.items() if type(value) is int and name in _COUNTS}


def _short(kept: Raw, *, spec: Raw, status: Raw) -> Raw:
    """Return the short form of an object that is too long: its identity and these fields."""
    metadata = {name: value for name, value in kept["metadata"].items() if name in _SHORT_METADATA} | consent_of(kept)
    head: Raw = {name: kept[name] for name in ("apiVersion", "kind") if name in kept}
    return {**head, "metadata": metadata, "spec": spec, "status": status}


def _short_pod(trimmed: Raw) -> Raw:
    """Return the short form of a pod: its owner, its node, what it occupies there."""
    status = _without(trimmed["status"], frozenset({"containerStatuses", "initContainerStatuses", "message"}))
    return _short(trimmed, spec=_short_spec(trimmed["spec"], trimmed["status"]), status=status)


def _short_spec(spec: Raw, status: Raw) -> Raw:
    """Return a spec with one container that requests what all request, without node requirements."""
    occupied = pod_request(spec, status)
    amounts = {"cpu": f"{occupied.cpu_milli}m", "memory": str(occupied.memory_bytes), GPU: str(occupied.gpu_count)}
    devices = [(name, str(amount)) for name, amount in occupied.extended if name != POD_COUNT]
    requests = amounts | dict(devices[: MOST_RESOURCES - len(amounts)])
    kept = {name: value for name, value in spec.items() if name in _SHORT_SPEC}
    return {**kept, TOO_LONG: True, "containers": [{"name": "all", "resources": {"requests": requests}}]}


def trim_pod_spec(spec: Mapping[str, Any]) -> Raw:
    """Return a pod's trimmed spec."""
    kept = _without(spec, _SPEC)
    for name in ("containers", "initContainers"):
        if found := spec.get(name):
            kept[name] = [_without(one, _CONTAINER) for one in found]
    volumes = [one for one in spec.get("volumes") or () if any(name in one for name in _CLAIMED)]
    if volumes:
        kept["volumes"] = volumes
    return kept


def _trim_status(status: Mapping[str, Any]) -> Raw:
    kept = _without(status, _STATUS)
    for name in ("containerStatuses", "initContainerStatuses"):
        if found := status.get(name):
            kept[name] = [_without(one, _CONTAINER_STATUS) for one in found]
    conditions = [one for one in status.get("conditions") or () if one.get("type") not in _CONDITIONS]
    if conditions:
        kept["conditions"] = [_without(one, _CONDITION) for one in conditions]
    return kept


def _without(fields: Mapping[str, Any], unused: frozenset[str]) -> Raw:
    return {name: value for name, value in fields.items() if name not in unused}
