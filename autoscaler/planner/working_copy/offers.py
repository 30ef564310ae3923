"""Offers: a job's trainers that may be taken, in removal order, as arrays of nodes and shapes.

Which trainers those are, and in which order they leave, is `ranks`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Final

import numpy as np
import numpy.typing as npt

from autoscaler.domain import Pod, PodName

IntArray = npt.NDArray[np.intp]
name_of: Final = attrgetter("name")


@dataclass(slots=True, eq=False)
class Offers:
    """A job's trainers that may be taken, in removal order, with their nodes and shapes."""

    pods: tuple[Pod, ...]
    places: IntArray
    shapes: IntArray
    pairs: IntArray | None = None  # `grouped`, computed on demand

    def grouped(self) -> IntArray:
        """Return one column for each node and shape that occurs: node, shape, and how many."""
        if self.pairs is None:
            beyond = 1 + int(self.shapes.max(initial=0))
            kinds, counts = np.unique(self.places * beyond + self.shapes, return_counts=True)
            self.pairs = np.stack([kinds // beyond, kinds % beyond, counts]).astype(np.intp)
        return self.pairs

    def without(self, gone: Collection[PodName]) -> Offers:
        """Return the others of these trainers."""
        cut, pods = places_of(self.pods, gone), list(self.pods)
        cut_out(pods, gone)
        return Offers(tuple(pods), np.delete(self.places, cut), np.delete(self.shapes, cut))

    def at(self, place: int) -> list[Pod]:
        """Return the trainers on one node."""
        return [self.pods[index] for index in np.flatnonzero(self.places == place).tolist()]


def places_of(pods: Sequence[Pod], names: Collection[PodName]) -> list[int]:
    """Return where the pods of these names stand."""
    return [index for index, name in enumerate(map(name_of, pods)) if name in names]


def cut_out(pods: list[Pod], names: Collection[PodName]) -> list[PodName]:
    """Take the pods of these names out of the list, and return which were there. Costs little where they are few."""
    return [pods.pop(index).name for index in reversed(places_of(pods, names))]


NO_OFFERS = Offers((), np.zeros(0, dtype=np.intp), np.zeros(0, dtype=np.intp))
