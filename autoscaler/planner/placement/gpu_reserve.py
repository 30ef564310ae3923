"""The cpu and memory that a node's free GPUs will need (`Policy.gpus_keep_room`).

A pod without GPUs that fills the cores of a GPU node leaves GPUs that nobody can use.  For every free GPU a node keeps
as much of everything else as the hungriest job that waits for such GPUs asks for with each of them.  Pods that take
GPUs themselves are never held back, and pods of others go where their scheduler sends them.  Surplus never takes that
room; a core pod takes it only where no other does, since a job that cannot start uses no GPU either.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np

from autoscaler.domain import NOTHING, JobState, Resources
from autoscaler.planner.working_copy.node_arrays import Mask
from autoscaler.planner.working_copy.shapes import BUILT_IN
from autoscaler.planner.working_copy.working_copy import Draft

CPU: Final = BUILT_IN.index("cpu")
MEMORY: Final = BUILT_IN.index("memory")


def is_device(resource: str) -> bool:
    """Whether an extended resource is counted in pieces of hardware: GPUs, by whatever vendor's name."""
    return resource == "gpu" or ("/" in resource and not resource.startswith("hugepages"))


def devices_of(requests: Resources) -> dict[str, int]:
    """Return how many of which devices are asked for."""
    return {name: amount for name, amount in requests.amounts() if amount > 0 and is_device(name)}


def needs_per_device(shapes: Iterable[Resources]) -> Mapping[str, Resources]:
    """Return, by device, the most cpu and memory that any of these requests brings for each piece."""
    needs: dict[str, Resources] = {}
    for requests in shapes:
        for device, pieces in devices_of(requests).items():
            known = needs.get(device, NOTHING)
            needs[device] = Resources(
                cpu_milli=max(known.cpu_milli, -(-requests.cpu_milli // pieces)),
                memory_bytes=max(known.memory_bytes, -(-requests.memory_bytes // pieces)),
            )
    return needs


def would_spoil(requests: Resources, room: Resources, needs: Mapping[str, Resources]) -> bool:
    """Return whether surplus that takes this much of an empty room leaves less than its free devices need."""
    if devices_of(requests):
        return False
    left = room - requests
    return any(
        (requests.cpu_milli > 0 and left.cpu_milli < pieces * need.cpu_milli)
        or (requests.memory_bytes > 0 and left.memory_bytes < pieces * need.memory_bytes)
        for device, need in needs.items()
        if (pieces := room.amount(device)) > 0
    )


def spoiled_rooms(draft: Draft, shape: int) -> Mask | None:
    """Return the nodes where a pod of this shape would take what free GPUs need; None if it may go anywhere."""
    if not draft.policy.gpus_keep_room or devices_of(draft.shapes.shapes[shape].requests):
        return None
    rooms, spoiled = draft.rooms, np.zeros(len(draft.rooms), dtype=np.bool_)
    cpu_milli, memory_bytes = draft.shapes.amounts[shape][:2]
    for column, cpu_each, memory_each in device_needs(draft):
        pieces = np.maximum(rooms.later[column], 0)
        if cpu_milli:
            spoiled |= ((pieces > 0) & (rooms.later[CPU] - cpu_milli < pieces * cpu_each)).astype(np.bool_)
        if memory_bytes:
            spoiled |= ((pieces > 0) & (rooms.later[MEMORY] - memory_bytes < pieces * memory_each)).astype(np.bool_)
    return spoiled


def device_needs(draft: Draft) -> tuple[tuple[int, int, int], ...]:
    """Return (column, cpu, memory) for each device that jobs ask for: what each free piece of it will need."""
    if draft.device_needs is None:
        active = (job.job for job in draft.jobs.values() if job.job.state is JobState.ACTIVE)
        needs = needs_per_device(job.trainer.shape.requests for job in active)
        columns = draft.shapes.columns
        draft.device_needs = tuple(
            (columns.index(device), need.cpu_milli, need.memory_bytes)
            for device, need in sorted(needs.items())
            if device in columns
        )
    return draft.device_needs
