"""When a job with which planning failed is planned again: after doubling pauses, never at the cost of others (A11)."""

import math
import types
from collections import Counter

from autoscaler.domain import Reason
from autoscaler.fault_isolation import GuardedTask, JobErrors
from autoscaler.loop import Loop
from autoscaler.planner.exclusion import MOST_FOUND
from tests.unit.clusters.memory_cluster import MemoryCluster
from tests.unit.planner.jobs.planted_faults import PlantedError, fail_for, full_cluster, make_cluster
from tests.unit.planner.setups import CALM, job, node


async def test_stand_in_that_fails_too_is_tried_again_after_pauses_that_double(monkeypatch):
    """No pass is spoiled by it for ever: 1, 2, 4 s ... apart, and its pods are nobody's meanwhile."""
    cluster = full_cluster()
    errors = JobErrors(cluster.now)
    loop = Loop(cluster, CALM, errors=errors)
    fail_for(monkeypatch, "bad")
    tried_at_s = []
    for _ in range(16):
        step = await loop.run_pass()
        assert [(one.job, one.is_unmodelled) for one in step.plan.excluded] == [("bad", True)]
        tried_at_s += [cluster.now_s for one in step.plan.excluded if one.reclaim_error is not None]
        cluster.advance(1.0)
    assert [at_s - tried_at_s[0] for at_s in tried_at_s] == [0.0, 1.0, 3.0, 7.0, 15.0]
    assert errors.fails("bad", GuardedTask.RECLAIM)


async def test_job_at_fault_is_tried_again_after_pauses_that_double(monkeypatch):
    """1, 2, 4 s ... apart; once its planning succeeds it is planned as before, and nothing is kept of the fault."""
    cluster = make_cluster()
    errors = JobErrors(cluster.now)
    tried_at_s = []
    loop = Loop(cluster, CALM, errors=errors)
    with monkeypatch.context() as patch:
        fail_for(patch, "bad")
        for _ in range(16):
            step = await loop.run_pass()
            tried_at_s += [cluster.now_s for one in step.plan.excluded if one.error is not None]
            cluster.advance(1.0)
    assert [at_s - tried_at_s[0] for at_s in tried_at_s] == [0.0, 1.0, 3.0, 7.0, 15.0]
    assert "PlantedError" in errors.problem("bad")
    cluster.advance(errors.retry_at_s("bad", GuardedTask.PLAN) - cluster.now_s)
    step = await loop.run_pass()
    assert step.plan.excluded == ()
    assert errors.problem("bad") == ""


async def test_job_that_is_missing_for_a_pass_keeps_its_pauses(monkeypatch):
    """An edit that makes it invalid and one back buy no try: 1, 2, 4 s ... apart, and no other's turn is taken."""
    cluster = full_cluster()
    errors = JobErrors(cluster.now)
    loop = Loop(cluster, CALM, errors=errors)
    bad = cluster.jobs["bad"]
    fail_for(monkeypatch, "bad")
    tried_at_s = []
    for number in range(32):
        cluster.jobs["bad"] = bad
        cluster.touch()
        step = await loop.run_pass()
        tried_at_s += [cluster.now_s for one in step.plan.excluded if one.error is not None]
        if number % 2:
            del cluster.jobs["bad"]
            cluster.touch()
            assert (await loop.run_pass()).plan.excluded == ()
        cluster.advance(0.5)
    assert [at_s - tried_at_s[0] for at_s in tried_at_s] == [0.0, 1.0, 3.0, 7.0, 15.0]
    assert errors.fails("bad", GuardedTask.RECLAIM)


def test_missing_job_takes_nobodys_turn_to_be_tried_again():
    """Those that are due are counted among the jobs that there are."""
    now_s = [0.0]
    errors = JobErrors(lambda: now_s[0])
    for name in ("gone", "here"):
        errors.record_failure(name, GuardedTask.PLAN, PlantedError())
        now_s[0] += 60.0
    assert errors.paused_or_failing(GuardedTask.PLAN, {"here"}, most_tried=1) == {}


async def test_stand_in_that_was_not_tried_is_not_taken_to_be_sound(monkeypatch):
    """A pass in which too many jobs at fault are found plans nothing: what is known of others stays (ADR 0187)."""
    cluster = full_cluster()
    errors = JobErrors(cluster.now)
    loop = Loop(cluster, CALM, errors=errors)
    for _ in range(2):
        errors.record_failure("bad", GuardedTask.PLAN, PlantedError())
    errors.record_failure("bad", GuardedTask.RECLAIM, PlantedError())
    cluster.advance(1.0)
    found = [f"found{number:02}" for number in range(MOST_FOUND)]
    cluster.put(*(job(name) for name in found))
    fail_for(monkeypatch, *found)
    step = await loop.run_pass()
    assert (len(step.plan.excluded), step.plan.actions) == (MOST_FOUND + 1, ())
    assert errors.fails("bad", GuardedTask.RECLAIM)
    await loop.run_pass()
    assert not errors.fails("bad", GuardedTask.RECLAIM)


async def test_honest_job_is_planned_in_every_pass_beside_forty_at_fault(monkeypatch):
    """They are found over some passes, keep their pauses, and are tried again few at a time (A11)."""
    names = [f"bad{number:02}" for number in range(40)]
    cluster = MemoryCluster([node("a", 64_000)], [job("zealous"), *(job(name) for name in names)])
    errors = JobErrors(cluster.now)
    mended = []
    errors.listener = types.SimpleNamespace(failed=lambda *_, **__: None, mended=mended.append)
    loop = Loop(cluster, CALM, errors=errors)
    fail_for(monkeypatch, *names)
    planned, tried, began_s = [], Counter(), cluster.now_s
    for _ in range(150):
        step = await loop.run_pass()
        tried.update(one.job for one in step.plan.excluded if one.error is not None)
        planned.append(any(one.job == "zealous" and one.reason is not Reason.EXCLUDED for one in step.plan.decisions))
        cluster.advance(min(0.5, loop._pause_after(step)))  # as `run` waits
    assert planned.index(True) <= 40 // MOST_FOUND
    assert all(planned[planned.index(True) :])
    assert mended == []
    assert tried.keys() == set(names)
    assert all(4 <= times <= math.log2(cluster.now_s - began_s) + 2 for times in tried.values())
