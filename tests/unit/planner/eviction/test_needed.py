"""Whom a deletion is for is asked again right before it is written: nobody leaves for nothing (A3, ADR 0160)."""

from dataclasses import replace

import pytest

from autoscaler.domain import (
    Cause,
    DeletePod,
    Headroom,
    JobState,
    PodPhase,
    Workload,
)
from autoscaler.planner import still_valid
from tests.unit.planner.setups import CALM, job, node, settled, shape, web


def held(driver, planned, *, begun=()):
    """What of the plan still holds on the view of a moment later."""
    fresh = driver.cluster.view(history=driver.history)
    fresh = replace(fresh, revision=max(fresh.revision, planned.revision) + 1)
    return still_valid(planned, fresh, driver.policy, begun=begun)


def deletions(planned, cause=Cause.POD):
    found = [action for action in planned.actions if isinstance(action, DeletePod)]
    assert found
    assert {action.cause for action in found} == {cause}
    return found


def one_big_web_pod():
    """A pod for whom two trainers on one node leave."""
    driver = settled([node("a", 4_000)], [job("j", high=4)])
    driver.cluster.put(web("w", 2_000))
    planned = driver.plan()
    assert len(deletions(planned)) == 2
    return driver, planned


def test_a_plan_on_which_nothing_has_changed_holds():
    driver, planned = one_big_web_pod()
    assert held(driver, planned) == planned.actions


def test_nobody_leaves_for_a_pod_that_finds_room_elsewhere_by_now():
    """A node came, or others went."""
    driver, planned = one_big_web_pod()
    driver.cluster.put(node("b", 2_000))
    assert held(driver, planned) == ()


def test_nobody_leaves_for_a_pod_that_was_placed_or_has_gone():
    driver, planned = one_big_web_pod()
    pod = driver.cluster.pods["w"]
    driver.cluster.put(replace(pod, nominated_node="a"))
    assert held(driver, planned) == ()
    driver.cluster.lose("w")
    assert held(driver, planned) == ()


@pytest.mark.parametrize("number", [0, 1])
def test_trainers_that_only_help_together_leave_together_or_not_at_all(number):
    """One of the two has been drained by somebody else, and others have its room: the other alone makes none."""
    driver, planned = one_big_web_pod()
    gone = planned.actions[number].pod
    driver.cluster.lose(gone)
    driver.cluster.put(web("other", 1_000, node="a"))
    driver.cluster.put(replace(driver.cluster.pods["other"], phase=PodPhase.READY, unschedulable_since_s=None))
    assert held(driver, planned) == ()


def test_where_one_is_enough_by_now_two_do_not_leave():
    """The room of another pod came free on the node: the next plan takes one."""
    driver = settled([node("a", 5_000)], [job("j", high=4)])
    driver.cluster.put(replace(web("old", 1_000), node="a", phase=PodPhase.READY, unschedulable_since_s=None))
    driver.cluster.put(web("w", 2_000))
    planned = driver.plan()
    assert len(deletions(planned)) == 2
    driver.cluster.lose("old")
    assert held(driver, planned) == ()
    assert len(deletions(driver.plan())) == 1


def test_a_deletion_that_is_being_written_counts_whether_it_shows_or_not():
    driver, planned = one_big_web_pod()
    first, second = planned.actions
    assert second in held(driver, planned, begun=[first])
    driver.cluster.carry_out(first)
    assert held(driver, planned, begun=[first]) == (second,)


def test_nobody_leaves_for_announced_growth_that_was_withdrawn():
    """A Deployment was scaled up and down again within a second."""
    driver = settled([node("a", 4_000)], [job("j", high=4)])
    load = Workload(name="web", shape=shape(1_000), desired_replicas=2, max_replicas=4)
    driver.cluster.put(load)
    planned = driver.plan()
    assert len(deletions(planned, Cause.ANNOUNCED_GROWTH)) == 2
    assert held(driver, planned) == planned.actions
    driver.cluster.put(replace(load, desired_replicas=1))
    assert len(held(driver, planned)) == 1
    driver.cluster.put(replace(load, desired_replicas=0))
    assert held(driver, planned) == ()


