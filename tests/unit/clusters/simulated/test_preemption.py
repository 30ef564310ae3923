"""Preemption and back-off of the emulated scheduler, against cases worked out by hand."""

from dataclasses import replace

import pytest

from autoscaler.clusters.simulated import KUBE_SCHEDULER, KUBE_SCHEDULER_1_6, SimDeployment
from autoscaler.clusters.simulated.scheduling.scheduling_queue import SchedulingQueue
from autoscaler.clusters.simulated.world.sim_pods import SimPod
from autoscaler.domain import PodPhase, Tier
from tests.unit.clusters.simulated.small_worlds import cluster, job, node, placed, shape


def filled(*priorities, cpu=4):
    """One node, filled with one-cpu pods of these priorities, the first created first, all running."""
    sim = cluster(node("a", cpu=cpu, gib=64))
    sim.submit(job(high=60))
    for priority in priorities:
        sim.create_pods("j", "trainer", 1, tier=Tier.SURPLUS, priority=priority)
        sim.run_until(sim.now() + 0.5)
    sim.run_until(sim.now() + 2.0)
    return sim


def leaving(sim):
    return sorted(pod.name for pod in sim.pods.values() if pod.phase is PodPhase.TERMINATING)


def ask(sim, cpu=1, priority=0, **fields):
    sim.add_deployment(SimDeployment(name="web", shape=shape(cpu), replicas=1, priority=priority, **fields))
    sim.run_until(sim.now() + 0.1)
    return sim.pods["web-0"]


def test_lowest_class_is_the_victim():
    """The highest victim is as low as can be."""
    sim = filled(-1, -8, -3, -1)
    web = ask(sim)
    assert leaving(sim) == ["j-trainer-1"]
    assert web.nominated_node == "a"
    assert [life.name for life in sim.record.pods() if life.is_preempted] == ["j-trainer-1"]


def test_youngest_of_one_class_is_the_victim():
    """Pods are given back from the most important one on: at one priority, the oldest."""
    sim = filled(-2, -2, -2, -2)
    ask(sim)
    assert leaving(sim) == ["j-trainer-3"]


def test_larger_request_takes_as_many_as_it_needs():
    """Two cpu: the two least important leave."""
    sim = filled(-1, -8, -3, -1)
    ask(sim, cpu=2)
    assert leaving(sim) == ["j-trainer-1", "j-trainer-2"]


def test_node_with_the_lowest_highest_victim_is_chosen():
    """Two victims of class -8 cost less than one of class -1."""
    sim = cluster(node("a", cpu=2, gib=64), node("b", cpu=2, gib=64, labels=frozenset({("k", "v")})))
    sim.submit(job("big", trainer=shape(2)))
    sim.submit(job("small", trainer=shape(1, node_selector=frozenset({("k", "v")}))))
    sim.create_pods("small", "trainer", 2, tier=Tier.SURPLUS, priority=-8)
    sim.run_until(1.0)
    sim.create_pods("big", "trainer", 1, tier=Tier.SURPLUS, priority=-1)
    sim.run_until(3.0)
    web = ask(sim, cpu=2)
    assert leaving(sim) == ["small-trainer-0", "small-trainer-1"]
    assert web.nominated_node == "b"


def test_nobody_of_the_same_priority_is_preempted():
    """Core pods stand level with the web."""
    sim = filled(0, 0, 0, 0)
    web = ask(sim)
    assert leaving(sim) == []
    assert web.nominated_node is None
    assert web.unschedulable_since_s is not None


def test_pod_that_may_not_preempt_waits():
    """preemptionPolicy Never."""
    sim = filled(-1, -1, -1, -1)
    ask(sim, can_preempt=False)
    assert leaving(sim) == []


def test_preemptor_runs_after_drain_removal_and_back_off():
    """Refused at 0.01; victim gone 2.1 s later; back-off over at 1.01 already: bound 0.01 s after the room is free."""
    sim = filled(-1, -1, -1, -1)
    asked_s = sim.now()
    ask(sim)
    sim.run_until(asked_s + 2.115)
    assert "web" not in {pod.owner for pod in sim.pods.values() if pod.node}
    sim.run_until(asked_s + 2.125)
    assert placed(sim, "web") == {"web-0": "a"}
    sim.check()


def test_preemptor_takes_nobody_else_while_its_victim_leaves():
    """An attempt in between, called by a node that opens again, asks for no second victim."""
    sim = filled(-1, -1, -1, -1, cpu=4)
    ask(sim)
    assert len(leaving(sim)) == 1
    sim.at(sim.now() + 0.2, lambda: sim.cordon("a"))
    sim.at(sim.now() + 0.3, lambda: sim.uncordon("a"))
    sim.run_until(sim.now() + 1.0)
    assert sim.pods["web-0"].attempts > 1
    assert len(leaving(sim)) == 1


def test_nominated_room_is_closed_to_its_equals_and_below():
    """A pod of no higher priority does not slip into the room that another one's victims leave."""
    sim = filled(-1, -1, -1, -1)
    ask(sim)
    sim.create_pods("j", "trainer", 1, tier=Tier.SURPLUS, priority=-1)
    sim.run_until(sim.now() + 6.0)
    assert placed(sim, "web") == {"web-0": "a"}
    assert sim.pods["j-trainer-4"].node is None


