"""Free capacity: where each shape fits, and how tightly.

Each shape that is queried has a `Fitting`, which is updated for the nodes touched since the last
question. So a placement costs a few nodes' arithmetic and one search for a minimum, not a division over the cluster.
What nodes have is `node_arrays`, which nodes accept a shape is `eligible_nodes`, which node is taken is `placement`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import compress, islice
from math import inf
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from autoscaler.domain import Node
from autoscaler.planner.working_copy.eligible_nodes import NodeFit
from autoscaler.planner.working_copy.node_arrays import Mask, Numbers
from autoscaler.planner.working_copy.shapes import Shapes, copies_that_fit, slacks_of

NodeScores = npt.NDArray[np.float64]

BY_ONES: Final = 24  # touched nodes; up to this many, plain numbers are faster than arrays
NODES_AT_ONCE: Final = 512  # compared with a shape at once, in the order of names
TOUCHED_LIMIT: Final = 16  # times the nodes: the longest list of touched ones that is kept
FEW_NODES: Final = 128  # touched nodes; up to this many are compared with all shapes at once


class Fitting:
    """Fit of one shape: its slack by node, infinite where it does not fit."""

    def __init__(self, accepted: Mask) -> None:
        self.accepted = accepted
        self.later: NodeScores = np.empty(0)
        self.now: NodeScores = np.empty(0)
        self.seen = -1  # how many of the touched nodes it accounts for; -1: not computed
        self.best: dict[bool, int] = {}  # the tightest node now and later; -1: none; absent: not searched

    def scores(self, *, now: bool) -> NodeScores:
        """Return the slack by node, for a pod created `now` or reserved."""
        return self.now if now else self.later

    def put(self, at: int, score: float, *, now: bool) -> None:
        """Write one node's score, and keep the tightest node if it is still known."""
        scores = self.now if now else self.later
        if scores[at] == score:
            return
        best = self.best.get(now)
        if best == at:
            if score > scores[at]:
                del self.best[now]
        elif best is not None and score < inf and (best < 0 or (score, at) < (scores[best], best)):
            self.best[now] = at
        scores[at] = score


