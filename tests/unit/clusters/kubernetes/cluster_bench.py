"""A Kubernetes cluster on an API server in memory: two nodes, one job, and a store brought up to date by hand."""

import asyncio

from autoscaler.clusters.kubernetes.api.api_port import EVERYWHERE
from autoscaler.clusters.kubernetes.api.errors import UnavailableError
from autoscaler.clusters.kubernetes.api.kinds import (
    PODS,
)
from autoscaler.clusters.kubernetes.cache.object_cache import WATCHED_KINDS, ObjectCache
from autoscaler.clusters.kubernetes.cluster_view import JobRuntime
from autoscaler.clusters.kubernetes.kubernetes_cluster import KubernetesCluster
from autoscaler.clusters.kubernetes.parsing.object_trimming import TRIMMERS
from autoscaler.domain import AdmitGang, Cause, JobState, Role, Tier
from autoscaler.fault_isolation import JobErrors
from tests.unit.clusters.cluster_contract import Stage, placement
from tests.unit.clusters.kubernetes.fake_controllers import FakeControllers, MemoryApi, MemoryServer
from tests.unit.clusters.kubernetes.raw_objects import SETTINGS, raw_job, template

JOB = "team-a/digits"


class Bench:
    """A cluster of two nodes, whose store is brought up to date by hand."""

    def __init__(self):
        self.now_s = 1_000.0
        self.server = MemoryServer(now=lambda: self.now_s, namespaces=("team-a",))
        self.rest = FakeControllers(self.server)
        self.api = MemoryApi(self.server)
        self.prepared = []
        self.state = JobState.ACTIVE
        self.avoid = frozenset()
        self.resize_pause_s = 0.0
        self.cluster = self.lead()
        self.rest.add_classes()

    def lead(self):
        """A leader that knows nothing yet."""
        errors = JobErrors(lambda: self.now_s)
        self.store = ObjectCache(errors, TRIMMERS)
        return KubernetesCluster(
            self.api,
            self.store,
            SETTINGS,
            clock=lambda: self.now_s,
            offset_s=0.0,
            runtime_of=lambda _job: JobRuntime(
                state=self.state, avoided_nodes=self.avoid, resize_pause_s=self.resize_pause_s
            ),
            prepare=self.prepare,
            errors=errors,
        )

    async def prepare(self, job):
        self.prepared.append(job.key)

    async def refresh(self):
        """What the watches would bring."""
        for kind in WATCHED_KINDS:
            self.store.apply_listing(kind, await self.api.list(kind, EVERYWHERE), requested_at_s=self.now_s)

    async def settle(self):
        """Everybody does what there is to do."""
        for _ in range(3):
            self.rest.settle()
            await self.refresh()
            self.cluster.view()
            await self.cluster._gangs.settle(self.now_s)
            await self.refresh()

    def raw(self, name):
        return self.server.get(PODS, "team-a", name)

    def names(self):
        return {pod["metadata"]["name"] for pod in self.server.all(PODS)}


def small_job(name="digits", **trainer):
    one = template(cpu="1", memory="256Mi")
    sizes = {"minReplicas": 1, "maxReplicas": 4, "template": one} | trainer
    return raw_job(name, trainer=sizes, master={"replicas": 1, "template": template(cpu="1", memory="256Mi")})


def gang_of(job, *, trainers=1, node="n1"):
    stage = Stage(cluster=None, job=job, nodes=(node, node), per_node=0, settle=None)
    core = [placement(stage, number, tier=Tier.CORE, cause=Cause.START) for number in range(trainers)]
    return AdmitGang(job=job, pods=(placement(stage, 0, role=Role.MASTER, tier=Tier.CORE, cause=Cause.START), *core))


class Slow:
    """Creations and patches take a while, so that they overlap."""

    def __init__(self, inner):
        self.inner = inner

    async def create(self, *args, **more):
        await asyncio.sleep(0)
        return await self.inner.create(*args, **more)

    async def patch(self, *args, **more):
        await asyncio.sleep(0)
        return await self.inner.patch(*args, **more)

    def __getattr__(self, name):
        return getattr(self.inner, name)


class CutShort:
    """After so many writes the API server answers nothing more, though it does what it is told once again."""

    def __init__(self, inner, writes):
        self.inner = inner
        self.left = writes

    async def create(self, *args, **more):
        return await self._do(self.inner.create, args, more)

    async def patch(self, *args, **more):
        return await self._do(self.inner.patch, args, more)

    async def delete(self, *args, **more):
        return await self._do(self.inner.delete, args, more)

    async def _do(self, write, args, more):
        if self.left < 0:
            raise UnavailableError("no answer", may_have_happened=False)
        self.left -= 1
        answer = await write(*args, **more)
        if self.left < 0:
            raise UnavailableError("no answer", may_have_happened=True)
        return answer

    def __getattr__(self, name):
        return getattr(self.inner, name)
