"""The cluster as the loop has it, with one ear: which pods the planner is about to send away, and which stay for now.

A watch may show a pod leaving before the write that made it leave has returned; who told it must be known by then, or
it would be put down to a person.  A server that still holds a part of its job's model stays (`servers`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from autoscaler.cluster_port import Cluster, Outcome, Verdict
from autoscaler.domain import Action, ClusterView, DeletePod, JobName


class Told:
    """`clusters.port.Cluster`.  `tell` hears of each deletion before it is written; `hold` says why one is not yet."""

    def __init__(
        self, inner: Cluster, tell: Callable[[JobName, Sequence[str]], None], hold: Callable[[DeletePod], str]
    ) -> None:
        self._inner = inner
        self._tell = tell
        self._hold = hold

    def now(self) -> float:
        """See `Cluster.now`."""
        return self._inner.now()

    async def observe(self) -> ClusterView:
        """See `Cluster.observe`."""
        return await self._inner.observe()

    async def apply(self, action: Action) -> Outcome:
        """See `Cluster.apply`."""
        if isinstance(action, DeletePod):
            if why := self._hold(action):
                return Outcome(verdict=Verdict.REFUSED, message=f"pod {action.pod} stays: {why}")
            self._tell(action.job, (action.pod,))
        return await self._inner.apply(action)

    async def changed(self, timeout_s: float) -> bool:
        """See `Cluster.changed`."""
        return await self._inner.changed(timeout_s)
