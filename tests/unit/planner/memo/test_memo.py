"""A5, event by event: what the last plan kept is no other answer than a plan from nothing."""

from dataclasses import replace

import pytest

from autoscaler.domain import Capabilities, Cause, JobState, PodPhase, Role, ServerSpec, Tier
from autoscaler.planner import Memo, plan
from autoscaler.planner.working_copy.free_capacity import FreeCapacity
from autoscaler.planner.working_copy.memo import differences
from autoscaler.planner.working_copy.shapes import Shapes
from autoscaler.planner.working_copy.view_index import ViewIndex
from tests.property.planner_cases import Driver
from tests.property.test_planner_memo import ODD, Twins, befall
from tests.unit.clusters.memory_cluster import MemoryCluster
from tests.unit.planner.setups import CALM, decision, job, node, shape, web


class Kept:
    """A cluster at rest whose planner has a memo."""

    def __init__(self, nodes, *jobs):
        self.driver = Driver(MemoryCluster(nodes, jobs), CALM)
        self.driver.settle()
        self.cluster = self.driver.cluster
        self.memo = Memo()
        self.plan()

    def plan(self):
        """The plan with the memo, which is the plan without one."""
        view, now_s = self.cluster.view(history=self.driver.history), self.cluster.now()
        kept = plan(view, CALM, now_s, memo=self.memo)
        assert kept == plan(view, CALM, now_s)
        return kept


def test_pods_that_come_later_are_answered_in_the_order_of_their_names():
    """Of pods about which nothing is known the demands are all that is said."""
    kept = Kept([node("a")])
    for name in ("second", "first"):
        kept.cluster.put(web(name, is_modelled=False))
        said = kept.plan()
    assert [demand.pod for demand in said.demands] == ["first", "second"]


def test_pod_that_changes_stays_where_it_stood_among_its_jobs_pods():
    """The order to leave goes by names, whichever pod was seen last."""
    spec = job("j", low=2, high=2)
    kept = Kept([node("a")], spec)
    changed = kept.cluster.pods["j-trainer-0"]
    kept.cluster.put(replace(changed, phase=PodPhase.STARTING))
    kept.plan()
    kept.cluster.put(replace(spec, state=JobState.SUSPENDED))
    assert [action.pod for action in kept.plan().actions] == ["j-trainer-0", "j-trainer-1", "j-master-0"]


@pytest.mark.parametrize("state", [JobState.SUSPENDED, JobState.OVER])
def test_job_without_pods_that_ended_keeps_its_decision(state):
    """Ended jobs stay in the view by the hundred: none is planned anew because something else has changed."""
    kept = Kept([node("a")], job("j"), job("over", state=state))
    before = decision(kept.plan(), "over")
    kept.cluster.put(web("w"))
    assert decision(kept.plan(), "over") is before


def test_node_that_grows_is_seen_by_what_no_node_could_hold():
    """Only its amounts have changed."""
    kept = Kept([node("a", 1_000)], job("j", cpu_milli=2_000))
    kept.cluster.put(node("a", 2_000))
    assert decision(kept.plan(), "j").target == 1


def test_cluster_that_learns_to_move_servers_is_planned_anew():
    """What jobs may have rests on it."""
    servers = ServerSpec(shape=shape(500), min_replicas=1, max_replicas=2, trainers_per_server=1)
    kept = Kept([node("a")], replace(job("j", high=2), servers=servers))
    kept.cluster.capabilities = Capabilities(servers_elastic=True)
    kept.cluster.touch()
    assert decision(kept.plan(), "j").servers_target == 2


def test_among_nodes_alike_the_first_name_is_the_tightest_whichever_changed_last():
    """What is known of the tightest is brought up to date node by node, and ends where a search for it ends."""
    shapes = Shapes(frozenset())
    one = shapes.number(shape(1_000))
    capacity = FreeCapacity([node(name, 3_000) for name in "abc"], shapes, pod_count=0)
    for at in (1, 2, 0):
        capacity.allocate(at, one, now=True)
        found = [capacity.tightest(one, now=now) for now in (True, False)]
        assert found == [min(1, at)] * 2


