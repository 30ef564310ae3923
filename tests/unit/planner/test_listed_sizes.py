"""Jobs whose sizes are a list: growth, victims, odd trainers, and what `edl why` says of them (ADR 0234)."""

from dataclasses import replace
from itertools import groupby
from math import inf, nan

import pytest

from autoscaler.domain import Bottleneck, Cause, DeletePod, Policy
from autoscaler.planner.counterfactual import ChangeKind
from autoscaler.planner.sharing.change_limits import pays_off
from tests.property.planner_cases import Driver
from tests.unit.clusters.memory_cluster import MemoryCluster
from tests.unit.planner.counterfactual.test_answers import answers, at_rest
from tests.unit.planner.setups import CALM, decision, job, node, settled, web


def listed(name, *sizes, **fields):
    """A job of one of these sizes."""
    made = job(name, low=sizes[0], high=sizes[-1], **fields)
    return replace(made, trainer=replace(made.trainer, sizes=sizes))


@pytest.mark.parametrize(("cpus", "size"), [(1, 1), (3, 2), (4, 4), (7, 4), (9, 8)])
def test_job_has_the_largest_size_on_its_list_that_fits(cpus, size):
    driver = settled([node("a", cpus * 1_000)], [listed("j", 1, 2, 4, 8)])
    assert decision(driver.plan(), "j").now == size


def test_why_names_the_next_size():
    found = decision(settled([node("a", 6_000)], [listed("j", 1, 2, 4, 8)]).plan(), "j")
    assert (found.now, found.bottleneck) == (4, Bottleneck.STEP)
    assert found.message == "2 of the 4 trainers to its next size, 8 of 1, 2, 4, 8, fit"


@pytest.mark.parametrize("pods", [1, 4])
def test_room_for_web_pods_takes_one_resize(pods):
    """One pod costs as much as four; all leave in one plan, side by side, so that a group pauses once."""
    driver = settled([node("a", 10_000)], [listed("j", 1, 2, 4, 8), job("small", low=1, high=2)])
    driver.cluster.put(*(web(f"w{number}") for number in range(pods)))
    deleted = [action.job for action in driver.plan().actions if isinstance(action, DeletePod)]
    assert [(name, len(list(jobs))) for name, jobs in groupby(deleted)] == [("j", 4), ("small", 1)]
    driver.settle()
    assert [one.cause for one, _ in driver.cluster.applied if isinstance(one, DeletePod) and one.job == "j"] == [
        Cause.TRANSFER if pods == 1 else Cause.POD
    ] * 4


def test_shrinks_by_one_plan_to_a_size_on_the_list():
    driver = settled([node("a", 8_000)], [listed("j", 1, 2, 5, 8)])
    driver.cluster.put(*(web(f"w{number}") for number in range(4)))
    plan = driver.plan()
    assert len([action for action in plan.actions if isinstance(action, DeletePod)]) == 6
    assert decision(plan, "j").target == 2


def test_trainer_that_makes_up_no_size_leaves():
    """Of five one is killed, and there is no room for another: three of the four are of use."""
    driver = settled([node("a", 5_000)], [listed("j", 1, 3, 5)])
    driver.cluster.lose("j-trainer-4")
    driver.cluster.put(node("a", 4_000))
    (action,) = driver.plan().actions
    assert (action.pod, action.cause, action.beneficiary) == ("j-trainer-3", Cause.STEP, "spec.trainer.sizes")


def test_room_that_such_a_trainer_leaves_is_told_to_who_lacks_it():
    """Shares were divided before it left: nothing is missing on that node, and the sentence had a hole there."""
    driver = settled([node("a", 6_000)], [listed("j", 1, 3, 5), job("b")])
    driver.cluster.lose("j-trainer-2")
    driver.cluster.put(node("a", 5_000))
    made = driver.plan()
    assert [action.cause for action in made.actions] == [Cause.STEP]
    assert decision(made, "b").message == "could grow on a once the pods that leave it have left"


def test_another_size_on_the_list_is_an_answer():
    """Between the size that it has and the next one: the largest that fits."""
    found = answers(at_rest([node("n", 6_000)], [listed("a", 1, 2, 4, 8)]))
    assert found[ChangeKind.STEP,] == (6, "6 before 8 in trainer.sizes")
    assert found[ChangeKind.RESOURCE,] == (8, "2 cpu more on n")


def test_sizes_on_the_list_come_several_to_a_node():
    """The list stays one of whole nodes."""
    pairs = listed("a", 2, 8)
    pairs = replace(pairs, trainer=replace(pairs.trainer, per_node=2))
    found = answers(at_rest([node(f"n{number}", 2_000) for number in range(3)], [pairs]))
    assert found[ChangeKind.STEP,] == (6, "6 before 8 in trainer.sizes")


def test_a_larger_maximum_is_a_size_on_the_list_too():
    found = answers(at_rest([node("n", 6_000)], [listed("a", 1, 2, 4)]))
    assert found[ChangeKind.MAX,] == (5, "maxReplicas 5 in place of 4 and 5 in trainer.sizes")


def test_a_smaller_minimum_is_a_size_on_the_list_too():
    found = answers(at_rest([node("n", 2_000)], [listed("a", 3, 6)]))
    assert found[ChangeKind.MIN,] == (2, "minReplicas 2 in place of 3 and 2 in trainer.sizes")


def test_pinned_size_is_one_of_the_list():
    pinned = listed("j", 1, 2, 4, 8)
    pinned = replace(pinned, trainer=replace(pinned.trainer, pinned_replicas=4))
    driver = Driver(MemoryCluster([node("a", 9_000)], [pinned]), CALM)
    driver.settle()
    assert decision(driver.plan(), "j").now == 4


def test_measured_pause_counts_as_what_a_resize_costs():
    """From 10 to 12 trainers 60 s of pause cost 600 trainer-seconds, which 2 trainers bring in 300 s."""
    measured = job("j", high=40, resize_pause_s=60.0)
    assert not pays_off(Policy(payoff_s=300.0), measured, 10, 12)
    assert pays_off(Policy(payoff_s=301.0), measured, 10, 12)


@pytest.mark.parametrize(
    ("stated", "measured", "pause_s"),
    [(0.0, 0.05, 0.05), (20.0, 0.05, 20.0), (5.0, 7.0, 7.0), (5.0, nan, 5.0), (0.0, inf, 0.0)],
)
def test_longer_of_the_stated_and_the_measured_pause_counts(stated, measured, pause_s):
    """A master's figure that is no time counts as none (A7)."""
    assert job("j", resize_cost_s=stated, resize_pause_s=measured).pause_s == pause_s


@pytest.mark.parametrize(("pause_s", "is_moved"), [(0.0, True), (30.0, False)])
def test_transfer_from_a_group_makes_good_the_pause_of_all(pause_s, is_moved):
    policy = replace(CALM, payoff_s=60.0)
    driver = settled([node("a", 8_000)], [job("old", high=8, resize_pause_s=pause_s)], policy)
    driver.cluster.put(job("new", high=8))
    driver.settle()
    causes = {action.cause for action, _ in driver.cluster.applied if isinstance(action, DeletePod)}
    assert (Cause.TRANSFER in causes) == is_moved
