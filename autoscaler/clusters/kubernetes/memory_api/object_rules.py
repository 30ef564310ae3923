"""Rules of the API server for new and changed objects: defaults, validation, immutable fields.  Pure.

It has only the rules that EDL's writes can violate: names and labels, a pod's scheduling gates and what may change
while it has them, priority, and the status subresource.  `Admission` hooks validate custom resources.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from autoscaler.clusters.kubernetes.api.api_port import Raw
from autoscaler.clusters.kubernetes.api.errors import (
    BadRequestError,
    FieldProblem,
    ForbiddenError,
    InvalidError,
    RefusedBy,
)
from autoscaler.clusters.kubernetes.api.kinds import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    EVENTS,
    LEASES,
    LIMIT_RANGES,
    NETWORK_POLICIES,
    PODS,
    PRIORITY_CLASSES,
    SECRETS,
    SERVICE_ACCOUNTS,
    SERVICES,
    Kind,
)
from autoscaler.manifests.documents import format_path
from autoscaler.manifests.pod_fields import UNKNOWN_FIELD, check_fields

_WITHOUT_STATUS: Final = frozenset(
    {CONFIG_MAPS, EVENTS, LEASES, LIMIT_RANGES, NETWORK_POLICIES, PRIORITY_CLASSES, SECRETS, SERVICE_ACCOUNTS}
)
_SUBDOMAIN: Final = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_LABEL_VALUE: Final = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?")
_POD_DEFAULTS: Final[Mapping[str, Any]] = {
    "dnsPolicy": "ClusterFirst",
    "restartPolicy": "Always",
    "schedulerName": "default-scheduler",
    "terminationGracePeriodSeconds": 30,
}
_CHANGEABLE: Final = frozenset({"activeDeadlineSeconds", "schedulingGates", "tolerations"})


def has_status(kind: Kind) -> bool:
    """True if the kind has a status subresource."""
    return kind not in _WITHOUT_STATUS


def prepare_new(kind: Kind, body: Raw, classes: Iterable[Raw]) -> Raw:
    """Return a new object as it is stored: with defaults, without the status that the client sent.

    Raises InvalidError, ForbiddenError (a priority class that does not exist).
    """
    _check_metadata(kind, body)
    obj = {name: value for name, value in body.items() if name != "status" or not has_status(kind)}
    if kind == DEPLOYMENTS:
        template = (body.get("spec") or {}).get("template") or {}
        _check_containers("Deployment", body["metadata"]["name"], "spec.template.spec", template.get("spec") or {})
    if kind != PODS:
        return obj
    spec = {**_POD_DEFAULTS, **(body.get("spec") or {}), **_priority(body, classes)}
    _check_new_pod(body["metadata"]["name"], spec)
    status: Raw = {"phase": "Pending"}
    if spec.get("schedulingGates"):
        status["conditions"] = [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]
    return obj | {"spec": spec, "status": status}


def check_known_fields(kind: Kind, body: Raw) -> None:
    """Raise BadRequestError, with the server's message, for fields of a pod or template that Kubernetes lacks."""
    spec = body.get("spec") or {}
    pods = {PODS: ("", body), DEPLOYMENTS: ("spec.template.", spec.get("template") or {})}
    if kind not in pods:
        return
    where, pod = pods[kind]
    template = {part: pod[part] for part in ("metadata", "spec") if part in pod}
    unknown = [finding.path for finding in check_fields(template) if finding.problem == UNKNOWN_FIELD]
    if unknown:
        messages = ", ".join(f'unknown field "{where}{format_path(path)}"' for path in unknown)
        version = kind.api_version.rpartition("/")[2]
        lead = f'{kind.kind} in version "{version}" cannot be handled as a {kind.kind}'
        raise BadRequestError(f"{lead}: strict decoding error: {messages}")


def prepare_update(kind: Kind, before: Raw, after: Raw, *, is_status: bool) -> Raw:
    """Return an object as it is stored after a write of `after`: spec and status change through their own endpoints
    only.

    Raises InvalidError for a change that is not allowed.

    """
    if has_status(kind):
        other = {name: value for name, value in before.items() if (name != "status") == is_status}
        own = {name: value for name, value in after.items() if (name == "status") == is_status}
        after = other | own
    if is_status:
        return after
    _check_metadata(kind, after)
    if kind == PODS:
        _check_changed_pod(before.get("spec") or {}, after.get("spec") or {}, after["metadata"]["name"])
    return after


def is_new_generation(kind: Kind, before: Raw, after: Raw) -> bool:
    """True if the specification has changed, metadata and status aside."""
    apart = {"metadata", "status"} if has_status(kind) else {"metadata"}
    return {key: value for key, value in before.items() if key not in apart} != {
        key: value for key, value in after.items() if key not in apart
    }


def _invalid(kind: str, name: str, path: str, message: str) -> InvalidError:
    return InvalidError(f'{kind} "{name}" is invalid: {path}: {message}', (FieldProblem(path=path, message=message),))


