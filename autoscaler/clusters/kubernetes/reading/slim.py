"""Leaves out of a pod what nobody behind the store reads: 10,000 of them are most of what an operator holds.

Known ballast goes, everything else stays, so that what a later version of the API brings is not lost before its reader
is written.  `tests/unit/test_kube_slim.py` holds that every reader finds the same in both.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from autoscaler.clusters.kubernetes.api.port import Raw
from autoscaler.clusters.kubernetes.building.labels import MASTER_SEATS, REPLACES

_METADATA: Final = frozenset({"annotations", "generateName", "managedFields", "selfLink"})
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
_CLAIMED: Final = ("persistentVolumeClaim", "ephemeral")  # volumes that say where a pod may run


def slim_pod(raw: Raw) -> Raw:
    """The pod without ballast; its parts are shared with `raw`, which nobody must change."""
    metadata, spec, status = raw["metadata"], raw.get("spec") or {}, raw.get("status") or {}
    kept = _less(metadata, _METADATA)
    annotations = metadata.get("annotations") or {}
    if read := {name: annotations[name] for name in _ANNOTATIONS if name in annotations}:
        kept["annotations"] = read
    return {**raw, "metadata": kept, "spec": _slim_spec(spec), "status": _slim_status(status)}


def _slim_spec(spec: Mapping[str, Any]) -> Raw:
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
