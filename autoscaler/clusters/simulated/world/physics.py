"""Durations and rates of the simulated cluster: every number with its unit, its default and its source.

A `DurationRange` is drawn once per pod, from the cluster's seed.  The model of training is
`controllers.training_model`, that of the scheduler `scheduling.scheduler_profile`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from math import isfinite
from typing import Final

from autoscaler.errors import InvalidSpecError


@dataclass(frozen=True, slots=True, kw_only=True)
class DurationRange:
    """A duration between two bounds, uniformly."""

    low_s: float
    high_s: float

    def __post_init__(self) -> None:
        if not (0 <= self.low_s <= self.high_s and isfinite(self.high_s)):
            raise InvalidSpecError("physics", f"a duration from {self.low_s} s to {self.high_s} s", "0 <= low <= high")

    def at(self, chance: float) -> float:
        """The duration for a chance in [0, 1)."""
        return self.low_s + (self.high_s - self.low_s) * chance


def fixed_duration(seconds: float) -> DurationRange:
    """A duration that never varies."""
    return DurationRange(low_s=seconds, high_s=seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Physics:
    """Durations in seconds, rates per second.

    Raises:
        InvalidSpecError: one is negative or no number.
    """

    scheduling_s: float = 0.02
    """One decision of the scheduler with its binding, one pod after the other.  On kube-scheduler 1.36 a pod was
    bound 0.02 to 0.03 s after its creation; its default of 50 API requests/s implies the same, and with it simulated
    web rises are nearest to measured ones (tests/unit/clusters/simulated/test_against_kwok.py)."""

    start: DurationRange = DurationRange(low_s=1.0, high_s=3.0)
    """Time from binding to Ready, with images on the node.  2017: 100 pods ran 5.5 s (4 to 9) after they were
    requested, of which 3.5 s are `create_rate_per_s`."""

    warm_up: DurationRange = DurationRange(low_s=0.0, high_s=0.0)
    """Time from Ready until a trainer trains: imports, registration, first pull of the parameters."""

    drain: DurationRange = DurationRange(low_s=2.0, high_s=2.0)
    """Time of a job's pod from SIGTERM to its end, if its grace period allows it: the rest of a batch and the
    hand-over (M7)."""

    web_drain: DurationRange = DurationRange(low_s=0.1, high_s=0.5)
    """Time of an external pod from SIGTERM to its end: Nginx closes at once on SIGTERM."""

    removal_s: float = 0.1
    """Time from the end of a process until its pod's capacity is free: kubelet's status update and deletion (0.09 to
    0.14 s for one write by the scheduler, seen)."""

    create_rate_per_s: float = 20.0
    """Creations and deletions of one controller: kube-controller-manager's --kube-api-qps."""

    create_burst: int = 30
    """And its --kube-api-burst."""

    spreads_scale_down: bool = True
    """A ReplicaSet that shrinks takes pods from where it has many, and ages by powers of two.  False: 1.6, which took
    the youngest (pkg/controller/controller_utils.go: ActivePodsWithRanks, ActivePods)."""

    loss_detection_s: float = 50.0
    """Time from a node's failure until it is NotReady: --node-monitor-grace-period, 40 s before Kubernetes 1.32."""

    eviction_s: float = 300.0
    """Time from NotReady until its pods are evicted: tolerationSeconds of the default not-ready toleration."""

    hpa_sync_s: float = 15.0
    """--horizontal-pod-autoscaler-sync-period; a rise at most doubles, or adds four pods, per period."""

    hpa_tolerance: float = 0.1
    """No change while load per replica is this near its goal."""

    hpa_stabilization_s: float = 300.0
    """Delay of a fall: --horizontal-pod-autoscaler-downscale-stabilization."""

    server_bytes_per_s: float = 2.0**30
    """State to or from a parameter server that comes or leaves, in the background: a link of 10 Gbit/s, with a sixth to
    spare.  All memory that a server requests is taken to be state, and each server has a link of its own."""

    server_freeze_s: float = 0.5
    """Pause of training while routes change: a short freeze per bucket (ADR 0315)."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not isinstance(value, DurationRange) and not (isfinite(value) and value >= 0):
                raise InvalidSpecError(f"physics.{field.name}", f"is {value}", "a number of at least 0")
        if not self.server_bytes_per_s:
            raise InvalidSpecError("physics.server_bytes_per_s", "is 0", "above 0")
        if not self.create_rate_per_s or not self.create_burst:
            raise InvalidSpecError("physics.create_rate_per_s", "is 0, or create_burst is", "rate and burst above 0")
        if not self.scheduling_s or not self.hpa_sync_s:
            raise InvalidSpecError("physics.scheduling_s", "is 0, or hpa_sync_s is", "above 0, hpa_sync_s too")


PHYSICS_2017: Final = Physics(
    start=DurationRange(low_s=0.5, high_s=2.2),
    loss_detection_s=40.0,
    spreads_scale_down=False,
)
"""Kubernetes 1.6.2 with the timings that PaddlePaddle's logs of 2017 show (README of its doc/edl/experiment)."""
