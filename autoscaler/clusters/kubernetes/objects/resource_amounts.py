"""Resource lists (`{cpu: 500m, memory: 1Gi}`) as integers by name: millicores, bytes, pieces.

As in kube-scheduler, a value finer than its unit is rounded up.  A quantity beyond what Kubernetes can count reads as
the largest one, which fits nowhere.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from autoscaler.clusters.kubernetes.objects.fields import Raw
from autoscaler.domain import Resources
from autoscaler.quantities import QuantityError, parse_quantity

GPU: Final = "nvidia.com/gpu"
"""The domain's GPUs; every other device is an extended resource by its own name."""

LARGEST: Final = 2**63 - 1

AmountsByName = dict[str, int]


def amounts_of(listed: Raw) -> AmountsByName:
    """Return the amounts of a resource list, by Kubernetes' names."""
    return {name: amount_of(name, value) for name, value in listed.items() if isinstance(value, (str, int, float))}


@lru_cache(maxsize=16384)
def amount_of(name: str, value: str | float) -> int:
    """Return one amount, 0 to LARGEST."""
    try:
        number = parse_quantity(value)
    except QuantityError:
        return LARGEST
    return max(0, min(math.ceil(number * 1000 if name == "cpu" else number), LARGEST))


def add(total: AmountsByName, more: Mapping[str, int]) -> None:
    """Add to the total in place."""
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount


def raise_to(total: AmountsByName, least: Mapping[str, int]) -> None:
    """Raise the total in place to at least these amounts."""
    for name, amount in least.items():
        if amount > total.get(name, 0):
            total[name] = amount


def to_resources(amounts: Mapping[str, int]) -> Resources:
    """Return the amounts as the domain's `Resources`."""
    return Resources(
        cpu_milli=amounts.get("cpu", 0),
        memory_bytes=amounts.get("memory", 0),
        gpu_count=amounts.get(GPU, 0),
        extended=tuple((name, amount) for name, amount in amounts.items() if name not in {"cpu", "memory", GPU}),
    )
