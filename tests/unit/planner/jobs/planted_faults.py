"""Faults planted in the planner for single jobs, and the small clusters in which they are met."""

import functools
import importlib
import sys
import types

from autoscaler.domain import Capabilities
from tests.property.planner_cases import Driver
from tests.unit.clusters.memory_cluster import MemoryCluster
from tests.unit.planner.setups import CALM, job, node


class PlantedError(Exception):
    """What an unknown fault of EDL raises."""


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


def make_cluster():
    jobs = [
        job("bad", low=2, high=6, servers=1, master_milli=100),
        job("honest", low=2, high=12, servers=1, master_milli=100),
    ]
    cluster = MemoryCluster([node(f"n{number}") for number in range(5)], jobs)
    cluster.capabilities = Capabilities(servers_elastic=True, moves_servers=True)
    return cluster


def fail_for(patch, *names):
    """Let the planning of these jobs fail."""

    def made(real):
        def raising(copy, job):
            if job.spec.name in names:
                fail_with(job)
            return real(copy, job)

        return raising

    replace_function(patch, importlib.import_module("autoscaler.planner.sharing.growth_queue"), "growth_key", made)


def full_cluster():
    """Two jobs share three nodes; nothing is free."""
    driver = Driver(MemoryCluster([node("a"), node("b"), node("c")], [job("bad"), job("honest")]), CALM)
    driver.settle()
    return driver.cluster
