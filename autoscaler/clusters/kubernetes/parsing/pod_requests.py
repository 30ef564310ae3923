"""Pod requests: what a pod occupies on its node (`beside-the-scheduler.md` 12).

As in kube-scheduler: init containers run one after another before the containers; sidecars (restartable init
containers) run beside everything that starts after them; the pod's own request replaces those of its containers; a
container that is being resized counts with the larger of desired and allocated; the overhead is added, and the pod is
one of those that the node may run.

The API server's defaults apply here too (a limit without a request is the request), so that a template requests the
same as the pod created from it.  `limit_ranges` applies defaults of LimitRanges; only the pod itself shows the
overhead of a RuntimeClass.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from autoscaler.clusters.kubernetes.objects.fields import EMPTY, Raw, condition_of, part, parts, text
from autoscaler.clusters.kubernetes.objects.resource_amounts import (
    AmountsByName,
    add,
    amounts_of,
    raise_to,
    to_resources,
)
from autoscaler.domain import Resources

PODS: Final = "pods"
"""The node's pod limit, as a resource that every pod requests once."""


def pod_request(spec: Raw, status: Raw = EMPTY) -> Resources:
    """Return what a pod of this spec requests.  `status`: for in-place resizes; empty for a pod that does not exist
    yet.
    """
    total = of_containers(spec, status)
    _put_pod_level(total, spec, status)
    add(total, amounts_of(part(spec, "overhead")))
    total[PODS] = 1
    return to_resources(total)


def of_containers(spec: Raw, status: Raw = EMPTY) -> AmountsByName:
    """Return the larger of what the containers request together and the peak of the start."""
    statuses = {
        text(found, "name"): found
        for found in (*parts(status, "containerStatuses"), *parts(status, "initContainerStatuses"))
    }
    is_infeasible = _is_infeasible(status)
    total: AmountsByName = {}
    for container in parts(spec, "containers"):
        add(total, _of_container(container, statuses, is_infeasible=is_infeasible))
    peak: AmountsByName = {}
    sidecars: AmountsByName = {}
    for container in parts(spec, "initContainers"):
        if container.get("restartPolicy") == "Always":
            own_requests = _of_container(container, statuses, is_infeasible=is_infeasible)
            add(total, own_requests)
            add(sidecars, own_requests)
            raise_to(peak, sidecars)
        else:
            moment = dict(sidecars)
            add(moment, _wanted(container))
            raise_to(peak, moment)
    raise_to(total, peak)
    return total


def _of_container(container: Raw, statuses: Mapping[str, Raw], *, is_infeasible: bool) -> AmountsByName:
    """Return what one container occupies: the most of desired, in force and allocated; an infeasible resize does not
    count.
    """
    own_requests = _wanted(container)
    found = statuses.get(text(container, "name"), EMPTY)
    in_force, allocated = part(found, "resources", "requests"), part(found, "allocatedResources")
    if not in_force and not allocated:
        return own_requests
    if is_infeasible:
        own_requests = {}
    raise_to(own_requests, amounts_of(in_force))
    raise_to(own_requests, amounts_of(allocated))
    return own_requests


def _wanted(container: Raw) -> AmountsByName:
    return amounts_of({**part(container, "resources", "limits"), **part(container, "resources", "requests")})


def _put_pod_level(total: AmountsByName, spec: Raw, status: Raw) -> None:
    """Replace the containers' requests by the pod's own; a pod limit counts where no container requests."""
    requests, limits = part(spec, "resources", "requests"), part(spec, "resources", "limits")
    if not requests and not limits:
        return
    wanted = {name: amount for name, amount in amounts_of(requests).items() if _is_pod_level(name)}
    for name, amount in amounts_of(limits).items():
        is_open = name not in total or name.startswith("hugepages-")  # huge pages cannot be overcommitted
        if _is_pod_level(name) and name not in wanted and is_open:
            wanted[name] = amount
    in_force, allocated = part(status, "resources", "requests"), part(status, "allocatedResources")
    if in_force or allocated:
        held = amounts_of(in_force)
        raise_to(held, amounts_of(allocated))
        overhead = amounts_of(part(spec, "overhead"))
        for name, amount in wanted.items():
            least = max(0, held.get(name, 0) - overhead.get(name, 0))
            wanted[name] = least if _is_infeasible(status) and name in held else max(amount, least)
    total.update(wanted)


def _is_pod_level(name: str) -> bool:
    return name in {"cpu", "memory"} or name.startswith("hugepages-")


def _is_infeasible(status: Raw) -> bool:
    """True if the kubelet has refused the desired resize."""
    return condition_of({"status": status}, "PodResizePending").get("reason") == "Infeasible"
