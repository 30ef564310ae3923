"""How long things take in the simulated cluster, worked out by hand from the physics; and what a run leaves behind."""

from dataclasses import replace

import pytest

from autoscaler.clusters.simulated import Deployment, Hpa, Physics, SimulatedCluster, SpeedCurve, Spread, Work, exactly
from autoscaler.domain import JobState, PodPhase, Resources, Role
from autoscaler.errors import InvalidSpecError, InvariantViolationError
from tests.unit.sim_setups import STEADY, cluster, job, node, placed, shape

LINEAR = SpeedCurve(batch_samples=10, fixed_s=1.0, exchange_s=0.0, crowd_s=0.0, fan_s=0.0)
"""Ten samples per second and trainer."""


def phases(sim):
    return {pod.name: pod.phase for pod in sim.pods.values()}


def running_job(work=None, *, servers=0, trainers=2, **fields):
    """A job that trains: master, servers and trainers ready at 1.05 s at the latest."""
    sim = cluster(node("a", cpu=40, gib=64), node("b", cpu=40, gib=64), **fields)
    sim.submit(job(servers=servers, high=8), work or Work(curve=LINEAR, in_hand_s=0.5))
    sim.create_pods("j", Role.MASTER, 1)
    if servers:
        sim.create_pods("j", Role.SERVER, servers)
    sim.create_pods("j", Role.TRAINER, trainers)
    return sim


def last(sim, name="j"):
    return sim.record.jobs[name][-1]


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
    assert (life.was_drained, life.why, life.node) == (True, "test", "a")


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
    sim = cluster(node("a", cpu=100, gib=1), physics=replace(STEADY, start=Spread(low_s=1.0, high_s=3.0)))
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
    sim.add_deployment(Deployment(name="web", shape=shape(1), replicas=100))
    sim.run_until(20.0)
    created = sorted(life.created_at_s for life in sim.record.pods())
    assert created[:30] == [0.0] * 30
    assert created[30] == pytest.approx(0.05)
    assert created[-1] == pytest.approx(3.5)
    assert sim.record.web["web"][-1][1:] == (100, 100, 0)


def test_scale_down_takes_waiting_pods_first_then_crowded_nodes():
    """ReplicaSet order: unbound, not ready, many on one node."""
    sim = cluster(node("a", cpu=3), node("b", cpu=1))
    sim.add_deployment(Deployment(name="web", shape=shape(1), replicas=5))
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
    sim.add_deployment(Deployment(name="web", shape=shape(1), replicas=2))
    sim.run_until(5.0)
    sim.scale("web", 4)
    sim.run_until(10.0)
    sim.scale("web", 2)
    sim.run_until(15.0)
    assert sorted(placed(sim, "web")) == ["web-0", "web-1"]


def test_lost_pod_of_a_controller_is_replaced():
    """Told to leave counts as gone."""
    sim = cluster(node("a", cpu=10))
    sim.add_deployment(Deployment(name="web", shape=shape(1), replicas=2))
    sim.run_until(5.0)
    sim.delete_pods(["web-0"])
    sim.run_until(10.0)
    assert sorted(placed(sim, "web")) == ["web-1", "web-2"]


def test_roll_replaces_all_and_keeps_three_quarters():
    """Surge and unavailability of a quarter each."""
    sim = cluster(node("a", cpu=40, gib=40))
    sim.add_deployment(Deployment(name="web", shape=shape(1), replicas=8))
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
    sim.add_deployment(Deployment(name="web", shape=shape(1), replicas=2))
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
    sim.add_deployment(Deployment(name="web", shape=shape(1), replicas=2))
    sim.add_hpa(Hpa(deployment="web", min_replicas=2, max_replicas=20, load_per_replica=1.0))
    sim.set_load("web", 10.0)
    told = []
    for at_s in (14.9, 15.1, 30.1):
        sim.run_until(at_s)
        told.append([(w.desired_replicas, w.max_replicas) for w in sim.view().workloads])
    assert told == [[(2, 20)], [(6, 20)], [(10, 20)]]


# ---- training ------------------------------------------------------------------------------------------------------


def test_samples_are_speed_times_time():
    """Trainers bound 0.02 and 0.03 s after the start: 10 samples a second each from 1.02 and 1.03 s on."""
    sim = running_job()
    sim.run_until(11.03)
    assert last(sim).samples_trained == pytest.approx(0.01 * 10 + 10.0 * 20)
    assert last(sim)[1:5] == (2, 0, 1, True)


