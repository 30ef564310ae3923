"""What EDL writes while others own replica counts: never an object whose count is theirs (A10).

Every write of one term is compared with the object as it stood before.  The counts are those of a web Deployment that a
HorizontalPodAutoscaler is set upon, of a StatefulSet that a person scales, and of a TrainingJob with an autoscaler of
its own: all change while EDL starts the job, grows it, shrinks it for the web, suspends and resumes it.
"""

import copy
from dataclasses import dataclass

import pytest

from autoscaler.clusters.kubernetes.api.api_port import Subresource
from autoscaler.clusters.kubernetes.api.decorators import ApiDecorator
from autoscaler.clusters.kubernetes.api.errors import NotFoundError
from autoscaler.clusters.kubernetes.api.kinds import (
    DEPLOYMENTS,
    POD_AUTOSCALERS,
    PODS,
    PRIORITY_CLASSES,
    STATEFUL_SETS,
    TRAINING_JOBS,
)
from autoscaler.clusters.kubernetes.memory_api import MemoryApi
from autoscaler.domain import Policy, Reclaim
from tests.unit.clusters.kubernetes.fake_controllers import FakeControllers
from tests.unit.clusters.kubernetes.raw_objects import UID, template
from tests.unit.operator.term import Term

NAMESPACE = "team-a"
POLICY = Policy(
    reclaim=Reclaim.PLANNER,
    up_window_s=0.0,
    down_window_s=0.0,
    quiet_window_s=0.0,
    burst_window_s=0.0,
    victim_age_s=0.0,
    surplus_grace_s=2.0,
)
FEW, MANY = 2, 7
WEB, PLAIN = "web", "plain"
OWNED = {"apiVersion": "edl.dev/v1alpha1", "kind": "TrainingJob", "name": "digits", "uid": UID, "controller": True}


@dataclass(frozen=True)
class Write:
    """One call, with the object as it stood before and after it; None where there is none."""

    verb: str
    kind: object
    name: str
    subresource: Subresource | None
    before: dict | None
    after: dict | None

    def count_change(self):
        """The foreign count that this write touches, in words; empty if there is none."""
        if self.subresource is Subresource.SCALE:
            return f"{self.verb} of the scale of {self.kind.plural}/{self.name}"
        if not is_replicated(self.kind) or is_of_a_job(self.before or self.after):
            return ""
        if self.kind != TRAINING_JOBS:
            return f"{self.verb} of {self.kind.plural}/{self.name}, which is somebody else's"
        if self.before is None or self.after is None or self.before["spec"] != self.after["spec"]:
            return f"{self.verb} of the specification of {self.kind.plural}/{self.name}"
        return ""


class WrittenApi(ApiDecorator):
    """Remembers each write that the server has taken or refused."""

    def __init__(self, inner, server):
        super().__init__(inner)
        self.server = server
        self.writes = []

    async def create(self, kind, body):
        return await self._written("create", kind, body["metadata"], super().create(kind, body))

    async def apply(self, kind, body, *, subresource=None, **more):
        call = super().apply(kind, body, subresource=subresource, **more)
        return await self._written("apply", kind, body["metadata"], call, subresource)

    async def patch(self, kind, name, change, *, namespace=None, subresource=None, **more):
        call = super().patch(kind, name, change, namespace=namespace, subresource=subresource, **more)
        return await self._written("patch", kind, {"name": name, "namespace": namespace}, call, subresource)

    async def delete(self, kind, name, *, namespace=None, **more):
        call = super().delete(kind, name, namespace=namespace, **more)
        return await self._written("delete", kind, {"name": name, "namespace": namespace}, call)

    async def _written(self, verb, kind, metadata, call, subresource=None):
        name, namespace = metadata.get("name", ""), metadata.get("namespace")
        before = self._standing(kind, namespace, name)
        try:
            return await call
        finally:
            after = self._standing(kind, namespace, name)
            self.writes.append(Write(verb, kind, name, subresource, before, after))

    def _standing(self, kind, namespace, name):
        try:
            return copy.deepcopy(self.server.get(kind, namespace, name))
        except NotFoundError:
            return None


def is_replicated(kind):
    """Kinds with a scale, as far as the cluster of these tests has them."""
    return kind in {DEPLOYMENTS, STATEFUL_SETS, TRAINING_JOBS}


def is_of_a_job(raw):
    """EDL makes the Deployment of a job's master, and owns its count."""
    owners = raw["metadata"].get("ownerReferences", ())
    return any(owner["kind"] == "TrainingJob" and owner["controller"] for owner in owners)


class SayingCluster(FakeControllers):
    """Its scheduler says which pods it cannot place."""

    def _bind(self, pod):
        super()._bind(pod)
        raw = self.server.get(PODS, pod["metadata"]["namespace"], pod["metadata"]["name"])
        if "nodeName" not in raw["spec"] and "conditions" not in raw["status"]:
            verdict = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
            self.server.rewrite(PODS, raw, raw | {"status": raw["status"] | {"conditions": [verdict]}})


