"""What the nodes still offer, as arrays over all nodes: one row per resource, one column per node.

Each node has two amounts.  `free` is what nobody occupies or has been promised: a pod created into it is safe at once
(A2).  `later` is what will be free when everything that is leaving has left, less what waits for it: a promise into it
can be kept, not yet carried out.  Whatever is promised must fit into `later`; whatever is created into both.  `surplus`
is what trainers above their minimum hold there.

For each shape that is asked about there is a `Fitting`: where it fits and how tight, brought up to date for the nodes
that were touched since the last question.  So a placement costs a few nodes' arithmetic and one search for a minimum,
not a division over the cluster.  Nodes go by their place `at` in name order.  Moves are kept in a log that can be
undone (`draft`).  Which of the rooms is taken is `fit`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from math import inf
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from autoscaler.domain import Node, NodeName, Pod, Resources
from autoscaler.planner.shapes import BUILT_IN, Claim, Shapes, amounts_of, claim_of

Numbers = npt.NDArray[Any]  # int64, or object for amounts beyond it
Mask = npt.NDArray[np.bool_]
Scores = npt.NDArray[np.float64]

EXACT_LIMIT: Final = 2**62  # no sum of amounts on one node may reach the end of 64 bits
BY_ONES: Final = 24  # so many touched nodes are recomputed one by one, which is faster than arrays up to there


class Fitting:
    """Where one shape fits: its slack by node, infinite where it does not."""

    def __init__(self, accepted: Mask) -> None:
        self.accepted = accepted
        self.later: Scores = np.empty(0)
        self.now: Scores = np.empty(0)
        self.seen = -1  # touched nodes that are in it already; -1: not computed
        self.best: dict[bool, int] = {}  # the tightest node: now, later; -1 for none; absent: to be searched

    def scores(self, *, now: bool) -> Scores:
        """The slack by node, for a creation or a promise."""
        return self.now if now else self.later

    def put(self, at: int, score: float, *, now: bool) -> None:
        """Write one node's score, and know the tightest still if that can be known."""
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


