"""Jobs under a leader, its whole term in virtual time: a fault in one leaves the others as they would be (A11).

The functions in which faults are planted are found by reflection: one that is new is covered without a word here.
"""

import asyncio
import contextlib
import dataclasses
import functools
import importlib
import inspect
import logging
import pkgutil
import sys

import pytest

import autoscaler.clusters.kubernetes
import autoscaler.jobs
import autoscaler.operator
from autoscaler.clusters.kubernetes.api.errors import NotFoundError
from autoscaler.clusters.kubernetes.api.kinds import CUSTOM_RESOURCE_DEFINITIONS, EVENTS, TRAINING_JOBS
from autoscaler.clusters.kubernetes.builders.build_settings import BuildSettings, EtcdAccess
from autoscaler.clusters.kubernetes.memory_api.field_ownership import FieldOwner
from autoscaler.clusters.kubernetes.parsing.training_jobs import KubeJob
from autoscaler.domain import Job, Policy, Reclaim
from autoscaler.jobs.master_connections import MasterConnections
from autoscaler.jobs.progress import JobProgress, WhyNoAnswer
from autoscaler.manifests.api_types import JobSpec
from autoscaler.operator.controllers.definition_check import NAME, NEEDED, REVISION
from autoscaler.operator.leader_term import LeaderTerm
from autoscaler.operator.metrics import Metrics
from autoscaler.operator.term_settings import TermSettings
from master.api.master_status import JobPhase
from tests.harness import virtual_time
from tests.unit.clusters.kubernetes.fake_controllers import FakeControllers, MemoryApi, MemoryServer, add_job
from tests.unit.clusters.kubernetes.raw_objects import raw_job, template

START_S = 1_800_000_000.0
NOT_PER_JOB = (
    "autoscaler.clusters.kubernetes.api",  # the door itself; its stand-in is the rest of the world here
    "autoscaler.clusters.kubernetes.memory_api",
    "autoscaler.operator.controllers.fault_reporter",  # the wall itself
)


USUAL_S = 30
AT_ONCE = 16  # faults in one story, each in a job of its own
UNTOLD = frozenset(
    {
        *("_where", "count_error"),  # of the metric by which this test is told
        *("_discard", "_end_handling"),  # ends of tasks, told by the event loop
        *(
            "consent_of",
            "trim_named",
            "trim_job",
            "trim_workload",
            "trim_autoscaler",
            "_trim_metadata",
            "_trim_role",
            "is_longer",
        ),  # the object is held whole
        *(
            "forget",
            "_forget",
            "forget_job",
            "_external_pod",
            "_has_long_grace",
        ),  # of a job that is gone: it has no metric any more
    }
)


class PlantedError(Exception):
    """What an unknown fault of EDL raises."""


class Answering:
    """The masters of all jobs, in memory: `MasterClient`."""

    async def poll(self, job, masters, **_):
        if not masters:
            return WhyNoAnswer.SILENT
        said = JobProgress(phase=JobPhase.TRAINING, total=100, done=10, epochs=1, servers_wanted=1, lineage=1)
        return masters[0]["metadata"]["name"], said

    async def set_servers(self, job, leader, count):
        return None

    def decode_s(self, job):
        return 0.0

    async def close(self, job):
        pass


