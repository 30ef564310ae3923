"""Shapes by number and resources by column, which all of the planner's arrays go by.

A resource that no node offers has no column of its own: users may name ten thousand of them, and each column is as long
as the cluster (A11). Such resources share one column, of which no node has any.

Amounts are integers. They are 64-bit while nothing can overflow, else Python's own, which are slower and unbounded
(ADR 0112). The functions at the end are arithmetic on one node, which is faster than arrays for a few nodes; a shape
that was numbered before a resource came has a shorter row, and requests none of it.
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
KNOWN_LIMIT: Final = 50_000  # objects known by identity, for an adapter that makes new shapes each time
ColumnAmounts = tuple[int, ...]
PlainNode = list[tuple[int, int, int]]  # by column: what will be free, what is free, and what the node has in all
EligibilityKey = tuple[object, ...]  # selector, terms and tolerations: what decides which nodes accept a shape


class Shapes:
    """Numbers of shapes. Equal shapes have one number, whatever objects they are."""

    def __init__(self, offered: AbstractSet[str]) -> None:
        """`offered`: the extended resources that nodes have."""
        self.offered = offered
        self.columns: list[str] = list(BUILT_IN)
        self.shapes: list[Shape] = []
        self.amounts: list[ColumnAmounts] = []  # by number; shorter where later shapes brought new columns
        self.largest = 0
        self._numbers: dict[Shape, int] = {}
        self.known: dict[int, int] = {}  # numbers by identity: hashing a shape costs more than all the rest
        self._held: list[Shape] = []  # keeps the objects alive, so that no other gets their identity

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
        known = self.known
        try:
            return [known[id(pod.shape)] for pod in pods]
        except KeyError:
            return [self.number(pod.shape) for pod in pods]

    def _add(self, shape: Shape) -> int:
        requests = shape.requests
        extended = tuple((name, amount) for name, amount in requests.extended if name in self.offered)
        if len(extended) < len(requests.extended):
            extended = (*extended, (UNOFFERED, 1))
        self.columns += [name for name, _ in extended if name not in self.columns]
        amounts = amounts_of(replace(requests, extended=extended), self.columns)
        self.largest = max(self.largest, *map(abs, amounts))
        number = self._numbers[shape] = len(self.shapes)
        self.shapes.append(shape)
        self.amounts.append(amounts)
        return number

    def __len__(self) -> int:
        return len(self.shapes)


def offered_by(nodes: Iterable[Node]) -> frozenset[str]:
    """Return the extended resources that the nodes have."""
    return frozenset(name for node in nodes for name, _ in node.allocatable.extended)


def amounts_of(resources: Resources, columns: list[str]) -> ColumnAmounts:
    """Return the amounts by column. A resource that no shape requests has no column and decides nothing."""
    built_in = (resources.cpu_milli, resources.memory_bytes, resources.gpu_count)
    if len(columns) == len(BUILT_IN):
        return built_in
    extended = dict(resources.extended)
    return (*built_in, *(extended.get(name, 0) for name in columns[len(BUILT_IN) :]))


def eligibility_key(shape: Shape) -> EligibilityKey:
    """Return what decides which nodes accept the shape: selector, affinity terms and tolerations."""
    return (shape.node_selector, shape.node_terms, shape.tolerations)


def unit_of(trainer: TrainerSpec) -> Shape:
    """Return the shape that all trainers of one node are together."""
    one = trainer.shape
    return Shape(
        requests=NOTHING.plus(one.requests, times=trainer.per_node),
        node_selector=one.node_selector,
        node_terms=one.node_terms,
        tolerations=one.tolerations,
    )


def slacks_of(node: PlainNode, amounts: Sequence[int]) -> tuple[float, float]:
    """Slacks of a node for one pod (reserved, created): free part after placing it, summed over its resources.

    `node`: by column what is free later, what is free now, and what the node has in all. Infinity where the pod does
    not fit.
    """
    slack, is_free = 0.0, True
    for amount, (later, free, divisor) in zip(amounts, node, strict=False):
        if amount > 0:
            if amount > later:
                return inf, inf
            if amount > free:
                is_free = False
            slack += (later - amount) / divisor
    return slack, slack if is_free else inf


def without_surplus(node: PlainNode, surplus: Sequence[int]) -> PlainNode:
    """Return a node's free amounts without this surplus, summed as `FreeCapacity.slack_without_surplus` sums."""
    return [(later + more, free, whole) for (later, free, whole), more in zip(node, surplus, strict=True)]


def amounts_fit(free: Sequence[int], amounts: Sequence[int]) -> bool:
    """True if the free amounts hold these amounts."""
    for amount, offered in zip(amounts, free, strict=False):  # noqa: SIM110 - called so often that a generator counts
        if amount > offered and amount > 0:
            return False
    return True


def copies_that_fit(free: Sequence[int], amounts: Sequence[int]) -> int:
    """Return how many pods fit together into the free amounts; 0 if they request nothing, which would be endless."""
    counts = [offered // amount for amount, offered in zip(amounts, free, strict=False) if amount > 0]
    return max(0, min(counts, default=0))


def sort_key(shape: Shape) -> tuple[object, ...]:
    """Return a sort key of shapes that does not depend on the order in which they came (A5)."""
    return (
        tuple(shape.requests.amounts()),
        sorted(shape.node_selector),
        repr(shape.node_terms),
        repr(sorted(map(repr, shape.tolerations))),
    )
