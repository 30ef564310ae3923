"""An owner with several replicas in an `IdleScene`, and what its controller does."""

from autoscaler.clusters.kubernetes.api.api_port import Subresource
from autoscaler.clusters.kubernetes.api.kinds import DEPLOYMENTS, PODS, STATEFUL_SETS
from autoscaler.clusters.kubernetes.objects.labels import DELETION_COST, FORMER_COST
from autoscaler.operator.idle.deletion_costs import LOWEST_COST
from tests.unit.operator.idle.idle_scene import NOTICE_S, IdleScene


class Replicas:
    """An owner with one pod a GPU, a gang that waits for some, and the owner's controller."""

    def __init__(self, kind, scene, names):
        self.kind, self.scene, self.names = kind, scene, names

    async def settle(self):
        """What the controller does: the pods of a smaller scale leave, in its order."""
        found = await self.scene.api.get(self.kind, "web", namespace="nb")
        while len(self.left()) > found["spec"]["replicas"]:
            await self.scene.api.delete(PODS, min(self.left(), key=self.turn), namespace="nb", grace_s=0)
        status = {"status": {"replicas": len(self.left())}}
        await self.scene.api.patch(self.kind, "web", status, namespace="nb", subresource=Subresource.STATUS)

    def left(self):
        return [name for name in self.scene.names() if name in self.names]

    def turn(self, name):
        if self.kind == STATEFUL_SETS:
            return -int(name.rpartition("-")[2])
        return int(self.cost(name) or 0), name

    def cost(self, name):
        [raw] = [raw for raw in self.scene.server.all(PODS) if raw["metadata"]["name"] == name]
        return raw["metadata"]["annotations"].get(DELETION_COST)

    def note(self, name):
        """What EDL noted as the former cost; None: nothing."""
        [raw] = [raw for raw in self.scene.server.all(PODS) if raw["metadata"]["name"] == name]
        return raw["metadata"]["annotations"].get(FORMER_COST)

    async def write_cost(self, name, cost, **annotations):
        """What another controller, or a term before, does."""
        change = {"metadata": {"annotations": {DELETION_COST: cost, **annotations}}}
        await self.scene.api.patch(PODS, name, change, namespace="nb")

    async def until_lowered(self, name, **minutes):
        """The notice ends, and the pod's cost is lowered."""
        await self.pass_time(NOTICE_S, **minutes)
        while self.cost(name) != LOWEST_COST:
            await self.pass_time(1, step_s=1.0, **minutes)

    async def ready(self, name, *, is_ready=True):
        status = {"status": {"conditions": [{"type": "Ready", "status": str(is_ready)}]}}
        await self.scene.api.patch(PODS, name, status, namespace="nb", subresource=Subresource.STATUS)

    async def pass_time(self, seconds, *, step_s=20.0, **minutes):
        for _ in range(int(seconds / step_s)):
            self.scene.report(**{name.replace("_", "-"): value for name, value in minutes.items()})
            await self.scene.tick(step_s)
            await self.settle()


async def replicas_of(kind, *, count=3, minimum="0", waits=1, **spec):
    scene = IdleScene(gpus=count, pods=count, waits=waits)
    ref = await scene.add_owner(kind, "web", replicas=count, there=count, **spec)
    names = [f"web-{number}" if kind == STATEFUL_SETS else f"web-5d9-{'abcdef'[number]}" for number in range(count)]
    labels = {"app": "web", "pod-template-hash": "5d9"} if kind == DEPLOYMENTS else {}
    owner = {"kind": "ReplicaSet", "name": "web-5d9"} if kind == DEPLOYMENTS else ref
    made = Replicas(kind, scene, names)
    annotations = {"edl.dev/idle-reclaim": "30m", "edl.dev/idle-min-replicas": minimum}
    for name in names:
        await scene.add(name, annotations, owner=owner, labels=labels)
        await made.ready(name)
    return made


async def deployment(**words):
    return await replicas_of(DEPLOYMENTS, selector={"matchLabels": {"app": "web"}}, **words)
