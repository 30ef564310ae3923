"""The job at fault is found, in whichever function of the planner the fault is (A11).

The functions in which a fault is planted are found by reflection: one that is new is covered without a word here.
"""

import importlib
import inspect
import pkgutil
import types

import pytest

import autoscaler.planner
from autoscaler.domain import Job, Pod, PodPhase, Role, Tier
from autoscaler.fault_isolation import JobErrors
from autoscaler.loop import Loop
from autoscaler.planner.exclusion import find_culprit, plan_without
from autoscaler.planner.working_copy.planned_job import PlannedJob
from tests.unit.planner.jobs.planted_faults import PlantedError, fail_with, make_cluster, replace_function
from tests.unit.planner.setups import CALM, job, shape, web

NOT_PLANNING = {"counterfactual", "exclusion"}


"""Rooms of the planner through which no pass goes: `edl why` asks there, and the mechanism itself."""


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


async def run_for(loop, cluster, seconds=6):
    """Let time pass and the loop go round; return the largest size of the honest job meanwhile."""
    largest = 0
    for _ in range(seconds):
        await loop.run_pass()
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
    assert await run_for(loop, cluster) > 2, "the honest job starts and grows"
    cluster.put(*(web(f"w{number}", 2_000, since_s=cluster.now_s) for number in range(2)))
    await run_for(loop, cluster)
    assert all(cluster.pods[f"w{number}"].node for number in range(2)), "the honest job gives way"
    cluster.lose("w0")
    cluster.lose("w1")
    cluster.put(job("late", low=1, high=1))
    assert await run_for(loop, cluster) > 2, "the honest job takes its room back"
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
