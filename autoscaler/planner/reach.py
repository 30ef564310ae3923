"""Which jobs could make room for one more pod of a shape, if their trainers on some node left: for transfers.

The jobs stand in an order, and whoever asks names how many of the first ones are a question at all.  As of the
instant at which it was made.  Who leaves a node at least cost is `supply`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autoscaler.planner.draft import Draft
from autoscaler.planner.job_draft import NO_OFFERS, Indices, JobDraft
from autoscaler.planner.node_arrays import Numbers


class Reach:
    """What each node could offer if all the trainers left that one of these jobs can spare there."""

    def __init__(self, draft: Draft, order: Sequence[JobDraft]) -> None:
        self._rooms = draft.rooms
        self._order = order
        rows = [NO_OFFERS.grouped(), *((draft.offers(job) if job.spare else NO_OFFERS).grouped() for job in order)]
        lengths = [columns.shape[1] for columns in rows[1:]]
        self._ends = np.cumsum([0, *lengths])  # by how many are asked about: rows that are theirs
        self._givers: Indices = np.repeat(np.arange(len(order)), lengths)
        spare = np.repeat(np.array([job.spare for job in order], dtype=np.intp), lengths)
        self._places, shapes, counts = np.concatenate(rows, axis=1)
        times = np.minimum(counts, spare).astype(draft.rooms.kind)
        given = draft.rooms.amounts_by_shape()[:, shapes] * times
        self._reach: Numbers = draft.rooms.later[:, self._places] + given

    def who(self, shape: int, first: int) -> Sequence[JobDraft]:
        """Of the first so many jobs those with trainers on a node that would hold one more of the shape without."""
        end = int(self._ends[first])
        helps = self._rooms.accepted(shape)[self._places[:end]]
        for column, amount in enumerate(self._rooms.asked_amounts(shape)):
            if amount > 0:
                helps &= (self._reach[column, :end] >= amount).astype(np.bool_)
        is_there = np.zeros(first, dtype=np.bool_)
        is_there[self._givers[:end][helps]] = True
        return [self._order[place] for place in np.flatnonzero(is_there).tolist()]
