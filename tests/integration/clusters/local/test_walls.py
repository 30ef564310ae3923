"""Jobs of a local run, with real processes: a fault in one leaves the run and the others as they would be (A11).

The functions in which faults are planted are found by reflection: one that is new is covered without a word here.
"""

import asyncio
import dataclasses
import importlib
import inspect
import logging
import pkgutil
import signal
from pathlib import Path

import pytest

import autoscaler.clusters.local
from autoscaler.clusters.local.run.run_settings import LOCAL_POLICY
from autoscaler.clusters.local.run.run_snapshot import take_snapshot
from autoscaler.domain import PodPhase, Role
from autoscaler.jobs.progress import JobProgress
from autoscaler.loop import Loop
from autoscaler.manifests.api_types import MasterRole
from master.api.master_status import JobPhase
from tests.integration.clusters.local.local_cluster import job, nodes, running, template, wait_until
from tests.unit.operator.controllers.test_fault_isolation import PlantedError, replace_function

NOT_PER_JOB = frozenset(
    {
        *("control_server", "control_requests", "control_wire", "local_run", "run_etcd"),
        *("run_folder", "run_journal", "checkpoint_locks", "pod_supervisor"),
        *("owner_of", "name_of_pod", "_launch", "_take_end"),  # of the wall itself
    }
)
AT_ONCE = 8  # faults in one story, each in a job of its own
SLEEPS = template("sleep", "1000", cpu_milli=100)
CALM = dataclasses.replace(LOCAL_POLICY, up_window_s=0.0, down_window_s=0.0, quiet_window_s=0.0, victim_age_s=0.0)


def functions():
    """Yield each function and method of the local cluster: where it stands, and its name."""
    for found in pkgutil.walk_packages(autoscaler.clusters.local.__path__, "autoscaler.clusters.local."):
        if found.name.rpartition(".")[2] in NOT_PER_JOB or ".control_plane" in found.name:  # no run uses that yet
            continue
        module = importlib.import_module(found.name)
        for holder in (module, *(one for one in vars(module).values() if inspect.isclass(one))):
            for name, function in vars(holder).items():
                is_own = inspect.isfunction(function) and function.__module__ == module.__name__
                if is_own and "__" not in name and name not in NOT_PER_JOB:
                    yield holder, name


def job_of(value):
    """The name of the job that an argument is, or is something of; None: it is no job's."""
    if isinstance(value, str):
        name = value.partition("-")[0]
        return name if name.startswith("bad") else None
    if not dataclasses.is_dataclass(value):
        return None
    fields = {field.name for field in dataclasses.fields(value)}  # a property would call what is looked at
    told = (getattr(value, name) for name in ("job", "owner", "pod", "key", "name") if name in fields)
    return next((name for one in told if (name := job_of(one)) is not None), None)


async def answer(record):
    """As a master that trains."""
    connected = frozenset(f"{record.name}-trainer-{number}" for number in range(9))
    phase = JobPhase.TRAINING
    return JobProgress(phase=phase, total=100, done=10, epochs=1, servers_wanted=0, lineage=1, connected=connected)


def trainers(cluster, name):
    pods = cluster.table.job_pods(name, Role.TRAINER)
    return sum(pod.phase is PodPhase.READY for pod in pods)


def told(cluster, reason, name):
    return any((one.reason, one.object) == (reason, f"tj/{name}") for one in cluster.recorder.events)


async def live(tmp_path, others):
    """All jobs start and grow, lose a trainer each, are pinned; all but the honest one are deleted.

    Returns the jobs of which something was told to be wrong, as an event or to who asked for something.
    """
    asked = set()

    def ask(name, work):
        try:
            work()
        except PlantedError:
            asked.add(name)
        except KeyError:
            pass  # it was never taken in

    async with running(tmp_path, on=nodes(2, cpu_milli=4_000), look_at=answer) as cluster:
        loop = Loop(cluster, CALM, errors=cluster.errors)
        for name in (*others, "honest"):
            ask(
                name,
                lambda name=name: cluster.submit(job(name, trainer=SLEEPS, low=1, high=3, backoff_limit=9), priority=0),
            )
        keeping = asyncio.create_task(loop.run())
        try:
            await wait_until(cluster, lambda: trainers(cluster, "honest") == 3, "that the honest job grows")
            await wait_until(cluster, lambda: cluster.jobs.records["honest"].progress is not None, "an answer")
            for name in ("honest", *others):
                ask(name, lambda name=name: cluster.kill(f"{name}-trainer-0", signal.SIGKILL))
            await wait_until(cluster, lambda: told(cluster, "TrainerFailed", "honest"), "that its end is judged")
            await wait_until(cluster, lambda: trainers(cluster, "honest") == 3, "that it is back")
            for name in ("honest", *others):
                ask(name, lambda name=name: cluster.pin(name, 1))
            await wait_until(cluster, lambda: trainers(cluster, "honest") == 1, "that it shrinks")
            shown = take_snapshot("test", cluster, cluster.recorder, loop.last_plan.decisions, ())
            assert "honest" in {one.name for one in shown.jobs}
            for name in others:
                ask(name, lambda name=name: cluster.delete_job(name))
            await wait_until(cluster, lambda: not keeping.done(), "the loop")
            assert not told(cluster, "InternalError", "honest")
        finally:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)
    wrong = {one.object.partition("/")[2] for one in cluster.recorder.events if one.reason == "InternalError"}
    return asked | set(map(job_of, wrong))  # of the run's end too


