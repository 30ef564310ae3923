"""Victims: which surplus trainers leave one node so that one pod fits there.

All trainers of a job are alike, so a choice is how many to take of each job. Two comparisons decide, each by its keys
in this order:

* On one node (`fewest_on`): fewest trainers lost, whole steps counted; then the lowest prices of the jobs that give,
  the most expensive one compared first. A price is the job's priority, its fairness key (the largest gives first) and
  the age of its checkpoint (the freshest gives first; an unknown age counts as old, so that no NaN makes a victim, A7).
* Between the winners of the nodes (`order_of`): fewest trainers lost, plus those that fairness moves back
  (`SideCost`); lowest priorities of the jobs that give; least waste left on the node (`SideCost`); lowest prices; the
  node's name. P3 weighs both parts of `SideCost` on clusters of up to `WEIGHED_NODES` nodes; elsewhere trainers lost,
  prices and the node's name decide.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from math import inf
from typing import Any, Final

import numpy as np

from autoscaler.domain import Pod
from autoscaler.planner.placement.reclaimable import Reclaimable, reclaimable_for
from autoscaler.planner.working_copy.free_capacity import NodeScores
from autoscaler.planner.working_copy.node_arrays import Mask
from autoscaler.planner.working_copy.offers import IntArray
from autoscaler.planner.working_copy.planned_job import PlannedJob, Price
from autoscaler.planner.working_copy.ranks import Rank
from autoscaler.planner.working_copy.shapes import amounts_fit
from autoscaler.planner.working_copy.working_copy import WorkingCopy

# A node carries a handful of jobs and a pod displaces a few trainers: 12 trainers of 4 jobs are 455 choices.  Beyond
# the bound the best choice so far is used, or the fair order, without a proof of minimality.
CHOICES_TRIED = 5_000

Cost = tuple[int, tuple[Price, ...]]

SideCost = tuple[int, float]
"""Trainers that fairness will move back, and the waste that a choice leaves on its node."""


@dataclass(frozen=True, slots=True)
class LeastCosts:
    """By node, lower bounds of the cost of a choice of just as few trainers as must leave; one of more is dearer."""

    moved_back: IntArray
    waste: NodeScores
    prices: IntArray | None = None  # positions of the givers' prices, dearest first, then -1; None: the cheapest once


LeastSideCost = Callable[[IntArray, IntArray], LeastCosts]
"""The bounds for nodes, and the fewest trainers that must leave each."""

NEVER: Final = np.iinfo(np.intp).max
"""After every bound: a node that was looked at already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Victims:
    """Trainers to take from one node, by job, and what that costs."""

    at: int
    taken: tuple[tuple[PlannedJob, tuple[Pod, ...]], ...]
    cost: Cost

    @property
    def pods(self) -> tuple[Pod, ...]:
        return tuple(pod for _, pods in self.taken for pod in pods)


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """One job's trainers on a node that may be taken, in removal order, never more than the job can spare."""

    job: PlannedJob
    pods: tuple[Pod, ...]
    amounts: tuple[tuple[int, ...], ...]  # of each pod, by column
    price: Price  # lower goes first

    def removed_by(self, count: int) -> int:
        """Return how many trainers the job loses if `count` are taken: complete steps."""
        left = len(self.job.trainers) - count
        return len(self.job.trainers) - self.job.spec.trainer.largest_allowed(left) if count else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCapacity:
    """One node: what is free later and what is asked of it, by column."""

    at: int
    later: tuple[int, ...]
    requests: tuple[int, ...]

    def fits(self, groups: Sequence[Candidates], counts: Sequence[int]) -> bool:
        """True if the request fits after these counts of each group have left."""
        free = list(self.later)
        for group, count in zip(groups, counts, strict=True):
            for amounts in group.amounts[:count]:
                for column, amount in enumerate(amounts):
                    free[column] += amount
        return amounts_fit(free, self.requests)


def cheapest_victims(
    copy: WorkingCopy,
    shape: int,
    rank: Rank,
    *,
    avoid: Mask | None = None,
    protected_priority: int | None = None,
    side_cost: Callable[[Victims], SideCost] | None = None,
    least_side_cost: LeastSideCost | None = None,
) -> Victims | None:
    """Return the cheapest choice over all open nodes that accept the shape, or None if no surplus helps.

    `protected_priority`: jobs of this priority and above keep their surplus (`StrictClass`). `side_cost`: what a
    choice costs beyond the trainers that leave; None where that is not weighed. `least_side_cost`: lower bounds of
    it; None: not known.
    """
    reclaimable = reclaimable_for(copy, rank, protected_priority)
    best: Victims | None = None
    least: tuple[Any, ...] = ()
    for at, cost, beside in most_promising(reclaimable, shape, avoid, side_cost is not None, least_side_cost):
        if best is not None and order_of(cost, at, beside) > least:
            break
        found = fewest_on(capacity_on(copy, at, shape), candidates(copy, reclaimable, at), cost[0])
        if found is not None:
            order = order_of(found.cost, found.at, side_cost(found) if side_cost else None)
            if best is None or order < least:
                best, least = found, order
    return best


