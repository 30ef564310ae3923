"""Where surplus could give way, over the whole cluster: which node to look at first.

For one pod, a node's cost has a floor that arrays can tell: so many trainers at least must leave (what is lacking, by
the largest trainer there), and the cheapest job on it has this price.  `victims` looks at nodes in the order of that
floor and stops where no node can be cheaper, so it is exact and looks at few.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, isnan

import numpy as np
import numpy.typing as npt

from autoscaler.domain import Pod
from autoscaler.planner.draft import Draft
from autoscaler.planner.fairness import claim_of
from autoscaler.planner.job_draft import NO_OFFERS, JobDraft, Offers, Price
from autoscaler.planner.node_arrays import Mask, Numbers
from autoscaler.planner.rank import Rank

NOWHERE = np.iinfo(np.int64).max


class Supply:
    """The trainers that rank below `rank` (None: all) and may be taken; jobs from `spare_priority` up keep theirs."""

    def __init__(self, draft: Draft, rank: Rank | None, spare_priority: int | None) -> None:
        self.draft = draft
        self.rank = rank
        self.spare_priority = spare_priority
        self.seen = -1  # of `draft.changed_jobs`
        self.priced = -1  # likewise
        self.order: npt.NDArray[np.object_] = np.array([], dtype=np.object_)
        self.helping: dict[int, Sequence[JobDraft]] = {}
        self.jobs: list[JobDraft] = list(draft.jobs.values())
        self.numbers = {id(job): number for number, job in enumerate(self.jobs)}
        self.offers: list[Offers] = []
        self.prices: list[Price] = []  # all that there are, from the lowest
        self.ranks: list[int] = []  # by job: its price's place among them

    def bring_up_to_date(self) -> None:
        """Take in the jobs that have changed since the last time."""
        changed = self.draft.changed_jobs
        if self.seen == len(changed):
            return
        if self.seen < 0:
            self.offers = [self._offers_of(job) for job in self.jobs]
        else:
            for number in {self.numbers[id(job)] for job in changed[self.seen :]}:
                self.offers[number] = self._offers_of(self.jobs[number])
        self.seen = len(changed)
        self._index()

    def _offers_of(self, job: JobDraft) -> Offers:
        may_give = job.spare and (self.spare_priority is None or job.job.priority < self.spare_priority)
        return self.draft.offers(job, self.rank) if may_give else NO_OFFERS

    def _index(self) -> None:
        """Lay the offers of all jobs side by side, in groups of one job, node and shape."""
        rooms = self.draft.rooms
        places = np.concatenate([NO_OFFERS.places, *(offers.places for offers in self.offers)])
        shapes = np.concatenate([NO_OFFERS.shapes, *(offers.shapes for offers in self.offers)])
        givers = np.repeat(np.arange(len(self.jobs)), [len(offers.pods) for offers in self.offers])
        keys = (givers * len(rooms) + places) * len(self.draft.shapes) + shapes
        _, first, counts = np.unique(keys, return_index=True, return_counts=True)
        self.places, self.givers = places[first], givers[first]
        spare = np.array([job.spare for job in self.jobs], dtype=np.int64)[self.givers]
        self.units: Numbers = rooms.amounts_by_shape()[:, shapes[first]]
        self.given: Numbers = self.units * np.minimum(counts, spare).astype(rooms.kind)

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

    def look(self, order: Sequence[JobDraft]) -> None:
        """Prepare `who_helps` for the state as it is, with the jobs in this order."""
        self.bring_up_to_date()
        self.reach: Numbers = self.draft.rooms.later[:, self.places] + self.given
        self.order = np.array([*order], dtype=np.object_)
        places = {id(job): place for place, job in enumerate(order)}
        self.place_in_order = np.array([places.get(id(job), -1) for job in self.jobs], dtype=np.intp)[self.givers]
        self.helping.clear()

    def who_helps(self, shape: int) -> Sequence[JobDraft]:
        """The jobs with trainers on some node that would fit one more of the shape if they left, as of `look`."""
        if (jobs := self.helping.get(shape)) is None:
            helps = self.draft.rooms.accepted(shape)[self.places] & (self.place_in_order >= 0)
            for column, amount in enumerate(self.draft.shapes.amounts[shape]):
                if amount > 0:
                    helps &= (self.reach[column] >= amount).astype(np.bool_)
            is_there = np.zeros(len(self.order), dtype=np.bool_)
            is_there[self.place_in_order[helps]] = True
            jobs = self.helping[shape] = self.order[is_there].tolist()
        return jobs

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
    if not isinstance(supply, Supply):
        supply = draft.supplies[key] = Supply(draft, rank, spare_priority)
    return supply


def price_of(draft: Draft, job: JobDraft) -> Price:
    """Return how dear this job's trainers are beside those of other jobs."""
    age = job.job.checkpoint_age_s
    return (job.job.priority, -claim_of(draft, job), inf if age is None or isnan(age) else age)
