"""Seven kinds of GPU, and one more: what each answers to each call.  Sources: nvml.h, and ADR 0280.

A kind's calls answer 0 unless its row says otherwise.  A MIG instance answers for itself; energy is the whole GPU's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

NOT_SUPPORTED: Final = 3

PRE_HOPPER: Final = {"nvmlGpmQueryDeviceSupport": NOT_SUPPORTED}
NO_MIG: Final = {"nvmlDeviceGetMigMode": NOT_SUPPORTED}
OF_INSTANCE: Final = {
    "nvmlDeviceGetUtilizationRates": NOT_SUPPORTED,
    "nvmlDeviceGetProcessUtilization": NOT_SUPPORTED,
}


@dataclass(frozen=True)
class GpuKind:
    name: str
    refused: Mapping[str, int]  # call -> code
    bare_watts: float  # nobody has it
    context_watts: float  # a context without work
    busy_watts: float
    is_mig: bool = False
    is_shared: bool = False


KINDS: Final[Mapping[str, GpuKind]] = {
    "T4": GpuKind("Tesla_T4", {**PRE_HOPPER, **NO_MIG}, 10, 30, 65),
    "A100": GpuKind("NVIDIA_A100-SXM4-80GB", PRE_HOPPER, 55, 85, 310),
    "H100": GpuKind("NVIDIA_H100_80GB_HBM3", {}, 70, 120, 550),
    "H200": GpuKind("NVIDIA_H200", {}, 78, 125, 560),
    "B200": GpuKind("NVIDIA_B200", {}, 140, 190, 800),
    "MIG of A100": GpuKind("NVIDIA_A100-SXM4-40GB", {**PRE_HOPPER, **OF_INSTANCE}, 50, 80, 200, is_mig=True),
    "MIG of H100": GpuKind("NVIDIA_H100_80GB_HBM3", OF_INSTANCE, 70, 120, 300, is_mig=True),
    "time-sliced": GpuKind("Tesla_T4", {**PRE_HOPPER, **NO_MIG}, 10, 30, 65, is_shared=True),
}