class FreeCapacity(NodeFit):
    """The nodes, and where on them shapes fit."""

    def __init__(self, nodes: Sequence[Node], shapes: Shapes, *, pod_count: int) -> None:
        super().__init__(nodes, shapes, pod_count=pod_count)
        self._fittings: dict[int, Fitting] = {}
        self._emptied: FreeCapacity | None = None
        self._vacant: dict[tuple[int, int], tuple[tuple[int, ...], int, int]] = {}  # nodes, up to where, at which touch
        self._unplaceable: set[int] = set()  # shapes that cannot be reserved anywhere, but perhaps on ...
        self._changed: set[int] = set()  # ... nodes that were touched since the set was begun, up to ...
        self._changed_seen = 0  # ... so many touches

    def emptied(self) -> FreeCapacity:
        """The same nodes without pods; callers must leave them empty."""
        if self._emptied is None:
            self._emptied = FreeCapacity(self.nodes, self.shapes, pod_count=self.pod_limit)
        return self._emptied

    def copies(self, shape: int) -> int:
        """Return how many pods of the shape could be reserved on the open nodes; 0 for a shape that requests
        nothing."""
        if self.tightest(shape, now=False) < 0:
            return 0
        where = np.flatnonzero(self.fitting(shape).later < inf).tolist()
        return sum(copies_that_fit(self.later[:, at].tolist(), self.shapes.amounts[shape]) for at in where)

    def copies_without_surplus(self, shape: int) -> int | None:
        """Return how many such pods the open nodes could hold without surplus; None, any number, if it requests
        nothing."""
        return self.copies_among(self.later + self.surplus, shape)

    def copies_among(self, amounts: Numbers, shape: int, avoid: Mask | None = None) -> int | None:
        """Return how many such pods these amounts hold on the open nodes that are not to be avoided; None, any number,
        if it requests nothing."""
        counts = self.copies_in(amounts, shape)
        if counts is None:
            return None
        which = self.accepted(shape) & self.is_open
        return int(counts[which if avoid is None else which & ~avoid].sum())

    def copies_in(self, amounts: Numbers, shape: int) -> Numbers | None:
        """Return by node how many such pods these amounts hold; None, any number, if it requests nothing."""
        counts: Numbers | None = None
        for column, amount in enumerate(self.shapes.amounts[shape]):
            if amount > 0:
                there = np.maximum(amounts[column], 0) // amount
                counts = there if counts is None else np.minimum(counts, there)
        return counts

    def shorten_touched(self) -> None:
        """Drop lists of touched nodes that have grown long, those of the empty nodes too, with what is derived from
        them."""
        for capacity in (self, self._emptied):
            if capacity is not None and len(capacity.touched) > TOUCHED_LIMIT * len(self) + 1_000:
                capacity.forget_touched()

    def forget_touched(self) -> None:
        """Drop the list of touched nodes and what is derived from it."""
        self._fittings.clear()
        self._vacant.clear()
        self._reset_unplaceable()
        self.touched.clear()
        self._changed_seen = 0

    def replace_node(self, node: Node) -> bool:
        """Replace the node's values; the empty nodes are rebuilt."""
        self._emptied = None
        return super().replace_node(node)

    def vacant_first(self, shape: int, count: int) -> tuple[int, ...]:
        """Return the first `count` nodes where one such pod could be reserved if all surplus left.

        Kept until a node is touched that may come before the last of them.
        """
        nodes, end, seen = self._vacant.get((shape, count), ((), len(self), -1))
        if seen < 0 or any(at < end for at in self.touched[seen:]):
            nodes = tuple(islice(self._vacant_on(shape), count))
            end = nodes[-1] + 1 if len(nodes) == count else len(self)
        self._vacant[shape, count] = (nodes, end, len(self.touched))
        return nodes

    def _vacant_on(self, shape: int) -> Iterator[int]:
        accepted = self.accepted(shape)
        for start in range(0, len(self), NODES_AT_ONCE):
            some = slice(start, start + NODES_AT_ONCE)
            would_fit = self.holds(self.later[:, some] + self.surplus[:, some], shape)
            yield from (np.flatnonzero(would_fit & accepted[some] & self.is_open[some]) + start).tolist()

    def fitting(self, shape: int) -> Fitting:
        """Return where the shape fits at this moment."""
        fitting = self._fittings.get(shape)
        if fitting is None:
            fitting = self._fittings[shape] = Fitting(self.accepted(shape))
        behind = len(self.touched) - fitting.seen
        if fitting.seen < 0 or behind > max(BY_ONES, len(self.nodes) // 4):
            self._compute(fitting, shape)
        elif behind:
            nodes = set(self.touched[fitting.seen :])
            if len(nodes) <= BY_ONES:
                for at in nodes:
                    self._recompute(fitting, shape, at)
            else:
                self._compute_some(fitting, shape, np.fromiter(nodes, dtype=np.intp, count=len(nodes)))
        fitting.seen = len(self.touched)
        return fitting

    def tightest(self, shape: int, *, now: bool) -> int:
        """Return the node that the shape would leave fullest, ties to the first name; -1 if it fits nowhere."""
        fitting = self.fitting(shape)
        best = fitting.best.get(now)
        if best is None:
            scores = fitting.scores(now=now)
            best = int(scores.argmin()) if len(scores) else -1
            if best >= 0 and scores[best] == inf:
                best = -1
            fitting.best[now] = best
        return best

    def slack_without_surplus(self, shape: int) -> NodeScores:
        """Return the part of each node that would stay free beside one such pod without surplus; negative where it does
        not fit."""
        slack: NodeScores = np.zeros(len(self))
        for column, amount in enumerate(self.shapes.amounts[shape]):
            if amount > 0:
                free = self.later[column] + self.surplus[column]
                slack += ((free - amount) / self.divisor[column]).astype(np.float64)
        return slack

    def fit_somewhere(self, shapes: Collection[int]) -> set[int]:
        """Return those of the shapes that can be reserved on some node.

        Shapes that fitted nowhere are compared, all at once, with the nodes that were touched since.
        """
        self._changed.update(self.touched[self._changed_seen :])
        self._changed_seen = len(self.touched)
        if len(self._changed) > FEW_NODES:
            self._reset_unplaceable()
        doubtful = [shape for shape in shapes if shape in self._unplaceable]
        found = {shape for shape in shapes if shape not in self._unplaceable and self.tightest(shape, now=False) >= 0}
        if self._changed and doubtful:
            nodes = [*self._changed]
            fits = self._fits_on(nodes, doubtful)
            somewhere: Mask = np.any(fits, axis=1)
            found.update(compress(doubtful, somewhere.tolist()))
            if len(doubtful) == len(self._unplaceable):
                offering: Mask = np.any(fits, axis=0)
                self._changed = {*compress(nodes, offering.tolist())}  # the others until they are touched again
        self._unplaceable.update(shape for shape in shapes if shape not in found)
        return found

    def _reset_unplaceable(self) -> None:
        self._unplaceable.clear()
        self._changed.clear()

    def _fits_on(self, nodes: list[int], shapes: list[int]) -> Mask:
        """Return whether each shape can be reserved on each node: one row per shape."""
        requests = self.amounts_by_shape()[:, shapes, None]
        holds: Mask = ((self.later[:, None, nodes] >= requests) | (requests <= 0)).astype(np.bool_)
        if len(self._keys) < len(self.shapes):
            self._learn_keys()
        accepted = np.array([mask[nodes] for mask in self._masks])[[self._keys[shape] for shape in shapes]]
        fits: Mask = np.all(holds, axis=0) & accepted & self.is_open[nodes]
        return fits

    def _compute(self, fitting: Fitting, shape: int) -> None:
        everywhere = slice(None)
        fitting.later, fitting.now = self._scores(shape, everywhere, fitting.accepted)
        fitting.best.clear()

    def _compute_some(self, fitting: Fitting, shape: int, nodes: npt.NDArray[np.intp]) -> None:
        fitting.later[nodes], fitting.now[nodes] = self._scores(shape, nodes, fitting.accepted[nodes])
        fitting.best.clear()

    def _scores(self, shape: int, which: Any, accepted: Mask) -> tuple[NodeScores, NodeScores]:
        """Return the slack: the part of the node that stays free, summed over the resources that the shape names."""
        later, free, divisor = self.later[:, which], self.free[:, which], self.divisor[:, which]
        fits_later = self.is_open[which] & accepted
        fits_now = fits_later.copy()
        slack = np.zeros(len(fits_later))
        for column, amount in enumerate(self.shapes.amounts[shape]):
            if amount > 0:
                fits_later &= (later[column] >= amount).astype(np.bool_)
                fits_now &= (free[column] >= amount).astype(np.bool_)
                slack += ((later[column] - amount) / divisor[column]).astype(np.float64)
        fits_now &= fits_later
        return np.where(fits_later, slack, inf), np.where(fits_now, slack, inf)

    def _recompute(self, fitting: Fitting, shape: int, at: int) -> None:
        """Bring one node's scores up to date in plain numbers, which is faster than arrays for few nodes."""
        later_score, now_score = inf, inf
        if fitting.accepted[at] and self.is_open[at]:
            later_score, now_score = slacks_of(self.plain(at), self.shapes.amounts[shape])
        fitting.put(at, later_score, now=False)
        fitting.put(at, now_score, now=True)
