"""A job with which planning fails is left out and reported; the others are planned as if it did not exist (A11)."""

import importlib
from dataclasses import replace

import pytest

from autoscaler.domain import AdmitGang, Capabilities, Cause, DeletePod, Pod, PodPhase, Reason, Role, Tier
from autoscaler.planner import Memo, plan, still_valid
from autoscaler.planner.exclusion import MOST_FOUND, NEVER_S
from tests.property.planner_cases import Driver
from tests.unit.clusters.memory_cluster import MemoryCluster
from tests.unit.planner.jobs.planted_faults import PlantedError, fail_for, fail_with, full_cluster, replace_function
from tests.unit.planner.setups import CALM, decision, job, node, shape, web


def fail_as_written(patch, *names):
    """Let the planning of these jobs fail as they are written; of what stands in for them it succeeds."""

    def made(real):
        def raising(copy, job):
            if job.spec.name in names and job.spec.hold_until_s < NEVER_S:
                fail_with(job)
            return real(copy, job)

        return raising

    for module, name in (("sharing.growth_queue", "growth_key"), ("phases.p2_retain", "release_disallowed")):
        replace_function(patch, importlib.import_module(f"autoscaler.planner.{module}"), name, made)


def pending(name, owner):
    """A core trainer that no scheduler has bound yet."""
    fields = {"shape": shape(1_000), "phase": PodPhase.PENDING, "nominated_node": "a"}
    return Pod(name=name, role=Role.TRAINER, tier=Tier.CORE, job=owner, ordinal=0, **fields)


def trainers(cluster, name):
    return sum(pod.job == name and pod.role is Role.TRAINER for pod in cluster.pods.values())


@pytest.mark.parametrize("servers", [0, 2])
def test_surplus_of_an_excluded_job_gives_way_as_any_other(monkeypatch, servers):
    """A job with which planning fails holds no more than its minimum while others wait for room (A3, A11)."""
    spec = job("bad", low=2, high=12, servers=servers, master_milli=100)
    cluster = MemoryCluster([node(name, 6_000) for name in "ab"], [spec])
    cluster.capabilities = Capabilities(servers_elastic=True)
    driver = Driver(cluster, CALM)
    driver.settle()
    before = trainers(cluster, "bad")
    cluster.put(*(web(f"w{number}", since_s=cluster.now_s) for number in range(4)))
    fail_as_written(monkeypatch, "bad")
    made = plan(cluster.view(), CALM, cluster.now_s)
    assert [(one.job, one.is_unmodelled) for one in made.excluded] == [("bad", False)]
    assert {(type(action), action.role, action.cause) for action in made.actions} == {
        (DeletePod, Role.TRAINER, Cause.POD)
    }
    told = decision(made, "bad")
    assert (told.now, told.target, told.reason) == (before, before - len(made.actions), Reason.EXCLUDED)
    assert len(made.actions) in {3, 4}, "as many as the web lacks"
    cluster.touch()
    assert still_valid(made, cluster.view(), CALM) == made.actions


def test_excluded_job_never_falls_below_its_minimum_nor_grows(monkeypatch):
    """Whatever waits: its core is its own, and nothing new comes to it."""
    cluster = MemoryCluster([node("a", 6_000)], [job("bad", low=2, high=6), job("late", low=1, high=1)])
    driver = Driver(cluster, CALM)
    driver.settle()
    cluster.put(*(web(f"w{number}", since_s=cluster.now_s) for number in range(9)))
    fail_as_written(monkeypatch, "bad")
    driver.settle()
    assert trainers(cluster, "bad") == 2
    for number in range(9):
        cluster.lose(f"w{number}")
    driver.settle()
    assert trainers(cluster, "bad") == 2


@pytest.mark.parametrize(
    ("sizes", "target"),
    [({"powers_of_two": True}, 4), ({"step": 3}, 5), ({"per_node": 2, "step": 2}, 6), ({"sizes": (2, 3, 8)}, 3)],
)
def test_excluded_job_gives_way_to_a_size_that_it_may_have(monkeypatch, sizes, target):
    """One web pod takes from 8 trainers what it takes from a job that can be planned: a whole step (A1, A11)."""
    spec = job("bad", low=2, high=8)
    spec = replace(spec, trainer=replace(spec.trainer, **sizes))
    cluster = MemoryCluster([node("a"), node("b")], [spec])
    driver = Driver(cluster, CALM)
    driver.settle()
    cluster.put(web("w", since_s=cluster.now_s))
    as_planned = plan(cluster.view(), CALM, cluster.now_s)
    fail_as_written(monkeypatch, "bad")
    made = plan(cluster.view(), CALM, cluster.now_s)
    assert [one.job for one in made.excluded] == ["bad"]
    assert decision(as_planned, "bad").target == decision(made, "bad").target == target
    assert {action.pod for action in made.actions} == {action.pod for action in as_planned.actions}


