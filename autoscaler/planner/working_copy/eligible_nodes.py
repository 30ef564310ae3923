"""Eligible nodes of a shape (selector, affinity, tolerations), and which of them have capacity for it.

`EligibleNodes` answers for all nodes at once what `Node.accepts` says of one. Users choose how many alternatives an
affinity has and how many tolerations a pod lists, and each pod may name others (A11). So nodes are found by their
labels: masks of common values are kept, repeated terms are looked up once, and the search ends when all nodes are
found. Shapes with the same selector, affinity and tolerations are compared with the nodes once (`eligibility_key`). How
tightly shapes fit is kept in `free_capacity`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import chain
from typing import Final, assert_never

import numpy as np
import numpy.typing as npt

from autoscaler.domain import LabelOperator, Node, Requirement, Shape, Taint
from autoscaler.domain.eligibility import NODE_NAME
from autoscaler.planner.working_copy.node_arrays import Mask, NodeArrays, Numbers
from autoscaler.planner.working_copy.shapes import EligibilityKey, Shapes, amounts_fit, copies_that_fit, eligibility_key

SHARED: Final = 16
"""A value that one node in this many has is kept as a mask: at most this many masks for one label."""


class LabelIndex:
    """The nodes that have one label, by its value."""

    def __init__(self, count: int) -> None:
        """`count`: all nodes, with the label or without it."""
        self._count = count
        self._places: dict[str, list[int]] = {}
        self._shared: dict[str, Mask] = {}

    def add(self, value: str, at: int) -> None:
        """Add a node; all are added before the first query."""
        self._places.setdefault(value, []).append(at)

    def having(self, values: Iterable[str]) -> Mask:
        """Return the nodes with one of these values. Not to be changed."""
        found = {value: places for value in values if (places := self._places.get(value))}
        shared = [self._shared_mask(value) for value, places in found.items() if len(places) * SHARED >= self._count]
        few = [places for places in found.values() if len(places) * SHARED < self._count]
        if len(shared) == 1 and not few:
            return shared[0]
        mask = mask_of(chain.from_iterable(few), self._count)
        for one in shared:
            mask |= one
        return mask

    @cached_property
    def present(self) -> Mask:
        """The nodes with any value. Not to be changed."""
        return mask_of(chain.from_iterable(self._places.values()), self._count)

    def beyond(self, bound: int, *, above: bool) -> Mask:
        """Return the nodes whose value is an integer above the bound, or below it."""
        numbers, places = self._ordered
        mask = np.zeros(self._count, dtype=np.bool_)
        mask[places[bisect_right(numbers, bound) :] if above else places[: bisect_left(numbers, bound)]] = True
        return mask

    def _shared_mask(self, value: str) -> Mask:
        if value not in self._shared:
            self._shared[value] = mask_of(self._places[value], self._count)
        return self._shared[value]

    @cached_property
    def _ordered(self) -> tuple[list[int], npt.NDArray[np.intp]]:
        """The integer values, rising, and their nodes."""
        pairs = ((_number(value), at) for value, places in self._places.items() for at in places)
        ordered = sorted((number, at) for number, at in pairs if number is not None)
        return [number for number, _ in ordered], np.array([at for _, at in ordered], dtype=np.intp)


class EligibleNodes:
    """The labels and taints of all nodes, by key and value."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._count = len(nodes)
        self._labels: dict[str, LabelIndex] = {}
        self._names = LabelIndex(len(nodes))
        self._nowhere = LabelIndex(len(nodes))
        self._taints: dict[Taint, list[int]] = {}
        for at, node in enumerate(nodes):
            self._names.add(node.name, at)
            for key, value in node.labels:
                if key not in self._labels:
                    self._labels[key] = LabelIndex(len(nodes))
                self._labels[key].add(value, at)
            for taint in node.taints:
                self._taints.setdefault(taint, []).append(at)

    def accepting(self, shape: Shape) -> Mask:
        """Return the nodes that accept the shape, capacity aside."""
        mask = np.ones(self._count, dtype=np.bool_)
        for key, value in shape.node_selector:
            mask &= self._labels.get(key, self._nowhere).having([value])
        if shape.node_terms:
            mask &= self._in_any_term(shape)
        for taint, places in self._taints.items():
            if not any(toleration.tolerates(taint) for toleration in shape.tolerations):
                mask[places] = False
        return mask

    def _in_any_term(self, shape: Shape) -> Mask:
        mask = np.zeros(self._count, dtype=np.bool_)
        for term in dict.fromkeys(map(frozenset, shape.node_terms)):
            if mask.all():
                break
            if term:
                mask |= self._fulfilling_all(term)
        return mask

    def _fulfilling_all(self, term: Iterable[Requirement]) -> Mask:
        mask = np.ones(self._count, dtype=np.bool_)
        for requirement in term:
            mask &= self._fulfilling(requirement)
            if not mask.any():
                break
        return mask

    def _fulfilling(self, requirement: Requirement) -> Mask:
        """Return the nodes for which `Requirement.holds`."""
        is_name = requirement.key == NODE_NAME
        found = self._names if is_name else self._labels.get(requirement.key, self._nowhere)
        match requirement.operator:
            case LabelOperator.IN:
                return found.having(requirement.values)
            case LabelOperator.NOT_IN:
                return ~found.having(requirement.values)
            case LabelOperator.EXISTS:
                return found.present
            case LabelOperator.DOES_NOT_EXIST:
                return ~found.present
            case LabelOperator.GT | LabelOperator.LT:
                bound = _number(requirement.values[0]) if len(requirement.values) == 1 else None
                if bound is None:
                    return np.zeros(self._count, dtype=np.bool_)
                return found.beyond(bound, above=requirement.operator is LabelOperator.GT)
            case _:
                assert_never(requirement.operator)


