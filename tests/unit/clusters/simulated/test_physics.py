"""How long pods, controllers and nodes take in the simulated cluster, worked out by hand from the physics."""

from dataclasses import replace

import pytest

from autoscaler.clusters.simulated import DurationRange, Hpa, SimDeployment
from autoscaler.domain import PodPhase, Resources, Role
from autoscaler.errors import InvalidSpecError
from tests.unit.clusters.simulated.small_worlds import STEADY, cluster, job, last, node, placed, running_job, shape


def phases(sim):
    return {pod.name: pod.phase for pod in sim.pods.values()}


# ---- pods ----------------------------------------------------------------------------------------------------------


def test_pod_is_bound_started_drained_and_gone_at_its_instants():
    """0.01 s of scheduling, 1 s of start, 2 s of drain, 0.1 s of removal."""
    sim = cluster(node("a"))
    sim.submit(job())
    (name,) = sim.create_pods("j", Role.TRAINER, 1)
    sim.run_until(5.0)
    sim.delete_pods([name], grace_s=30.0, why="test")
    sim.run_until(10.0)
    (life,) = sim.record.pods()
    assert (life.created_at_s, life.bound_at_s, life.running_at_s) == (0.0, 0.01, 1.01)
    assert (life.terminating_at_s, life.gone_at_s) == (5.0, pytest.approx(7.1))
    assert (life.was_drained, life.end_reason, life.node) == (True, "test", "a")


def test_grace_cuts_a_drain_short():
    """Killed after the grace: not drained."""
    sim = cluster(node("a"))
    sim.submit(job())
    (name,) = sim.create_pods("j", Role.TRAINER, 1)
    sim.run_until(5.0)
    sim.delete_pods([name], grace_s=0.5)
    sim.run_until(10.0)
    (life,) = sim.record.pods()
    assert life.gone_at_s == pytest.approx(5.6)
    assert life.was_drained is False


def test_pending_pod_leaves_at_once_and_a_starting_one_without_drain():
    """No process, nothing to drain."""
    sim = cluster(node("a", cpu=1))
    sim.submit(job())
    bound, pending = sim.create_pods("j", Role.TRAINER, 2)
    sim.run_until(0.5)
    sim.delete_pods([bound, pending])
    assert phases(sim) == {bound: PodPhase.TERMINATING}
    sim.run_until(0.61)
    assert phases(sim) == {}


def test_start_times_stay_within_their_spread_and_vary():
    """One draw per pod."""
    sim = cluster(node("a", cpu=100, gib=1), physics=replace(STEADY, start=DurationRange(low_s=1.0, high_s=3.0)))
    sim.submit(job(high=60))
    sim.create_pods("j", Role.TRAINER, 50)
    sim.run_until(10.0)
    starts = [life.running_at_s - life.bound_at_s for life in sim.record.pods()]
    assert min(starts) >= 1.0
    assert max(starts) <= 3.0
    assert max(starts) - min(starts) > 1.0


def test_usage_counts_running_pods_until_they_are_gone():
    """Utilisation as 2017 counted it: requests of running pods, leaving ones included."""
    sim = cluster(node("a"))
    sim.submit(job())
    (name,) = sim.create_pods("j", Role.TRAINER, 1)
    sim.run_until(5.0)
    sim.delete_pods([name])
    sim.run_until(10.0)
    assert [(row.t_s, row.amounts[0]) for row in sim.record.usage] == [(1.01, 1000), (pytest.approx(7.1), 0)]
    assert sim.record.capacity[0] == 4000


def test_daemons_stand_from_the_beginning():
    """They take room, and belong to nobody's replicas."""
    sim = cluster(node("a"), daemons={"a": shape(0.5)})
    assert sim.free_on("a") == Resources(cpu_milli=3_500, memory_bytes=8 << 30)
    (pod,) = sim.view().pods
    assert (pod.phase, pod.workload, pod.job) == (PodPhase.READY, None, None)
    with pytest.raises(InvalidSpecError, match=r"daemons\.b"):
        cluster(node("a"), daemons={"b": shape(1)})


# ---- controllers ---------------------------------------------------------------------------------------------------


