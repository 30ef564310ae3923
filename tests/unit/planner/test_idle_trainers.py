"""Trainers that do no work: given to whoever waits, never below a minimum, and replaced where they hang (ADR 0287)."""

from dataclasses import replace

import pytest

from autoscaler.domain import Bottleneck, Cause, DeletePod, IdleTrainer
from autoscaler.planner import still_valid
from tests.property.planner_cases import NO_GATES, Driver
from tests.unit.clusters.memory_cluster import MemoryCluster
from tests.unit.planner.setups import decision, job, node, web
from tests.unit.planner.test_transfers import pods_of

POLICY = replace(NO_GATES, idle_pause_s=600.0)
SINCE_S = 700.0  # the cluster's clock begins at 1,000


def idle(*names, is_hung=False, since_s=SINCE_S):
    return tuple(IdleTrainer(pod=name, since_s=since_s, is_hung=is_hung) for name in names)


def cluster_of(*standing, cpus=8, policy=POLICY):
    """Jobs with their pods, all on one node of so many trainers."""
    pods = [pod for _, found in standing for pod in found]
    return Driver(MemoryCluster([node("n", 1_000 * cpus)], [spec for spec, _ in standing], pods=pods), policy)


def two_jobs(*, cpus=8, low=2, policy=POLICY, **words):
    """`a` has six of eight places and `b` the other two, of as many as it can get."""
    a, b = job("a", low=low, high=6, **words), job("b", low=2, high=8)
    return cluster_of((a, pods_of(a, *["n"] * 6)), (b, pods_of(b, *["n"] * 2)), cpus=cpus, policy=policy)


def left(driver):
    return sorted((one.pod, one.cause) for one in driver.plan().actions if isinstance(one, DeletePod))


def sizes(driver):
    return {one.job: one.now for one in driver.plan().decisions}


def test_the_idle_trainers_of_a_job_go_to_one_that_waits_and_do_not_come_back():
    """Fairness alone would leave four each; two of `a` did no work, and `a` pauses after they went."""
    driver = two_jobs(idle=idle("a-trainer-2", "a-trainer-5"), weight=1_000)
    driver.settle()
    assert sizes(driver) == {"a": 4, "b": 4}
    assert {pod for pod in driver.cluster.pods if pod.startswith("a-trainer")} == {
        f"a-trainer-{n}" for n in (0, 1, 3, 4)
    }
    assert decision(driver.plan(), "a").bottleneck is Bottleneck.IDLE
    driver.cluster.advance(400.0)
    assert sizes(driver) == {"a": 4, "b": 4}


@pytest.mark.parametrize(("cost_s", "is_given"), [(149.0, True), (151.0, False)])
def test_an_idle_trainer_stays_if_the_pause_of_the_working_ones_costs_more(cost_s, is_given):
    """One more of `b` brings 600 trainer-seconds; four of the six wait for the resize of `a`, two did nothing."""
    policy = replace(POLICY, payoff_s=600.0)
    driver = two_jobs(idle=idle("a-trainer-2", "a-trainer-5"), weight=1_000, resize_cost_s=cost_s, policy=policy)
    assert (Cause.IDLE in {cause for _, cause in left(driver)}) is is_given


def test_an_idle_trainer_goes_whatever_it_was_created_as():
    """The minimum is a count: the first trainer is core and does no work, the second one trains."""
    a, b = job("a", low=1, high=2, idle=idle("a-trainer-0")), job("b", low=1, high=2)
    driver = cluster_of((a, pods_of(a, *["n"] * 2)), (b, pods_of(b, "n")), cpus=3)
    assert left(driver) == [("a-trainer-0", Cause.IDLE)]
    driver.settle()
    assert sizes(driver) == {"a": 1, "b": 2}


def test_without_anybody_who_waits_an_idle_trainer_stays_and_is_told_of():
    """No pressure, no action; the job grows no further while some of it does no work."""
    a = job("a", low=2, high=8, idle=idle("a-trainer-3"))
    driver = cluster_of((a, pods_of(a, *["n"] * 6)))
    assert not driver.plan().actions
    told = decision(driver.plan(), "a")
    assert (told.bottleneck, told.target) == (Bottleneck.IDLE, 6)
    assert "1 of its trainers does no work" in told.message


