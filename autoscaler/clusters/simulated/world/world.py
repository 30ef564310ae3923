"""Nodes and the pods on them: the life of every pod from creation to removal, in virtual time.

The world decides nothing.  Controllers, scheduler and recorder listen to its changes (`listen`).  It is
the only writer of a pod's phase and node, so its invariants are checked in one place.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from enum import StrEnum
from functools import partial

from autoscaler.clusters.simulated.world.node_table import NodeTable
from autoscaler.clusters.simulated.world.physics import Physics
from autoscaler.clusters.simulated.world.run_recorder import RunRecorder, UsageRow
from autoscaler.clusters.simulated.world.sim_pods import SimPod
from autoscaler.clusters.simulated.world.timeline import Timeline
from autoscaler.domain import Node, NodeName, PodName, PodPhase, Role, Shape
from autoscaler.errors import InvalidSpecError


class PodChange(StrEnum):
    """A change of a pod."""

    CREATED = "created"
    BOUND = "bound"
    RUNNING = "running"
    WORKING = "working"  # it trains, or answers trainers
    STOPPED = "stopped"  # its node died, or its process
    LEAVING = "leaving"
    GONE = "gone"


PodListener = Callable[[SimPod, PodChange], None]


class World:
    """Nodes and pods.  `chance` yields numbers in [0, 1) from the cluster's seed."""

    def __init__(self, table: NodeTable, physics: Physics, chance: Callable[[], float]) -> None:
        self.table = table
        self.physics = physics
        self.chance = chance
        self.timeline = Timeline()
        self.pods: dict[PodName, SimPod] = {}
        self.changed_pods: dict[PodName, None] = {}  # since the last view
        self.changed_nodes: dict[NodeName, None] = {}
        self.revision = 1
        self.moves_servers = False
        self.unbound_count = 0
        capacity = [sum(column) for column in zip(*(slot.allocatable for slot in table.slots), strict=True)]
        self.record = RunRecorder(table.resources, capacity)
        self._running = [0] * len(table.resources)
        self._next_ordinals: defaultdict[tuple[str, Role], int] = defaultdict(int)
        self._listeners: list[PodListener] = []
        self._kinds: dict[Shape, tuple[int, tuple[int, ...] | None]] = {}

    @property
    def now_s(self) -> float:
        return self.timeline.now_s

    def listen(self, listener: PodListener) -> None:
        """Call the listener on each change, after the listeners before it."""
        self._listeners.append(listener)

    def touch(self) -> None:
        """Something that a plan could depend on has changed."""
        self.revision += 1

    # ---- the life of a pod --------------------------------------------------------------------------------------

    def create(self, pod: SimPod, node: NodeName | None = None) -> None:
        """Create the pod; with `node` it is bound there (the caller has checked the capacity)."""
        if pod.name in self.pods:
            raise InvalidSpecError(f"pods.{pod.name}", "this name is taken", "another name")
        pod.kind, amounts = self._kind_of(pod.shape)
        pod.amounts = amounts or (0,) * len(self.table.resources)  # unknown resources: never bound
        pod.created_at_s = self.now_s
        pod.tie_break = self.chance()
        self.pods[pod.name] = pod
        self.unbound_count += 1
        key = (pod.owner, pod.role)
        self._next_ordinals[key] = max(self._next_ordinals[key], pod.ordinal + 1)
        self.record.record_pod(pod)
        self._notify(pod, PodChange.CREATED)
        if node is not None:
            self.bind(pod, node)

    def next_ordinal(self, owner: str, role: Role) -> int:
        """Next unused ordinal of this owner and role."""
        return self._next_ordinals[owner, role]

    def requests_known_resources(self, shape: Shape) -> bool:
        """True if nodes of this cluster can have all resources that the shape requests."""
        return self._kind_of(shape)[1] is not None

    def bind(self, pod: SimPod, node: NodeName) -> None:
        """Bind the pod to the node and start it."""
        self.table.nominate(pod, None)
        pod.node = node
        pod.phase = PodPhase.STARTING
        pod.bound_at_s = self.now_s
        pod.unschedulable_since_s = None
        self.unbound_count -= 1
        self.table.add(pod)
        self._notify(pod, PodChange.BOUND)
        self._start(pod)

    def place_running(self, pod: SimPod, node: NodeName) -> None:
        """Add a pod that already runs on the node."""
        self.create(pod, node)
        self._run(pod, pod.starts)

    def terminate(self, pod: SimPod, *, grace_s: float, reason: str, is_preempted: bool = False) -> None:
        """Terminate the pod: SIGTERM now, removal after its grace period.  Idempotent."""
        if pod.is_leaving or pod.gone_at_s is not None:
            return
        pod.end_reason, pod.is_preempted, pod.terminating_at_s = reason, is_preempted, self.now_s
        if pod.node is None:
            self._remove(pod)
            return
        never_ran = pod.phase is PodPhase.STARTING
        pod.phase = PodPhase.TERMINATING
        self.table.remove_from_group(pod)
        pod.is_working = False
        self._notify(pod, PodChange.LEAVING)
        if self.table.slot(pod.node).is_alive:
            needed_s = 0.0 if never_ran else self._time_to_end(pod)
            drains = needed_s <= grace_s
            self.timeline.after(min(needed_s, grace_s) + self.physics.removal_s, partial(self._end, pod, drains))

    def kill(self, pod: SimPod, reason: str = "killed") -> None:
        """Remove the pod at once; its work is lost."""
        pod.was_drained = False
        pod.end_reason = pod.end_reason or reason
        pod.terminating_at_s = self.now_s if pod.terminating_at_s is None else pod.terminating_at_s
        pod.is_working = False
        if not pod.is_leaving and pod.node is not None:
            self.table.remove_from_group(pod)
        self._remove(pod)

    def mark_unschedulable(self, pod: SimPod, nominated_node: NodeName | None) -> None:
        """Mark the pod unschedulable, and record the node for which it is nominated."""
        is_changed = pod.unschedulable_since_s is None or pod.nominated_node != nominated_node
        if pod.unschedulable_since_s is None:
            pod.unschedulable_since_s = self.now_s
        if pod.nominated_node != nominated_node:
            self.table.nominate(pod, nominated_node)
        if is_changed:
            self.mark_changed(pod)

    # ---- the life of a node -------------------------------------------------------------------------------------

    def stop_node(self, name: NodeName) -> None:
        """Stop the node's machine; its pods stop working."""
        slot = self.table.slot(name)
        slot.is_alive = False
        for pod in list(slot.pods.values()):
            pod.is_working = False
            self._count_running(pod, is_running=False)
            self._notify(pod, PodChange.STOPPED)

    def start_node(self, name: NodeName) -> None:
        """Start the machine again: terminating pods are removed, the others restart."""
        slot = self.table.slot(name)
        slot.is_alive = True
        for pod in list(slot.pods.values()):
            if pod.is_leaving:
                pod.was_drained = False
                self._remove(pod)
            else:
                pod.phase = PodPhase.STARTING
                self._start(pod)
                self.mark_changed(pod)

    def replace_node(self, node: Node) -> None:
        """Replace the node as the cluster sees it."""
        self.table.replace(node)
        self.changed_nodes[node.name] = None
        self.revision += 1

    def mark_changed(self, pod: SimPod) -> None:
        """Show this pod's change in the next view."""
        self.changed_pods[pod.name] = None
        self.revision += 1

    # ---- steps of a pod's life ----------------------------------------------------------------------------------

    def _start(self, pod: SimPod) -> None:
        pod.starts += 1
        self.timeline.after(self.physics.start.at(self.chance()), partial(self._run, pod, pod.starts))

    def _run(self, pod: SimPod, start: int) -> None:
        if pod.phase is not PodPhase.STARTING or pod.starts != start or not self._is_alive(pod):
            return
        pod.phase = PodPhase.READY
        if pod.running_at_s is None:
            pod.running_at_s = self.now_s
        self._count_running(pod, is_running=True)
        self._notify(pod, PodChange.RUNNING)
        wait_s = 0.0
        if pod.role is Role.TRAINER:
            wait_s = self.physics.warm_up.at(self.chance())
        elif pod.role is Role.SERVER and self.moves_servers:
            wait_s = self._time_to_move(pod)
        if wait_s:
            self.timeline.after(wait_s, partial(self._work, pod, start))
        else:
            self._work(pod, start)

    def _work(self, pod: SimPod, start: int) -> None:
        if pod.phase is not PodPhase.READY or pod.starts != start or not self._is_alive(pod):
            return
        pod.is_working = True
        self._notify(pod, PodChange.WORKING, is_visible=False)

    def _time_to_end(self, pod: SimPod) -> float:
        spread = self.physics.web_drain if pod.is_external else self.physics.drain
        needed_s = spread.at(self.chance())
        if pod.role is Role.SERVER and self.moves_servers:
            needed_s = max(needed_s, self._time_to_move(pod))
        return needed_s

    def _time_to_move(self, pod: SimPod) -> float:
        """Time that a server's state takes to move."""
        return pod.shape.requests.memory_bytes / self.physics.server_bytes_per_s

    def _end(self, pod: SimPod, was_drained: bool) -> None:
        """Handle the end of the grace period; on a dead machine the end is not observed."""
        if pod.gone_at_s is None and self._is_alive(pod):
            pod.was_drained = was_drained
            self._remove(pod)

    def _remove(self, pod: SimPod) -> None:
        if pod.gone_at_s is not None:
            return
        if pod.node is not None:
            self._count_running(pod, is_running=False)
            self.table.remove(pod)
        else:
            self.unbound_count -= 1
        self.table.nominate(pod, None)
        pod.gone_at_s = self.now_s
        del self.pods[pod.name]
        self._notify(pod, PodChange.GONE)

    def _is_alive(self, pod: SimPod) -> bool:
        return pod.node is not None and self.table.slot(pod.node).is_alive

    def _count_running(self, pod: SimPod, *, is_running: bool) -> None:
        if pod.is_occupying == is_running:
            return
        pod.is_occupying = is_running
        times = 1 if is_running else -1
        for index, amount in enumerate(pod.amounts):
            self._running[index] += times * amount
        self.record.record_usage(UsageRow(self.now_s, tuple(self._running)))

    def _kind_of(self, shape: Shape) -> tuple[int, tuple[int, ...] | None]:
        known = self._kinds.get(shape)
        if known is None:
            known = self._kinds[shape] = (len(self._kinds), self.table.amounts_of(shape.requests))
        return known

    def _notify(self, pod: SimPod, change: PodChange, *, is_visible: bool = True) -> None:
        if is_visible:
            self.mark_changed(pod)
        for listener in self._listeners:
            listener(pod, change)
