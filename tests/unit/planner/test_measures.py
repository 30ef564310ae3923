"""The planner's small measures: grades, what is wanted, what pays off, headroom, room beside GPUs, quotas."""

from dataclasses import replace
from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.domain import ClusterView, Headroom, Policy, Quota, QuotaLimit, Resources, Shape, Workload
from autoscaler.errors import InvalidSpecError, InvalidViewError
from autoscaler.planner.phases.p1_external_pods import headroom_of
from autoscaler.planner.placement.device_reserve import needs_per_device
from autoscaler.planner.placement.packing_patterns import MOST_KINDS, most_wanted
from autoscaler.planner.sharing.change_limits import pays_off
from autoscaler.planner.working_copy.grades import GRADES, grade_of
from tests.unit.planner.setups import job, node, shape


def test_grade_is_one_more_than_the_eighths_of_the_largest_share():
    """The formula of `beside-the-scheduler.md` 2, at its corners."""
    assert [grade_of(share, 80) for share in (0, 9, 10, 39, 40, 79, 80, 200)] == [1, 1, 2, 4, 5, 8, 8, 8]
    assert grade_of(5, 0) == 1


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**6))
def test_larger_share_never_leaves_later(share, more, largest):
    """Max-min fairness by preemption rests on this."""
    assert 1 <= grade_of(share, largest) <= grade_of(share + more, largest) <= GRADES


def test_most_wanted_shapes_are_those_that_ask_for_most_of_the_cluster():
    """By count times worth; a worth is the dominant part, exact between shapes."""
    capacity = Resources(cpu_milli=2_348_000, memory_bytes=13_665_210 << 20)
    trainer, server, master = (
        Shape(requests=Resources(cpu_milli=cpu * 1000, memory_bytes=memory << 20))
        for cpu, memory in ((5, 8192), (4, 5120), (1, 300))
    )
    found = dict(most_wanted({master: 20, trainer: 900, server: 200}, capacity))
    assert list(found) == [trainer, server, master]
    assert found == {trainer: 5, server: 4, master: 1}


def test_what_nobody_wants_is_no_pattern():
    """Nor is a pod that asks for nothing, nor more shapes than can be looked at."""
    capacity = Resources(cpu_milli=100_000)
    assert most_wanted({shape(1_000): 0, shape(0): 5}, capacity) == ()
    assert len(most_wanted({shape(1_000 * n): 1 for n in range(1, 10)}, capacity)) == MOST_KINDS


def test_resize_pays_off_once_it_brings_more_than_the_pause_costs():
    """From 10 to 12 trainers 60 s of pause cost 600 trainer-seconds, which 2 trainers bring in 300 s."""
    costly = job("j", high=40, resize_cost_s=60.0)
    assert not pays_off(Policy(payoff_s=300.0), costly, 10, 12)
    assert pays_off(Policy(payoff_s=301.0), costly, 10, 12)
    assert pays_off(Policy(payoff_s=300.0), costly, 10, 13)
    assert pays_off(Policy(payoff_s=0.0), costly, 10, 11)


def test_job_that_is_nearly_done_does_not_grow():
    """Its own remaining time counts where it is shorter; a lost metric counts as long (A7)."""
    policy = Policy(payoff_s=300.0)
    costly = job("j", high=40, resize_cost_s=20.0)
    assert pays_off(policy, costly, 10, 12)
    assert not pays_off(policy, replace(costly, remaining_s=90.0), 10, 12)
    assert not pays_off(policy, replace(job("done"), remaining_s=0.0), 1, 2)
    for lost in (nan, None, inf):
        assert pays_off(policy, replace(costly, remaining_s=lost), 10, 12)


def test_cost_that_is_no_time_is_refused():
    """A NaN would make every comparison false."""
    for cost_s in (nan, -1.0, inf):
        with pytest.raises(InvalidSpecError, match="resizeCostSeconds"):
            job("j", resize_cost_s=cost_s)


def workload(name, cpu_milli=3_000, *, desired=0, highest=0):
    return Workload(name=name, shape=shape(cpu_milli), desired_replicas=desired, max_replicas=highest)


def view(*workloads, cpu_milli=100_000):
    return ClusterView(revision=0, observed_at_s=0.0, nodes=(node("a", cpu_milli),), workloads=workloads)


def test_percentage_is_kept_in_whole_pods_of_the_web():
    """13 % of 2348 cores are 101 pods of 3 cores."""
    found = headroom_of(view(workload("web", desired=100), cpu_milli=2_348_000), Policy(headroom_percent=13.0))
    assert found == (Headroom(shape=shape(3_000), count=101),)


