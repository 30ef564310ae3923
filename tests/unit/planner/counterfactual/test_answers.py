"""Why this size: one kind of change after the other, on clusters small enough to know the answer."""

from dataclasses import replace

import pytest

from autoscaler.domain import (
    Bottleneck,
    ClusterView,
    Headroom,
    History,
    JobState,
    Node,
    PodPhase,
    Policy,
    ResizeTimes,
    Resources,
    Shape,
    Tier,
)
from autoscaler.planner import plan
from autoscaler.planner.counterfactual import ChangeKind, PlanInputs, explain, size_after, without_windows
from autoscaler.planner.counterfactual.increments import unit_for
from tests.property.planner_cases import Driver
from tests.unit.clusters.memory_cluster import MemoryCluster
from tests.unit.planner.setups import job, node, shape


def at_rest(nodes, jobs, policy=None, **edits):
    """The moment after everything has settled, with some of its fields changed."""
    cluster = MemoryCluster(nodes, jobs)
    driver = Driver(cluster, policy or Policy())
    driver.settle()
    view = replace(cluster.view(history=driver.history), **edits)
    return PlanInputs(view=view, policy=driver.policy, now_s=cluster.now())


def answers(moment, name="a", **how):
    explanation = explain(moment, name, **how)
    return {tuple(change.kind for change in a.changes): (a.size, told(a)) for a in explanation.answers}


def told(answer):
    return " and ".join(change.describe() for change in answer.changes)


def test_a_job_at_its_maximum_needs_a_larger_one():
    """Room is there, so nothing else is offered."""
    moment = at_rest([node("n", 8_000)], [job("a", high=3)])
    assert answers(moment) == {(ChangeKind.MAX,): (4, "maxReplicas 4 in place of 3")}


def test_a_pinned_job_needs_its_pin_removed():
    """And then gets what it may have."""
    moment = at_rest([node("n", 4_000)], [job("a", high=9, pinned=2)])
    assert answers(moment) == {(ChangeKind.PIN,): (4, "trainer.replicas 0 in place of 2, so that EDL decides")}


def test_a_full_cluster_needs_the_lacking_resource_or_another_node():
    """One GPU is lacking, cpu is not; the node that lacks least is named."""
    moment = at_rest([node("n1", 9_000, gpu=2), node("n2", 9_000, gpu=1)], [job("a", gpu=1, high=9)])
    found = answers(moment)
    assert found[ChangeKind.RESOURCE,] == (4, "1 gpu more on n1")
    assert found[ChangeKind.NODES,] == (5, "another node like n1")


def test_nodes_are_named_by_what_they_match():
    """Only nodes that the selector chooses count."""
    gpus = frozenset({("disk", "ssd")})
    wanting = job("a", high=9)
    wanting = replace(
        wanting, trainer=replace(wanting.trainer, shape=replace(wanting.trainer.shape, node_selector=gpus))
    )
    moment = at_rest([node("n1", 2_000, labels=gpus), node("n2", 9_000)], [wanting])
    assert answers(moment)[ChangeKind.RESOURCE,] == (3, "1 cpu more on n1, one of the nodes matching disk=ssd")


def test_a_trainer_that_no_node_holds_needs_a_node_of_its_own_kind():
    """More of one resource cannot help where two are missing."""
    moment = at_rest([node("n", 2_000)], [job("a", low=2, cpu_milli=4_000, gpu=1)])
    assert answers(moment) == {(ChangeKind.NODES,): (2, "another node with 8 cpu, 2 gpu")}


def test_trainers_that_go_to_one_node_together_need_a_node_that_holds_them_together():
    """Another node like n would hold one of the two."""
    wanting = job("a", low=2, high=2, step=2, gpu=1)
    wanting = replace(wanting, trainer=replace(wanting.trainer, per_node=2))
    moment = at_rest([node("n", 1_000, gpu=1)], [wanting])
    assert answers(moment) == {(ChangeKind.NODES,): (2, "another node with 2 cpu, 2 gpu")}


def test_where_free_gpus_keep_their_room_a_node_without_gpus_is_needed():
    """A node like n would hold two more, but its GPU keeps half a cpu; more on n would have to be cpu and memory."""
    large = Shape(requests=Resources(cpu_milli=1_500, memory_bytes=1 << 30))
    wanting = job("a", low=2, high=2, step=2)
    wanting = replace(wanting, trainer=replace(wanting.trainer, per_node=2, shape=large))
    full = Node(name="n", allocatable=Resources(cpu_milli=3_000, memory_bytes=2 << 30, gpu_count=1))
    moment = at_rest([full], [wanting, job("g", high=1, gpu=1, cpu_milli=500)], Policy(has_device_reserve=True))
    assert answers(moment) == {
        (ChangeKind.MAX, ChangeKind.NODES): (4, "maxReplicas 4 in place of 2 and another node with 3 cpu, 2Gi memory")
    }


