"""Who may take room from whom.

A rank is (value, tier): a pod's own priority, then core and foreign pods before surplus.  Class names never count
(`kubernetes.md` 3).  With `reclaim: planner` surplus carries core's value on the cluster, whatever the job's class, so
that every pod at core's level or above ranks over all surplus.
"""

from __future__ import annotations

from autoscaler.domain import Pod, Policy, Reclaim, Tier

CORE_VALUE = 0  # of the built-in class `edl-core`: the cluster's default

Rank = tuple[int, int]


def rank_of(pod: Pod, policy: Policy) -> Rank:
    """Return the rank of a pod that exists."""
    if pod.tier is not Tier.SURPLUS:
        return full_rank(pod.priority)
    return (CORE_VALUE if policy.reclaim is Reclaim.PLANNER else pod.priority, 0)


def full_rank(priority: int) -> Rank:
    """Return the rank of a core or foreign pod of this priority."""
    return (priority, 1)
