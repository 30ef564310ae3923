"""Quotas over some classes of pods: core and each grade of surplus are bound separately (ADR 0116)."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.domain import AdmitGang, Bottleneck, CreatePod, DeletePod, Quota, QuotaLimit, Role, Tier, Trait
from autoscaler.planner.counterfactual.change import PlanInputs
from autoscaler.planner.counterfactual.convergence import converge
from autoscaler.planner.working_copy.grades import grade_of_pod
from tests.property.planner_cases import Driver, happen
from tests.property.planner_draws import clusters, open_policies, stories
from tests.unit.clusters.memory_cluster import MemoryCluster
from tests.unit.planner.setups import CALM, decision, job, node, web

CORE = {"grades": frozenset()}
SURPLUS = {"core_classes": frozenset()}


def quota(hard, *, name="team", namespace="default", resource="cpu", used=0, **scope):
    limits = (QuotaLimit(resource=resource, hard=hard, used=used),)
    return Quota(namespace=namespace, name=name, limits=limits, **scope)


def driven(cluster, *quotas, policy=CALM):
    cluster.scoped = quotas
    driver = Driver(cluster, policy)
    driver.settle()
    return driver


def size(driver, name="j"):
    return decision(driver.plan(), name).now


def test_a_quota_over_core_leaves_surplus_alone():
    driver = driven(MemoryCluster([node("a", 8_000)], [job("j", low=2, high=6)]), quota(2_000, **CORE))
    assert size(driver) == 6


@pytest.mark.parametrize(
    ("tier", "priority", "grade"),
    [
        ("core", 1_000, 0),
        ("core", -3, 0),
        ("surplus", -1, 1),
        ("surplus", -8, 8),
        ("surplus", 0, 1),
        ("surplus", -9, 1),
    ],
)
def test_a_pod_that_stands_has_the_grade_of_its_priority(tier, priority, grade):
    """Core has none; surplus of a class that is none of ours counts as the first."""
    pod = replace(web("p"), role=Role.TRAINER, tier=Tier(tier), job="j", priority=priority)
    assert grade_of_pod(pod) == grade


def test_a_quota_over_surplus_leaves_core_alone():
    driver = driven(MemoryCluster([node("a", 8_000)], [job("j", low=2, high=6)]), quota(3_000, **SURPLUS))
    found = decision(driver.plan(), "j")
    assert (found.now, found.bottleneck) == (5, Bottleneck.QUOTA)
    assert found.message == "quota team leaves 0 cpu, 1 needed"


def test_a_gang_that_its_class_has_no_quota_for_is_not_asked_for():
    """The class of another job is another matter."""
    jobs = [job("poor", low=2, priority_class="research"), job("rich", low=2, high=2, priority_class="edl-core")]
    driver = driven(
        MemoryCluster([node("a", 8_000)], jobs), quota(1_000, name="few", core_classes=frozenset({"research"}))
    )
    found = driver.plan()
    assert (decision(found, "rich").now, decision(found, "poor").now) == (2, 0)
    assert decision(found, "poor").bottleneck is Bottleneck.QUOTA
    assert decision(found, "poor").message == "quota few leaves 1 cpu, 2 needed"
    assert not any(isinstance(action, AdmitGang) for action in found.actions)


@pytest.mark.parametrize("grade", [1, 4, 8])
def test_each_grade_is_bound_by_itself(grade):
    """Two of this grade and all of those below it; the job stops at the third."""
    driver = driven(
        MemoryCluster([node("a", 80_000)], [job("j", high=64)]), quota(2_000, grades=frozenset({grade}), **SURPLUS)
    )
    grades = [-pod.priority for pod in driver.cluster.pods.values() if pod.tier is Tier.SURPLUS]
    assert grades.count(grade) == 2
    assert max(grades) == grade
    assert decision(driver.plan(), "j").bottleneck is Bottleneck.QUOTA


def test_ordinals_between_those_that_stand_have_their_own_grade():
    """A lost trainer comes back with its number, whose class may be full while that of the next is not."""
    cluster = MemoryCluster([node("a", 24_000)], [job("j", high=32)])
    driver = driven(cluster, quota(32_000))
    cluster.scoped = (quota(0, grades=frozenset({3}), **SURPLUS),)
    lost = next(pod for pod in cluster.pods.values() if pod.priority == -3)
    cluster.lose(lost.name)
    assert not any(isinstance(action, CreatePod) for action in driver.turn().actions)
    assert decision(driver.plan(), "j").message == "quota team leaves 0 cpu, 1 needed"


@pytest.mark.parametrize(("scope", "gives"), [(CORE, False), ({}, True), ({"core_classes_not": frozenset("x")}, True)])
def test_a_gang_takes_back_what_its_quota_counts_and_nothing_else(scope, gives):
    """Surplus that another quota counts, or none, would leave for nothing."""
    cluster = MemoryCluster([node("a", 16_000)], [job("old", low=1, high=4)])
    driver = driven(cluster)
    cluster.scoped = (quota(2_000 if scope == CORE else 5_000, **scope),)
    cluster.put(job("new", low=2, high=2))
    found = driver.plan()
    assert [action.job for action in found.actions if isinstance(action, DeletePod)] == ["old"] * gives
    assert decision(found, "new").bottleneck is (Bottleneck.CAPACITY_DRAINING if gives else Bottleneck.QUOTA)
    driver.settle()
    assert (size(driver, "new"), size(driver, "old")) == ((2, 3) if gives else (0, 4))


def test_what_leaves_counts_until_it_is_gone_for_its_own_class():
    """A job that has to shrink makes way within the quota of surplus, later."""
    cluster = MemoryCluster([node("a", 16_000)], [job("old", high=4), job("new", high=1)], drain_s=5.0)
    driver = driven(cluster, quota(3_000, **SURPLUS))
    cluster.put(job("old", high=1), job("new", high=4))
    first = driver.turn()
    assert {type(action) for action in first.actions} == {DeletePod}
    assert decision(first, "new").target == 4
    driver.settle()
    assert (size(driver, "old"), size(driver, "new")) == (1, 4)


@pytest.mark.parametrize("trait", list(Trait))
def test_a_quota_over_a_trait_counts_the_templates_that_have_it(trait):
    one = job("j", high=6)
    has = replace(one, trainer=replace(one.trainer, traits=frozenset({trait})))
    for told, now in ((one, 6), (has, 3)):
        assert size(driven(MemoryCluster([node("a", 8_000)], [told]), quota(3_000, traits=frozenset({trait})))) == now
    for told, now in ((one, 3), (has, 6)):
        driver = driven(MemoryCluster([node("a", 8_000)], [told]), quota(3_000, traits_not=frozenset({trait})))
        assert size(driver) == now


@pytest.mark.parametrize(("scope", "rests_at"), [({}, 3), (SURPLUS, 4), (CORE, 8)])
def test_where_a_cluster_comes_to_rest_its_quotas_have_been_counted(scope, rests_at):
    """Each plan on the way uses some: what is left is less in the next."""
    cluster = MemoryCluster([node("a", 1_000)], [job("j", high=8)])
    driver = driven(cluster, quota(3_000, **scope))
    cluster.put(node("b", 16_000))
    moment = PlanInputs(view=cluster.view(history=driver.history), policy=CALM, now_s=cluster.now())
    rest = converge(moment)
    assert decision(rest.plan, "j").now == rests_at
    (counted,) = rest.inputs.view.quotas
    assert counted.limits[0].used == {3: 3_000, 4: 3_000, 8: 1_000}[rests_at]


scopes = st.fixed_dictionaries(
    {
        "core_classes": st.sampled_from([None, frozenset(), frozenset({""})]),
        "grades": st.sampled_from([None, frozenset(), frozenset({1}), frozenset({8}), frozenset({3, 4, 5})]),
    }
)
some_quotas = st.lists(
    st.builds(
        lambda hard, namespace, resource, scope: quota(hard, namespace=namespace, resource=resource, **scope),
        st.integers(0, 8_000),
        st.sampled_from(["blue", "red"]),
        st.sampled_from(["cpu", "cpu", "memory"]),
        scopes,
    ),
    min_size=1,
    max_size=3,
)


@given(clusters(), stories(max_events=5), open_policies, some_quotas)
def test_no_plan_asks_what_admission_refuses(cluster, story, policy, quotas):
    """`Driver` fails on a write that is refused."""
    cluster.scoped = tuple(replace(one, name=f"q{number}") for number, one in enumerate(quotas))
    driver = Driver(cluster, policy)
    for event in story:
        happen(cluster, event)
        for _ in range(3):
            cluster.bind_others()
            driver.turn()
            cluster.advance(0.7)
