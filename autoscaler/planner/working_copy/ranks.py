"""Ranks: which pods may take capacity from which, and in which order a job's trainers leave (`removal_order`).

A rank is (value, tier): a pod's own priority, then core and external pods before surplus.  Class names never count,
since the value is all that kube-scheduler compares (`beside-the-scheduler.md` 3).  With `reclaim: planner` surplus
carries core's value on the cluster, whatever the job's class, so every pod at core's level or above outranks it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from operator import attrgetter
from typing import Final

import numpy as np

from autoscaler.domain import NO_BENEFICIARY, Beneficiary, Cause, Pod, PodName, Policy, Reclaim, Tier
from autoscaler.planner.working_copy.offers import Offers
from autoscaler.planner.working_copy.planned_job import PlannedJob
from autoscaler.planner.working_copy.working_copy import WorkingCopy

CORE_VALUE: Final = 0  # of the built-in class `edl-core`: the cluster's default

Rank = tuple[int, int]

SURPLUS_RANK: Final[Rank] = (CORE_VALUE, 0)
"""Just below core: the rank of all surplus with `reclaim: planner`, above all of it with `reclaim: scheduler`."""

ordinal_of: Final = attrgetter("ordinal")


def rank_of(pod: Pod, policy: Policy) -> Rank:
    """Return the rank at which a trainer beyond its job's minimum can be taken."""
    if policy.reclaim is Reclaim.PLANNER:
        return SURPLUS_RANK
    return (pod.priority, 0) if pod.tier is Tier.SURPLUS else full_rank(pod.priority)


def full_rank(priority: int) -> Rank:
    """Return the rank of a core or external pod of this priority."""
    return (priority, 1)


def removal_order(copy: WorkingCopy, job: PlannedJob) -> tuple[Pod, ...]:
    """Return the job's trainers in the order in which they leave.

    Surplus before core, those that do no work first, lower priority first, closed nodes first, highest ordinal first.
    Where trainers come several to a node, those of incomplete nodes go first and a node's trainers stay together.
    """
    if job.removal_order is None:
        found = sorted(job.trainers, key=ordinal_of, reverse=True)
        is_mixed = len({(pod.tier, pod.priority) for pod in found}) > 1
        idle = {pod.name for pod in job.idle_trainers()} if job.spec.idle else frozenset[PodName]()
        if is_mixed or idle or not all(copy.capacity.open_place_of(pod) is not None for pod in found):
            found.sort(key=lambda pod: _class_order(copy, pod, idle))
        if job.spec.trainer.per_node > 1:
            found = _by_nodes(copy, job, found, idle)
        job.removal_order = tuple(found)
    return job.removal_order


def _class_order(copy: WorkingCopy, pod: Pod, idle: Collection[PodName]) -> tuple[bool, bool, int, bool]:
    is_open = copy.capacity.open_place_of(pod) is not None
    return (pod.tier is Tier.CORE, pod.name not in idle, pod.priority, is_open)


def _by_nodes(copy: WorkingCopy, job: PlannedJob, pods: list[Pod], idle: Collection[PodName]) -> list[Pod]:
    counts = Counter(pod.place for pod in pods)
    last = {pod.place: pod.ordinal for pod in sorted(pods, key=ordinal_of)}
    per_node = job.spec.trainer.per_node

    def node_order(pod: Pod) -> tuple[tuple[bool, bool, int, bool], bool, int]:
        return (_class_order(copy, pod, idle), counts[pod.place] % per_node == 0, -last[pod.place])

    return sorted(pods, key=node_order)


def reclaimable(copy: WorkingCopy, job: PlannedJob) -> tuple[Pod, ...]:
    """Return the trainers that may be taken, in removal order: surplus, then core beyond the minimum.

    The tier belongs to the pod and the minimum to the count (`beside-the-scheduler.md` 6).
    """
    pods = removal_order(copy, job)
    core = sum(pod.tier is Tier.CORE for pod in pods)
    return pods[: len(pods) - min(core, job.spec.trainer.min_replicas)]


def offers_of(copy: WorkingCopy, job: PlannedJob, rank: Rank | None = None) -> Offers:
    """Return the reclaimable trainers on open nodes, with `rank` those below it; kept until a trainer comes or goes."""
    if (offers := job.offers.get(rank)) is None:
        below = (pod for pod in reclaimable(copy, job) if rank is None or rank_of(pod, copy.policy) < rank)
        offers = job.offers[rank] = offers_among(copy, below)
    return offers


def offers_among(copy: WorkingCopy, pods: Iterable[Pod]) -> Offers:
    """Return those of the trainers that are on open nodes."""
    found = [(pod, at) for pod in pods if (at := copy.capacity.open_place_of(pod)) is not None]
    return Offers(
        tuple([pod for pod, _ in found]),
        np.array([at for _, at in found], dtype=np.intp),
        np.array([copy.shapes.number(pod.shape) for pod, _ in found], dtype=np.intp),
    )


def shrink(
    copy: WorkingCopy, job: PlannedJob, pods: Iterable[Pod], cause: Cause, beneficiary: Beneficiary = NO_BENEFICIARY
) -> None:
    """Remove trainers, and as many more as make a whole step: a partial step is useless."""
    copy.remove(job, pods, cause, beneficiary)
    extra = len(job.trainers) - job.spec.trainer.largest_allowed(len(job.trainers))
    if extra > 0:
        copy.remove(job, removal_order(copy, job)[:extra], cause, beneficiary)
