"""A job with which planning fails is left out and said so; the others go on as if it were not there (A11).

The functions in which a fault is planted are found by reflection: one that is new is covered without a word here.
"""

import functools
import importlib
import inspect
import math
import pkgutil
import sys
import types
from collections import Counter
from dataclasses import replace

import pytest

import autoscaler.planner
from autoscaler.domain import AdmitGang, Capabilities, Cause, DeletePod, Job, Pod, PodPhase, Reason, Role, Tier
from autoscaler.fault_isolation import JobErrors, Step
from autoscaler.loop import Loop
from autoscaler.planner import Memo, plan, still_valid
from autoscaler.planner.exclusion import MOST_FOUND, NEVER_S, find_culprit, plan_without
from autoscaler.planner.working_copy.planned_job import PlannedJob
from tests.property.planner_cases import Driver
from tests.unit.clusters.memory_cluster import MemoryCluster
from tests.unit.planner.setups import CALM, decision, job, node, shape, web

NOT_PLANNING = {"counterfactual", "exclusion"}
"""Rooms of the planner through which no pass goes: `edl why` asks there, and the mechanism itself."""


class PlantedError(Exception):
    """What an unknown fault of EDL raises."""


def names_in(values):
    return {value.spec.name if isinstance(value, PlannedJob) else value.name for value in values if is_job(value)}


def is_job(value):
    return isinstance(value, PlannedJob | Job)


def takes_job(function):
    given = inspect.signature(function).parameters
    if function.__name__.startswith("__"):
        return False
    is_own = "self" in given and function.__qualname__.startswith("PlannedJob.")
    return is_own or any(str(one.annotation) in {"PlannedJob", "Job"} for one in given.values())


def per_job_functions():
    """Yield each function and method of the planner that is given a job: where it stands, and its name."""
    for found in pkgutil.walk_packages(autoscaler.planner.__path__, "autoscaler.planner."):
        if found.name.split(".")[2] in NOT_PLANNING:
            continue
        module = importlib.import_module(found.name)
        for holder in (module, *filter(inspect.isclass, vars(module).values())):
            for name, function in vars(holder).items():
                if inspect.isfunction(function) and function.__module__ == found.name and takes_job(function):
                    yield holder, name


def replace_function(patch, holder, name, made):
    """Put what `made` makes of the function in its place, wherever it was imported to."""
    real = getattr(holder, name)
    new = functools.wraps(real)(made(real))
    patch.setattr(holder, name, new)
    for key, module in tuple(sys.modules.items()):
        if key.startswith("autoscaler.planner"):
            for alias in [alias for alias, value in vars(module).items() if value is real]:
                patch.setattr(module, alias, new)


def fail_with(_job):
    """Raise, in a frame as of the planner's own."""
    raise PlantedError


fail_with = types.FunctionType(
    fail_with.__code__, {"__name__": "autoscaler.planner.planted", "PlantedError": PlantedError}
)


def as_of_the_planner(function):
    """Return the function as if it stood in a module of the planner."""
    named = {**function.__globals__, "__name__": "autoscaler.planner.planted"}
    made = types.FunctionType(function.__code__, named)
    made.__kwdefaults__ = function.__kwdefaults__
    return made


def plant(patch, holder, name, raised):
    """Make the function raise whenever it is given the job `bad`, and note that."""

    def made(real):
        def raising(*args, **kwargs):
            for value in filter(is_job, (*args, *kwargs.values())):
                if names_in([value]) == {"bad"}:
                    raised.append(name)
                    fail_with(value)
            return real(*args, **kwargs)

        return raising

    replace_function(patch, holder, name, made)


def make_cluster():
    jobs = [
        job("bad", low=2, high=6, servers=1, master_milli=100),
        job("honest", low=2, high=12, servers=1, master_milli=100),
    ]
    cluster = MemoryCluster([node(f"n{number}") for number in range(5)], jobs)
    cluster.capabilities = Capabilities(servers_elastic=True, moves_servers=True)
    return cluster


async def tide(loop, cluster, seconds=6):
    """Let time pass and the loop go round; return the largest size of the honest job meanwhile."""
    largest = 0
    for _ in range(seconds):
        await loop.step()
        cluster.advance(1.0)
        cluster.bind_others()
        cluster.check_capacity()
        largest = max(largest, sum(pod.job == "honest" and pod.role == "trainer" for pod in cluster.pods.values()))
    return largest