def test_between_equals_weight_priority_or_room():
    """What a fair share is lost to."""
    found = answers(at_rest([node("n", 4_000)], [job("a"), job("b")]))
    assert set(found) == {(ChangeKind.WEIGHT,), (ChangeKind.PRIORITY,), (ChangeKind.RESOURCE,), (ChangeKind.NODES,)}
    assert found[ChangeKind.PRIORITY,] == (3, "a priority class of value 1 in place of 0")


def test_a_gang_that_does_not_fit_may_start_smaller():
    """One trainer fewer is the smallest change of the minimum."""
    found = answers(at_rest([node("n", 2_000)], [job("a", low=3)]))
    assert found[ChangeKind.MIN,] == (2, "minReplicas 2 in place of 3")
    assert found[ChangeKind.RESOURCE,] == (3, "1 cpu more on n")


def test_a_step_that_does_not_fit_may_be_shortened():
    """Half of the step fits."""
    found = answers(at_rest([node("n", 3_000)], [job("a", high=8, step=4)]))
    assert found[ChangeKind.STEP,] == (3, "step 2 in place of 4")
    assert found[ChangeKind.RESOURCE,] == (5, "2 cpu more on n")


def test_a_closed_node_may_be_opened():
    """The cheapest room of all."""
    found = answers(at_rest([node("n1", 2_000), node("n2", 2_000, is_cordoned=True)], [job("a")]))
    assert found[ChangeKind.OPEN,] == (4, "n2 open again")


def test_a_quota_may_be_raised():
    """That of the job's own namespace, by as much of the resource as one trainer takes."""
    driver = Driver(MemoryCluster([node("n", 8_000)], [replace(job("a"), namespace="team")]), Policy())
    driver.cluster.hard = {
        "other": Resources(cpu_milli=1_000),
        "team": Resources(cpu_milli=3_000, memory_bytes=1 << 30),
    }
    driver.settle()
    moment = PlanInputs(view=driver.cluster.view(), policy=driver.policy, now_s=driver.cluster.now())
    assert answers(moment) == {(ChangeKind.QUOTA,): (4, "1 cpu more in quota team/team")}


def test_headroom_may_be_given_up():
    """As little of it as will do."""
    policy = Policy(headroom=(Headroom(shape=shape(1_000), count=3),))
    found = answers(at_rest([node("n", 4_000)], [job("a")], policy))
    assert found[ChangeKind.HEADROOM,] == (2, "headroom for 2 pods in place of 3")


def test_of_several_headrooms_the_last_one_named_goes_first():
    """As an owner lists them: the first is what matters most."""
    policy = Policy(
        headroom=tuple(Headroom(shape=shape(size), count=count) for size, count in ((2_000, 1), (1_000, 2)))
    )
    moment = at_rest([node("n", 6_000)], [job("a")], policy)
    found = explain(moment, "a")
    (change,) = next(answer.changes for answer in found.answers if answer.changes[0].kind is ChangeKind.HEADROOM)
    assert [kept.count for kept in change.apply(moment).policy.headroom] == [1, 1]


def test_maximum_and_room_together():
    """Neither alone helps: a pair, of which no part can be smaller."""
    moment = at_rest([node("n", 2_000)], [job("a", high=2)])
    assert answers(moment) == {
        (ChangeKind.MAX, ChangeKind.RESOURCE): (3, "maxReplicas 3 in place of 2 and 1 cpu more on n")
    }


def test_a_size_can_be_asked_for():
    """The smallest changes that give at least so many."""
    moment = at_rest([node("n", 2_000)], [job("a", high=9)])
    found = answers(moment, more_than=5)
    assert found[ChangeKind.RESOURCE,] == (6, "4 cpu more on n")
    assert found[ChangeKind.NODES,] == (6, "2 more nodes like n")


def test_a_suspended_job_is_resumed():
    """Nothing else helps it."""
    moment = at_rest([node("n", 2_000)], [job("a", state=JobState.SUSPENDED)])
    assert answers(moment) == {(ChangeKind.RESUME,): (2, "edl resume tj/a")}


@pytest.mark.parametrize("state", [JobState.ENDING, JobState.OVER])
def test_a_job_that_is_done_has_no_answer(state):
    """No change and no pair."""
    explanation = explain(at_rest([node("n", 2_000)], [job("a", state=state)]), "a")
    assert explanation.answers == ()
    assert explanation.decision.bottleneck is Bottleneck.NOT_ACTIVE


def test_a_stale_view_needs_a_fresh_one():
    """Nothing is written on what may no longer be true."""
    moment = at_rest([node("n", 3_000)], [job("a", high=2)])
    moment = replace(moment, view=moment.view.evolve(observed_at_s=0.0), policy=Policy(up_window_s=0.0))
    grown = moment.with_job(job("a", high=3))
    assert answers(grown) == {(ChangeKind.VIEW,): (3, "a view of now")}


