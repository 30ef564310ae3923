"""Where surplus could give way, over the whole cluster: which node to look at first.

For one pod, a node's cost has a floor that arrays can tell: so many trainers at least must leave (what is lacking, by
the largest trainer there), and the cheapest job on it has this price.  `victims` looks at nodes in the order of that
floor and stops where no node can be cheaper, so it is exact and looks at few.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress, count
from math import inf, isnan
from operator import is_not

import numpy as np
import numpy.typing as npt

from autoscaler.domain import Pod
from autoscaler.planner.working_copy.fairness import claim_of
from autoscaler.planner.working_copy.node_arrays import Mask, Numbers
from autoscaler.planner.working_copy.planned_job import NO_OFFERS, Indices, JobDraft, Offers, Price
from autoscaler.planner.working_copy.ranks import Rank
from autoscaler.planner.working_copy.working_copy import Draft

NOWHERE = np.iinfo(np.int64).max


class Supply:
    """The trainers that rank below `rank` (None: all) and may be taken; jobs from `spare_priority` up keep theirs.

    Kept from plan to plan: `attach` it to the next draft.
    """

    def __init__(self, rank: Rank | None, spare_priority: int | None) -> None:
        self.rank = rank
        self.spare_priority = spare_priority
        self.jobs: list[JobDraft] = []
        self.numbers: dict[int, int] = {}  # by identity
        self.changed: set[int] = set()  # numbers of jobs that are to be looked at anew
        self.offers: list[Offers] = []
        self.prices: list[Price] = []  # all that there are, from the lowest
        self.ranks: list[int] = []  # by job: its price's place among them

    def attach(self, draft: Draft) -> None:
        """Be the supply of this draft, in which nothing is planned yet that the last one had planned."""
        jobs = list(draft.jobs.values())
        if self.offers and len(jobs) == len(self.jobs):
            self.seen = 0  # what the last plan did to jobs is undone
            self.changed |= self._changed_since() | {*compress(count(), map(is_not, jobs, self.jobs))}
        else:
            self.offers = []
        self.draft, self.jobs = draft, jobs
        self.numbers = {id(job): number for number, job in enumerate(jobs)}
        self.seen = 0  # of `draft.changed_jobs`
        self.priced = -1  # likewise

    def _changed_since(self) -> set[int]:
        """The numbers of the jobs that have changed since the last time."""
        return {self.numbers[id(job)] for job in self.draft.changed_jobs[self.seen :]}

    def bring_up_to_date(self) -> None:
        """Take in the jobs that have changed since the last time."""
        changed = self.changed | self._changed_since()
        self.seen = len(self.draft.changed_jobs)
        self.changed = set()
        if not self.offers:
            self.offers = [self._offers_of(job) for job in self.jobs]
            self._put_rows(*self._rows_of(range(len(self.jobs))))
        elif changed:
            for number in changed:
                self.offers[number] = self._offers_of(self.jobs[number])
            others = ~np.isin(self.givers, [*changed])
            places, shapes, givers, times = self._rows_of(sorted(changed))
            self._put_rows(
                np.concatenate([self.places[others], places]),
                np.concatenate([self.shapes[others], shapes]),
                np.concatenate([self.givers[others], givers]),
                np.concatenate([self.times[others], times]),
            )

    def _offers_of(self, job: JobDraft) -> Offers:
        may_give = job.spare and (self.spare_priority is None or job.job.priority < self.spare_priority)
        return self.draft.offers(job, self.rank) if may_give else NO_OFFERS

    def _rows_of(self, numbers: Sequence[int]) -> tuple[Indices, Indices, Indices, Indices]:
        """Lay the offers of these jobs side by side, in groups of one job, node and shape: those, and how many."""
        rooms = self.draft.rooms
        offered = [self.offers[number] for number in numbers]
        places = np.concatenate([NO_OFFERS.places, *(offers.places for offers in offered)])
        shapes = np.concatenate([NO_OFFERS.shapes, *(offers.shapes for offers in offered)])
        givers = np.repeat(np.array(numbers, dtype=np.intp), [len(offers.pods) for offers in offered])
        keys = (givers * len(rooms) + places) * len(self.draft.shapes) + shapes
        _, first, counts = np.unique(keys, return_index=True, return_counts=True)
        spare = np.zeros(len(self.jobs), dtype=np.intp)
        spare[[*numbers]] = [self.jobs[number].spare for number in numbers]
        return places[first], shapes[first], givers[first], np.minimum(counts, spare[givers[first]])

    def _put_rows(self, places: Indices, shapes: Indices, givers: Indices, times: Indices) -> None:
        self.places, self.shapes, self.givers, self.times = places, shapes, givers, times
        rooms = self.draft.rooms
        self.units: Numbers = rooms.amounts_by_shape()[:, shapes]
        self.given: Numbers = self.units * times.astype(rooms.kind)

    def _price(self) -> None:
        """Add up what nodes could get, and note the cheapest job on each."""
        rooms = self.draft.rooms
        prices = [price_of(self.draft, job) for job in self.jobs]
        ranks = {price: rank for rank, price in enumerate(sorted(set(prices)))}
        self.prices, self.ranks = [*ranks], [ranks[price] for price in prices]
        self.largest: Numbers = np.zeros_like(rooms.later)
        self.total: Numbers = np.zeros_like(rooms.later)
        self.cheapest = np.full(len(rooms), len(ranks), dtype=np.int64)
        for column in range(len(self.units)):
            np.maximum.at(self.largest[column], self.places, self.units[column])
            np.add.at(self.total[column], self.places, self.given[column])
        np.minimum.at(self.cheapest, self.places, np.array(self.ranks, dtype=np.int64)[self.givers])
        self.priced = self.seen

    def floors(self, shape: int, avoid: Mask | None) -> npt.NDArray[np.int64]:
        """The least that each node can cost, as one number that compares; NOWHERE where nothing can help."""
        self.bring_up_to_date()
        if self.priced != self.seen:
            self._price()
        rooms = self.draft.rooms
        may_help = rooms.accepted(shape) & rooms.is_open & (self.cheapest < len(self.prices))
        if avoid is not None:
            may_help &= ~avoid
        where = np.flatnonzero(may_help)
        fewest = np.ones(len(where), dtype=np.int64)
        helps = np.ones(len(where), dtype=np.bool_)
        for column, amount in enumerate(self.draft.shapes.amounts[shape]):
            if amount > 0:
                lack = np.maximum(amount - rooms.later[column][where], 0)
                unit = self.largest[column][where]
                helps &= (self.total[column][where] >= lack).astype(np.bool_)
                needed = -(-lack // np.where(unit == 0, 1, unit))
                fewest = np.maximum(fewest, np.minimum(needed, 2**31).astype(np.int64))
        floors = np.full(len(rooms), NOWHERE, dtype=np.int64)
        floors[where[helps]] = (fewest * (len(self.prices) + 1) + self.cheapest[where])[helps]
        return floors

    def floor_cost(self, floor: int) -> tuple[int, tuple[Price, ...]]:
        """What a floor says, as a cost."""
        fewest, rank = divmod(floor, len(self.prices) + 1)
        return fewest, (self.prices[rank],)

    def at(self, place: int) -> list[tuple[JobDraft, Price, list[Pod]]]:
        """Who offers whom on a node, jobs in the order of their names."""
        numbers = np.unique(self.givers[self.places == place]).tolist()
        return [
            (self.jobs[number], self.prices[self.ranks[number]], self.offers[number].at(place)) for number in numbers
        ]


def supply_for(draft: Draft, rank: Rank | None, spare_priority: int | None) -> Supply:
    """Return the draft's supply of this kind: made once a plan, brought up to date when asked."""
    key = (rank, spare_priority)
    supply = draft.supplies.get(key)
    if supply is None:
        kept = draft.kept_supplies
        supply = draft.supplies[key] = kept.pop(key) if key in kept else Supply(rank, spare_priority)
        supply.attach(draft)
    return supply


def price_of(draft: Draft, job: JobDraft) -> Price:
    """Return how dear this job's trainers are beside those of other jobs."""
    age = job.job.checkpoint_age_s
    return (job.job.priority, -claim_of(draft, job), inf if age is None or isnan(age) else age)