class World:
    def __init__(self, others):
        self.server = MemoryServer(now=self.now, namespaces=("team-a",))
        self.rest = FakeControllers(self.server)
        self.rest.add_classes()
        for number in range(2 + len(others)):
            self.rest.add_node(f"n{number}", cpu="8")
        self.metrics = Metrics()
        revision = {"name": NAME, "annotations": {REVISION: str(NEEDED)}}
        somebody = FieldOwner("kubectl", is_apply=False)
        self.server.create(CUSTOM_RESOURCE_DEFINITIONS, {"metadata": revision}, somebody)
        for name in (*others, "honest"):
            add_job(self.server, job(name))

    def now(self):
        return START_S + virtual_time.now()

    async def let(self, seconds, term):
        """Time passes; a term that has ended says why."""
        for _ in range(int(2 * seconds)):
            await asyncio.sleep(0.5)
            self.rest.settle()
            if term.done():
                term.result()

    async def until(self, is_so, term):
        """Time passes until it is so, at most as long as what a failed start holds is held."""
        for _ in range(USUAL_S):
            if is_so():
                return True
            await self.let(1.0, term)
        return is_so()

    def ready(self, name):
        return self.status(name)["trainers"]["ready"]

    def status(self, name):
        return self.server.get(TRAINING_JOBS, "team-a", name).get("status") or {"trainers": {"ready": 0}}

    def told(self, name, kind):
        return next((one["reason"] for one in self.status(name).get("conditions", ()) if one["type"] == kind), "")

    def events(self):
        return {(one["reason"], one["regarding"]["name"]) for one in self.server.all(EVENTS)}

    def end_trainer(self, name):
        with contextlib.suppress(NotFoundError):
            self.rest.end("team-a", f"{name}-trainer-0", code=1)

    def edit(self, name, **sizes):
        before = self.server.get(TRAINING_JOBS, "team-a", name)
        trainer = before["spec"]["trainer"] | sizes
        metadata = before["metadata"] | {"generation": before["metadata"]["generation"] + 1}
        self.server.rewrite(
            TRAINING_JOBS, before, before | {"spec": before["spec"] | {"trainer": trainer}, "metadata": metadata}
        )

    def delete(self, name):
        self.server.delete(TRAINING_JOBS, "team-a", name)

    def failed_steps(self, name):
        """The steps that have failed for the job or for an object of its own, as the metric tells it."""
        samples = [sample for metric in self.metrics.registry.collect() for sample in metric.samples]
        told = [sample.labels for sample in samples if sample.name == "edl_job_errors_total"]
        return {labels["task"] for labels in told if labels["job"].rpartition("/")[2].partition("-")[0] == name}

    def lead(self):
        return LeaderTerm(
            MemoryApi(self.server),
            TermSettings(
                identity="edl-0",
                policy=Policy(
                    reclaim=Reclaim.SCHEDULER,
                    quiet_window_s=0.0,
                    up_window_s=0.0,
                    down_window_s=0.0,
                    burst_window_s=0.0,
                ),
                build=BuildSettings(image="edl:1", etcd=EtcdAccess(endpoints="http://etcd:2379")),
            ),
            self.metrics,
            MasterConnections(),
            clock=self.now,
            wall_s=self.now,
        )


def job(name):
    pod = template(cpu="1")
    return raw_job(name, trainer={"minReplicas": 2, "maxReplicas": 4, "template": pod}, server={"template": pod})


def planted_in():
    """Yield the modules in which the operator works on single jobs."""
    for package in (autoscaler.clusters.kubernetes, autoscaler.operator, autoscaler.jobs):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not any(found.name.startswith(one) for one in NOT_PER_JOB):
                yield importlib.import_module(found.name)


def functions():
    """Yield each function and method in them: where it stands, and its name."""
    for module in planted_in():
        for holder in (module, *(one for one in vars(module).values() if inspect.isclass(one))):
            for name, function in vars(holder).items():
                if inspect.isfunction(function) and function.__module__ == module.__name__ and "__" not in name:
                    yield holder, name


def job_of(value):
    """The name of the job that an argument is, or is something of; None: it is no job's."""
    match value:
        case str():
            return value.removeprefix("team-a/") if value.startswith("team-a/") else None
        case dict():
            metadata = value.get("metadata")
            return str(metadata.get("name")).partition("-")[0] if isinstance(metadata, dict) else None
        case tuple((str("team-a"), str(name))):
            return name.partition("-")[0]
        case KubeJob() | JobSpec():
            return value.name
        case Job():
            return job_of(value.name)
        case _ if dataclasses.is_dataclass(value):
            return job_of(getattr(value, "job", None))
        case _:
            return None


