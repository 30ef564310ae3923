"""Scheduler profile: today's kube-scheduler with its default plugins, or that of Kubernetes 1.6, as data.

Weights are those of the sources named below.  `node_scoring` computes with them, `scheduling_queue` backs off with
them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Spreading(StrEnum):
    """Spreading rule for pods of one owner; it only scores nodes."""

    TOPOLOGY = "PodTopologySpread"  # the system's default constraint: hostname, maxSkew 3, ScheduleAnyway
    SELECTOR = "SelectorSpread"  # best where the fewest pods of the owner run


class TieBreaking(StrEnum):
    """Choice among several best nodes."""

    BY_CHANCE = "by chance"
    IN_TURN = "in turn"  # round robin, last name first


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerProfile:
    """One scheduler.  Scores are whole numbers from 0 to `best_score`, then weighted and summed."""

    name: str
    best_score: int
    least_allocated_weight: int
    balanced_weight: int
    spreading: Spreading
    spreading_weight: int
    ties: TieBreaking
    samples_nodes: bool
    """On more than 100 nodes only a sample is scored, from where the last search ended."""
    has_priorities: bool
    """The queue is ordered by priority, and pods may preempt.  False: first come, first served, and no preemption."""
    backoff_first_s: float
    backoff_limit_s: float
    waits_for_events: bool
    """An unschedulable pod is retried when a change could help it.  False: as soon as its back-off is over."""
    pops_backoff: bool
    """While nothing else can be tried, pods are tried before their back-off is over."""
    flush_s: float
    """Back-offs end at multiples of this; 0: at their instant."""
    unschedulable_limit_s: float
    """Retried after this long in any case."""


KUBE_SCHEDULER: Final = SchedulerProfile(
    name="kube-scheduler 1.34",
    best_score=100,
    least_allocated_weight=1,
    balanced_weight=1,
    spreading=Spreading.TOPOLOGY,
    spreading_weight=2,
    ties=TieBreaking.BY_CHANCE,
    samples_nodes=True,
    has_priorities=True,
    backoff_first_s=1.0,
    backoff_limit_s=10.0,
    waits_for_events=True,
    pops_backoff=True,
    flush_s=1.0,
    unschedulable_limit_s=300.0,
)
"""Source: pkg/scheduler/apis/config/v1/default_plugins.go (weights), schedule_one.go (sampling, ties),
backend/queue/scheduling_queue.go (back-off, flush of 1 s, 5 min), KEP 5142 (`pops_backoff`, on since 1.33)."""

KUBE_SCHEDULER_1_6: Final = SchedulerProfile(
    name="kube-scheduler 1.6",
    best_score=10,
    least_allocated_weight=1,
    balanced_weight=1,
    spreading=Spreading.SELECTOR,
    spreading_weight=1,
    ties=TieBreaking.IN_TURN,
    samples_nodes=False,
    has_priorities=False,
    backoff_first_s=1.0,
    backoff_limit_s=60.0,
    waits_for_events=False,
    pops_backoff=False,
    flush_s=0.0,
    unschedulable_limit_s=300.0,
)
"""Source: plugin/pkg/scheduler/algorithmprovider/defaults (LeastRequested, BalancedResourceAllocation, SelectorSpread,
each of weight 1), core/generic_scheduler.go (round robin among the best), util/backoff_utils.go (1 s to 60 s)."""
