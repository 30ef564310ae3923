"""Device reserve: the cpu and memory that a node's free devices will need (`Policy.has_device_reserve`).

A pod without devices that fills the cores of a GPU node makes its free GPUs unusable. So each node keeps, for every
free device, as much cpu and memory as the most demanding active job requests with each of them. Pods that take
devices themselves are never held back, and external pods go where their scheduler sends them. Surplus never takes the
reserve; a core pod takes it only if no other node fits, since a job that cannot start uses no device either.

A node that offers more pieces of a device than it has cores shares the device (an RDMA card is often offered a thousand
times). Its pieces are not scarce, so nothing is kept for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from autoscaler.domain import NOTHING, JobState, Resources
from autoscaler.planner.working_copy.node_arrays import Mask
from autoscaler.planner.working_copy.shapes import BUILT_IN
from autoscaler.planner.working_copy.working_copy import WorkingCopy

CPU: Final = BUILT_IN.index("cpu")
MEMORY: Final = BUILT_IN.index("memory")


def counts_as_device(resource: str) -> bool:
    """True if a resource is counted in pieces of hardware: `gpu`, and every extended resource (its name has a `/`).

    So an RDMA card counts as well as a GPU of any vendor; hugepages, which are memory, do not.
    """
    return resource == "gpu" or ("/" in resource and not resource.startswith("hugepages"))


def devices_of(requests: Resources) -> dict[str, int]:
    """Return the number of requested pieces, by device."""
    return {name: amount for name, amount in requests.amounts() if amount > 0 and counts_as_device(name)}


def needs_per_device(shapes: Iterable[Resources]) -> Mapping[str, Resources]:
    """Return, by device, the most cpu and memory that any of these requests has for each piece."""
    needs: dict[str, Resources] = {}
    for requests in shapes:
        for device, pieces in devices_of(requests).items():
            known = needs.get(device, NOTHING)
            needs[device] = Resources(
                cpu_milli=max(known.cpu_milli, -(-requests.cpu_milli // pieces)),
                memory_bytes=max(known.memory_bytes, -(-requests.memory_bytes // pieces)),
            )
    return needs


def is_shared(pieces: int, cpu_milli: int) -> bool:
    """True if a node offers more pieces of a device than it has cores."""
    return 1000 * pieces > cpu_milli


def would_block_devices(requests: Resources, allocatable: Resources, needs: Mapping[str, Resources]) -> bool:
    """True if surplus that takes this much of an empty node leaves less than the node's devices will need."""
    if devices_of(requests):
        return False
    left = allocatable - requests
    return any(
        (requests.cpu_milli > 0 and left.cpu_milli < pieces * need.cpu_milli)
        or (requests.memory_bytes > 0 and left.memory_bytes < pieces * need.memory_bytes)
        for device, need in needs.items()
        if (pieces := allocatable.amount(device)) > 0 and not is_shared(pieces, allocatable.cpu_milli)
    )


def nodes_with_blocked_devices(copy: WorkingCopy, shape: int) -> Mask | None:
    """Return the nodes where a pod of this shape would take what free devices need; None if it may go anywhere."""
    if not is_held_back_by_devices(copy, shape):
        return None
    capacity, blocked = copy.capacity, np.zeros(len(copy.capacity), dtype=np.bool_)
    cpu_milli, memory_bytes = copy.shapes.amounts[shape][:2]
    for column, cpu_each, memory_each in device_needs(copy).rows:
        is_kept = 1000 * capacity.allocatable[column] <= capacity.allocatable[CPU]  # not `is_shared`
        pieces = np.where(is_kept, np.maximum(capacity.later[column], 0), 0)
        if cpu_milli:
            blocked |= ((pieces > 0) & (capacity.later[CPU] - cpu_milli < pieces * cpu_each)).astype(np.bool_)
        if memory_bytes:
            blocked |= ((pieces > 0) & (capacity.later[MEMORY] - memory_bytes < pieces * memory_each)).astype(np.bool_)
    return blocked


def is_held_back_by_devices(copy: WorkingCopy, shape: int) -> bool:
    """True if there are devices whose reserve a pod of this shape would take."""
    has_devices = bool(devices_of(copy.shapes.shapes[shape].requests))
    return copy.policy.has_device_reserve and not has_devices and bool(device_needs(copy).rows)


@dataclass(frozen=True, slots=True)
class DeviceNeeds:
    """(column, cpu, memory) for each device that jobs request: the need of each free piece."""

    rows: tuple[tuple[int, int, int], ...]


def device_needs(copy: WorkingCopy) -> DeviceNeeds:
    """Return the needs of the active jobs' devices, computed once a plan."""

    def compute() -> DeviceNeeds:
        active = (job.spec for job in copy.jobs.values() if job.spec.state is JobState.ACTIVE)
        needs = needs_per_device(job.trainer.shape.requests for job in active)
        columns = copy.shapes.columns
        found = ((device, need) for device, need in sorted(needs.items()) if device in columns)
        return DeviceNeeds(tuple((columns.index(device), need.cpu_milli, need.memory_bytes) for device, need in found))

    return copy.cache.get(DeviceNeeds, compute)
