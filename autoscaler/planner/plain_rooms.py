"""One room in plain numbers: what it holds, how many of it, what stays free.  On a node or two faster than arrays.

Amounts go by column; a shape that was numbered before a resource came has a shorter row, and asks for none of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from autoscaler.planner.node_arrays import PlainNode


def slacks_of(room: PlainNode, amounts: Sequence[int]) -> tuple[float, float]:
    """The part of the node that stays free, summed over the resources that are asked for: for a promise, a creation.

    `room`: by column what will be free, what is free, and what the node has in all.
    """
    slack, is_free = 0.0, True
    for amount, (later, free, divisor) in zip(amounts, room, strict=False):
        if amount > 0:
            if amount > later:
                return inf, inf
            if amount > free:
                is_free = False
            slack += (later - amount) / divisor
    return slack, slack if is_free else inf


def without_surplus(room: PlainNode, surplus: Sequence[int]) -> PlainNode:
    """The room as it would be if this surplus had left: the same sums as `Rooms.slack_without_surplus` has."""
    return [(later + more, free, whole) for (later, free, whole), more in zip(room, surplus, strict=True)]


def holds_amounts(room: Sequence[int], amounts: Sequence[int]) -> bool:
    """Whether a room holds these amounts."""
    for amount, offered in zip(amounts, room, strict=False):  # noqa: SIM110 - asked so often that a generator counts
        if amount > offered and amount > 0:
            return False
    return True


def copies_that_fit(room: Sequence[int], amounts: Sequence[int]) -> int:
    """How many pods fit side by side into a room; 0 if they ask for nothing, which would be endless."""
    counts = [offered // amount for amount, offered in zip(amounts, room, strict=False) if amount > 0]
    return max(0, min(counts, default=0))
