"""The simulated cluster is a proper adapter."""

from dataclasses import replace

import pytest

from autoscaler.cluster_port import WriteResult
from autoscaler.clusters.simulated import SimDeployment
from autoscaler.domain import Cause, CreatePod, Reclaim, Role, Tier
from tests.unit.clusters.cluster_contract import ClusterContract, Stage
from tests.unit.clusters.simulated.small_worlds import cluster, job, node, shape


class TestSimulatedCluster(ClusterContract):
    @pytest.fixture
    def stage(self):
        sim = cluster(node("a", cpu=2.5), node("b", cpu=2.5))
        sim.submit(job(trainer=shape(1)))

        async def settle():
            sim.run_until(sim.now() + 10.0)

        yield Stage(cluster=sim, job="j", nodes=("a", "b"), per_node=2, settle=settle)
        sim.check()


async def test_what_the_job_or_the_node_does_not_have_is_refused():
    """Nothing has changed, and the message says why."""
    sim = cluster(node("a", cpu=2.5))
    sim.submit(job(trainer=shape(1)))
    server = CreatePod(job="j", role=Role.SERVER, ordinal=0, tier=Tier.CORE, node="a", cause=Cause.START)
    outcome = await sim.apply(server)
    assert (outcome.result, outcome.message) == (WriteResult.REFUSED, "job j has no server")
    sim.cordon("a")
    trainer = CreatePod(job="j", role=Role.TRAINER, ordinal=0, tier=Tier.CORE, node="a", cause=Cause.START)
    assert (await sim.apply(trainer)).result is WriteResult.REFUSED
    assert sim.pods == {}


@pytest.mark.parametrize(("reclaim", "surplus"), [(Reclaim.SCHEDULER, -3), (Reclaim.PLANNER, 0)])
async def test_surplus_stands_where_the_mode_of_reclaim_puts_it(reclaim, surplus):
    """Graded below everything, or level with core whatever its job's class (beside-the-scheduler.md 1 and 2)."""
    sim = cluster(node("a"), reclaim=reclaim)
    sim.submit(job(trainer=shape(1), priority=7))
    core = CreatePod(job="j", role=Role.TRAINER, ordinal=0, tier=Tier.CORE, node="a", cause=Cause.START)
    more = replace(core, ordinal=1, tier=Tier.SURPLUS, cause=Cause.FREE_CAPACITY, grade=3)
    for wanted in (core, more):
        assert (await sim.apply(wanted)).result is WriteResult.DONE
    assert [pod.priority for pod in sim.pods.values()] == [7, surplus]


async def test_room_that_a_pod_of_its_rank_is_nominated_for_is_refused():
    """The scheduler has promised it (beside-the-scheduler.md 11)."""
    sim = cluster(node("a", cpu=2, gib=64), reclaim=Reclaim.SCHEDULER)
    sim.submit(job("j", high=9))
    sim.create_pods("j", Role.TRAINER, 2, tier=Tier.SURPLUS, priority=-1)
    sim.run_until(3.0)
    sim.add_deployment(SimDeployment(name="web", shape=shape(1), replicas=1))
    sim.run_until(3.1)
    sim.kill_pod("j-trainer-0" if sim.pods["j-trainer-1"].is_leaving else "j-trainer-1")
    wanted = CreatePod(job="j", role=Role.TRAINER, ordinal=7, tier=Tier.SURPLUS, node="a", cause=Cause.FREE_CAPACITY)
    assert (await sim.apply(wanted)).result is WriteResult.REFUSED
    sim.run_until(10.0)
    assert (await sim.apply(wanted)).result is WriteResult.DONE