async def live():
    """Two jobs start and grow, the web comes and goes, the honest one is edited: it gets what it may have."""
    cluster = make_cluster()
    errors = JobErrors(cluster.now)
    steps = []
    loop = Loop(cluster, CALM, listener=steps.append, errors=errors)
    assert await tide(loop, cluster) > 2, "the honest job starts and grows"
    cluster.put(*(web(f"w{number}", 2_000, since_s=cluster.now_s) for number in range(2)))
    await tide(loop, cluster)
    assert all(cluster.pods[f"w{number}"].node for number in range(2)), "the honest job gives way"
    cluster.lose("w0")
    cluster.lose("w1")
    cluster.put(job("late", low=1, high=1))
    assert await tide(loop, cluster) > 2, "the honest job takes its room back"
    assert any(pod.job == "late" for pod in cluster.pods.values()), "a job that comes later starts"
    return steps


FUNCTIONS = list(per_job_functions())


async def test_planner_functions_are_found_and_called(monkeypatch):
    """The test below is no empty promise: most of what is found is called for that job in its story."""
    called = set()

    def note(name):
        def made(real):
            def noting(*args, **kwargs):
                called.update([name] if "bad" in names_in([*args, *kwargs.values()]) else [])
                return real(*args, **kwargs)

            return noting

        return made

    for holder, name in FUNCTIONS:
        replace_function(monkeypatch, holder, name, note((holder.__name__, name)))
    await live()
    assert len(FUNCTIONS) > 100
    assert len(called) > 60, sorted(called)


async def test_fault_in_any_function_of_one_job_leaves_the_others_planned():
    """Each function that is given a job raises for one of them: the other starts, shrinks, grows, is told (A11)."""
    planted = 0
    for holder, name in FUNCTIONS:
        raised = []
        with pytest.MonkeyPatch.context() as patch:
            plant(patch, holder, name, raised)
            steps = await live()
        if raised:
            planted += 1
            told = [one.problem for step in steps for one in step.plan.excluded]
            assert told, f"{holder.__name__}.{name}: nobody was told"
            assert set(told) == {"PlantedError"}, f"{holder.__name__}.{name}"
            assert {one.job for step in steps for one in step.plan.excluded} == {"bad"}, f"{holder.__name__}.{name}"
    assert planted > 60


def fail_for(patch, *names):
    """Let the planning of these jobs fail."""

    def made(real):
        def raising(copy, job):
            if job.spec.name in names:
                fail_with(job)
            return real(copy, job)

        return raising

    replace_function(patch, importlib.import_module("autoscaler.planner.sharing.growth_queue"), "growth_key", made)


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


def full_cluster():
    """Two jobs share three nodes; nothing is free."""
    driver = Driver(MemoryCluster([node("a"), node("b"), node("c")], [job("bad"), job("honest")]), CALM)
    driver.settle()
    return driver.cluster


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
    ("sizes", "target"), [({"powers_of_two": True}, 4), ({"step": 3}, 5), ({"per_node": 2, "step": 2}, 6)]
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


async def test_stand_in_that_fails_too_is_tried_again_after_pauses_that_double(monkeypatch):
    """No pass is spoiled by it for ever: 1, 2, 4 s ... apart, and its pods are nobody's meanwhile."""
    cluster = full_cluster()
    errors = JobErrors(cluster.now)
    loop = Loop(cluster, CALM, errors=errors)
    fail_for(monkeypatch, "bad")
    tried_at_s = []
    for _ in range(16):
        step = await loop.step()
        assert [(one.job, one.is_unmodelled) for one in step.plan.excluded] == [("bad", True)]
        tried_at_s += [cluster.now_s for one in step.plan.excluded if one.reclaim_error is not None]
        cluster.advance(1.0)
    assert [at_s - tried_at_s[0] for at_s in tried_at_s] == [0.0, 1.0, 3.0, 7.0, 15.0]
    assert errors.fails("bad", Step.RECLAIM)


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


