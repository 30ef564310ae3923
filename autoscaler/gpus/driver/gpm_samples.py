"""GPM of one device: utilisation between two samples, which only Hopper and later devices have.

GPM is a subsystem of its own beside the driver's utilisation counters, and the only one that tells a MIG instance's.
The figure is the largest of three, since each misses some work: a kernel of one block occupies under one percent
of the multiprocessors, and copies occupy none.
"""

from __future__ import annotations

import math
from typing import Any, Final

import pynvml

from autoscaler.gpus.driver.nvml_calls import ask
from autoscaler.gpus.readings import Absence

_METRICS: Final = (
    pynvml.NVML_GPM_METRIC_GRAPHICS_UTIL,
    pynvml.NVML_GPM_METRIC_SM_UTIL,
    pynvml.NVML_GPM_METRIC_DRAM_BW_UTIL,
)


class GpmSamples:
    """The sample before, and the place for the next one.  `close` frees both."""

    def __init__(self) -> None:
        self._is_supported: bool | None = None
        self._samples: list[Any] = []
        self._is_first = True

    def read(self, whole: Any, gpu_instance: int | None) -> float | Absence:
        """Percent since the call before; for the MIG instance of the GPU if one is given.

        Raises DeviceLostError and DriverGoneError.
        """
        if self._is_supported is None:
            support = ask(pynvml.nvmlGpmQueryDeviceSupport, whole)
            if isinstance(support, Absence) and support is not Absence.NOT_SUPPORTED:
                return support
            self._is_supported = not isinstance(support, Absence) and bool(support.isSupportedDevice)
        if not self._is_supported:
            return Absence.NOT_SUPPORTED
        if (problem := self._take(whole, gpu_instance)) is not None:
            return problem
        before, newest = self._samples
        self._samples = [newest, before]
        if self._is_first:
            self._is_first = False
            return Absence.NOT_YET
        return _largest(before, newest)

    def _take(self, whole: Any, gpu_instance: int | None) -> Absence | None:
        """Take a sample into the second place."""
        while len(self._samples) < 2:
            sample = ask(pynvml.nvmlGpmSampleAlloc)
            if isinstance(sample, Absence):
                return sample
            self._samples.append(sample)
        if gpu_instance is None:
            taken = ask(pynvml.nvmlGpmSampleGet, whole, self._samples[1])
        else:
            taken = ask(pynvml.nvmlGpmMigSampleGet, whole, gpu_instance, self._samples[1])
        if isinstance(taken, Absence):
            self._is_first = True  # what the place holds now belongs to no interval
            return taken
        return None

    def close(self) -> None:
        """Free the samples.  A driver that has gone has freed them itself."""
        for sample in self._samples:
            ask(pynvml.nvmlGpmSampleFree, sample)
        self._samples = []


def _largest(before: Any, newest: Any) -> float | Absence:
    query = pynvml.c_nvmlGpmMetricsGet_t()
    query.version = pynvml.NVML_GPM_METRICS_GET_VERSION
    query.numMetrics = len(_METRICS)
    query.sample1, query.sample2 = before, newest
    for place, metric in enumerate(_METRICS):
        query.metrics[place].metricId = metric
    answered = ask(pynvml.nvmlGpmMetricsGet, query)
    if isinstance(answered, Absence):
        return answered
    figures = [query.metrics[place] for place in range(len(_METRICS))]
    if any(figure.nvmlReturn for figure in figures):
        return Absence.FAILED
    values = [float(figure.value) for figure in figures]
    if not all(math.isfinite(value) and 0.0 <= value <= 100.5 for value in values):
        return Absence.ABSURD
    return max(values)
