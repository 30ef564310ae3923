"""The control plane of a run, with real processes: a fault with one object leaves the others as they would be (A11).

The functions in which faults are planted are found by reflection: one that is new is covered without a word here.
"""

import dataclasses
import importlib
import inspect
import logging
import pkgutil
import signal
from collections.abc import Mapping

import pytest

from autoscaler.clusters.kubernetes.api.kinds import DEPLOYMENTS
from autoscaler.clusters.local import control_plane
from autoscaler.errors import ClusterError
from tests.integration.clusters.local.local_cluster import nodes, running
from tests.unit.operator.controllers.test_fault_isolation import PlantedError, replace_function

NOT_PER_OBJECT = frozenset({"api_socket", "api_wire", "socket_client"})  # the door: a request's fault is its answer
WALL = frozenset(
    {"_attempt", "_cancel", "_start_safely", "_key_of", "sync", "forget", "_handle_end", "_later", "_start_soon"}
)
AT_ONCE = 8  # faults in one story, each with a Deployment of its own


def functions():
    """Yield each function and method of the control plane: where it stands, and its name."""
    for found in pkgutil.walk_packages(control_plane.__path__, f"{control_plane.__name__}."):
        if found.name.rpartition(".")[2] in NOT_PER_OBJECT:
            continue
        module = importlib.import_module(found.name)
        for holder in (module, *(one for one in vars(module).values() if inspect.isclass(one))):
            for name, function in vars(holder).items():
                is_own = inspect.isfunction(function) and function.__module__ == module.__name__
                if is_own and "__" not in name and name not in WALL:
                    yield holder, name


def owner_of(value):
    """The Deployment that an argument is, or is something of; None: it is none's."""
    if isinstance(value, str):
        name = value.partition("-")[0]
        return name if name.startswith("bad") else None
    if isinstance(value, Mapping):
        return owner_of(value.get("metadata", {}).get("name", ""))
    if not dataclasses.is_dataclass(value):
        return None
    fields = {field.name for field in dataclasses.fields(value)}  # a property would call what is looked at
    told = (getattr(value, name) for name in ("raw", "pod", "name", "key") if name in fields)
    return next((name for one in told if (name := owner_of(one)) is not None), None)


class PlantedClusterError(ClusterError):
    """What an API server that refuses something raises."""


class Faults:
    """Whose steps have failed (`fault_isolation.FaultListener`)."""

    def __init__(self):
        self.owners = set()

    def handle_failure(self, job, _failure, _error, *, has_changed):
        self.owners.add(job.rpartition("/")[2].partition("-")[0])

    def handle_recovery(self, job):
        """It is no fault any more."""


async def deploy(plane, name, replicas):
    main = {"name": "main", "image": "none", "command": ["sleep", "1000"], "resources": {"requests": {"cpu": "100m"}}}
    template = {"metadata": {"labels": {"app": name}}}
    template["spec"] = {"containers": [main], "terminationGracePeriodSeconds": 5}
    body = {"metadata": {"name": name, "namespace": "default"}, "spec": {"replicas": replicas, "template": template}}
    await plane.api.create(DEPLOYMENTS, body)


def pods(plane, name):
    return [pod for pod in plane.pods() if pod.startswith(f"{name}-")]


def are_ready(plane, name, count):
    return len(pods(plane, name)) == count and all(map(plane.is_ready, pods(plane, name)))


def is_back(plane, name):
    return are_ready(plane, name, 2) and plane.state(f"{name}-local-0")["restartCount"] > 0


async def live(tmp_path, others, *, awaited=("honest",)):
    """All Deployments get two pods, lose a process each, shrink to one; all but the honest one are deleted.

    Each step waits for the `awaited` ones.  Returns the Deployments of which a fault was noted.
    """
    faults = Faults()
    async with running(tmp_path, on=nodes(2, cpu_milli=4_000)) as plane:
        plane.errors.listener = faults
        for name in (*others, "honest"):
            await deploy(plane, name, 2)
        await plane.until(lambda: all(are_ready(plane, name, 2) for name in awaited), "that they serve")
        for name in ("honest", *others):
            try:
                plane.kubelet.send_signal("default", f"{name}-local-0", signal.SIGKILL)
            except (PlantedError, PlantedClusterError):
                faults.owners.add(name)  # it is told to who asked
        await plane.until(lambda: all(is_back(plane, name) for name in awaited), "that they are back")
        for name in ("honest", *others):
            await plane.api.patch(DEPLOYMENTS, name, {"spec": {"replicas": 1}}, namespace="default")
        await plane.until(lambda: all(are_ready(plane, name, 1) for name in awaited), "that they shrink")
        for name in others:
            await plane.api.delete(DEPLOYMENTS, name, namespace="default")
        await deploy(plane, "late", 1)
        await plane.until(lambda: are_ready(plane, "late", 1), "that one comes late")
    assert not faults.owners & {"honest", "late"}
    return faults.owners


