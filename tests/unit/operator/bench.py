"""The operator's parts around an API server in memory, moved by hand: no task runs by itself, no clock ticks."""

from datetime import UTC, datetime

from autoscaler.clusters.kubernetes.api.api_port import EVERYWHERE
from autoscaler.clusters.kubernetes.api.kinds import DEPLOYMENTS, EVENTS, PODS, TRAINING_JOBS
from autoscaler.clusters.kubernetes.builders.build_settings import BuildSettings, EtcdAccess
from autoscaler.clusters.kubernetes.cache.object_cache import WATCHED_KINDS
from autoscaler.clusters.kubernetes.kubernetes_cluster import KubernetesCluster
from autoscaler.domain import AdmitGang, Cause, CreatePod, Role, Tier
from autoscaler.fault_isolation import JobErrors
from autoscaler.jobs.progress import WhyNoAnswer
from autoscaler.operator.controllers.job_controller import JobController
from autoscaler.operator.controllers.job_writer import JobWriter
from autoscaler.operator.controllers.owned_objects import OwnedObjects
from autoscaler.operator.controllers.pod_failures import PodFailures
from autoscaler.operator.controllers.progress_poller import ProgressPoller
from autoscaler.operator.controllers.server_drain import ServerDrains
from autoscaler.operator.store.job_objects import JobCache
from autoscaler.operator.store.job_store import JobStore
from tests.unit.clusters.kubernetes.fake_controllers import FakeControllers, MemoryApi, MemoryServer, add_job
from tests.unit.clusters.kubernetes.raw_objects import raw_job, template

JOB = "team-a/digits"
START_S = 1_800_000_000.0


class Said:
    """Keeps the events that are recorded."""

    def __init__(self, events):
        self.events = events

    def emit(self, job, event):
        self.events.append(event)


class Departures:
    """Keeps which pods leave, and by whom."""

    def __init__(self, left):
        self.left = left

    def handle_departure(self, job, role, end):
        self.left.append((role, end.cause))

    def forget(self, job):
        pass


class OperatorBench:
    """One leader of one cluster of two nodes.  `says` is what the job's master would answer; None: nothing."""

    def __init__(self, **spec):
        self.now_s = START_S
        self.server = MemoryServer(now=lambda: self.now_s, namespaces=("team-a",))
        self.rest = FakeControllers(self.server)
        self.api = MemoryApi(self.server)
        self.rest.add_classes()
        self.rest.add_node("n1", cpu="8")
        self.rest.add_node("n2", cpu="8")
        self.says = None
        self.reads_s = {}  # by job: what it takes of a core to read what its master says
        self.said, self.left = [], []
        add_job(self.server, small_job(**spec))
        self.lead()

    def lead(self):
        """A leader that knows nothing yet."""
        self.errors = JobErrors(self.clock)
        self.cache = JobCache(self.errors)
        settings = BuildSettings(image="edl:1", etcd=EtcdAccess(endpoints="http://etcd:2379"))
        self.store = JobStore(
            self.cache, Said(self.said), self.errors, clock=self.clock, offset_s=0.0, reclaim=settings.reclaim
        )
        self.owned = OwnedObjects(
            self.api, settings.etcd, self.store, now=lambda: datetime.fromtimestamp(self.now_s, UTC)
        )
        self.cluster = KubernetesCluster(
            self.api,
            self.cache,
            settings,
            clock=self.clock,
            offset_s=0.0,
            runtime_of=self.store.facts,
            prepare=self.owned.prepare,
            errors=self.errors,
        )
        self.store.attach(self.cluster)
        writer, reporter = JobWriter(self.api, self.store), Departures(self.left)
        self.poller = ProgressPoller(self.store, self, ServerDrains(self.store, self))
        self.failures = PodFailures(self.store, writer, self.poller, reporter)
        self.jobs = JobController(
            self.store,
            writer=writer,
            owned=self.owned,
            poller=self.poller,
            failures=self.failures,
            reporter=reporter,
        )

    def clock(self):
        return self.now_s

    # ---- the client of the job's masters

    async def poll(self, job, masters, **_):
        return WhyNoAnswer.SILENT if self.says is None or not masters else (masters[0]["metadata"]["name"], self.says)

    async def set_servers(self, job, leader, count):
        return None

    def decode_s(self, job):
        return self.reads_s.get(job.key, 0.0)

    async def close(self, job):
        pass

    # ---- what happens

    async def refresh(self):
        """What the watches would bring."""
        for kind in WATCHED_KINDS:
            self.cache.apply_listing(kind, await self.api.list(kind, EVERYWHERE), requested_at_s=self.now_s)
        self.cluster.view()

    async def round(self):
        """The rest of the cluster moves, EDL sees it, the job lives; what is to be judged is judged."""
        self.rest.settle()
        await self.refresh()
        await self.jobs.reconcile(JOB)
        while self.failures.tasks:
            for task in tuple(self.failures.tasks):
                await task
        await self.refresh()

    async def settle(self, rounds=6):
        """Until nothing moves."""
        for _ in range(rounds):
            await self.round()
            await self.cluster._gangs.settle(self.now_s)
            self.now_s += 1.0

    async def start(self):
        """The job's gang, all of it ready."""
        await self.refresh()
        placements = [
            placement(Role.TRAINER, 0),
            placement(Role.TRAINER, 1),
            placement(Role.SERVER, 0, "n2"),
            placement(Role.MASTER, 0, "n2"),
        ]
        outcome = await self.cluster.apply(AdmitGang(job=JOB, pods=tuple(placements)))
        assert outcome.result == "done", outcome
        await self.settle()
        assert self.names(PODS) >= {"digits-trainer-0", "digits-trainer-1", "digits-server-0"}
        assert self.names(DEPLOYMENTS) == {"digits-master"}

    def names(self, kind):
        return {one["metadata"]["name"] for one in self.server.all(kind)}

    def pods(self, role):
        return {one["metadata"]["name"] for one in self.server.all(PODS) if f"-{role}" in one["metadata"]["name"]}

    def edit(self, **spec):
        """A user changes the job."""
        before = self.server.get(TRAINING_JOBS, "team-a", "digits")
        metadata = before["metadata"] | {"generation": before["metadata"]["generation"] + 1}
        self.server.rewrite(TRAINING_JOBS, before, before | {"spec": before["spec"] | spec, "metadata": metadata})

    def write_status(self, status):
        """Somebody writes the job's status."""
        before = self.server.get(TRAINING_JOBS, "team-a", "digits")
        self.server.rewrite(TRAINING_JOBS, before, before | {"status": status})

    @property
    def life(self):
        return self.store.records[JOB].life

    def reasons(self):
        return [note.reason for note in self.said]

    def events(self):
        return self.server.all(EVENTS)


def small_job(**spec):
    pod = template(cpu="1")
    return raw_job(
        **{"trainer": {"minReplicas": 2, "maxReplicas": 4, "template": pod}, "server": {"template": pod}} | spec
    )


def placement(role, ordinal, node="n1"):
    return CreatePod(job=JOB, role=role, ordinal=ordinal, tier=Tier.CORE, node=node, cause=Cause.START)


async def write_events(events):
    """What waits is written now: nobody waits for a task."""
    while not events._queue.empty():
        await events.write(events._queue.get_nowait())
