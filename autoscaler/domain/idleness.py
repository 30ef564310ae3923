"""GPUs that nobody uses: what the planner knows of pods that hold one and do not compute.

A verdict says since when a pod has not computed.  Whoever makes it (`autoscaler.jobs.trainer_ledger` for EDL's own
trainers, the agents' reports for all others) says nothing where data is missing, stale or contradicts itself: the
planner has no case for doubt.
"""

from __future__ import annotations

from dataclasses import dataclass

from autoscaler.domain.cluster import PodName


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleTrainer:
    """A trainer that has completed no batch for its job's window; times on the cluster's clock.

    `is_hung`: it should work, and its device is seen not to compute: another process takes its place at once.
    """

    pod: PodName
    since_s: float  # its last batch
    is_hung: bool = False
