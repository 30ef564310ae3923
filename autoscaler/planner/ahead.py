"""What room a node may have once the web has fallen: what counts for a pod that stays.

Web pods come and go, a server stays where it was put, and room that is left over beside three web pods may be the
wrong size beside one.  A workload that shrinks takes its pods from where most of them stand (a ReplicaSet does).  So
each level of the web, from none to as many on a node as stand on the fullest one, is taken to be as likely as any
other: a node that holds fewer is as it is now until the level has come down to it (ADR 0113).  Next: `waste`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from autoscaler.domain import PodPhase
from autoscaler.planner.draft import Draft
from autoscaler.planner.patterns import Vector

PODS_LOOKED_AT: Final = 8  # of a node; where more stand, each of them is small beside what is left over


class Ahead:
    """The web pods on each node, as this plan found them."""

    def __init__(self, draft: Draft) -> None:
        rooms, shapes = draft.rooms, draft.shapes
        self._web: dict[int, list[Vector]] = {}
        for pod in draft.view.pods:
            if pod.workload is not None and pod.phase is not PodPhase.TERMINATING:
                at = rooms.index.get(pod.node) if pod.node is not None else None
                if at is not None:
                    self._web.setdefault(at, []).append(rooms.asked_amounts(shapes.number(pod.shape)))
        self._most = min(PODS_LOOKED_AT, max(map(len, self._web.values()), default=0))

    def rooms(self, at: int, free: Vector) -> Sequence[tuple[int, Vector]]:
        """Return what may be free on the node where `free` is free now, each with its weight; the largest leave first.

        Weights are whole; they compare within one node.
        """
        web = sorted(self._web.get(at, ()), reverse=True)[:PODS_LOOKED_AT]
        rooms = [free]
        for amounts in web:
            rooms.append(tuple(room + amount for room, amount in zip(rooms[-1], amounts, strict=True)))
        return list(zip(self._weights(len(web)), rooms, strict=True))

    def _weights(self, count: int) -> Sequence[int]:
        """How often the levels of the web leave the node all its pods, all but one ... none; ends count half."""
        if not count:
            return [1]
        return [2 * (self._most - count) + 1, *[2] * (count - 1), 1]
