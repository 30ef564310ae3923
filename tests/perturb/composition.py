"""Adapter, planner and loop put together as the operator puts them, on any `Api` and any clock."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from autoscaler.clusters.kubernetes.api.api_port import Api
from autoscaler.clusters.kubernetes.builders.build_settings import BuildSettings, EtcdAccess
from autoscaler.clusters.kubernetes.cache.object_cache import WATCHED_KINDS, ObjectCache
from autoscaler.clusters.kubernetes.cache.reflector import Reflector, WatchPolicy
from autoscaler.clusters.kubernetes.cluster_view import RuntimeOf
from autoscaler.clusters.kubernetes.kubernetes_cluster import KubernetesCluster
from autoscaler.clusters.kubernetes.parsing.training_jobs import KubeJob
from autoscaler.domain import Policy
from autoscaler.fault_isolation import JobErrors
from autoscaler.fault_log import FaultLog
from autoscaler.loop import Loop, LoopPass


@dataclass(frozen=True, slots=True, kw_only=True)
class Composed:
    """The parts of one autoscaler; nothing is known to it but what it reads."""

    store: ObjectCache
    cluster: KubernetesCluster
    watching: Reflector
    loop: Loop

    async def run(self) -> None:
        """Until cancelled, or until a part fails."""
        async with asyncio.TaskGroup() as tasks:
            for work in (self.watching.run(), self.cluster.settle_gangs(), self.loop.run()):
                tasks.create_task(work)


def compose(
    api: Api,
    policy: Policy,
    *,
    clock: Callable[[], float],
    offset_s: float,
    jitter: Callable[[], float],
    facts_of: RuntimeOf,
    prepare: Callable[[KubeJob], Awaitable[None]],
    listen: Callable[[LoopPass], None],
    watching: WatchPolicy | None = None,
    elastic_servers: bool = False,
) -> Composed:
    """Put an autoscaler together.  `offset_s` takes Unix time to `clock`."""
    errors = JobErrors(clock, FaultLog())
    store = ObjectCache(errors)
    settings = BuildSettings(
        image="edl:test",
        etcd=EtcdAccess(endpoints="http://etcd:2379"),
        reclaim=policy.reclaim,
        elastic_servers=elastic_servers,
        surplus_grace_s=policy.surplus_grace_s,
    )
    cluster = KubernetesCluster(
        api, store, settings, clock=clock, offset_s=offset_s, runtime_of=facts_of, prepare=prepare, errors=errors
    )
    watches = Reflector(api, store, WATCHED_KINDS, now=clock, jitter=jitter, notify=cluster.touch, policy=watching)
    return Composed(
        store=store, cluster=cluster, watching=watches, loop=Loop(cluster, policy, listener=listen, errors=errors)
    )
