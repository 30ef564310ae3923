"""The operator's parts around an API server in memory, moved by hand: no task runs by itself, no clock ticks."""

from datetime import UTC, datetime

from autoscaler.clusters.kubernetes.api.api_port import EVERYWHERE
from autoscaler.clusters.kubernetes.api.kinds import DEPLOYMENTS, EVENTS, PODS, TRAINING_JOBS
from autoscaler.clusters.kubernetes.builders.build_settings import BuildSettings, EtcdAccess
from autoscaler.clusters.kubernetes.cache.object_cache import KINDS
from autoscaler.clusters.kubernetes.kubernetes_cluster import KubernetesCluster
from autoscaler.domain import AdmitGang, Cause, CreatePod, Role, Tier
from autoscaler.fault_isolation import JobErrors
from autoscaler.jobs.answers import NoProgress
from autoscaler.operator.controllers.ground import Ground
from autoscaler.operator.controllers.job_controller import Jobs
from autoscaler.operator.controllers.job_store import Ears
from autoscaler.operator.controllers.job_writer import Hands
from autoscaler.operator.controllers.owned_objects import Objects
from autoscaler.operator.controllers.watched_store import FollowedStore
from tests.unit.clusters.kubernetes.objects import raw_job, template
from tests.unit.clusters.kubernetes.stand_ins import MemoryApi, MemoryServer, RestOfTheCluster, add_job

JOB = "team-a/digits"
START_S = 1_800_000_000.0


class OperatorBench:
    """One leader of one cluster of two nodes.  `says` is what the job's master would answer; None: nothing."""

    def __init__(self, **spec):
        self.now_s = START_S
        self.server = MemoryServer(now=lambda: self.now_s, namespaces=("team-a",))
        self.rest = RestOfTheCluster(self.server)
        self.api = MemoryApi(self.server)
        self.rest.add_classes()
        self.rest.add_node("n1", cpu="8")
        self.rest.add_node("n2", cpu="8")
        self.says = None
        self.reads_s = {}  # by job: what it takes of a core to read what its master says
        self.said, self.left, self.changed = [], [], set()
        add_job(self.server, small_job(**spec))
        self.lead()

    def lead(self):
        """A leader that knows nothing yet."""
        self.errors = JobErrors(lambda: self.now_s)
        self.store = FollowedStore(self.errors)
        settings = BuildSettings(image="edl:1", etcd=EtcdAccess(endpoints="http://etcd:2379"))
        self.objects = Objects(
            self.api,
            settings.etcd,
            now=lambda: datetime.fromtimestamp(self.now_s, UTC),
            servers_of=lambda _job: 0,
            is_stuck=lambda _job: False,
            errors=self.errors,
        )
        self.cluster = KubernetesCluster(
            self.api,
            self.store,
            settings,
            clock=lambda: self.now_s,
            offset_s=0.0,
            facts_of=lambda job: self.jobs.facts(job),  # noqa: PLW0108 - `jobs` is made later
            prepare=self.objects.prepare,
            errors=self.errors,
        )
        self.ground = Ground(self.store, self.cluster.views)
        self.jobs = Jobs(
            self.ground,
            Hands(self.api, delete_pod=self.cluster.delete_pod),
            Ears(
                say=lambda job, note: self.said.append(note),
                left=lambda job, role, end: self.left.append((role, end.by)),
                changed=self.changed.add,
                touched=self.cluster.touch,
            ),
            ask=self.ask,
            reading_s=lambda job: self.reads_s.get(job.key, 0.0),
            clock=lambda: self.now_s,
            offset_s=0.0,
            errors=self.errors,
        )
        self.store.follow = self.jobs.wake

    async def ask(self, job, masters):
        return NoProgress.SILENT if self.says is None or not masters else (masters[0]["metadata"]["name"], self.says)

    async def refresh(self):
        """What the watches would bring."""
        for kind in KINDS:
            self.store.take_listing(kind, await self.api.list(kind, EVERYWHERE), asked_at_s=self.now_s)
        self.cluster.view()

    async def round(self):
        """The rest of the cluster moves, EDL sees it, the job lives; what is to be judged is judged."""
        self.rest.settle()
        await self.refresh()
        await self.jobs.look(JOB)
        while self.jobs.failures.tasks:
            for task in tuple(self.jobs.failures.tasks):
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
        seats = [seat(Role.TRAINER, 0), seat(Role.TRAINER, 1), seat(Role.SERVER, 0, "n2"), seat(Role.MASTER, 0, "n2")]
        outcome = await self.cluster.apply(AdmitGang(job=JOB, pods=tuple(seats)))
        assert outcome.verdict == "done", outcome
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
        return self.jobs.records[JOB].life

    def reasons(self):
        return [note.reason for note in self.said]

    def events(self):
        return self.server.all(EVENTS)


def small_job(**spec):
    pod = template(cpu="1")
    return raw_job(trainer={"minReplicas": 2, "maxReplicas": 4, "template": pod}, server={"template": pod}, **spec)


def seat(role, ordinal, node="n1"):
    return CreatePod(job=JOB, role=role, ordinal=ordinal, tier=Tier.CORE, node=node, cause=Cause.START)


async def write_events(events):
    """What waits is written now: nobody waits for a task."""
    while not events._queue.empty():
        await events.write(events._queue.get_nowait())