def test_job_without_its_servers_does_not_train():
    """Trainable: trainer, master and all servers."""
    sim = running_job(servers=2)
    sim.run_until(5.0)
    assert last(sim).is_trainable
    sim.kill_pod("j-server-0")
    trained = last(sim).samples_trained
    sim.run_until(9.0)
    assert not last(sim).is_trainable
    assert last(sim).samples_trained == trained


def test_killed_trainer_loses_what_it_had_in_hand_and_a_drained_one_nothing():
    """0.5 s of its own work at 10 samples a second."""
    sim = running_job()
    sim.run_until(5.0)
    sim.delete_pods(["j-trainer-0"], grace_s=30.0)
    sim.run_until(10.0)
    assert last(sim).samples_lost == 0
    sim.delete_pods(["j-trainer-1"], grace_s=1.0)
    sim.run_until(15.0)
    assert last(sim).samples_lost == pytest.approx(5.0)


def test_killed_server_takes_the_job_back_to_its_checkpoint():
    """60 s between checkpoints, trained for 80 s: 20 s are lost."""
    sim = running_job(servers=1)
    sim.run_until(1.05)
    begun_s = sim._jobs.lives["j"].progress.first_trained_at_s
    sim.run_until(begun_s + 80.0)
    sim.kill_pod("j-server-0")
    assert last(sim).samples_lost == pytest.approx(20.0 * 20)


def test_elastic_server_moves_state_and_freezes_the_job():
    """A server that comes works 5 s after it is ready; the job stands still for half a second."""
    sim = running_job(servers=1, servers_elastic=True)
    assert sim.view().capabilities.servers_elastic
    sim.run_until(20.0)
    sim.create_pods("j", Role.SERVER, 1)
    sim.run_until(25.9)
    before = last(sim).samples_trained
    sim.run_until(27.9)
    assert last(sim).samples_trained - before == pytest.approx(20 * (2.0 - 0.5))


def test_few_servers_saturate():
    """Optimus' curve: more trainers per server, less per trainer; more servers help."""
    curve = SpeedCurve()
    assert curve.samples_per_s(0, 4) == 0
    assert curve.samples_per_s(20, 2) < 20 * curve.samples_per_s(1, 1)
    assert curve.samples_per_s(20, 2) > curve.samples_per_s(10, 2)
    assert curve.samples_per_s(20, 8) > curve.samples_per_s(20, 2)


def test_job_ends_when_its_samples_are_trained():
    """1000 samples at 20 a second from 1.03 s on; then its pods leave and it is over."""
    sim = running_job(Work(curve=LINEAR, samples_total=1_000.1))
    sim.run_until(51.02)
    assert sim.jobs["j"].state is JobState.ACTIVE
    sim.run_until(51.04)
    assert sim.jobs["j"].state is JobState.OVER
    sim.run_until(60.0)
    assert sim.pods == {}
    assert last(sim).samples_trained == pytest.approx(1_000.1)


def test_edited_job_keeps_its_age_and_a_job_that_is_over_gets_no_pods():
    """Bounds change, the instant of submission does not."""
    sim = running_job()
    sim.run_until(5.0)
    sim.submit(job("late"))
    sim.edit_job(job("late", high=9, weight=300))
    assert (sim.jobs["late"].submitted_at_s, sim.jobs["late"].trainer.max_replicas) == (5.0, 9)
    sim.edit_job(job(high=8, state=JobState.SUSPENDED))
    assert not last(sim).is_trainable
    sim.delete_job("j")
    with pytest.raises(InvalidSpecError, match="it is over"):
        sim.create_pods("j", Role.TRAINER, 1)


def test_job_that_is_over_is_not_started_again_by_its_controllers():
    """Its pods leave for good; under its name another job may come, of another shape."""
    sim = cluster(node("a", cpu=40))
    sim.submit(job(), Work(curve=LINEAR, samples_total=100.0))
    sim.set_replicas("j", Role.MASTER, 1, spreads=True)
    sim.set_replicas("j", Role.TRAINER, 2)
    sim.run_until(60.0)
    assert sim.pods == {}
    sim.delete_job("j")
    sim.submit(job(trainer=shape(2)))
    sim.set_replicas("j", Role.TRAINER, 1)
    sim.run_until(70.0)
    assert [pod.shape for pod in sim.pods.values()] == [shape(2)]


# ---- nodes ---------------------------------------------------------------------------------------------------------


def test_lost_node_is_noticed_late_and_its_pods_leave_later():
    """Dead at 5, NotReady at 55, evicted at 355: training stops at once, replacements come last."""
    sim = cluster(node("a"), node("b"))
    sim.add_deployment(Deployment(name="web", shape=shape(1), replicas=2))
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
    """Nobody can tell that it has ended (kubernetes.md 13)."""
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
    sim.add_deployment(Deployment(name="web", shape=shape(1), replicas=1))
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


