"""Who may take room from whom.

A rank is (value, tier): a pod's own priority, then core and foreign pods before surplus.  Class names never count
(`kubernetes.md` 3).  With `reclaim: planner` surplus carries core's value on the cluster, whatever the job's class, so
that every pod at core's level or above ranks over all surplus.
"""

from __future__ import annotations

from autoscaler.domain import Pod, Policy, Reclaim, Tier

CORE_VALUE = 0  # of the built-in class `edl-core`: the cluster's default

Rank = tuple[int, int]

SURPLUS_RANK: Rank = (CORE_VALUE, 0)


def rank_of(pod: Pod, policy: Policy) -> Rank:
    """Return the rank at which a trainer beyond its job's minimum can be taken."""
    if policy.reclaim is Reclaim.PLANNER:
        return SURPLUS_RANK
    return (pod.priority, 0) if pod.tier is Tier.SURPLUS else full_rank(pod.priority)


def full_rank(priority: int) -> Rank:
    """Return the rank of a core or foreign pod of this priority."""
    return (priority, 1)
