"""The emulated scheduler beside the real one: what was measured on kube-scheduler 1.36 with KWOK nodes, replayed.

The measured runs had no controller: pods created one after the other by a client, a grace of 2 s used up whole, graded
surplus classes.  They were single runs on a slow machine, so counts are compared, and times by their order.
"""

from collections import Counter

import pytest

from autoscaler.clusters.simulated import Physics, SimulatedCluster, fixed_duration
from autoscaler.domain import Role
from tests.unit.clusters.simulated.small_worlds import job, node, shape

AS_MEASURED = Physics(start=fixed_duration(0.05), drain=fixed_duration(2.0))
CLIENT_S = 0.01  # between two creations of the measuring client


def grade(ordinal, largest):
    return -min(8, 1 + (ordinal - 1) * 8 // largest)


def twenty_nodes(*, graded):
    """20 nodes of 17 cpu, full of 5-cpu trainers: jobs of 30, 20 and 10, two of each core."""
    nodes = [node(f"n{number:03}", cpu=17, gib=100) for number in range(20)]
    sim = SimulatedCluster(nodes, physics=AS_MEASURED, seed=1)
    for name, count in (("a", 30), ("b", 20), ("c", 10)):
        sim.submit(job(name, trainer=shape(5, 1), high=60, grace_s=2.0))
        for ordinal in range(1, count + 1):
            surplus = grade(ordinal, 30) if graded else -1
            sim.create_pods(name, Role.TRAINER, 1, priority=0 if ordinal <= 2 else surplus)
            sim.run_until(sim.now() + CLIENT_S)
    sim.run_until(sim.now() + 3.0)
    sim.submit(job("web", trainer=shape(3, 1), high=999))
    return sim


def rise(sim, count):
    """Create web pods; return how long until all of them run, and how many trainers each job lost."""
    asked_s = sim.now()
    for _ in range(count):
        sim.create_pods("web", Role.TRAINER, 1, can_preempt=True)
        sim.run_until(sim.now() + CLIENT_S)
    sim.run_until(asked_s + 30.0)
    left = [life for life in sim.record.pods() if life.terminating_at_s is not None]
    lost = Counter(life.owner for life in left if life.terminating_at_s >= asked_s)
    return max(life.running_at_s for life in sim.record.pods() if life.owner == "web") - asked_s, lost


def test_graded_classes_take_from_the_largest_share():
    """Measured: 15 removals in two rises of 10 and 20, 11 of a, 4 of b, none of c; all running after 2.6 to 3.3 s."""
    sim = twenty_nodes(graded=True)
    first_s, first = rise(sim, 10)
    second_s, second = rise(sim, 20)
    lost = first + second
    assert lost.total() == 15
    assert lost["a"] == pytest.approx(11, abs=2)
    assert lost["b"] == pytest.approx(4, abs=2)
    assert lost["c"] == 0
    assert 2.1 < first_s < 3.3
    assert 2.1 < second_s < 3.3


def test_one_class_takes_from_the_young_and_the_poor():
    """Measured: 30 web pods took 0, 11 and 6; the oldest job lost none."""
    _, lost = rise(twenty_nodes(graded=False), 30)
    assert lost["a"] == 0
    assert lost.total() == pytest.approx(17, abs=2)
    assert lost["c"] >= 6


def test_large_rises_come_near_the_measured_ones():
    """Measured on 133 nodes: +100 web pods in 4.5, 5.7 and 5.6 s; trainers 51 each at 100, 23 each at 400."""
    sizes = [8] * 27 + [16] * 35 + [18] * 48 + [20] + [24] * 2 + [32] * 20
    nodes = [node(f"n{number:03}", cpu=cpu, gib=100) for number, cpu in enumerate(sizes)]
    sim = SimulatedCluster(nodes, physics=AS_MEASURED, seed=1)
    sim.submit(job("system", trainer=shape(1, 1), high=99))
    sim.submit(job("web", trainer=shape(3, 1), high=999))
    sim.create_pods("system", Role.TRAINER, 50)
    sim.create_pods("web", Role.TRAINER, 100)
    names = [f"j{number}" for number in range(6)]
    for name in names:
        sim.submit(job(name, trainer=shape(5, 1), servers=10, server=shape(4, 1), high=60, grace_s=2.0))
        sim.create_pods(name, Role.SERVER, 10)
        sim.create_pods(name, Role.MASTER, 1)
        sim.create_pods(name, Role.TRAINER, 2)
    sim.run_until(10.0)
    for ordinal in range(3, 61):
        for name in names:
            sim.create_pods(name, Role.TRAINER, 1, priority=grade(ordinal, 60))
    sim.run_until(20.0)
    sim.delete_pods([pod.name for pod in sim.pods.values() if pod.node is None])

    def trainers():
        standing = [pod for pod in sim.pods.values() if pod.role is Role.TRAINER and not pod.is_leaving]
        return [sum(pod.owner == name for pod in standing) for name in names]

    assert all(count == pytest.approx(51, abs=1) for count in trainers())
    for measured_s in (4.5, 5.7, 5.6):
        took_s, _ = rise(sim, 100)
        assert 0.6 * measured_s < took_s < measured_s
        assert max(trainers()) - min(trainers()) <= 4
    assert all(count == pytest.approx(23, abs=2) for count in trainers())