def test_gang_starts_in_the_surplus_of_an_excluded_job(monkeypatch):
    """Every job's minimum comes before anybody's surplus, that of a job at fault too."""
    cluster = MemoryCluster([node("a", 6_000)], [job("bad", low=1, high=6)])
    driver = Driver(cluster, CALM)
    driver.settle()
    cluster.put(job("late", low=3, high=3))
    fail_as_written(monkeypatch, "bad")
    driver.settle()
    assert trainers(cluster, "late") == 3
    assert trainers(cluster, "bad") == 3


def test_pods_of_a_job_without_a_stand_in_hold_their_room_and_are_nobodys(monkeypatch):
    """Planning fails with that too: the web's room comes from the other job alone, and this one keeps its size."""
    cluster = full_cluster()
    cluster.put(*(web(f"w{number}", since_s=cluster.now_s) for number in range(3)))
    fail_for(monkeypatch, "bad")
    made = plan(cluster.view(), CALM, cluster.now_s)
    assert [one.job for one in made.excluded] == ["bad"]
    assert {action.job for action in made.actions} == {"honest"}
    assert len(made.actions) == 3
    told = decision(made, "bad")
    assert (told.now, told.target, told.reason) == (6, 6, Reason.EXCLUDED)
    assert "PlantedError" in told.message


def test_gang_of_an_excluded_job_that_is_not_bound_holds_nobody_up(monkeypatch):
    """One gang binds at a time, and this one is nobody's to wait for (A11)."""
    cluster = MemoryCluster([node("a"), node("b")], [job("bad", low=2), job("honest", low=2)])
    cluster.put(pending("bad-trainer-0", "bad"))
    fail_for(monkeypatch, "bad")
    made = plan(cluster.view(), CALM, cluster.now_s)
    assert [type(action) for action in made.actions if action.job == "honest"] == [AdmitGang]


def test_known_job_is_left_out_without_another_try(monkeypatch):
    """Who plans again and again need not meet the fault in every pass."""
    view = full_cluster().view()
    fail_for(monkeypatch, "bad")
    made = plan(view, CALM, 0.0, excluded={"bad": "as before", "gone": "no longer there"})
    assert [(one.job, one.problem, one.error) for one in made.excluded] == [("bad", "as before", None)]


def test_fault_of_nobody_propagates(monkeypatch):
    """What no job explains is no job's to be left out for: the caller hears of it."""

    def made(_real):
        def raising(_draft):
            raise PlantedError

        return raising

    replace_function(
        monkeypatch, importlib.import_module("autoscaler.planner.phases.p1_external_pods"), "pending_wants", made
    )
    with pytest.raises(PlantedError):
        plan(full_cluster().view(), CALM, 0.0)


def test_many_jobs_at_fault_are_found_in_several_passes(monkeypatch):
    """A pass costs a bounded number of tries: the rest is found by those that follow at once."""
    names = [f"bad{number:02}" for number in range(MOST_FOUND + 4)]
    view = MemoryCluster([node("a", 64_000)], [job("honest"), *(job(name) for name in names)]).view()
    fail_for(monkeypatch, *names)
    first = plan(view, CALM, 5.0)
    assert (len(first.excluded), first.actions, first.replan_at_s) == (MOST_FOUND, (), 5.0)
    second = plan(view, CALM, 5.0, excluded={one.job: one.problem for one in first.excluded})
    assert sorted(one.job for one in second.excluded) == names
    assert {action.job for action in second.actions} == {"honest"}


def test_memo_after_a_fault_plans_as_without_one(monkeypatch):
    """What a pass that failed wrote on the snapshot is in no later plan (A5)."""
    memo, cluster = Memo(), full_cluster()
    plan(cluster.view(), CALM, cluster.now_s, memo=memo)
    with monkeypatch.context() as patch:
        fail_for(patch, "bad")
        assert plan(cluster.view(), CALM, cluster.now_s, memo=memo) == plan(cluster.view(), CALM, cluster.now_s)
    assert plan(cluster.view(), CALM, cluster.now_s, memo=memo) == plan(cluster.view(), CALM, cluster.now_s)


def test_actions_of_a_job_that_fails_at_the_write_do_not_hold(monkeypatch):
    """Revalidation has the same wall: the other job's actions go out."""
    cluster = MemoryCluster([node("a", 16_000)], [job("bad", high=2), job("honest", high=2)])
    Driver(cluster, CALM).settle()
    cluster.put(job("bad", high=4))
    cluster.put(job("honest", high=4))
    decided = plan(cluster.view(), CALM, cluster.now_s)
    assert {action.job for action in decided.actions} == {"bad", "honest"}
    cluster.touch()
    module = importlib.import_module("autoscaler.planner.revalidate")

    def made(real):
        def raising(draft, action):
            if action.job == "bad":
                fail_with(draft.jobs["bad"])
            return real(draft, action)

        return raising

    replace_function(monkeypatch, module, "can_create", made)
    assert {action.job for action in still_valid(decided, cluster.view(), CALM)} == {"honest"}
