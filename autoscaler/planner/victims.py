"""Which surplus trainers leave one node so that one pod fits there: the fewest, then the fairest.

All trainers of a job are alike, so a choice is how many to take of each job.  The choices are searched by rising
number; ties go to the job of lowest priority, then of largest weighted dominant share, then with the freshest
checkpoint (an unknown age counts as dear: no NaN makes a victim, A7).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from math import inf, isnan

from autoscaler.domain import JobName, NodeName, Pod, Resources, Shape
from autoscaler.planner.draft import Draft, Room
from autoscaler.planner.job_draft import JobDraft
from autoscaler.planner.rank import Rank, rank_of

# A node carries a handful of jobs and a pod displaces a few trainers: 12 trainers of 4 jobs are 455 choices.  Past
# the bound the search takes what it has, or the fair order without a proof that it is the shortest.
CHOICES_TRIED = 5_000

Cost = tuple[int, tuple[tuple[int, object, float], ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Victims:
    """Trainers to take from one node, by job, and what that costs.  Costs compare."""

    room: Room
    taken: tuple[tuple[JobName, tuple[Pod, ...]], ...]
    cost: Cost

    @property
    def pods(self) -> tuple[Pod, ...]:
        """All of them."""
        return tuple(pod for _, pods in self.taken for pod in pods)


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """One job's trainers on a node that may be taken, in leaving order, never more than the job can spare."""

    draft: JobDraft
    pods: tuple[Pod, ...]
    price: tuple[int, object, float]  # lower goes first

    def removed_by(self, count: int) -> int:
        """Trainers that the job loses if `count` are taken: whole steps."""
        left = len(self.draft.trainers) - count
        return len(self.draft.trainers) - self.draft.job.trainer.largest_allowed(left) if count else 0


def cheapest_victims(
    draft: Draft, shape: Shape, rank: Rank, *, avoid: frozenset[str] = frozenset(), spare_priority: int | None = None
) -> Victims | None:
    """Return the cheapest choice over all open nodes that accept the shape, or None if no surplus helps.

    `spare_priority`: jobs of this priority and above keep their surplus (`StrictClass`).
    """
    best: Victims | None = None
    for name, groups in sorted(candidates(draft, rank, spare_priority).items()):
        if name in avoid or not draft.rooms[name].node.accepts(shape):
            continue
        found = fewest_on(draft.rooms[name], groups, shape.requests, at_most=inf if best is None else best.cost[0])
        if found is not None and (best is None or found.cost < best.cost):
            best = found
    return best


def candidates(draft: Draft, rank: Rank, spare_priority: int | None) -> dict[NodeName, list[Candidates]]:
    """Return, by open node, each job's trainers there that rank below `rank` and may be taken, cheapest job first."""
    found: dict[NodeName, list[Candidates]] = {}
    for job in draft.jobs.values():
        if not job.spare or (spare_priority is not None and job.job.priority >= spare_priority):
            continue
        here: dict[NodeName, list[Pod]] = {}
        for pod in draft.takeable(job):
            if pod.place in draft.rooms and rank_of(pod, draft.policy) < rank:
                here.setdefault(pod.place, []).append(pod)
        price = price_of(draft, job)
        for name, pods in here.items():
            found.setdefault(name, []).append(Candidates(draft=job, pods=tuple(pods[: job.spare]), price=price))
    return {name: sorted(groups, key=lambda group: group.price) for name, groups in found.items()}


def fewest_on(room: Room, groups: list[Candidates], requests: Resources, *, at_most: float) -> Victims | None:
    """Return the cheapest set of these trainers on one node after whose leaving the requests fit.

    None if there is none, or none of `at_most` trainers: another node does it with so few.
    """
    if not requests.fits_into(sum((pod.requests for group in groups for pod in group.pods), start=room.later)):
        return None
    best: Victims | None = None
    limits = [len(group.pods) for group in groups]
    for counts in islice(counts_by_sum(limits), CHOICES_TRIED):
        if sum(counts) > (at_most if best is None else best.cost[0]):
            return best
        victims = choice(room, groups, counts)
        if requests.fits_into(sum((pod.requests for pod in victims.pods), start=room.later)):
            best = victims if best is None else min(best, victims, key=lambda found: found.cost)
    return best if best is not None else in_fair_order(room, groups, requests)


def price_of(draft: Draft, job: JobDraft) -> tuple[int, object, float]:
    """Return how dear this job's trainers are beside those of other jobs."""
    age = job.job.checkpoint_age_s
    return (job.job.priority, -draft.share(job), inf if age is None or isnan(age) else age)


def choice(room: Room, groups: list[Candidates], counts: tuple[int, ...]) -> Victims:
    """Return the choice of taking so many of each group."""
    taken = [(group, count) for group, count in zip(groups, counts, strict=True) if count]
    removed = sum(group.removed_by(count) for group, count in taken)
    return Victims(
        room=room,
        taken=tuple((group.draft.job.name, group.pods[:count]) for group, count in taken),
        cost=(removed, tuple(sorted((group.price for group, _ in taken), reverse=True))),
    )


def counts_by_sum(limits: list[int]) -> Iterator[tuple[int, ...]]:
    """Yield every way to take up to `limits` of each group, by rising total, from 1."""
    for total in range(1, sum(limits) + 1):
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


def in_fair_order(room: Room, groups: list[Candidates], requests: Resources) -> Victims:
    """Take group after group until the requests fit, then give back whoever is not needed."""
    counts = [len(group.pods) for group in groups]
    for index in reversed(range(len(groups))):
        while counts[index]:
            counts[index] -= 1
            pods = choice(room, groups, tuple(counts)).pods
            if not requests.fits_into(sum((pod.requests for pod in pods), start=room.later)):
                counts[index] += 1
                break
    return choice(room, groups, tuple(counts))
