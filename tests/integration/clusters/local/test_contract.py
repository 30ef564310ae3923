"""The local cluster passes the contract of the port, with real processes."""

import pytest

from autoscaler.domain import PodPhase
from tests.integration.clusters.local.local_cluster import job, nodes, running, wait_until
from tests.unit.clusters.cluster_contract import ClusterContract, Stage


class TestLocalCluster(ClusterContract):
    @pytest.fixture
    async def stage(self, tmp_path):
        async with running(tmp_path, on=nodes(2, cpu_milli=3100)) as cluster:
            cluster.submit(job(), priority=0)

            async def settle():
                pods = cluster.table.pods
                await wait_until(cluster, lambda: not any(p.phase is PodPhase.TERMINATING for p in pods.values()))

            yield Stage(cluster=cluster, job="digits", nodes=("node-1", "node-2"), per_node=3, settle=settle)