def test_more_urgent_pod_takes_the_nomination_and_the_other_looks_again():
    """The room of a victim goes to the pod of higher priority; the first one loses its nomination."""
    sim = filled(-1, -1, cpu=2)
    ask(sim)
    sim.add_deployment(SimDeployment(name="urgent", shape=shape(2), replicas=1, priority=9))
    sim.run_until(sim.now() + 0.1)
    assert sim.pods["urgent-0"].nominated_node == "a"
    assert sim.pods["web-0"].nominated_node is None
    sim.run_until(sim.now() + 10.0)
    assert placed(sim, "urgent") == {"urgent-0": "a"}
    assert placed(sim, "web") == {}


def test_1_6_preempts_nobody():
    """No priority counts there."""
    sim = cluster(node("a", cpu=1, gib=64), scheduler=KUBE_SCHEDULER_1_6)
    sim.submit(job())
    sim.create_pods("j", "trainer", 1, priority=-8)
    sim.run_until(1.0)
    ask(sim, priority=1_000)
    sim.run_until(10.0)
    assert leaving(sim) == []


def waiter(name="p", **fields):
    return SimPod(name=name, role="trainer", tier="core", shape=shape(1), owner="j", priority=0, **fields)


def attempts_at_s(profile, until_s, *, wake_every_s=None):
    """When one pod that never fits is tried."""
    waiting, pod, now_s, tried = SchedulingQueue(profile), waiter(), 0.0, []
    waiting.add(pod, now_s)
    while now_s < until_s:
        while waiting.has_next:
            tried.append(now_s)
            waiting.refuse(waiting.pop(), now_s)
        instants = [waiting.flush_at_s()]
        if wake_every_s:
            instants.append((now_s // wake_every_s + 1) * wake_every_s)
        now_s = min(at_s for at_s in instants if at_s is not None)
        waiting.flush(now_s)
        if wake_every_s and now_s % wake_every_s == 0:
            waiting.move(now_s)
    return tried


def test_back_off_doubles_to_ten_seconds_while_changes_come():
    """A change every half second, before 1.33: tried after 1, 2, 4, 8 and then 10 s."""
    tried = attempts_at_s(replace(KUBE_SCHEDULER, pops_backoff=False), 40.0, wake_every_s=0.5)
    assert tried == [0.0, 1.0, 3.0, 7.0, 15.0, 25.0, 35.0]


def test_scheduler_with_nothing_else_to_do_waits_for_no_back_off():
    """Since 1.33 (KEP 5142): each change is an attempt."""
    assert attempts_at_s(KUBE_SCHEDULER, 2.0, wake_every_s=0.5) == [0.0, 0.5, 1.0, 1.5]


def test_pod_in_back_off_comes_after_those_that_are_not():
    """It is taken only when nothing else waits."""
    waiting, first, second = SchedulingQueue(KUBE_SCHEDULER), waiter("first"), waiter("second")
    waiting.add(first, 0.0)
    waiting.refuse(waiting.pop(), 0.0)
    waiting.move(0.1)
    waiting.add(second, 0.1)
    assert [waiting.pop().name, waiting.pop().name] == ["second", "first"]


def test_without_a_change_an_unschedulable_pod_waits_five_minutes():
    """Back-off alone wakes nobody."""
    assert attempts_at_s(KUBE_SCHEDULER, 700.0) == [0.0, 300.0, 600.0]


def test_1_6_tries_again_after_each_back_off_up_to_a_minute():
    """1, 2, 4 ... 60 s, whatever has changed."""
    assert attempts_at_s(KUBE_SCHEDULER_1_6, 200.0) == [0.0, 1.0, 3.0, 7.0, 15.0, 31.0, 63.0, 123.0, 183.0]


@pytest.mark.parametrize(
    ("profile", "order"),
    [(KUBE_SCHEDULER, ["high", "early", "late"]), (KUBE_SCHEDULER_1_6, ["early", "late", "high"])],
)
def test_queue_goes_by_priority_then_by_time(profile, order):
    """PrioritySort; in 1.6 first come, first served."""
    waiting = SchedulingQueue(profile)
    late, early, high = waiter("late"), waiter("early"), waiter("high")
    high.priority = 5
    waiting.add(early, 1.0)
    waiting.add(late, 2.0)
    waiting.add(high, 3.0)
    assert [waiting.pop().name for _ in range(3)] == order


def test_pod_that_left_is_not_tried():
    """Taken out of the queue wherever it waits."""
    waiting, pod = SchedulingQueue(KUBE_SCHEDULER), waiter()
    waiting.add(pod, 0.0)
    waiting.refuse(waiting.pop(), 0.0)
    waiting.remove(pod)
    waiting.move(5.0)
    assert not waiting.has_next
    assert waiting.flush_at_s() is None


@pytest.mark.parametrize("profile", [KUBE_SCHEDULER, KUBE_SCHEDULER_1_6])
def test_waiting_pod_gets_the_room_that_another_leaves(profile):
    """By the event or by the end of its back-off."""
    sim = cluster(node("a", cpu=1), scheduler=profile)
    sim.submit(job())
    first, second = sim.create_pods("j", "trainer", 2)
    sim.run_until(5.0)
    sim.delete_pods([first])
    sim.run_until(20.0)
    assert placed(sim, "j") == {second: "a"}
