"""GPUs that nobody uses: what the planner knows of pods that hold one and do not compute.

A verdict says since when a pod has not computed.  Whoever makes it (`autoscaler.jobs.trainer_ledger` for EDL's own
trainers, the agents' reports for all others) says nothing where data is missing, stale or contradicts itself: the
planner has no case for doubt.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from math import inf
from typing import Final

from autoscaler.domain.cluster import JobName, NodeName, PodName


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleTrainer:
    """A trainer that has completed no batch for its job's window; times on the cluster's clock.

    `is_hung`: it should work, and its device is seen not to compute: another process takes its place at once.
    """

    pod: PodName
    since_s: float  # its last batch
    is_hung: bool = False


class ReclaimMode(StrEnum):
    """Treatment of GPUs that pods of others hold and do not use, where their owner agreed to it."""

    OFF = "off"  # nothing, and nobody is told
    OBSERVE = "observe"  # it is told what would be given back, for whom, and how many GPU-hours that were
    ACT = "act"  # they are given back after a notice


SHORTEST_NOTICE_S: Final = 60.0
"""Time that the owner of a pod has at least, to read its event and to keep it, where GPUs are given back."""

SHORTEST_RECLAIM_S: Final = 60.0
LONGEST_RECLAIM_S: Final = 30 * 86_400.0


class StayReason(StrEnum):
    """Why an idle pod stays although its owner agreed."""

    MINIMUM = "minimum"  # its Deployment or StatefulSet has no more replicas than it keeps
    ORDINAL = "ordinal"  # one above it in its StatefulSet stays
    PAUSED = "paused"  # it was refused a while ago


@dataclass(frozen=True, slots=True, kw_only=True)
class IdlePod:
    """A pod of others whose GPUs nobody has used since `since_s`, by its node's agent; times on the cluster's clock.

    `after_s`: its owner agreed that they are given back once unused for so long; None: did not agree.
    `stays`: it agreed, `after_s` is None nevertheless, and this is why.
    `kept_until_s`: an instant before which somebody asked to leave it alone; None: nobody did.
    `goes_after`: the idle pod without whose leaving this one cannot leave; None: there is none.
    """

    pod: PodName
    since_s: float
    after_s: float | None = None
    kept_until_s: float | None = None
    goes_after: PodName | None = None
    stays: StayReason | None = None

    def is_due(self, now_s: float) -> bool:
        """True if its owner agreed, the time that was agreed on has passed, and nobody keeps it."""
        return self.due_at_s <= now_s

    @property
    def due_at_s(self) -> float:
        """The instant from which it may be given back; infinity: never, as NaN and nonsense are."""
        if self.after_s is None or not SHORTEST_RECLAIM_S <= self.after_s <= LONGEST_RECLAIM_S:
            return inf
        agreed_s = self.since_s + self.after_s
        return agreed_s if self.kept_until_s is None else max(agreed_s, self.kept_until_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleReclaim:
    """A decision: this pod's GPUs are given back, together with those of the other decisions for `beneficiary`.

    What is done about it is the policy's (`ReclaimMode`); nothing of the plan's actions rests on it.
    """

    pod: PodName
    node: NodeName
    gpu_count: int
    since_s: float
    beneficiary: PodName | JobName