def test_room_for_announced_growth_is_for_the_pod_that_stands_by_now():
    """Milliseconds after its Deployment the pod is there: the same trainer leaves, and not a plan later."""
    driver = settled([node("a", 4_000)], [job("j", high=4)])
    driver.cluster.put(Workload(name="web", shape=shape(1_000), desired_replicas=2, max_replicas=4))
    planned = driver.plan()
    assert len(deletions(planned, Cause.ANNOUNCED_GROWTH)) == 2
    driver.cluster.put(web("web-1", 1_000, workload="web"))
    assert held(driver, planned) == planned.actions
    driver.cluster.put(web("web-2", 1_000, workload="web"))
    assert held(driver, planned) == planned.actions
    driver.cluster.put(replace(driver.cluster.pods["web-1"], nominated_node="elsewhere"))
    assert len(held(driver, planned)) == 1


def waiting_gang():
    driver = settled([node("a", 4_000)], [job("j", high=4)])
    driver.cluster.put(job("gang", low=2, high=2))
    planned = driver.plan()
    assert len(deletions(planned, Cause.GANG)) == 2
    assert held(driver, planned) == planned.actions
    return driver, planned


@pytest.mark.parametrize("state", [JobState.SUSPENDED, JobState.OVER])
def test_nobody_leaves_for_a_gang_that_does_not_want_to_start_any_more(state):
    driver, planned = waiting_gang()
    driver.cluster.put(replace(driver.cluster.jobs["gang"], state=state))
    assert held(driver, planned) == ()


def test_nobody_leaves_for_a_gang_that_fits_elsewhere_by_now():
    driver, planned = waiting_gang()
    driver.cluster.put(node("b", 2_000))
    assert held(driver, planned) == ()


def test_what_a_gang_takes_leaves_whole_or_not_at_all():
    """One of the two trainers has gone and others have its room."""
    driver, planned = waiting_gang()
    driver.cluster.lose(planned.actions[0].pod)
    driver.cluster.put(replace(web("other", 1_000), node="a", phase=PodPhase.READY, unschedulable_since_s=None))
    assert held(driver, planned) == ()


def test_nobody_leaves_for_headroom_that_is_there_by_now():
    room = Headroom(shape=shape(1_000), count=1)
    driver = settled([node("a", 4_000)], [job("j", high=4)])
    driver.policy = replace(CALM, headroom=(room,))
    planned = driver.plan()
    assert len(deletions(planned, Cause.HEADROOM)) == 1
    assert held(driver, planned) == planned.actions
    driver.cluster.put(node("b", 1_000))
    assert held(driver, planned) == ()


def test_nobody_leaves_for_a_poorer_job_that_can_grow_into_free_room_by_now():
    driver = settled([node("a", 8_000)], [job("rich", high=8)])
    driver.cluster.put(job("poor", high=8))
    driver.turn()
    driver.cluster.advance(40.0)
    planned = driver.plan()
    taken = {action for action in planned.actions if getattr(action, "cause", None) is Cause.TRANSFER}
    assert taken
    assert taken <= set(held(driver, planned))
    driver.cluster.put(node("b", 1_000))
    assert not taken & set(held(driver, planned))


def test_a_poorer_job_that_grows_by_steps_gets_its_step():
    """Room for one trainer would be no answer to whether there is some for two: the transfer holds."""
    driver = settled([node("a", 9_000)], [job("rich", high=9, step=2)])
    driver.cluster.put(job("poor", high=9, step=2))
    driver.turn()
    driver.cluster.advance(40.0)
    planned = driver.plan()
    taken = {action for action in planned.actions if getattr(action, "cause", None) is Cause.TRANSFER}
    assert len(taken) >= 2
    driver.cluster.put(node("b", 1_000))
    assert taken <= set(held(driver, planned))


def test_a_gang_comes_before_growth_into_free_room():
    """The node has grown by now: what another job would grow into there is no reason to take trainers for the gang."""
    driver = settled([node("a", 4_000)], [job("j", high=4)])
    driver.cluster.put(node("b", 1_000), job("k", high=1, cpu_milli=500))
    driver.settle()
    driver.cluster.put(job("k", high=2, cpu_milli=500), job("gang", low=2, high=2))
    planned = driver.plan()
    assert {action.cause for action in planned.actions} == {Cause.GANG, Cause.FREE_CAPACITY}
    assert set(held(driver, planned)) == set(planned.actions)
    driver.cluster.put(node("b", 2_500))
    assert {action.cause for action in held(driver, planned)} == {Cause.FREE_CAPACITY}
