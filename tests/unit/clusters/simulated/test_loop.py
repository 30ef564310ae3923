"""The loop and the planner, as they are, on the simulated cluster: a rise and fall of the web in virtual time."""

import pytest

from autoscaler.cluster_port import WriteResult
from autoscaler.clusters.simulated import SimDeployment, run_loop
from autoscaler.domain import Policy, Reclaim, Role, Tier
from autoscaler.loop import Loop
from tests.unit.clusters.simulated.small_worlds import cluster, job, node, shape

MODES = [Reclaim.PLANNER, Reclaim.SCHEDULER]


def stage(reclaim, seed=1):
    """Two jobs fill 32 cpu; 8 web pods come at 60 s and go at 120 s."""
    sim = cluster(*(node(f"n{number}", cpu=8, gib=64) for number in range(4)), reclaim=reclaim, seed=seed)
    sim.add_deployment(SimDeployment(name="web", shape=shape(1)))
    sim.submit(job("j0", low=2, high=20, servers=1))
    sim.at(5.0, lambda: sim.submit(job("j1", low=2, high=20, servers=1)))
    sim.at(60.0, lambda: sim.scale("web", 8))
    sim.at(120.0, lambda: sim.scale("web", 0))
    return sim


async def play(sim, reclaim, until_s=200.0):
    outcomes = []
    policy = Policy(reclaim=reclaim, surplus_grace_s=5.0, transfers_per_minute=60)
    loop = Loop(sim, policy, listener=lambda step: outcomes.extend(step.applied))
    await run_loop(loop, sim, until_s)
    sim.check()
    return outcomes


def trainers_at(sim, name, at_s):
    return [row for row in sim.record.jobs[name] if row.t_s <= at_s][-1].trainers


@pytest.mark.parametrize("reclaim", MODES)
async def test_jobs_fill_the_cluster_give_way_and_take_the_room_back(reclaim):
    """Forced shrinking for the web (A3), all drained, nothing lost, never below the minimum (A1)."""
    sim = stage(reclaim)
    await play(sim, reclaim)
    full = trainers_at(sim, "j0", 59.0) + trainers_at(sim, "j1", 59.0)
    low = trainers_at(sim, "j0", 119.0) + trainers_at(sim, "j1", 119.0)
    assert full >= 26
    assert full - 8 - 1 <= low <= full - 7
    assert trainers_at(sim, "j0", 199.0) + trainers_at(sim, "j1", 199.0) == full
    up_s = min(row.t_s for row in sim.record.web["web"] if row.running == 8)
    assert up_s - 60.0 <= 0.08 + 1.0 + 2.1 + 2.5  # scheduling and start, drain, and the scheduler's back-off
    assert all(sim.record.jobs[name][-1].samples_lost == 0 for name in ("j0", "j1"))
    assert not [life for life in sim.record.pods() if life.was_drained is False]


@pytest.mark.parametrize("reclaim", MODES)
async def test_same_seed_gives_the_same_run(reclaim):
    """The loop, the planner and the cluster together are one function of the seed."""
    one, two = stage(reclaim), stage(reclaim)
    await play(one, reclaim, 100.0)
    await play(two, reclaim, 100.0)
    assert one.record.pods() == two.record.pods()
    assert one.record.jobs == two.record.jobs


async def test_surplus_carries_what_its_mode_asks_for():
    """Graded classes below zero for the scheduler; core's value where the planner chooses (beside-the-scheduler.md 1
    and 2)."""
    for reclaim in MODES:
        sim = stage(reclaim)
        await play(sim, reclaim, 50.0)
        surplus = {pod.priority for pod in sim.pods.values() if pod.tier is Tier.SURPLUS}
        assert {pod.priority for pod in sim.pods.values() if pod.tier is Tier.CORE} == {0}
        if reclaim is Reclaim.PLANNER:
            assert surplus == {0}
        else:
            assert surplus <= set(range(-8, 0))
            assert len(surplus) > 2


async def test_scheduler_reclaims_by_itself_and_the_loop_takes_nobody_twice():
    """One owner per removal (beside-the-scheduler.md 1): eight web pods of a trainer's size cost eight trainers."""
    sim = stage(Reclaim.SCHEDULER)
    await play(sim, Reclaim.SCHEDULER, 119.0)
    removed = [life for life in sim.record.pods() if life.role is Role.TRAINER and life.terminating_at_s is not None]
    forced = [life for life in removed if life.terminating_at_s >= 60.0]
    assert len(forced) <= 8
    assert any(life.is_preempted for life in forced)


async def test_lost_node_is_survived():
    """Known after 50 s; the jobs are whole again within a minute (A1), elsewhere."""
    sim = stage(Reclaim.PLANNER)
    sim.at(20.0, lambda: sim.lose_node("n1"))
    outcomes = await play(sim, Reclaim.PLANNER, 140.0)
    assert all(sim.record.jobs[name][-1].is_trainable for name in ("j0", "j1"))
    assert {outcome.result for _, outcome in outcomes} <= {WriteResult.DONE, WriteResult.REFUSED}
    born = [life for life in sim.record.pods() if life.created_at_s > 71.0 and life.bound_at_s is not None]
    assert not [life for life in born if life.node == "n1"]
