"""Transfer pairs: which rich job may give a step to which poor one, and whether it may do so now.

Takers come in growth order, poorest first, and givers by class and share, richest first (A4). A pair that fits is open
once the giver's windows, the age of its trainers, the caps per minute and the cost allow it; what is closed is recorded
with the instant at which it opens. Which trainers would leave is `step_down`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, inf

import numpy as np

from autoscaler.domain import Bottleneck, Fairness, JobName, Pod, Role
from autoscaler.planner.sharing.change_limits import gain_of, leaves_at, next_change_at, shrink_opens_at
from autoscaler.planner.sharing.elastic_servers import servers_missing
from autoscaler.planner.sharing.growth_queue import growth_key, is_held_back, lacks_capacity, share_after_step, step_of
from autoscaler.planner.sharing.step_down import last_step_of, share_below
from autoscaler.planner.working_copy.fairness import fairness_key, is_entitled
from autoscaler.planner.working_copy.node_arrays import Numbers
from autoscaler.planner.working_copy.offers import NO_OFFERS, IntArray
from autoscaler.planner.working_copy.planned_job import PlannedJob
from autoscaler.planner.working_copy.ranks import offers_of
from autoscaler.planner.working_copy.working_copy import WorkingCopy


def takers(copy: WorkingCopy) -> list[PlannedJob]:
    """Return the jobs that lack nothing but capacity, poorest first."""
    dirty = copy.dirty
    poor = [
        job
        for shape, jobs in copy.growable.items()
        if copy.capacity.fits_empty(shape)
        for job in jobs
        if job.spec.name not in dirty
    ]
    poor += [
        job
        for job in copy.dirty_jobs()
        if copy.capacity.fits_empty(job.shapes[Role.TRAINER]) and lacks_capacity(copy, job)
    ]
    if copy.now_s < copy.burst_until_s:
        poor = [job for job in poor if not is_held_back(copy, job)]
    if copy.quotas.has_limits:
        poor = [job for job in poor if not copy.quotas.find_problem(job, [Role.TRAINER] * step_of(job), now=False)]
    return sorted(poor, key=lambda job: growth_key(copy, job))


def one_of_each_kind(copy: WorkingCopy, takers: Sequence[PlannedJob]) -> Iterator[PlannedJob]:
    """Yield the first job of each kind: what the poorest of a kind does not get, no other of it gets."""
    seen: set[object] = set()
    for taker in takers:
        if (kind := step_kind(copy, taker)) not in seen:
            seen.add(kind)
            yield taker


def step_kind(copy: WorkingCopy, taker: PlannedJob) -> object:
    """Return what a step of the job depends on, apart from its share: shape, beneficiary and gain."""
    spec, size, step = taker.spec, taker.size, step_of(taker)
    servers = servers_missing(copy, taker, size + step)
    gain = gain_of(copy.policy, spec, size, size + step) if copy.policy.payoff_s else 0.0
    places = (taker.shapes[Role.TRAINER], spec.trainer.per_node, step, servers and taker.shapes[Role.SERVER], servers)
    is_bent = taker.progress is not None and taker.progress.speeds
    speeds = (spec.throughput, spec.trainer, spec.servers) if is_bent else None
    return (*places, spec.priority, spec.namespace, taker.rates, speeds, gain)


def how_many_richer(copy: WorkingCopy, taker: PlannedJob, ranked: Sequence[tuple[int, int, str]]) -> int:
    """Return how many of the ranked jobs come before those that owe the taker nothing (see `givers`)."""
    if copy.policy.fairness is not Fairness.NAMESPACE:
        return bisect_left(ranked, (taker.spec.priority, -share_after_step(taker), ""))
    return bisect_left(ranked, (taker.spec.priority + 1, -inf, ""))


def fairness_keys(copy: WorkingCopy) -> Mapping[JobName, int]:
    """Return each job's fairness key; between jobs the growth key has it already."""
    if copy.policy.fairness is not Fairness.NAMESPACE:
        return {name: growth_key(copy, job)[1] for name, job in copy.jobs.items()}
    return {name: fairness_key(copy, job) for name, job in copy.jobs.items()}


def givers(
    copy: WorkingCopy, taker: PlannedJob, helpers: Sequence[PlannedJob], shares: Mapping[JobName, int]
) -> Iterator[PlannedJob]:
    """Yield the jobs that may have to give the taker a step, lower classes first, then by largest share."""
    after, priority = share_after_step(taker), taker.spec.priority
    between_jobs = copy.policy.fairness is not Fairness.NAMESPACE
    for job in helpers:
        is_lower = job.spec.priority < priority
        if job.spec.priority > priority or (not is_lower and between_jobs and shares[job.spec.name] <= after):
            return  # all later jobs have smaller keys
        if job is taker:
            continue
        if is_lower or (after < share_below(copy, job) if between_jobs else is_poorer(copy, taker, job)):
            yield job


