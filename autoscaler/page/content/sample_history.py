"""Port: samples of the past from somewhere that outlives the page's own process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from autoscaler.views.cluster.pod_view import NodeUnit
from autoscaler.views.history.samples import ClusterSample


class SampleHistory(Protocol):
    """Samples of the cluster, the oldest first.  `name`: of where they are from, for people."""

    @property
    def name(self) -> str:
        """Name of the place, for people."""

    async def samples(self, span: str, unit: NodeUnit | None, *, now_s: float) -> Sequence[ClusterSample]:
        """Return the samples of a span of `samples.RINGS` until now (Unix time), in this unit; None: in GPUs if any.

        Raises:
            AutoscalerError: they cannot be had now; the message is for viewers.
        """