def replace_function(patch, holder, name, check):
    """Call `check` with the arguments before the function is called, wherever it was imported to."""
    real = getattr(holder, name)
    if inspect.iscoroutinefunction(real):

        async def planted(*args, **kwargs):
            check((*args, *kwargs.values()))
            return await real(*args, **kwargs)
    else:

        def planted(*args, **kwargs):
            check((*args, *kwargs.values()))
            return real(*args, **kwargs)

    planted = functools.wraps(real)(planted)
    patch.setattr(holder, name, planted)
    if not inspect.isclass(holder):
        for key, module in tuple(sys.modules.items()):
            if key.startswith("autoscaler."):
                for alias in [alias for alias, value in vars(module).items() if value is real]:
                    patch.setattr(module, alias, planted)


async def live(others):
    """All jobs start and grow, lose a trainer each, and are edited; all but the honest one are deleted.

    Returns the steps that failed for each of the others while it was there.
    """
    world = World(others)
    leading = world.lead()
    leading.poller._masters = leading.poller._drains._masters = Answering()
    term = asyncio.create_task(leading.run())
    try:
        assert await world.until(lambda: world.ready("honest") == 4, term), "the honest job starts and grows"
        assert await world.until(lambda: world.told("honest", "Progressing") == "Training", term), "its master is asked"
        for name in ("honest", *others):
            world.end_trainer(name)
        is_told = await world.until(lambda: ("TrainerFailed", "honest") in world.events(), term)
        assert is_told, "the end of its trainer is judged"
        for name in ("honest", *others):
            world.edit(name, maxReplicas=2)
        assert await world.until(lambda: world.ready("honest") == 2, term), "the honest job is resized"
        assert await world.until(lambda: world.told("honest", "Scaled") == "Max", term), "its size is told"
        assert world.failed_steps("honest") == set()
        failed = {name: world.failed_steps(name) for name in others}
        for name in others:
            world.delete(name)
        await world.let(2.0, term)
        return failed
    finally:
        term.cancel()
        await asyncio.gather(term, return_exceptions=True)


def called_for_a_job():
    """The functions that are given a job, or something of one, in its life: where they stand, and their names."""
    found = {}

    def noting(holder, name):
        def check(values):
            if "other" in map(job_of, values):
                found[holder, name] = None

        return check

    with pytest.MonkeyPatch.context() as patch:
        for holder, name in tuple(functions()):
            replace_function(patch, holder, name, noting(holder, name))
        failed = virtual_time.run(live(["other"]))
    assert failed == {"other": set()}
    return tuple(found)


def raising(victim, raised):
    """Raise whenever one job is concerned, and note it."""

    def check(values):
        if victim in map(job_of, values):
            raised.add(victim)
            raise PlantedError

    return check


def test_fault_in_any_function_of_one_job_leaves_the_others_as_they_would_be(caplog):
    """Each function raises for a job of its own: the honest one starts, grows, is judged, resized and told (A11)."""
    caplog.set_level(logging.CRITICAL)
    found = called_for_a_job()
    assert len(found) > 150
    for first in range(0, len(found), AT_ONCE):
        planted = {f"bad{number}": found[number] for number in range(first, min(first + AT_ONCE, len(found)))}
        raised = set()
        with pytest.MonkeyPatch.context() as patch:
            for victim, (holder, name) in planted.items():
                replace_function(patch, holder, name, raising(victim, raised))
            failed = virtual_time.run(live(list(planted)))
        untold = [planted[victim] for victim in raised if not failed[victim]]
        assert [one for one in untold if one[1] not in UNTOLD] == []


def test_job_of_5000_digits_is_refused_while_the_other_runs():
    """One apply of it ended the term for all jobs, and again at each start (A11)."""
    virtual_time.run(live_beside_digits())


async def live_beside_digits():
    world = World(["digits"])
    first = {"name": "first", "image": "x", "resources": {"requests": {"cpu": "9" * 5_000}}}
    template_of_it = template(cpu="1", spec={"initContainers": [first]})
    world.edit("digits", template=template_of_it)
    term = asyncio.create_task(world.lead().run())
    try:
        assert await world.until(lambda: world.ready("honest") == 4, term)
        assert await world.until(lambda: world.told("digits", "Admitted") == "InvalidSpec", term)
    finally:
        term.cancel()
        await asyncio.gather(term, return_exceptions=True)