def plant(patch, planted, raised):
    """Let each function raise whenever its victim is concerned, and note it."""
    for victim, (holder, name) in planted.items():

        def check(values, victim=victim):
            if victim in map(job_of, values):
                raised.add(victim)
                raise PlantedError

        replace_function(patch, holder, name, check)


async def test_fault_in_any_function_of_one_job_leaves_the_run_and_the_others(tmp_path, caplog):
    """Each function raises for a job of its own: the honest one starts, grows, is judged, resized and shown (A11)."""
    caplog.set_level(logging.CRITICAL)
    called = {}

    def noting(holder, name):
        def check(values):
            if "bad" in map(job_of, values):
                called[holder, name] = None

        return check

    with pytest.MonkeyPatch.context() as patch:
        for holder, name in tuple(functions()):
            replace_function(patch, holder, name, noting(holder, name))
        assert await live(tmp_path / "none", ["bad"]) == set()
    found = tuple(called)
    assert len(found) > 50, found
    untold = []
    for first in range(0, len(found), AT_ONCE):
        planted = {f"bad{number}": found[number] for number in range(first, min(first + AT_ONCE, len(found)))}
        raised = set()
        with pytest.MonkeyPatch.context() as patch:
            plant(patch, planted, raised)
            try:
                wrong = await live(tmp_path / str(first), list(planted))
            except BaseException as error:
                error.add_note(f"planted: {planted}")
                raise
        untold += [planted[victim][1] for victim in raised - wrong]
    assert untold == []


def is_served(cluster, name, before):
    """Whether the job's server is ready, in another process than before."""
    pod = cluster.table.pods.get(f"{name}-server-0")
    if pod is None or pod.phase is not PodPhase.READY or pod.pid in {None, before}:
        return False
    return Path(f"/proc/{pod.pid}").exists()


async def kill_servers(tmp_path, others, plant_faults):
    """Each job's server is killed, and comes back; `plant_faults` once the kills are sent, before one is heard of."""
    async with running(tmp_path, on=nodes(8, cpu_milli=20_000), look_at=answer) as cluster:
        loop = Loop(cluster, CALM, errors=cluster.errors)
        jobs = (*others, "honest")
        for name in jobs:
            one = job(name, trainer=SLEEPS, server=SLEEPS, low=1, high=1)
            cluster.submit(dataclasses.replace(one, master=MasterRole(replicas=1, template=SLEEPS)), priority=0)
        keeping = asyncio.create_task(loop.run())
        try:
            for name in jobs:
                await wait_until(cluster, lambda name=name: is_served(cluster, name, None), f"the server of {name}")
            before = {name: cluster.table.pods[f"{name}-server-0"].pid for name in jobs}
            for name in jobs:
                assert cluster.kill(f"{name}-server-0", signal.SIGKILL)
            plant_faults()
            for name in jobs:
                again = lambda name=name: is_served(cluster, name, before[name])  # noqa: E731
                await wait_until(cluster, again, f"that the server of {name} is back")
        finally:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)


async def test_fault_that_passes_keeps_no_server_away(tmp_path, caplog):
    """Whatever a restart calls raises once, for a job of its own: each server comes back (A11)."""
    caplog.set_level(logging.CRITICAL)
    called = {}

    def noting(patch):
        for holder, name in tuple(functions()):

            def check(values, holder=holder, name=name):
                if "bad" in map(job_of, values):
                    called[holder, name] = None

            replace_function(patch, holder, name, check)

    with pytest.MonkeyPatch.context() as patch:
        await kill_servers(tmp_path / "none", ["bad"], lambda: noting(patch))
    assert {"_start", "_restart", "handle_restart", "update"} <= {name for _, name in called}
    steps = [(holder, name) for holder, name in called if name != "launch"]  # which begins the task with the wall
    planted = {f"bad{number}": step for number, step in enumerate(steps)}
    raised = set()

    def failing_once(patch):
        for victim, (holder, name) in planted.items():

            def check(values, victim=victim):
                if victim in map(job_of, values) and victim not in raised:
                    raised.add(victim)
                    raise PlantedError

            replace_function(patch, holder, name, check)

    with pytest.MonkeyPatch.context() as patch:
        try:
            await kill_servers(tmp_path / "planted", list(planted), lambda: failing_once(patch))
        except BaseException as error:
            error.add_note(f"planted: {planted}")
            raise
    assert raised == planted.keys()
