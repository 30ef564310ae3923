"""Demands of a view: free capacity by kind of node, shapes of the jobs' pods, and the nodes that accept them.

EDL's own pods count as movable, all others as fixed, so the bound holds for every planner, even one that starts
afresh.  `relaxed` and `optimum` solve the demands.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import reduce
from math import gcd

from autoscaler.domain import NOTHING, ClusterView, JobState, Node, NodeName, Resources, Role, Shape
from experiments.bounds.whole_pod_patterns import Vector


class Worth(StrEnum):
    """Quantity that a bound maximises."""

    CPU = "cpu"  # millicores requested by EDL's pods
    GPU = "gpu"  # GPUs requested by EDL's pods
    TRAINERS = "trainers"


@dataclass(frozen=True, slots=True, kw_only=True)
class RoomKind:
    """Nodes that are equal to every shape: `count` of them, each with `room`; `accepts` are indexes of shapes."""

    room: Vector
    accepts: frozenset[int]
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobNeeds:
    """One job: `trainer` is the index of a shape, `core` are (index, count) that stand whole or not at all."""

    trainer: int
    least: int
    most: int
    core: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Demands:
    """Shapes by index with their request vectors, kinds of rooms, and the jobs that want them."""

    shapes: tuple[Shape, ...]
    requests: tuple[Vector, ...]
    rooms: tuple[RoomKind, ...]
    jobs: tuple[JobNeeds, ...]

    def worth(self, shape: int, worth: Worth, *, is_trainer: bool) -> int:
        match worth:
            case Worth.CPU:
                return self.shapes[shape].requests.cpu_milli
            case Worth.GPU:
                return self.shapes[shape].requests.gpu_count
            case Worth.TRAINERS:
                return int(is_trainer)


def read_demands(view: ClusterView) -> Demands:
    """Return the demands of a view.  Jobs that are suspended, ending or over want nothing."""
    jobs = [job for job in view.jobs if job.state is JobState.ACTIVE]
    wanted = [job.trainer.shape for job in jobs] + [job.master.shape for job in jobs]
    wanted += [job.servers.shape for job in jobs if job.servers is not None]
    shapes = tuple(dict.fromkeys(wanted))
    index = {shape: number for number, shape in enumerate(shapes)}
    names = sorted({name for shape in shapes for name, _ in shape.requests.amounts()}, key=lambda n: (n != "cpu", n))
    needs = []
    for job in jobs:
        core: Counter[int] = Counter()
        core[index[job.master.shape]] += job.master.replicas
        if job.servers is not None:
            core[index[job.servers.shape]] += job.servers.min_replicas
        least, most = job.trainer.min_replicas, job.trainer.ceiling
        trainer = index[job.trainer.shape]
        needs.append(JobNeeds(trainer=trainer, least=least, most=most, core=tuple(sorted(core.items()))))
    return Demands(
        shapes=shapes,
        requests=tuple(vector(shape.requests, names) for shape in shapes),
        rooms=_list_rooms(view, shapes, names),
        jobs=tuple(needs),
    )


def vector(amounts: Resources, names: list[str]) -> Vector:
    """Return amounts in the order of `names`."""
    return tuple(amounts.amount(name) for name in names)


def _list_rooms(view: ClusterView, shapes: tuple[Shape, ...], names: list[str]) -> tuple[RoomKind, ...]:
    taken: Mapping[NodeName, Resources] = _occupied_by_others(view)
    accepted = _Eligibility(shapes)
    units = _units(shapes, names)
    kinds: Counter[tuple[Vector, frozenset[int]]] = Counter()
    for node in view.nodes:
        if not node.is_open():
            continue
        left = vector(node.allocatable - taken.get(node.name, NOTHING), names)
        # An amount below the common unit of all requests fits no pod.
        room = tuple(max(0, amount) // unit * unit for amount, unit in zip(left, units, strict=True))
        kinds[room, accepted.of(node)] += 1
    found = (RoomKind(room=room, accepts=accepts, count=count) for (room, accepts), count in kinds.items())
    return tuple(sorted(found, key=lambda kind: (kind.room, sorted(kind.accepts))))


def _occupied_by_others(view: ClusterView) -> dict[NodeName, Resources]:
    taken: defaultdict[NodeName, Resources] = defaultdict(lambda: NOTHING)
    for pod in view.pods:
        if pod.role is Role.EXTERNAL and pod.place is not None:
            taken[pod.place] += pod.requests
    return dict(taken)


def _units(shapes: tuple[Shape, ...], names: list[str]) -> tuple[int, ...]:
    return tuple(
        reduce(gcd, (amount for shape in shapes if (amount := shape.requests.amount(name)) > 0), 0) or 1
        for name in names
    )


class _Eligibility:
    """Shapes that a node accepts; computed once for nodes with the same labels and taints."""

    def __init__(self, shapes: tuple[Shape, ...]) -> None:
        self._shapes = shapes
        self._terms = any(shape.node_terms for shape in shapes)
        self._known: dict[object, frozenset[int]] = {}

    def of(self, node: Node) -> frozenset[int]:
        key = (node.labels, node.taints, node.name if self._terms else None)
        if key not in self._known:
            self._known[key] = frozenset(n for n, shape in enumerate(self._shapes) if node.accepts(shape))
        return self._known[key]