async def test_job_at_fault_is_tried_again_after_pauses_that_double(monkeypatch):
    """1, 2, 4 s ... apart; once its planning succeeds it is planned as before, and nothing is kept of the fault."""
    cluster = make_cluster()
    errors = JobErrors(cluster.now)
    tried_at_s = []
    loop = Loop(cluster, CALM, errors=errors)
    with monkeypatch.context() as patch:
        fail_for(patch, "bad")
        for _ in range(16):
            step = await loop.step()
            tried_at_s += [cluster.now_s for one in step.plan.excluded if one.error is not None]
            cluster.advance(1.0)
    assert [at_s - tried_at_s[0] for at_s in tried_at_s] == [0.0, 1.0, 3.0, 7.0, 15.0]
    assert "PlantedError" in errors.problem("bad")
    cluster.advance(errors.again_at_s("bad", Step.PLAN) - cluster.now_s)
    step = await loop.step()
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
        step = await loop.step()
        tried_at_s += [cluster.now_s for one in step.plan.excluded if one.error is not None]
        if number % 2:
            del cluster.jobs["bad"]
            cluster.touch()
            assert (await loop.step()).plan.excluded == ()
        cluster.advance(0.5)
    assert [at_s - tried_at_s[0] for at_s in tried_at_s] == [0.0, 1.0, 3.0, 7.0, 15.0]
    assert errors.fails("bad", Step.RECLAIM)


def test_missing_job_takes_nobodys_turn_to_be_tried_again():
    """Those that are due are counted among the jobs that there are."""
    now_s = [0.0]
    errors = JobErrors(lambda: now_s[0])
    for name in ("gone", "here"):
        errors.note(name, Step.PLAN, PlantedError())
        now_s[0] += 60.0
    assert errors.left_out(Step.PLAN, {"here"}, most_tried=1) == {}


async def test_stand_in_that_was_not_tried_is_not_taken_to_be_sound(monkeypatch):
    """A pass in which too many jobs at fault are found plans nothing: what is known of others stays (ADR 0187)."""
    cluster = full_cluster()
    errors = JobErrors(cluster.now)
    loop = Loop(cluster, CALM, errors=errors)
    for _ in range(2):
        errors.note("bad", Step.PLAN, PlantedError())
    errors.note("bad", Step.RECLAIM, PlantedError())
    cluster.advance(1.0)
    found = [f"found{number:02}" for number in range(MOST_FOUND)]
    cluster.put(*(job(name) for name in found))
    fail_for(monkeypatch, *found)
    step = await loop.step()
    assert (len(step.plan.excluded), step.plan.actions) == (MOST_FOUND + 1, ())
    assert errors.fails("bad", Step.RECLAIM)
    await loop.step()
    assert not errors.fails("bad", Step.RECLAIM)


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
        step = await loop.step()
        tried.update(one.job for one in step.plan.excluded if one.error is not None)
        planned.append(any(one.job == "zealous" and one.reason is not Reason.EXCLUDED for one in step.plan.decisions))
        cluster.advance(min(0.5, loop._pause_after(step)))  # as `run` waits
    assert planned.index(True) <= 40 // MOST_FOUND
    assert all(planned[planned.index(True) :])
    assert mended == []
    assert tried.keys() == set(names)
    assert all(4 <= times <= math.log2(cluster.now_s - began_s) + 2 for times in tried.values())


def test_job_is_found_by_what_a_function_was_given_by_name():
    """The innermost function knows no job; the one around it was given a job and more, by name alone."""
    inner = as_of_the_planner(fail_without_job)

    @as_of_the_planner
    def outer(draft, *, fail, of):
        fail(draft)

    one = job("bad")
    with pytest.raises(PlantedError) as raised:
        outer(None, fail=inner, of=one)
    assert find_culprit(raised.value) == "bad"


def fail_without_job(_draft):
    raise PlantedError


@pytest.mark.parametrize(("name", "count"), [("bad", 3), ("unheard-of", 1)])
def test_fault_that_stays_though_its_job_was_left_out_is_raised(name, count):
    """It is not this job's alone then, or the job is none that could be left out: trying again would never end.

    Tried whole, without what its trainers may give, and without the job.
    """
    cluster = make_cluster()
    cluster.put(
        Pod(name="p", role=Role.TRAINER, tier=Tier.CORE, shape=shape(1), phase=PodPhase.READY, node="n0", job=name)
    )
    tries = []

    def decide(view):
        tries.append(view)
        if len(tries) > 3:
            raise SystemExit
        fail_with_pod(next(iter(view.pods)))

    with pytest.raises(PlantedError):
        plan_without(cluster.view(), {}, (), 0.0, decide)
    assert len(tries) == count


@as_of_the_planner
def fail_with_pod(_pod):
    raise PlantedError
