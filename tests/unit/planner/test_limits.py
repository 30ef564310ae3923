"""What bounds a job beside room: quotas, whole nodes, and the room that free GPUs will need; kinds of GPUs."""

from collections import Counter
from dataclasses import replace

import pytest

from autoscaler.domain import (
    Admission,
    Bottleneck,
    Cause,
    DeletePod,
    DemandState,
    Headroom,
    Job,
    MasterSpec,
    Node,
    Quota,
    QuotaLimit,
    Resources,
    Role,
    Shape,
    TrainerSpec,
)
from autoscaler.planner import plan
from tests.unit.planner.setups import CALM, decision, demand, job, node, settled, shape, web


def sizes(driver):
    return {decision.job: decision.now for decision in driver.plan().decisions}


def planned(driver, *limits, namespace="default"):
    """The plan under a quota of these (resource, hard, used)."""
    found = tuple(QuotaLimit(resource=resource, hard=hard, used=used) for resource, hard, used in limits)
    view = driver.cluster.view(history=driver.history, quotas=(Quota(namespace=namespace, name="team", limits=found),))
    return plan(view, driver.policy, driver.cluster.now())


# Quotas.


def test_quota_bounds_growth_and_says_so():
    """Of 8 free cores the namespace may ask for 2."""
    driver = settled([node("a", 1_000)], [job("j", high=16)])
    driver.cluster.put(node("b", 8_000))
    found = planned(driver, ("cpu", 3_000, 1_000))
    assert len(found.actions) == 2
    assert decision(found, "j").bottleneck is Bottleneck.QUOTA
    assert decision(found, "j").message.startswith("grows by 2")
    found = planned(driver, ("cpu", 3_000, 2_500))
    assert found.actions == ()
    assert decision(found, "j").message == "quota team leaves 500m cpu, 1 needed"
    assert len(planned(driver, ("cpu", 0, 0), namespace="other").actions) == 8


@pytest.mark.parametrize("whose", ["minimum", "other namespace", "higher class"])
def test_gang_waits_for_its_quota_where_nobody_may_leave_for_it(whose):
    """Minimums stay, other namespaces use another quota, and under StrictClass higher classes keep their surplus."""
    old = job("old", low=4 if whose == "minimum" else 1, high=4, priority=int(whose == "higher class"))
    old = replace(old, namespace="other") if whose == "other namespace" else old
    driver = settled([node("a", 4_000)], [old], replace(CALM, admission=Admission.STRICT_CLASS))
    driver.cluster.put(job("new", low=2, high=2))
    found = planned(driver, ("cpu", 5_000, 4_000))
    assert found.actions == ()
    assert decision(found, "new").bottleneck is Bottleneck.QUOTA
    assert decision(found, "new").message == "quota team leaves 1 cpu, 2 needed"


def test_gang_takes_back_the_quota_that_surplus_of_its_namespace_uses():
    """No more than it lacks, once; what leaves counts until it is gone, so the gang starts only then."""
    driver = settled([node("a", 16_000)], [job("old", high=4), job("rich", high=4, namespace="other")])
    driver.cluster.hard["default"] = Resources(cpu_milli=5_000)
    driver.cluster.put(job("new", low=2, high=2))
    (left,) = driver.turn().actions
    assert (left.job, left.cause, left.beneficiary) == ("old", Cause.GANG, "new")
    again = driver.turn()
    assert again.actions == ()
    assert decision(again, "new").bottleneck is Bottleneck.CAPACITY_DRAINING
    driver.settle()
    assert {found.job: found.now for found in driver.plan().decisions} == {"new": 2, "old": 3, "rich": 4}


def test_quota_comes_from_who_asks_for_it():
    """A trainer without GPUs gives no quota of GPUs."""
    jobs = [job("cpu", high=8), job("gpu", high=2, gpu=1, weight=50)]
    driver = settled([node("a", 16_000, gpu=4)], jobs)
    driver.cluster.hard["default"] = Resources(cpu_milli=64_000, gpu_count=2)
    driver.cluster.put(job("new", low=1, high=1, gpu=1))
    assert [action.job for action in driver.turn().actions] == ["gpu"]


def test_missing_core_over_quota_names_the_quota():
    """A hard limit of 0 is a limit; a lost trainer cannot come back."""
    driver = settled([node("a", 4_000)], [job("j", low=2, high=2)])
    driver.cluster.lose("j-trainer-0")
    found = planned(driver, ("gpu", 0, 0), ("cpu", 1_000, 1_000))
    assert found.actions == ()
    assert decision(found, "j").bottleneck is Bottleneck.QUOTA
    assert decision(found, "j").is_degraded


# Headroom.


@pytest.mark.parametrize(("most", "expected"), [(8, {"high": 3, "low": 0}), (1, {"high": 1, "low": 3})])
def test_headroom_under_strict_class_yields_to_minimums_once_the_higher_class_wants_no_more(most, expected):
    """Surplus of the high class stands above the low minimum and headroom above all surplus: it comes to rest."""
    policy = replace(CALM, admission=Admission.STRICT_CLASS, headroom=(Headroom(shape=shape(1_000), count=1),))
    high = job("high", high=most, priority=5)
    driver = settled([node("a", 4_000)], [high, job("low", low=3, high=3)], policy)
    assert sizes(driver) == expected