def test_snapshot_after_each_kind_of_change_is_the_one_from_nothing():
    """Not the plans alone, which may differ much later: all that the phases read (A5)."""
    jobs = [job("a", low=2, high=6, servers=1, submitted_at_s=5.0), job("b", low=1, high=9, cpu_milli=500)]
    twins = Twins(MemoryCluster([node(name, 6_000, gpu=1) for name in "nop"], jobs), CALM)
    twins.settle()
    for number, kind in enumerate([*ODD, *ODD]):
        befall(twins.cluster, (kind, 3 * number + 1))
        twins.cluster.put(web(f"w{number}", 100 * number, priority=number % 3), job(f"late{number % 2}", cpu_milli=700))
        for _ in range(2):
            twins.cluster.bind_others()
            twins.turn()
            twins.cluster.advance(0.7)
    assert len(twins.cluster.pods) > 30


def test_pods_that_would_fit_are_counted_on_open_nodes_alone():
    """What is free on a closed one is nobody's."""
    shapes = Shapes(frozenset())
    number, nothing = shapes.number(shape(1_000)), shapes.number(shape(0))
    nodes = [node("a", 2_500), node("b", 900), node("c", 9_000, is_cordoned=True), node("d", 1_000)]
    capacity = FreeCapacity(nodes, shapes, pod_count=0)
    assert (capacity.copies(number), capacity.copies(nothing)) == (3, 0)


def test_only_what_differs_is_looked_at():
    """In order, whatever stands between: a plan's price rests on it."""
    old = tuple(node(name) for name in "abdefh")
    new = (*old[:2], node("c"), old[2], node("e", 1), *old[4:5], node("g"), node("h", 1))
    told = [(before and before.name, after and after.name) for before, after in differences(old, new)]
    assert told == [(None, "c"), ("e", "e"), (None, "g"), ("h", "h")]
    assert list(differences(old, (*old[:3], *old[3:]))) == []


def settled_jobs(*jobs, **fields):
    """The jobs about which a plan has nothing to ask, once everything has settled and these fields have changed."""
    driver = Driver(MemoryCluster([node("a"), node("b")], jobs), CALM)
    driver.settle()
    for spec in driver.cluster.jobs.values():
        driver.cluster.put(replace(spec, **fields))
    snapshot = ViewIndex(driver.cluster.view())
    return snapshot.jobs.keys() - snapshot.unsteady


def test_who_runs_with_all_that_it_must_have_is_settled():
    assert settled_jobs(job("a", low=2, high=4, servers=1), job("b", high=9)) == {"a", "b"}


@pytest.mark.parametrize(
    "fields",
    [
        {"state": JobState.SUSPENDED},
        {"hold_until_s": 1.0},
        {"trainer": job("a", low=5, high=6).trainer},
        {"trainer": job("a", low=1, high=3).trainer},
        {"trainer": job("a", low=1, high=9, step=2).trainer},
        {"trainer": job("a", low=3, high=4).trainer},
    ],
    ids=["suspended", "pauses", "below its minimum", "above its maximum", "between two sizes", "core as surplus"],
)
def test_who_lacks_something_or_has_too_much_is_not_settled(fields):
    assert settled_jobs(job("a", high=4), **fields) == set()


def test_share_at_its_ceiling_of_a_job_that_changes_is_counted_anew():
    """A server more is part of it."""
    cluster = MemoryCluster([node("a", 9_000)], [job("a", high=4, servers=1)])
    draft = Memo().begin(cluster.view(), CALM, cluster.now())
    one = draft.jobs["a"]
    before = draft.grades.share_at_ceiling(one)
    draft.create(one, Role.SERVER, Tier.CORE, "a", Cause.START)
    assert draft.grades.share_at_ceiling(one) > before
