"""The cluster of one job on two nodes, for the tests of the Kubernetes adapter."""

import pytest_asyncio

from tests.unit.clusters.cluster_contract import Stage
from tests.unit.clusters.kubernetes.cluster_bench import JOB, Bench, small_job
from tests.unit.clusters.kubernetes.fake_controllers import add_job


@pytest_asyncio.fixture
async def bench():
    bench = Bench()
    bench.rest.add_node("n1", cpu="4")
    bench.rest.add_node("n2", cpu="4")
    add_job(bench.server, small_job())
    await bench.refresh()
    return bench


@pytest_asyncio.fixture
async def stage(bench):
    return Stage(cluster=bench.cluster, job=JOB, nodes=("n1", "n2"), per_node=3, settle=bench.settle)