# ---- the cluster as a whole ----------------------------------------------------------------------------------------


def test_calls_at_instants_and_in_periods():
    """Virtual time; a call sees its own instant."""
    sim = cluster(node("a"))
    seen = []
    sim.every(5.0, lambda: seen.append(sim.now()), first_s=2.0)
    sim.at(7.0, lambda: seen.append("then"))
    sim.run_until(12.0)
    assert seen == [2.0, "then", 7.0, 12.0]


def test_view_keeps_what_did_not_change():
    """The planner's memo goes by identity."""
    sim = running_job()
    sim.run_until(5.0)
    before = sim.view()
    assert sim.view() is before
    sim.delete_pods(["j-trainer-0"])
    after = sim.view()
    same = [a is b for a, b in zip(before.pods, after.pods, strict=True)]
    assert same.count(False) == 1
    assert after.nodes is before.nodes
    assert after.revision > before.revision


def harm_sum(sim):
    sim._world.table.slots[0].requested[0] -= 1


def harm_room(sim):
    sim._world.table.slots[0].allocatable = (500, 0, 0)


def harm_place(sim):
    sim.pods["web-0"].node = "b"


def harm_count(sim):
    del sim._world.pods["web-0"]


def test_large_clusters_are_checked_where_they_were_touched():
    """Above 500 nodes: the node of the event."""
    sim = cluster(*(node(f"n{number:03}") for number in range(501)))
    sim.add_deployment(Deployment(name="web", shape=shape(1), replicas=2))
    sim.run_until(5.0)
    touched, untouched = sim.pods["web-0"].node, sim.pods["web-1"].node
    sim._world.table.slot(untouched).requested[0] += 1
    sim.at(6.0, lambda: sim.cordon(touched))
    sim.run_until(6.5)
    sim.at(7.0, lambda: sim.cordon(untouched))
    with pytest.raises(InvariantViolationError, match=untouched):
        sim.run_until(8.0)


@pytest.mark.parametrize("harm", [harm_sum, harm_room, harm_place, harm_count])
def test_broken_books_stop_the_run(harm):
    """Every invariant bites: with the instant and the story."""
    sim = cluster(node("a"), node("b"))
    sim.add_deployment(Deployment(name="web", shape=shape(1), replicas=2))
    sim.run_until(5.0)
    sim.check()
    harm(sim)
    with pytest.raises(InvariantViolationError, match=r"at 5\.000 s"):
        sim.check()
    sim.at(6.0, lambda: sim.cordon("a"))
    sim.at(6.0, lambda: sim.cordon("b"))
    with pytest.raises(InvariantViolationError, match=r"at 6\.000 s"):
        sim.run_until(7.0)


@pytest.mark.parametrize(
    "call",
    [
        lambda sim: sim.scale("nobody", 1),
        lambda sim: sim.scale("web", -1),
        lambda sim: sim.add_deployment(Deployment(name="web", shape=shape(1))),
        lambda sim: sim.set_load("web", 1.0),
        lambda sim: sim.lose_node("nowhere"),
        lambda sim: sim.create_pods("nobody", Role.TRAINER, 1),
        lambda sim: sim.create_pods("j", Role.SERVER, 1),
        lambda sim: sim.submit(job()),
        lambda sim: sim.delete_job("nobody"),
        lambda sim: sim.every(0.0, sim.check),
    ],
)
def test_wrong_requests_are_refused(call):
    """With the field and what to do."""
    sim = cluster(node("a"))
    sim.add_deployment(Deployment(name="web", shape=shape(1)))
    sim.submit(job())
    with pytest.raises(InvalidSpecError):
        call(sim)
    sim.check()


@pytest.mark.parametrize(
    "make",
    [
        lambda: Physics(removal_s=-1.0),
        lambda: Physics(scheduling_s=0.0),
        lambda: Physics(eviction_s=float("nan")),
        lambda: Physics(create_rate_per_s=0.0),
        lambda: Spread(low_s=2.0, high_s=1.0),
        lambda: exactly(float("inf")),
        lambda: Work(samples_total=0.0),
        lambda: SpeedCurve(fixed_s=0.0),
        lambda: Hpa(deployment="web", min_replicas=0, max_replicas=1, load_per_replica=1.0),
        lambda: SimulatedCluster([node("a"), node("a")]),
        lambda: SimulatedCluster([node("a", cpu=-1)]),
    ],
)
def test_impossible_physics_are_refused(make):
    """Before anything runs."""
    with pytest.raises(InvalidSpecError):
        make()