def is_poorer(copy: WorkingCopy, taker: PlannedJob, giver: PlannedJob) -> bool:
    """True if the taker still has less once each of the two has moved by a step."""
    return is_entitled(copy, taker, step_of(taker), giver, last_step_of(giver))


class GiverReach:
    """Capacity of each node without the trainers that these jobs can spare there."""

    def __init__(self, copy: WorkingCopy, order: Sequence[PlannedJob]) -> None:
        self._capacity = copy.capacity
        self._order = order
        rows = [NO_OFFERS.grouped(), *((offers_of(copy, job) if job.spare else NO_OFFERS).grouped() for job in order)]
        lengths = [columns.shape[1] for columns in rows[1:]]
        self._ends = np.cumsum([0, *lengths])  # by the number of jobs: rows that are theirs
        self._givers: IntArray = np.repeat(np.arange(len(order)), lengths)
        spare = np.repeat(np.array([job.spare for job in order], dtype=np.intp), lengths)
        self._places, shapes, counts = np.concatenate(rows, axis=1)
        times = np.minimum(counts, spare).astype(copy.capacity.kind)
        given = copy.capacity.amounts_by_shape()[:, shapes] * times
        self._reach: Numbers = copy.capacity.later[:, self._places] + given

    def jobs_freeing(self, shape: int, first: int) -> Sequence[PlannedJob]:
        """Jobs, among the first `first`, whose trainers' removal from some node makes one more pod fit."""
        end = int(self._ends[first])
        helps = self._capacity.accepted(shape)[self._places[:end]]
        for column, amount in enumerate(self._capacity.request_amounts(shape)):
            if amount > 0:
                helps &= (self._reach[column, :end] >= amount).astype(np.bool_)
        is_there = np.zeros(first, dtype=np.bool_)
        is_there[self._givers[:end][helps]] = True
        return [self._order[place] for place in np.flatnonzero(is_there).tolist()]


@dataclass(slots=True)
class TransferSearch:
    """Bounds of one plan's search for transfers, and the pairs that are closed now."""

    allowed: int  # trainers that may be moved in a minute
    left: int  # that may still be moved within this one
    changes: float  # jobs that may still change their size within this minute
    pairs: int  # of a taker and a giver, that may still be tried
    trials: int  # that may still come to nothing
    closed: dict[JobName, tuple[Bottleneck, str, float]] = field(default_factory=dict)


def is_open(
    copy: WorkingCopy, search: TransferSearch, taker: PlannedJob, giver: PlannedJob, victims: list[Pod]
) -> bool:
    """True if windows and caps allow the transfer now; if not, the taker's bottleneck names the one that does not.

    A step of more trainers than may move in a minute is that minute's only one: otherwise steps of powers of two would
    never move.
    """
    now_s = copy.now_s

    def close(bottleneck: Bottleneck, opens_at_s: float, why: str) -> bool:
        message = f"gets a step of {giver.spec.name} in {ceil(opens_at_s - now_s)} s ({why})"
        search.closed[taker.spec.name] = (bottleneck, message, opens_at_s)
        return False

    opens_at_s = gives_from(copy, giver, victims)
    if now_s < opens_at_s:
        return close(Bottleneck.COOLDOWN, opens_at_s, "window after a change")
    if search.changes < 1:
        limit = copy.policy.resizes_per_minute
        return close(Bottleneck.BUDGET, next_change_at(copy), f"at most {limit} resizes a minute")
    if not pays_for_both(copy, taker, giver):
        return False
    if len(victims) > search.left and (search.left < search.allowed or not search.allowed):
        oldest_s = min(copy.history.transfers_at_s, default=now_s)
        opens_at_s = max(now_s + 1.0, oldest_s + 60.0)
        return close(Bottleneck.BUDGET, opens_at_s, f"at most {search.allowed} transfers a minute")
    return True


def gives_from(copy: WorkingCopy, giver: PlannedJob, victims: list[Pod]) -> float:
    """Return when the windows allow the giver its step down."""
    return max([shrink_opens_at(copy, giver.spec), *(leaves_at(copy.policy, giver.spec, pod) for pod in victims)])


def is_owed(copy: WorkingCopy, taker: PlannedJob, giver: PlannedJob, owed: int) -> bool:
    """True if the giver, a step down, would be entitled to a step of a richer job that will give only later.

    Then the transfer waits for the richer job: what such a giver gave would be moved twice.
    """
    is_between_jobs = copy.policy.fairness is not Fairness.NAMESPACE and giver.spec.priority == taker.spec.priority
    return is_between_jobs and giver.attained() < owed


def pays_for_both(copy: WorkingCopy, taker: PlannedJob, giver: PlannedJob) -> bool:
    """True if the taker's step pays off what it costs both jobs to change their size.

    Trainers of the giver that do no work lose nothing by its pause.
    """
    policy, size = copy.policy, taker.size
    working = giver.size - (len(giver.idle_trainers()) if giver.spec.idle else 0)
    lost = working * giver.spec.pause_s
    return not policy.payoff_s or gain_of(policy, taker.spec, size, size + step_of(taker)) > lost