def test_controller_creates_a_burst_and_then_at_its_rate():
    """30 at once, then 20 a second: 100 pods are created within 3.5 s."""
    sim = cluster(*(node(f"n{number}", cpu=40) for number in range(4)))
    sim.add_deployment(SimDeployment(name="web", shape=shape(1), replicas=100))
    sim.run_until(20.0)
    created = sorted(life.created_at_s for life in sim.record.pods())
    assert created[:30] == [0.0] * 30
    assert created[30] == pytest.approx(0.05)
    assert created[-1] == pytest.approx(3.5)
    assert sim.record.web["web"][-1][1:] == (100, 100, 0)


def test_scale_down_takes_waiting_pods_first_then_crowded_nodes():
    """ReplicaSet order: unbound, not ready, many on one node."""
    sim = cluster(node("a", cpu=3), node("b", cpu=1))
    sim.add_deployment(SimDeployment(name="web", shape=shape(1), replicas=5))
    sim.run_until(5.0)
    assert len(placed(sim, "web")) == 4
    sim.scale("web", 3)
    sim.run_until(10.0)
    assert sorted(placed(sim, "web").values()) == ["a", "a", "b"]
    sim.scale("web", 1)
    sim.run_until(15.0)
    assert len(placed(sim, "web")) == 1


def test_scale_down_of_1_6_takes_the_youngest():
    """No rank by nodes there."""
    sim = cluster(node("a", cpu=10), physics=replace(STEADY, spreads_scale_down=False))
    sim.add_deployment(SimDeployment(name="web", shape=shape(1), replicas=2))
    sim.run_until(5.0)
    sim.scale("web", 4)
    sim.run_until(10.0)
    sim.scale("web", 2)
    sim.run_until(15.0)
    assert sorted(placed(sim, "web")) == ["web-0", "web-1"]


def test_lost_pod_of_a_controller_is_replaced():
    """Told to leave counts as gone."""
    sim = cluster(node("a", cpu=10))
    sim.add_deployment(SimDeployment(name="web", shape=shape(1), replicas=2))
    sim.run_until(5.0)
    sim.delete_pods(["web-0"])
    sim.run_until(10.0)
    assert sorted(placed(sim, "web")) == ["web-1", "web-2"]


def test_roll_replaces_all_and_keeps_three_quarters():
    """Surge and unavailability of a quarter each."""
    sim = cluster(node("a", cpu=40, gib=40))
    sim.add_deployment(SimDeployment(name="web", shape=shape(1), replicas=8))
    sim.run_until(10.0)
    sim.roll("web")
    sim.run_until(60.0)
    rolled = [row for row in sim.record.web["web"] if row.t_s > 10.0]
    assert min(row.running for row in rolled) >= 6
    assert max(row.running + row.waiting for row in rolled) <= 10
    assert sorted(placed(sim, "web")) == sorted(f"web-{number}" for number in range(8, 16))
    assert rolled[-1][1:] == (8, 8, 0)


def test_parts_of_a_job_are_kept_by_controllers():
    """As 2017 ran them: the controller creates, replaces and chooses who leaves."""
    sim = cluster(node("a", cpu=40))
    sim.submit(job(high=9, servers=2))
    sim.set_replicas("j", Role.SERVER, 2, spreads=True)
    sim.set_replicas("j", Role.TRAINER, 5)
    sim.run_until(5.0)
    sim.kill_pod("j-trainer-1")
    sim.run_until(10.0)
    sim.set_replicas("j", Role.TRAINER, 3)
    sim.run_until(20.0)
    assert len(placed(sim, "j")) == 2 + 3
    sim.delete_job("j")
    sim.run_until(30.0)
    assert sim.pods == {}
    assert sim.jobs == {}


