"""Node lifecycle: cordon, drain, death and return of nodes, and when the cluster notices."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from autoscaler.clusters.simulated.scheduling.scheduler import Scheduler
from autoscaler.clusters.simulated.world.node_table import NodeSlot
from autoscaler.clusters.simulated.world.world import World
from autoscaler.domain import Node, NodeName, PodPhase
from autoscaler.errors import InvalidSpecError


class NodeLifecycle:
    """Cordons, drains, losses and returns of nodes.  An unknown name raises InvalidSpecError."""

    def __init__(self, world: World, scheduler: Scheduler) -> None:
        self._world = world
        self._scheduler = scheduler
        self._deaths: dict[NodeName, int] = {}  # their number, so that only the last one is detected

    def cordon(self, name: NodeName, *, on: bool = True) -> None:
        """Cordon the node; `on` False: uncordon it, which ends a drain."""
        node = self._slot(name).node
        self._put(replace(node, is_cordoned=on, is_draining=node.is_draining and on))

    def drain(self, name: NodeName, *, evicts_jobs: bool) -> None:
        """Cordon the node and evict external pods; pods of jobs leave by EDL's plan or, `evicts_jobs`, at once."""
        slot = self._slot(name)
        self._put(replace(slot.node, is_cordoned=True, is_draining=True))
        self._evict(slot, why=f"{name} is drained", evicts_jobs=evicts_jobs)

    def lose(self, name: NodeName) -> None:
        """Stop the machine.  The cluster notices later, and evicts its pods later still."""
        slot = self._slot(name)
        if not slot.is_alive:
            return
        self._deaths[name] = self._deaths.get(name, 0) + 1
        self._world.stop_node(name)
        self._world.timeline.after(
            self._world.physics.loss_detection_s, partial(self._detect, slot, self._deaths[name])
        )

    def restore(self, name: NodeName) -> None:
        """Start the machine; it is Ready, and pods that were not terminating start again."""
        slot = self._slot(name)
        if slot.is_alive:
            return
        self._deaths[name] += 1
        self._world.start_node(name)
        self._put(replace(slot.node, is_ready=True))

    def _detect(self, slot: NodeSlot, death: int) -> None:
        if self._deaths[slot.node.name] != death:
            return
        self._put(replace(slot.node, is_ready=False))
        self._world.timeline.after(self._world.physics.eviction_s, partial(self._give_up, slot, death))

    def _give_up(self, slot: NodeSlot, death: int) -> None:
        if self._deaths[slot.node.name] == death:
            self._evict(slot, why=f"{slot.node.name} is lost", evicts_jobs=True)

    def _evict(self, slot: NodeSlot, *, why: str, evicts_jobs: bool) -> None:
        for pod in list(slot.pods.values()):
            if pod.owner and pod.phase is not PodPhase.TERMINATING and (pod.is_external or evicts_jobs):
                self._world.terminate(pod, grace_s=pod.grace_s, reason=why)

    def _put(self, node: Node) -> None:
        self._world.replace_node(node)
        self._scheduler.handle_freed_capacity()

    def _slot(self, name: NodeName) -> NodeSlot:
        if name not in self._world.table.index:
            raise InvalidSpecError(f"nodes.{name}", "there is no such node", "one of those the cluster was made with")
        return self._world.table.slot(name)
