"""Nodes in the view: parsed when they change, and while pods of their DaemonSets may still come."""

from __future__ import annotations

from autoscaler.clusters.kubernetes.api.kinds import DAEMON_SETS, NODES, PODS
from autoscaler.clusters.kubernetes.cache.object_cache import Key, ObjectCache
from autoscaler.clusters.kubernetes.cluster_view.view_delta import ChangedKeys, ViewDelta
from autoscaler.clusters.kubernetes.objects.fields import controller_of, created_at_s, text
from autoscaler.clusters.kubernetes.parsing.node_objects import (
    DAEMONS_EXPECTED_S,
    DaemonSet,
    parse_daemonset,
    parse_node,
    reserve_for_daemons,
)
from autoscaler.domain import Node, NodeName


class TrackedNodes:
    """The nodes of the cache."""

    def __init__(self, store: ObjectCache, *, offset_s: float) -> None:
        self._store = store
        self._offset_s = offset_s
        self._daemonsets: tuple[DaemonSet, ...] = ()
        self._young: set[Key] = set()
        self._before_reservation: dict[Key, Node] = {}  # new nodes, before capacity is kept for DaemonSets
        self._read_as: dict[Key, Node] = {}

    def parse_changes(self, changes: ChangedKeys, now_s: float) -> ViewDelta[Node, NodeName]:
        """Return the nodes that are new or different."""
        raws = self._store.objects(NODES)
        if changes.get(DAEMON_SETS):
            self._daemonsets = tuple(parse_daemonset(raw) for raw in self._store.objects(DAEMON_SETS).values())
        changed = set(changes.get(NODES, ()))
        dirty = changed | self._young
        self._before_reservation = {
            key: node for key, node in self._before_reservation.items() if key in self._young and key not in changed
        }
        self._young = {key for key in dirty if key in raws and now_s < self._daemons_due_at_s(key)}
        arrived = self._daemonsets_by_node() if self._young and self._daemonsets else {}
        delta: ViewDelta[Node, NodeName] = ViewDelta()
        for key in dirty:
            if (raw := raws.get(key)) is None:
                if self._read_as.pop(key, None) is not None:
                    delta.gone.add(NodeName(key[1]))
                continue
            bare = self._before_reservation.get(key) or parse_node(raw)
            if key in self._young:
                self._before_reservation[key] = bare
            node = reserve_for_daemons(
                bare,
                created_at_s=created_at_s(raw) + self._offset_s,
                daemonsets=self._daemonsets,
                arrived=arrived.get(key[1], frozenset()),
                now_s=now_s,
            )
            if self._read_as.get(key) != node:
                self._read_as[key] = node
                delta.found.append(node)
        return delta

    def _daemons_due_at_s(self, key: Key) -> float:
        return created_at_s(self._store.objects(NODES)[key]) + self._offset_s + DAEMONS_EXPECTED_S

    def _daemonsets_by_node(self) -> dict[str, set[str]]:
        """Return by new node the DaemonSets that have a pod there."""
        found: dict[str, set[str]] = {name: set() for _, name in self._young}
        for raw in self._store.objects(PODS).values():
            node, owner = text(raw, "spec", "nodeName"), controller_of(raw)
            if node in found and owner.get("kind") == "DaemonSet":
                found[node].add(f"{text(raw, 'metadata', 'namespace')}/{text(owner, 'name')}")
        return found
