"""The port between the loop and a cluster: what every adapter below `autoscaler.clusters` implements.

An adapter reads (`observe`), writes (`apply`) and wakes the loop (`changed`).  The planner decides sizes and nodes.
The adapter checks two things that only it knows at the instant of writing: that the capacity is still free, and that
the pod is still the one that was meant.  Otherwise it refuses and changes nothing.

The contract suite is `tests/unit/clusters/cluster_contract.py`.  `autoscaler.loop` is the caller.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from autoscaler.domain import Action, ClusterView


class WriteResult(StrEnum):
    """Outcome of an action's write: whether it was carried out."""

    DONE = "done"  # the action holds now, also if it held before: a repeated write changes nothing
    REFUSED = "refused"  # nothing has changed: the capacity is taken, or the pod, job or node is not what it was
    FAILED = "failed"  # the cluster could not do it; plan again


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOutcome:
    """The result of one action, and its reason for people (`message`)."""

    result: WriteResult
    message: str = ""


class Cluster(Protocol):
    """A cluster that runs pods."""

    def now(self) -> float:
        """Seconds on the cluster's monotonic clock, which every `*_at_s` of its views uses."""
        ...

    async def observe(self) -> ClusterView:
        """Return the newest view of the cluster, with the effect of every write that has returned DONE.

        Its `history` is empty; the loop fills in its own.
        """
        ...

    async def apply(self, action: Action) -> WriteOutcome:
        """Carry out one action, whole or not at all; return without waiting for the pod.

        CreatePod: the pod occupies capacity on its node.  AdmitGang: all pods do, or none.  DeletePod: the pod
        terminates and stays in views as TERMINATING until it is gone.  Calls overlap (the loop has up to 16 writes in
        flight), and their capacity is checked as if one had come after the other.
        """
        ...

    async def changed(self, timeout_s: float) -> bool:
        """Wait until something has changed that a plan depends on; False after `timeout_s` without a change.

        A change between two calls is not lost: the next call returns at once.
        """
        ...
