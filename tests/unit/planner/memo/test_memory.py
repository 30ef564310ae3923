"""What is written down of a plan that is carried out, and for how long it is kept."""

from dataclasses import replace

from autoscaler.domain import AdmitGang, Cause, CreatePod, DeletePod, History, ResizeTimes, Role, Tier, VoluntaryResize
from autoscaler.planner import record_applied
from tests.property.planner_cases import Driver
from tests.unit.clusters.memory_cluster import MemoryCluster
from tests.unit.planner.setups import CALM, job, node


def creation(ordinal, cause=Cause.FREE_CAPACITY):
    return CreatePod(job="j", role=Role.TRAINER, ordinal=ordinal, tier=Tier.SURPLUS, node="a", cause=cause)


def test_start_is_a_growth():
    """A job that has just started is not shrunk by choice."""
    started = record_applied(History(), AdmitGang(job="j", pods=(creation(0, Cause.START),)), 7.0)
    assert started.resizes == (ResizeTimes(job="j", grown_at_s=7.0),)
    assert started.changes == ()


def test_pods_that_are_written_one_after_the_other_are_one_change():
    """Of a job, within a second; a refill is no choice and counts for nothing."""
    history = History()
    for at_s, wanted in (
        (7.0, creation(1)),
        (7.9, creation(2)),
        (7.9, replace(creation(3), job="k")),
        (8.0, creation(4)),
    ):
        history = record_applied(history, wanted, at_s)
    history = record_applied(history, creation(5, Cause.REFILL), 20.0)
    assert history.changes == (
        VoluntaryResize(job="j", at_s=7.0),
        VoluntaryResize(job="k", at_s=7.9),
        VoluntaryResize(job="j", at_s=8.0),
    )


def test_moves_and_changes_are_forgotten_after_a_minute():
    """Memory is bounded by what a minute allows."""
    driver = Driver(MemoryCluster([node("a")], [job("j")]), CALM)
    now_s = driver.cluster.now()
    ages_s = (61.0, 60.0, 59.0)
    changes = tuple(VoluntaryResize(job="j", at_s=now_s - age_s) for age_s in ages_s)
    driver.history = History(transfers_at_s=tuple(now_s - age_s for age_s in ages_s), changes=changes)
    kept = driver.plan().history
    assert (kept.transfers_at_s, kept.changes) == ((now_s - 59.0,), changes[2:])


def test_odd_trainer_leaves_within_the_changes_of_a_minute():
    """By choice, so it waits for the next one; a change that is forced does not."""
    driver = Driver(MemoryCluster([node("a", 5_000)], [job("j", high=5, step=2)]), CALM)
    driver.settle()
    driver.policy = replace(CALM, resizes_per_minute=1)
    now_s = driver.cluster.now()
    driver.history = replace(driver.history, changes=(VoluntaryResize(job="k", at_s=now_s),))
    driver.cluster.lose("j-trainer-4")
    driver.cluster.put(node("a", 4_000))
    waiting = driver.plan()
    assert (waiting.actions, waiting.replan_at_s) == ((), now_s + 60.0)
    driver.cluster.advance(60.0)
    assert [type(action) for action in driver.plan().actions] == [DeletePod]
