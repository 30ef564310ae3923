"""One waiting gang, notebooks of others on one node with four GPUs, and reports on what they do; moved by hand."""

from dataclasses import replace

from autoscaler.clusters.kubernetes.api.api_port import Scope, Subresource
from autoscaler.clusters.kubernetes.api.kinds import POD_AUTOSCALERS, PODS
from autoscaler.clusters.kubernetes.memory_api import MemoryApi, MemoryServer
from autoscaler.clusters.kubernetes.objects.fields import to_time
from autoscaler.clusters.kubernetes.objects.labels import IDLE_MINIMUM, IDLE_RECLAIM, KEEP_UNTIL
from autoscaler.domain import Pod, PodPhase, ReclaimMode, Role, Tier
from autoscaler.domain.gpu_reports import NO_REPORTS, GpuReport, GpuVerdict, NodeGpuReport
from autoscaler.fault_isolation import JobErrors
from autoscaler.operator.idle.idle_reclaimer import IdleReclaimer
from autoscaler.operator.idle.pod_consents import PodConsents
from autoscaler.operator.metrics import Metrics
from autoscaler.operator.store.consent_objects import WATCHED, ConsentObjects
from autoscaler.planner import plan
from tests.property.planner_cases import NO_GATES
from tests.unit.clusters.memory_cluster import MemoryCluster
from tests.unit.planner.setups import job, node, shape

START_S = 1_800_000_000.0
OFFSET_S = -START_S + 5_000.0  # the cluster's clock is no Unix time
ACT = replace(NO_GATES, idle_reclaim=ReclaimMode.ACT, idle_notice_s=300.0)
NOTICE_S = ACT.idle_notice_s
AGREED, NO_MINIMUM = {"edl.dev/idle-reclaim": "30m"}, {"edl.dev/idle-min-replicas": "0"}


class Cache:
    """The pods of an API server, as a watch would show them at once."""

    def __init__(self, server, confirmed_at_s=lambda: 0.0):
        self.server, self.confirmed_at_s = server, confirmed_at_s

    def oldest_confirmed_at_s(self, _kinds):
        return self.confirmed_at_s()

    def get(self, kind, key):
        return next((raw for raw in self.server.all(kind) if _at(raw) == key), None)

    def objects(self, kind):
        return {_at(raw): raw for raw in self.server.all(kind)}


def _at(raw):
    return (raw["metadata"].get("namespace", ""), raw["metadata"]["name"])


class Events:
    def __init__(self):
        self.said = []

    def emit(self, subject, event):
        self.said.append((event.reason, subject.name, event.message))

    async def write_now(self, subject, event):
        self.emit(subject, event)
        return True