# Whole nodes.


def whole(name, *, per_node=2, low=2, high=8, **fields):
    made = job(name, low=low, high=high, step=per_node, **fields)
    return replace(made, trainer=replace(made.trainer, per_node=per_node))


def places(driver, name):
    pods = driver.cluster.pods.values()
    return Counter(pod.node for pod in pods if pod.job == name and pod.role is Role.TRAINER)


def test_trainers_of_whole_nodes_stand_so_many_to_a_node():
    """3 and 5 cores are one and two pairs; the odd cores stay free."""
    driver = settled([node("a", 3_000), node("b", 5_000)], [whole("j")])
    assert places(driver, "j") == {"a": 2, "b": 4}
    assert decision(driver.plan(), "j").bottleneck is Bottleneck.NODE_FIT


def test_what_trainers_of_whole_nodes_lack_is_told_for_as_many_as_come_together():
    """There is room for one, and two come: the sentence had a hole where the amount was to stand."""
    driver = settled([node("a", 3_000)], [whole("j")])
    assert decision(driver.plan(), "j").message == "could grow with 2 cpu free on one node; a has 1"


def test_gang_of_whole_nodes_needs_whole_nodes():
    """Four cores on four nodes hold no pair."""
    driver = settled([node(name, 1_000) for name in "abcd"], [whole("j")])
    assert sizes(driver) == {"j": 0}
    driver.cluster.put(node("e", 2_000))
    driver.settle()
    assert places(driver, "j") == {"e": 2}


def test_gang_of_whole_nodes_that_fits_nowhere_keeps_no_single_trainers_waiting():
    """Equal trainers, as many of them; one job wants all four on a node of its own, and there is none."""
    whole = job("a", low=4, high=4, step=4)
    whole = replace(whole, trainer=replace(whole.trainer, per_node=4))
    driver = settled([node("n1", 2_000), node("n2", 2_000)], [whole, job("b", low=4, high=4)])
    assert sizes(driver) == {"a": 0, "b": 4}


def test_pair_leaves_together_and_a_lost_one_comes_back_beside_its_other_half():
    """The web takes one trainer; the other of that node is of no use, those elsewhere are."""
    driver = settled([node("a", 2_000), node("b", 2_000), node("c", 2_000)], [whole("j")])
    now_s = driver.cluster.now()
    driver.cluster.put(web("w", since_s=now_s, created_at_s=now_s))
    left = [action for action in driver.turn().actions if isinstance(action, DeletePod)]
    assert len({action.node for action in left}) == 1
    assert len(left) == 2
    driver.settle()
    assert sorted(places(driver, "j").values()) == [2, 2]
    driver.cluster.put(node("d", 1_000))
    lost = next(
        pod for pod in driver.cluster.pods.values() if pod.job == "j" and pod.ordinal == 0 and pod.role is Role.TRAINER
    )
    driver.cluster.lose(lost.name)
    driver.settle()
    assert sorted(places(driver, "j").values()) == [2, 2]


def test_lost_one_of_a_minimum_comes_back_beside_its_other_half():
    """Another node is as tight and has the first name."""
    driver = settled([node("a", 2_000), node("b", 2_000)], [whole("j", low=4, high=4)])
    driver.cluster.put(node("0", 1_000))
    lost = driver.cluster.pods["j-trainer-0"]
    driver.cluster.lose(lost.name)
    assert [action.node for action in driver.plan().actions] == [lost.node]


def test_whole_nodes_with_powers_of_two():
    """4 of 4 nodes with two each: 8; a fifth node changes nothing, eight do."""
    made = whole("j", low=2, high=16)
    spec = replace(made, trainer=replace(made.trainer, step=1, powers_of_two=True))
    driver = settled([node(f"n{number}", 2_000) for number in range(5)], [spec])
    assert sizes(driver) == {"j": 8}
    assert decision(driver.plan(), "j").bottleneck is Bottleneck.STEP


# GPUs.

KEEPS = replace(CALM, has_device_reserve=True)


def test_surplus_leaves_free_gpus_the_cores_that_they_will_need():
    """4 free GPUs with 2 cores each keep 8 of 10 cores; without the switch the job takes all ten."""
    jobs = [job("cpu", high=16), job("gpu", cpu_milli=2_000, gpu=1, low=5, high=5)]
    nodes = [node("g", 10_000, gpu=4)]
    assert sizes(settled(nodes, jobs))["cpu"] == 10
    driver = settled(nodes, jobs, KEEPS)
    assert sizes(driver)["cpu"] == 2
    assert "reserved for their free devices" in decision(driver.plan(), "cpu").message


