"""Where surplus could give way, over the whole cluster: which node to look at first.

For one pod, a node's cost has a floor that arrays can tell: so many trainers at least must leave (what is lacking, by
the largest trainer there), and the cheapest job on it has this price.  `victims` looks at nodes in the order of that
floor and stops where no node can be cheaper, so it is exact and looks at few.
"""

from __future__ import annotations

from math import inf, isnan

import numpy as np
import numpy.typing as npt

from autoscaler.planner.draft import Draft
from autoscaler.planner.job_draft import JobDraft, Offers, Price
from autoscaler.planner.rank import Rank
from autoscaler.planner.rooms import Mask, Numbers

NOWHERE = np.iinfo(np.int64).max


class Supply:
    """The trainers that rank below `rank` and may be taken, by node; jobs from `spare_priority` up keep theirs."""

    def __init__(self, draft: Draft, rank: Rank, spare_priority: int | None) -> None:
        self.draft = draft
        self.rank = rank
        self.spare_priority = spare_priority
        self.seen = -1  # of `draft.changed_jobs`
        self.offers: dict[int, Offers] = {}  # by number of the job
        self.price: list[Price] = []
        self.jobs: list[JobDraft] = list(draft.jobs.values())
        self.numbers = {id(job): number for number, job in enumerate(self.jobs)}

    def bring_up_to_date(self) -> None:
        """Take in the jobs that have changed since the last time."""
        changed = self.draft.changed_jobs
        if self.seen == len(changed):
            return
        if self.seen < 0:
            self.price = [price_of(self.draft, job) for job in self.jobs]
            news = [*range(len(self.jobs))]
        else:
            news = sorted({self.numbers[id(job)] for job in changed[self.seen :]})
        for number in news:
            job = self.jobs[number]
            self.price[number] = price_of(self.draft, job)
            may_give = job.spare and (self.spare_priority is None or job.job.priority < self.spare_priority)
            self.offers[number] = self.draft.offers(job, self.rank) if may_give else ()
        self.seen = len(changed)
        self._index()

    def _index(self) -> None:
        rooms = self.draft.rooms
        ranks = {price: rank for rank, price in enumerate(sorted(set(self.price)))}
        rank_of_job = np.array([ranks[price] for price in self.price], dtype=np.int64)
        self.prices = [*ranks]
        offering = [(number, offers) for number, offers in self.offers.items() if offers]
        self.places = np.array([at for _, offers in offering for at, _, _ in offers], dtype=np.intp)
        self.givers = np.repeat(
            np.array([number for number, _ in offering], dtype=np.intp), [len(offers) for _, offers in offering]
        )
        shapes = np.array([shape for _, offers in offering for _, shape, _ in offers], dtype=np.intp)
        counts = [min(len(pods), self.jobs[number].spare) for number, offers in offering for _, _, pods in offers]
        amounts = rooms.amounts_by_shape()
        self.largest: Numbers = np.zeros_like(rooms.later)
        self.total: Numbers = np.zeros_like(rooms.later)
        self.cheapest = np.full(len(rooms), len(self.prices), dtype=np.int64)
        if len(self.places):
            for column, row in enumerate(amounts):
                np.maximum.at(self.largest[column], self.places, row[shapes])
                np.add.at(self.total[column], self.places, row[shapes] * np.array(counts, dtype=rooms.kind))
            np.minimum.at(self.cheapest, self.places, rank_of_job[self.givers])

    def floors(self, shape: int, avoid: Mask | None) -> npt.NDArray[np.int64]:
        """The least that each node can cost, as one number that compares; NOWHERE where nothing can help."""
        self.bring_up_to_date()
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

    def at(self, place: int) -> list[tuple[JobDraft, tuple[Price, Offers]]]:
        """Who offers what on a node: (job, (its price, its offers there)), jobs in the order of their names."""
        numbers = self.givers[np.flatnonzero(self.places == place)].tolist()
        return [
            (self.jobs[number], (self.price[number], tuple(o for o in self.offers[number] if o[0] == place)))
            for number in dict.fromkeys(numbers)
        ]


def supply_for(draft: Draft, rank: Rank, spare_priority: int | None) -> Supply:
    """Return the draft's supply of this kind: made once a plan, brought up to date when asked."""
    key = (rank, spare_priority)
    supply = draft.supplies.get(key)
    if not isinstance(supply, Supply):
        supply = draft.supplies[key] = Supply(draft, rank, spare_priority)
    return supply


def price_of(draft: Draft, job: JobDraft) -> Price:
    """Return how dear this job's trainers are beside those of other jobs."""
    age = job.job.checkpoint_age_s
    return (job.job.priority, -draft.share(job), inf if age is None or isnan(age) else age)