class Scene(Term):
    """A job of 1 to 6 trainers beside three objects whose counts are others'."""

    def __init__(self, *, is_contested=False):
        spec = {"trainer": {"minReplicas": 1, "maxReplicas": 6, "template": template(cpu="2")}}
        super().__init__(policy=POLICY, job=spec, around=lambda bench: WrittenApi(bench.api, bench.server))
        self.bench.rest = SayingCluster(self.server)
        self.people = MemoryApi(self.server, field_manager="kubectl")
        self.autoscaler = MemoryApi(self.server, field_manager="horizontal-pod-autoscaler")
        self.is_contested = is_contested

    async def begin(self):
        await self.people.create(PRIORITY_CLASSES, {"metadata": {"name": "web"}, "value": 1000})
        await self.people.create(DEPLOYMENTS, replicated(WEB))
        await self.people.create(STATEFUL_SETS, replicated(PLAIN))
        await self.people.create(POD_AUTOSCALERS, autoscaler_of(WEB, "apps/v1", "Deployment", WEB))
        if self.is_contested:
            body = autoscaler_of("trainers", TRAINING_JOBS.api_version, TRAINING_JOBS.kind, "digits")
            await self.people.create(POD_AUTOSCALERS, body)

    async def scale_web(self, replicas):
        """The autoscaler and a person, each at its own object's scale."""
        await self._scale(self.autoscaler, DEPLOYMENTS, WEB, replicas)
        await self._scale(self.people, STATEFUL_SETS, PLAIN, replicas)

    async def scale_job(self, replicas):
        await self._scale(self.autoscaler, TRAINING_JOBS, "digits", replicas)

    async def _scale(self, api, kind, name, replicas):
        through = Subresource.SCALE if kind in self.server.scales else None
        await api.patch(kind, name, {"spec": {"replicas": replicas}}, namespace=NAMESPACE, subresource=through)

    def trainers(self):
        pods = [pod["metadata"] for pod in self.server.all(PODS)]
        return sum("-trainer-" in pod["name"] and "deletionTimestamp" not in pod for pod in pods)

    async def live(self, steps):
        """Whatever EDL writes, the specifications of others stay as others wrote them."""
        set_by_others = self.foreign()
        await self.step(steps)
        assert self.foreign() == set_by_others

    def foreign(self):
        """Who has set which field of the foreign specifications, and to what."""
        found = {}
        for kind, name in (
            (DEPLOYMENTS, WEB),
            (STATEFUL_SETS, PLAIN),
            (POD_AUTOSCALERS, WEB),
            (TRAINING_JOBS, "digits"),
        ):
            owners = self.server.owners(kind, NAMESPACE, name)
            spec = copy.deepcopy(self.server.get(kind, NAMESPACE, name)["spec"])
            found[kind.plural] = (spec, {path: who for path, who in owners.items() if path[0] == "spec"})
        return found

    def count_changes(self):
        return [problem for write in self.api.writes if (problem := write.count_change())]


def replicated(name, **metadata):
    labels = {"app": name}
    pod = template(cpu="1")["spec"] | {"priorityClassName": "web", "priority": 1000}
    spec = {
        "replicas": FEW,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": pod},
    }
    return {"metadata": {"name": name, "namespace": NAMESPACE} | metadata, "spec": spec}


def autoscaler_of(name, version, kind, target):
    spec = {"scaleTargetRef": {"apiVersion": version, "kind": kind, "name": target}, "maxReplicas": 9}
    return {"metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec}


@pytest.mark.parametrize(
    ("is_contested", "counts"), [(False, [6, 3, 6]), (True, [3, 2, 3])], ids=["web", "web-and-job"]
)
async def test_no_write_of_a_whole_life_is_to_a_count_of_somebody_else(is_contested, counts):
    """The job starts, grows, gives way, comes back, is suspended and resumed (A10)."""
    scene = Scene(is_contested=is_contested)
    await scene.begin()
    for replicas, count in zip((FEW, MANY, FEW), counts, strict=True):
        await scene.scale_web(replicas)
        if is_contested:
            await scene.scale_job(count)
        await scene.live(12)
        assert scene.trainers() == count
    for is_suspended in (True, False):
        change = {"spec": {"runPolicy": {"suspend": is_suspended}}}
        await scene.people.patch(TRAINING_JOBS, "digits", change, namespace=NAMESPACE)
        await scene.live(20)
        assert scene.trainers() == (0 if is_suspended else counts[-1])
    verbs = {(write.verb, write.kind.plural) for write in scene.api.writes}
    assert verbs >= {("create", "pods"), ("delete", "pods"), ("create", "deployments"), ("apply", "trainingjobs")}
    assert scene.count_changes() == []


async def test_a_write_to_a_count_of_somebody_else_is_noticed():
    """By whatever call; what EDL may write of the same objects is not (A10)."""
    scene = Scene()
    await scene.begin()
    spec = {"spec": {"replicas": MANY}}
    writes = (
        scene.api.patch(DEPLOYMENTS, WEB, spec, namespace=NAMESPACE, subresource=Subresource.SCALE),
        scene.api.patch(DEPLOYMENTS, WEB, spec, namespace=NAMESPACE),
        scene.api.apply(STATEFUL_SETS, replicated(PLAIN) | spec),
        scene.api.delete(STATEFUL_SETS, PLAIN, namespace=NAMESPACE),
        scene.api.patch(TRAINING_JOBS, "digits", {"spec": {"trainer": {"replicas": 3}}}, namespace=NAMESPACE),
    )
    for number, write in enumerate(writes, start=1):
        await write
        assert len(scene.count_changes()) == number
    status = {"status": {"phase": "Running"}}
    await scene.api.patch(TRAINING_JOBS, "digits", status, namespace=NAMESPACE, subresource=Subresource.STATUS)
    await scene.api.create(DEPLOYMENTS, replicated("digits-master", ownerReferences=[OWNED]))
    assert len(scene.count_changes()) == len(writes)