def _check_metadata(kind: Kind, obj: Raw) -> None:
    name = str(obj["metadata"].get("name") or "")
    longest, shape = (63, _LABEL) if kind == SERVICES else (253, _SUBDOMAIN)
    if len(name) > longest or not shape.fullmatch(name):
        raise _invalid(kind.kind, name, "metadata.name", f"must be lower case, digits, '-', at most {longest} long")
    for key, value in (obj["metadata"].get("labels") or {}).items():
        if not isinstance(value, str) or len(value) > 63 or not _LABEL_VALUE.fullmatch(value):
            raise _invalid(kind.kind, name, "metadata.labels", f"{key}: no label value: {value!r}")


def _priority(pod: Raw, classes: Iterable[Raw]) -> Raw:
    """Return the fields of priority, by the class named or the cluster's default."""
    found = {one["metadata"]["name"]: one for one in classes}
    name = (pod.get("spec") or {}).get("priorityClassName")
    if name and name not in found:
        message = f'pods "{pod["metadata"]["name"]}" is forbidden: no PriorityClass with name {name} was found'
        raise ForbiddenError(message, RefusedBy.ADMISSION)
    chosen = found.get(name) or next((one for one in found.values() if one.get("globalDefault")), None)
    if chosen is None:
        return {"priority": 0, "preemptionPolicy": "PreemptLowerPriority"}
    return {
        "priority": chosen["value"],
        "priorityClassName": chosen["metadata"]["name"],
        "preemptionPolicy": chosen.get("preemptionPolicy", "PreemptLowerPriority"),
    }


def _check_new_pod(name: str, spec: Raw) -> None:
    if not spec.get("containers"):
        raise _invalid("Pod", name, "spec.containers", "Required value")
    _check_containers("Pod", name, "spec", spec)
    if spec.get("schedulingGates") and spec.get("nodeName"):
        raise _invalid("Pod", name, "spec.nodeName", "Forbidden: cannot be set until all schedulingGates are cleared")


def _check_containers(kind: str, name: str, path: str, spec: Raw) -> None:
    """Raise InvalidError for frequent mistakes in templates that only the server finds: names, ports, mounts."""
    volumes = {volume.get("name") for volume in spec.get("volumes") or ()}
    for number, container in enumerate(spec.get("containers") or ()):
        here = f"{path}.containers[{number}]"
        if not _LABEL.fullmatch(str(container.get("name"))):
            raise _invalid(kind, name, f"{here}.name", f'Invalid value: "{container.get("name")}": no DNS label')
        for port in container.get("ports") or ():
            if not 1 <= int(port["containerPort"]) <= 65535:
                raise _invalid(kind, name, f"{here}.ports[0].containerPort", "must be between 1 and 65535, inclusive")
        for mount in container.get("volumeMounts") or ():
            if mount["name"] not in volumes:
                raise _invalid(kind, name, f"{here}.volumeMounts[0].name", f'Not found: "{mount["name"]}"')


def _check_changed_pod(before: Raw, after: Raw, name: str) -> None:
    old_gates = before.get("schedulingGates") or []
    if any(gate not in old_gates for gate in after.get("schedulingGates") or []):
        raise _invalid("Pod", name, "spec.schedulingGates", "Forbidden: only deletion is allowed")
    if old_gates:
        before = _narrowed(before, after, name)
    if _fixed(before) != _fixed(after):
        raise _invalid("Pod", name, "spec", "Forbidden: pod updates may not change fields other than images and gates")


def _fixed(spec: Raw) -> Raw:
    fixed = {key: value for key, value in spec.items() if key not in _CHANGEABLE}
    fixed["containers"] = [
        {key: value for key, value in container.items() if key != "image"} for container in spec.get("containers") or ()
    ]
    return fixed


def _narrowed(before: Raw, after: Raw, name: str) -> Raw:
    """Return `before` with the node selector and affinity of `after`, which may only be narrower while gates exist."""
    old, new = before.get("nodeSelector") or {}, after.get("nodeSelector") or {}
    if any(new.get(key) != value for key, value in old.items()):
        raise _invalid("Pod", name, "spec.nodeSelector", "Invalid value: may only be added to")
    old_terms, new_terms = _terms(before), _terms(after)
    if old_terms and (len(old_terms) != len(new_terms) or not all(map(_is_narrower, old_terms, new_terms))):
        raise _invalid("Pod", name, "spec.affinity.nodeAffinity", "Invalid value: terms may only be added to")
    affinity = dict(before.get("affinity") or {})
    node_affinity = (after.get("affinity") or {}).get("nodeAffinity")
    if node_affinity is not None:
        affinity["nodeAffinity"] = node_affinity
    parts = {"nodeSelector": after.get("nodeSelector"), "affinity": affinity or after.get("affinity")}
    return before | {key: value for key, value in parts.items() if value is not None}


def _terms(spec: Raw) -> list[Raw]:
    node_affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = node_affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    terms: list[Raw] = required.get("nodeSelectorTerms") or []
    return terms


def _is_narrower(old: Raw, new: Raw) -> bool:
    return all(
        part in (new.get(field) or []) for field in ("matchExpressions", "matchFields") for part in old.get(field) or ()
    )