def test_core_takes_that_room_only_where_there_is_no_other():
    """A job that could not start otherwise starts; beside a plain node it goes there."""
    gpu_job = job("gpu", cpu_milli=2_000, gpu=1, low=5, high=5)
    small = job("cpu", low=4, high=4)
    assert places(settled([node("g", 8_000, gpu=4)], [small, gpu_job], KEEPS), "cpu") == {"g": 4}
    found = settled([node("g", 8_000, gpu=4), node("p", 4_000)], [small, gpu_job], KEEPS)
    assert places(found, "cpu") == {"p": 4}


def typed(kind, count, cpu_milli=1_000):
    return Resources(cpu_milli=cpu_milli, extended=((kind, count),))


def gpu_job(name, kind, count=1, *, low=1, high=8):
    trainer = TrainerSpec(shape=Shape(requests=typed(kind, count)), min_replicas=low, max_replicas=high)
    return Job(name=name, trainer=trainer, master=MasterSpec(shape=Shape(requests=Resources())))


def test_a_device_that_a_node_shares_keeps_no_cores():
    """Sixteen cores never serve a thousand pieces of an RDMA card; four cards of their own keep theirs."""
    shared, own = "rdma/hca_shared_devices_a", "nvidia.com/mlnxnics"
    for card, pieces, size in ((shared, 1_000, 8), (own, 4, 4)):
        jobs = [job("cpu", high=8), gpu_job("net", card, low=1, high=1)]
        jobs[1] = replace(jobs[1], trainer=replace(jobs[1].trainer, shape=Shape(requests=typed(card, 1, 4_000))))
        assert sizes(settled([Node(name="n", allocatable=typed(card, pieces, 20_000))], jobs)) == {"cpu": 8, "net": 1}
        driver = settled([Node(name="n", allocatable=typed(card, pieces, 20_000))], jobs, KEEPS)
        assert sizes(driver) == {"cpu": size, "net": 1}, card


@pytest.fixture
def mixed():
    """Eight GPUs of one kind on two nodes, four of another on a third."""
    nodes = [
        Node(name="a", allocatable=typed("nvidia.com/a100", 4, 16_000)),
        Node(name="b", allocatable=typed("nvidia.com/a100", 4, 16_000)),
        Node(name="t", allocatable=typed("nvidia.com/t4", 4, 16_000)),
    ]
    jobs = [gpu_job("big", "nvidia.com/a100", 2), gpu_job("one", "nvidia.com/a100"), gpu_job("small", "nvidia.com/t4")]
    return settled(nodes, jobs)


def test_kinds_of_gpus_fit_and_share_by_their_own_capacity(mixed):
    """A share is of the eight that there are of the kind: 4 to 4, and the four of the other kind are nobody else's."""
    assert sizes(mixed) == {"big": 2, "one": 4, "small": 4}
    assert {name: decision(mixed.plan(), name).share for name in ("big", "one", "small")} == {
        "big": 0.5,
        "one": 0.5,
        "small": 1.0,
    }


def test_kinds_of_gpus_are_named_where_they_lack(mixed):
    """What lifts it is in the message: the resource by its own name."""
    found = decision(mixed.plan(), "small")
    assert found.bottleneck is Bottleneck.NODE_FIT
    assert "nvidia.com/t4" in found.message
    mixed.cluster.put(gpu_job("wide", "nvidia.com/a100", 5))
    assert decision(mixed.plan(), "wide").bottleneck is Bottleneck.NEVER_FITS
    assert "nvidia.com/a100" in decision(mixed.plan(), "wide").message


def test_demand_for_one_kind_takes_no_trainer_of_another(mixed):
    """A web pod that wants a T4 is served by a trainer that holds one."""
    now_s = mixed.cluster.now()
    pod = replace(web("w", since_s=now_s, created_at_s=now_s), shape=Shape(requests=typed("nvidia.com/t4", 1)))
    mixed.cluster.put(pod)
    found = mixed.turn()
    assert {action.job for action in found.actions} == {"small"}
    assert demand(found, "w").state is DemandState.SHRUNK_FOR


def test_quota_of_one_namespace_is_not_used_up_by_another():
    """Both grow in one plan, each to its own limit."""
    driver = settled([node("a", 20_000)], [job(name, high=1, namespace=name) for name in ("blue", "red")])
    driver.cluster.hard = {name: Resources(cpu_milli=amount) for name, amount in (("blue", 4_000), ("red", 6_000))}
    driver.cluster.put(*(job(name, high=8, namespace=name) for name in ("blue", "red")))
    assert {entry.job: entry.target for entry in driver.plan().decisions} == {"blue": 4, "red": 6}


def test_quota_that_holds_half_a_step_is_what_keeps_the_job():
    """No move could help it, so none is waited for."""
    driver = settled([node("a", 8_000)], [job("poor", high=1, namespace="blue"), job("rich", high=7, step=2)])
    driver.cluster.hard = {"blue": Resources(cpu_milli=2_500)}
    driver.cluster.put(job("poor", high=7, step=2, namespace="blue"))
    driver.policy = replace(CALM, down_window_s=1e6)
    assert decision(driver.plan(), "poor").bottleneck is Bottleneck.QUOTA