def test_percentage_is_of_the_ready_nodes():
    """Nobody keeps room free on a node that is lost."""
    nodes = (node("a", 30_000), node("b", 30_000, is_ready=False))
    half = replace(view(workload("web")), nodes=nodes)
    assert headroom_of(half, Policy(headroom_percent=20.0)) == (Headroom(shape=shape(3_000), count=2),)


def test_percentage_is_divided_as_the_workloads_are():
    """Nine pods of 1 core beside one of 3: a tenth of 120 cores is another 9 and 1."""
    policy = Policy(headroom_percent=10.0)
    found = headroom_of(
        view(workload("a", 1_000, desired=9), workload("b", 3_000, desired=1), cpu_milli=120_000), policy
    )
    assert {(entry.shape, entry.count) for entry in found} == {(shape(1_000), 9), (shape(3_000), 1)}


def test_pods_that_no_node_holds_take_no_part_of_the_percentage():
    """They ask for a GPU alone, of which there is none: those that others hold are kept room for all the same."""
    policy = Policy(headroom_percent=10.0)
    odd = replace(workload("odd", desired=50), shape=shape(0, gpu=1))
    found = headroom_of(view(workload("a", 1_000, desired=9), odd, cpu_milli=120_000), policy)
    assert found == (Headroom(shape=shape(1_000), count=12),)


def test_growth_that_an_autoscaler_may_bring_is_kept_in_part():
    """Half of what lies between desired and maximum; a workload without one brings nothing."""
    policy = Policy(autoscaler_headroom_percent=50.0)
    found = headroom_of(view(workload("web", desired=4, highest=9), workload("fixed", 1_000, desired=7)), policy)
    assert found == (Headroom(shape=shape(3_000), count=3),)


def test_settings_for_one_shape_are_not_added_up():
    """They answer one question: the largest answer counts."""
    policy = Policy(
        headroom=(Headroom(shape=shape(3_000), count=2),), headroom_percent=12.0, autoscaler_headroom_percent=100.0
    )
    assert headroom_of(view(workload("web", highest=3)), policy) == (Headroom(shape=shape(3_000), count=4),)


@pytest.mark.parametrize("setting", [nan, inf, -5.0, 0.0])
def test_setting_that_says_nothing_keeps_nothing(setting):
    """And a cluster without capacity has no parts."""
    policy = Policy(headroom_percent=setting, autoscaler_headroom_percent=setting)
    assert headroom_of(view(workload("web", highest=9)), policy) == ()
    assert headroom_of(view(workload("web"), cpu_milli=0), Policy(headroom_percent=10.0)) == ()


def test_free_gpus_keep_what_the_hungriest_of_their_jobs_asks_for_with_each():
    """Of 2 GPUs each has half, rounded up; an extended resource of a vendor counts as a GPU does."""
    needs = needs_per_device(
        [
            Resources(cpu_milli=7_999, gpu_count=2),
            Resources(cpu_milli=3_000, memory_bytes=10, gpu_count=1),
            Resources(memory_bytes=21, gpu_count=2),
            Resources(cpu_milli=1_000, extended=(("amd.com/gpu", 1), ("pods", 1))),
            Resources(cpu_milli=64_000),
        ]
    )
    assert needs == {
        "gpu": Resources(cpu_milli=4_000, memory_bytes=11),
        "amd.com/gpu": Resources(cpu_milli=1_000),
    }


def quota(resource="cpu", hard=4_000, used=1_000, name="team"):
    return Quota(namespace="default", name=name, limits=(QuotaLimit(resource=resource, hard=hard, used=used),))


def test_quota_named_twice_is_refused_and_their_order_means_nothing():
    """As for everything in a view (A5)."""
    first, second = quota(name="a"), quota(name="b")
    views = [ClusterView(revision=0, observed_at_s=0.0, quotas=found) for found in ((first, second), (second, first))]
    assert views[0] == views[1]
    assert views[0].evolve(quotas=(second,)).quotas == (second,)
    assert views[0].evolve(revision=1).quotas == (first, second)
    with pytest.raises(InvalidViewError, match="default/a appears twice"):
        views[0].evolve(quotas=(first, first))


def test_order_of_the_limits_in_a_quota_means_nothing():
    """A5: which of two limits is named does not depend on how they came."""
    limits = tuple(QuotaLimit(resource=resource, hard=2, used=1) for resource in ("memory", "cpu"))
    views = [
        ClusterView(revision=0, observed_at_s=0.0, quotas=(Quota(namespace="default", name="a", limits=found),))
        for found in (limits, limits[::-1])
    ]
    assert views[0] == views[1]