def mask_of(places: Iterable[int], count: int) -> Mask:
    """Return the mask over `count` nodes in which these are set."""
    mask = np.zeros(count, dtype=np.bool_)
    mask[[*places]] = True
    return mask


def _number(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None


class NodeFit(NodeArrays):
    """The nodes, and which of them accept and hold which shapes."""

    def __init__(self, nodes: Sequence[Node], shapes: Shapes, *, pod_count: int) -> None:
        super().__init__(nodes, shapes, pod_count=pod_count)
        self._eligible = EligibleNodes(nodes)
        self._masks: list[Mask] = []  # nodes that accept the shapes of a key
        self._key_numbers: dict[EligibilityKey, int] = {}
        self._keys: list[int] = []  # by shape: the number of its mask
        self._empty_fits: dict[int, bool] = {}

    def replace_node(self, node: Node) -> bool:
        """Replace the node's values; what empty nodes would hold is computed again."""
        self._empty_fits.clear()
        return super().replace_node(node)

    def accepted(self, shape: int) -> Mask:
        """Return the nodes whose labels and taints allow the shape, closed ones too."""
        if shape >= len(self._keys):
            self._learn_keys()
        return self._masks[self._keys[shape]]

    def _learn_keys(self) -> None:
        """Add the shapes that have come since the last call."""
        for wanted in self.shapes.shapes[len(self._keys) :]:
            key = eligibility_key(wanted)
            if key not in self._key_numbers:
                self._key_numbers[key] = len(self._masks)
                self._masks.append(self._eligible.accepting(wanted))
            self._keys.append(self._key_numbers[key])

    def ready_capacity_of(self, shape: int) -> tuple[int, ...]:
        """Return what the ready nodes that accept the shape hold in total, by column."""
        which = self.accepted(shape) & self.is_ready
        return tuple(int(row[which].sum()) for row in self.allocatable)

    def fits_empty(self, shape: int) -> bool:
        """True if any node of the cluster, if it were empty, could hold the shape."""
        if (answer := self._empty_fits.get(shape)) is None:
            answer = self._empty_fits[shape] = bool((self.accepted(shape) & self.holds(self.allocatable, shape)).any())
        return answer

    def holds(self, amounts: Numbers, shape: int) -> Mask:
        """Return the nodes where these amounts hold one such pod. A zero request fits anywhere."""
        mask = np.ones(amounts.shape[1], dtype=np.bool_)
        for column, amount in enumerate(self.shapes.amounts[shape]):
            if amount > 0:
                mask &= (amounts[column] >= amount).astype(np.bool_)
        return mask

    def fits(self, at: int, shape: int, *, now: bool) -> bool:
        """True if one such pod fits on this node: created `now`, or reserved."""
        if not (self.is_open[at] and self.accepted(shape)[at]):
            return False
        amounts = self.shapes.amounts[shape]
        if not amounts_fit(self.later[:, at].tolist(), amounts):
            return False
        return not now or amounts_fit(self.free[:, at].tolist(), amounts)

    def fits_now(self, at: int, shape: int) -> bool:
        """True if one such pod can be created on the node, whatever has been reserved there."""
        is_allowed = self.is_open[at] and self.accepted(shape)[at]
        return bool(is_allowed) and amounts_fit(self.free[:, at].tolist(), self.shapes.amounts[shape])

    def fits_without(self, at: int, shape: int, gone: Iterable[int]) -> bool:
        """True if one such pod could be reserved on the node once pods of these shapes are gone."""
        return amounts_fit(self._later_without(at, gone), self.shapes.amounts[shape])

    def copies_without(self, at: int, shape: int, gone: Iterable[int]) -> int:
        """Return how many such pods could then be reserved there; 0 for a shape that requests nothing."""
        return copies_that_fit(self._later_without(at, gone), self.shapes.amounts[shape])

    def _later_without(self, at: int, gone: Iterable[int]) -> list[int]:
        free: list[int] = self.later[:, at].tolist()
        for other in gone:
            free = [amount + more for amount, more in zip(free, self.request_amounts(other), strict=True)]
        return free
