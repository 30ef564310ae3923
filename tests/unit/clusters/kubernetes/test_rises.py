"""The web rises while everybody else acts between any two of EDL's writes: one web pod costs one trainer at the most.

`reclaim: planner`: EDL chooses every victim.  Watches of different kinds lag behind one another, the scheduler judges
and binds, kubelets let pods go, the Deployment's pods come one by one, each at an instant drawn by chance.
"""

import random

import pytest

from autoscaler.clusters.kubernetes.api.api_port import EVERYWHERE
from autoscaler.clusters.kubernetes.api.kinds import DEPLOYMENTS, PODS
from autoscaler.clusters.kubernetes.cache.object_cache import WATCHED_KINDS, ObjectCache
from autoscaler.clusters.kubernetes.cluster_view import JobRuntime
from autoscaler.clusters.kubernetes.kubernetes_cluster import KubernetesCluster
from autoscaler.clusters.kubernetes.memory_api.field_ownership import FieldOwner
from autoscaler.clusters.kubernetes.parsing.object_trimming import TRIMMERS
from autoscaler.domain import JobState, Policy, Reclaim
from autoscaler.fault_isolation import JobErrors
from autoscaler.loop import Loop
from tests.unit.clusters.kubernetes.fake_controllers import FakeControllers, MemoryApi, MemoryServer, add_job
from tests.unit.clusters.kubernetes.raw_objects import planner_settings, raw_job, template

NODES, CPU, CORE = 4, 4, 2  # a server and a master
FULL = NODES * CPU - CORE
NAMESPACE = "team-a"
POLICY = Policy(
    reclaim=Reclaim.PLANNER,
    up_window_s=0.5,
    down_window_s=1.0,
    quiet_window_s=0.2,
    burst_window_s=0.0,
    victim_age_s=0.0,
    surplus_grace_s=2.0,
)


class Unruly(FakeControllers):
    """Acts on one object at a time, drawn by chance; its scheduler says why it does not bind."""

    def __init__(self, server, draw):
        super().__init__(server)
        self.draw = draw

    def nudge(self):
        """One of them does one thing."""
        if self.draw.random() < 0.2:
            for deployment in self.server.all(DEPLOYMENTS):
                self._replicate(deployment)
        pods = self.server.all(PODS)
        pod = self.draw.choice(pods) if pods else None
        if pod is None:
            return
        if "deletionTimestamp" in pod["metadata"]:
            self.server.finish(pod["metadata"]["namespace"], pod["metadata"]["name"])
        elif "nodeName" in pod["spec"]:
            self._make_ready(pod)
        elif not pod["spec"].get("schedulingGates"):
            self._judge(pod)

    def _judge(self, pod):
        self._bind(pod)
        raw = self.server.get(PODS, pod["metadata"]["namespace"], pod["metadata"]["name"])
        if "nodeName" not in raw["spec"]:
            verdict = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
            self.server.rewrite(PODS, raw, raw | {"status": raw["status"] | {"conditions": [verdict]}})


class Between:
    """An API server behind which others act before each write and after it."""

    def __init__(self, inner, others):
        self._inner = inner
        self._others = others

    def __getattr__(self, name):
        call = getattr(self._inner, name)
        if name not in {"create", "delete", "patch"}:
            return call

        async def write(*args, **more):
            await self._others()
            answer = await call(*args, **more)
            await self._others()
            return answer

        return write


class Town:
    """The cluster and its loop; time passes with each turn."""

    def __init__(self, seed):
        self.now_s = 1_000.0
        self.draw = random.Random(seed)
        self.server = MemoryServer(now=lambda: self.now_s, namespaces=(NAMESPACE,))
        self.rest = Unruly(self.server, self.draw)
        self.rest.add_classes()
        for number in range(NODES):
            self.rest.add_node(f"n{number}", cpu=str(CPU))
        errors = JobErrors(lambda: self.now_s)
        self.store = ObjectCache(errors, TRIMMERS)
        self.api = MemoryApi(self.server)
        self.cluster = KubernetesCluster(
            Between(self.api, self.others_act),
            self.store,
            planner_settings(),
            clock=lambda: self.now_s,
            offset_s=0.0,
            runtime_of=lambda _job: JobRuntime(state=JobState.ACTIVE),
            prepare=self.prepare,
            errors=errors,
        )
        self.loop = Loop(self.cluster, POLICY)

    async def prepare(self, job):
        """Nothing."""

    async def others_act(self):
        for _ in range(self.draw.randrange(4)):
            self.rest.nudge()
        for kind in WATCHED_KINDS:
            if self.draw.random() < 0.3:
                await self.hear(kind)

    async def hear(self, kind):
        self.store.apply_listing(kind, await self.api.list(kind, EVERYWHERE), requested_at_s=self.now_s)

    async def turn(self):
        """A moment passes: the others act, the watches bring what they bring, the loop makes a pass."""
        self.now_s += 0.1
        for _ in range(6):
            await self.others_act()
        await self.hear(PODS)
        await self.loop.run_pass()
        await self.cluster._gangs.settle(self.now_s)

    async def until(self, holds, *, turns=400):
        for _ in range(turns):
            if holds():
                return
            await self.turn()
        raise AssertionError(sorted(f"{pod['metadata']['name']} {pod['status']}" for pod in self.server.all(PODS)))

    def trainers(self):
        """The UIDs of those that stand and stay."""
        metadata = [pod["metadata"] for pod in self.server.all(PODS) if "trainer" in pod["metadata"]["name"]]
        return {told["uid"] for told in metadata if "deletionTimestamp" not in told}

    def running(self, part):
        pods = [pod for pod in self.server.all(PODS) if part in pod["metadata"]["name"]]
        return sum(
            pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"] for pod in pods
        )


def web_of(replicas):
    return {
        "metadata": {"name": "web", "namespace": NAMESPACE},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, **template(cpu="1", memory="128Mi")},
        },
    }


@pytest.mark.parametrize("seed", range(10))
async def test_one_web_pod_costs_one_trainer_at_the_most(seed):
    town = Town(seed)
    one = template(cpu="1", memory="128Mi")
    sizes = {"minReplicas": 1, "maxReplicas": 20, "template": one}
    server = {"minReplicas": 1, "maxReplicas": 1, "template": one}
    add_job(town.server, raw_job("digits", trainer=sizes, server=server, master={"replicas": 1, "template": one}))
    for kind in WATCHED_KINDS:
        await town.hear(kind)
    await town.until(lambda: (town.running("trainer"), town.running("master")) == (FULL, 1))
    assert len(town.trainers()) == FULL, "the room proved for the master was given to a trainer"
    before = town.trainers()
    town.server.create(DEPLOYMENTS, web_of(5), FieldOwner("kubectl", is_apply=False))
    await town.until(lambda: town.running("web") == 5)
    for _ in range(20):
        await town.turn()
    assert (len(before & town.trainers()), town.running("trainer")) == (FULL - 5, FULL - 5)
