"""PodTemplateSpec of a role: kept as its owner wrote it, checked for what EDL itself relies on.

The API server checks the rest when the first pod is created.  EDL's container is the one named after the role
(`trainer`, `server`, `master`), else the first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from autoscaler.clusters.kubernetes.objects.fields import Raw, part, parts
from autoscaler.clusters.kubernetes.objects.node_affinity import MOST_AVOIDED, require_allowed_nodes, tie_to_node
from autoscaler.clusters.kubernetes.objects.size_limits import LONGEST, LONGEST_TEMPLATE, TOO_LONG, is_longer
from autoscaler.clusters.kubernetes.parsing.object_trimming import trim_pod_spec
from autoscaler.domain import NodeName, Role
from autoscaler.errors import InvalidSpecError
from autoscaler.manifests.documents import format_path
from autoscaler.manifests.pod_fields import check_fields, format_value
from autoscaler.manifests.pod_schema import LONGEST_GRACE_S
from autoscaler.manifests.pod_values import check_values
from autoscaler.quantities import QuantityError, format_cpu, format_memory, parse_quantity

DEFAULT_GRACE_S: Final = 30.0  # the API server's own default
SERVER_GRACE_S: Final = 120.0
"""A server hands over its buckets before it ends: 10 GB over a link of 1 Gbit/s, and half as much time again."""
MASTER_CPU_MILLI: Final = 100
MASTER_MEMORY_BYTES: Final = 128 << 20

LONGEST_NAMES: Final = tuple(NodeName(f"{number:03}".ljust(253, "n")) for number in range(MOST_AVOIDED + 1))
"""Node names as long as the API server accepts, with which a pod's length is checked."""

