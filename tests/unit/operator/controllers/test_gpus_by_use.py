"""Agents' reports through a whole term of a leader, to the pod that leaves (ADR 0287, 0288, promise A12)."""

import pytest

from autoscaler.clusters.kubernetes.api.api_port import EVERYWHERE, Scope, Subresource
from autoscaler.clusters.kubernetes.api.kinds import NODE_GPUS, NODES, PODS
from autoscaler.clusters.kubernetes.objects.labels import IDLE_RECLAIM
from autoscaler.domain import Policy, Reclaim, ReclaimMode, Role
from autoscaler.domain.gpu_reports import GpuReport, GpuVerdict, NodeGpuReport
from autoscaler.gpus.report_documents import make_object, make_status
from autoscaler.jobs.progress import TrainerEntry, WhyNoAnswer
from autoscaler.operator.idle.gpu_use import ASKED_AFTER_S
from autoscaler.operator.store.consent_objects import WATCHED
from tests.unit.clusters.kubernetes.raw_objects import raw_pod, template
from tests.unit.operator.bench import JOB
from tests.unit.operator.fake_master import StandInMaster, progress
from tests.unit.operator.term import Term

GPU = "nvidia.com/gpu"
MIG = "nvidia.com/mig-1g.10gb"
POLICY = Policy(
    reclaim=Reclaim.SCHEDULER,
    quiet_window_s=0.0,
    up_window_s=0.0,
    idle_reclaim=ReclaimMode.ACT,
    idle_notice_s=5.0,
    idle_window_s=60.0,
)


def with_gpu(resource=GPU):
    """A trainer's template."""
    asks = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {resource: "1"}}
    asks["requests"][resource] = "1"
    return template(resources=asks)


class Master(StandInMaster):
    """Its trainers complete a batch with each question; those in `hanging` compute on one for ever."""

    def __init__(self, term):
        super().__init__(term, count=1)
        self.hanging, self.steps = set(), {}

    async def poll(self, job, masters, **_):
        if not masters:
            return WhyNoAnswer.SILENT
        entries = []
        for name in sorted(self.term.bench.pods(Role.TRAINER)):
            uid = self.term.uid_of(name)
            if uid not in self.hanging:
                self.steps[uid] = self.steps.get(uid, 0) + 2
            entries.append(TrainerEntry(name=name, steps=self.steps.get(uid, 1), is_computing=True))
        return masters[0]["metadata"]["name"], progress(wanted=1, servers=1, lineage=1, ledger=tuple(entries))


class GpuTerm(Term):
    """A leader on two nodes with `gpus` GPUs each, whose agents say of each pod in `low` that its GPU does nothing."""

    def __init__(self, *, gpus, least, most, trainer=None, has_agents=True):
        trainer = {"minReplicas": least, "maxReplicas": most, "template": trainer or with_gpu()}
        self.has_agents = has_agents
        super().__init__(policy=POLICY, job={"trainer": trainer}, reads_gpu_reports=True)
        self.low = {}  # since when, by pod
        for raw in self.server.all(NODES):
            status = raw["status"] | {"allocatable": raw["status"]["allocatable"] | {GPU: str(gpus), MIG: str(gpus)}}
            self.server.rewrite(NODES, raw, raw | {"status": status})
        self.master = Master(self)
        self.leading.masters.poll, self.leading.masters.set_servers = self.master.poll, self.master.set_servers

    def uid_of(self, name):
        return self.server.get(PODS, "team-a", name)["metadata"]["uid"]

    async def report(self):
        """What the agents write now."""
        for node in ("n1", "n2") if self.has_agents else ():
            gpus = [
                self._gpu(raw) for raw in self.server.all(PODS) if raw["spec"].get("nodeName") == node and asks(raw)
            ]
            report = NodeGpuReport(node=node, gpus=tuple(gpus), reported_at_s=self.bench.now_s)
            if not any(one["metadata"]["name"] == node for one in self.server.all(NODE_GPUS)):
                await self.bench.api.create(NODE_GPUS, make_object(node, ""))
            status = {"status": make_status(report)}
            await self.bench.api.patch(NODE_GPUS, node, status, subresource=Subresource.STATUS)

    def _gpu(self, raw):
        name = raw["metadata"]["name"]
        since_s = self.low.get(name)
        verdict = GpuVerdict.ACTIVE if since_s is None else GpuVerdict.HELD
        pods = (f"team-a/{name}",)
        return GpuReport(uuid=f"GPU-{name}", model="T4", verdict=verdict, low_since_s=since_s, pods=pods)

    async def watch(self):
        await super().watch()
        reports, consents = self.leading.gpus._cache, self.leading.consents.watched
        for cache, kind in ((reports, NODE_GPUS), *((consents, kind) for kind in WATCHED)):
            for source in cache.sources(kind):
                scope = Scope(namespace=source) if source else EVERYWHERE
                listing = await self.bench.api.list(kind, scope)
                cache.apply_listing(kind, listing, requested_at_s=self.bench.now_s, source=source)

    async def live(self, seconds, *, until=lambda: False):
        """The leader's tasks, each in turn, every second; True once `until` holds."""
        for _ in range(seconds):
            await self.report()
            await self.step()
            await self.leading.poller.poll(self.leading.store.objects.jobs[JOB])
            self.leading.idle.refresh()
            await self.leading.idle.act()
            if until():
                return True
        return until()

    def pod_names(self):
        return self.bench.names(PODS)