def test_hpa_doubles_at_most_and_falls_after_five_minutes():
    """2, 4, 8, 10 by the load of 10; back to 2 no sooner than 300 s after the load has gone."""
    sim = cluster(node("a", cpu=40, gib=40))
    sim.add_deployment(SimDeployment(name="web", shape=shape(1), replicas=2))
    sim.add_hpa(Hpa(deployment="web", min_replicas=2, max_replicas=20, load_per_replica=1.0))
    sim.set_load("web", 10.0)
    sim.at(100.0, lambda: sim.set_load("web", 0.0))
    sim.run_until(1_000.0)
    steps = []
    for row in sim.record.web["web"]:
        if not steps or steps[-1][1] != row.wanted:
            steps.append((row.t_s, row.wanted))
    assert steps[:4] == [(0.0, 2), (15.0, 6), (30.0, 10), (405.0, 2)]


def test_nobody_knows_the_load_before_the_hpa_has_looked():
    """A planner that saw the load itself would be up to 15 s ahead of any real one."""
    sim = cluster(node("a", cpu=40, gib=40))
    sim.add_deployment(SimDeployment(name="web", shape=shape(1), replicas=2))
    sim.add_hpa(Hpa(deployment="web", min_replicas=2, max_replicas=20, load_per_replica=1.0))
    sim.set_load("web", 10.0)
    told = []
    for at_s in (14.9, 15.1, 30.1):
        sim.run_until(at_s)
        told.append([(w.desired_replicas, w.max_replicas) for w in sim.view().workloads])
    assert told == [[(2, 20)], [(6, 20)], [(10, 20)]]


# ---- nodes ---------------------------------------------------------------------------------------------------------


def test_lost_node_is_noticed_late_and_its_pods_leave_later():
    """Dead at 5, NotReady at 55, evicted at 355: training stops at once, replacements come last."""
    sim = cluster(node("a"), node("b"))
    sim.add_deployment(SimDeployment(name="web", shape=shape(1), replicas=2))
    sim.run_until(5.0)
    sim.lose_node("a")
    assert sim.record.web["web"][-1].running == 1
    sim.run_until(54.9)
    assert all(seen.is_ready for seen in sim.view().nodes)
    sim.run_until(55.1)
    assert [seen.name for seen in sim.view().nodes if not seen.is_ready] == ["a"]
    sim.run_until(354.9)
    assert len(sim.pods) == 2
    sim.run_until(360.0)
    assert sorted(placed(sim, "web").values()) == ["a", "b", "b"]
    sim.restore_node("a")
    sim.run_until(365.0)
    assert sorted(placed(sim, "web").values()) == ["b", "b"]
    sim.check()


def test_node_that_returns_in_time_starts_its_pods_again():
    """Nobody was told to leave: they run again after their start."""
    sim = running_job(trainers=4)
    sim.run_until(5.0)
    sim.lose_node("a")
    sim.run_until(20.0)
    assert last(sim).trainers < 4
    assert last(sim).samples_lost > 0
    sim.restore_node("a")
    sim.run_until(21.5)
    assert last(sim).trainers == 4
    sim.run_until(400.0)
    assert len(placed(sim, "j")) == 5


def test_pod_leaving_a_dead_node_stays_until_the_node_returns():
    """Nobody can tell that it has ended (beside-the-scheduler.md 13)."""
    sim = running_job()
    sim.run_until(5.0)
    name, where = next((name, where) for name, where in placed(sim, "j").items() if "trainer" in name)
    sim.delete_pods([name])
    sim.lose_node(where)
    sim.run_until(100.0)
    assert sim.pods[name].phase is PodPhase.TERMINATING
    assert sim.pods[name].was_drained is None
    sim.restore_node(where)
    assert name not in sim.pods
    assert [life.was_drained for life in sim.record.pods() if life.name == name] == [False]


def test_drain_evicts_others_and_leaves_jobs_to_the_planner():
    """is_draining in the view is what the planner acts on."""
    sim = cluster(node("a", cpu=10))
    sim.add_deployment(SimDeployment(name="web", shape=shape(1), replicas=1))
    sim.submit(job())
    sim.create_pods("j", Role.TRAINER, 1)
    sim.run_until(5.0)
    sim.drain_node("a")
    sim.run_until(10.0)
    assert set(placed(sim, "j")) == {"j-trainer-0"}
    assert set(placed(sim, "web")) == set()
    assert sim.view().nodes[0].is_draining
    sim.uncordon("a")
    sim.run_until(15.0)
    assert set(placed(sim, "web")) == {"web-1"}