def test_a_job_keeps_its_minimum_whatever_its_trainers_do():
    """Six idle trainers at a minimum of four: two go."""
    driver = two_jobs(low=4, idle=idle(*(f"a-trainer-{n}" for n in range(6))), weight=1_000)
    driver.settle()
    assert sizes(driver) == {"a": 4, "b": 4}
    assert (
        "it keeps its minimum" in decision(driver.plan(), "a").message
        or decision(driver.plan(), "a").bottleneck is Bottleneck.IDLE
    )


def test_an_idle_trainer_is_the_first_to_leave_for_a_pod_of_others():
    """A web pod gets the place of the trainer that does no work, not that of the newest."""
    a = job("a", low=2, high=6, idle=idle("a-trainer-3"))
    driver = cluster_of((a, pods_of(a, *["n"] * 6)), cpus=6)
    driver.cluster.pods["w"] = web("w", priority=10)
    assert left(driver) == [("a-trainer-3", Cause.POD)]


def test_a_poorer_job_that_no_gift_fits_keeps_no_other_from_its_turn():
    """Forty jobs hold trainers that do no work, each on a node of its own; the poorest fits on none of these nodes."""
    givers = [job(f"g-{n:02}", low=1, high=2, idle=idle(f"g-{n:02}-trainer-1")) for n in range(40)]
    places = {f"n-{n:02}": 2_000 for n in range(40)} | {"big": 3_000, "two": 2_000}
    poorest, taker = job("p", low=1, high=2, cpu_milli=3_000, weight=1_000), job("t", low=2, high=3)
    held = [pod for n, one in enumerate(givers) for pod in pods_of(one, *[f"n-{n:02}"] * 2)]
    pods = [*held, *pods_of(poorest, "big"), *pods_of(taker, "two", "two")]
    nodes = [node(name, cpu_milli) for name, cpu_milli in places.items()]
    driver = Driver(MemoryCluster(nodes, [*givers, poorest, taker], pods=pods), POLICY)
    assert [cause for _, cause in left(driver)] == [Cause.IDLE]


@pytest.mark.parametrize("verdict", [idle("a-trainer-9"), idle("a-trainer-3", since_s=-1.0), idle("b-trainer-0")])
def test_a_verdict_on_another_pod_moves_nobody(verdict):
    """A pod that is gone, one that had the name before, and one of another job."""
    driver = two_jobs(idle=verdict, weight=1_000)
    assert not driver.plan().actions


def test_a_hung_trainer_is_replaced_and_no_other_one_restarts():
    """Also within the minimum, and without anybody who waits."""
    a = job("a", low=4, high=4, idle=idle("a-trainer-1", is_hung=True))
    driver = cluster_of((a, pods_of(a, *["n"] * 4)))
    assert left(driver) == [("a-trainer-1", Cause.HUNG)]
    before = dict(driver.cluster.pods)
    driver.turn()
    driver.cluster.jobs["a"] = replace(a, idle=())
    driver.settle()
    assert sizes(driver) == {"a": 4}
    after = driver.cluster.pods
    assert all(after[name].created_at_s == pod.created_at_s for name, pod in before.items() if name != "a-trainer-1")


def test_where_all_trainers_hang_nobody_is_replaced():
    """What stops all of them is no fault of a process, and with the last one a group loses its work."""
    a = job("a", low=2, high=4, idle=idle(*(f"a-trainer-{n}" for n in range(4)), is_hung=True))
    driver = cluster_of((a, pods_of(a, *["n"] * 4)))
    assert not driver.plan().actions


@pytest.mark.parametrize("is_hung", [False, True])
def test_one_batch_between_plan_and_write_keeps_the_trainer(is_hung):
    """Promise A12: no GPU is given away while its pod computes."""
    driver = two_jobs(idle=idle("a-trainer-5", is_hung=is_hung), weight=1_000)
    made = driver.plan()
    assert [one.pod for one in made.actions if isinstance(one, DeletePod)] == ["a-trainer-5"]
    a = driver.cluster.jobs["a"]
    driver.cluster.jobs["a"] = replace(a, idle=())
    driver.cluster.revision += 1
    held = still_valid(made, driver.cluster.view(history=driver.history), POLICY)
    assert not [one for one in held if isinstance(one, DeletePod)]
