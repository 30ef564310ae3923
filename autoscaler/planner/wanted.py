"""Which pods the jobs still want, as the patterns by which nodes are filled (`patterns`).

A running job wants trainers up to its maximum, and servers where their number follows; a waiting one wants all of its
pods.  Few shapes are enough to tell what a room is good for, and the time to fill a room grows with each: the ones
that ask for most of the cluster count.  What a pod is worth is its dominant part of the cluster, in whole numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import gcd, lcm
from typing import Final

from autoscaler.domain import Resources, Shape

MOST_KINDS: Final = 4
"""Shapes that are looked at.  The 2017 jobs have three: trainer, server, master."""


def most_wanted(wanted: Mapping[Shape, int], capacity: Resources) -> tuple[tuple[Shape, int], ...]:
    """Return the few shapes of which most of the cluster is wanted, and the worth of one pod of each.

    `wanted`: how many pods of the shape the jobs would take; what none of the cluster's resources holds is left out.
    Worths have no unit: they compare with one another, exactly.
    """
    worths = worths_of(wanted, capacity)
    kinds = [shape for shape, count in wanted.items() if count > 0 and worths[shape] > 0]
    kinds.sort(key=lambda shape: (-wanted[shape] * worths[shape], sort_key(shape)))
    return tuple((shape, worths[shape]) for shape in kinds[:MOST_KINDS])


def worths_of(shapes: Iterable[Shape], capacity: Resources) -> dict[Shape, int]:
    """Return each shape's dominant part of the capacity, as whole numbers in one unit."""
    held = {name: amount for name, amount in capacity.amounts() if amount > 0 and name != "pods"}
    whole = lcm(*held.values())
    worths = {
        shape: max(
            (amount * (whole // held[name]) for name, amount in shape.requests.amounts() if name in held), default=0
        )
        for shape in shapes
    }
    common = gcd(*worths.values()) or 1
    return {shape: worth // common for shape, worth in worths.items()}


def sort_key(shape: Shape) -> tuple[object, ...]:
    """An order of shapes that does not depend on how they came (A5)."""
    return (
        tuple(shape.requests.amounts()),
        sorted(shape.node_selector),
        repr(shape.node_terms),
        repr(sorted(map(repr, shape.tolerations))),
    )
