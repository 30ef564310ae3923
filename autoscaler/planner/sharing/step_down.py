"""Step down of a job: its share afterwards, and the trainers to remove so that the taker's pods fit.

`p6_transfer` removes such steps; `p3_reclaim` asks what fairness will take from a job later.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from operator import add

import numpy as np

from autoscaler.domain import Pod, Role
from autoscaler.planner.placement.colocation import bundles_of
from autoscaler.planner.sharing.change_limits import leaves_at
from autoscaler.planner.sharing.growth_queue import growth_key, step_of
from autoscaler.planner.working_copy.offers import Offers
from autoscaler.planner.working_copy.planned_job import PlannedJob
from autoscaler.planner.working_copy.ranks import offers_of
from autoscaler.planner.working_copy.shapes import copies_that_fit
from autoscaler.planner.working_copy.working_copy import WorkingCopy

Knapsack = dict[int, tuple[int, list[Pod]]]
"""Knapsack table, by number of removed trainers: most pods of the taker that then fit, and the trainers."""


def last_step_of(job: PlannedJob) -> int:
    """Return how many trainers the job loses with one step down."""
    return job.size - job.spec.trainer.largest_allowed(job.size - 1)


def share_below(copy: WorkingCopy, job: PlannedJob) -> int:
    """Return what one step less would leave the job (`attained`); kept until a pod of the job comes or goes."""
    present = growth_key(copy, job)
    if job.share_below is None or job.share_below[0] is not present:
        job.share_below = (present, job.attained(more=-last_step_of(job)))
    return job.share_below[1]


def victims_of(copy: WorkingCopy, taker: PlannedJob, giver: PlannedJob) -> list[Pod]:
    """Return the giver's step whose removal makes most places for the taker; empty if even that is too little.

    Trainers that have not run as long as their job wants are taken only if the others do not help; the step then waits.
    """
    offers = offers_of(copy, giver)
    aged = of_age(copy, giver, offers)
    found = victims_among(copy, taker, giver, aged)
    return found if found or aged is offers else victims_among(copy, taker, giver, offers)


def of_age(copy: WorkingCopy, giver: PlannedJob, offers: Offers) -> Offers:
    """Return the trainers that have run as long as their job wants (`beside-the-scheduler.md` 20)."""
    if not giver.spec.trainer.min_run_s:
        return offers
    kept = [at for at, pod in enumerate(offers.pods) if copy.now_s >= leaves_at(copy.policy, giver.spec, pod)]
    if len(kept) == len(offers.pods):
        return offers
    return Offers(pods=tuple(offers.pods[at] for at in kept), places=offers.places[kept], shapes=offers.shapes[kept])


def victims_among(copy: WorkingCopy, taker: PlannedJob, giver: PlannedJob, offers: Offers) -> list[Pod]:
    """Return the step out of these trainers, or nothing.

    The giver's trainers are alike, so the question is how many leave each node: a small knapsack over the nodes where
    removal helps. Trainers that are missing for a whole step are the first in removal order. Where trainers come
    several to a node they also leave node by node (ADR 0116).
    """
    capacity, (shape, wanted) = copy.capacity, places_of_step(copy, taker)
    count = len(giver.trainers) - giver.spec.trainer.largest_allowed(len(giver.trainers) - 1)
    offered = list(zip(offers.pods, offers.places.tolist(), offers.shapes.tolist(), strict=True))
    by_node: dict[int, list[tuple[Pod, int]]] = {at: [] for at in helpful_nodes(copy, shape, offers, count)}
    for pod, at, number in offered:
        if at in by_node and len(by_node[at]) < count:
            by_node[at].append((pod, number))
    best: Knapsack = {0: (0, [])}
    for at, leaving in by_node.items():
        places = places_on(copy, shape, at, [number for _, number in leaving])
        if places[-1] > 0:
            numbers = removable_numbers(copy, giver, at, len(leaving))
            gains = {number: places[number] - places[0] for number in numbers}
            best = with_node(best, gains, [pod for pod, _ in leaving], most=count)
    gained, number = max((gain, -number) for number, (gain, _) in best.items())
    if capacity.copies(shape) + gained < wanted:
        return []
    victims = best[-number][1]
    chosen = {pod.name for pod in victims}
    others = [pod for pod in offers.pods if pod.name not in chosen]
    victims = victims + others[: count - len(victims)]
    return victims if len(victims) == count else []


def places_of_step(copy: WorkingCopy, taker: PlannedJob) -> tuple[int, int]:
    """Return the shape of the next step's pods, or bundles, and their number."""
    bundles = bundles_of(copy, taker, [Role.TRAINER] * step_of(taker))
    first = bundles[0].shape
    return first, sum(bundle.shape == first for bundle in bundles)


def helpful_nodes(copy: WorkingCopy, shape: int, offers: Offers, count: int) -> list[int]:
    """Return the nodes, first offers first, where the shape may fit if `count` of the largest trainer there left."""
    capacity, places = copy.capacity, offers.places
    helps = capacity.accepted(shape)[places]
    for column, amount in enumerate(copy.shapes.amounts[shape]):
        if amount > 0:
            largest = max(
                (capacity.request_amounts(number)[column] for number in set(offers.shapes.tolist())), default=0
            )
            helps &= (capacity.later[column][places] + count * largest >= amount).astype(np.bool_)
    return list(dict.fromkeys(places[helps].tolist()))


def places_on(copy: WorkingCopy, shape: int, at: int, leaving: Sequence[int]) -> list[int]:
    """Return how many pods of the shape fit on the node once none, one, two ... of these shapes are gone."""
    amounts = copy.shapes.amounts[shape]
    free = [later for later, _, _ in copy.capacity.plain(at)]
    places = [copies_that_fit(free, amounts)]
    for number in leaving:
        free = list(map(add, free, copy.capacity.request_amounts(number)))
        places.append(copies_that_fit(free, amounts))
    return places


def removable_numbers(copy: WorkingCopy, giver: PlannedJob, at: int, most: int) -> list[int]:
    """Return how many of the job's trainers may leave a node together, so that whole bundles stay there."""
    per_node = giver.spec.trainer.per_node
    if per_node == 1:
        return [*range(1, most + 1)]
    present = Counter(copy.capacity.place_of(pod) for pod in giver.trainers)[at]
    return [number for number in range(1, most + 1) if (present - number) % per_node == 0]


def with_node(best: Knapsack, gains: Mapping[int, int], pods: Sequence[Pod], *, most: int) -> Knapsack:
    """Add one node to the knapsack. `gains`: pods of the taker that fit, by number of its trainers that leave."""
    result = dict(best)
    for taken, (gain, victims) in best.items():
        for number, more in gains.items():
            together = taken + number
            if together <= most and (together not in result or gain + more > result[together][0]):
                result[together] = (gain + more, [*victims, *pods[:number]])
    return result
