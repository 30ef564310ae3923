"""Values of a pod template: names, images, ports, mounts, requests.  The same for every place to run.

The rules are the API server's own for pods; they are checked when a job is read, before its first pod (ADR 0161).
Values of the wrong type are passed over here, since `pod_fields` reports them.  Whether a class, a claim or an account
exists is known to the API server alone.  charts/edl/files/trainingjobs.yaml has the same patterns.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from autoscaler.manifests.edl_variables import check_variables
from autoscaler.manifests.pod_fields import Path, PodFinding, format_value, under
from autoscaler.quantities import QuantityError, parse_quantity

DNS_LABEL: Final = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
DNS_SUBDOMAIN: Final = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
IMAGE: Final = (
    r"^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?(:[0-9]{1,5})?(/[a-z0-9]+([._-]+[a-z0-9]+)*)*"
    r"(:[A-Za-z0-9_][A-Za-z0-9._-]{0,127})?(@[a-z0-9]+([+._-][a-z0-9]+)*:[0-9a-fA-F]{32,128})?$"
)
QUALIFIED_NAME: Final = r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$"
LABEL_VALUE: Final = r"^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$"
VARIABLE: Final = r"^[ -<>-~]+$"
LONGEST_LABEL: Final = 63
LONGEST_KEY: Final = 317  # a DNS name of 253, a slash, and a name
LONGEST_IMAGE: Final = 1024
LONGEST_VARIABLE: Final = 256
LARGEST_PORT: Final = 65_535
MOST: Final = {
    "containers": 8,
    "initContainers": 8,
    "volumes": 64,
    "tolerations": 64,
    "command": 256,
    "args": 256,
    "env": 256,
    "ports": 64,
}
"""Most items of each list."""

_OWN_RESOURCES: Final = frozenset({"cpu", "memory", "ephemeral-storage"})
_HUGE_PAGES: Final = "hugepages-"
_LARGEST: Final = 2**63 - 1  # what the API server can hold
_HOLDERS: Final = ("initContainers", "containers")
_OWN_NAME: Final = "use unique names"
_LABEL_HINT: Final = "lower case letters, digits and -, at most 63, with a letter or digit at both ends"
_VARIABLE_HINT: Final = f"at most {LONGEST_VARIABLE} printable characters, none of them ="
_IMAGE_HINT: Final = "write registry/name:tag, or name@sha256:..."
RESTART_POLICIES: Final = {"trainer": "Never", "parameterServer": "Never", "master": "Always"}
"""Restart policy by role: the kubelet never restarts trainers and servers, because EDL decides what follows their
end.
"""


def check_values(template: Any, role: str | None = None, job: Any = None) -> Iterator[PodFinding]:
    """Wrong values in a template.  Never raises.

    `role`: its field in a TrainingJob, None in a Deployment; `job`: the spec of that TrainingJob, as written.
    """
    metadata, spec = _mapping(template, "metadata"), _mapping(template, "spec")
    yield from under(("metadata", "labels"), _check_labels(_mapping(metadata, "labels"), has_values=True))
    yield from under(("metadata", "annotations"), _check_labels(_mapping(metadata, "annotations"), has_values=False))
    yield from under(("spec",), _check_spec(spec, role, job if isinstance(job, Mapping) else {}))


def _check_spec(spec: Mapping[str, Any], role: str | None, job: Mapping[str, Any]) -> Iterator[PodFinding]:
    yield from under(("nodeSelector",), _check_labels(_mapping(spec, "nodeSelector"), has_values=True))
    yield from _check_names(spec)
    volumes = {str(volume.get("name")) for _, volume in _items(spec, "volumes")}
    yield from _check_lengths(spec)
    for holder in _HOLDERS:
        for index, container in _items(spec, holder):
            yield from under((holder, index), _check_container(container, volumes))
    for name, value in _mapping(spec, "overhead").items():
        yield from _check_amount(("overhead", name), name, value)
    yield from _check_resources(("resources",), _mapping(spec, "resources"))
    if role is None:
        return
    yield from check_variables(spec, role, job)
    if role != "master":
        yield from _check_some_request(spec)
    policy, wanted = spec.get("restartPolicy"), RESTART_POLICIES[role]
    if isinstance(policy, str) and policy != wanted:
        hint = f"leave it out: a {role}'s pod always has {wanted}; EDL replaces ended pods itself"
        yield PodFinding(path=("restartPolicy",), problem=f"is {format_value(policy)}", hint=hint)


def _check_names(spec: Mapping[str, Any]) -> Iterator[PodFinding]:
    """Names of containers, unique over both lists, and of volumes."""
    for holders in (_HOLDERS, ("volumes",)):
        seen: set[str] = set()
        for holder in holders:
            for index, item in _items(spec, holder):
                name = item.get("name")
                if not isinstance(name, str):
                    continue
                if name in seen:
                    yield PodFinding(
                        path=(holder, index, "name"), problem=f"{format_value(name)} is a duplicate", hint=_OWN_NAME
                    )
                elif not matches(DNS_LABEL, name, LONGEST_LABEL):
                    yield PodFinding(path=(holder, index, "name"), problem=f"is {format_value(name)}", hint=_LABEL_HINT)
                seen.add(name)


def _check_container(container: Mapping[str, Any], volumes: set[str]) -> Iterator[PodFinding]:
    image = container.get("image")
    if isinstance(image, str) and image and not matches(IMAGE, image, LONGEST_IMAGE):
        yield PodFinding(path=("image",), problem=f"{format_value(image)} is not an image", hint=_IMAGE_HINT)
    yield from _check_lengths(container)
    for name in ("command", "args"):
        words = container.get(name)
        for index, word in enumerate(words if isinstance(words, list) else ()):
            yield from _check_text((name, index), word)
    for index, variable in _items(container, "env"):
        own = variable.get("name")
        if isinstance(own, str) and not matches(VARIABLE, own, LONGEST_VARIABLE):
            yield PodFinding(path=("env", index, "name"), problem=f"is {format_value(own)}", hint=_VARIABLE_HINT)
        yield from _check_text(("env", index, "value"), variable.get("value"))
    yield from _check_ports(container)
    for index, mount in _items(container, "volumeMounts"):
        if isinstance(volume := mount.get("name"), str) and volume not in volumes:
            hint = "name one of the pod's volumes, or add it there"
            problem = f"there is no volume {format_value(volume)}"
            yield PodFinding(path=("volumeMounts", index, "name"), problem=problem, hint=hint)
    yield from _check_resources(("resources",), _mapping(container, "resources"))


def _check_lengths(holder: Mapping[str, Any]) -> Iterator[PodFinding]:
    for name, most in MOST.items():
        if isinstance(found := holder.get(name), list) and len(found) > most:
            yield PodFinding(path=(name,), problem=f"holds {len(found)} items", hint=f"at most {most}")


def _check_ports(container: Mapping[str, Any]) -> Iterator[PodFinding]:
    for index, port in _items(container, "ports"):
        for name in ("containerPort", "hostPort"):
            number = port.get(name)
            if isinstance(number, int) and not isinstance(number, bool) and not 1 <= number <= LARGEST_PORT:
                hint = f"a port is a number from 1 to {LARGEST_PORT}"
                yield PodFinding(path=("ports", index, name), problem=f"is {format_value(number)}", hint=hint)


def _check_resources(path: Path, resources: Mapping[str, Any]) -> Iterator[PodFinding]:
    requests, limits = _mapping(resources, "requests"), _mapping(resources, "limits")
    for kind, amounts in (("requests", requests), ("limits", limits)):
        for name, value in amounts.items():
            yield from _check_amount((*path, kind, name), name, value)
    for name, value in requests.items():
        request, limit = _number(value), _number(limits.get(name))
        where = (*path, "requests", name)
        if request is None:
            continue
        if limit is not None and request > limit:
            hint = "raise the limit or lower the request"
            yield PodFinding(
                path=where,
                problem=f"{format_value(value)} is more than the limit {format_value(limits[name])}",
                hint=hint,
            )
        elif not _may_be_overcommitted(name) and request != limit:
            problem = (
                "has no limit"
                if limit is None
                else f"is {format_value(value)}, and the limit {format_value(limits[name])}"
            )
            hint = f"write the same under limits, or {name} there alone: it cannot be overcommitted"
            yield PodFinding(path=where, problem=problem, hint=hint)


def _check_amount(path: Path, name: Any, value: Any) -> Iterator[PodFinding]:
    if not isinstance(name, str):
        return
    is_known = "/" in name or name in _OWN_RESOURCES or name.startswith(_HUGE_PAGES)
    if not matches(QUALIFIED_NAME, name, LONGEST_KEY) or not is_known:
        hint = "cpu, memory, ephemeral-storage, hugepages-SIZE, or a device by its full name, such as nvidia.com/gpu"
        yield PodFinding(path=path, problem=f"{format_value(name)} is not a resource", hint=hint)
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        return
    try:
        number = parse_quantity(value)
    except QuantityError as error:
        yield PodFinding(path=path, problem=str(error))
        return
    if number < 0:
        yield PodFinding(path=path, problem=f"{format_value(value)} is below zero", hint="0 or more")
    elif number > _LARGEST:
        yield PodFinding(path=path, problem=f"{format_value(value)} is out of range", hint="at most 2^63 - 1")
    elif "/" in name and number.denominator != 1:
        yield PodFinding(path=path, problem=f"{format_value(value)} is not an integer", hint="devices cannot be shared")


def _check_some_request(spec: Mapping[str, Any]) -> Iterator[PodFinding]:
    """Requests of zero: any number of such pods would fit on a node.  `checks` reports missing requests."""
    amounts_given: list[Any] = []
    for holder in (*(container for _, container in _items(spec, "containers")), spec):
        requests, limits = _mapping(holder, "resources", "requests"), _mapping(holder, "resources", "limits")
        amounts_given += [_number(requests.get(name, limits.get(name))) for name in ("cpu", "memory")]
    amounts = [amount for amount in amounts_given if amount is not None]
    if amounts and not any(amounts):
        hint = "the planner counts requests: set what the pod uses"
        yield PodFinding(path=("containers",), problem="request neither cpu nor memory", hint=hint)


def _check_labels(labels: Mapping[Any, Any], *, has_values: bool) -> Iterator[PodFinding]:
    for key, value in labels.items():
        if isinstance(key, str) and not matches(QUALIFIED_NAME, key, LONGEST_KEY):
            hint = "at most 63 letters, digits, -, _ and ., with an optional DNS prefix and /"
            yield PodFinding(
                path=(format_value(key, is_name=True),), problem=f"{format_value(key)} is not a label's name", hint=hint
            )
        elif has_values and isinstance(value, str) and not matches(LABEL_VALUE, value, LONGEST_LABEL):
            hint = "letters, digits, -, _ and ., at most 63, with a letter or digit at both ends"
            yield PodFinding(path=(str(key),), problem=f"{format_value(value)} is not a label's value", hint=hint)


def _check_text(path: Path, value: Any) -> Iterator[PodFinding]:
    if isinstance(value, str) and "\0" in value:
        yield PodFinding(path=path, problem="contains a NUL character, which a process cannot get")


def _may_be_overcommitted(name: Any) -> bool:
    return not isinstance(name, str) or ("/" not in name and not name.startswith(_HUGE_PAGES))


def _number(value: Any) -> Any:
    """The amount; None if `_check_amount` refuses it."""
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        return None
    try:
        return parse_quantity(value)
    except QuantityError:
        return None


def matches(pattern: str, text: str, longest: int) -> bool:
    """True if the text is no longer and matches; length comes first, since matching takes time with it."""
    return len(text) <= longest and re.fullmatch(pattern, text) is not None


def _mapping(value: Any, *path: str) -> Mapping[str, Any]:
    """The mapping at a path; empty where there is none."""
    for step in path:
        value = value.get(step) if isinstance(value, Mapping) else None
    return value if isinstance(value, Mapping) else {}


def _items(holder: Mapping[str, Any], name: str) -> Iterable[tuple[int, Mapping[str, Any]]]:
    """The mappings of a list, each with its place."""
    found = holder.get(name)
    listed = found if isinstance(found, list) else []
    return [(index, item) for index, item in enumerate(listed) if isinstance(item, Mapping)]
