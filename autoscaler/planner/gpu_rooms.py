"""The cpu and memory that a node's free GPUs will need (`Policy.gpus_keep_room`).

A pod without GPUs that fills the cores of a GPU node leaves GPUs that nobody can use.  For every free GPU a node keeps
as much of everything else as the hungriest job that waits for such GPUs asks for with each of them.  Pods that take
GPUs themselves are never held back, and pods of others go where their scheduler sends them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from autoscaler.domain import NOTHING, Resources


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


def kept_for_devices(free: Resources, needs: Mapping[str, Resources]) -> Resources:
    """Return what pods without devices leave free on a node with so much free: the hungriest device counts."""
    kept = NOTHING
    for device, need in needs.items():
        pieces = max(0, free.amount(device))
        kept = Resources(
            cpu_milli=max(kept.cpu_milli, need.cpu_milli * pieces),
            memory_bytes=max(kept.memory_bytes, need.memory_bytes * pieces),
        )
    return kept
