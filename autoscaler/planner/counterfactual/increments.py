"""Increments of resources: whole cpus, GiB, GPUs; of large needs a sixteenth, rounded up to a power of two.

So a ladder has few rungs and round amounts: 16 more cpu, not 15,917m; 64Gi in steps of 4Gi.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from autoscaler.domain import Resources
from autoscaler.quantities import format_cpu, format_memory

RUNGS: Final = 32
RUNGS_NEEDED: Final = 16  # half of them, since other jobs may take what is added first

SMALLEST: Final[Mapping[str, int]] = {"cpu": 1000, "memory": 1 << 30}


def unit_for(resource: str, need: int) -> int:
    """Return the increment for a need of this size: at most `RUNGS_NEEDED` of them cover it."""
    unit = SMALLEST.get(resource, 1)
    while unit * RUNGS_NEEDED < need:
        unit *= 2
    return unit


def only(resource: str, amount: int) -> Resources:
    """Return an amount of one resource, named as `Resources.amounts` does."""
    match resource:
        case "cpu":
            return Resources(cpu_milli=amount)
        case "memory":
            return Resources(memory_bytes=amount)
        case "gpu":
            return Resources(gpu_count=amount)
        case _:
            return Resources(extended=((resource, amount),))


def format_increment(resource: str, amount: int) -> str:
    """Return text such as `16 cpu`, `64Gi memory`, `1 gpu`."""
    match resource:
        case "cpu":
            return f"{format_cpu(amount)} cpu"
        case "memory":
            return f"{format_memory(amount)} memory"
        case _:
            return f"{amount} {resource}"
