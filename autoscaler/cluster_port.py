"""The one door between the loop and a cluster, whichever it is.

An adapter reads (`observe`), writes (`apply`) and wakes the loop (`changed`).  It decides nothing: sizes and nodes are
the planner's.  It does guard two things that only it can know at the instant of writing: that the room is still free,
and that the pod is still the one that was meant; otherwise it refuses and changes nothing.

The contract suite is `tests/unit/clusters/cluster_contract.py`; every adapter passes it.
`autoscaler.loop` is the caller.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from autoscaler.domain import Action, ClusterView


class WriteResult(StrEnum):
    """How a write ended."""

    DONE = "done"  # it holds now, also when it held already: a write repeated changes nothing
    REFUSED = "refused"  # nothing has changed: the room is taken, the pod, job or node is not what it was
    FAILED = "failed"  # the cluster could not do it; plan again


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOutcome:
    """What became of one action.  `message` says why, for people."""

    result: WriteResult
    message: str = ""


class Cluster(Protocol):
    """A place where pods run."""

    def now(self) -> float:
        """Seconds on the cluster's clock: monotonic, the one that every `*_at_s` of its views is told in."""
        ...

    async def observe(self) -> ClusterView:
        """Return the cluster as it is known now.  It contains the effect of every write that has returned DONE.

        `history` is left empty: the loop puts its own in.
        """
        ...

    async def apply(self, action: Action) -> WriteOutcome:
        """Carry out one action, whole or not at all.

        CreatePod: the pod stands on its node and occupies room there.  AdmitGang: all pods, or none.  DeletePod: the
        pod is told to leave and stays in views as TERMINATING until it is gone.  Returns at once, without waiting for
        the pod.  Calls overlap: the loop has up to 16 deletions, starts or creations under way; their room is guarded
        as if one had come after the other.
        """
        ...

    async def changed(self, timeout_s: float) -> bool:
        """Wait until something a plan could depend on has changed since the last call; False after `timeout_s` without.

        Changes that came between two calls are not lost: the next call returns at once.
        """
        ...
