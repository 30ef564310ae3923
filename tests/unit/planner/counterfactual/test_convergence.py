"""What if: a moment edited as users say it, and where it comes to rest."""

from dataclasses import replace

import pytest
from hypothesis import given, settings

from autoscaler.domain import PodPhase, Policy, Resources, Role, Workload
from autoscaler.planner import plan
from autoscaler.planner.counterfactual import PlanInputs, converge, edits, without_windows
from tests.property.planner_cases import Driver
from tests.property.planner_draws import clusters, stories
from tests.unit.clusters.memory_cluster import MemoryCluster
from tests.unit.planner.setups import decision, job, node, shape


def moment_of(nodes, jobs, workloads=()):
    cluster = MemoryCluster(nodes, jobs, workloads)
    driver = Driver(cluster, Policy())
    driver.settle()
    return PlanInputs(view=cluster.view(history=driver.history), policy=driver.policy, now_s=cluster.now())


def sizes(rest):
    return {d.job: d.target for d in rest.plan.decisions}


def running(rest, workload):
    return sum(pod.workload == workload and pod.node is not None for pod in rest.inputs.view.pods)


WEB = Workload(name="web", shape=shape(1_000))
BASE = moment_of([node("n1"), node("n2")], [job("a", high=9), job("b", high=9)], [WEB])


def test_as_things_are_nothing_moves():
    """A cluster at rest is at rest."""
    rest = converge(BASE)
    assert rest.is_reached
    assert sizes(rest) == {"a": 4, "b": 4}
    assert rest.inputs.view.pods == BASE.view.pods


def test_more_web_takes_surplus_and_never_a_minimum():
    """Web comes first; what finds no room waits."""
    rest = converge(edits.with_replicas(BASE, "web", 7))
    assert running(rest, "web") == 6
    assert sizes(rest) == {"a": 1, "b": 1}
    assert [d.state for d in rest.plan.demands] == ["NoCapacity"]


def test_less_web_gives_the_room_back():
    """What is taken and given back ends where it began."""
    more = converge(edits.with_replicas(BASE, "web", 4)).inputs
    assert sizes(converge(edits.with_replicas(more, "web", 0))) == {"a": 4, "b": 4}


def test_fewer_replicas_leave_as_a_replica_set_takes_them():
    """Who serves nobody yet goes first, then the newest."""
    pods = [
        replace(edits.replica(WEB, number, created_at_s), phase=phase, node="n1")
        for number, created_at_s, phase in (
            (0, 10.0, PodPhase.READY),
            (1, 20.0, PodPhase.READY),
            (2, 5.0, PodPhase.STARTING),
        )
    ]
    moment = replace(BASE, view=BASE.view.evolve(pods=pods))
    left = [
        [pod.name for pod in edits.with_replicas(moment, "web", count).view.pods if pod.workload == "web"]
        for count in (2, 1)
    ]
    assert left == [["web-0", "web-1"], ["web-0"]]


def test_what_leaves_a_lost_node_or_nobody_replaces_does_not_come_back():
    """A leaving web pod has its successor already, and a node's own daemon ends with the node."""
    view = converge(edits.with_replicas(BASE, "web", 4)).inputs.view
    first, second = [pod for pod in view.pods if pod.workload == "web" and pod.node == "n1"][:2]
    changed = [replace(first, phase=PodPhase.TERMINATING), replace(second, workload=None)]
    moment = edits.without_node(replace(BASE, view=view.evolve(pods=changed)), "n1")
    left = {pod.name: pod.phase for pod in moment.view.pods if pod.role is Role.EXTERNAL}
    others = {pod.name for pod in view.pods if pod.workload == "web"} - {first.name, second.name}
    assert left.keys() == others
    assert [pod.name for pod in moment.view.pods if pod.place == "n1"] == []


def test_new_nodes_are_filled():
    """With labels too, so that selectors choose them; names that stand are not taken again."""
    capacity = Resources(cpu_milli=2_000)
    once = edits.with_nodes(BASE, capacity, 2, [("zone", "a")])
    twice = edits.with_nodes(once, capacity, 1)
    assert len({n.name for n in twice.view.nodes}) == 5
    assert ("zone", "a") in twice.view.nodes[-1].labels or ("zone", "a") in twice.view.nodes[-2].labels
    assert sum(sizes(converge(twice)).values()) == 14


def test_a_lost_node_takes_trainers_and_sends_web_elsewhere():
    """Others' pods come back by their own controllers."""
    loaded = converge(edits.with_replicas(BASE, "web", 4)).inputs
    rest = converge(edits.without_node(loaded, "n1"))
    assert running(rest, "web") == 2
    assert sizes(rest) == {"a": 1, "b": 1}
    assert sum(d.state == "NoCapacity" for d in rest.plan.demands) == 2


def test_one_more_job_starts_whole_or_waits():
    """As a gang, in others' surplus."""
    rest = converge(edits.with_submission(BASE, job("c", low=3)))
    assert sizes(rest)["c"] >= 3
    rest = converge(edits.with_submission(BASE, job("c", low=7)))
    assert decision(rest.plan, "c").target == 0


@pytest.mark.parametrize(
    ("edit", "error"),
    [
        (lambda: edits.without_node(BASE, "n9"), KeyError),
        (lambda: edits.with_replicas(BASE, "x", 1), KeyError),
        (lambda: edits.with_submission(BASE, job("a")), ValueError),
        (lambda: edits.with_workload(BASE, WEB), ValueError),
    ],
)
def test_what_is_not_there_or_is_there_already_is_refused(edit, error):
    """The command line says it with the known names."""
    with pytest.raises(error):
        edit()


@settings(max_examples=30)
@given(clusters(), stories())
def test_rest_is_where_a_real_loop_ends_too(cluster, story):
    """Rest is reached, holds no more than there is, and a plan there asks for nothing but what waits."""
    driver = Driver(cluster, Policy())
    driver.live(story)
    moment = PlanInputs(view=cluster.view(history=driver.history), policy=driver.policy, now_s=cluster.now())
    rest = converge(moment)
    assert rest.is_reached
    view = rest.inputs.view
    for standing in view.nodes:
        used = sum((pod.requests for pod in view.pods if pod.place == standing.name), start=Resources())
        assert used.fits_into(standing.allocatable)
    again = plan(view, without_windows(moment.policy), moment.now_s)
    assert not again.actions
    assert not any(pod.phase is PodPhase.TERMINATING for pod in view.pods)
    assert {pod.name for pod in moment.view.pods if pod.role is Role.EXTERNAL} <= {pod.name for pod in view.pods}


def test_a_view_without_news_is_taken_for_one_of_now():
    """A saved moment of a cluster that had not answered can still be asked about."""
    old = replace(BASE, view=BASE.view.evolve(observed_at_s=0.0, is_synced=False))
    assert sizes(converge(old)) == {"a": 4, "b": 4}
