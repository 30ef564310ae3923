"""One term of a leader, put together and moved by hand on an API server in memory: loop, lives, status, metrics."""

import pytest

from autoscaler.clusters.kubernetes.api.kinds import DEPLOYMENTS, PODS, PRIORITY_CLASSES, TRAINING_JOBS
from autoscaler.clusters.kubernetes.api.port import EVERYWHERE, Subresource
from autoscaler.clusters.kubernetes.building.settings import BuildSettings, EtcdAccess
from autoscaler.clusters.kubernetes.views import KINDS
from autoscaler.domain import JobState, Policy, Reclaim
from autoscaler.jobs.masters import Masters
from autoscaler.operator.leading import NEVER_S, Leading
from autoscaler.operator.metrics import Metrics
from autoscaler.operator.settings import Address, OperatorSettings
from tests.unit.kube_objects import condition
from tests.unit.operator_bench import JOB, OperatorBench


class Term:
    """A leader and the rest of the cluster, in steps of a second."""

    def __init__(self, *, policy=None, spec=None, job=None):
        self.bench = OperatorBench(**(spec or {}))
        self.metrics = Metrics()
        if job is not None:
            self.bench.edit(**job)
        self.leading = Leading(
            self.bench.api,
            OperatorSettings(
                listen=Address(host="127.0.0.1", port=0),
                lease_namespace="edl",
                lease_name="edl",
                identity="edl-0",
                policy=policy or Policy(reclaim=Reclaim.SCHEDULER, quiet_window_s=0.0, up_window_s=0.0),
                build=BuildSettings(image="edl:1", etcd=EtcdAccess(endpoints="http://etcd:2379")),
            ),
            self.metrics,
            Masters(),
            clock=lambda: self.bench.now_s,
            wall_s=lambda: self.bench.now_s,
        )

    @property
    def server(self):
        return self.bench.server

    async def watch(self):
        for kind in KINDS:
            listing = await self.bench.api.list(kind, EVERYWHERE)
            self.leading.store.take_listing(kind, listing, asked_at_s=self.bench.now_s)
        self.leading.cluster.view()

    async def step(self, times=1):
        for _ in range(times):
            self.bench.rest.settle()
            await self.watch()
            await self.leading.loop.step()
            await self.leading.cluster._gangs.settle(self.bench.now_s)
            await self.leading.jobs.look(JOB)
            while self.leading.jobs.failures.tasks:
                for task in tuple(self.leading.jobs.failures.tasks):
                    await task
            await self.watch()
            await self.leading.statuses.write(JOB)
            await self.leading.events.write_all()
            await self.watch()
            self.bench.now_s += 1.0

    def status(self):
        return self.server.get(TRAINING_JOBS, "team-a", "digits").get("status") or {}

    def told(self, kind):
        found = next((one for one in self.status().get("conditions", ()) if one["type"] == kind), {})
        return found.get("status"), found.get("reason")

    def reasons(self):
        return [event["reason"] for event in self.bench.events()]


async def test_a_job_starts_and_its_status_tells_it():
    term = Term()
    await term.step(12)
    assert term.told("Admitted") == ("True", "Started")
    assert term.told("Ready") == ("True", "AllReady")
    assert term.told("Scaled") == ("True", "Max")
    assert term.status()["trainers"]["ready"] == 4
    assert term.status()["resizes"][-1]["from"] == 0
    assert "Started" in term.reasons()
    assert 'edl_job_trainers{job="digits",namespace="team-a",what="ready"} 4.0' in term.metrics.render().decode()


async def test_what_stands_is_not_written_again():
    term = Term()
    await term.step(12)
    before = term.server.history.version
    await term.step(20)
    assert term.server.history.version == before


async def test_a_preempted_trainer_is_put_down_to_the_scheduler():
    term = Term()
    await term.step(12)
    raw = term.server.get(PODS, "team-a", "digits-trainer-3")
    disrupted = condition("DisruptionTarget", "True", reason="PreemptionByScheduler")
    conditions = [*raw["status"]["conditions"], disrupted]
    term.server.rewrite(PODS, raw, raw | {"status": raw["status"] | {"conditions": conditions}})
    await term.bench.api.delete(PODS, "digits-trainer-3", namespace="team-a")
    await term.watch()
    await term.leading.jobs.look(JOB)
    await term.step()
    newest = next(one for one in term.status()["resizes"] if one["by"] == "scheduler")
    assert (newest["from"], newest["to"], newest["cause"]) == (4, 3, "Preempted")
    assert "Preempted" in term.reasons()
    assert 'edl_evictions_total{by="scheduler",role="trainer"} 1.0' in term.metrics.render().decode()


async def test_without_its_classes_edl_creates_nothing_and_says_why():
    """Surplus that ranks above the cluster's default would take web pods' room (rule 3)."""
    term = Term()
    for name in ("edl-core", "edl-surplus-3"):
        await term.bench.api.delete(PRIORITY_CLASSES, name)
    await term.step(5)
    assert term.server.all(PODS) == []
    assert term.told("Admitted")[1] in {"PriorityClassMissing", "PriorityClasses"}
    [job] = term.leading.cluster.view().jobs
    assert (job.state, job.hold_until_s) == (JobState.ACTIVE, NEVER_S)


@pytest.mark.parametrize("how", ["freeze", "observe"])
async def test_what_is_only_shown_is_not_done(how):
    policy = Policy(reclaim=Reclaim.SCHEDULER, is_frozen=True) if how == "freeze" else None
    term = Term(policy=policy, spec={"mode": "observe"} if how == "observe" else None)
    await term.step(6)
    assert term.server.all(PODS) == term.server.all(DEPLOYMENTS) == []
    assert term.told("Admitted") == ("False", "Observed")
    assert "starts with" in next(one["message"] for one in term.status()["conditions"] if one["type"] == "Admitted")


async def test_a_job_that_cannot_be_read_says_so():
    term = Term(job={"checkpoint": {"uri": ""}})
    await term.step(2)
    assert term.told("Admitted") == ("False", "InvalidSpec")
    assert term.server.all(PODS) == []


async def test_a_job_that_is_gone_is_forgotten():
    term = Term()
    await term.step(12)
    await term.bench.api.delete(TRAINING_JOBS, "digits", namespace="team-a")
    await term.watch()
    await term.leading.jobs.look(JOB)
    assert term.leading.jobs.records == {}
    assert "digits" not in term.metrics.render().decode()


async def test_a_status_wiped_by_somebody_comes_back():
    term = Term()
    await term.step(12)
    before = term.status()
    await term.bench.api.patch(
        TRAINING_JOBS, "digits", {"status": None}, namespace="team-a", subresource=Subresource.STATUS
    )
    await term.step(2)
    assert term.status()["trainers"] == before["trainers"]
    assert term.told("Completed") == ("False", "NotSo")