class IdleScene:
    """`report(name=minutes unused or None)` is what the node's agent says now; `tick` lets seconds pass.

    `make_events(scene)`: who records events, in place of a list.
    """

    def __init__(self, *, policy=ACT, gpus=4, waits=2, pods=2, namespaces=(), make_events=None):
        self.now_unix_s, self.policy, self.gpus = START_S, policy, gpus
        self.server = MemoryServer(now=lambda: self.now_unix_s, namespaces=("nb",))
        self.api = MemoryApi(self.server)
        self.jobs = [job("gang", low=1, high=1, gpu=waits)] if waits else []
        self.errors = JobErrors(lambda: self.now_unix_s + OFFSET_S)
        self.events = Events() if make_events is None else make_events(self)
        self.metrics = Metrics()
        self.source_reports, self.refused, self.asks, self.use = NO_REPORTS, {}, [], ({}, ())
        self.per_pod, self.came_unix_s = gpus // pods, START_S
        self.objects = ConsentObjects(
            self.api, Cache(self.server), self.errors, namespaces=namespaces, clock=lambda: 0.0, jitter=lambda: 0.0
        )
        self.watch_age_s = 0.0  # None: nothing has been listed yet
        self.reclaimer = IdleReclaimer(
            self.api,
            Cache(self.server, self.confirmed_at_s),
            self,
            PodConsents(self.api, self.objects, self.events),
            events=self.events,
            metrics=self.metrics,
            policy=policy,
            errors=self.errors,
            view=self.view,
            set_use=lambda devices, idle: setattr(self, "use", (devices, idle)),
            clock=lambda: self.now_unix_s + OFFSET_S,
            offset_s=OFFSET_S,
        )

    # what the product asks

    def reports(self):
        return self.source_reports

    def arrived_at_s(self, _where):
        return self.came_unix_s + OFFSET_S

    def asked(self, _now_s):
        return ()

    async def ask_for_report(self, where, _now_s):
        self.asks.append(where)

    def confirmed_at_s(self):
        return None if self.watch_age_s is None else self.now_unix_s + OFFSET_S - self.watch_age_s

    # the world

    async def add(self, name, annotations, owner=None, labels=None):
        metadata = {"name": name, "namespace": "nb", "annotations": dict(annotations), "labels": dict(labels or {})}
        if owner is not None:
            metadata["ownerReferences"] = [{"controller": True, "uid": "u", "apiVersion": "apps/v1"} | owner]
        body = {"metadata": metadata, "spec": {"containers": [{"name": "c", "image": "i"}]}}
        await self.api.create(PODS, {"apiVersion": "v1", "kind": "Pod"} | body)

    async def add_owner(self, kind, name, *, replicas=1, there=1, **spec):
        """A Deployment or StatefulSet; return what its pods refer to (a Deployment's: by their ReplicaSet)."""
        metadata = {"name": name, "namespace": "nb"}
        made = await self.api.create(kind, {"metadata": metadata, "spec": {"replicas": replicas, **spec}})
        status = {"status": {"replicas": there}}
        await self.api.patch(kind, name, status, namespace="nb", subresource=Subresource.STATUS)
        return {"kind": kind.kind, "name": name, "uid": made["metadata"]["uid"]}

    async def add_scaler(self, name, ref):
        """A HorizontalPodAutoscaler of that owner."""
        target = {"apiVersion": "apps/v1", "kind": ref["kind"], "name": ref["name"]}
        body = {"metadata": {"name": name, "namespace": "nb"}, "spec": {"scaleTargetRef": target, "maxReplicas": 3}}
        await self.api.create(POD_AUTOSCALERS, body)

    def names(self):
        return sorted(
            raw["metadata"]["name"] for raw in self.server.all(PODS) if "deletionTimestamp" not in raw["metadata"]
        )

    async def annotate(self, name, *, kind=PODS, **values):
        words = {"reclaim": IDLE_RECLAIM, "keep": KEEP_UNTIL, "minimum": IDLE_MINIMUM}
        change = {words[word]: value for word, value in values.items()}
        namespace = "nb" if kind.is_namespaced else None
        await self.api.patch(kind, name, {"metadata": {"annotations": change}}, namespace=namespace)

    def view(self):
        pods = [
            Pod(
                name=f"nb/{name}",
                role=Role.EXTERNAL,
                tier=Tier.EXTERNAL,
                shape=shape(100, gpu=self.per_pod),
                phase=PodPhase.READY,
                node="n",
                created_at_s=-1e6,
            )
            for name in self.names()
        ]
        cluster = MemoryCluster([node("n", 8_000, gpu=self.gpus)], self.jobs, pods=pods)
        cluster.now_s = self.now_unix_s + OFFSET_S
        return cluster.view(idle_pods=self.use[1])

    def report(self, *, at_s=0.0, missing=0, verdict=None, **minutes):
        """A report of `at_s` seconds ago.  `missing`: how many GPUs of each pod it does not name."""
        gpus = []
        for name in self.names():
            low = minutes.get(name)
            for number in range(self.per_pod - missing):
                said = verdict or (GpuVerdict.ACTIVE if low is None else GpuVerdict.HELD)
                since_s = min(self.now_unix_s, self.now_unix_s - at_s) - 60.0 * low if said is GpuVerdict.HELD else None
                gpus.append(
                    GpuReport(
                        uuid=f"{name}-{number}", model="H100", verdict=said, low_since_s=since_s, pods=(f"nb/{name}",)
                    )
                )
        one = NodeGpuReport(node="n", gpus=tuple(gpus), reported_at_s=self.now_unix_s - at_s)
        self.source_reports, self.came_unix_s = self.source_reports.changed([one]), self.now_unix_s

    async def watch(self):
        """What the watches of namespaces and owners show, at once."""
        watched = self.objects.watched
        sources = [(one, source) for one in WATCHED for source in watched.sources(one)]
        for kind, source in sources:
            listing = await self.api.list(kind, Scope(namespace=source or None))
            watched.apply_listing(kind, listing, requested_at_s=self.now_unix_s, source=source)

    async def tick(self, seconds=1.0):
        """Time passes; the operator looks, plans and acts."""
        self.now_unix_s += seconds
        await self.watch()
        self.reclaimer.refresh()
        made = plan(self.view(), self.policy, self.now_unix_s + OFFSET_S)
        self.reclaimer.handle_decisions(made.idle_reclaims, planned_at_s=made.planned_at_s)
        await self.reclaimer.act()
        return made

    async def keep(self, name, seconds):
        await self.annotate(name, keep=to_time(self.now_unix_s + seconds))

    def said(self, reason):
        return [name for told, name, _ in self.events.said if told == reason]


async def scene_of(*, owner=None, reclaim="30m", **words):
    """`alice` and `bob` hold two GPUs each and agreed to 30 minutes; a gang waits for two."""
    scene = IdleScene(**words)
    for name in ("alice", "bob"):
        await scene.add(name, {} if reclaim is None else {"edl.dev/idle-reclaim": reclaim}, owner=owner)
    return scene


async def pass_time(scene, seconds, *, step_s=20.0, **report):
    """Reports keep coming, and the operator looks in each step."""
    for _ in range(int(seconds / step_s)):
        scene.report(**report)
        await scene.tick(step_s)