def test_time_alone_ends_a_window():
    """The instant is named; a moment earlier it is not yet so."""
    moment = at_rest([node("n", 2_000)], [job("a")])
    gone = next(pod for pod in moment.view.pods if pod.tier is Tier.SURPLUS)
    history = History(resizes=(ResizeTimes(job="a", shrunk_at_s=moment.now_s),))
    view = moment.view.evolve(gone_pods=[gone.name], history=history)
    moment = replace(moment, view=view, policy=Policy(up_window_s=5.0, quiet_window_s=0.0))
    explanation = explain(moment, "a")
    assert explanation.decision.bottleneck is Bottleneck.COOLDOWN
    (wait,) = explanation.answers[0].changes
    assert (wait.kind, wait.until_s, explanation.answers[0].size) == (ChangeKind.TIME, moment.now_s + 5.0, 2)


def test_a_pause_after_failures_ends_by_time():
    """It is no window, and no other change ends it."""
    held = job("a", hold_until_s=1_030.0)
    moment = PlanInputs(
        view=ClusterView(revision=1, observed_at_s=1_000.0, nodes=(node("n", 2_000),), jobs=(held,)),
        policy=Policy(),
        now_s=1_000.0,
    )
    assert answers(moment)[ChangeKind.TIME,] == (2, "time: in 30 s")


def test_what_is_given_up_after_a_bounded_search_says_so():
    """A large cluster is not searched without end."""
    explanation = explain(at_rest([node("n", 4_000)], [job("a"), job("b")]), "a", most=3)
    assert explanation.is_cut


def test_planning_anew_by_hand_gives_the_size():
    """The answer's own words, done without its code: A8."""
    moment = at_rest([node("n1", 2_000), node("n2", 2_500)], [job("a", high=9)])
    assert answers(moment)[ChangeKind.RESOURCE,] == (5, "1 cpu more on n2")
    for added, size in ((1_000, 5), (0, 4)):
        view = replace(moment.view, nodes=(node("n1", 2_000), node("n2", 2_500 + added)))
        (decision,) = plan(view, without_windows(moment.policy), moment.now_s).decisions
        assert decision.target == size
    assert size_after(moment, "a") == 4


@pytest.mark.parametrize(
    ("resource", "need", "unit"),
    [("cpu", 500, 1_000), ("cpu", 16_000, 1_000), ("cpu", 64_000, 4_000), ("memory", 64 << 30, 4 << 30), ("gpu", 8, 1)],
)
def test_units_are_those_in_which_people_buy(resource, need, unit):
    """At most sixteen of them cover a need."""
    assert unit_for(resource, need) == unit


def test_leaving_pods_are_no_room_yet():
    """What is being vacated counts as it does for the planner: the job will have it."""
    moment = at_rest([node("n", 2_000)], [job("a")])
    leaving = replace(moment.view.pods[-1], phase=PodPhase.TERMINATING)
    found = explain(replace(moment, view=moment.view.evolve(pods=[leaving])), "a")
    assert found.settled.target == 2


def test_a_pair_never_changes_the_sizes_that_its_other_part_rests_on():
    """With a step of 1, maximum 2 would do; found by the property: maximum 3 and step 1 were named."""
    moment = at_rest([node("n", 1_500)], [job("a", high=1, step=2, cpu_milli=500), job("b", high=1, cpu_milli=500)])
    assert answers(moment) == {
        (ChangeKind.MAX, ChangeKind.RESOURCE): (3, "maxReplicas 3 in place of 1 and 1 cpu more on n")
    }


def test_a_minimum_of_one_is_tried_too():
    """The last rung of all."""
    found = answers(at_rest([node("n", 1_000)], [job("a", low=3)]))
    assert found[ChangeKind.MIN,] == (1, "minReplicas 1 in place of 3")


def test_the_priority_of_the_others_is_enough_where_fairness_helps():
    """Nothing says that a higher one is needed, so the smallest priority is that of the richer job itself."""
    moment = at_rest([node("n", 6_000)], [job("a"), job("b", priority=5)])
    assert answers(moment)[ChangeKind.PRIORITY,] == (2, "a priority class of value 5 in place of 0")


def test_time_is_no_answer_where_its_end_brings_no_trainer():
    """The pause after failures ends, and there is no more room than before."""
    moment = at_rest([node("n", 2_000)], [job("a")])
    held = moment.with_job(replace(moment.job("a"), hold_until_s=moment.now_s + 30.0))
    assert explain(held, "a").decision.bottleneck is Bottleneck.COOLDOWN
    assert (ChangeKind.TIME,) not in answers(held)
