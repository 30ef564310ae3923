"""The loop on a cluster in virtual time, for as long as wanted."""

from __future__ import annotations

from contextlib import suppress
from typing import Protocol

from autoscaler.clusters.simulated.cluster import SimulatedCluster, SimulationOverError


class Runnable(Protocol):
    """`autoscaler.loop.Loop`: named by what is used of it, so that nothing here waits for a real clock."""

    async def run(self) -> None:
        """Run until something is raised."""


async def run_loop(loop: Runnable, cluster: SimulatedCluster, until_s: float) -> None:
    """Run the loop, which was made for this cluster, until virtual time has come to `until_s`."""
    cluster.end_at(until_s)
    try:
        with suppress(SimulationOverError):
            await loop.run()
    finally:
        cluster.end_at(None)
