"""Every shape of a plan gets a number, and every resource a column: the planner's arrays go by both.

A resource that no node offers has no column of its own: whoever may make a pod may name ten thousand of them, and each
column is as long as the cluster (A11).  They share one, of which no node has any.

Amounts stay whole numbers.  They are 64-bit while nothing can overflow, else Python's own, which are slower and endless
(ADR 0112).  Next: `rooms`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from math import inf
from typing import Final

from autoscaler.domain import NOTHING, Node, Pod, Resources, Shape, TrainerSpec

BUILT_IN: Final = ("cpu", "memory", "gpu")
UNOFFERED: Final = "what no node offers"
KNOWN_LIMIT: Final = 50_000  # objects remembered by identity; an adapter that makes shapes anew each time ends here
ColumnAmounts = tuple[int, ...]
PlainNode = list[tuple[int, int, int]]  # by column: what will be free, what is free, and what the node has in all
Claim = tuple[object, ...]  # selector, terms and tolerations: what decides which nodes accept a shape


class Shapes:
    """Numbers for shapes.  Equal shapes have one number, whatever objects they are."""

    def __init__(self, offered: AbstractSet[str]) -> None:
        """`offered`: the resources that nodes have, built-in ones apart."""
        self.offered = offered
        self.columns: list[str] = list(BUILT_IN)
        self.shapes: list[Shape] = []
        self.amounts: list[ColumnAmounts] = []  # by number; shorter where later shapes brought new columns
        self.largest = 0
        self._numbers: dict[Shape, int] = {}
        self.known: dict[int, int] = {}  # numbers by identity: hashing a shape costs more than all the rest
        self._held: list[Shape] = []  # holding the objects keeps their identities from being given away

    def number(self, shape: Shape) -> int:
        """Return the number of the shape, a new one for a new shape."""
        known = self.known.get(id(shape))
        if known is not None:
            return known
        number = self._numbers.get(shape)
        if number is None:
            number = self._add(shape)
        if len(self._held) > KNOWN_LIMIT:
            self.known.clear()
            self._held.clear()
        self.known[id(shape)] = number
        self._held.append(shape)
        return number

    def numbers_of(self, pods: Sequence[Pod]) -> list[int]:
        """Return the numbers of what pods ask for."""
        known = self.known
        try:
            return [known[id(pod.shape)] for pod in pods]
        except KeyError:
            return [self.number(pod.shape) for pod in pods]

    def _add(self, shape: Shape) -> int:
        requests = shape.requests
        asked = tuple((name, amount) for name, amount in requests.extended if name in self.offered)
        if len(asked) < len(requests.extended):
            asked = (*asked, (UNOFFERED, 1))
        self.columns += [name for name, _ in asked if name not in self.columns]
        amounts = amounts_of(replace(requests, extended=asked), self.columns)
        self.largest = max(self.largest, *map(abs, amounts))
        number = self._numbers[shape] = len(self.shapes)
        self.shapes.append(shape)
        self.amounts.append(amounts)
        return number

    def __len__(self) -> int:
        return len(self.shapes)


def offered_by(nodes: Iterable[Node]) -> frozenset[str]:
    """Return the resources that the nodes have, built-in ones apart."""
    return frozenset(name for node in nodes for name, _ in node.allocatable.extended)


def amounts_of(resources: Resources, columns: list[str]) -> ColumnAmounts:
    """Return the amounts by column.  What no shape asks for has no column and decides nothing."""
    built_in = (resources.cpu_milli, resources.memory_bytes, resources.gpu_count)
    if len(columns) == len(BUILT_IN):
        return built_in
    extended = dict(resources.extended)
    return (*built_in, *(extended.get(name, 0) for name in columns[len(BUILT_IN) :]))


def claim_of(shape: Shape) -> Claim:
    """Return what decides which nodes accept the shape."""
    return (shape.node_selector, shape.node_terms, shape.tolerations)


def unit_of(trainer: TrainerSpec) -> Shape:
    """Return what all the trainers of one node ask for together."""
    one = trainer.shape
    return Shape(
        requests=NOTHING.plus(one.requests, times=trainer.per_node),
        node_selector=one.node_selector,
        node_terms=one.node_terms,
        tolerations=one.tolerations,
    )


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


def sort_key(shape: Shape) -> tuple[object, ...]:
    """An order of shapes that does not depend on how they came (A5)."""
    return (
        tuple(shape.requests.amounts()),
        sorted(shape.node_selector),
        repr(shape.node_terms),
        repr(sorted(map(repr, shape.tolerations))),
    )
