"""Blocklist of nodes on which a job's pods keep failing, and on which it starts none for a while.  Pure.

One failure says nothing about a node; three of one job on the same node in ten minutes do (a broken GPU, a full
disk). A new leader starts with an empty blocklist, which costs at most three more failures.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from autoscaler.clusters.kubernetes.objects.node_affinity import MOST_AVOIDED
from autoscaler.domain import NodeName

FAILURES: Final = 3
WINDOW_S: Final = 600.0
AVOID_S: Final = 600.0
NO_NODES: Final[frozenset[NodeName]] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeBlocklist:
    """Blocklist of one job: failure times by node, oldest first."""

    failed_at_s: Mapping[NodeName, tuple[float, ...]] = field(default_factory=dict)


def add_failure(blocklist: NodeBlocklist, node: NodeName, now_s: float) -> NodeBlocklist:
    """Return the blocklist after one more pod failed on the node."""
    kept = {
        name: recent
        for name, times in blocklist.failed_at_s.items()
        if (recent := tuple(at_s for at_s in times if now_s - at_s < max(WINDOW_S, AVOID_S)))
    }
    kept[node] = (*kept.pop(node, ())[-(FAILURES - 1) :], now_s)
    return NodeBlocklist(failed_at_s=dict(list(kept.items())[-MOST_AVOIDED:]))


def blocked_nodes(blocklist: NodeBlocklist, now_s: float) -> frozenset[NodeName]:
    """Return the nodes on which the job starts no pod now."""
    if not blocklist.failed_at_s:
        return NO_NODES
    return frozenset(node for node, times in blocklist.failed_at_s.items() if _is_blocked(times, now_s))


def _is_blocked(times: tuple[float, ...], now_s: float) -> bool:
    return len(times) == FAILURES and times[-1] - times[0] <= WINDOW_S and now_s < times[-1] + AVOID_S