def plant(patch, planted, raised, *, is_passing=False, error=PlantedError):
    """Let each function raise whenever its victim is concerned, or once, and note it."""
    for victim, (holder, name) in planted.items():

        def check(values, victim=victim):
            if victim in map(owner_of, values) and not (is_passing and victim in raised):
                raised.add(victim)
                raise error

        replace_function(patch, holder, name, check)


@pytest.fixture
def noted():
    """The functions that were called for `bad`, from the call of `noted` on."""
    called = {}

    def start(patch):
        for holder, name in tuple(functions()):

            def check(values, holder=holder, name=name):
                if "bad" in map(owner_of, values):
                    called[holder, name] = None

            replace_function(patch, holder, name, check)

    start.called = called
    return start


async def test_a_fault_in_any_function_of_one_object_leaves_the_others(tmp_path, caplog, noted):
    """Each function raises for a Deployment of its own: the honest one serves, restarts and shrinks (A11)."""
    caplog.set_level(logging.CRITICAL)
    assert await live_with_faults(tmp_path, noted, PlantedError) == []


async def test_an_error_of_the_api_server_in_any_function_leaves_the_others_too(tmp_path, caplog, noted):
    """An object that is missing or refused concerns one pod or Deployment as well, which may wait for it (A11)."""
    caplog.set_level(logging.CRITICAL)
    await live_with_faults(tmp_path, noted, PlantedClusterError)


async def live_with_faults(tmp_path, noted, error):
    """Plant `error` in each function for a Deployment of its own; return the functions of which no fault was noted."""
    with pytest.MonkeyPatch.context() as patch:
        noted(patch)
        assert await live(tmp_path / "none", ["bad"], awaited=("honest", "bad")) == set()
    found = tuple(noted.called)
    assert len(found) > 30, found
    untold = []
    for first in range(0, len(found), AT_ONCE):
        planted = {f"bad{number}": found[number] for number in range(first, min(first + AT_ONCE, len(found)))}
        raised = set()
        with pytest.MonkeyPatch.context() as patch:
            plant(patch, planted, raised, error=error)
            try:
                wrong = await live(tmp_path / str(first), list(planted))
            except BaseException as failure:
                failure.add_note(f"planted: {planted}")
                raise
        untold += [planted[victim][1] for victim in raised - wrong]
    return untold


async def kill_all(tmp_path, names, plant_faults):
    """A process of each Deployment is killed, and comes back; `plant_faults` once the kills are sent."""
    async with running(tmp_path, on=nodes(4, cpu_milli=8_000)) as plane:
        for name in names:
            await deploy(plane, name, 2)
        for name in names:
            await plane.until(lambda name=name: are_ready(plane, name, 2), f"the pods of {name}")
        for name in names:
            assert plane.kubelet.send_signal("default", f"{name}-local-0", signal.SIGKILL)
        plant_faults()
        for name in names:
            await plane.until(lambda name=name: is_back(plane, name), f"that {name} is back")


@pytest.mark.parametrize("error", [PlantedError, PlantedClusterError])
async def test_a_fault_that_passes_keeps_no_pod_away(tmp_path, caplog, noted, error):
    """Whatever a restart calls raises once, for a Deployment of its own: each pod comes back (A11)."""
    caplog.set_level(logging.CRITICAL)
    with pytest.MonkeyPatch.context() as patch:
        await kill_all(tmp_path / "none", ["bad", "honest"], lambda: noted(patch))
    assert {"_judge", "_wait", "report", "_start", "command_of", "_reconcile"} <= {name for _, name in noted.called}
    planted = {f"bad{number}": step for number, step in enumerate(noted.called)}
    raised = set()
    with pytest.MonkeyPatch.context() as patch:
        try:
            faults = lambda: plant(patch, planted, raised, is_passing=True, error=error)  # noqa: E731
            await kill_all(tmp_path / "planted", [*planted, "honest"], faults)
        except BaseException as failure:
            failure.add_note(f"planted: {planted}")
            raise
    assert raised == planted.keys()
