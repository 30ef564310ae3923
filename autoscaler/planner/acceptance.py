"""Where a shape may go, and whether a node holds it: yes or no, nothing weighed and nothing kept but labels.

Shapes with the same selector, affinity and tolerations are one claim, and a claim is compared with the labels and
taints of all nodes once.  What is kept of the fits themselves is `rooms`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from autoscaler.domain import Node
from autoscaler.planner.eligible import EligibleNodes
from autoscaler.planner.node_arrays import Mask, NodeArrays, Numbers
from autoscaler.planner.plain_rooms import holds_amounts
from autoscaler.planner.shapes import Claim, Shapes, claim_of


class Acceptance(NodeArrays):
    """The nodes, and which of them accept and hold what."""

    def __init__(self, nodes: Sequence[Node], shapes: Shapes, *, pod_count: int) -> None:
        super().__init__(nodes, shapes, pod_count=pod_count)
        self._eligible = EligibleNodes(nodes)
        self._masks: list[Mask] = []  # nodes that accept a claim
        self._claim_numbers: dict[Claim, int] = {}
        self._claims: list[int] = []  # by shape: which of the masks is its own
        self._empty_fits: dict[int, bool] = {}

    def replace_node(self, node: Node) -> bool:
        """As for the arrays; what empty nodes would hold is looked up anew."""
        self._empty_fits.clear()
        return super().replace_node(node)

    def accepted(self, shape: int) -> Mask:
        """The nodes whose labels and taints allow the shape, closed ones too."""
        if shape >= len(self._claims):
            self._learn_claims()
        return self._masks[self._claims[shape]]

    def _learn_claims(self) -> None:
        """Take in the shapes that have come since the last time."""
        for wanted in self.shapes.shapes[len(self._claims) :]:
            claim = claim_of(wanted)
            if claim not in self._claim_numbers:
                self._claim_numbers[claim] = len(self._masks)
                self._masks.append(self._eligible.accepting(wanted))
            self._claims.append(self._claim_numbers[claim])

    def capacity(self, shape: int) -> tuple[int, ...]:
        """What the ready nodes that accept the shape hold in total, by column."""
        which = self.accepted(shape) & self.is_ready
        return tuple(int(row[which].sum()) for row in self.whole)

    def fits_empty(self, shape: int) -> bool:
        """Whether any node of the cluster, empty, could hold the shape."""
        if (answer := self._empty_fits.get(shape)) is None:
            answer = self._empty_fits[shape] = bool((self.accepted(shape) & self.holds(self.whole, shape)).any())
        return answer

    def holds(self, amounts: Numbers, shape: int) -> Mask:
        """The nodes where these amounts hold one such pod.  A zero request fits anywhere."""
        mask = np.ones(amounts.shape[1], dtype=np.bool_)
        for column, amount in enumerate(self.shapes.amounts[shape]):
            if amount > 0:
                mask &= (amounts[column] >= amount).astype(np.bool_)
        return mask

    def fits(self, at: int, shape: int, *, now: bool) -> bool:
        """Whether one such pod fits on this node: with `now` for a creation, without for a promise."""
        if not (self.is_open[at] and self.accepted(shape)[at]):
            return False
        amounts = self.shapes.amounts[shape]
        if not holds_amounts(self.later[:, at].tolist(), amounts):
            return False
        return not now or holds_amounts(self.free[:, at].tolist(), amounts)

    def fits_now(self, at: int, shape: int) -> bool:
        """Whether one such pod can be created on the node, whatever has been promised there."""
        is_allowed = self.is_open[at] and self.accepted(shape)[at]
        return bool(is_allowed) and holds_amounts(self.free[:, at].tolist(), self.shapes.amounts[shape])

    def fits_without(self, at: int, shape: int, gone: Iterable[int]) -> bool:
        """Whether one such pod fits on the node, for a promise, once pods of these shapes are gone."""
        room = self.later[:, at].tolist()
        for other in gone:
            room = [amount + more for amount, more in zip(room, self.asked_amounts(other), strict=True)]
        return holds_amounts(room, self.shapes.amounts[shape])