FIELDS: Final = {Role.TRAINER: "trainer", Role.SERVER: "parameterServer", Role.MASTER: "master"}
_CHOSEN_BY_EDL: Final = {
    "nodeName": "EDL chooses the node",
    "priorityClassName": "EDL gives each pod its class; set spec.priorityClassName of the job instead",
    "priority": "EDL gives each pod its class; set spec.priorityClassName of the job instead",
    "preemptionPolicy": "EDL's priority class sets it",
    "schedulingGates": "EDL removes only its own gate; use spec.runPolicy.suspend to hold a job back",
}
_LISTS: Final = ("containers", "initContainers", "volumes", "tolerations", "imagePullSecrets", "schedulingGates")
_REQUESTS_HINT: Final = (
    'add resources: {requests: {cpu: "1", memory: 512Mi}}; requests are what the planner counts, so a pod without them '
    "has no size"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleTemplate:
    """The pod template of one role.  `container`: the index of EDL's container."""

    raw: Raw
    container: int
    grace_s: float

    @property
    def spec(self) -> Raw:
        return part(self.raw, "spec")

    @property
    def own_container(self) -> Raw:
        return parts(self.spec, "containers")[self.container]


def check_template(template: Raw, role: Role, path: str, *, job: Raw, is_new: bool = True) -> RoleTemplate:
    """Return the template, whose fields that `builders` use have their types.  Raises InvalidSpecError.

    `job`: the spec that it is part of.

    `is_new`: the job has not started, so all other invalid fields are refused too.  The template of a started job
    cannot change until it is suspended, and its pods may date from an EDL with fewer rules (ADR 0161).
    """
    spec = part(template, "spec")
    if TOO_LONG in template or (is_new and is_longer(template, LONGEST_TEMPLATE)):
        hint = "programs, files and settings belong into the image, or into a ConfigMap that the pods mount"
        raise InvalidSpecError(path, f"is longer than {LONGEST_TEMPLATE:,} characters", hint)
    _check_lists(spec, f"{path}.spec")
    containers = parts(spec, "containers")
    if not containers:
        raise InvalidSpecError(f"{path}.spec.containers", "is missing", "a pod has at least one container")
    for name, hint in _CHOSEN_BY_EDL.items():
        if spec.get(name) is not None:
            raise InvalidSpecError(f"{path}.spec.{name}", "cannot be set in a TrainingJob", hint)
    for where, quantity in _quantities(spec):
        _check_quantity(f"{path}.spec.{where}", quantity)
    own = next((index for index, found in enumerate(containers) if found.get("name") == role.value), 0)
    if role is not Role.MASTER:
        for index, container in enumerate(containers):
            _check_requests(spec, container, f"{path}.spec.containers[{index}]")
    default_s = SERVER_GRACE_S if role is Role.SERVER else DEFAULT_GRACE_S
    grace_s = _grace_s(spec, path, default_s, is_new=is_new)
    if is_new:
        _check_length(spec, f"{path}.spec")
        _refuse_first(template, role, path, job)
    return RoleTemplate(raw=template, container=own, grace_s=grace_s)


def _check_lists(spec: Raw, path: str) -> None:
    """Raise InvalidSpecError unless the lists are lists."""
    for name in _LISTS:
        found = spec.get(name)
        if found is not None and not (isinstance(found, list) and len(parts(spec, name)) == len(found)):
            raise InvalidSpecError(f"{path}.{name}", "is not a list of mappings")


def _check_length(spec: Raw, path: str) -> None:
    """Raise InvalidSpecError if the trimmed pod is too long, also with the terms that EDL adds to it."""
    *avoided, own = LONGEST_NAMES
    built = tie_to_node(require_allowed_nodes(trim_pod_spec(spec), avoid=avoided), own)
    if is_longer(built, LONGEST_TEMPLATE - LONGEST):  # the rest is for labels, annotations and status
        hint = "EDL adds the nodes to avoid to each term of the node affinity: name fewer terms, with more values each"
        raise InvalidSpecError(path, "has too many terms of node affinity", hint)
    if is_longer(trim_pod_spec(spec), LONGEST):
        hint = "most of it is affinity, tolerations, node selector, volume claims or resources: name fewer of them"
        raise InvalidSpecError(path, f"has more than {LONGEST:,} characters of placement constraints", hint)


def _refuse_first(template: Raw, role: Role, path: str, job: Raw) -> None:
    """Raise InvalidSpecError for the template's first field that Kubernetes rejects or drops."""
    for finding in (*check_fields(template), *check_values(template, FIELDS[role], job)):
        if finding.is_certain:
            raise InvalidSpecError(format_path((path, *finding.path)), finding.problem, finding.hint)
    for index, container in enumerate(parts(template, "spec", "containers")):
        if role is Role.TRAINER and not container.get("image"):
            where = f"{path}.spec.containers[{index}].image"
            raise InvalidSpecError(where, "is missing", "name the image that holds the training script")


def default_master(trainer: RoleTemplate) -> RoleTemplate:
    """Return the master's template where the user wrote none: small, with access to the trainers' checkpoints.

    It takes over volumes, variables, account and tolerations of the trainers, but not their devices and node selection.
    """
    own, spec = trainer.own_container, trainer.spec
    requests = {"cpu": format_cpu(MASTER_CPU_MILLI), "memory": format_memory(MASTER_MEMORY_BYTES)}
    container: dict[str, Any] = {"name": Role.MASTER.value, "resources": {"requests": requests}}
    container |= {name: own[name] for name in ("env", "envFrom", "volumeMounts", "securityContext") if name in own}
    taken = ("volumes", "serviceAccountName", "imagePullSecrets", "securityContext", "tolerations")
    raw = {"spec": {**{name: spec[name] for name in taken if name in spec}, "containers": [container]}}
    return RoleTemplate(raw=raw, container=0, grace_s=DEFAULT_GRACE_S)


def _check_requests(spec: Raw, container: Raw, path: str) -> None:
    """Raise InvalidSpecError unless cpu and memory are requested, by the container or by the pod."""
    for name in ("cpu", "memory"):
        holders = [part(holder, "resources", kind) for holder in (container, spec) for kind in ("requests", "limits")]
        if not any(name in listed for listed in holders):
            raise InvalidSpecError(f"{path}.resources.requests.{name}", "is missing", _REQUESTS_HINT)


def _grace_s(spec: Raw, path: str, default_s: float, *, is_new: bool) -> float:
    found = spec.get("terminationGracePeriodSeconds")
    if found is None:
        return default_s
    if isinstance(found, bool) or not isinstance(found, int) or found < 1:
        hint = "1 or more: within this grace period a trainer returns its leases"
        raise InvalidSpecError(f"{path}.spec.terminationGracePeriodSeconds", f"is {found!r}", hint)
    if found > LONGEST_GRACE_S and is_new:
        hint = f"at most {LONGEST_GRACE_S} seconds: a longer grace period would block the node"
        raise InvalidSpecError(f"{path}.spec.terminationGracePeriodSeconds", f"is {format_value(found)}", hint)
    return float(min(found, LONGEST_GRACE_S))


def _quantities(spec: Raw) -> Iterator[tuple[str, Any]]:
    for name, value in part(spec, "overhead").items():
        yield f"overhead.{name}", value
    for kind in ("requests", "limits"):
        for name, value in part(spec, "resources", kind).items():
            yield f"resources.{kind}.{name}", value
        for holder in ("containers", "initContainers"):
            for index, container in enumerate(parts(spec, holder)):
                for name, value in part(container, "resources", kind).items():
                    yield f"{holder}[{index}].resources.{kind}.{name}", value


def _check_quantity(path: str, value: Any) -> None:
    try:
        if parse_quantity(value) < 0:
            raise InvalidSpecError(path, f"{value!r} is below zero", "0 or more")
    except QuantityError as error:
        raise InvalidSpecError(path, str(error)) from error
