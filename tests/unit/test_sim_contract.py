"""The simulated cluster is a proper adapter."""

import pytest

from tests.unit.cluster_contract import ClusterContract, Stage
from tests.unit.sim_setups import cluster, job, node, shape


class TestSimulatedCluster(ClusterContract):
    @pytest.fixture
    def stage(self):
        sim = cluster(node("a", cpu=2.5), node("b", cpu=2.5))
        sim.submit(job(trainer=shape(1)))

        async def settle():
            sim.run_until(sim.now() + 10.0)

        yield Stage(cluster=sim, job="j", nodes=("a", "b"), per_node=2, settle=settle)
        sim.check()