def most_promising(
    reclaimable: Reclaimable,
    shape: int,
    avoid: Mask | None,
    weighs_waste: bool,
    least_side_cost: LeastSideCost | None,
) -> Iterator[tuple[int, Cost, SideCost | None]]:
    """Yield the nodes where surplus can help by a lower bound of `order_of`: node, cost, side cost."""
    where, fewest, prices = reclaimable.bounds(shape, avoid)
    if not len(where):
        return
    different = reclaimable.different_prices
    if not weighs_waste:
        keys = fewest * (int(prices.max()) + 1) + prices
        while (first := int(keys.argmin())) >= 0 and keys[first] < NEVER:
            yield int(where[first]), (int(fewest[first]), (different[prices[first]],)), None
            keys[first] = NEVER
        return
    if least_side_cost is None:
        least = LeastCosts(np.zeros_like(fewest), np.full(len(where), -inf))
    else:
        least = least_side_cost(where, fewest)
    givers = prices[:, np.newaxis] if least.prices is None else least.prices
    totals = fewest + least.moved_back
    for total in np.unique(totals).tolist():
        alike = np.flatnonzero(totals == total)
        ranks = givers[alike][:, : int((givers[alike] >= 0).sum(axis=1).max())]
        sort_keys = (*ranks.T[::-1], least.waste[alike], *reclaimable.priorities_at(ranks).T[::-1])
        for first in alike[np.lexsort(sort_keys)].tolist():
            found = tuple(different[position] for position in givers[first].tolist() if position >= 0)
            beside = int(least.moved_back[first]), float(least.waste[first])
            yield int(where[first]), (int(fewest[first]), found), beside


def order_of(cost: Cost, at: int, side_cost: SideCost | None) -> tuple[Any, ...]:
    """Return the sort key of a choice (see the module)."""
    removed, prices = cost
    if side_cost is None:
        return (removed, prices, at)
    moved_back, waste = side_cost
    return (removed + moved_back, tuple(priority for priority, _, _ in prices), waste, prices, at)


def capacity_on(copy: WorkingCopy, at: int, shape: int) -> NodeCapacity:
    """Return what one node offers to one shape."""
    later = tuple(copy.capacity.later[:, at].tolist())
    return NodeCapacity(at=at, later=later, requests=copy.capacity.request_amounts(shape))


def candidates(copy: WorkingCopy, reclaimable: Reclaimable, at: int) -> list[Candidates]:
    """Return each job's trainers on the node that may be taken, cheapest job first."""
    found = []
    for job, price, offered in reclaimable.at(at):
        pods = tuple(offered[: job.spare])
        amounts = tuple(copy.capacity.request_amounts(copy.shapes.number(pod.shape)) for pod in pods)
        found.append(Candidates(job=job, pods=pods, amounts=amounts, price=price))
    return sorted(found, key=lambda group: group.price)


def fewest_on(node: NodeCapacity, groups: list[Candidates], at_least: int = 1) -> Victims | None:
    """Return the cheapest set of these trainers on one node without which the pod fits; None if none is enough.

    `at_least`: fewer are known to be too few.
    """
    limits = [len(group.pods) for group in groups]
    if not node.fits(groups, limits):
        return None
    best: Victims | None = None
    for counts in islice(counts_by_sum(limits, at_least), CHOICES_TRIED):
        if best is not None and sum(counts) > best.cost[0]:
            return best
        if node.fits(groups, counts):
            victims = choice(node, groups, counts)
            best = victims if best is None else min(best, victims, key=lambda found: found.cost)
    return best if best is not None else in_fair_order(node, groups)


def choice(node: NodeCapacity, groups: Sequence[Candidates], counts: Sequence[int]) -> Victims:
    """Return the choice of taking these counts of each group."""
    taken = [(group, count) for group, count in zip(groups, counts, strict=True) if count]
    removed = sum(group.removed_by(count) for group, count in taken)
    return Victims(
        at=node.at,
        taken=tuple((group.job, group.pods[:count]) for group, count in taken),
        cost=(removed, tuple(sorted((group.price for group, _ in taken), reverse=True))),
    )


def counts_by_sum(limits: list[int], at_least: int) -> Iterator[tuple[int, ...]]:
    """Yield every way to take up to `limits` of each group, by rising total, from `at_least`."""
    for total in range(at_least, sum(limits) + 1):
        yield from counts_of_total(limits, total)


def counts_of_total(limits: list[int], total: int) -> Iterator[tuple[int, ...]]:
    """Yield every way to take `total` in all, early groups first."""
    if not limits:
        if total == 0:
            yield ()
        return
    for count in range(min(limits[0], total), -1, -1):
        for rest in counts_of_total(limits[1:], total - count):
            yield (count, *rest)


def in_fair_order(node: NodeCapacity, groups: list[Candidates]) -> Victims:
    """Take group after group until the pod fits, then return the trainers that are not needed."""
    counts = [len(group.pods) for group in groups]
    for index in reversed(range(len(groups))):
        while counts[index]:
            counts[index] -= 1
            if not node.fits(groups, counts):
                counts[index] += 1
                break
    return choice(node, groups, counts)