def asks(raw):
    return any(GPU in (one.get("resources", {}).get("limits") or {}) for one in raw["spec"]["containers"])


async def add_notebook(term, *, consent):
    """A pod of somebody else's that has had the only GPU of n1 for a while."""
    body = raw_pod("notebook", node="n1", meta={"annotations": {IDLE_RECLAIM: "10m"} if consent else {}})
    body["spec"]["containers"][0]["resources"] = {"requests": {GPU: "1"}, "limits": {GPU: "1"}}
    await term.bench.api.create(PODS, body)
    term.bench.now_s += 900


async def test_a_report_starts_a_job_on_the_gpu_that_an_idle_notebook_gave_back():
    """From the agent's object to the gang: nothing before the notice is over, and an event on each side."""
    term = GpuTerm(gpus=1, least=2, most=2)
    await add_notebook(term, consent=True)
    await term.live(4)
    assert term.told("Admitted")[0] == "False"
    term.low["notebook"] = term.bench.now_s - 900
    assert await term.live(10, until=lambda: "IdleGpus" in term.reasons())
    assert "notebook" in term.pod_names()
    assert await term.live(15, until=lambda: "notebook" not in term.pod_names())
    assert await term.live(20, until=lambda: term.status().get("trainers", {}).get("ready") == 2)
    assert "IdleGpusGivenBack" in term.reasons()
    assert "edl_idle_gpus_given_back_total 1.0" in term.metrics.render().decode()


async def test_without_consent_the_waiting_job_is_told_and_nothing_leaves():
    """`IdleHeld`, in the status of the job that waits."""
    term = GpuTerm(gpus=1, least=2, most=2)
    await add_notebook(term, consent=False)
    term.low["notebook"] = term.bench.now_s - 900
    await term.live(25)
    assert "notebook" in term.pod_names()
    assert "team-a/notebook" in str(term.status()["conditions"])
    assert "edl_idle_gpus_given_back_total 0.0" in term.metrics.render().decode()


async def test_a_trainer_that_hangs_is_replaced_once_its_gpu_is_seen_to_do_nothing():
    """The ledger tells of it at once; the device decides; the other trainers are not touched."""
    term = GpuTerm(gpus=2, least=2, most=2)
    assert await term.live(20, until=lambda: term.status().get("trainers", {}).get("ready") == 2)
    await term.live(10)
    uids = {name: term.uid_of(name) for name in ("digits-trainer-0", "digits-trainer-1")}
    term.master.hanging.add(uids["digits-trainer-1"])
    assert await term.live(30, until=lambda: "TrainerHangs" in term.reasons())
    await term.live(60)
    assert term.uid_of("digits-trainer-1") == uids["digits-trainer-1"], "its GPU is said to compute"
    term.low["digits-trainer-1"] = term.bench.now_s - POLICY.idle_window_s

    def is_replaced():
        names = term.pod_names()
        return "digits-trainer-1" not in names or term.uid_of("digits-trainer-1") != uids["digits-trainer-1"]

    assert await term.live(10, until=is_replaced)
    term.low.clear()
    assert await term.live(20, until=lambda: term.status().get("trainers", {}).get("ready") == 2)
    assert term.uid_of("digits-trainer-0") == uids["digits-trainer-0"]


@pytest.mark.parametrize(("trainer", "gives"), [(with_gpu(), False), (with_gpu(MIG), False), (template(), True)])
async def test_without_an_agent_a_trainer_that_holds_a_batch_keeps_its_gpu(trainer, gives):
    """It may compile the batch anew; one without a GPU is judged by the ledger alone."""
    term = GpuTerm(gpus=2, least=1, most=2, trainer=trainer, has_agents=False)
    assert await term.live(20, until=lambda: term.status().get("trainers", {}).get("ready") == 2)
    await term.live(10)
    term.master.hanging.add(term.uid_of("digits-trainer-1"))
    await term.live(80)
    [verdict] = term.leading.store.records[JOB].still
    assert (verdict.name, verdict.gives) == ("digits-trainer-1", gives)


async def test_a_report_on_a_trainer_is_asked_for_before_it_is_too_old():
    """The agent writes changes alone: the operator's question stands in its object."""
    term = GpuTerm(gpus=2, least=2, most=2)
    await term.live(20)
    term.low["digits-trainer-1"] = term.bench.now_s - 600
    await term.report()
    await term.watch()
    term.bench.now_s += ASKED_AFTER_S + 1
    await term.leading.idle._ask_for_reports()
    node = term.server.get(PODS, "team-a", "digits-trainer-1")["spec"]["nodeName"]
    assert term.server.get(NODE_GPUS, None, node)["spec"]["renewAfter"]
