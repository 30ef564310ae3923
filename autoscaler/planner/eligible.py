"""Which nodes a shape's selector, affinity and tolerations allow, all at once: what `Node.accepts` says of one.

Who may make a pod chooses how many alternatives its affinity has and how many tolerations it lists, and each pod may
name others (A11).  So nodes are found by their labels: an alternative costs what it names, not a walk over the cluster.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from functools import reduce
from itertools import chain
from operator import and_
from typing import assert_never

import numpy as np

from autoscaler.domain import Node, Operator, Requirement, Shape, Taint
from autoscaler.domain.eligibility import NODE_NAME
from autoscaler.planner.node_arrays import Mask

Places = dict[str, list[int]]  # by value of one label: the nodes, by their place


class EligibleNodes:
    """The labels and taints of all nodes, by what they say."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._count = len(nodes)
        self._labels: dict[str, Places] = {}
        self._names: Places = {node.name: [at] for at, node in enumerate(nodes)}
        self._taints: dict[Taint, list[int]] = {}
        self._ordered: dict[str, tuple[list[int], list[int]]] = {}  # by label: its whole numbers, rising, and the nodes
        for at, node in enumerate(nodes):
            for key, value in node.labels:
                self._labels.setdefault(key, {}).setdefault(value, []).append(at)
            for taint in node.taints:
                self._taints.setdefault(taint, []).append(at)

    def accepting(self, shape: Shape) -> Mask:
        """The nodes that accept the shape, room apart."""
        mask = np.ones(self._count, dtype=np.bool_)
        for key, value in shape.node_selector:
            mask &= self._mask(self._labels.get(key, {}).get(value, ()))
        if shape.node_terms:
            mask &= self._in_any_term(shape)
        for taint, places in self._taints.items():
            if not any(toleration.tolerates(taint) for toleration in shape.tolerations):
                mask[places] = False
        return mask

    def _in_any_term(self, shape: Shape) -> Mask:
        mask = np.zeros(self._count, dtype=np.bool_)
        for term in shape.node_terms:
            if term:
                mask |= reduce(and_, map(self._fulfilling, term))
        return mask

    def _fulfilling(self, requirement: Requirement) -> Mask:
        """As `Requirement.holds`."""
        found = self._names if requirement.key == NODE_NAME else self._labels.get(requirement.key, {})
        match requirement.operator:
            case Operator.IN | Operator.NOT_IN:
                mask = self._mask(chain.from_iterable(found.get(value, ()) for value in requirement.values))
                return mask if requirement.operator is Operator.IN else ~mask
            case Operator.EXISTS | Operator.DOES_NOT_EXIST:
                mask = self._mask(chain.from_iterable(found.values()))
                return mask if requirement.operator is Operator.EXISTS else ~mask
            case Operator.GT | Operator.LT:
                return self._mask(self._beyond(requirement, found))
            case _:
                assert_never(requirement.operator)

    def _beyond(self, requirement: Requirement, found: Places) -> Sequence[int]:
        """The nodes whose label is a whole number on the right side of the one value."""
        bound = _number(requirement.values[0]) if len(requirement.values) == 1 else None
        if bound is None:
            return ()
        if requirement.key not in self._ordered:
            pairs = ((_number(value), at) for value, places in found.items() for at in places)
            ordered = sorted((number, at) for number, at in pairs if number is not None)
            self._ordered[requirement.key] = ([number for number, _ in ordered], [at for _, at in ordered])
        numbers, places = self._ordered[requirement.key]
        if requirement.operator is Operator.GT:
            return places[bisect_right(numbers, bound) :]
        return places[: bisect_left(numbers, bound)]

    def _mask(self, places: Iterable[int]) -> Mask:
        mask = np.zeros(self._count, dtype=np.bool_)
        mask[[*places]] = True
        return mask


def _number(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None