class Rooms:
    """All nodes of a view.  Closed ones are there for their pods and accept nothing."""

    def __init__(self, nodes: Sequence[Node], shapes: Shapes, *, pod_count: int) -> None:
        self.shapes = shapes
        self.columns = list(shapes.columns)
        self.nodes: list[Node] = list(nodes)
        self.names: list[NodeName] = [node.name for node in nodes]
        self.index: dict[NodeName, int] = {name: at for at, name in enumerate(self.names)}
        amounts = [amounts_of(node.allocatable, self.columns) for node in nodes]
        largest = max((max(row) for row in amounts), default=0)
        self.pod_limit = 2 * pod_count + 1_000
        self.limit = EXACT_LIMIT // (2 * self.pod_limit + len(nodes))  # of one amount, while 64 bits are enough
        self.kind: type = np.int64 if max(largest, shapes.largest) <= self.limit else object
        self.whole: Numbers = np.array(amounts, dtype=self.kind).reshape(len(nodes), len(self.columns)).T.copy()
        self.free: Numbers = self.whole.copy()
        self.later: Numbers = self.whole.copy()
        self.surplus: Numbers = np.zeros_like(self.whole)
        self.is_open: Mask = np.array([node.is_open() for node in nodes], dtype=np.bool_)
        self.is_ready: Mask = np.array([node.is_ready for node in nodes], dtype=np.bool_)
        self.open_index = {node.name: at for at, node in enumerate(nodes) if node.is_open()}
        self.ready = {node.name for node in nodes if node.is_ready}
        self.draining = frozenset(node.name for node in nodes if node.is_draining)
        self.log: list[Any] = []  # moves since the snapshot, and whatever else `draft` must undo with them
        self.touched: list[int] = []
        self._plain: dict[
            int, list[tuple[int, int, int]]
        ] = {}  # of nodes recomputed one by one, until they are touched
        self._asked: dict[int, Numbers] = {}
        self._fittings: dict[int, Fitting] = {}
        self._accepted: dict[Claim, Mask] = {}
        self._empty_fits: dict[int, bool] = {}
        self._emptied: Rooms | None = None
        self._divisor: Numbers = np.where(self.whole == 0, 1, self.whole)

    def __len__(self) -> int:
        return len(self.nodes)

    def asked(self, shape: int) -> Numbers:
        """What the shape asks for, by column."""
        if (row := self._asked.get(shape)) is None:
            row = np.array(self.asked_amounts(shape), dtype=self.kind)
            self._asked[shape] = row
        return row

    def place_of(self, pod: Pod) -> int | None:
        """Where the pod stands or is nominated; None off the cluster."""
        place = pod.node or pod.nominated_node
        return None if place is None else self.index.get(place)

    def open_place_of(self, pod: Pod) -> int | None:
        """As `place_of`, on an open node."""
        place = pod.node or pod.nominated_node
        return self.open_index.get(place) if place is not None else None

    def mask(self, names: Iterable[NodeName]) -> Mask:
        """These nodes, those that are not there left out."""
        mask = np.zeros(len(self.nodes), dtype=np.bool_)
        mask[[self.index[name] for name in names if name in self.index]] = True
        return mask

    def can_hold(self, amount: int) -> bool:
        """Whether sums of such amounts stay exact in these arrays."""
        return self.kind is object or amount <= self.limit

    def capacity(self, shape: int) -> tuple[int, ...]:
        """What the ready nodes that accept the shape hold in total, by column."""
        which = self.accepted(shape) & self.is_ready
        return tuple(int(row[which].sum()) for row in self.whole)

    def is_open_name(self, name: NodeName) -> bool:
        """Whether the node is there and takes pods."""
        at = self.index.get(name)
        return at is not None and bool(self.is_open[at])

    def emptied(self) -> Rooms:
        """The same nodes with nobody on them: to ask what an empty cluster would hold.  Leave it as it is found."""
        if self._emptied is None:
            self._emptied = Rooms(self.nodes, self.shapes, pod_count=self.pod_limit)
        return self._emptied

    def copies(self, shape: int) -> int:
        """How many pods of the shape fit on the open nodes, for promises; 0 for a shape that asks for nothing."""
        if self.tightest(shape, now=False) < 0:
            return 0
        where = np.flatnonzero(self.fitting(shape).later < inf).tolist()
        return sum(copies_that_fit(self.later[:, at].tolist(), self.shapes.amounts[shape]) for at in where)

    def later_on(self, at: int) -> Resources:
        """What the node will have free, for people."""
        return self._named(self.later[:, at].tolist())

    def ready_capacity(self) -> Resources:
        """What all ready nodes hold, in those resources that anybody asks for."""
        return self._named([int(row[self.is_ready].sum()) for row in self.whole])

    def _named(self, amounts: Sequence[int]) -> Resources:
        by_name = dict(zip(self.columns, amounts, strict=True))
        cpu, memory, gpu = (by_name.pop(name) for name in BUILT_IN)
        return Resources(cpu_milli=cpu, memory_bytes=memory, gpu_count=gpu, extended=tuple(by_name.items()))

    # Moves.

    def add_many(self, target: Numbers, places: Sequence[int], shapes: Sequence[int], *, times: int) -> None:
        """Add the amounts of many pods, node by node and shape by shape, to one of the arrays; not logged."""
        if places:
            where, which = np.array(places, dtype=np.intp), np.array(shapes, dtype=np.intp)
            for column, amounts in enumerate(self.amounts_by_shape()):
                np.add.at(target[column], where, times * amounts[which])

    def amounts_by_shape(self) -> Numbers:
        """What each shape asks for: one row per resource, one column per shape."""
        rows = [self.asked_amounts(shape) for shape in range(len(self.shapes))]
        return np.array(rows, dtype=self.kind).reshape(len(rows), len(self.columns)).T.copy()

    def fits_without(self, at: int, shape: int, gone: Iterable[int]) -> bool:
        """Whether one such pod fits on the node, for a promise, once pods of these shapes are gone."""
        room = self.later[:, at].tolist()
        for other in gone:
            room = [amount + more for amount, more in zip(room, self.asked_amounts(other), strict=True)]
        return holds_amounts(room, self.shapes.amounts[shape])

    def asked_amounts(self, shape: int) -> tuple[int, ...]:
        """What the shape asks for, a number for each column."""
        amounts = self.shapes.amounts[shape]
        return (*amounts, *[0] * (len(self.columns) - len(amounts)))

    def move(self, at: int, shape: int, *, free: int = 0, later: int = 0, surplus: int = 0) -> None:
        """Add the shape's amounts to a node so many times (negative: take them away), and note it in the log."""
        self.log.append((at, shape, free, later, surplus))
        self.carry_out(at, shape, free, later, surplus)

    def carry_out(self, at: int, shape: int, free: int, later: int, surplus: int) -> None:
        """As `move`, without a note."""
        asked = self.asked(shape)
        if free:
            self.free[:, at] += asked if free == 1 else free * asked
        if later:
            self.later[:, at] += asked if later == 1 else later * asked
        if surplus:
            self.surplus[:, at] += asked if surplus == 1 else surplus * asked
        self.touched.append(at)
        self._plain.pop(at, None)

    def take(self, at: int, shape: int, *, now: bool) -> None:
        """Give room away: created now, or promised."""
        self.move(at, shape, free=-1 if now else 0, later=-1)

    def take_free(self, places: Sequence[int], shape: int, *, now: bool) -> None:
        """As `take` on each of these nodes, one after the other."""
        counts = Counter(places)
        for at, times in counts.items():
            self.log.append((at, shape, -times if now else 0, -times, 0))
            self._plain.pop(at, None)
        self.touched.extend(counts)
        where = np.fromiter(counts, dtype=np.intp, count=len(counts))
        taken = self.asked(shape)[:, None] * np.array([*counts.values()], dtype=self.kind)
        self.later[:, where] -= taken
        if now:
            self.free[:, where] -= taken

    def undo(self, moves: Sequence[Any]) -> None:
        """Take back moves of the log that are not needed again."""
        if len(moves) <= BY_ONES:
            for at, shape, free, later, surplus in moves:
                self.carry_out(at, shape, -free, -later, -surplus)
            return
        places, shapes, *times = zip(*moves, strict=True)
        where, amounts = np.array(places, dtype=np.intp), self.amounts_of_shapes(shapes)
        for target, count in zip((self.free, self.later, self.surplus), times, strict=True):
            for row, amount in zip(target, amounts, strict=True):
                np.subtract.at(row, where, amount * np.array(count, dtype=self.kind))
        self.touched.extend(places)
        for at in places:
            self._plain.pop(at, None)

    def amounts_of_shapes(self, shapes: Sequence[int]) -> Numbers:
        """What each of these shapes asks for: one row per resource."""
        distinct = sorted(set(shapes))
        rows = np.array([self.asked_amounts(shape) for shape in distinct], dtype=self.kind).reshape(len(distinct), -1)
        return rows[np.searchsorted(distinct, shapes)].T

    def replace_node(self, node: Node) -> bool:
        """Put the node's new values in place, labels and taints as before; False if they are too large for that."""
        at = self.index[node.name]
        if not self.can_hold(max(amounts_of(node.allocatable, self.columns))):
            return False
        whole: Numbers = np.array(amounts_of(node.allocatable, self.columns), dtype=self.kind)
        grown = whole - self.whole[:, at]
        self.whole[:, at] = whole
        self.free[:, at] += grown
        self.later[:, at] += grown
        self._divisor[:, at] = np.where(whole == 0, 1, whole)
        self.nodes[at] = node
        self.is_open[at] = node.is_open()
        self.open_index.pop(node.name, None)
        if node.is_open():
            self.open_index[node.name] = at
        self.is_ready[at] = node.is_ready
        (self.ready.add if node.is_ready else self.ready.discard)(node.name)
        self.draining = self.draining - {node.name} | ({node.name} if node.is_draining else frozenset())
        self.touched.append(at)
        self._plain.pop(at, None)
        self._empty_fits.clear()
        self._emptied = None
        return True

    def forget_touched(self) -> None:
        """Shorten the list of touched nodes: what rests on it is computed anew."""
        self._fittings.clear()
        self.touched.clear()

    # Where a shape may go, and where it fits.

    def accepted(self, shape: int) -> Mask:
        """The nodes whose labels and taints allow the shape, closed ones too."""
        claim = claim_of(self.shapes.shapes[shape])
        if (mask := self._accepted.get(claim)) is None:
            wanted = self.shapes.shapes[shape]
            mask = np.array([node.accepts(wanted) for node in self.nodes], dtype=np.bool_)
            self._accepted[claim] = mask
        return mask

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

    def _compute(self, fitting: Fitting, shape: int) -> None:
        everywhere = slice(None)
        fitting.later, fitting.now = self._scores(shape, everywhere, fitting.accepted)
        fitting.best.clear()

    def _compute_some(self, fitting: Fitting, shape: int, nodes: npt.NDArray[np.intp]) -> None:
        fitting.later[nodes], fitting.now[nodes] = self._scores(shape, nodes, fitting.accepted[nodes])
        fitting.best.clear()

    def _scores(self, shape: int, which: Any, accepted: Mask) -> tuple[Scores, Scores]:
        """Slack: the part of the node that stays free, summed over the resources that the shape names."""
        later, free, divisor = self.later[:, which], self.free[:, which], self._divisor[:, which]
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

    def plain(self, at: int) -> list[tuple[int, int, int]]:
        """One node in plain numbers: by column what will be free, what is free, and what the node has in all."""
        if (room := self._plain.get(at)) is None:
            rows = (self.later[:, at], self.free[:, at], self._divisor[:, at])
            room = self._plain[at] = list(zip(*[row.tolist() for row in rows], strict=True))
        return room

    def _recompute(self, fitting: Fitting, shape: int, at: int) -> None:
        """Bring one node's scores up to date, in plain numbers: on few nodes that is faster than arrays."""
        later_score, now_score = inf, inf
        if fitting.accepted[at] and self.is_open[at]:
            later_score, now_score = slacks_of(self.plain(at), self.shapes.amounts[shape])
        fitting.put(at, later_score, now=False)
        fitting.put(at, now_score, now=True)


def slacks_of(room: Sequence[tuple[int, int, int]], amounts: Sequence[int]) -> tuple[float, float]:
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
