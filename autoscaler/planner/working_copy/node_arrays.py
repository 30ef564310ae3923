"""Node arrays: capacity of all nodes, one row per resource, one column per node.

Each node has two amounts. `free` is neither occupied nor reserved: a pod created into it is
safe at once (A2). `later` is what will be free once all pods that are leaving have left, less what is reserved. A
reserved pod must fit into `later`, a created one into both. `surplus` is what trainers above their minimum hold there.

Nodes go by their place `at` in name order, shapes by their number. Moves are kept in a log that can be undone
(`working_copy`), and touched nodes in a list, so that what is derived from the arrays is brought up to date for those
alone. Where shapes fit is `free_capacity`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from autoscaler.domain import Node, NodeName, Pod, Resources
from autoscaler.planner.working_copy.shapes import BUILT_IN, ColumnAmounts, PlainNode, Shapes, amounts_of

Numbers = npt.NDArray[Any]  # int64, or object for amounts beyond it
Mask = npt.NDArray[np.bool_]
EXACT_LIMIT: Final = 2**62  # no sum of amounts on one node may reach the end of 64 bits
MORE_SHAPES: Final = 500  # new shapes that one index takes: each one's fit is kept for every node
FEW: Final = 24  # moves; up to this many, undoing them one by one is faster than arrays


class NodeArrays:
    """All nodes of a view. Closed ones are there for their pods and accept nothing."""

    def __init__(self, nodes: Sequence[Node], shapes: Shapes, *, pod_count: int) -> None:
        self.shapes = shapes
        self.columns = list(shapes.columns)
        self.nodes: list[Node] = list(nodes)
        self.names: list[NodeName] = [node.name for node in nodes]
        self.index: dict[NodeName, int] = {name: at for at, name in enumerate(self.names)}
        amounts = [amounts_of(node.allocatable, self.columns) for node in nodes]
        largest = max((max(row) for row in amounts), default=0)
        self.pod_limit = 2 * pod_count + 1_000
        self.shape_limit = len(shapes) + MORE_SHAPES
        self.limit = EXACT_LIMIT // (2 * self.pod_limit + len(nodes))  # of one amount, while 64 bits are enough
        self.kind: type = np.int64 if max(largest, shapes.largest) <= self.limit else object
        self.allocatable: Numbers = np.array(amounts, dtype=self.kind).reshape(len(nodes), len(self.columns)).T.copy()
        self.free: Numbers = self.allocatable.copy()
        self.later: Numbers = self.allocatable.copy()
        self.surplus: Numbers = np.zeros_like(self.allocatable)
        self.is_open: Mask = np.array([node.is_open() for node in nodes], dtype=np.bool_)
        self.is_ready: Mask = np.array([node.is_ready for node in nodes], dtype=np.bool_)
        self.open_index = {node.name: at for at, node in enumerate(nodes) if node.is_open()}
        self.ready = {node.name for node in nodes if node.is_ready}
        self.draining = frozenset(node.name for node in nodes if node.is_draining)
        self.log: list[Any] = []  # moves of this plan, and the jobs' states that `WorkingCopy` undoes with them
        self.touched: list[int] = []
        self.divisor: Numbers = np.where(self.allocatable == 0, 1, self.allocatable)
        self._plain: dict[int, PlainNode] = {}  # until they are touched
        self._asked: list[Numbers] = []  # by shape
        self._padded: list[ColumnAmounts] = []  # likewise
        self._by_shape: Numbers = np.zeros((len(self.columns), 0), dtype=self.kind)

    def __len__(self) -> int:
        return len(self.nodes)

    def requests(self, shape: int) -> Numbers:
        """Return the shape's requests, by column, as an array."""
        if shape >= len(self._asked):
            self._add_new_shapes()
        return self._asked[shape]

    def request_amounts(self, shape: int) -> ColumnAmounts:
        """Return the shape's requests, by column, in plain numbers."""
        if shape >= len(self._padded):
            self._add_new_shapes()
        return self._padded[shape]

    def amounts_by_shape(self) -> Numbers:
        """Return the requests of each shape: one row per resource, one column per shape."""
        if len(self._padded) < len(self.shapes):
            self._add_new_shapes()
        return self._by_shape

    def _add_new_shapes(self) -> None:
        """Add the shapes that have come since the last call."""
        width = len(self.columns)
        self._padded += [(*row, *[0] * (width - len(row))) for row in self.shapes.amounts[len(self._padded) :]]
        rows: Numbers = np.array(self._padded, dtype=self.kind).reshape(len(self._padded), width)
        self._asked = list(rows)
        self._by_shape = rows.T.copy()

    def plain(self, at: int) -> PlainNode:
        """Return one node in plain numbers: by column what is free later, what is free now, and what the node has in
        all."""
        if (node := self._plain.get(at)) is None:
            rows = (self.later[:, at], self.free[:, at], self.divisor[:, at])
            node = self._plain[at] = list(zip(*[row.tolist() for row in rows], strict=True))
        return node

    # Nodes by name.

    def place_of(self, pod: Pod) -> int | None:
        """Return the index of the node where the pod is bound or nominated; None off the cluster."""
        place = pod.node or pod.nominated_node
        return None if place is None else self.index.get(place)

    def open_place_of(self, pod: Pod) -> int | None:
        """Return the same for a node that is open, else None."""
        place = pod.node or pod.nominated_node
        return self.open_index.get(place) if place is not None else None

    def mask(self, names: Iterable[NodeName]) -> Mask:
        """Return the mask of these nodes; names that are not there are left out."""
        mask = np.zeros(len(self.nodes), dtype=np.bool_)
        mask[[self.index[name] for name in names if name in self.index]] = True
        return mask

    def can_hold(self, amount: int) -> bool:
        """True if sums of such amounts stay exact in these arrays."""
        return self.kind is object or amount <= self.limit

    def is_open_name(self, name: NodeName) -> bool:
        """True if the node exists and takes pods."""
        at = self.index.get(name)
        return at is not None and bool(self.is_open[at])

    # Text for messages.

    def later_on(self, at: int) -> Resources:
        """Return what the node will have free later, for people."""
        return self._named(self.later[:, at].tolist())

    def ready_capacity(self) -> Resources:
        """Return what all ready nodes have, of the resources that any shape requests."""
        return self._named([int(row[self.is_ready].sum()) for row in self.allocatable])

    def _named(self, amounts: Sequence[int]) -> Resources:
        by_name = dict(zip(self.columns, amounts, strict=True))
        cpu, memory, gpu = (by_name.pop(name) for name in BUILT_IN)
        return Resources(cpu_milli=cpu, memory_bytes=memory, gpu_count=gpu, extended=tuple(by_name.items()))

    # Moves.

    def add_many(self, target: Numbers, places: Sequence[int], shapes: Sequence[int], *, times: int) -> None:
        """Add the amounts of many pods to one of the arrays, without a log entry."""
        if places:
            where, which = np.array(places, dtype=np.intp), np.array(shapes, dtype=np.intp)
            for column, amounts in enumerate(self.amounts_by_shape()):
                np.add.at(target[column], where, times * amounts[which])

    def move(self, at: int, shape: int, *, free: int = 0, later: int = 0, surplus: int = 0) -> None:
        """Add the shape's amounts to each of a node's amounts so many times (negative: subtract them), with a log
        entry."""
        self.log.append((at, shape, free, later, surplus))
        self.carry_out(at, shape, free, later, surplus)

    def carry_out(self, at: int, shape: int, free: int, later: int, surplus: int) -> None:
        """Do the same without a log entry."""
        amounts = self.requests(shape)
        if free:
            self.free[:, at] += amounts if free == 1 else free * amounts
        if later:
            self.later[:, at] += amounts if later == 1 else later * amounts
        if surplus:
            self.surplus[:, at] += amounts if surplus == 1 else surplus * amounts
        self.touched.append(at)
        if (node := self._plain.get(at)) is not None:
            self._plain[at] = [
                (held + later * amount, left + free * amount, whole)
                for (held, left, whole), amount in zip(node, self._padded[shape], strict=True)
            ]

    def allocate(self, at: int, shape: int, *, now: bool) -> None:
        """Take the shape's amounts for a pod that is created (`now`: from free and later) or reserved (from later
        alone)."""
        self.move(at, shape, free=-1 if now else 0, later=-1)

    def allocate_free(self, places: Sequence[int], shape: int, *, now: bool) -> None:
        """Do what `allocate` does for each of these nodes, at once; a node may be there several times."""
        counts = Counter(places)
        for at, times in counts.items():
            self.log.append((at, shape, -times if now else 0, -times, 0))
            self._plain.pop(at, None)
        self.touched.extend(counts)
        where = np.fromiter(counts, dtype=np.intp, count=len(counts))
        taken = self.requests(shape)[:, None] * np.array([*counts.values()], dtype=self.kind)
        self.later[:, where] -= taken
        if now:
            self.free[:, where] -= taken

    def undo(self, moves: Sequence[Any]) -> None:
        """Take back moves of the log that are not needed again."""
        if len(moves) <= FEW:
            for at, shape, free, later, surplus in moves:
                self.carry_out(at, shape, -free, -later, -surplus)
            return
        places, shapes, *times = map(list, zip(*moves, strict=True))
        where, amounts = np.array(places, dtype=np.intp), self.amounts_by_shape()[:, shapes]
        for target, count in zip((self.free, self.later, self.surplus), times, strict=True):
            for row, amount in zip(target, amounts, strict=True):
                np.subtract.at(row, where, amount * np.array(count, dtype=self.kind))
        self.touched.extend(places)
        for at in places:
            self._plain.pop(at, None)

    def replace_node(self, node: Node) -> bool:
        """Put the node's new values in place, labels and taints as before; return False if they are too large for the
        arrays."""
        at = self.index[node.name]
        if not self.can_hold(max(amounts_of(node.allocatable, self.columns))):
            return False
        whole: Numbers = np.array(amounts_of(node.allocatable, self.columns), dtype=self.kind)
        grown = whole - self.allocatable[:, at]
        self.allocatable[:, at] = whole
        self.free[:, at] += grown
        self.later[:, at] += grown
        self.divisor[:, at] = np.where(whole == 0, 1, whole)
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
        return True
